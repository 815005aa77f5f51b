"""Data files in folders: which files count, what kind they are, and in which partition each lies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from metastore_assets.errors import TableFormatError
from metastore_assets.expressions.partition_filter import BoundPartitionFilter
from metastore_assets.formats.files.ignored_files import is_ignored, is_ignored_folder
from metastore_assets.formats.files.overlapping_tables import Formats, OverlappingTables
from metastore_assets.formats.files.partitioning import Items, Partitioning, texts
from metastore_assets.formats.files.streaming_sink import LOG, committed_paths
from metastore_assets.formats.files.unsupported_formats import ADVICE, kind_of_file
from metastore_assets.formats.metadata_cache import MetadataCache, cache_key
from metastore_assets.storage.compression import SUFFIXES
from metastore_assets.storage.location import Location, StoredFile
from metastore_assets.storage.location_policy import LocationPolicy

_TEXT = "text"
"""What a suffix tells that tells no kind."""
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
"""Suffixes that some writers put behind the kind's for how the pages inside are compressed."""
_TEXT_KINDS = ("csv", "json")
READABLE = ("parquet", "orc", "avro", *_TEXT_KINDS)


class DataFile(NamedTuple):
    """One data file of a table in folders."""

    stored: StoredFile
    kind: str
    """`parquet`, `orc`, `avro`, `csv` or `json`."""
    suffix: str
    """The suffix that tells the kind, lower case; empty when the content does."""
    partition: Items
    """What the folders above it say, outermost first."""

    @property
    def is_text(self) -> bool:
        """Whether its values have no types of their own."""
        return self.kind in _TEXT_KINDS


def list_files(
    location: Location,
    location_policy: LocationPolicy,
    folders: Partitioning,
    filter_: BoundPartitionFilter | None,
    formats: Formats,
) -> tuple[list[StoredFile], OverlappingTables]:
    """Files that are no leftovers, in folders of the partitions that are meant, or the one file that the location is;
    and what there is beside them, yet to be checked.

    Of a folder that Spark's streaming wrote, the files that its log says were committed. Raises OSError, and
    TableFormatError where one of these is missing.
    """
    neighbours = OverlappingTables(location, formats)
    has_log = False

    def leads(path: str) -> bool:
        if is_ignored_folder(path.rpartition("/")[2]) or not folders.leads(path.split("/")):
            return False
        return filter_ is None or filter_.may_match(texts(_items(location, folders, path, path.split("/"))))

    def holds(path: str) -> bool:
        above, _, name = path.rpartition("/")
        return not is_ignored(name) and folders.holds(above.split("/") if above else ())

    def is_meant(path: str) -> bool:
        nonlocal has_log
        has_log = has_log or path == LOG
        neighbours.see_folder(path)
        if found := leads(path):
            neighbours.follow(path)
        return found

    def is_kept(path: str) -> bool:
        neighbours.see_file(path)
        if found := holds(path):
            neighbours.see_data(path)
        return found

    files = list(location.list(is_kept, is_meant, by_folder=filter_ is not None))
    if len(files) == 1 and not files[0].path:
        neighbours.see_data("")
    committed = committed_paths(location, location_policy) if has_log else None
    if committed is None:
        return files, neighbours
    present = {file.path: file for file in files}
    for path in committed:
        if path not in present and holds(path) and all(map(leads, _parents(path))):
            raise TableFormatError(
                f"{location.full_path(path)} is missing, which {location.full_path(LOG)} says was committed; restore "
                f"the file, or remove the folder {LOG} to read all files that are there"
            )
    return [present[path] for path in committed if path in present], neighbours


def data_files(
    location: Location,
    found: Iterable[StoredFile],
    folders: Partitioning,
    bind: Callable[[Sequence[str]], BoundPartitionFilter],
    cache: MetadataCache,
    told: str | None = None,
) -> list[DataFile]:
    """The data files among those found, ordered by path. Raises TableFormatError for one that has no reader.

    `bind` returns which partitions are meant of a table with some partition columns. Files whose names do not tell
    what they are, are of the kind `told`; when that is None the first bytes are read, of new ones.
    """
    files = []
    partitions: dict[str, Items] = {}
    found = _sorted_data(location, found)
    for stored in found:
        folder = stored.path.rpartition("/")[0]
        if folder not in partitions:
            above = folder.split("/") if folder else []
            partitions[folder] = _items(location, folders, stored.path, above, is_file=True)
    if not found:
        return []
    filter_ = bind(_columns(folders, partitions.values()))
    for stored in found:
        name = (stored.path or location.uri).rpartition("/")[2].lower()
        stem, compression = _strip(name, SUFFIXES)
        suffix = next((suffix for suffix in _KINDS if stem.endswith(suffix)), "")
        partition = partitions[stored.path.rpartition("/")[0]]
        if not filter_.may_match(texts(partition)):
            continue
        if stored.path and not suffix:
            _check_suffix(location, stored.path, stem)
        kind = _KINDS.get(suffix, "")
        if kind in ("", _TEXT):
            # Whoever names a file .txt says no more than who names it nothing.
            kind = told or kind or _sniff(location, stored, cache)
        # Whether text is compressed its content tells, to who opens it.
        is_packed = compression and kind not in _TEXT_KINDS and _sniff(location, stored, cache) != kind
        packed = compression if is_packed else None
        _check_readable(location, stored.path, kind, packed)
        files.append(DataFile(stored, kind, suffix, partition))
    return files


def _sorted_data(location: Location, found: Iterable[StoredFile]) -> list[StoredFile]:
    """Those found that may have rows, ordered by path."""
    ordered = sorted(found, key=lambda file: file.path)
    with_files = {parent for stored in ordered for parent in _parents(stored.path)}
    for stored in ordered:
        _check_name(location, stored.path)
    # What is left out is a folder's marker in an object store, or a file with nothing in it.
    return [
        stored for stored in ordered if stored.size or (stored.path not in with_files and _suffix(location, stored))
    ]


def _suffix(location: Location, stored: StoredFile) -> str:
    """The suffix of a file that tells its kind, lower case; empty where none does."""
    stem, _ = _strip((stored.path or location.uri).rpartition("/")[2].lower(), SUFFIXES)
    return next((suffix for suffix in _KINDS if stem.endswith(suffix)), "")


def partition_columns(folders: Partitioning, files: Sequence[DataFile]) -> tuple[str, ...]:
    """Names of all partition columns, in the order of the deepest folders; files further up lack the rest."""
    return _columns(folders, (file.partition for file in files))


def _columns(folders: Partitioning, partitions: Iterable[Items]) -> tuple[str, ...]:
    orders = {tuple(name for name, _ in partition) for partition in partitions}
    columns = list(folders.types)
    for names in sorted(orders, key=lambda names: (-len(names), names)):
        columns += [name for name in names if name not in columns]
    return tuple(columns)


def _items(
    location: Location, folders: Partitioning, path: str, above: Sequence[str], *, is_file: bool = False
) -> Items:
    try:
        items = folders.items(above)
        if is_file:
            folders.check(above)
    except ValueError as error:
        raise TableFormatError(f"{location.full_path(path)} has {error}") from None
    return items


def _check_name(location: Location, path: str) -> None:
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        raise TableFormatError(f"{location.uri}: the name of {path!a} is not UTF-8; rename the file") from None


def _check_suffix(location: Location, path: str, stem: str) -> None:
    """Whoever adds to a data file's suffix tells something by it: that it is a copy, or not meant to be read."""
    inner = [f".{part}" for part in stem.split(".")[1:-1]]
    told = next((suffix for suffix in inner if suffix in _KINDS), None)
    if told is not None and not stem.endswith(_CODECS):
        raise TableFormatError(
            f"{location.full_path(path)} has a suffix behind {told!r}, so that it is uncertain whether it is data: "
            f"end its name in {told} if it is, in .bak if it is not"
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
