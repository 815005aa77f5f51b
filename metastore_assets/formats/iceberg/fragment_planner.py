"""Planning of the fragments of an Iceberg snapshot from its manifests.

A fragment is a data file with the delete files that apply to it. A spec is a partition spec.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from metastore_assets.digests import digest_json
from metastore_assets.errors import TableFormatError
from metastore_assets.expressions.partition_filter import PartitionFilter
from metastore_assets.formats.base import Fragment, FragmentPath, UnstreamableError
from metastore_assets.formats.iceberg.delete_files import PositionDeletes
from metastore_assets.formats.iceberg.deletes import DeleteIndex, Deletes
from metastore_assets.formats.iceberg.equality import EqualityDeletes
from metastore_assets.formats.iceberg.fragment import IcebergFragmentSource, RepeatedFragmentSource
from metastore_assets.formats.iceberg.locations import TableFiles
from metastore_assets.formats.iceberg.manifests import (
    DATA,
    EQUALITY_DELETES,
    FileEntry,
    Manifest,
    ManifestReader,
    check_spec,
    read_manifest_rows,
)
from metastore_assets.formats.iceberg.metadata import IcebergSnapshot, TableMetadata
from metastore_assets.formats.iceberg.name_mapping import FallbackIds
from metastore_assets.formats.iceberg.partitions import Partitions
from metastore_assets.formats.iceberg.schema import arrow_field, field_paths
from metastore_assets.formats.iceberg.snapshot_selection import IcebergState
from metastore_assets.formats.readers.columns import KINDS
from metastore_assets.storage.corrupt_input import metadata_errors
from metastore_assets.store.sorted_runs import DistinctTexts
from metastore_assets.tasks.isolation import IsolatedRunner, metadata_result, run_isolated
from metastore_assets.tasks.runner import with_arguments

_References = tuple[tuple[PositionDeletes, ...], tuple[EqualityDeletes, ...]]

_READ_AT_ONCE = 8
"""Number of manifests that are fetched at the same time."""
_MANIFESTS = 64
"""Maximum number of manifests in one batch of requests."""
_FILES_AT_ONCE = 40_000
"""Maximum number of files in the manifests of a batch, unless it has only one. All of them are in memory."""
_UNRECORDED_FILES = 5_000
"""Number of files that a manifest is assumed to have if the manifest list does not record it."""
_STREAMED_PARTITIONS = 10_000
"""Maximum number of partitions that are in memory while fragments are streamed. One takes 2 kB."""


@dataclass(frozen=True)
class PlannedFragment:
    """A fragment with the manifest entry of its data file.

    The entry has statistics only if they were requested, and if the snapshot lists the file once.
    """

    fragment: Fragment
    entry: FileEntry
    has_deletes: bool


class IcebergFragmentPlanner:
    """A planner of the fragments of one state of a table: a snapshot, and the schema to read it with."""

    def __init__(
        self, files: TableFiles, metadata: TableMetadata, state: IcebergState, partition_filter: PartitionFilter
    ) -> None:
        """Create the planner without reading a file.

        Raises TableFormatError if the filter names a column that is no partition field.
        """
        self.files = files
        self.metadata = metadata
        self.state = state
        self.fallback = FallbackIds.of(metadata, state.schema)
        """The rule for data files without field ids."""
        self.partitions = Partitions(files.name, metadata, state.schema)
        self.specs_in_use = {metadata.default_spec_id} & metadata.specs.keys()
        """Ids of the default spec and of the specs of the planned manifests."""
        self.crosses_partitions = False
        """Whether a planned fragment has a position delete file of another partition."""
        self.repeats_files = False
        """Whether the planned snapshot lists a data file several times."""
        self.state_manifests: Sequence[Manifest] = ()
        """The result of the last call of `manifests` for the snapshot of `state`."""
        self._position_files: dict[tuple[str, int | None], PositionDeletes] = {}
        self._shared: dict[str, _References] = {}
        self._equality_files: dict[str, EqualityDeletes] = {}
        unknown = partition_filter.unknown_columns(self.partitions.columns())
        if unknown:
            raise TableFormatError(
                f"{files.name} has no partition field {unknown[0]!r} to filter by; "
                f"there are: {', '.join(self.partitions.columns()) or 'none'}"
            )
        self.selection = repr(partition_filter)
        """A text that identifies the selected partitions. With `current_date`, it changes every day."""
        self._filter = partition_filter.bind(files.name, dict(self.partitions.types()))

    def fragments(self, *, with_statistics: bool = False) -> list[PlannedFragment]:
        """Return the fragments of the selected partitions, in any order.

        `with_statistics` requests the column statistics of data files for `PlannedFragment.entry`.

        Raises TableFormatError for an encrypted file, or a file format that is not supported.
        """
        deletes: list[FileEntry] = []
        data: list[FileEntry] = []
        manifests = self.manifests(self.state.snapshot)
        self.specs_in_use |= {manifest.spec_id for manifest in manifests if manifest.spec_id is not None}
        for entry in self.entries(manifests, with_statistics=with_statistics):
            self.specs_in_use.add(entry.spec_id)
            (data if entry.content == DATA else deletes).append(entry)
        index = DeleteIndex(deletes, self.partitions.is_unpartitioned)
        planned_fragments: dict[FragmentPath, PlannedFragment] = {}
        repeated_fragments: dict[FragmentPath, list[PlannedFragment]] = {}
        for entry in data:
            deletes_of_file = index.deletes_of(entry)
            fragment = self.fragment(entry, deletes_of_file)
            planned_fragment = PlannedFragment(fragment, entry, bool(deletes_of_file.files))
            key = fragment.partition_key, fragment.path
            if key in planned_fragments:
                repeated_fragments.setdefault(key, [planned_fragments[key]]).append(planned_fragment)
            planned_fragments[key] = planned_fragment
        self.crosses_partitions = index.crosses_partitions
        self.repeats_files = bool(repeated_fragments)
        return list((planned_fragments | {key: _repeat(copies) for key, copies in repeated_fragments.items()}).values())

    def stream(self, manifests: Sequence[Manifest]) -> Iterator[Fragment]:
        """Yield the fragments of the selected partitions, in any order.

        The entries of all delete files are in memory, but those of data files are not.

        Args:
            manifests: the manifests of the snapshot. The caller must have added the spec id of each to `specs_in_use`:
                a data file with any other spec id raises UnstreamableError.

        Raises:
            UnstreamableError: the snapshot lists a data file several times, or contradicts its manifest list.
            TableFormatError: a file is encrypted, or its format is not supported.
        """
        # The filter creates the partition of each entry, also of those that it does not select.
        self.partitions.limit_cache(_STREAMED_PARTITIONS)
        deletes = list(self.entries([manifest for manifest in manifests if manifest.content != DATA]))
        index = DeleteIndex(deletes, self.partitions.is_unpartitioned)
        expected = f"{self.files.name}: a manifest has other files than the manifest list says"
        if any(entry.content == DATA for entry in deletes):
            raise UnstreamableError(expected)
        with DistinctTexts() as keys:
            for entry in self.entries([manifest for manifest in manifests if manifest.content == DATA]):
                if entry.content != DATA or entry.spec_id not in self.specs_in_use:
                    raise UnstreamableError(expected)
                fragment = self.fragment(entry, index.deletes_of(entry))
                keys.add(f"{fragment.partition_key}{chr(0)}{fragment.path}")
                yield fragment
            self.crosses_partitions = index.crosses_partitions
            if not keys.are_distinct():
                raise UnstreamableError(f"{self.files.name}: the snapshot lists a data file several times")

    def manifests(self, snapshot: IcebergSnapshot | None) -> list[Manifest]:
        """Return the manifests that may have live delete files, or live data files of selected partitions.

        The result is empty if there is no snapshot.

        Raises TableFormatError if the manifest list or a manifest is encrypted. It is also raised if the metadata file
        does not define the partition spec of a manifest.
        """
        manifests = [] if snapshot is None else self._listed_manifests(snapshot)
        specs = self.partitions.specs
        for manifest in manifests:
            if manifest.is_encrypted:
                raise TableFormatError(f"{self.files.name}: {manifest.path} is encrypted, which has no reader")
            if manifest.spec_id not in specs and manifest.file_count != 0 and manifest.spec_id is not None:
                check_spec(manifest.spec_id, specs, manifest.path)
        needed_manifests = [manifest for manifest in manifests if manifest.file_count != 0]
        if self._filter.patterns:
            needed_manifests = [manifest for manifest in needed_manifests if self._may_match(manifest)]
        if snapshot == self.state.snapshot:
            self.state_manifests = needed_manifests
        return needed_manifests

    def entries(self, manifests: Sequence[Manifest], *, with_statistics: bool = False) -> Iterator[FileEntry]:
        """Yield the live delete files in manifests, and the live data files of selected partitions.

        `with_statistics` requests entries with the column statistics of the files.

        Raises TableFormatError for an encrypted file, or a file format that is not supported.
        """
        reader = ManifestReader(self.partitions.specs, self.metadata.default_spec_id, with_statistics)
        for batch in _batches(manifests):
            yield from self._read(reader, batch)

    def _read(self, reader: ManifestReader, manifests: Sequence[Manifest]) -> Iterator[FileEntry]:
        """Read manifests in parallel, and yield the same files as `entries`, in the order of the manifests."""
        locations = [self.files.locate(manifest.path) for manifest in manifests]
        outcomes = IsolatedRunner(threads=_READ_AT_ONCE).outcomes(
            with_arguments(reader.read),
            [(manifest, *location) for manifest, location in zip(manifests, locations, strict=True)],
            paths=[location.full_path(path) for location, path in locations],
        )
        for manifest, outcome in zip(manifests, outcomes, strict=True):
            with metadata_errors(manifest.path, f"{self.files.name}: the manifest"):
                for entry in self._selected(metadata_result(outcome)):
                    self._check_readable(entry)
                    yield entry

    def _selected(self, entries: Iterable[FileEntry]) -> Iterator[FileEntry]:
        """Yield the data files of selected partitions and all delete files, with normalized partition values.

        Normalized values are equal for all files of a partition: the bytes of a decimal become an integer.
        """
        for entry in entries:
            partition = self.partitions.normalize(entry.spec_id, entry.partition)
            normalized_entry = entry if partition is entry.partition else entry._replace(partition=partition)
            if normalized_entry.content != DATA or self._is_selected(normalized_entry):
                yield normalized_entry

    def _listed_manifests(self, snapshot: IcebergSnapshot) -> list[Manifest]:
        if snapshot.is_encrypted:
            raise TableFormatError(f"{self.files.name}: its manifest list is encrypted, which has no reader")
        if snapshot.manifest_list is not None:
            location, path = self.files.locate(snapshot.manifest_list)
            with metadata_errors(snapshot.manifest_list, f"{self.files.name}: the manifest list"):
                rows = run_isolated(read_manifest_rows, location.full_path(path), location, path)
                return [Manifest(*row) for row in rows]
        return [Manifest(path, None, 0, 0, None) for path in snapshot.manifests]

    def _may_match(self, manifest: Manifest) -> bool:
        """Return whether a manifest can have an entry of a partition that the filter selects."""
        spec = self.partitions.specs.get(manifest.spec_id) if manifest.spec_id is not None else None
        if manifest.content != 0 or not spec or manifest.partitions is None:
            return True
        items = [
            self.partitions.bound_item(field, lower)
            for field, (lower, upper, is_mixed) in zip(spec, manifest.partitions, strict=False)
            if lower is not None and lower == upper and not is_mixed and field.transform != "void"
        ]
        return self._filter.may_match(item for item in items if item is not None)

    def _is_selected(self, entry: FileEntry) -> bool:
        return self._filter.may_match(self.partitions.partition(entry.spec_id, entry.partition).items)

    def _check_readable(self, entry: FileEntry) -> None:
        if entry.is_encrypted:
            raise TableFormatError(f"{self.files.name}: {entry.path} is encrypted, which has no reader")
        if entry.format not in (KINDS if entry.content != 1 else (*KINDS, "puffin")):
            raise TableFormatError(f"{self.files.name}: {entry.path} is of the kind {entry.format!r}, without a reader")

    def fragment_path(self, entry: FileEntry) -> FragmentPath:
        """Return the partition key and path of the fragment of a data file."""
        location, path = self.files.locate(entry.path)
        return self.partitions.partition(entry.spec_id, entry.partition).key, location.full_path(path)

    def fragment(self, entry: FileEntry, deletes: Deletes) -> Fragment:
        """Return the fragment of a data file with its deletes."""
        partition = self.partitions.partition(entry.spec_id, entry.partition)
        location, path = self.files.locate(entry.path)
        position_deletes, equality_deletes = self._references(deletes)
        identity = [entry.path, entry.size, entry.record_count, partition.constant_texts, deletes.digest]
        # Only opening the file would show whether it has field ids.
        fallback_identity = self.fallback.identity(entry.format)
        identity += [fallback_identity] if fallback_identity else []
        source = IcebergFragmentSource(
            location=location,
            path=path,
            format=entry.format,
            recorded_path=entry.path,
            constants=partition.constants,
            position_deletes=position_deletes,
            equality_deletes=equality_deletes,
            fallback=self.fallback,
        )
        return Fragment(
            id=digest_json(identity),
            partition_key=partition.key,
            path=location.full_path(path),
            bytes=entry.size,
            row_count=deletes.row_count(entry),
            source=source,
        )

    def _references(self, deletes: Deletes) -> _References:
        """Convert delete files to the `PositionDeletes` and `EqualityDeletes` of fragment sources.

        Returns (position deletes, equality deletes). All fragments with the same delete files share these two tuples.
        """
        if deletes.digest not in self._shared:
            by_value = [file for file in deletes.files if file.content == EQUALITY_DELETES]
            by_position = [file for file in deletes.files if file.content != EQUALITY_DELETES]
            self._shared[deletes.digest] = (
                tuple(map(self._position_deletes, by_position)),
                tuple(map(self._equality_deletes, by_value)),
            )
        return self._shared[deletes.digest]

    def _position_deletes(self, entry: FileEntry) -> PositionDeletes:
        """Return the `PositionDeletes` of a file.

        Calls for the same file return the same object.
        """
        key = entry.path, entry.content_offset
        if key not in self._position_files:
            location, path = self.files.locate(entry.path)
            self._position_files[key] = PositionDeletes(
                location, path, entry.format, entry.record_count, entry.content_offset, entry.content_size
            )
        return self._position_files[key]

    def _equality_deletes(self, entry: FileEntry) -> EqualityDeletes:
        """Return the `EqualityDeletes` of a file.

        Calls for the same file return the same object.

        Raises TableFormatError if the entry names no key columns, or names one that no schema of the table has.
        """
        if entry.path not in self._equality_files:
            location, path = self.files.locate(entry.path)
            keys = tuple(self._key_field(entry, field_id) for field_id in sorted(entry.equality_ids))
            if not keys:
                raise TableFormatError(f"{self.files.name}: {entry.path} does not say by which columns it deletes")
            self._equality_files[entry.path] = EqualityDeletes(location, path, entry.format, entry.size, keys)
        return self._equality_files[entry.path]

    def _key_field(self, entry: FileEntry, field_id: int) -> pa.Field:
        """Return a key column of an equality delete file by its field id.

        Raises TableFormatError if no schema of the table has it.
        """
        # Files older than the planned schema may delete by a column that has been dropped.
        newest_first = [self.metadata.schemas[schema_id] for schema_id in sorted(self.metadata.schemas, reverse=True)]
        for schema in (self.state.schema, *newest_first):
            for path in field_paths(schema["fields"]):
                if path[-1]["id"] == field_id:
                    return arrow_field(self.files.name, path)
        raise TableFormatError(
            f"{self.files.name}: {entry.path} deletes by the field {field_id}, which is in no schema of the table"
        )


def _batches(manifests: Sequence[Manifest]) -> Iterator[list[Manifest]]:
    """Yield the manifests in batches that are read at once."""
    batch: list[Manifest] = []
    files = 0
    for manifest in manifests:
        count = _UNRECORDED_FILES if manifest.file_count is None else manifest.file_count
        if batch and (len(batch) == _MANIFESTS or files + count > _FILES_AT_ONCE):
            yield batch
            batch, files = [], 0
        batch.append(manifest)
        files += count
    if batch:
        yield batch


def _repeat(copies: Sequence[PlannedFragment]) -> PlannedFragment:
    """Return one fragment with the rows of all copies of a file that the snapshot lists several times."""
    fragments = [copy.fragment for copy in copies]
    row_counts = [fragment.row_count for fragment in fragments]
    fragment = Fragment(
        id=digest_json(sorted(fragment.id for fragment in fragments)),
        partition_key=fragments[0].partition_key,
        path=fragments[0].path,
        bytes=sum(fragment.bytes for fragment in fragments),
        row_count=sum(count for count in row_counts if count is not None) if None not in row_counts else None,
        source=RepeatedFragmentSource(tuple(fragment.source for fragment in fragments)),
    )
    entry = copies[0].entry._replace(statistics=None)
    return PlannedFragment(fragment, entry, any(copy.has_deletes for copy in copies))
