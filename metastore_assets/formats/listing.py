"""Data files in folders: which files count, what kind they are, and the partition values in the folders' names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from metastore_assets.errors import TableFormatError
from metastore_assets.formats.location import Location, StoredFile
from metastore_assets.formats.partition_keys import NULL_VALUE

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
    ".txt": "text",
}
_COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".zstd": "zstd", ".bz2": "bz2", ".lz4": "lz4"}
_MAGIC = {b"PAR1": "parquet", b"PARE": "parquet", b"ORC": "orc", b"Obj\x01": "avro"}
_READABLE = ("parquet", "csv")


@dataclass(frozen=True)
class DataFile:
    """One data file of a table in folders."""

    stored: StoredFile
    kind: str
    """`parquet` or `csv`."""
    compression: str | None
    """Of the whole file, as Arrow names it; None when there is none."""
    suffix: str
    """The suffix that tells the kind, lower case; empty when the content does."""
    partition: tuple[tuple[str, str | None], ...]
    """(column, value) of each `column=value` folder above it, outermost first."""


def is_hidden(name: str) -> bool:
    """Whether a file or folder is no data, as Spark and Hive have it: `_SUCCESS`, `.part.crc`, `_tmp/`; not `_a=1/`."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name) or name.endswith("._COPYING_")


def data_files(location: Location, found: Iterable[StoredFile]) -> list[DataFile]:
    """The data files among those found, ordered by path. Raises TableFormatError for one that has no reader."""
    files = []
    for stored in sorted(found, key=lambda file: file.path):
        _check_name(location, stored.path)
        name = (stored.path or location.uri).rpartition("/")[2].lower()
        stem, compression = _strip(name, _COMPRESSIONS)
        suffix = next((suffix for suffix in _KINDS if stem.endswith(suffix)), "")
        if not suffix and stored.size == 0:
            # A folder's marker in an object store, or a file with nothing in it.
            continue
        kind = _KINDS[suffix] if suffix else _sniff(location, stored)
        if kind not in _READABLE:
            raise TableFormatError(_no_reader(location.full_path(stored.path), kind))
        if kind == "parquet" and compression:
            raise TableFormatError(
                f"{location.full_path(stored.path)} is a Parquet file inside a {compression} file, which has no reader"
            )
        files.append(DataFile(stored, kind, compression, suffix, _partition(location, stored.path)))
    return files


def partition_columns(location: Location, files: Sequence[DataFile]) -> tuple[str, ...]:
    """Names of all partition columns, in the order of the deepest folders; files further up lack the rest."""
    orders = sorted(
        {tuple(name for name, _ in file.partition) for file in files}, key=lambda names: (-len(names), names)
    )
    columns: list[str] = []
    for names in orders:
        columns += [name for name in names if name not in columns]
    return tuple(columns)


def _partition(location: Location, path: str) -> tuple[tuple[str, str | None], ...]:
    items: list[tuple[str, str | None]] = []
    for folder in path.split("/")[:-1]:
        name, equals, value = folder.partition("=")
        if not equals or not name:
            continue
        decoded = _unquote(location, path, name)
        if decoded in dict(items):
            raise TableFormatError(f"{location.full_path(path)} has two values of the partition column {decoded!r}")
        items.append((decoded, None if value == NULL_VALUE else _unquote(location, path, value)))
    return tuple(items)


def _unquote(location: Location, path: str, text: str) -> str:
    try:
        return unquote_to_bytes(text).decode("utf-8")
    except UnicodeDecodeError:
        raise TableFormatError(
            f"{location.full_path(path)}: the folder {text!r} is not percent-encoded UTF-8"
        ) from None


def _check_name(location: Location, path: str) -> None:
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        raise TableFormatError(f"{location.uri}: the name of {path!a} is not UTF-8; rename the file") from None


def _strip(name: str, suffixes: dict[str, str]) -> tuple[str, str | None]:
    for suffix, meaning in suffixes.items():
        if name.endswith(suffix):
            return name.removesuffix(suffix), meaning
    return name, None


def _sniff(location: Location, stored: StoredFile) -> str:
    with location.open_stored(stored) as file:
        head = file.read(4)
    return next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), "unknown")


def _no_reader(path: str, kind: str) -> str:
    if kind == "unknown":
        return (
            f"{path} is no data file that can be told: name it .parquet or .csv, "
            "or start its name with `_` if it is no data"
        )
    return f"{path} is a file of the kind {kind!r}, whose reader is not built yet; Parquet and CSV files are read"
