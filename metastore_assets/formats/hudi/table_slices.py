"""The file slices of all partitions of a Hudi table, from one listing sorted in bounded memory.

A state is the completed writes whose rows a reader sees at one point in time. A file slice has the rows of one file
group in a state: a base file, and log files with later changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, groupby

import pyarrow as pa

from metastore_assets.errors import TableFormatError
from metastore_assets.formats.hudi.commits import Commit, Group, Write
from metastore_assets.formats.hudi.slices import (
    FileSlice,
    GroupFile,
    SlicePlanner,
    foreign_file_error,
    parse_data_file_name,
)
from metastore_assets.formats.hudi.timeline import FOLDER, PARTITION_MARKER, HudiState, Timeline
from metastore_assets.storage.location import StoredFile
from metastore_assets.store.sorted_runs import SortedTuples

_FILES = pa.schema([("key", pa.string()), ("path", pa.string()), ("size", pa.int64()), ("version", pa.string())])
"""Columns of a listed file. The key sorts files by folder, then by name."""


class TableSlices:
    """The file slices of one table state, in the selected partitions.

    Iteration yields the slices of one partition at a time, and can be repeated. Only the files of this partition are in
    memory.
    """

    def __init__(
        self, timeline: Timeline, state: HudiState, commits: Sequence[Commit], is_selected: Callable[[str], bool]
    ) -> None:
        """List the data files in all folders of the table.

        The slices are planned during iteration.

        Args:
            timeline: the timeline of the table.
            state: the state to read.
            commits: the metadata of all instants on the timeline, including instants after the state.
            is_selected: returns True for the path of a partition that the configuration selects.
        """
        self._timeline = timeline
        self._state = state
        self._planner = SlicePlanner(timeline, state, is_selected)
        self._is_selected = is_selected
        self._commits = [replace(commit, writes=(), replaced=()) for commit in commits]
        """The commits, without the files that they wrote and removed."""
        self._changed: dict[str, dict[int, tuple[list[Write], list[Group]]]] = {}
        """What commits wrote and replaced, by partition, then by index of the commit in `commits`."""
        for number, commit in enumerate(commits):
            for write in commit.writes:
                self._changes_of(write.group[0], number)[0].append(write)
            for group in commit.replaced:
                self._changes_of(group[0], number)[1].append(group)
        self._partitions = {
            write.group[0]
            for commit in commits
            if commit.instant.requested in state.requested
            for write in commit.writes
        }
        self._files = SortedTuples(_FILES)
        for stored_file in timeline.location.list(descend=lambda path: path.rpartition("/")[2] != FOLDER):
            folder, _, name = stored_file.path.rpartition("/")
            if name.startswith(PARTITION_MARKER):
                self._partitions.add(folder)
            if _is_data_file(name):
                self._files.add((f"{folder}\0{name}", *stored_file))

    def __iter__(self) -> Iterator[list[FileSlice]]:
        """Yield one list of slices for each partition that has any.

        Partitions are sorted by path, and the slices of a partition by file id.

        Raises:
            TableFormatError: a file of the state is missing, or it is uncertain whether a data file belongs to the
                table.
            SnapshotNotFoundError: a file of the state was removed, and newer states exist.
        """
        # Commits may name partitions without a listed file. They are planned, too, so that missing files are noticed.
        changed_partitions = iter(sorted(self._changed))
        next_partition = next(changed_partitions, None)
        for folder, rows in groupby(self._files, key=lambda row: row[0].partition("\0")[0]):
            while next_partition is not None and next_partition < folder:
                yield from self._slices(next_partition, [])
                next_partition = next(changed_partitions, None)
            if next_partition == folder:
                next_partition = next(changed_partitions, None)
            yield from self._slices(folder, [StoredFile(*fields) for _, *fields in rows])
        for partition in chain([] if next_partition is None else [next_partition], changed_partitions):
            yield from self._slices(partition, [])

    def _changes_of(self, partition: str, number: int) -> tuple[list[Write], list[Group]]:
        return self._changed.setdefault(partition, {}).setdefault(number, ([], []))

    def _slices(self, partition: str, files: Sequence[StoredFile]) -> Iterator[list[FileSlice]]:
        """Yield the slices of a partition as one list, if it is selected and has slices."""
        group_files = self._group_files(partition, files)
        if not self._is_selected(partition):
            return
        commits = list(self._commits)
        for number, (writes, replaced_groups) in self._changed.get(partition, {}).items():
            commits[number] = replace(commits[number], writes=tuple(writes), replaced=tuple(replaced_groups))
        slices = self._planner.plan(commits, group_files)
        if slices:
            yield [slices[group] for group in sorted(slices)]

    def _group_files(self, folder: str, files: Sequence[StoredFile]) -> list[GroupFile]:
        """Return the data files in a folder with their file groups; none if the folder is no partition.

        Raises TableFormatError if it is uncertain whether a data file belongs to the table.
        """
        location = self._timeline.location
        is_partition, is_selected = folder in self._partitions, self._is_selected(folder)
        group_files: list[GroupFile] = []
        for stored_file in files:
            try:
                parsed_name = parse_data_file_name(stored_file.path.rpartition("/")[2])
            except ValueError as error:
                if is_partition and is_selected:
                    raise foreign_file_error(location, stored_file.path, error) from error
                continue
            if parsed_name is None:
                continue
            if is_partition:
                group_files.append(((folder, parsed_name.file_id), parsed_name, stored_file))
            elif self._state.includes(parsed_name.instant):
                # A copy of files, another table, or a partition that lost its marker.
                raise TableFormatError(
                    f"{location.full_path(folder)} has data files but no {PARTITION_MARKER}, so that it is uncertain "
                    "whether it is a partition of the table"
                )
        return group_files


def _is_data_file(name: str) -> bool:
    """Return whether a name is that of a data file.

    A name such as `x.parquet`, which Hudi never gives, counts too.
    """
    try:
        return parse_data_file_name(name) is not None
    except ValueError:
        return True
