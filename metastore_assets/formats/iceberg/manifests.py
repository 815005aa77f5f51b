"""Manifest lists and manifests of an Iceberg table.

Entries with the status DELETED are ignored. Avro fields are matched by their field ids.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from metastore_assets.errors import TableFormatError
from metastore_assets.formats.iceberg.metadata import PartitionField
from metastore_assets.formats.iceberg.records import partition_name, records_by_id
from metastore_assets.formats.metadata_json import as_integer, as_text, check_distinct, format_value
from metastore_assets.formats.readers.avro import read_avro_header
from metastore_assets.storage.corrupt_input import UnsupportedError, check_limit
from metastore_assets.storage.limits import MANIFESTS
from metastore_assets.storage.location import Location

DATA, POSITION_DELETES, EQUALITY_DELETES = 0, 1, 2
DELETED_PATH_ID = 2_147_483_546
"""Field id of the column `file_path` in position delete files."""
_DELETED = 2
_ADDED = 1

_LIST_FIELDS = {
    500: "manifest_path",
    502: "partition_spec_id",
    517: "content",
    515: "sequence_number",
    516: "min_sequence_number",
    504: "added_files_count",
    505: "existing_files_count",
    507: "partitions",
    509: "contains_null",
    518: "contains_nan",
    510: "lower_bound",
    511: "upper_bound",
    519: "key_metadata",
}
_ENTRY_FIELDS = {0: "status", 3: "sequence_number", 2: "data_file"}
_FILE_FIELDS = {
    134: "content",
    100: "file_path",
    101: "file_format",
    102: "partition",
    103: "record_count",
    104: "file_size_in_bytes",
    131: "key_metadata",
    135: "equality_ids",
    143: "referenced_data_file",
    144: "content_offset",
    145: "content_size_in_bytes",
}
_STATISTICS_FIELDS = {109: "value_counts", 110: "null_value_counts", 125: "lower_bounds", 128: "upper_bounds"}
_VECTOR_FIELDS = ("referenced_data_file", "content_offset", "content_size_in_bytes")
_MISSING = object()


# These records are named tuples, because there are many of them.


class Manifest(NamedTuple):
    """A manifest, as the manifest list describes it."""

    path: str
    spec_id: int | None
    """Id of the partition spec; None if the list does not record it."""
    content: int
    """0 for data files, 1 for delete files."""
    sequence_number: int
    partitions: tuple[tuple[bytes | None, bytes | None, bool], ...] | None
    """(lower bound, upper bound, whether there is a null or NaN) for each partition field; None if not recorded."""
    is_encrypted: bool = False
    min_sequence_number: int = 0
    """A lower bound of the sequence numbers of the live files."""
    file_count: int | None = None
    """Number of added and existing files that the manifest list records; None if it does not record them."""

    @property
    def identity(self) -> tuple[str, int]:
        """The path and the sequence number, which identify a manifest."""
        return self.path, self.sequence_number


class FileStatistics(NamedTuple):
    """Column statistics of one data file, by field id."""

    value_counts: Mapping[int, int]
    null_value_counts: Mapping[int, int]
    lower_bounds: Mapping[int, bytes]
    upper_bounds: Mapping[int, bytes]


class FileEntry(NamedTuple):
    """A live data file or delete file, as its manifest describes it."""

    content: int
    path: str
    """The path as recorded."""
    format: str
    """`parquet`, `orc`, `avro` or `puffin`."""
    spec_id: int
    partition: tuple[Any, ...]
    """The stored value of each field of the partition spec: None, a number, text or bytes."""
    record_count: int
    size: int
    """Recorded size in bytes, which may be wrong."""
    sequence_number: int | None
    is_encrypted: bool
    equality_ids: tuple[int, ...]
    referenced_data_file: str | None
    content_offset: int | None
    content_size: int | None
    statistics: FileStatistics | None


def read_manifest_rows(location: Location, path: str) -> list[tuple[Any, ...]]:
    """Return a plain tuple with the fields of `Manifest` for each manifest in a manifest list, in order.

    The result has no `Manifest` objects, because pickling them takes three times as long.

    Raises ValueError or ArrowInvalid for a corrupt list.
    """
    rows: list[tuple[Any, ...]] = []
    for record in records_by_id(location.read(path), _LIST_FIELDS):
        get = record.get
        summaries, spec_id = get("partitions"), get("partition_spec_id")
        rows.append(
            (
                as_text(record["manifest_path"], "manifest_path"),
                None if spec_id is None else as_integer(spec_id, "partition_spec_id"),
                as_integer(get("content") or 0, "content"),
                as_integer(get("sequence_number") or 0, "sequence_number"),
                None if summaries is None else tuple(map(_summary, summaries)),
                bool(get("key_metadata")),
                as_integer(get("min_sequence_number") or 0, "min_sequence_number"),
                _file_count(get("added_files_count"), get("existing_files_count")),
            )
        )
        check_limit(MANIFESTS, len(rows), "manifests")
    check_distinct([row[0] for row in rows], "the manifest")
    return rows


def _file_count(added: Any, existing: Any) -> int | None:
    """Return the sum of two counts; None if one of them is missing or invalid."""
    if isinstance(added, int) and isinstance(existing, int) and added >= 0 and existing >= 0:
        return added + existing
    return None


@dataclass(frozen=True)
class ManifestReader:
    """A picklable reader of the manifests of one table."""

    specs: Mapping[int, tuple[PartitionField, ...]]
    """Partition specs by id."""
    default_spec_id: int
    """The spec of manifests that do not record one."""
    with_statistics: bool
    """Whether to read all column statistics. If not, only the path bounds of position delete files are read."""

    def read(self, manifest: Manifest, location: Location, path: str) -> list[FileEntry]:
        """Return the live entries of a manifest.

        Args:
            manifest: the manifest's entry in the manifest list.
            location: a location from which the manifest can be read.
            path: path of the manifest below the location.

        Raises:
            TableFormatError: the metadata file lacks the manifest's partition spec.
            ValueError, ArrowInvalid: the manifest is corrupt or not supported.
        """
        data = location.read(path)
        spec_id = _header_spec_id(data) if manifest.spec_id is None else manifest.spec_id
        spec_id = self.default_spec_id if spec_id is None else spec_id
        check_spec(spec_id, self.specs, location.full_path(path))
        return list(_live_entries(data, manifest, spec_id, self.specs[spec_id], self.with_statistics))


def check_spec(spec_id: int, specs: Collection[int], path: str) -> None:
    """Raise TableFormatError if a manifest's partition spec is not among the specs in the metadata file."""
    if spec_id not in specs:
        raise TableFormatError(f"{path} is of the partition spec {spec_id}, which the metadata file lacks")


def _header_spec_id(data: bytes) -> int | None:
    text = read_avro_header(data).metadata.get("partition-spec-id")
    return None if text is None else int(text)


def _live_entries(
    data: bytes, manifest: Manifest, spec_id: int, spec: tuple[PartitionField, ...], with_statistics: bool
) -> Iterator[FileEntry]:
    """Yield the entries of a manifest that are not deleted.

    Args:
        data: The content of the manifest.
        manifest: The manifest as the manifest list describes it.
        spec_id: The id of its partition spec.
        spec: The fields of this spec.
        with_statistics: Whether to read the statistics of files. If false, only the bounds of `file_path` in
            position delete files are read.

    Raises:
        ValueError: An entry has a field of a wrong type, or lacks the value of a partition field. Or the entry of a
            delete file does not say whether the file deletes by position or by values.
        UnsupportedError: An entry has an unknown content.
    """
    has_statistics = with_statistics or manifest.content == 1
    read_statistics = _statistics if with_statistics else _deleted_paths
    names = _ENTRY_FIELDS | _FILE_FIELDS | (_STATISTICS_FIELDS if has_statistics else {})
    for record in records_by_id(data, names, spec, skip_others=not has_statistics):
        if record["status"] == _DELETED:
            continue
        file = record["data_file"]
        if manifest.content and file.get("content") is None:
            raise ValueError(
                f"{format_value(file['file_path'])} does not say whether it deletes by position or by values"
            )
        sequence_number = record.get("sequence_number")
        if sequence_number is None and (manifest.sequence_number == 0 or record["status"] == _ADDED):
            # An added file inherits the sequence number of its manifest, which is assigned only after the entry is
            # written.
            sequence_number = manifest.sequence_number
        partition = _partition(file.get("partition") or {}, spec)
        yield _entry(file, spec_id, partition, sequence_number, read_statistics(file) if has_statistics else None)


def _entry(
    file: Mapping[str, Any],
    spec_id: int,
    partition: tuple[Any, ...],
    sequence_number: int | None,
    statistics: FileStatistics | None,
) -> FileEntry:
    """Return the entry of a file in a manifest.

    Raises KeyError for a missing field, ValueError for one of a wrong type, and UnsupportedError for an unknown kind of
    file.
    """
    referenced_path, offset, size = map(file.get, _VECTOR_FIELDS)
    content = as_integer(file.get("content") or DATA, "content", minimum=DATA)
    if content > EQUALITY_DELETES:
        raise UnsupportedError(f"{format_value(file['file_path'])} has the content {content}, which is not supported")
    return FileEntry(
        content=content,
        path=as_text(file["file_path"], "file_path"),
        format=as_text(file["file_format"], "file_format").lower(),
        spec_id=spec_id,
        partition=partition,
        record_count=as_integer(file["record_count"], "record_count", minimum=0),
        size=as_integer(file["file_size_in_bytes"], "file_size_in_bytes", minimum=0),
        sequence_number=None if sequence_number is None else as_integer(sequence_number, "sequence_number"),
        is_encrypted=bool(file.get("key_metadata")),
        equality_ids=tuple(as_integer(field_id, "equality_ids") for field_id in file.get("equality_ids") or ()),
        referenced_data_file=None if referenced_path is None else as_text(referenced_path, "referenced_data_file"),
        content_offset=None if offset is None else as_integer(offset, "content_offset"),
        content_size=None if size is None else as_integer(size, "content_size_in_bytes"),
        statistics=statistics,
    )


def _partition(record: Mapping[str, Any], spec: tuple[PartitionField, ...]) -> tuple[Any, ...]:
    """Return the stored value of each partition field.

    A missing value is None for a field with the transform `void`, and raises ValueError for other fields.
    """
    values = tuple(record.get(partition_name(index), _MISSING) for index in range(len(spec)))
    if _MISSING not in values:
        return values
    for field, value in zip(spec, values, strict=True):
        # A missing value must not be read as null, except for void fields.
        if value is _MISSING and field.transform != "void":
            raise ValueError(f"it has no value of the partition field {field.name!r}")
    return tuple(None if value is _MISSING else value for value in values)


def _summary(record: Mapping[str, Any]) -> tuple[bytes | None, bytes | None, bool]:
    # Old writers do not record whether there is a NaN. `Partitions.bound_item` therefore uses no bounds of floats.
    is_mixed = record.get("contains_null") is not False or record.get("contains_nan") is True
    return record.get("lower_bound"), record.get("upper_bound"), is_mixed


def _statistics(file: Mapping[str, Any]) -> FileStatistics:
    return FileStatistics(*(_mapping(file.get(name)) for name in _STATISTICS_FIELDS.values()))


def _deleted_paths(file: Mapping[str, Any]) -> FileStatistics | None:
    """Return the bounds of the column `file_path` of a position delete file, without other statistics.

    The result is None for other files, and for a position delete file without these bounds.
    """
    if file.get("content") != POSITION_DELETES:
        return None
    # Other bounds contain deleted values.
    lower, upper = (
        {key: value for key, value in _mapping(file.get(name)).items() if key == DELETED_PATH_ID}
        for name in ("lower_bounds", "upper_bounds")
    )
    return FileStatistics({}, {}, lower, upper) if lower or upper else None


def _mapping(value: Any) -> Mapping[int, Any]:
    """Return a map with integer keys, which manifests store as an array of records."""
    return {item["key"]: item["value"] for item in value or ()}
