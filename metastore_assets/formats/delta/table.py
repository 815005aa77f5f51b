"""Delta tables.

Snapshots come from the log; fragments are Parquet files with deletion vectors.

The head of a version is everything about it except its files. It is cached, so that the changes since the version can
be computed later.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa

from metastore_assets.config import TableConfig
from metastore_assets.digests import digest_bytes, digest_texts
from metastore_assets.errors import MetastoreError, TableFormatError, TableNotFoundError
from metastore_assets.expressions.partition_filter import PartitionFilter
from metastore_assets.expressions.partition_keys import encode_partition_key
from metastore_assets.formats.base import (
    ArrowFile,
    DerivedColumn,
    Fragment,
    FragmentPath,
    HistoryChange,
    NoDiff,
    NoDiffError,
    Snapshot,
    SnapshotDiff,
    SnapshotMetadata,
    SnapshotReference,
    SnapshotStream,
    TableFormat,
    UnstreamableError,
    fragment_order,
    history_change_by_number,
    retry_while_files_are_removed,
    state_not_found,
)
from metastore_assets.formats.bounds import FragmentBounds, bounds_table, column_path, constant_bounds
from metastore_assets.formats.deletion_vectors import DeletionVector
from metastore_assets.formats.delta.actions import AddedFile, TableState, replay
from metastore_assets.formats.delta.commit_times import CommitTimes
from metastore_assets.formats.delta.log import LOG, Log, log_since, read_log
from metastore_assets.formats.delta.protocol import MappingMode, check_readable, mapping_mode
from metastore_assets.formats.delta.schema import arrow_schema, check_schema, derived_columns, parse_partition_value
from metastore_assets.formats.delta.statistics import file_bounds, physical_name, statistics_column
from metastore_assets.formats.delta.version_head import HeadCache, VersionHead
from metastore_assets.formats.metadata_cache import MetadataCache
from metastore_assets.formats.metadata_json import parse_json
from metastore_assets.formats.readers.parquet import ParquetColumns
from metastore_assets.formats.readers.reader import ColumnMapping, FileFragmentReader, fragment_errors
from metastore_assets.formats.schema_casting import FieldMatcher, identity
from metastore_assets.formats.values import Constant, value_text
from metastore_assets.iso8601 import parse_moment
from metastore_assets.storage.corrupt_input import CORRUPTION_ERRORS, metadata_errors, unreadable_error
from metastore_assets.storage.location import Location
from metastore_assets.storage.location_policy import LocationPolicy, table_location

if TYPE_CHECKING:
    from metastore_assets.formats.delta.changes import RemovedFile

_STREAMED_PARTITIONS = 10_000
"""Maximum number of partitions that are in memory while files are streamed. One takes 1.7 kB, and 20 µs to create."""
_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")


class DeltaFormat(TableFormat):
    """A Delta table at a location.

    Its snapshots are the versions of its log.

    The requested version is the one that the configuration's `at` selects, if it is set.
    """

    def __init__(self, table: TableConfig, cache: MetadataCache) -> None:
        self._cache = cache
        self._location = table_location(table)
        self._at = table.at
        self._location_policy = LocationPolicy.of(table, self._location)
        self._filter = PartitionFilter.of(table.partitions)
        policy = self._location_policy
        selection = repr((self._filter, policy.path_mapping, policy.restrict_to_table_root))
        self._selection = digest_texts([selection])
        self._heads = HeadCache(cache, self._location.uri)
        self._times = CommitTimes(self._location, cache)
        self._state_with_statistics: tuple[str, TableState] | None = None
        self._listed_log: Log | None = None
        """The listing of the last `current()`. The next `changes()` uses it instead of another one, and removes it."""

    def snapshot_id(self) -> str:
        """Return the newest or requested version as text, from a listing of the log."""
        with _delta_errors(self._location):
            return str(retry_while_files_are_removed(self._current_version)[0])

    def current(self) -> SnapshotReference:
        """Return the newest or requested version with the time in its commit file.

        If the time of the newest version is cached, one listing of the log suffices.
        """
        with _delta_errors(self._location):
            version, identity = retry_while_files_are_removed(self._current_version)
            return SnapshotReference(str(version), self._times.recorded_time(version, identity))

    def history_change(self, previous: SnapshotReference, current: SnapshotReference) -> HistoryChange:
        """Return "recreated", "rolled back" or None, judged by version numbers and commit times.

        None means ordinary commits, or that the previous id is no version of a Delta table.
        """
        if not previous.id.isdecimal():
            return None
        return history_change_by_number((int(previous.id), int(current.id)), previous, current)

    def snapshot(self) -> Snapshot:
        """Return the snapshot of the newest or requested version, from a checkpoint and the commits after it."""
        with _delta_errors(self._location):
            return retry_while_files_are_removed(self._snapshot)

    def _snapshot(self) -> Snapshot:
        version, identity, state, table = self._replay()
        fragments = [fragment for _, fragment, _ in table.distinct_files(state.adds)]
        metadata = self._snapshot_metadata(table, version, identity)
        return Snapshot(**vars(metadata), fragments=tuple(sorted(fragments, key=fragment_order)))

    def stream(self) -> SnapshotStream:
        """Return the snapshot of the newest or requested version as a stream.

        The files of a checkpoint are read one after the other.
        """
        with _delta_errors(self._location):
            version, identity, state, table = retry_while_files_are_removed(self._replay)
            metadata = self._snapshot_metadata(table, version, identity)

        def fragments() -> Iterator[Fragment]:
            from metastore_assets.store.sorted_runs import DistinctTexts

            with _delta_errors(self._location), DistinctTexts() as paths:
                try:
                    for _, fragment, _ in table.files(state.adds, _STREAMED_PARTITIONS):
                        paths.add(fragment.path)
                        yield fragment
                except FileNotFoundError as error:
                    raise UnstreamableError(f"{self._location.uri}: a file of the log was removed: {error}") from error
                if not paths.are_distinct():
                    raise UnstreamableError(f"{self._location.uri}: the log has a data file twice")

        return SnapshotStream(metadata, fragments())

    def _replay(self) -> tuple[int, Sequence[str] | None, TableState, _Table]:
        """Replay the log up to the newest or requested version.

        Returns:
            (version, identity of its commit file, its state, its checked protocol and metadata). The identity is None
            if it is unknown; see `Log.identity`.
        """
        log, version = self._version()
        # The identity is read first. If the table is recreated meanwhile, the cached head will not match its log.
        identity = log_since(self._location, version).identity(version)
        state = replay(self._location, log, version)
        return version, identity, state, _Table(self._location_policy, state.protocol, state.metadata, self._filter)

    def changes(self, since: SnapshotReference) -> SnapshotDiff | NoDiff:
        """Return the difference between the version `since` and the version that the configuration selects.

        Only the commits in between are read. Protocol and metadata of the version `since` come from the cache. The
        result is a NoDiff if the difference cannot be determined, such as when the log lacks a commit.
        """
        with _delta_errors(self._location):
            try:
                return self._changes(since)
            except NoDiffError as error:
                return NoDiff(str(error))
            except FileNotFoundError:
                return NoDiff("files of the log were removed meanwhile")

    def _changes(self, since: SnapshotReference) -> SnapshotDiff:
        """Return the changes; see `changes`.

        Raises NoDiffError if they cannot be determined.
        """
        if not (since.id.isascii() and since.id.isdecimal()):
            raise NoDiffError(f"{since.id!r} is no version of a Delta table")
        older = int(since.id)
        log, self._listed_log = self._listed_log, None
        if log is None or older not in log.commits:
            log = log_since(self._location, older)
        version = log.newest if self._at is None else None
        if version is None:
            version = self._version()[1]
        head = self._head(since, log, version)
        names = log.commits_between(older, version)
        if names is None:
            raise NoDiffError(f"the log no longer has all commits from version {older} to version {version}")
        from metastore_assets.formats.delta.changes import read_changes

        changes = read_changes(self._location, names)
        protocol, metadata = changes.protocol or head.protocol, changes.metadata or head.metadata
        table = _Table(self._location_policy, protocol, metadata, self._filter)
        if changes.protocol or changes.metadata:
            before = _Table(self._location_policy, head.protocol, head.metadata, self._filter)
            table.check_same_layout(before, older)
        fragments = (fragment for _, fragment, _ in table.distinct_files(changes.adds))
        added_fragments = tuple(sorted(fragments, key=fragment_order))
        live = {(fragment.partition_key, fragment.path) for fragment in added_fragments}
        try:
            removed_paths = table.removed_paths(file for file in changes.removed if file.was_live) - live
            transient = table.removed_paths(file for file in changes.removed if not file.was_live) - live
        except (MetastoreError, *CORRUPTION_ERRORS) as error:
            reason = f"the commits since version {older} remove files without recording their partition"
            raise NoDiffError(reason) from error
        current = self._snapshot_metadata(table, version, log.identity(version))
        return SnapshotDiff(since, current, added_fragments, removed_paths, possibly_removed=transient)

    def partition_columns(self) -> tuple[str, ...]:
        """Return the partition columns in the table's metadata, without reading a checkpoint's file list."""
        with _delta_errors(self._location):
            state = retry_while_files_are_removed(lambda: replay(self._location, *self._version()))
            return _Table(self._location_policy, state.protocol, state.metadata, self._filter).partition_columns

    def bounds(self, snapshot: Snapshot, column: str) -> pa.Table:
        """Return the bounds of a leaf column from partition values, or from the statistics in the log.

        Bounds of partition columns are exact. Others are exact only where writers neither truncate nor round values,
        and where no rows are deleted. Raises TableFormatError if the log no longer has the version.
        """
        path = column_path(snapshot.schema, column)
        with _delta_errors(self._location):
            state = retry_while_files_are_removed(lambda: self._state(snapshot.id))
            table = _Table(self._location_policy, state.protocol, state.metadata, self._filter)
            statistics = statistics_column(table.fields, path, table.mode)
            bounds = {}
            for add, fragment, values in table.distinct_files(state.adds):
                if identity(path[0]) in values:
                    bounds[fragment.id] = constant_bounds(values[identity(path[0])], fragment.row_count)
                elif statistics is not None:
                    bounds[fragment.id] = file_bounds(add, statistics)
        unknown = FragmentBounds()
        return bounds_table(snapshot, column, [bounds.get(fragment.id, unknown) for fragment in snapshot.fragments])

    def _head(self, since: SnapshotReference, log: Log, version: int) -> VersionHead:
        """Return the cached head of the version `since`: its protocol, metadata, commit time and commit file.

        Args:
            since: the older version.
            log: the log from the older version on, with the identities of its files.
            version: the version with which `since` is compared.

        Raises:
            NoDiffError: `since` is newer than `version`, the commit of `since` is not in the log, or the head of
                `since` is not cached. It is also raised if the table was recreated after `since`, or if other
                partitions or locations were configured then.
        """
        older = int(since.id)
        if version < older:
            raise NoDiffError(f"version {version} is older than version {older}")
        if older not in log.commits:
            raise NoDiffError(f"the log no longer has the commit of version {older}")
        head = self._heads.get(older)
        if head is None:
            raise NoDiffError(f"the metadata of version {older} are not cached")
        if (log.identity(older), since.committed_at) != (head.identity, head.committed_at):
            raise NoDiffError(f"the table was recreated since version {older}")
        if head.selection != self._selection:
            raise NoDiffError(f"other partitions or locations were configured for version {older}")
        return head

    def _snapshot_metadata(self, table: _Table, version: int, identity: Sequence[str] | None) -> SnapshotMetadata:
        """Return the snapshot metadata of a version, and cache its `VersionHead` to compute later changes.

        Args:
            table: the protocol and metadata of the version.
            version: the version.
            identity: the identity of the version's commit file. If it is None, nothing is cached.
        """
        committed_at = self._times.recorded_time(version, identity if self._at is None else None)
        if identity is not None:
            head = VersionHead(version, identity, committed_at, self._selection, table.protocol, table.metadata)
            self._heads.put(head)
        return SnapshotMetadata(
            format="delta",
            id=str(version),
            committed_at=committed_at,
            schema=table.schema,
            partition_columns=table.partition_columns,
            derived=table.derived,
        )

    def _current_version(self) -> tuple[int, Sequence[str] | None]:
        """Return the requested or newest version, and the identity of its commit file.

        The identity is None for a requested version, or if there is no commit file.
        """
        self._listed_log = None
        if self._at is None and (log := self._times.log()) is not None and log.newest is not None:
            self._listed_log = log
            return log.newest, log.identity(log.newest)
        log, version = self._version()
        if self._at is not None:
            return version, None
        return version, log.identity(version) or log_since(self._location, version).identity(version)

    def _version(self) -> tuple[Log, int]:
        """Return a listing of the log, and the version that the configuration selects.

        By default, this is the newest version. The listing contains all files that a replay of the version needs.

        Raises TableNotFoundError if there is no log, and SnapshotNotFoundError if the log lacks the selected version.
        """
        log = read_log(self._location, complete=self._at is not None)
        uri = self._location.uri
        if log.newest is None:
            raise TableNotFoundError(f"{uri} is no Delta table: there is no {LOG} with commits")
        if self._at is None:
            return log, log.newest
        moment = parse_moment(self._at)
        if moment is not None:
            version = self._times.version_at(log, moment)
            if version is None:
                raise state_not_found(uri, self._at, "its log goes back to", self._oldest(log))
            return log, version
        if not (self._at.isascii() and self._at.isdecimal() and int(self._at) in log.versions):
            raise state_not_found(
                uri, self._at, "name a time or one of the versions that its log still has", log.versions
            )
        return log, int(self._at)

    def _oldest(self, log: Log) -> list[str]:
        """Return a list with one text for messages: the oldest version whose commit file records a time.

        The text is `2024-01-01T00:00:00+00:00 (version 3)`, for example. The list is empty without such a version.
        """
        for version in log.versions:
            time = self._times.recorded_time(version)
            if time is not None:
                return [f"{time.isoformat()} (version {version})"]
        return []

    def _state(self, version: str) -> TableState:
        """Return the replayed state of a version, with statistics.

        The last state is cached, because bounds are requested column by column.
        """
        if self._state_with_statistics is None or self._state_with_statistics[0] != version:
            log = read_log(self._location, complete=True)
            state = replay(self._location, log, int(version), with_statistics=True)
            self._state_with_statistics = version, replace(state, adds=list(state.adds))
        return self._state_with_statistics[1]


class _Partition(NamedTuple):
    """One partition: its key, and its values as Arrow constants and as text."""

    key: str | None
    """The partition key; None if the configuration does not select the partition."""
    values: dict[str, Constant]
    """Typed partition values by column identity."""
    constants: tuple[tuple[str, Constant], ...]
    """The same values as pairs, which all fragments of the partition share."""
    texts: str
    """JSON of pairs of a column identity and the text of its value, for fragment ids."""


class _Table:
    """The protocol and the metadata of one version.

    They determine the fragment of each file.
    """

    def __init__(
        self,
        location_policy: LocationPolicy,
        protocol: dict[str, Any],
        metadata: dict[str, Any],
        partitions: PartitionFilter,
    ) -> None:
        """Check the protocol and the metadata.

        Raises TableFormatError for an unsupported feature or an invalid schema. Also raises it if the filter
        `partitions` names a column that is no partition column.
        """
        location = location_policy.table_root
        check_readable(location.uri, protocol, metadata)
        self.protocol = protocol
        self.metadata = metadata
        self._location = location
        self._location_policy = location_policy
        self.mode = mapping_mode(location.uri, protocol, metadata)
        self.partition_columns = tuple(metadata.get("partitionColumns") or ())
        with metadata_errors(f"{location.uri}/{LOG}", "the schema in"):
            schema = check_schema(parse_json(metadata["schemaString"]), self.partition_columns)
            self.fields: list[dict[str, Any]] = schema["fields"]
            self.schema = arrow_schema(location.uri, schema, self.mode)
        if unknown := partitions.unknown_columns(self.partition_columns):
            raise TableFormatError(
                f"{location.uri} is not partitioned by {', '.join(unknown)}; it is by "
                f"{', '.join(self.partition_columns) or 'nothing'}"
            )
        types = {name: self.schema.field(name).type for name in self.partition_columns}
        self._filter = partitions.bind(location.uri, types)
        self._partitions: dict[tuple[str | None, ...], _Partition] = {}

    @property
    def derived(self) -> tuple[DerivedColumn, ...]:
        """The generated columns.

        The `sources` of each are the columns from which it is computed.

        If a generated column is also a partition column, its sources include the column itself, because partition keys
        reveal its values.
        """
        result = []
        for generated_column, sources in derived_columns(self.fields, self.schema):
            is_partition_field = generated_column.name in self.partition_columns
            columns = [generated_column, *sources] if is_partition_field else sources
            named_sources = tuple((identity(column), column.name) for column in columns)
            result.append(DerivedColumn(generated_column.name, named_sources, "a generated column", is_partition_field))
        return tuple(result)

    def check_same_layout(self, before: _Table, version: int) -> None:
        """Raise NoDiffError if partition columns, column mapping or schema changed since an older version.

        Args:
            before: the protocol and metadata of the older version.
            version: the number of the older version, for the message.
        """
        physical, physical_before = ([name for _, name in table._partition_fields] for table in (self, before))
        if self.partition_columns != before.partition_columns:
            changed_part = "the partition columns"
        elif (self.mode, physical) != (before.mode, physical_before):
            changed_part = "the column mapping"
        elif not self.schema.equals(before.schema, check_metadata=True):
            changed_part = "the schema"
        else:
            return
        raise NoDiffError(f"{changed_part} changed since version {version}")

    def files(
        self, adds: Iterable[AddedFile], max_partitions: int | None = None
    ) -> Iterator[tuple[AddedFile, Fragment, dict[str, Constant]]]:
        """Yield each file in the selected partitions, with its fragment and its partition values.

        The partition values are a dict. Its keys are the names of the partition columns; with column mapping, their
        physical names or ids.

        Args:
            adds: the files.
            max_partitions: how many partitions to keep in memory; None for all. Files of a partition share one dict of
                values while the partition is kept.
        """
        for add in adds:
            if len(self._partitions) == max_partitions:
                self._partitions.clear()
            partition = self._partition(self._partition_texts(add.partition_values, add.path))
            if partition.key is not None:
                yield add, self._fragment(add, partition, partition.key), partition.values

    def distinct_files(self, adds: Iterable[AddedFile]) -> Iterator[tuple[AddedFile, Fragment, dict[str, Constant]]]:
        """Yield what `files` yields, but each file once, even if the log repeats it.

        All paths are kept in memory.

        Raises TableFormatError if two different files have the same path.
        """
        fragments: dict[str, Fragment] = {}
        for add, fragment, values in self.files(adds):
            if (first := fragments.setdefault(fragment.path, fragment)) is not fragment:
                if (first.id, first.row_count) == (fragment.id, fragment.row_count):
                    continue  # Some writers repeat a file in a checkpoint.
                raise TableFormatError(f"{self._location.uri}: the log has the data file {fragment.path} twice")
            yield add, fragment, values

    def removed_paths(self, files: Iterable[RemovedFile]) -> frozenset[FragmentPath]:
        """Return the (partition key, full path) of each removed file in the selected partitions.

        Raises MetastoreError, or the error of a decoder, if the partition or the path of a file is missing or invalid.
        """
        result = set()
        for file in files:
            missing_names = [name for _, name in self._partition_fields if name not in file.partition_values]
            if missing_names:
                raise TableFormatError(f"the log records no value of the partition column {missing_names[0]!r}")
            key = self._partition(self._partition_texts(file.partition_values, file.path)).key
            if key is not None:
                location, path = self._resolve(file.path)
                result.add((key, location.full_path(path)))
        return frozenset(result)

    @cached_property
    def _partition_fields(self) -> list[tuple[pa.Field, str]]:
        by_name = {field["name"]: field for field in self.fields}
        return [(self.schema.field(name), physical_name(by_name[name], self.mode)) for name in self.partition_columns]

    def _partition_texts(self, values: Mapping[str, str | None] | None, path: str) -> tuple[str | None, ...]:
        """Return the recorded partition values of a file, in the order of the partition columns.

        A missing value is null, as Spark and deltalake read it.

        Args:
            values: the values by physical column name; None if the log records none.
            path: the path of the file, for the message.

        Raises:
            TableFormatError: the table is partitioned, and `values` is None.
        """
        if values is None and self._partition_fields:
            raise TableFormatError(f"{self._location.uri}: the log records no partition values for {path}")
        return tuple((values or {}).get(name) for _, name in self._partition_fields)

    def _partition(self, texts: tuple[str | None, ...]) -> _Partition:
        """Return the partition with these recorded values, which have the order of the partition columns."""
        if (cached_partition := self._partitions.get(texts)) is not None:
            return cached_partition
        fields = [field for field, _ in self._partition_fields]
        values = [parse_partition_value(text, field.type) for field, text in zip(fields, texts, strict=True)]
        items = [(field.name, value_text(value)) for field, value in zip(fields, values, strict=True)]
        constants = tuple((identity(field), value) for field, value in zip(fields, values, strict=True))
        key = encode_partition_key(items) if self._filter.may_match(items) else None
        # "0.1" of a float and of a double are different numbers, and type widening makes a float column a double one.
        numbers = (value.cast(pa.float64()) if pa.types.is_float32(value.type) else value for _, value in constants)
        texts_json = json.dumps(
            [(name, value_text(value)) for (name, _), value in zip(constants, numbers, strict=True)]
        )
        partition = _Partition(key, dict(constants), constants, texts_json)
        self._partitions[texts] = partition
        return partition

    def _resolve(self, path: str) -> tuple[Location, str]:
        """Resolve the path of a data file as the log records it.

        Returns:
            A location and the file's path below that location. For a file outside of the table's folder, the location
            is the file itself, and the path is empty.

        Raises:
            TableFormatError: the location policy, which decides what files a table may refer to, forbids the file.
        """
        if path.startswith("/") or _ABSOLUTE.match(path):
            return self._location_policy.resolve(unquote(path))
        return self._location_policy.resolve_relative(self._location, unquote(path))

    def _fragment(self, add: AddedFile, partition: _Partition, key: str) -> Fragment:
        """Return the fragment of a live file with its deletion vector.

        `key` is the partition key.
        """
        location, path = self._resolve(add.path)
        if add.vector is not None:
            with suppress(ValueError, struct.error):  # an invalid name is reported when the fragment is opened
                add.vector.file(self._location_policy)
        source = DeltaFragmentSource(location, path, self._location_policy, add.vector, partition.constants, self.mode)
        rows = add.row_count
        if rows is not None and add.vector is not None:
            # A vector that deletes more rows than the file has is reported when the fragment is opened.
            rows = rows - add.vector.cardinality if add.vector.cardinality <= rows else None
        return Fragment(_fragment_id(add, partition), key, location.full_path(path), add.size, rows, source)


@dataclass(frozen=True, slots=True)
class DeltaFragmentSource:
    """A Parquet file and its deletion vector, if it has one, which any process can open as a fragment."""

    location: Location
    path: str
    location_policy: LocationPolicy
    vector: DeletionVector | None
    partition_values: tuple[tuple[str, Constant], ...]
    """Identity and typed value of each partition column."""
    mode: MappingMode

    def stored_size(self) -> int:
        """Return the size in bytes of the data file in the storage.

        Raises OSError or MetastoreError.
        """
        return self.location.stat(self.path).size

    def arrow_file(self) -> ArrowFile | str:
        """Return the data file, or the reason why Arrow alone cannot read its rows."""
        if self.vector is not None:
            return "it has deleted rows"
        if self.mode != "none":
            return f"its columns are mapped by {self.mode}"
        return ArrowFile(self.location, self.path, self.partition_values, ignores_case=True)

    def open(self) -> FileFragmentReader:
        """Open the data file and read its deletion vector.

        Raises FragmentError.
        """
        full_path = self.location.full_path(self.path)
        # Field names in Delta are unique without regard to case, and Spark ignores case when it matches them.
        matcher = FieldMatcher(by_id=self.mode == "id", ignore_case=True)
        with fragment_errors(full_path):
            columns = ParquetColumns(self.location.open(self.path))
            if self.mode == "id" and columns.fields and not any(map(matcher.identity, columns.fields)):
                raise pa.ArrowInvalid("its columns have no field ids, by which the table maps them")
        deleted_positions = None
        if self.vector is not None:
            with fragment_errors(full_path, "its deletion vector"):
                file = self.vector.file(self.location_policy)
            with fragment_errors(full_path, "its deletion vector", file and file[0].full_path(file[1])):
                deleted_positions = self.vector.positions(self.location_policy, columns.row_count)
        return FileFragmentReader(
            columns,
            path=full_path,
            mapping=ColumnMapping(matcher, dict(self.partition_values)),
            deleted_positions=deleted_positions,
        )


def _fragment_id(add: AddedFile, partition: _Partition) -> str:
    """Return a digest of everything that determines the rows of a file.

    These are its path, size, modification time and deletion vector, and its partition values.
    """
    # A recreated table may have files with the names and sizes of the dropped one. Their modification times differ.
    vector = json.dumps([add.vector.id, add.vector.cardinality] if add.vector else None)
    text = f"[{json.dumps(add.path)}, {add.size}, {add.modification_time}, {partition.texts}, {vector}]"
    return digest_bytes(text.encode())


@contextmanager
def _delta_errors(location: Location) -> Iterator[None]:
    try:
        yield
    except CORRUPTION_ERRORS as error:
        raise unreadable_error(f"{location.uri} cannot be read as a Delta table", error) from error
