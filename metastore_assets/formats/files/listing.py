"""The listing of a table of plain files: its data files, their kinds and their partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from metastore_assets.errors import TableFormatError
from metastore_assets.expressions.partition_filter import BoundPartitionFilter
from metastore_assets.formats.files.ignored_files import is_ignored, is_ignored_folder
from metastore_assets.formats.files.overlapping_tables import Formats, OverlappingTables
from metastore_assets.formats.files.partitioning import Items, Partitioning, key_items
from metastore_assets.formats.files.streaming_sink import LOG, committed_paths
from metastore_assets.formats.files.unsupported_formats import ADVICE, kind_of_file
from metastore_assets.formats.metadata_cache import MetadataCache, cache_key
from metastore_assets.storage.compression import SUFFIXES
from metastore_assets.storage.location import Location, StoredFile
from metastore_assets.storage.location_policy import LocationPolicy

_TEXT = "text"
"""The kind of text files, whose suffix does not say more."""
_KINDS = {
    ".parquet": "parquet",
    ".parq": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".orc": "orc",
    ".avro": "avro",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".txt": _TEXT,
}
_MAGIC = {b"PAR1": "parquet", b"PARE": "parquet", b"ORC": "orc", b"Obj\x01": "avro"}
_MAGIC_BYTES = 4
_UNKNOWN = "unknown"
_CODECS = (".snappy", ".zlib", ".deflate", ".lzo", ".brotli")
"""Suffixes for the compression of pages, which some writers put after the suffix of the kind."""
_TEXT_KINDS = ("csv", "json")
READABLE = ("parquet", "orc", "avro", *_TEXT_KINDS)


class DataFile(NamedTuple):
    """One data file of a table in folders."""

    stored: StoredFile
    kind: str
    """`parquet`, `orc`, `avro`, `csv` or `json`."""
    suffix: str
    """The suffix of the kind in lower case; empty when the content shows the kind."""
    partition: Items
    """Partition values from the folders above it, outermost first."""

    @property
    def is_text(self) -> bool:
        """Whether the file has values without types."""
        return self.kind in _TEXT_KINDS


def list_files(
    location: Location,
    location_policy: LocationPolicy,
    partitioning: Partitioning,
    filter_: BoundPartitionFilter | None,
    formats: Formats,
) -> tuple[list[StoredFile], OverlappingTables]:
    """List the files of a table, and evidence of overlapping tables.

    Args:
        location: the table's folder, or its only file.
        location_policy: what the table may refer to.
        partitioning: how folders give partition values.
        filter_: the selected partitions; None for all.
        formats: detectors of tables of other formats.

    Returns:
        The files that are not ignored, and the evidence, which is not checked yet. In a folder that Spark's streaming
        wrote, these are the files that its log has committed.

    Raises:
        OSError: the location cannot be listed.
        TableFormatError: a committed file is missing.
    """
    overlapping = OverlappingTables(location, formats)
    has_log = False

    def may_contain_files(path: str) -> bool:
        if is_ignored_folder(path.rpartition("/")[2]) or not partitioning.may_contain_files(path.split("/")):
            return False
        return filter_ is None or filter_.may_match(key_items(_items(location, partitioning, path, path.split("/"))))

    def contains_files(path: str) -> bool:
        above, _, name = path.rpartition("/")
        return not is_ignored(name) and partitioning.contains_files(above.split("/") if above else ())

    def add_folder(path: str) -> bool:
        nonlocal has_log
        has_log = has_log or path == LOG
        overlapping.add_folder(path)
        is_listed = may_contain_files(path)
        if is_listed:
            overlapping.add_link(path)
        return is_listed

    def add_file(path: str) -> bool:
        overlapping.add_file(path)
        is_data = contains_files(path)
        if is_data:
            overlapping.add_data_file(path)
        return is_data

    files = list(location.list(add_file, add_folder, by_folder=filter_ is not None))
    if len(files) == 1 and not files[0].path:
        overlapping.add_data_file("")
    committed = committed_paths(location, location_policy) if has_log else None
    if committed is None:
        return files, overlapping
    present = {file.path: file for file in files}
    for path in committed:
        if path not in present and contains_files(path) and all(map(may_contain_files, _parents(path))):
            raise TableFormatError(
                f"{location.full_path(path)} is missing, which {location.full_path(LOG)} says was committed; restore "
                f"the file, or remove the folder {LOG} to read all files that are there"
            )
    return [present[path] for path in committed if path in present], overlapping


def data_files(
    location: Location,
    listed: Iterable[StoredFile],
    partitioning: Partitioning,
    bind: Callable[[Sequence[str]], BoundPartitionFilter],
    cache: MetadataCache,
    default_kind: str | None = None,
) -> list[DataFile]:
    """Return the data files among listed files, ordered by path.

    Args:
        location: the table's folder, or its only file.
        listed: the files of `list_files`.
        partitioning: how folders give partition values.
        bind: returns the selected partitions of a table with the given partition columns.
        cache: has the kinds of files whose first bytes were read.
        default_kind: the kind of files whose names show none; None to read their first bytes.

    Raises:
        TableFormatError: a file is of a kind that is not supported.
    """
    files = []
    partitions: dict[str, Items] = {}
    stored_files = _sorted_data(location, listed)
    for stored in stored_files:
        folder = stored.path.rpartition("/")[0]
        if folder not in partitions:
            above = folder.split("/") if folder else []
            partitions[folder] = _items(location, partitioning, stored.path, above, is_file=True)
    if not stored_files:
        return []
    filter_ = bind(_columns(partitioning, partitions.values()))
    for stored in stored_files:
        name = (stored.path or location.uri).rpartition("/")[2].lower()
        stem, compression = _strip(name, SUFFIXES)
        suffix = next((suffix for suffix in _KINDS if stem.endswith(suffix)), "")
        partition = partitions[stored.path.rpartition("/")[0]]
        if not filter_.may_match(key_items(partition)):
            continue
        if stored.path and not suffix:
            _check_suffix(location, stored.path, stem)
        kind = _KINDS.get(suffix, "")
        if kind in ("", _TEXT):
            # The suffix .txt shows no more than none.
            kind = default_kind or kind or _sniff(location, stored, cache)
        # Compressed text is recognised when it is opened.
        is_compressed = compression and kind not in _TEXT_KINDS and _sniff(location, stored, cache) != kind
        outer = compression if is_compressed else None
        _check_readable(location, stored.path, kind, outer)
        files.append(DataFile(stored, kind, suffix, partition))
    return files


def _sorted_data(location: Location, listed: Iterable[StoredFile]) -> list[StoredFile]:
    """Return the files that may have rows, ordered by path."""
    ordered = sorted(listed, key=lambda file: file.path)
    with_files = {parent for stored in ordered for parent in _parents(stored.path)}
    for stored in ordered:
        _check_name(location, stored.path)
    # Excluded are markers of folders in an object store, and empty files without a suffix.
    return [
        stored for stored in ordered if stored.size or (stored.path not in with_files and _suffix(location, stored))
    ]


def _suffix(location: Location, stored: StoredFile) -> str:
    """Return the suffix of a file's kind in lower case; empty without one."""
    stem, _ = _strip((stored.path or location.uri).rpartition("/")[2].lower(), SUFFIXES)
    return next((suffix for suffix in _KINDS if stem.endswith(suffix)), "")


def partition_columns(partitioning: Partitioning, files: Sequence[DataFile]) -> tuple[str, ...]:
    """Return the names of all partition columns, in the order of the deepest folders."""
    return _columns(partitioning, (file.partition for file in files))


def _columns(partitioning: Partitioning, partitions: Iterable[Items]) -> tuple[str, ...]:
    orders = {tuple(name for name, _ in partition) for partition in partitions}
    columns = list(partitioning.types)
    for names in sorted(orders, key=lambda names: (-len(names), names)):
        columns += [name for name in names if name not in columns]
    return tuple(columns)


def _items(
    location: Location, partitioning: Partitioning, path: str, above: Sequence[str], *, is_file: bool = False
) -> Items:
    try:
        items = partitioning.items(above)
        if is_file:
            partitioning.check(above)
    except ValueError as error:
        raise TableFormatError(f"{location.full_path(path)} has {error}") from None
    return items


def _check_name(location: Location, path: str) -> None:
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        raise TableFormatError(f"{location.uri}: the name of {path!a} is not UTF-8; rename the file") from None


def _check_suffix(location: Location, path: str, stem: str) -> None:
    """Raise TableFormatError for text after the suffix of a kind: such a file may be a copy, or no data."""
    inner = [f".{part}" for part in stem.split(".")[1:-1]]
    inner_suffix = next((suffix for suffix in inner if suffix in _KINDS), None)
    if inner_suffix is not None and not stem.endswith(_CODECS):
        raise TableFormatError(
            f"{location.full_path(path)} has a suffix after {inner_suffix!r}, so that it may be no data; "
            f"end its name in {inner_suffix} if it is data, in .bak if it is not"
        )


def _check_readable(location: Location, path: str, kind: str, compression: str | None) -> None:
    full_path = location.full_path(path)
    if kind == _UNKNOWN and (what := kind_of_file(full_path)):
        raise TableFormatError(
            f"{full_path} is {what}, which is not supported: {ADVICE}; move it elsewhere if it is no data of this table"
        )
    if kind == _UNKNOWN:
        raise TableFormatError(
            f"{full_path} is no data file that can be told: name it .parquet, .orc, .avro, .csv or .json, "
            "or start its name with `_` if it is no data"
        )
    if kind not in READABLE:
        raise TableFormatError(
            f"{full_path} is a file of the kind {kind!r}; {', '.join(READABLE)} are read: options.kind says which"
        )
    if compression:
        raise TableFormatError(f"{full_path} is of the kind {kind!r} inside a {compression} file, which has no reader")


def _parents(path: str) -> Iterator[str]:
    while path := path.rpartition("/")[0]:
        yield path


def _strip(name: str, suffixes: dict[str, str]) -> tuple[str, str | None]:
    for suffix, meaning in suffixes.items():
        if name.endswith(suffix):
            return name.removesuffix(suffix), meaning
    return name, None


def _sniff(location: Location, stored: StoredFile, cache: MetadataCache) -> str:
    key = cache_key("first bytes", location.uri, *stored)
    kind = cache.get(key, _kind)
    if kind is None:
        with location.open_stored(stored) as file:
            head = file.read(_MAGIC_BYTES)
        kind = next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), _UNKNOWN)
        cache.put(key, kind.encode())
    return kind


def _kind(data: bytes) -> str:
    kind = data.decode()
    if kind not in (*_MAGIC.values(), _UNKNOWN):
        raise ValueError(kind)
    return kind
