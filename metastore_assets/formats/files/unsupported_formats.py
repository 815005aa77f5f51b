"""Detection of unsupported formats by metadata files or file names, with advice for the user."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from metastore_assets.formats.metadata_json import parse_json
from metastore_assets.formats.registration import FormatDetector
from metastore_assets.storage.corrupt_input import CORRUPTION_ERRORS
from metastore_assets.storage.location import Location

_EXPORT = "export the rows to Parquet, or pass them to `metastore_assets.profile` as Arrow data"
_PAIMON = f"have Paimon write Iceberg metadata (`metadata.iceberg.storage`), {_EXPORT}"
_UUID = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_DUCKLAKE_FILE = re.compile(rf"ducklake-{_UUID}(-[a-z]+)*\.[a-z]+")
_PAIMON_BUCKET = re.compile(r"bucket-([0-9]+|postpone)")
_PAIMON_FILE = re.compile(rf"(data|changelog)-{_UUID}-[0-9]+\.[a-z0-9.]+")
_PAIMON_SCHEMA = re.compile(r"schema-[0-9]+")
_ACID_FOLDER = re.compile(r"((delete_)?delta_[0-9]{7,}_[0-9]{7,}(_[0-9]{4,})?|base_[0-9]{7,})(_v[0-9]+)?")
"""Matches folders of Hive's transactional tables, named with numbers of at least seven digits. Others may match too."""
_ACID_PADDED = re.compile(r"((delete_)?delta_0[0-9]{6}_[0-9]{7}(_[0-9]{4,})?|base_0[0-9]{6})(_v[0-9]+)?")
"""Matches folders that certainly belong to Hive's transactional tables: the numbers begin with a zero, unlike dates."""
_ACID_FILE = re.compile(r"bucket_[0-9]{5,}(_[0-9]+)?|[0-9]{6}_[0-9]+(\.[a-z0-9.]+)?")
_SUFFIXES = {
    "arrow": "an Arrow IPC file",
    "arrows": "an Arrow IPC file",
    "db": "a database file",
    "duckdb": "a DuckDB database",
    "ducklake": "the catalog of a DuckLake",
    "feather": "a Feather file",
    "hfile": "an HFile",
    "ipc": "an Arrow IPC file",
    "nimble": "a Nimble file",
    "puffin": "a Puffin file, which holds deletes or statistics of an Iceberg table",
    "share": "a profile of Delta Sharing",
    "sqlite": "a SQLite database",
    "vortex": "a Vortex file",
    "xls": "an Excel file",
    "xlsx": "an Excel file",
}


def holds_paimon(location: Location) -> bool:
    """Return whether a folder is a Paimon table, which has a valid schema file.

    Raises OSError if the folder cannot be listed, or if the user has no permission to read the file.
    """
    for name in location.names("schema", "schema-", "schema."):
        if _PAIMON_SCHEMA.fullmatch(name):
            try:
                schema = parse_json(location.read(f"schema/{name}"))
            except (FileNotFoundError, PermissionError):
                raise
            except CORRUPTION_ERRORS:
                return False
            return isinstance(schema, dict) and {"fields", "partitionKeys"} <= schema.keys()
    return False


UNSUPPORTED_FORMATS: Mapping[str, FormatDetector] = {
    "Paimon": FormatDetector(
        "schema",
        holds_paimon,
        is_metadata_file=lambda name: _PAIMON_SCHEMA.fullmatch(name) is not None,
        unsupported=_PAIMON,
    ),
}
"""Detectors of unsupported formats that have metadata files, by the name of the format."""


def table_of_file(folder: str, name: str) -> tuple[str, str] | None:
    """Recognise a data file of an unsupported format by its name and its folders.

    Args:
        folder: path or URI of the folder that contains the file.
        name: name of the file.

    Returns:
        The name of the format, and what the user can do; None if the names are of no such format.
    """
    if name.startswith("ducklake-") and _DUCKLAKE_FILE.fullmatch(name):
        return "DuckLake", _EXPORT
    in_bucket, in_padded, in_numbered = _kinds_of_folder(folder)
    if in_bucket and _PAIMON_FILE.fullmatch(name):
        return "Paimon", _PAIMON
    if in_padded or (in_numbered and _ACID_FILE.fullmatch(name)):
        return "transactional Hive", _EXPORT
    return None


@lru_cache(maxsize=1024)
def _kinds_of_folder(folder: str) -> tuple[bool, bool, bool]:
    """Return three flags for a path, judged by the names of its folders.

    They say whether the path is in a bucket of a Paimon table, whether it is certainly in a transactional Hive table,
    and whether it may be in such a table. For example, `bucket-0` gives (True, False, False), and `base_0000001` gives
    (False, True, True). `base_20240101` may be a date, and gives (False, False, True).
    """
    parts = folder.split("/")
    patterns = (_PAIMON_BUCKET, _ACID_PADDED, _ACID_FOLDER)
    is_bucket, is_padded, is_numbered = (any(map(pattern.fullmatch, parts)) for pattern in patterns)
    return is_bucket, is_padded, is_numbered


def kind_of_file(name: str) -> tuple[str, str] | None:
    """Describe a file whose suffix shows that it cannot be read as a plain file.

    Args:
        name: name or path of the file.

    Returns:
        (description, advice for the user), such as ("an Excel file, which is not supported", advice). None for other
            suffixes.
    """
    suffix = name.rpartition(".")[2].lower()
    if suffix == "lance":
        return "a file of a Lance table", "name the table's folder, which contains `_versions`, as a table"
    what = _SUFFIXES.get(suffix)
    return None if what is None else (f"{what}, which is not supported", _EXPORT)
