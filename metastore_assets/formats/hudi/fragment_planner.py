"""Fragments of a Hudi table, planned from the file slices of a state.

A state is the completed writes whose rows a reader sees. A file slice has the rows of one file group in a state: a base
file, and log files with later changes. A fragment has the rows of one slice. A log file applies to a state if it has
changes of the state's writes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa

from metastore_assets.expressions.partition_keys import encode_partition_key
from metastore_assets.formats.base import Fragment, FragmentPath
from metastore_assets.formats.hudi.column_reading import PartitionConstants
from metastore_assets.formats.hudi.commits import Group
from metastore_assets.formats.hudi.fragment import HudiFragmentSource, fragment_id
from metastore_assets.formats.hudi.merge_plan import MergePlanner, PlannedSlice
from metastore_assets.formats.hudi.partitions import PartitionPaths, unparsed_columns
from metastore_assets.formats.hudi.schema import HudiSchema
from metastore_assets.formats.hudi.slices import FileSlice
from metastore_assets.storage.location import Location
from metastore_assets.storage.parallel import parallel_map

_THREADS = 16


@dataclass(frozen=True)
class StateColumns:
    """The columns and the partition columns of a table in one state."""

    paths: PartitionPaths
    schema: HudiSchema
    """The recorded schema; without one, the schema of a file."""
    partition_types: Mapping[str, pa.DataType]
    """The partition columns in order, with the types of their values."""
    dropped: tuple[str, ...]
    """Partition columns that data files do not store."""

    @cached_property
    def missing(self) -> tuple[str, ...]:
        """The partition columns that `schema` lacks."""
        return self.schema.missing_names(self.paths.columns)

    @property
    def unparsed(self) -> tuple[str, ...]:
        """The partition columns that are text because a value cannot be parsed as the schema's type."""
        return unparsed_columns(self.paths, self.partition_types, self.schema.columns)

    @cached_property
    def complete_schema(self) -> HudiSchema:
        """`schema` with all partition columns.

        Those in `missing` are added with the type text.
        """
        return self.schema.with_texts(self.missing)


class HudiFragmentPlanner:
    """A planner that creates the fragments of a state from its file slices in selected partitions."""

    def __init__(
        self, location: Location, planner: MergePlanner, columns: StateColumns, is_selected: Callable[[str], bool]
    ) -> None:
        """Create the planner.

        Args:
            location: the table's folder.
            planner: plans how the log files of the state are merged.
            columns: the columns of the state.
            is_selected: returns True for the path of a partition that the configuration selects.
        """
        self._location = location
        self._planner = planner
        self._paths = columns.paths
        self._constants = PartitionConstants(
            location, columns.paths, columns.complete_schema.columns, (*columns.dropped, *columns.missing)
        )
        self._is_selected = is_selected

    def fragments(self, slices: Collection[FileSlice], *, meta_columns: bool) -> dict[Group, Fragment]:
        """Return the fragments of file slices by file group.

        Args:
            slices: the file slices. A slice has no fragment if its partition is not selected, or if it has neither a
                base file nor a log file that applies.
            meta_columns: whether the columns that Hudi adds are requested.
        """
        fragments = {}
        for planned_slice in self._plan(slices):
            file_slice = planned_slice.file_slice
            constants = self._constants.partition_constants(file_slice.partition)
            source = HudiFragmentSource(
                self._location,
                file_slice.base,
                file_slice.kind,
                file_slice.logs,
                constants,
                self._planner.schema.numbers,
                meta_columns,
                planned_slice.merge_plan,
            )
            key, path = self._fragment_path(file_slice)
            fragments[file_slice.group] = Fragment(
                id=fragment_id(planned_slice, constants),
                partition_key=key,
                path=path,
                bytes=sum(stored_file.size for stored_file in file_slice.files),
                row_count=None if file_slice.logs else file_slice.rows,
                source=source,
            )
        return fragments

    def fragment_paths(self, slices: Collection[FileSlice]) -> dict[Group, FragmentPath]:
        """Return (partition key, path) of each fragment that `fragments` would return, by file group.

        The path is that of the base file. Without a base file, it is that of the first log file that applies to the
        state. To find this log file, the log files are read.
        """
        planned_slices = self._plan(
            [replace(file_slice, logs=()) if file_slice.base else file_slice for file_slice in slices]
        )
        return {
            planned_slice.file_slice.group: self._fragment_path(planned_slice.file_slice)
            for planned_slice in planned_slices
        }

    def _plan(self, slices: Iterable[FileSlice]) -> list[PlannedSlice]:
        """Plan the slices in selected partitions.

        A slice is left out if it has no base file, and no log file that applies to the state.
        """
        selected_slices = [file_slice for file_slice in slices if self._is_selected(file_slice.partition)]
        plans = parallel_map(self._planner.plan_slice, selected_slices, _THREADS)
        return [planned_slice for planned_slice in plans if planned_slice.file_slice.files]

    def _fragment_path(self, file_slice: FileSlice) -> FragmentPath:
        key = encode_partition_key(self._paths.items(file_slice.partition))
        return key, self._location.full_path(file_slice.files[0].path)
