"""Plan of the fragments of an Iceberg snapshot.

Manifests are read, and delete files are matched with data files.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa

from metastore_assets.errors import TableFormatError
from metastore_assets.expressions.partition_filter import PartitionFilter
from metastore_assets.formats.base import Fragment
from metastore_assets.formats.iceberg.delete_files import PositionDeletes
from metastore_assets.formats.iceberg.deletes import DeleteIndex, Deletes
from metastore_assets.formats.iceberg.equality import EqualityDeletes
from metastore_assets.formats.iceberg.fragment import IcebergFragmentSource
from metastore_assets.formats.iceberg.locations import TableFiles
from metastore_assets.formats.iceberg.manifest_cache import ManifestCache
from metastore_assets.formats.iceberg.manifests import (
    DATA,
    EQUALITY_DELETES,
    FileEntry,
    Manifest,
    ManifestReader,
    read_manifest_list,
)
from metastore_assets.formats.iceberg.metadata import TableMetadata
from metastore_assets.formats.iceberg.names import FallbackIds
from metastore_assets.formats.iceberg.partitions import Partitions
from metastore_assets.formats.iceberg.schema import arrow_field, field_paths
from metastore_assets.formats.iceberg.states import State
from metastore_assets.formats.metadata_cache import MetadataCache
from metastore_assets.formats.readers.columns import KINDS
from metastore_assets.storage.corrupt_input import metadata_errors
from metastore_assets.tasks.isolation import IsolatedRunner, metadata_result, run_isolated
from metastore_assets.tasks.runner import with_arguments

_References = tuple[tuple[PositionDeletes, ...], tuple[EqualityDeletes, ...]]

_READ_AT_ONCE = 8
"""Number of manifests that are fetched at the same time, because requests spend most of their time waiting."""
_MANIFESTS = 64
"""Number of manifests in one batch of requests."""


@dataclass(frozen=True)
class PlannedFragment:
    """A fragment with the manifest entry of its data file.

    The entry has the file's statistics if they were requested.
    """

    fragment: Fragment
    entry: FileEntry
    has_deletes: bool


class FragmentPlanner:
    """Plans the fragments of one state of a table."""

    def __init__(
        self,
        files: TableFiles,
        metadata: TableMetadata,
        state: State,
        partition_filter: PartitionFilter,
        cache: MetadataCache,
    ) -> None:
        """Prepare the plan.

        Raises TableFormatError if the filter names no partition field. Nothing is read.
        """
        self._files = files
        self._metadata = metadata
        self._state = state
        self._fallback = FallbackIds.of(metadata)
        self._manifest_cache = ManifestCache(cache, files.folder.uri, metadata)
        self.partitions = Partitions(files.name, metadata, state.schema)
        self.specs_in_use = {metadata.default_spec_id} & metadata.specs.keys()
        """Ids of the default spec and, once `fragments` has run, of the specs of all files in the manifests that it
        read."""
        self._position_files: dict[tuple[str, int | None], PositionDeletes] = {}
        self._shared: dict[str, _References] = {}
        self._equality_files: dict[str, EqualityDeletes] = {}
        unknown = partition_filter.unknown_columns(self.partitions.columns())
        if unknown:
            raise TableFormatError(
                f"{files.name} has no partition field {unknown[0]!r} to filter by; "
                f"there are: {', '.join(self.partitions.columns()) or 'none'}"
            )
        self._filter = partition_filter.bind(files.name, dict(self.partitions.types()))

    def fragments(self, *, with_statistics: bool = False) -> Iterator[PlannedFragment]:
        """Yield the fragments of the selected partitions, in any order.

        Raises TableFormatError for a file without a reader.
        """
        deletes: list[FileEntry] = []
        data: list[FileEntry] = []
        for entry in self._entries(with_statistics):
            self._check(entry)
            (data if entry.content == DATA else deletes).append(entry)
        index = DeleteIndex(deletes, (entry.path for entry in data), self.partitions.is_unpartitioned)
        fragment_ids: set[str] = set()
        for entry in data:
            deletes_of_file = index.deletes_of(entry)
            fragment = self._fragment(entry, deletes_of_file, fragment_ids)
            fragment_ids.add(fragment.id)
            yield PlannedFragment(fragment, entry, bool(deletes_of_file.files))

    def _entries(self, with_statistics: bool) -> Iterator[FileEntry]:
        """Yield the selected entries of all manifests, reading a batch of manifests at a time."""
        manifests = [manifest for manifest in self._manifests() if self._may_match(manifest)]
        for manifest in manifests:
            if manifest.is_encrypted:
                raise TableFormatError(f"{self._files.name}: {manifest.path} is encrypted, which has no reader")
        for start in range(0, len(manifests), _MANIFESTS):
            batch = manifests[start : start + _MANIFESTS]
            for manifest, outcome in zip(batch, self._read(batch, with_statistics), strict=True):
                with metadata_errors(manifest.path, f"{self._files.name}: the manifest"):
                    yield from self._selected(metadata_result(outcome))

    def _read(self, manifests: Sequence[Manifest], with_statistics: bool) -> list[Any]:
        """Return a list with the entries of each manifest, or with the error of reading it.

        Only manifests that are not cached are read. With `with_statistics` all are, because the cache has no
        statistics.
        """
        outcomes: list[Any] = [
            None if with_statistics else self._manifest_cache.get(manifest) for manifest in manifests
        ]
        new = [index for index, outcome in enumerate(outcomes) if outcome is None]
        locations = [self._files.locate(manifest.path) for manifest in manifests]
        reader = ManifestReader(self.partitions.specs, self._metadata.default_spec_id, with_statistics)
        results = IsolatedRunner(threads=_READ_AT_ONCE).outcomes(
            with_arguments(reader.read),
            [(manifests[index], *locations[index]) for index in new],
            paths=[locations[index][0].full_path(locations[index][1]) for index in new],
        )
        for index, outcome in zip(new, results, strict=True):
            outcomes[index] = outcome
            if not with_statistics and not isinstance(outcome, Exception):
                self._manifest_cache.put(manifests[index], outcome)
        return outcomes

    def _selected(self, entries: Iterable[FileEntry]) -> Iterator[FileEntry]:
        """Yield the entries of delete files, and of data files in selected partitions.

        Their partition values are normalized; see `Partitions.normalize`.
        """
        for entry in entries:
            self.specs_in_use.add(entry.spec_id)
            partition = self.partitions.normalize(entry.spec_id, entry.partition)
            normalized = entry if partition is entry.partition else entry._replace(partition=partition)
            if normalized.content != DATA or self._is_selected(normalized):
                yield normalized

    def _manifests(self) -> list[Manifest]:
        """Return the manifests of the snapshot; none if there is no snapshot."""
        snapshot = self._state.snapshot
        if snapshot is None:
            return []
        if snapshot.is_encrypted:
            raise TableFormatError(f"{self._files.name}: its manifest list is encrypted, which has no reader")
        if snapshot.manifest_list is not None:
            location, path = self._files.locate(snapshot.manifest_list)
            with metadata_errors(snapshot.manifest_list, f"{self._files.name}: the manifest list"):
                return cast(list[Manifest], run_isolated(read_manifest_list, location.full_path(path), location, path))
        return [Manifest(path, None, 0, 0, None) for path in snapshot.manifests]

    def _may_match(self, manifest: Manifest) -> bool:
        """Return True if a manifest may have entries in selected partitions."""
        spec = self.partitions.specs.get(manifest.spec_id) if manifest.spec_id is not None else None
        if not self._filter.patterns or manifest.content != 0 or not spec or manifest.partitions is None:
            return True
        items = [
            self.partitions.bound_item(field, lower)
            for field, (lower, upper, is_mixed) in zip(spec, manifest.partitions, strict=False)
            if lower is not None and lower == upper and not is_mixed and field.transform != "void"
        ]
        return self._filter.may_match(item for item in items if item is not None)

    def _is_selected(self, entry: FileEntry) -> bool:
        return self._filter.may_match(self.partitions.partition(entry.spec_id, entry.partition).items)

    def _check(self, entry: FileEntry) -> None:
        """Raise TableFormatError for an encrypted file, or a file format without a reader."""
        if entry.is_encrypted:
            raise TableFormatError(f"{self._files.name}: {entry.path} is encrypted, which has no reader")
        if entry.format not in (KINDS if entry.content != 1 else (*KINDS, "puffin")):
            raise TableFormatError(
                f"{self._files.name}: {entry.path} is of the kind {entry.format!r}, without a reader"
            )

    def _fragment(self, entry: FileEntry, deletes: Deletes, fragment_ids: set[str]) -> Fragment:
        """Return the fragment of a data file with its deletes. Its id is not in `fragment_ids`."""
        partition = self.partitions.partition(entry.spec_id, entry.partition)
        location, path = self._files.locate(entry.path)
        position_deletes, equality_deletes = self._references(deletes)
        source = IcebergFragmentSource(
            location=location,
            path=path,
            format=entry.format,
            recorded_path=entry.path,
            exact_path=deletes.exact_path,
            constants=partition.constants,
            position_deletes=position_deletes,
            equality_deletes=equality_deletes,
            fallback=self._fallback,
        )
        parts = [entry.path, entry.size, entry.record_count, partition.constant_texts, deletes.digest]
        fragment_id = _digest(parts)
        while fragment_id in fragment_ids:
            # A file that was added twice has its rows twice.
            fragment_id = _digest([fragment_id])
        return Fragment(
            id=fragment_id,
            partition_key=partition.key,
            path=location.full_path(path),
            bytes=entry.size,
            row_count=deletes.row_count(entry),
            source=source,
        )

    def _references(self, deletes: Deletes) -> _References:
        """Return the delete files in the form that fragment sources need.

        Data files with the same deletes share the result.
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
        """Return a position delete file, or a deletion vector, in the form that fragment sources need.

        Equal ones are one object.
        """
        key = entry.path, entry.content_offset
        if key not in self._position_files:
            location, path = self._files.locate(entry.path)
            self._position_files[key] = PositionDeletes(
                location, path, entry.format, entry.record_count, entry.content_offset, entry.content_size
            )
        return self._position_files[key]

    def _equality_deletes(self, entry: FileEntry) -> EqualityDeletes:
        """Return an equality delete file in the form that fragment sources need.

        Equal ones are one object.

        Raises TableFormatError if its key columns are not recorded.
        """
        if entry.path not in self._equality_files:
            location, path = self._files.locate(entry.path)
            keys = tuple(self._key(entry, field_id) for field_id in sorted(entry.equality_ids))
            if not keys:
                raise TableFormatError(f"{self._files.name}: {entry.path} does not say by which columns it deletes")
            self._equality_files[entry.path] = EqualityDeletes(location, path, entry.format, entry.size, keys)
        return self._equality_files[entry.path]

    def _key(self, entry: FileEntry, field_id: int) -> pa.Field:
        """Return a key column of an equality delete file.

        It comes from the planned schema, else from the newest schema that has the field.
        """
        newest_first = [self._metadata.schemas[schema_id] for schema_id in sorted(self._metadata.schemas, reverse=True)]
        for schema in (self._state.schema, *newest_first):
            for path in field_paths(schema["fields"]):
                if path[-1]["id"] == field_id:
                    return arrow_field(self._files.name, path)
        raise TableFormatError(
            f"{self._files.name}: {entry.path} deletes by the field {field_id}, which is in no schema of the table"
        )


def _digest(parts: Sequence[object]) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]
