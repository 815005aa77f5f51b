"""File slices: for each file group of a Hudi table, the base file and the log files that hold its rows in a state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from metastore_assets.errors import SnapshotNotFoundError, TableFormatError
from metastore_assets.formats.hudi.commits import Commit, Group
from metastore_assets.formats.hudi.names import BaseName, LogName, data_file_name
from metastore_assets.formats.hudi.timeline import FOLDER, PARTITION_MARKER, State, Timeline
from metastore_assets.storage.location import StoredFile


@dataclass(frozen=True)
class FileSlice:
    """The rows of one file group: a base file, as changed by log files."""

    partition: str
    """Path of the partition folder, relative to the table; empty for the table's folder."""
    file_id: str
    base: StoredFile | None
    kind: str
    """Kind of the base file: `parquet`, `orc`, `hfile` or `lance`; empty without one."""
    logs: tuple[StoredFile, ...]
    """Log files in the order in which they apply."""
    rows: int | None
    """Number of rows of the base file, as the commit that wrote it records."""
    in_order: bool
    """Whether the log files apply in the order in which their writes began. False after concurrent writes."""


@dataclass
class _GroupFiles:
    """The files of one file group. Names without a stored file are known from commits only."""

    bases: dict[str, tuple[str, str, StoredFile | None]] = field(default_factory=dict)
    """Name, kind and file by instant."""
    logs: dict[str, tuple[LogName, StoredFile | None]] = field(default_factory=dict)


def file_slices(
    timeline: Timeline,
    state: State,
    commits: Sequence[Commit],
    is_selected: Callable[[str], bool],
    archived: Callable[[], Mapping[str, str]],
) -> list[FileSlice]:
    """Return the slices of a state in the selected partitions, ordered by path.

    Args:
        commits: Commits on the timeline, including those of later states.
        archived: Returns the completion times of older instants.

    Raises:
        TableFormatError, SnapshotNotFoundError: If a file of the state is missing.
    """
    state_commits = [commit for commit in commits if commit.instant.requested in state.requested]
    later = [commit for commit in commits if commit.instant.requested not in state.requested]
    groups, began = _listed(timeline, state, state_commits, is_selected)
    rows: dict[str, int | None] = {}
    for commit in state_commits:
        for write in commit.writes:
            try:
                _add(groups, state, timeline, write.group, write.name, None)
            except ValueError as error:
                raise _foreign(timeline, f"{write.group[0]}/{write.name}".lstrip("/"), error) from error
            if write.rows is not None:
                rows[write.name] = write.rows
    replaced = {group for commit in state_commits for group in commit.replaced}
    ends = _Completions(timeline, archived)
    slices = []
    for group, group_files in groups.items():
        if group not in replaced and is_selected(group[0]) and (group_files.bases or group_files.logs):
            slices.append(_latest(timeline, state, group, group_files, rows, ends))
    later_groups = {group for group, instant in began.items() if not state.has(instant)}
    visible = {(one.partition, one.file_id): one for one in slices} | dict.fromkeys(replaced)
    _check_complete(timeline, state, later, visible, later_groups, is_selected)
    return sorted(slices, key=lambda one: (one.partition, one.file_id))


def _listed(
    timeline: Timeline, state: State, state_commits: Sequence[Commit], is_selected: Callable[[str], bool]
) -> tuple[dict[Group, _GroupFiles], dict[Group, str]]:
    """Return the files of the state, and the instant of the first log file of groups that started with one."""
    location = timeline.location
    written = {commit.instant.requested: commit.file_names for commit in state_commits}
    partitions = {write.group[0] for commit in state_commits for write in commit.writes}
    files: list[tuple[str, StoredFile, BaseName | LogName | ValueError]] = []
    for stored in location.list(descend=lambda path: path.rpartition("/")[2] != FOLDER):
        folder, _, name = stored.path.rpartition("/")
        if name.startswith(PARTITION_MARKER):
            partitions.add(folder)
        try:
            meaning: BaseName | LogName | ValueError | None = data_file_name(name)
        except ValueError as error:
            meaning = error
        if meaning is not None:
            files.append((folder, stored, meaning))
    groups: dict[Group, _GroupFiles] = {}
    first: dict[type, dict[Group, str]] = {BaseName: {}, LogName: {}}
    for folder, stored, meaning in files:
        if folder not in partitions:
            # A copy of files, another table, or a partition that lost its marker.
            if not isinstance(meaning, ValueError) and state.has(meaning.instant):
                raise TableFormatError(
                    f"{location.full_path(folder)} has data files but no {PARTITION_MARKER}, so that it is uncertain "
                    "whether it is a partition of the table"
                )
        elif is_selected(folder):
            if isinstance(meaning, ValueError):
                raise _foreign(timeline, stored.path, meaning)
            group, name = (folder, meaning.file_id), stored.path.rpartition("/")[2]
            of_kind = first[type(meaning)]
            of_kind[group] = min(meaning.instant, of_kind.get(group, meaning.instant))
            # Other files are left over from attempts that did not become part of the commit.
            if isinstance(meaning, LogName) or (group, name) in written.get(meaning.instant, {(group, name)}):
                _add(groups, state, timeline, group, name, stored)
    bases = first[BaseName]
    began = {group: log for group, log in first[LogName].items() if group not in bases or log < bases[group]}
    return groups, began


def _add(
    groups: dict[Group, _GroupFiles],
    state: State,
    timeline: Timeline,
    group: Group,
    name: str,
    stored: StoredFile | None,
) -> None:
    meaning = data_file_name(name)
    if isinstance(meaning, BaseName) and state.has(meaning.instant):
        group_files = groups.setdefault(group, _GroupFiles())
        other = group_files.bases.get(meaning.instant)
        if other is None:
            group_files.bases[meaning.instant] = (name, meaning.kind, stored)
        elif other[0] != name:
            raise TableFormatError(
                f"{timeline.location.uri}: the file group {group[1]} has two base files of one instant: "
                f"{other[0]} and {name}"
            )
        return
    # Up to version 6 a log file is named after its base file's instant, which may be a planned compaction.
    if isinstance(meaning, LogName) and (
        meaning.instant <= state.until if timeline.layout == 1 else state.has(meaning.instant)
    ):
        group_files = groups.setdefault(group, _GroupFiles())
        if stored is not None or name not in group_files.logs:
            group_files.logs[name] = (meaning, stored)


class _Completions:
    """Completion times of the instants of log files."""

    def __init__(self, timeline: Timeline, archived: Callable[[], Mapping[str, str]]) -> None:
        self._active = {one.requested: one.completed for one in timeline.completed}
        self._archived = archived
        self._loaded: Mapping[str, str] | None = None

    def of(self, instant: str) -> str:
        """Return the completion time of an instant; without other information, the instant itself."""
        completed = self._active.get(instant)
        if completed is None and instant not in self._active:
            if self._loaded is None:
                self._loaded = self._archived()
            completed = self._loaded.get(instant)
        return completed or instant


def _latest(
    timeline: Timeline,
    state: State,
    group: Group,
    group_files: _GroupFiles,
    rows: Mapping[str, int | None],
    ends: _Completions,
) -> FileSlice:
    instant = max(group_files.bases, default="")
    name, kind, base = group_files.bases[instant] if group_files.bases else ("", "", None)
    logs = []
    for log_name, (meaning, stored) in group_files.logs.items():
        applied = meaning.instant if timeline.layout == 1 else ends.of(meaning.instant)
        # Earlier log files were compacted into the base file.
        if applied >= instant:
            logs.append(((applied, meaning.instant, meaning.version, meaning.token), log_name, stored))
    logs.sort(key=lambda log: log[0])
    missing = [name] if name and base is None else []
    missing += [log_name for _, log_name, stored in logs if stored is None]
    if missing:
        path = timeline.location.full_path(f"{group[0]}/{missing[0]}".lstrip("/"))
        raise _missing_error(timeline, state, f"{path} is gone, which its commit says was written")
    return FileSlice(
        group[0],
        group[1],
        base,
        kind,
        tuple(stored for _, _, stored in logs if stored is not None and stored.size),
        None if logs else rows.get(name),
        [order[1] for order, _, _ in logs] == sorted(order[1] for order, _, _ in logs),
    )


def _check_complete(
    timeline: Timeline,
    state: State,
    later: Iterable[Commit],
    slices: Mapping[Group, FileSlice | None],
    later_groups: set[Group],
    is_selected: Callable[[str], bool],
) -> None:
    """Raise if the cleaner may have removed files of a past state that commits before the timeline's start wrote.

    `later_groups` are groups that started with log files after the state; those that started with base files are added.
    """
    for commit in later:
        needed: list[tuple[Group, str]] = [(group, "") for group in commit.replaced]
        for write in commit.writes:
            if write.previous is None:
                later_groups.add(write.group)
            elif state.has(write.previous) and not write.name.startswith("."):
                needed.append((write.group, write.previous))
        for group, previous in needed:
            if group in later_groups or not is_selected(group[0]):
                continue
            one = slices.get(group)
            base = data_file_name(one.base.path.rpartition("/")[2]) if one and one.base else None
            too_old = isinstance(base, BaseName) and base.instant < previous
            if group not in slices or too_old:
                raise _missing_error(timeline, state, f"the file group {group[1]} has been cleaned")


def _foreign(timeline: Timeline, path: str, error: ValueError) -> TableFormatError:
    return TableFormatError(
        f"{timeline.location.full_path(path)} is a data file that another tool made part of the table or that was "
        f"bootstrapped, which has no reader: {error}"
    )


def _missing_error(timeline: Timeline, state: State, what: str) -> TableFormatError | SnapshotNotFoundError:
    newest = timeline.completed[-1].requested if timeline.completed else ""
    if state.until < newest:
        return SnapshotNotFoundError(
            f"{timeline.location.uri} cannot be read any more as of {state.until}: {what}; read a newer state"
        )
    return TableFormatError(f"{timeline.location.uri} is not complete: {what}")
