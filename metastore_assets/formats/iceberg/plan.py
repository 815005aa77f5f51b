"""From a snapshot of an Iceberg table to its fragments: read manifests, and match delete files with data files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import pyarrow as pa

from metastore_assets.errors import TableFormatError
from metastore_assets.expressions.partition_filter import PartitionFilter
from metastore_assets.formats.base import Fragment
from metastore_assets.formats.iceberg.delete_files import PositionDeletes
from metastore_assets.formats.iceberg.deletes import DeleteIndex, Deletes
from metastore_assets.formats.iceberg.equality import EqualityDeletes
from metastore_assets.formats.iceberg.fragment import IcebergFragmentSource
from metastore_assets.formats.iceberg.kept_manifests import KeptManifests
from metastore_assets.formats.iceberg.locations import TableFiles
from metastore_assets.formats.iceberg.manifests import (
    DATA,
    EQUALITY_DELETES,
    FileEntry,
    Manifest,
    read_manifest,
    read_manifest_list,
)
from metastore_assets.formats.iceberg.metadata import TableMetadata
from metastore_assets.formats.iceberg.names import FallbackIds
from metastore_assets.formats.iceberg.partitions import Partitions
from metastore_assets.formats.iceberg.schema import arrow_field, fields_by_id
from metastore_assets.formats.iceberg.states import State
from metastore_assets.formats.metadata_cache import MetadataCache
from metastore_assets.formats.readers.columns import KINDS
from metastore_assets.storage.corrupt_input import metadata_errors
from metastore_assets.tasks.isolation import IsolatedRunner, metadata_result, run_isolated
from metastore_assets.tasks.runner import with_arguments

_References = tuple[tuple[PositionDeletes, ...], tuple[EqualityDeletes, ...]]

_READ_AT_ONCE = 8
"""Manifests fetched at a time: most of it is waiting for the store."""
_MANIFESTS = 64
"""Manifests whose entries are asked for at once: not all of them may be of partitions that are meant."""


@dataclass(frozen=True)
class Planned:
    """A fragment, and what the manifests say of its data file and deletes."""

    fragment: Fragment
    entry: FileEntry
    has_deletes: bool


class Planner:
    """Plans the fragments of one state of a table."""

    def __init__(
        self,
        files: TableFiles,
        metadata: TableMetadata,
        state: State,
        partition_filter: PartitionFilter,
        cache: MetadataCache,
    ) -> None:
        self._files = files
        self._metadata = metadata
        self._state = state
        self._fallback = FallbackIds.of(metadata)
        self._kept = KeptManifests(cache, files.folder.uri, metadata)
        self.partitions = Partitions(files.name, metadata, state.schema)
        self.specs_in_use = {metadata.default_spec_id} & metadata.specs.keys()
        """The spec that new files get, and once all fragments were planned those of the files that were read of."""
        self._position_files: dict[tuple[str, int | None], PositionDeletes] = {}
        self._shared: dict[str, _References] = {}
        self._equality_files: dict[str, EqualityDeletes] = {}
        unknown = partition_filter.unknown(self.partitions.columns())
        if unknown:
            raise TableFormatError(
                f"{files.name} has no partition field {unknown[0]!r} to filter by; "
                f"there are: {', '.join(self.partitions.columns()) or 'none'}"
            )
        self._filter = partition_filter.bind(files.name, dict(self.partitions.types()))

    def fragments(self, *, statistics: bool = False) -> Iterator[Planned]:
        """The fragments of the partitions that the filter leaves, in no order."""
        deletes: list[FileEntry] = []
        data: list[FileEntry] = []
        for entry in self._entries(statistics):
            self._check(entry)
            (data if entry.content == DATA else deletes).append(entry)
        index = DeleteIndex(deletes, (entry.path for entry in data), self.partitions.is_unpartitioned)
        seen: set[str] = set()
        for entry in data:
            applying = index.of(entry)
            fragment = self._fragment(entry, applying, seen)
            seen.add(fragment.id)
            yield Planned(fragment, entry, bool(applying.files))

    def _entries(self, statistics: bool) -> Iterator[FileEntry]:
        manifests = [manifest for manifest in self._manifests() if self._may_keep(manifest)]
        for manifest in manifests:
            if manifest.is_encrypted:
                raise TableFormatError(f"{self._files.name}: {manifest.path} is encrypted, which has no reader")
        for start in range(0, len(manifests), _MANIFESTS):
            some = manifests[start : start + _MANIFESTS]
            for manifest, outcome in zip(some, self._read(some, statistics), strict=True):
                with metadata_errors(manifest.path, f"{self._files.name}: the manifest"):
                    yield from self._wanted(metadata_result(outcome))

    def _read(self, manifests: Sequence[Manifest], statistics: bool) -> list[Any]:
        """The entries of each manifest, or why they cannot be read. Those of known ones are without statistics."""
        outcomes: list[Any] = [None if statistics else self._kept.get(manifest) for manifest in manifests]
        new = [place for place, known in enumerate(outcomes) if known is None]
        places = [self._files.locate(manifest.path) for manifest in manifests]
        read = partial(read_manifest, self.partitions.specs, self._metadata.default_spec_id, statistics)
        found = IsolatedRunner(threads=_READ_AT_ONCE).outcomes(
            with_arguments(read),
            [(manifests[place], *places[place]) for place in new],
            paths=[places[place][0].full_path(places[place][1]) for place in new],
        )
        for place, outcome in zip(new, found, strict=True):
            outcomes[place] = outcome
            if not statistics and not isinstance(outcome, Exception):
                self._kept.put(manifests[place], outcome)
        return outcomes

    def _wanted(self, entries: Iterable[FileEntry]) -> Iterator[FileEntry]:
        """Those that the filter leaves."""
        for entry in entries:
            self.specs_in_use.add(entry.spec_id)
            partition = self.partitions.normal(entry.spec_id, entry.partition)
            own = entry if partition is entry.partition else entry._replace(partition=partition)
            if own.content != DATA or self._keeps(own):
                yield own

    def _manifests(self) -> list[Manifest]:
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

    def _may_keep(self, manifest: Manifest) -> bool:
        """Whether a manifest may hold anything that the filter leaves: not when all of it is in another partition."""
        spec = self.partitions.specs.get(manifest.spec_id) if manifest.spec_id is not None else None
        if not self._filter.patterns or manifest.content != 0 or not spec or manifest.partitions is None:
            return True
        items = [
            self.partitions.bound_item(field, lower)
            for field, (lower, upper, is_mixed) in zip(spec, manifest.partitions, strict=False)
            if lower is not None and lower == upper and not is_mixed and field.transform != "void"
        ]
        return self._filter.may_match(item for item in items if item is not None)

    def _keeps(self, entry: FileEntry) -> bool:
        return self._filter.may_match(self.partitions.partition(entry.spec_id, entry.partition).items)

    def _check(self, entry: FileEntry) -> None:
        if entry.is_encrypted:
            raise TableFormatError(f"{self._files.name}: {entry.path} is encrypted, which has no reader")
        if entry.format not in (KINDS if entry.content != 1 else (*KINDS, "puffin")):
            raise TableFormatError(
                f"{self._files.name}: {entry.path} is of the kind {entry.format!r}, without a reader"
            )

    def _fragment(self, entry: FileEntry, deletes: Deletes, seen: set[str]) -> Fragment:
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
        while fragment_id in seen:
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
        """What a worker needs to know of the deletes: one value for all the data files that they apply to."""
        if deletes.digest not in self._shared:
            by_value = [file for file in deletes.files if file.content == EQUALITY_DELETES]
            by_position = [file for file in deletes.files if file.content != EQUALITY_DELETES]
            self._shared[deletes.digest] = (
                tuple(map(self._position_deletes, by_position)),
                tuple(map(self._equality_deletes, by_value)),
            )
        return self._shared[deletes.digest]

    def _position_deletes(self, entry: FileEntry) -> PositionDeletes:
        key = entry.path, entry.content_offset
        if key not in self._position_files:
            location, path = self._files.locate(entry.path)
            self._position_files[key] = PositionDeletes(
                location, path, entry.format, entry.record_count, entry.content_offset, entry.content_size
            )
        return self._position_files[key]

    def _equality_deletes(self, entry: FileEntry) -> EqualityDeletes:
        if entry.path not in self._equality_files:
            location, path = self._files.locate(entry.path)
            keys = tuple(self._key(entry, field_id) for field_id in sorted(entry.equality_ids))
            if not keys:
                raise TableFormatError(f"{self._files.name}: {entry.path} does not say by which columns it deletes")
            self._equality_files[entry.path] = EqualityDeletes(location, path, entry.format, entry.size, keys)
        return self._equality_files[entry.path]

    def _key(self, entry: FileEntry, field_id: int) -> pa.Field:
        """A column that rows are deleted by: of the schema that is meant, else of the last one that had it."""
        newest_first = [self._metadata.schemas[one] for one in sorted(self._metadata.schemas, reverse=True)]
        for schema in (self._state.schema, *newest_first):
            for path in fields_by_id(schema["fields"]):
                if path[-1]["id"] == field_id:
                    return arrow_field(self._files.name, path)
        raise TableFormatError(
            f"{self._files.name}: {entry.path} deletes by the field {field_id}, which is in no schema of the table"
        )


def _digest(parts: Sequence[object]) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]
