"""File slices: of each file group of a Hudi table, the base file and the log files that hold its rows in a state."""

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
    """The rows of one file group: those of the base file, as the log files change them."""

    partition: str
    """Path of the partition's folder, relative to the table; empty for the table's own folder."""
    file_id: str
    base: StoredFile | None
    kind: str
    """Of the base file: `parquet`, `orc`, `hfile` or `lance`; empty without one."""
    logs: tuple[StoredFile, ...]
    """In the order in which they apply."""
    rows: int | None
    """Of the base file, as the commit that wrote it says."""
    in_order: bool
    """Whether the log files apply in the order in which their writes began: not so after concurrent writes."""


@dataclass
class _Found:
    """What there is of one file group. Names without a stored file are known from commits only."""

    bases: dict[str, tuple[str, str, StoredFile | None]] = field(default_factory=dict)
    """By instant: name, kind, file."""
    logs: dict[str, tuple[LogName, StoredFile | None]] = field(default_factory=dict)


def file_slices(
    timeline: Timeline,
    state: State,
    commits: Sequence[Commit],
    keeps: Callable[[str], bool],
    archived: Callable[[], Mapping[str, str]],
) -> list[FileSlice]:
    """The slices of a state, ordered by path, of the partitions that are kept.

    `commits` are those on the timeline, of later states as well. `archived` gives the completion times of older
    instants. Raises TableFormatError or SnapshotNotFoundError when a file of the state is gone.
    """
    own = [commit for commit in commits if commit.instant.requested in state.requested]
    later = [commit for commit in commits if commit.instant.requested not in state.requested]
    groups, began = _listed(timeline, state, own, keeps)
    rows: dict[str, int | None] = {}
    for commit in own:
        for write in commit.writes:
            try:
                _add(groups, state, timeline, write.group, write.name, None)
            except ValueError as error:
                raise _foreign(timeline, f"{write.group[0]}/{write.name}".lstrip("/"), error) from error
            if write.rows is not None:
                rows[write.name] = write.rows
    replaced = {group for commit in own for group in commit.replaced}
    ends = _Completions(timeline, archived)
    slices = []
    for group, found in groups.items():
        if group not in replaced and keeps(group[0]) and (found.bases or found.logs):
            slices.append(_latest(timeline, state, group, found, rows, ends))
    made_later = {group for group, instant in began.items() if not state.has(instant)}
    visible = {(one.partition, one.file_id): one for one in slices} | dict.fromkeys(replaced)
    _check_complete(timeline, state, later, visible, made_later, keeps)
    return sorted(slices, key=lambda one: (one.partition, one.file_id))


def _listed(
    timeline: Timeline, state: State, own: Sequence[Commit], keeps: Callable[[str], bool]
) -> tuple[dict[Group, _Found], dict[Group, str]]:
    """The files of the state, and the instants of the first log files of groups that began with them."""
    location = timeline.location
    written = {commit.instant.requested: commit.file_names for commit in own}
    partitions = {write.group[0] for commit in own for write in commit.writes}
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
    groups: dict[Group, _Found] = {}
    first: dict[type, dict[Group, str]] = {BaseName: {}, LogName: {}}
    for folder, stored, meaning in files:
        if folder not in partitions:
            # A copy of files, another table, or a partition that lost its marker.
            if not isinstance(meaning, ValueError) and state.has(meaning.instant):
                raise TableFormatError(
                    f"{location.full_path(folder)} has data files but no {PARTITION_MARKER}, so that it is uncertain "
                    "whether it is a partition of the table"
                )
        elif keeps(folder):
            if isinstance(meaning, ValueError):
                raise _foreign(timeline, stored.path, meaning)
            group, name = (folder, meaning.file_id), stored.path.rpartition("/")[2]
            of_kind = first[type(meaning)]
            of_kind[group] = min(meaning.instant, of_kind.get(group, meaning.instant))
            # Others were left behind by attempts that did not become part of the commit.
            if isinstance(meaning, LogName) or (group, name) in written.get(meaning.instant, {(group, name)}):
                _add(groups, state, timeline, group, name, stored)
    bases = first[BaseName]
    began = {group: log for group, log in first[LogName].items() if group not in bases or log < bases[group]}
    return groups, began


def _add(
    groups: dict[Group, _Found], state: State, timeline: Timeline, group: Group, name: str, stored: StoredFile | None
) -> None:
    meaning = data_file_name(name)
    if isinstance(meaning, BaseName) and state.has(meaning.instant):
        found = groups.setdefault(group, _Found())
        other = found.bases.get(meaning.instant)
        if other is None:
            found.bases[meaning.instant] = (name, meaning.kind, stored)
        elif other[0] != name:
            raise TableFormatError(
                f"{timeline.location.uri}: the file group {group[1]} has two base files of one instant: "
                f"{other[0]} and {name}"
            )
        return
    # Up to version 6 a log file has the name of its base file's instant, which may be a plan of a compaction.
    if isinstance(meaning, LogName) and (
        meaning.instant <= state.until if timeline.layout == 1 else state.has(meaning.instant)
    ):
        found = groups.setdefault(group, _Found())
        if stored is not None or name not in found.logs:
            found.logs[name] = (meaning, stored)


class _Completions:
    """When the instants of log files completed."""

    def __init__(self, timeline: Timeline, archived: Callable[[], Mapping[str, str]]) -> None:
        self._active = {one.requested: one.completed for one in timeline.completed}
        self._archived = archived
        self._loaded: Mapping[str, str] | None = None

    def of(self, instant: str) -> str:
        """Its own digits when nothing else is known."""
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
    found: _Found,
    rows: Mapping[str, int | None],
    ends: _Completions,
) -> FileSlice:
    instant = max(found.bases, default="")
    name, kind, base = found.bases[instant] if found.bases else ("", "", None)
    logs = []
    for log_name, (meaning, stored) in found.logs.items():
        applied = meaning.instant if timeline.layout == 1 else ends.of(meaning.instant)
        # Earlier ones went into the base file when it was compacted.
        if applied >= instant:
            logs.append(((applied, meaning.instant, meaning.version, meaning.token), log_name, stored))
    logs.sort(key=lambda log: log[0])
    missing = [name] if name and base is None else []
    missing += [log_name for _, log_name, stored in logs if stored is None]
    if missing:
        path = timeline.location.full_path(f"{group[0]}/{missing[0]}".lstrip("/"))
        raise _gone(timeline, state, f"{path} is gone, which its commit says was written")
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
    made_later: set[Group],
    keeps: Callable[[str], bool],
) -> None:
    """Of a state of the past, the cleaner may have removed files that commits before the timeline's start wrote.

    `made_later` are groups that began with log files after the state; those that began with base files are added.
    """
    for commit in later:
        needed: list[tuple[Group, str]] = [(group, "") for group in commit.replaced]
        for write in commit.writes:
            if write.previous is None:
                made_later.add(write.group)
            elif state.has(write.previous) and not write.name.startswith("."):
                needed.append((write.group, write.previous))
        for group, previous in needed:
            if group in made_later or not keeps(group[0]):
                continue
            one = slices.get(group)
            base = data_file_name(one.base.path.rpartition("/")[2]) if one and one.base else None
            too_old = isinstance(base, BaseName) and base.instant < previous
            if group not in slices or too_old:
                raise _gone(timeline, state, f"the file group {group[1]} has been cleaned")


def _foreign(timeline: Timeline, path: str, error: ValueError) -> TableFormatError:
    return TableFormatError(
        f"{timeline.location.full_path(path)} is a data file that another tool made part of the table or that was "
        f"bootstrapped, which has no reader: {error}"
    )


def _gone(timeline: Timeline, state: State, what: str) -> TableFormatError | SnapshotNotFoundError:
    newest = timeline.completed[-1].requested if timeline.completed else ""
    if state.until < newest:
        return SnapshotNotFoundError(
            f"{timeline.location.uri} cannot be read any more as of {state.until}: {what}; read a newer state"
        )
    return TableFormatError(f"{timeline.location.uri} is not complete: {what}")
