"""Listing of a table of plain files: its data files, their kinds and their partitions.

The kind of a file is its format, such as `csv`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from metastore_assets.errors import TableFormatError
from metastore_assets.expressions.partition_filter import BoundPartitionFilter
from metastore_assets.formats.files.listed_files import TEXT_KINDS, DataFile, ListedFiles, parents
from metastore_assets.formats.files.overlapping_tables import Formats, OverlappingTables
from metastore_assets.formats.files.partitioning import Items, Partitioning, key_items
from metastore_assets.formats.files.streaming_sink import LOG, committed_paths
from metastore_assets.formats.files.unsupported_formats import kind_of_file
from metastore_assets.formats.metadata_cache import MetadataCache, cache_key
from metastore_assets.storage.compression import SUFFIXES
from metastore_assets.storage.location import Location, StoredFile
from metastore_assets.storage.location_policy import LocationPolicy

_TEXT = "text"
"""The kind of text files with the suffix .txt, which may be CSV or JSON."""
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
_MANIFEST = "manifest"
"""The kind of a list of files. Redshift's UNLOAD writes it beside the files, with the name `<prefix>manifest`."""
_MANIFEST_START = re.compile(rb'\s*\{\s*"entries"\s*:')
_HEAD_BYTES = 64
_UNKNOWN = "unknown"
_CODECS = (".snappy", ".zlib", ".deflate", ".lzo", ".brotli")
"""Suffixes of Parquet or ORC files that name the compression inside of the file, as in `x.parquet.snappy`."""
READABLE = ("parquet", "orc", "avro", *TEXT_KINDS)

_ENDINGS = frozenset(
    [
        *("tmp", "temp", "part", "partial", "filepart", "inprogress", "_copying_", "crdownload", "download", "gstmp"),
        *("swp", "swo", "bak", "backup", "old", "orig", "crc", "md5", "sha1", "sha256", "sha512", "lock"),
    ]
)
"""Last parts of the names of ignored files, as in `x.csv.tmp`."""
_NUMBERED = frozenset(["bak", "backup", "old", "orig", "tmp", "temp"])
"""Endings that a number may follow, as in `x.csv.bak1`, `x.csv.bak-1` and `x.csv.bak.1`."""
_WITH_NUMBER = re.compile(r"([a-z]+)-?[0-9]+")
_COMPRESSIONS = frozenset(["gz", "gzip", "bz2", "zst", "zstd", "lz4", "xz", "snappy", "zip"])
_OF_SYSTEMS = frozenset(
    ["lost+found", "$recycle.bin", "system volume information", "@eadir", "+tmp", "thumbs.db", "desktop.ini"]
)


@dataclass(frozen=True)
class TableFolder:
    """The folder of a table of plain files, or its only file, and how the files in it are recognised."""

    location: Location
    partitioning: Partitioning
    cache: MetadataCache
    """Caches the kinds that were recognised by the first bytes of files."""
    default_kind: str | None = None
    """The kind of files whose names show none. None means that their first bytes are read."""

    def list_files(
        self, location_policy: LocationPolicy, filter_: BoundPartitionFilter | None, formats: Formats
    ) -> tuple[ListedFiles, OverlappingTables]:
        """List the files of the table, without hidden, unfinished and other ignored files.

        In a folder that Spark's structured streaming wrote, only the files that its log has committed are returned.

        Args:
            location_policy: resolves the paths in the log of Spark's structured streaming.
            filter_: the selected partitions; None for all.
            formats: detectors of tables of other formats.

        Returns:
            (files, overlapping_tables). The listing only notes signs of tables of other formats in
            `overlapping_tables`. The caller must call its method `check`, which raises an error if there is such a
            table.

        Raises:
            OSError: the location cannot be listed.
            TableNotFoundError: Spark's structured streaming has not committed any file yet.
            TableFormatError: a committed file is missing, the log is corrupt, or a folder does not fit the
                partitioning.
        """
        location = self.location
        overlapping_tables = OverlappingTables(location, formats)
        has_log = False

        def add_folder(path: str) -> bool:
            nonlocal has_log
            has_log = has_log or path == LOG
            overlapping_tables.add_folder(path)
            is_listed = self._is_listed_folder(path, filter_)
            if is_listed:
                overlapping_tables.add_link(path)
            return is_listed

        def add_file(path: str) -> bool:
            overlapping_tables.add_file(path)
            is_data = self._is_listed_file(path)
            if is_data:
                overlapping_tables.add_data_file(path)
            return is_data

        files = ListedFiles()
        for file in location.list(add_file, add_folder, by_folder=filter_ is not None):
            if not file.path:
                overlapping_tables.add_data_file("")
            files.add(file)
        logged_paths = committed_paths(location, location_policy) if has_log else None
        if logged_paths is not None:
            files = self._committed_files(files, logged_paths, filter_)
        return files, overlapping_tables

    def _is_listed_folder(self, path: str, filter_: BoundPartitionFilter | None) -> bool:
        """Return whether a folder may contain files of the table in selected partitions, at any depth."""
        folders = path.split("/")
        is_ignored = is_ignored_folder(folders[-1]) and not self.partitioning.is_registered(folders)
        if is_ignored or not self.partitioning.may_contain_files(folders):
            return False
        return filter_ is None or filter_.may_match(key_items(self._partition(path, folders)))

    def _is_listed_file(self, path: str) -> bool:
        """Return whether a file belongs to the table, by its name and its folder."""
        folder, _, name = path.rpartition("/")
        return not is_ignored(name) and self.partitioning.contains_files(folder.split("/") if folder else ())

    def _committed_files(
        self, files: ListedFiles, logged_paths: Sequence[str], filter_: BoundPartitionFilter | None
    ) -> ListedFiles:
        """Return the files that the log of Spark's structured streaming has committed.

        A committed file that is not in `files` is looked up in the store, because it may be newer than the listing.

        Args:
            files: The listed files.
            logged_paths: The paths in the log.
            filter_: The filter of the partitions to read. Committed files in other partitions are left out.

        Raises:
            TableFormatError: A committed file does not exist.
        """
        files_by_path = {file.path: file for file in files}
        committed_files = ListedFiles()
        for path in logged_paths:
            if path in files_by_path:
                committed_files.add(files_by_path[path])
            elif self._is_listed_file(path) and all(
                self._is_listed_folder(parent, filter_) for parent in parents(path)
            ):
                try:
                    # The log is read after the folders are listed, so the file may have been committed in between.
                    committed_files.add(self.location.stat(path))
                except FileNotFoundError as error:
                    log = self.location.full_path(LOG)
                    raise TableFormatError(
                        f"{self.location.full_path(path)} is missing, although {log} says that it was committed; "
                        f"restore the file, or remove the folder {LOG} to read all files of the folder"
                    ) from error
        return committed_files

    def data_files(
        self, files: ListedFiles, bind: Callable[[Sequence[str]], BoundPartitionFilter]
    ) -> Iterator[DataFile]:
        """Yield the data files in selected partitions, ordered by path.

        These are left out: markers of folders in an object store, empty files whose names show no kind, and manifests
        of Redshift.

        Args:
            files: the files of `list_files`.
            bind: returns the partition filter for the names of the partition columns.

        Raises:
            TableFormatError: a file is of an unsupported kind, its name is not UTF-8, or its folders do not fit the
                partitioning.
        """
        location = self.location
        if files.invalid_path is not None:
            raise TableFormatError(f"{location.uri}: the name of {files.invalid_path!a} is not UTF-8; rename the file")

        def is_data_if_empty(path: str) -> bool:
            return path not in files.folders and bool(self._split_name(path)[2])

        partitions: dict[str, Items] = {}
        for path in files.first_paths(is_data_if_empty):
            folder = path.rpartition("/")[0]
            partitions[folder] = self._partition(path, folder.split("/") if folder else [], is_file=True)
        if not partitions:
            return
        filter_ = bind(partition_columns(self.partitioning, partitions.values()))
        selected_partitions = {
            folder: partition for folder, partition in partitions.items() if filter_.may_match(key_items(partition))
        }
        for stored_file in files:
            path = stored_file.path
            partition = selected_partitions.get(path.rpartition("/")[0])
            if partition is None or not (stored_file.size or is_data_if_empty(path)):
                continue
            stem, compression, suffix = self._split_name(path)
            if path and not suffix:
                if stem.endswith(_MANIFEST) and self._sniff(stored_file) == _MANIFEST:
                    continue
                _check_suffix(location, path, stem)
            kind = _KINDS.get(suffix, "")
            if kind in ("", _TEXT):
                # The suffix .txt does not tell CSV from JSON.
                kind = self.default_kind or kind or self._sniff(stored_file)
            # Compressed text is supported, and decompressed when it is opened.
            is_compressed = compression and kind not in TEXT_KINDS and self._sniff(stored_file) != kind
            _check_readable(location, path, kind, compression if is_compressed else None)
            yield DataFile(stored_file, kind, suffix, partition)

    def _split_name(self, path: str) -> tuple[str, str | None, str]:
        """Split the name of the file at a path, in lower case.

        Returns:
            The name without a suffix of compression; the compression, or None; and the suffix of the kind, or an empty
                text. For `a/X.csv.gz`: (`x.csv`, `gzip`, `.csv`).
        """
        name = (path or self.location.uri).rpartition("/")[2].lower()
        stem, compression = _strip(name, SUFFIXES)
        return stem, compression, next((suffix for suffix in _KINDS if stem.endswith(suffix)), "")

    def _partition(self, path: str, folders: Sequence[str], *, is_file: bool = False) -> Items:
        """Return the partition values in the folders on a path.

        Args:
            path: the path of a folder or a file, for messages.
            folders: the names of the folders on the path.
            is_file: whether the path is that of a file. If so, and the table has a template, there must be as many
                folders as in the template: two for `{year}/{month}`.

        Raises:
            TableFormatError: the folders do not fit the partitioning.
        """
        try:
            items = self.partitioning.items(folders)
            if is_file:
                self.partitioning.check(folders)
        except ValueError as error:
            raise TableFormatError(f"{self.location.full_path(path)} has {error}") from None
        return items

    def _sniff(self, stored_file: StoredFile) -> str:
        """Return the kind that the first bytes of a file show, or `unknown`.

        The result is cached.
        """
        key = cache_key("first bytes", self.location.uri, *stored_file)
        kind = self.cache.get(key, _decode_kind)
        if kind is None:
            with self.location.open_stored(stored_file) as file:
                head = file.read(_HEAD_BYTES)
            other = _MANIFEST if _MANIFEST_START.match(head) else _UNKNOWN
            kind = next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), other)
            self.cache.put(key, kind.encode())
        return kind


def partition_columns(partitioning: Partitioning, partitions: Iterable[Items]) -> tuple[str, ...]:
    """Return the partition columns: those that the partitioning declares, then those of the folders.

    Args:
        partitioning: the partitioning of the table.
        partitions: the partition values of folders.
    """
    orders = {tuple(name for name, _ in partition) for partition in partitions}
    columns = list(partitioning.types)
    for names in sorted(orders, key=lambda names: (-len(names), names)):
        columns += [name for name in names if name not in columns]
    return tuple(columns)


def _check_suffix(location: Location, path: str, stem: str) -> None:
    """Raise TableFormatError for a name such as `x.csv.1`, which may be a copy, or contain no data."""
    inner = [f".{part}" for part in stem.split(".")[1:-1]]
    inner_suffix = next((suffix for suffix in inner if suffix in _KINDS), None)
    if inner_suffix is not None and not stem.endswith(_CODECS):
        raise TableFormatError(
            f"{location.full_path(path)} has a suffix after {inner_suffix!r}, so that it may be no data; "
            f"end its name in {inner_suffix} if it is data, in .bak if it is not"
        )


def _check_readable(location: Location, path: str, kind: str, compression: str | None) -> None:
    """Raise TableFormatError if files of this kind, or in this compression, cannot be read."""
    full_path = location.full_path(path)
    if kind == _UNKNOWN and (recognised_kind := kind_of_file(full_path)):
        what, advice = recognised_kind
        raise TableFormatError(f"{full_path} is {what}: {advice}; move it elsewhere if it is no data of this table")
    if kind in (_UNKNOWN, _MANIFEST):
        raise TableFormatError(
            f"{full_path} is no data file of a recognised kind: name it .parquet, .orc, .avro, .csv or .json, "
            "or start its name with `_` if it is no data"
        )
    if kind not in READABLE:
        raise TableFormatError(
            f"{full_path} is a file of the kind {kind!r}; {', '.join(READABLE)} are read: options.kind says which"
        )
    if compression:
        raise TableFormatError(f"{full_path} is of the kind {kind!r} inside a {compression} file, which has no reader")


def _strip(name: str, suffixes: dict[str, str]) -> tuple[str, str | None]:
    for suffix, meaning in suffixes.items():
        if name.endswith(suffix):
            return name.removesuffix(suffix), meaning
    return name, None


def _decode_kind(data: bytes) -> str:
    kind = data.decode()
    if kind not in (*_MAGIC.values(), _MANIFEST, _UNKNOWN):
        raise ValueError(kind)
    return kind


def is_ignored(name: str) -> bool:
    """Return whether a file of this name contains no data of the table.

    It may be hidden, unfinished, a backup, a checksum, the metadata of a query of Athena, or the file of an editor or
    operating system.
    """
    lower = name.lower()
    return (
        _is_hidden(name)
        or lower.endswith(("~", "_$folder$", ".csv.metadata"))
        or lower.startswith("~$")
        or (lower.startswith("#") and lower.endswith("#"))
        or lower in _OF_SYSTEMS
        or _has_ending(lower)
    )


def is_ignored_folder(name: str) -> bool:
    """Return whether all files in a folder of this name are ignored.

    Folders such as `_column=value` are not.
    """
    return _is_hidden(name) or ("=" not in name and is_ignored(name))


def _is_hidden(name: str) -> bool:
    """Return whether Spark ignores files of this name: `_SUCCESS` and `.x.crc`, but not `_a=1`."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def _has_ending(name: str) -> bool:
    """Return True for names such as `x.tmp` or `x.bak-1`: temporary files, backups and checksums.

    The name is in lower case.
    """
    stem, dot, ending = name.rpartition(".")
    if ending in _COMPRESSIONS:
        stem, dot, ending = stem.rpartition(".")
    if not dot:
        return False
    if ending in _ENDINGS or ".inprogress." in name:
        return True
    if ending.isdecimal():
        return "." in stem and stem.rpartition(".")[2] in _NUMBERED
    match = _WITH_NUMBER.fullmatch(ending)
    return match is not None and match[1] in _NUMBERED
