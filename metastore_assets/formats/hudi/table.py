"""Hudi tables.

A state is the completed writes whose rows a reader sees at one point in time. The timeline shows which files belong to
a state. A fragment has the rows of one file slice: a base file, and log files with later changes. Base files are read
by column. hudi-rs merges log files into them, and reads base files in the format Lance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from itertools import chain

import pyarrow as pa

from metastore_assets.batching import batched
from metastore_assets.config import TableConfig
from metastore_assets.digests import digest_bytes, digest_json
from metastore_assets.errors import ConfigError, TableFormatError, TableNotFoundError
from metastore_assets.expressions.partition_filter import PartitionFilter
from metastore_assets.formats.base import (
    DerivedColumn,
    Fragment,
    HistoryChange,
    NoDiff,
    NoDiffError,
    Snapshot,
    SnapshotDiff,
    SnapshotMetadata,
    SnapshotReference,
    SnapshotStream,
    TableFormat,
    fragment_order,
    history_change_by_time,
)
from metastore_assets.formats.bounds import FragmentBounds, bounds_table
from metastore_assets.formats.hudi.changes import (
    TouchedGroups,
    further_instants,
    types_since,
    writes_between,
)
from metastore_assets.formats.hudi.commits import Commit, read_commits
from metastore_assets.formats.hudi.file_cache import HudiFileCache
from metastore_assets.formats.hudi.fragment_planner import HudiFragmentPlanner, StateColumns
from metastore_assets.formats.hudi.merge_plan import MergePlanner
from metastore_assets.formats.hudi.partitions import PATH_COLUMN, PartitionPaths, partition_types, value_type
from metastore_assets.formats.hudi.schema import (
    META_COLUMNS,
    OPERATION,
    HudiSchema,
    file_schema,
    parse_schema,
    schema_commit,
    schema_of_columns,
    table_schema,
)
from metastore_assets.formats.hudi.slices import FileSlice, logs_of
from metastore_assets.formats.hudi.state_record import StateRecord
from metastore_assets.formats.hudi.table_slices import TableSlices
from metastore_assets.formats.hudi.timeline import (
    HudiState,
    Instant,
    Timeline,
    boolean_property,
    is_hudi_table,
    load_timeline,
)
from metastore_assets.formats.metadata_cache import MetadataCache
from metastore_assets.storage.corrupt_input import CORRUPTION_ERRORS, unreadable_error
from metastore_assets.storage.location import Location
from metastore_assets.storage.location_policy import table_location
from metastore_assets.tasks.isolation import run_isolated

_OPTION = "meta_columns"
_SLICES_AT_ONCE = 1000
"""Number of file slices whose fragments are planned together."""
_DROPPED = "hoodie.datasource.write.drop.partition.columns"
_IGNORED_PROPERTIES = ("hoodie.table.checksum", "hoodie.table.metadata.")
"""Properties that change when Hudi builds indexes. `hoodie.table.checksum` is the checksum of all properties."""


class HudiFormat(TableFormat):
    """A Hudi table at a location.

    Each of its snapshots is the state after a completed write.
    """

    def __init__(self, table: TableConfig, cache: MetadataCache) -> None:
        """Open the table without reading it.

        Raises ConfigError for an unknown or invalid option.
        """
        self._location = table_location(table)
        self._cache = HudiFileCache(cache, self._location.uri)
        self._at = table.at
        self._filter = PartitionFilter.of(table.partitions)
        self._meta_columns = table.options.get(_OPTION, False)
        self._timeline: Timeline | None = None
        """The timeline that `current()` has read. The next `changes()` uses it instead of another, and removes it."""
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
        self._timeline = None
        with _hudi_errors(self._location):
            timeline = load_timeline(self._location)
            state = timeline.state(self._at)
        self._timeline = timeline
        return SnapshotReference(state.id, state.committed_at)

    def history_change(self, previous: SnapshotReference, current: SnapshotReference) -> HistoryChange:
        """Return "rolled back" if the current state is older than the previous one; otherwise None.

        The commit times of the states are compared.
        """
        return history_change_by_time(previous, current)

    def snapshot(self) -> Snapshot:
        """Build the snapshot from the timeline, the metadata of new commits, and one listing of the table."""
        return self.stream().read_all()

    def stream(self) -> SnapshotStream:
        """Return the snapshot as a stream.

        The listing of a large table is sorted in a temporary file.
        """
        with _hudi_errors(self._location):
            return self._stream()

    def changes(self, since: SnapshotReference) -> SnapshotDiff | NoDiff:
        """Return the changes since an earlier snapshot, or a NoDiff with the reason why they are unknown.

        Only folders of changed partitions are listed in the store, completely or in part. If the changes are known, the
        current state is cached, so that later changes can be computed from it.
        """
        with _hudi_errors(self._location):
            try:
                return self._changes(since)
            except NoDiffError as error:
                return NoDiff(str(error))

    def partition_columns(self) -> tuple[str, ...]:
        """Return the partition columns of the current snapshot."""
        with _hudi_errors(self._location):
            timeline = self._load_timeline()
            has_commits = bool(timeline.state(self._at).instants)
            if has_commits and (recorded_columns := self._partition_paths(timeline).columns):
                return recorded_columns
        return self.snapshot().partition_columns

    def bounds(self, snapshot: Snapshot, column: str) -> pa.Table:
        """Return one row per fragment, in which all bounds are absent.

        Hudi stores the bounds of columns in HFile, a format that has no reader.
        """
        return bounds_table(snapshot, column, [FragmentBounds()] * len(snapshot.fragments))

    def _stream(self) -> SnapshotStream:
        """Return the snapshot as a stream.

        If a commit records the schema, a record of the state is stored in the cache, from which later changes are
        computed.

        Raises SnapshotNotFoundError if the requested state does not exist, and TableFormatError if the table cannot be
        read. The caller converts other errors of reading files with `_hudi_errors`.
        """
        timeline = self._load_timeline()
        state = timeline.state(self._at)
        paths = self._partition_paths(timeline)
        commits = self._commits(timeline.completed)
        state_commits = [commit for commit in commits if commit.instant.requested in state.requested]
        recorded_schema = self._recorded_schema(timeline, state_commits, paths)
        slices = TableSlices(timeline, state, commits, self._listing_filter(paths, recorded_schema))
        dropped_columns = self._dropped(timeline, paths)
        # Partition paths can only be interpreted when all are known, because older tables do not record their columns.
        partitions = {partition_slices[0].partition for partition_slices in slices}
        paths = paths.with_folder_columns(partitions)
        names = paths.names(partitions)
        self._check_filter(names)
        schema = recorded_schema or self._schema_of_files(chain.from_iterable(slices))
        types = partition_types(paths, names, partitions, schema.columns)
        columns = StateColumns(paths, schema, types, dropped_columns)
        metadata = self._metadata(timeline, state, columns)
        if recorded_schema is not None:
            self._record_state(timeline, state, schema_commit(state_commits), columns, metadata)
        planner = self._planner(timeline, state, columns)

        def fragments() -> Iterator[Fragment]:
            with _hudi_errors(self._location):
                for batch in batched(chain.from_iterable(slices), _SLICES_AT_ONCE):
                    yield from planner.fragments(batch, meta_columns=self._meta_columns).values()

        return SnapshotStream(metadata, fragments())

    def _changes(self, since: SnapshotReference) -> SnapshotDiff:
        """Return the changes; see `changes`.

        Also stores a record of the new state in the cache, and discards cached metadata that are no longer needed.

        Raises NoDiffError, or the errors of `_stream`.
        """
        timeline, self._timeline = self._timeline or load_timeline(self._location), None
        _check_features(timeline)
        state = timeline.state(self._at)
        paths = self._partition_paths(timeline)
        record = self._cache.get_state(since)
        if record is None:
            raise NoDiffError("the cached metadata do not describe the earlier snapshot")
        if record.settings != self._settings(timeline):
            raise NoDiffError("properties of the table or the selected partitions changed")
        writes = writes_between(timeline, record, state)
        changed_commits = self._commits((*writes.added, *writes.withdrawn)) + self._cached_commits(writes.rolled_back)
        further = self._commits(further_instants(timeline, state, writes))
        schema_commits = [
            commit for commit in (*changed_commits, *further) if commit.instant.requested in state.requested
        ]
        if not writes.withdrawn and not writes.rolled_back:
            schema_commits += record.schema_commits
        schema = self._recorded_schema(timeline, schema_commits, paths)
        if schema is None:
            raise NoDiffError("no commit records the schema")
        groups = TouchedGroups(timeline, self._commits, changed_commits, self._listing_filter(paths, schema))
        groups.add_commits(further)
        slices, earlier_slices = groups.slices(state), groups.earlier_slices(record.state, writes.cleans)
        types = types_since(record, paths, schema.columns, slices, earlier_slices)
        columns = StateColumns(paths, schema, types, self._dropped(timeline, paths))
        metadata = self._metadata(timeline, state, columns)
        if _columns_digest(metadata) != record.columns:
            raise NoDiffError("the schema changed")
        added_fragments = self._planner(timeline, state, columns).fragments(
            slices.values(), meta_columns=self._meta_columns
        )
        earlier_planner = self._planner(timeline, record.state, columns)
        removed_paths = earlier_planner.fragment_paths(earlier_slices.values())
        # A write does not change a fragment if none of its rows belong to the state.
        comparable = [
            earlier_slices[group]
            for group in (added_fragments.keys() & removed_paths.keys()) - groups.rolled_back
            if added_fragments[group].path == removed_paths[group][1] and earlier_slices[group].is_stored
        ]
        for group, fragment in earlier_planner.fragments(comparable, meta_columns=self._meta_columns).items():
            if fragment.id == added_fragments[group].id:
                del added_fragments[group], removed_paths[group]
        self._record_state(timeline, state, schema_commit(schema_commits), columns, metadata)
        self._cache.discard((*writes.archived, *writes.rolled_back), logs_of(earlier_slices) - logs_of(slices))
        added_paths = {(fragment.partition_key, fragment.path) for fragment in added_fragments.values()}
        earlier_paths = frozenset(removed_paths.values())
        return SnapshotDiff(
            since,
            metadata,
            tuple(sorted(added_fragments.values(), key=fragment_order)),
            removed=earlier_paths - added_paths,
            replaced=earlier_paths & added_paths,
        )

    def _load_timeline(self) -> Timeline:
        """Return the timeline.

        Raises TableFormatError for a table that this package cannot read.
        """
        timeline = load_timeline(self._location)
        _check_features(timeline)
        return timeline

    def _partition_paths(self, timeline: Timeline) -> PartitionPaths:
        """Return the layout of partition paths that the table's properties record.

        Raises TableFormatError if the configuration filters by a column that is not among the partition columns in the
        properties. This is not checked if the properties name no partition columns.
        """
        paths = PartitionPaths.of(self._location.uri, timeline.properties)
        if paths.columns:
            self._check_filter(paths.columns)
        return paths

    def _recorded_schema(
        self, timeline: Timeline, commits: Sequence[Commit], paths: PartitionPaths
    ) -> HudiSchema | None:
        """Return the schema that the commits record, or else that of the table's properties.

        The result is None if neither has one.
        """
        dropped_columns = self._dropped(timeline, paths)
        return table_schema(self._location, timeline.properties, commits, dropped_columns, paths.dated)

    def _dropped(self, timeline: Timeline, paths: PartitionPaths) -> tuple[str, ...]:
        """Return the partition columns that data files do not store."""
        return paths.columns if boolean_property(timeline.properties, _DROPPED, False) else ()

    def _planner(self, timeline: Timeline, state: HudiState, columns: StateColumns) -> HudiFragmentPlanner:
        merge_planner = MergePlanner(timeline, state, columns.complete_schema, self._cache)
        is_selected = self._partition_filter(columns.paths, columns.partition_types)
        return HudiFragmentPlanner(self._location, merge_planner, columns, is_selected)

    def _metadata(self, timeline: Timeline, state: HudiState, columns: StateColumns) -> SnapshotMetadata:
        """Return the metadata of a state's snapshot.

        The schema begins with Hudi's own columns, such as `_hoodie_record_key`, if the table's options request them.
        """
        schema = columns.complete_schema
        names = (*META_COLUMNS, OPERATION) if schema.has_operations else META_COLUMNS
        added_fields = [pa.field(name, pa.string()) for name in names] if self._meta_columns else []
        return SnapshotMetadata(
            format="hudi",
            id=state.id,
            committed_at=state.committed_at,
            schema=pa.schema([*added_fields, *schema.columns]),
            partition_columns=tuple(columns.partition_types),
            derived=self._derived(timeline.properties, tuple(columns.partition_types)),
            partition_types=tuple(columns.partition_types.items()),
        )

    def _record_state(
        self,
        timeline: Timeline,
        state: HudiState,
        schema: Commit | None,
        columns: StateColumns,
        metadata: SnapshotMetadata,
    ) -> None:
        """Cache the record of this state, from which later changes are computed.

        Args:
            timeline: the timeline that was read.
            state: the planned state.
            schema: the commit that defines the schema; None if the properties define it.
            columns: the columns of the state.
            metadata: the metadata of the state's snapshot.
        """
        record = StateRecord(
            instants=state.instants,
            until=state.until,
            start=state.start,
            unfinished=timeline.pending | timeline.planned,
            cleans=frozenset(instant.requested for instant in timeline.cleans),
            settings=self._settings(timeline),
            schema=schema.schema if schema else None,
            schema_instant=schema.instant.requested if schema else "",
            is_rewrite_schema=schema is not None and schema.is_rewrite,
            columns=_columns_digest(metadata),
            partition_columns=metadata.partition_columns,
            texts=columns.unparsed,
        )
        self._cache.put_state(metadata.reference, record)

    def _settings(self, timeline: Timeline) -> str:
        """Return a digest of everything that determines which files and columns are read.

        It covers the table's properties, the partition filter, and whether Hudi's own columns are read. Properties that
        change when Hudi builds indexes are left out.
        """
        properties = {
            key: value for key, value in timeline.properties.items() if not key.startswith(_IGNORED_PROPERTIES)
        }
        settings = [sorted(properties.items()), repr(self._filter), self._meta_columns]
        return digest_json(settings)

    def _derived(self, properties: Mapping[str, str], partition_columns: Sequence[str]) -> tuple[DerivedColumn, ...]:
        """Return the columns that are computed from other columns, and may therefore reveal their values.

        `_hoodie_record_key` is returned if the table is read with Hudi's own columns. `_hoodie_partition_path` is
        returned if it is a partition column.
        """
        derived_columns = []
        if self._meta_columns:
            keys = [name.strip() for name in properties.get("hoodie.table.recordkey.fields", "").split(",")]
            sources = tuple((name.partition(".")[0], name) for name in keys if name)
            derived_columns.append(
                DerivedColumn("_hoodie_record_key", sources, "the record key", is_partition_field=False)
            )
        if PATH_COLUMN in partition_columns:
            derived_columns.append(DerivedColumn(PATH_COLUMN, (), "the partition path", is_partition_field=True))
        return tuple(derived_columns)

    def _commits(self, instants: Sequence[Instant]) -> list[Commit]:
        """Return the metadata of instants.

        Only commits that are not cached are read.
        """
        commits_by_instant = {instant: self._cache.get_commit(instant) for instant in instants}
        for commit in read_commits(
            self._location, [instant for instant, commit in commits_by_instant.items() if commit is None]
        ):
            commits_by_instant[commit.instant] = commit
            self._cache.put_commit(commit)
        return [commit for commit in commits_by_instant.values() if commit is not None]

    def _cached_commits(self, instants: Sequence[Instant]) -> list[Commit]:
        """Return the metadata of writes that are no longer on the timeline.

        Raises NoDiffError if they are not cached.
        """
        commits = [commit for commit in map(self._cache.get_commit, instants) if commit is not None]
        if len(commits) < len(instants):
            raise NoDiffError("writes of the earlier snapshot were rolled back")
        return commits

    def _listing_filter(self, paths: PartitionPaths, schema: HudiSchema | None) -> Callable[[str], bool]:
        """Return a function that returns whether the partition at a path must be listed.

        The function also accepts some partitions that are not selected, because column types are certain only after
        the listing.
        """
        if not paths.columns:
            return lambda path: True
        # A condition is applied only to columns that are certainly text. Other conditions exclude no partition.
        types = {} if schema is None else {name: value_type(paths, name, schema.columns) for name in paths.columns}
        filtered_columns = {name.lower() for name in self._filter.columns}
        are_texts = all(type_ == pa.string() for name, type_ in types.items() if name.lower() in filtered_columns)
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

    def _schema_of_files(self, slices: Iterable[FileSlice]) -> HudiSchema:
        """Return the schema of the newest Parquet base file, for old tables whose commits record no schema.

        Raises TableFormatError if no slice has a Parquet base file.
        """
        bases = (
            file_slice.base for file_slice in slices if file_slice.base is not None and file_slice.kind == "parquet"
        )
        newest = max(bases, key=lambda file: file.path.rpartition("_")[2], default=None)
        if newest is None:
            raise TableFormatError(f"{self._location.uri}: neither a commit nor a Parquet file records the schema")
        text, stored_schema = run_isolated(file_schema, self._location.full_path(newest.path), self._location, newest)
        return parse_schema(self._location, text.decode()) if text is not None else schema_of_columns(stored_schema)


def _columns_digest(metadata: SnapshotMetadata) -> str:
    return digest_bytes(metadata.schema.serialize().to_pybytes())


def _check_features(timeline: Timeline) -> None:
    """Raise TableFormatError if the table is bootstrapped, or its `hoodie.table.format` is not `native`."""
    properties, uri = timeline.properties, timeline.location.uri
    if properties.get("hoodie.bootstrap.base.path"):
        raise TableFormatError(f"{uri} is bootstrapped from the files of another table, which has no reader")
    formats = properties.get("hoodie.table.format", "native")
    if formats.lower() != "native":
        raise TableFormatError(f"{uri} keeps its commits in the table format {formats!r}, which has no reader")


@contextmanager
def _hudi_errors(location: Location) -> Iterator[None]:
    """Convert a missing table to TableNotFoundError, other read errors to TableFormatError.

    Other read errors are a missing file of an existing table, and corrupt content.
    """
    try:
        yield
    except (FileNotFoundError, NotADirectoryError) as error:
        with suppress(FileNotFoundError, NotADirectoryError):
            if is_hudi_table(location):
                raise TableFormatError(
                    f"{location.uri}: a file was removed while the table was read, as archiving, cleaning and "
                    f"rollbacks do; try again: {error}"
                ) from error
        raise TableNotFoundError(f"{location.uri} is no Hudi table that can be read: {error}") from error
    except CORRUPTION_ERRORS as error:
        raise unreadable_error(f"{location.uri} cannot be read as a Hudi table", error) from error
