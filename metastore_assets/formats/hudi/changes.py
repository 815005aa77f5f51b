"""The changes between two states of a Hudi table: the touched file groups, with their file slices.

A state is the completed writes whose rows a reader sees at one point in time. In each state, a file group has its rows
in one file slice: a base file, and log files with later changes. A clean removes files that newer states do not need.
An instant is a completed write or clean on the timeline, identified by its start time.

Only the files of touched groups are listed. If the timeline does not show all changes, NoDiffError is raised with the
reason.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from metastore_assets.errors import SnapshotNotFoundError, TableFormatError
from metastore_assets.formats.base import NoDiffError
from metastore_assets.formats.hudi.commits import Commit, Group, read_cleaned_files
from metastore_assets.formats.hudi.partitions import PartitionPaths, partition_types, unparsed_columns
from metastore_assets.formats.hudi.slices import (
    BaseName,
    FileSlice,
    GroupFile,
    LogName,
    parse_data_file_name,
    plan_group_slices,
    removed_file,
)
from metastore_assets.formats.hudi.state_record import StateRecord
from metastore_assets.formats.hudi.timeline import HudiState, Instant, Timeline
from metastore_assets.storage.location import Location, StoredFile
from metastore_assets.storage.parallel import parallel_map

_THREADS = 16
_MAX_GROUPS = 2
"""Maximum number of file groups of a partition whose files are listed by prefix in an object store. Each group takes
two requests. For more groups, all files of the partition are listed."""

_LAST = "\U0010ffff"
"""Sorts behind every character of a file name."""


@dataclass(frozen=True)
class WritesBetween:
    """The writes and cleans by which a newer state of a table differs from an older one."""

    added: tuple[Instant, ...]
    """Writes that only the newer state has."""
    withdrawn: tuple[Instant, ...]
    """Writes on the timeline that only the older state has. They exist if the option `at` now names an earlier state.
    """
    rolled_back: tuple[Instant, ...]
    """Writes of the older state that were rolled back since, by a restore for example."""
    archived: tuple[Instant, ...]
    """Writes of the older state that were archived since, and therefore belong to both states."""
    cleans: tuple[Instant, ...]
    """Cleans that completed since the older state was planned."""
    overlap: bool
    """Whether a write of the older state began after one that only the newer state has."""


def writes_between(timeline: Timeline, record: StateRecord, state: HudiState) -> WritesBetween:
    """Return the writes and cleans by which a state differs from a state that was recorded earlier.

    Raises NoDiffError if the timeline does not show all of them.
    """
    current_instants = {instant.requested: instant for instant in timeline.completed}
    earlier_instants = {instant.requested: instant for instant in record.instants}
    if max(earlier_instants, default="") < timeline.start:
        raise NoDiffError("the timeline has no write of the earlier snapshot")
    if state.instants and state.until < timeline.start:
        raise NoDiffError("the snapshot is that of a savepoint, and writes after it may be archived")
    if record.cleans and record.cleans.isdisjoint(instant.requested for instant in timeline.cleans):
        raise NoDiffError("the timeline has no clean of the earlier snapshot's time")
    if any(
        current_instants.get(requested_time, instant) != instant for requested_time, instant in earlier_instants.items()
    ):
        raise NoDiffError("writes of the earlier snapshot have other metadata now")
    if any(
        requested_time < timeline.start and requested_time not in current_instants
        for requested_time in record.unfinished
    ):
        raise NoDiffError("a write was incomplete in the earlier snapshot, and the timeline no longer has it")
    added_instants = tuple(instant for instant in state.instants if instant.requested not in earlier_instants)
    absent_instants = [
        earlier_instants[requested_time] for requested_time in earlier_instants.keys() - current_instants.keys()
    ]
    return WritesBetween(
        added_instants,
        tuple(
            current_instants[requested_time]
            for requested_time in earlier_instants.keys() & current_instants.keys() - state.requested
        ),
        tuple(instant for instant in absent_instants if instant.requested >= timeline.start),
        tuple(instant for instant in absent_instants if instant.requested < timeline.start),
        tuple(instant for instant in timeline.cleans if instant.requested not in record.cleans),
        any(instant.requested <= record.until for instant in added_instants),
    )


def further_instants(timeline: Timeline, state: HudiState, writes: WritesBetween) -> Sequence[Instant]:
    """Return the completed instants, besides `writes`, whose metadata are needed to plan file slices.

    Args:
        timeline: the timeline of the table.
        state: the newer state.
        writes: the writes between the states.
    """
    if writes.withdrawn or writes.rolled_back or len(state.instants) < len(timeline.completed):
        # Later commits show whether the cleaner removed files of the state.
        return timeline.completed
    # A write that overlapped with another one may have changed a file group that the other one replaced.
    return [instant for instant in timeline.completed if instant.action == "replacecommit"] if writes.overlap else ()


class TouchedGroups:
    """The file groups that the writes between two states touched, and the files of these groups.

    The constructor lists all files of these groups that still exist, including those that the later state no longer
    uses.
    """

    def __init__(
        self,
        timeline: Timeline,
        load: Callable[[Sequence[Instant]], Iterable[Commit]],
        changed_commits: Sequence[Commit],
        is_selected: Callable[[str], bool],
    ) -> None:
        """List the files of the touched groups in the store.

        Args:
            timeline: the timeline of the table.
            load: reads the metadata of instants on the timeline.
            changed_commits: the metadata of the writes between the states, also of those that were rolled back.
            is_selected: returns whether the partition at a path is selected.

        Raises:
            NoDiffError: a data file is not named as Hudi names data files.
        """
        touched_groups = {write.group for commit in changed_commits for write in commit.writes}
        touched_groups.update(group for commit in changed_commits for group in commit.replaced)
        self._groups = frozenset(group for group in touched_groups if is_selected(group[0]))
        self._timeline = timeline
        self._load = load
        self._active = {instant.requested: instant for instant in timeline.completed}
        self.rolled_back = frozenset(
            write.group
            for commit in changed_commits
            for write in commit.writes
            if commit.instant.requested not in self._active
        )
        """Groups with writes that were rolled back. Their log files no longer show which blocks applied."""
        self._commits: dict[str, Commit] = {}
        self._confirmed: set[tuple[Group, str]] = set()
        """Group and instant of each base file that a later write builds on. Such a file belongs to the table."""
        self.add_commits(changed_commits)
        self._listed = _list_groups(timeline.location, self._groups)

    def add_commits(self, commits: Iterable[Commit]) -> None:
        """Record what commits wrote or replaced in the touched groups.

        What they did to other groups is ignored.
        """
        for commit in commits:
            writes = tuple(write for write in commit.writes if write.group in self._groups)
            replaced_groups = tuple(group for group in commit.replaced if group in self._groups)
            self._commits[commit.instant.requested] = replace(commit, writes=writes, replaced=replaced_groups)
            self._confirmed.update((write.group, write.previous) for write in writes if write.previous is not None)

    def slices(self, state: HudiState) -> dict[Group, FileSlice]:
        """Return the file slice of each touched group in a state of the timeline.

        Raises the errors of `plan_group_slices`.
        """
        self._read_unread_commits(state, self._listed)
        commits = [self._commits[instant] for instant in sorted(self._commits.keys() & self._active.keys())]
        return plan_group_slices(self._timeline, state, commits, self._listed)

    def earlier_slices(self, state: HudiState, cleans: Sequence[Instant]) -> dict[Group, FileSlice]:
        """Return the file slice of each touched group in an earlier state.

        A slice with a base file may contain files that were removed since.

        Args:
            state: the earlier state.
            cleans: the cleans since that state was planned.

        Raises:
            NoDiffError: it is uncertain which files a group had. Or log files of a slice without a base file were
                removed or rolled back.
        """
        files = {
            (group, stored_file.path): (group, parsed_name, stored_file)
            for group, parsed_name, stored_file in self._listed
        }
        written_files = [(write.group[0], write.name) for commit in self._commits.values() for write in commit.writes]
        try:
            cleaned_files = read_cleaned_files(self._timeline.location, cleans)
        except TableFormatError as error:
            raise NoDiffError("the metadata of a clean cannot be read") from error
        for partition, name in (*written_files, *cleaned_files):
            parsed_name, path = _parse(name), f"{partition}/{name}".lstrip("/")
            if parsed_name is not None and (group := (partition, parsed_name.file_id)) in self._groups:
                files.setdefault((group, path), (group, parsed_name, removed_file(path)))
        group_files = list(files.values())
        self._read_unread_commits(state, group_files)
        # Later commits, too: they show that a file is missing which a clean that did not complete has removed.
        commits = [self._commits[instant] for instant in sorted(self._commits)]
        try:
            slices = plan_group_slices(self._timeline, state, commits, group_files)
        except (TableFormatError, SnapshotNotFoundError) as error:
            raise NoDiffError("it is uncertain which files a changed file group had") from error
        for group, file_slice in slices.items():
            if not file_slice.base and (group in self.rolled_back or not file_slice.is_stored):
                raise NoDiffError("log files of the earlier snapshot were removed or rolled back")
        return slices

    def _read_unread_commits(self, state: HudiState, files: Sequence[GroupFile]) -> None:
        """Read the commits that show which base file of each group is newest in a state.

        They are added to `_commits`. Commits that were added before are not read again.

        Args:
            state: the state.
            files: the files of the groups.
        """
        bases: dict[Group, dict[str, set[str]]] = {}
        for group, parsed_name, stored_file in files:
            if isinstance(parsed_name, BaseName) and state.includes(parsed_name.instant):
                names = bases.setdefault(group, {}).setdefault(parsed_name.instant, set())
                names.add(stored_file.path.rpartition("/")[2])
        while unread := {instant for group in bases if (instant := self._unread_commit(group, bases[group]))}:
            self.add_commits(self._load([self._active[instant] for instant in sorted(unread)]))

    def _unread_commit(self, group: Group, bases: Mapping[str, Collection[str]]) -> str | None:
        """Return the instant of the next commit to read to find a group's newest base file, or None.

        A failed write may leave a base file that no commit names. Therefore a base file counts only if the commit of
        its instant names it. The instants of the base files are examined from the newest to the oldest. The result is
        the first instant whose commit must be read. It is None if a base file counts before such an instant is found,
        or if no base file counts.

        In two cases, a base file counts although the commit of its instant was not read:

        - The commit is archived.
        - It is the group's only base file of its instant, and a later commit that was read records this instant as that
          of the group's previous base file.

        Args:
            group: the file group.
            bases: the names of its base files by instant.
        """
        for instant in sorted(bases, reverse=True):
            if instant in self._commits:
                writes = self._commits[instant].writes
                if any(write.group == group and write.name in bases[instant] for write in writes):
                    return None
            elif instant in self._active:
                is_certain = len(bases[instant]) == 1 and (group, instant) in self._confirmed
                return None if is_certain else instant
            else:
                return None  # In a snapshot, too, all files of archived writes count.
        return None


def types_since(
    record: StateRecord,
    paths: PartitionPaths,
    schema: pa.Schema,
    groups: Collection[Group],
    earlier_groups: Collection[Group],
) -> dict[str, pa.DataType]:
    """Return the types of the partition columns in the newer state.

    They are derived from the types in the older state and the paths of touched partitions.

    Args:
        record: the record of the older state.
        paths: the layout of partition paths.
        schema: the table's schema.
        groups: the touched file groups that the newer state has.
        earlier_groups: the touched file groups that the older state had.

    Raises:
        NoDiffError: the partition columns or their types may have changed.
    """
    partitions, earlier_partitions = (
        {partition for partition, _ in touched_groups} for touched_groups in (groups, earlier_groups)
    )
    if not paths.columns and (record.partition_columns or any(partitions | earlier_partitions)):
        raise NoDiffError("the table does not record its partition columns")
    types = partition_types(paths, paths.columns, partitions, schema)
    texts = unparsed_columns(paths, types, schema)
    if not set(texts) <= set(record.texts):
        raise NoDiffError("the type of a partition column changed")
    if not set(record.texts) <= set(texts) and not earlier_partitions <= partitions:
        raise NoDiffError("the type of a partition column may have changed")
    return types | dict.fromkeys(record.texts, pa.string())


def _list_groups(location: Location, groups: Collection[Group]) -> list[GroupFile]:
    """List the files of file groups.

    Raises NoDiffError for a data file that is not named as Hudi names data files.
    """
    by_partition: dict[str, list[str]] = {}
    for partition, file_id in sorted(groups):
        by_partition.setdefault(partition, []).append(file_id)

    def list_files(partition: str) -> list[StoredFile]:
        file_ids = by_partition[partition]
        if location.is_local or len(file_ids) > _MAX_GROUPS:
            return list(location.files(partition))
        prefixes = [prefix for file_id in file_ids for prefix in (f"{file_id}_", f".{file_id}_")]
        return [
            stored_file for prefix in prefixes for stored_file in location.files(partition, prefix, f"{prefix}{_LAST}")
        ]

    listings = parallel_map(list_files, by_partition, _THREADS)
    files = []
    for partition, listing in zip(by_partition, listings, strict=True):
        for stored_file in listing:
            parsed_name = _parse(stored_file.path.rpartition("/")[2])
            if parsed_name is not None and (group := (partition, parsed_name.file_id)) in groups:
                files.append((group, parsed_name, stored_file))
    return files


def _parse(name: str) -> BaseName | LogName | None:
    """Parse the name of a file in a partition; see `parse_data_file_name`.

    Raises NoDiffError for an invalid name.
    """
    try:
        return parse_data_file_name(name)
    except ValueError as error:
        raise NoDiffError("a data file is not named as Hudi names data files") from error
