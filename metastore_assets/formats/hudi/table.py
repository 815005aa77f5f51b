"""Hudi tables.

The timeline shows which files belong to a state. Base files are read by column; hudi-rs merges log files into them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache

import pyarrow as pa

from metastore_assets.config import TableConfig
from metastore_assets.errors import ConfigError, TableFormatError, TableNotFoundError
from metastore_assets.expressions.partition_filter import PartitionFilter
from metastore_assets.expressions.partition_keys import encode_partition_key
from metastore_assets.formats.base import (
    DerivedColumn,
    Fragment,
    HistoryChange,
    Snapshot,
    SnapshotReference,
    TableFormat,
    history_change_by_time,
)
from metastore_assets.formats.bounds import FragmentBounds, bounds_table
from metastore_assets.formats.hudi.columns import PartitionConstants
from metastore_assets.formats.hudi.commits import Commit, read_commits
from metastore_assets.formats.hudi.file_cache import HudiFileCache
from metastore_assets.formats.hudi.fragment import HudiFragmentSource, fragment_id
from metastore_assets.formats.hudi.merge_plan import MergePlanner
from metastore_assets.formats.hudi.partitions import PATH_COLUMN, PartitionPaths, partition_types, value_type
from metastore_assets.formats.hudi.schema import (
    META_COLUMNS,
    OPERATION,
    HudiSchema,
    file_schema,
    parse_schema,
    schema_of_columns,
    table_schema,
)
from metastore_assets.formats.hudi.slices import FileSlice, plan_file_slices
from metastore_assets.formats.hudi.timeline import Instant, Timeline, boolean_property, load_timeline
from metastore_assets.formats.metadata_cache import MetadataCache
from metastore_assets.storage.corrupt_input import CORRUPTION_ERRORS, unreadable_error
from metastore_assets.storage.io_counters import IoCountingThreadPool
from metastore_assets.storage.location import Location
from metastore_assets.storage.location_policy import table_location
from metastore_assets.tasks.isolation import run_isolated

_THREADS = 16
_OPTION = "meta_columns"
_DROPPED = "hoodie.datasource.write.drop.partition.columns"


class HudiFormat(TableFormat):
    """A Hudi table at a location. Each of its snapshots is the state after a completed write."""

    def __init__(self, table: TableConfig, cache: MetadataCache) -> None:
        """Open the table without reading it. Raises ConfigError for an unknown or invalid option."""
        self._location = table_location(table)
        self._cache = HudiFileCache(cache, self._location.uri)
        self._at = table.at
        self._filter = PartitionFilter.of(table.partitions)
        self._meta_columns = table.options.get(_OPTION, False)
        unknown = sorted(set(table.options) - {_OPTION})
        if unknown or not isinstance(self._meta_columns, bool):
            key = unknown[0] if unknown else _OPTION
            raise ConfigError(
                f"table {table.name!r}: options.{key} = {table.options[key]!r}: a Hudi table has only the option "
                f"{_OPTION}, which is true or false"
            )

    def snapshot_id(self) -> str:
        """Return the id of the newest or requested state, from one listing of the timeline."""
        return self.current().id

    def current(self) -> SnapshotReference:
        """Return the id of the newest or requested state, and the time from which readers see it."""
        with _hudi_errors(self._location):
            state = load_timeline(self._location).state(self._at)
        return SnapshotReference(state.id, state.committed_at)

    def history_change(self, previous: SnapshotReference, current: SnapshotReference) -> HistoryChange:
        """Return "rolled back" if the current state is older than the previous one, else None.

        The commit times of the states are compared.
        """
        return history_change_by_time(previous, current)

    def snapshot(self) -> Snapshot:
        """Return the snapshot, from the timeline, the metadata of new commits, and one listing of the table."""
        with _hudi_errors(self._location):
            return self._snapshot()

    def partition_columns(self) -> tuple[str, ...]:
        """Return the partition columns of the current snapshot."""
        return self.snapshot().partition_columns

    def bounds(self, snapshot: Snapshot, column: str) -> pa.Table:
        """Return bounds that are all absent. Hudi stores column bounds in HFile, which is not supported."""
        return bounds_table(snapshot, column, [FragmentBounds()] * len(snapshot.fragments))

    def _snapshot(self) -> Snapshot:
        """Return the snapshot. Raises TableFormatError, or the errors that `_hudi_errors` converts."""
        timeline = load_timeline(self._location)
        _check_features(timeline)
        state = timeline.state(self._at)
        paths = PartitionPaths.of(self._location.uri, timeline.properties)
        if paths.columns:
            self._check_filter(paths.columns)
        commits = self._commits(timeline.completed)
        # Partition paths can only be interpreted when all are known, because older tables do not record their columns.
        state_commits = [commit for commit in commits if commit.instant.requested in state.requested]
        dropped = paths.columns if boolean_property(timeline.properties, _DROPPED, False) else ()
        recorded = table_schema(self._location, timeline.properties, state_commits, dropped, paths.dated)
        may_be_selected = self._listing_filter(paths, recorded) if paths.columns else lambda path: True
        slices = plan_file_slices(timeline, state, commits, may_be_selected)
        partitions = {file_slice.partition for file_slice in slices}
        paths = paths.with_folder_columns(partitions)
        columns = paths.names(partitions)
        self._check_filter(columns)
        schema = recorded or self._schema_of_files(slices)
        types = partition_types(paths, columns, partitions, schema.columns)
        is_selected = self._partition_filter(paths, types)
        missing = schema.missing_names(paths.columns)
        schema = schema.with_texts(missing)
        fragments = self._fragments(
            [file_slice for file_slice in slices if is_selected(file_slice.partition)],
            MergePlanner(timeline, state, schema, self._cache),
            PartitionConstants(self._location, paths, schema.columns, (*dropped, *missing)),
        )
        names = (*META_COLUMNS, OPERATION) if schema.has_operations else META_COLUMNS
        added = [pa.field(name, pa.string()) for name in names] if self._meta_columns else []
        return Snapshot(
            format="hudi",
            id=state.id,
            committed_at=state.committed_at,
            schema=pa.schema([*added, *schema.columns]),
            partition_columns=columns,
            derived=self._derived(timeline.properties, columns),
            fragments=tuple(sorted(fragments, key=lambda fragment: (fragment.partition_key, fragment.id))),
            partition_types=tuple(types.items()),
        )

    def _derived(self, properties: Mapping[str, str], partition_columns: Sequence[str]) -> tuple[DerivedColumn, ...]:
        """Return the snapshot's columns and partition columns that are computed from other columns."""
        derived = []
        if self._meta_columns:
            keys = [name.strip() for name in properties.get("hoodie.table.recordkey.fields", "").split(",")]
            sources = tuple((name.partition(".")[0], name) for name in keys if name)
            derived.append(DerivedColumn("_hoodie_record_key", sources, "the record key", is_partition_field=False))
        if PATH_COLUMN in partition_columns:
            derived.append(DerivedColumn(PATH_COLUMN, (), "the partition path", is_partition_field=True))
        return tuple(derived)

    def _commits(self, instants: Sequence[Instant]) -> list[Commit]:
        """Return the metadata of instants. Only commits that are not cached are read."""
        cached = {instant: self._cache.get_commit(instant) for instant in instants}
        for commit in read_commits(self._location, [instant for instant, commit in cached.items() if commit is None]):
            cached[commit.instant] = commit
            self._cache.put_commit(commit)
        return [commit for commit in cached.values() if commit is not None]

    def _listing_filter(self, paths: PartitionPaths, schema: HudiSchema | None) -> Callable[[str], bool]:
        """Return a function that returns True for the path of a partition that must be listed.

        The types of partition columns are certain only after all partitions are listed. Until then, a condition on a
        column that may not be text excludes no partition.
        """
        types = {} if schema is None else {name: value_type(paths, name, schema.columns) for name in paths.columns}
        filtered = {name.lower() for name in self._filter.columns}
        are_texts = all(type_ == pa.string() for name, type_ in types.items() if name.lower() in filtered)
        if self._filter.condition is not None and not (types and are_texts):
            return lambda path: True
        return self._partition_filter(paths, types or dict.fromkeys(paths.columns, pa.string()))

    def _partition_filter(self, paths: PartitionPaths, types: Mapping[str, pa.DataType]) -> Callable[[str], bool]:
        """Return a function that returns True for the path of a partition that the configuration selects."""
        if not self._filter.excludes_partitions:
            return lambda path: True
        bound_filter = self._filter.bind(self._location.uri, types)
        return lru_cache(maxsize=None)(lambda path: bound_filter.may_match(paths.items(path)))

    def _check_filter(self, columns: Sequence[str]) -> None:
        if unknown := self._filter.unknown_columns(columns):
            raise TableFormatError(
                f"{self._location.uri} has no partition column {unknown[0]!r}; "
                f"there are: {', '.join(columns) or 'none'}"
            )

    def _schema_of_files(self, slices: Sequence[FileSlice]) -> HudiSchema:
        """Return the schema of the newest base file in Parquet.

        Old tables need it, because their commits record no schema.
        """
        bases = [
            file_slice.base for file_slice in slices if file_slice.base is not None and file_slice.kind == "parquet"
        ]
        if not bases:
            raise TableFormatError(f"{self._location.uri}: neither a commit nor a Parquet file records the schema")
        newest = max(bases, key=lambda stored: stored.path.rpartition("_")[2])
        text, stored = run_isolated(file_schema, self._location.full_path(newest.path), self._location, newest)
        return parse_schema(self._location, text.decode()) if text is not None else schema_of_columns(stored)

    def _fragments(
        self, slices: Sequence[FileSlice], planner: MergePlanner, constants: PartitionConstants
    ) -> list[Fragment]:
        """Return the fragments of the file slices, in their order.

        A slice without a base file has no fragment if its log files apply to no rows of the state.
        """
        with IoCountingThreadPool(_THREADS) as pool:
            merge_plans = list(pool.map(planner.plan_merge, slices))
        fragments = []
        for file_slice, merge_plan in zip(slices, merge_plans, strict=True):
            # Log files that apply to no rows of the state are not read.
            used = file_slice if merge_plan and merge_plan.instants else replace(file_slice, logs=())
            if not used.files:
                continue
            source = HudiFragmentSource(
                self._location,
                used.base,
                used.kind,
                used.logs,
                constants.partition_constants(used.partition),
                planner.schema.numbers,
                self._meta_columns,
                merge_plan,
            )
            fragments.append(
                Fragment(
                    id=fragment_id(used.files, merge_plan, bool(used.logs)),
                    partition_key=encode_partition_key(constants.paths.items(used.partition)),
                    path=self._location.full_path(used.files[0].path),
                    bytes=sum(stored.size for stored in used.files),
                    row_count=used.rows,
                    source=source,
                )
            )
        return fragments


def _check_features(timeline: Timeline) -> None:
    """Raise TableFormatError if the table is bootstrapped, or if its `hoodie.table.format` is not `native`."""
    properties, uri = timeline.properties, timeline.location.uri
    if properties.get("hoodie.bootstrap.base.path"):
        raise TableFormatError(f"{uri} is bootstrapped from the files of another table, which has no reader")
    formats = properties.get("hoodie.table.format", "native")
    if formats.lower() != "native":
        raise TableFormatError(f"{uri} keeps its commits in the table format {formats!r}, which has no reader")


@contextmanager
def _hudi_errors(location: Location) -> Iterator[None]:
    """Convert a missing file to TableNotFoundError, and corrupt content to TableFormatError."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError) as error:
        raise TableNotFoundError(f"{location.uri} is no Hudi table that can be read: {error}") from error
    except CORRUPTION_ERRORS as error:
        raise unreadable_error(f"{location.uri} cannot be read as a Hudi table", error) from error
