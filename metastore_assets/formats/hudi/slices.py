"""The file slices of a Hudi table, planned from file names, the timeline and commit metadata.

A state is the completed writes whose rows a reader sees at one point in time. In each state, a file group has its rows
in one file slice: a base file, and log files with later changes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from metastore_assets.errors import SnapshotNotFoundError, TableFormatError
from metastore_assets.formats.hudi.commits import Commit, Group
from metastore_assets.formats.hudi.completion_times import CompletionTimes
from metastore_assets.formats.hudi.timeline import HudiState, Timeline
from metastore_assets.storage.location import Location, StoredFile

_BASE = re.compile(r"(?P<id>[^_.][^_]*)_(?P<token>[^_]*)_(?P<instant>\d+)\.(?P<kind>parquet|orc|hfile|lance)")
_LOG = re.compile(
    r"\.(?P<id>.+)_(?P<instant>\d+)\.log\.(?P<version>\d+)(?:_(?P<token>\d+-\d+-\d+))?(?P<changes>\.cdc)?"
)
_DATA = (".parquet", ".orc", ".hfile", ".lance", "_hudiext")
_BOOTSTRAP = "00000000000001"
"""The instant of base files that have Hudi's own columns only. The other columns are in the files of another table."""
_LOG_LIKE = re.compile(r"\..+_.*\.log\..*(?<!\.crc)")
"""Matches the names of log files of any version of Hudi, but not of their checksums."""


@dataclass(frozen=True, slots=True)
class BaseName:
    """The parsed name of a base file, which has all rows of a file group as of one instant."""

    file_id: str
    instant: str
    kind: str
    """`parquet`, `orc`, `hfile` or `lance`."""


@dataclass(frozen=True, slots=True)
class LogName:
    """The parsed name of a log file, which has changes to the rows of a base file."""

    file_id: str
    instant: str
    """Up to table version 6 the instant of the base file. Since version 8 the instant of the write that added the log
    file."""
    version: int
    token: str


def parse_data_file_name(name: str) -> BaseName | LogName | None:
    """Parse the name of a file in a partition folder.

    Returns:
        The parsed name of a base file or log file; None for a file without rows of the table.

    Raises:
        ValueError: the name looks like that of a data file, such as `x.parquet`, but Hudi does not write such names.
    """
    if match := _BASE.fullmatch(name):
        return BaseName(match["id"], match["instant"], match["kind"])
    if match := _LOG.fullmatch(name):
        if match["changes"]:
            return None  # Change logs repeat the content of other files for incremental readers.
        return LogName(match["id"], match["instant"], int(match["version"]), match["token"] or "")
    if (name.endswith(_DATA) and not name.startswith((".", "_"))) or _LOG_LIKE.fullmatch(name):
        raise ValueError(f"{name!r} is not named as Hudi names data files")
    return None


@dataclass(frozen=True)
class FileSlice:
    """The files that have the rows of one file group in a state: a base file, and logs of later changes."""

    partition: str
    """Path of the partition folder, relative to the table; empty for the table's folder."""
    file_id: str
    base: StoredFile | None
    kind: str
    """Kind of the base file: `parquet`, `orc`, `hfile` or `lance`; empty without one."""
    logs: tuple[StoredFile, ...]
    """Log files in the order in which they apply."""
    rows: int | None
    """Number of rows of the base file, as a commit records it; None if it is not recorded."""
    in_order: bool
    """Whether the log files apply in the order in which their writes began. False after concurrent writes."""

    @property
    def files(self) -> tuple[StoredFile, ...]:
        """The base file, if there is one, then the log files in the order in which they apply."""
        return ((self.base,) if self.base else ()) + self.logs

    @property
    def group(self) -> Group:
        """The file group."""
        return self.partition, self.file_id

    @property
    def is_stored(self) -> bool:
        """Whether all files still exist.

        False if one was created by `removed_file`.
        """
        return all(stored_file.size >= 0 for stored_file in self.files)


GroupFile: TypeAlias = tuple[Group, BaseName | LogName, StoredFile]
"""A data file with its file group and parsed name."""


def logs_of(slices: Mapping[Group, FileSlice]) -> set[StoredFile]:
    """Return the log files of file slices."""
    return {stored_file for file_slice in slices.values() for stored_file in file_slice.logs}


def removed_file(path: str) -> StoredFile:
    """Return a file that no longer exists, of which only the path is known."""
    return StoredFile(path, -1, "")


def plan_group_slices(
    timeline: Timeline, state: HudiState, commits: Sequence[Commit], files: Sequence[GroupFile]
) -> dict[Group, FileSlice]:
    """Return the file slices of some file groups in a state, without listing the table.

    Args:
        timeline: the timeline of the table.
        state: the state to read.
        commits: the metadata of commits, by ascending instant, reduced to the writes to these file groups. This is not
            checked: files that commits record for another group would count as missing.
        files: all files of these file groups.

    Raises:
        TableFormatError: a file of the state is missing or bootstrapped, or has a name that Hudi does not write. Or a
            file group has two base files of its newest instant.
        SnapshotNotFoundError: a file of the state was removed, and newer states exist.
    """
    return SlicePlanner(timeline, state, lambda partition: True).plan(commits, files)


@dataclass
class _GroupFiles:
    """The files of one file group.

    For a file that a commit records and the listing lacks, the stored file is None.
    """

    bases: dict[str, dict[str, tuple[str, StoredFile | None]]] = field(default_factory=dict)
    """Kind and stored file of each base file, by instant and name."""
    logs: dict[str, tuple[LogName, StoredFile | None]] = field(default_factory=dict)
    """Parsed name and stored file of each log file, by name."""


class SlicePlanner:
    """A planner that collects the files of a table state by file group, and makes a slice of each group."""

    def __init__(self, timeline: Timeline, state: HudiState, is_selected: Callable[[str], bool]) -> None:
        self._timeline = timeline
        self._state = state
        self._is_selected = is_selected
        self._completion_times = CompletionTimes(timeline)
        self._groups: dict[Group, _GroupFiles] = {}
        self._row_counts: dict[tuple[Group, str], int | None] = {}
        """Row counts of base files, by file group and file name. Buckets of several partitions may have equal ids."""
        self._later_groups: set[Group] = set()
        """File groups that started after the state."""

    def plan(self, commits: Sequence[Commit], files: Iterable[GroupFile]) -> dict[Group, FileSlice]:
        """Return the file slices of the planner's table state, by file group, in selected partitions only.

        For arguments and errors, see `plan_group_slices`.
        """
        self._groups, self._row_counts, self._later_groups = {}, {}, set()
        state_commits, later_commits = self._split(commits)
        self._add_files(files, state_commits)
        self._add_recorded_files(state_commits)
        replaced_groups = {group for commit in state_commits for group in commit.replaced}
        slices = {
            group: self._newest_slice(group, group_files)
            for group, group_files in self._groups.items()
            if group not in replaced_groups and self._is_selected(group[0]) and (group_files.bases or group_files.logs)
        }
        self._check_complete(later_commits, slices | dict.fromkeys(replaced_groups))
        return slices

    def _split(self, commits: Sequence[Commit]) -> tuple[list[Commit], list[Commit]]:
        """Return the commits that belong to the state, and the other commits."""
        state_commits = [commit for commit in commits if commit.instant.requested in self._state.requested]
        return state_commits, [commit for commit in commits if commit.instant.requested not in self._state.requested]

    def _add_files(self, files: Iterable[GroupFile], state_commits: Sequence[Commit]) -> None:
        """Add the files that belong to the state to `_groups`.

        Also add to `_later_groups` each file group whose earliest file is a log file of an instant outside the state.

        Args:
            files: The listed files.
            state_commits: The commits of the state. A base file of such a commit is ignored if the commit does not
                record it.
        """
        written_names = {commit.instant.requested: commit.file_names for commit in state_commits}
        first_instants: dict[type, dict[Group, str]] = {BaseName: {}, LogName: {}}
        for group, parsed_name, stored_file in files:
            name = stored_file.path.rpartition("/")[2]
            instants = first_instants[type(parsed_name)]
            instants[group] = min(parsed_name.instant, instants.get(group, parsed_name.instant))
            # Failed attempts leave base files that their commit does not record.
            if isinstance(parsed_name, LogName) or (group, name) in written_names.get(
                parsed_name.instant, {(group, name)}
            ):
                self._add(group, name, stored_file)
        first_bases = first_instants[BaseName]
        for group, instant in first_instants[LogName].items():
            if (group not in first_bases or instant < first_bases[group]) and not self._state.includes(instant):
                self._later_groups.add(group)

    def _add_recorded_files(self, state_commits: Sequence[Commit]) -> None:
        """Add the files in the metadata of the state's commits to `_groups`.

        Add their row counts to `_row_counts`.

        The files of the listing must be in `_groups` already. A recorded file that is not among them was removed from
        the storage. It is added without a `StoredFile`.

        Raises TableFormatError for a recorded file whose name Hudi does not write.
        """
        for commit in state_commits:
            for write in commit.writes:
                try:
                    self._add(write.group, write.name, None)
                except ValueError as error:
                    path = f"{write.group[0]}/{write.name}".lstrip("/")
                    raise foreign_file_error(self._timeline.location, path, error) from error
                if write.rows is not None:
                    self._row_counts[write.group, write.name] = write.rows

    def _add(self, group: Group, name: str, stored_file: StoredFile | None) -> None:
        """Add a file to its group if it belongs to the state.

        `stored_file` is None for a file that only a commit records.

        Raises ValueError for a data file with an invalid name.
        """
        parsed_name = parse_data_file_name(name)
        if isinstance(parsed_name, BaseName) and self._state.includes(parsed_name.instant):
            group_files = self._groups.setdefault(group, _GroupFiles())
            group_files.bases.setdefault(parsed_name.instant, {}).setdefault(name, (parsed_name.kind, stored_file))
            return
        # Up to version 6 a log file is named after its base file's instant, which may be a planned compaction.
        if isinstance(parsed_name, LogName) and (
            parsed_name.instant <= self._state.until
            if self._timeline.layout == 1
            else self._state.includes(parsed_name.instant)
        ):
            group_files = self._groups.setdefault(group, _GroupFiles())
            if stored_file is not None or name not in group_files.logs:
                group_files.logs[name] = (parsed_name, stored_file)

    def _newest_slice(self, group: Group, group_files: _GroupFiles) -> FileSlice:
        """Return a group's slice: the newest base file, if it has one, and the log files that apply.

        Raises the errors of `plan_group_slices`.
        """
        instant = max(group_files.bases, default="")
        if instant == _BOOTSTRAP:
            raise TableFormatError(
                f"{self._timeline.location.uri} has files that were bootstrapped from the files of another table, "
                "which has no reader"
            )
        bases = group_files.bases[instant] if group_files.bases else {"": ("", None)}
        if len(bases) > 1:
            raise TableFormatError(
                f"{self._timeline.location.uri}: the file group {group[1]} has two base files of one instant: "
                f"{' and '.join(sorted(bases))}"
            )
        ((name, (kind, base)),) = bases.items()
        logs = []
        for log_name, (parsed_name, stored_file) in group_files.logs.items():
            applied_time = (
                parsed_name.instant
                if self._timeline.layout == 1
                else self._completion_times.completion_time(parsed_name.instant)
            )
            # Earlier log files were compacted into the base file.
            if applied_time >= instant:
                logs.append(
                    ((applied_time, parsed_name.instant, parsed_name.version, parsed_name.token), log_name, stored_file)
                )
        logs.sort(key=lambda log: log[0])
        missing_names = [name] if name and base is None else []
        missing_names += [log_name for _, log_name, stored_file in logs if stored_file is None]
        if missing_names:
            path = self._timeline.location.full_path(f"{group[0]}/{missing_names[0]}".lstrip("/"))
            raise self._incomplete_error(f"{path} is missing, although a commit records it")
        instants = [order[1] for order, _, _ in logs]
        return FileSlice(
            group[0],
            group[1],
            base,
            kind,
            tuple(stored_file for _, _, stored_file in logs if stored_file is not None and stored_file.size),
            self._row_counts.get((group, name)),
            instants == sorted(instants),
        )

    def _check_complete(self, later_commits: Sequence[Commit], slices: Mapping[Group, FileSlice | None]) -> None:
        """Raise an error if the cleaner may have removed files of the state.

        Args:
            later_commits: the commits after the state. The file groups that they continue or replace are checked.
            slices: the planned file slices of the state; None for a file group that the state replaced.

        Raises:
            SnapshotNotFoundError: files were removed, and there is a newer state.
            TableFormatError: files were removed, and there is no newer state.
        """
        # A file group that a later commit continues or replaces was part of the state, so its files must exist. The
        # commits that wrote them may be archived.
        for commit in later_commits:
            needed_files: list[tuple[Group, str]] = [(group, "") for group in commit.replaced]
            for write in commit.writes:
                if write.previous is None:
                    self._later_groups.add(write.group)
                elif self._state.includes(write.previous) and not write.name.startswith("."):
                    needed_files.append((write.group, write.previous))
            for group, previous in needed_files:
                if group in self._later_groups or not self._is_selected(group[0]):
                    continue
                file_slice = slices.get(group)
                base = file_slice.base if file_slice else None
                base_name = parse_data_file_name(base.path.rpartition("/")[2]) if base else None
                is_too_old = isinstance(base_name, BaseName) and base_name.instant < previous
                if group not in slices or is_too_old:
                    raise self._incomplete_error(f"the cleaner removed files of the file group {group[1]}")

    def _incomplete_error(self, reason: str) -> TableFormatError | SnapshotNotFoundError:
        """Return the error for a missing file.

        It is SnapshotNotFoundError if a newer state exists, otherwise TableFormatError.
        """
        uri, completed_instants = self._timeline.location.uri, self._timeline.completed
        if self._state.until < (completed_instants[-1].requested if completed_instants else ""):
            return SnapshotNotFoundError(
                f"{uri} cannot be read any more as of {self._state.until}: {reason}; read a newer state"
            )
        return TableFormatError(f"{uri} is not complete: {reason}")


def foreign_file_error(location: Location, path: str, error: ValueError) -> TableFormatError:
    """Return the error for a data file that is not named as Hudi names data files."""
    return TableFormatError(
        f"{location.full_path(path)} is a data file that was bootstrapped, or that another tool added to the table, "
        f"which has no reader: {error}"
    )
