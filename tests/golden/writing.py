"""Golden roots: a small Metastore root for each table format, as the current code writes it.

A root is a folder with stored statistics. `make golden` stores golden roots in an archive
`roots/format_<FORMAT_VERSION>.tar.xz`. There is one archive for each version of the file format, with a root for each
table format. The tests read all archives, and compare the files in the newest archive with those that the code writes
now.

A profile is the statistics of the columns in a set of rows, such as a file, a partition or the table.
"""

from __future__ import annotations

import io
import json
import lzma
import re
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import yaml

from metastore_assets.store.version_document import FORMAT_VERSION
from tests.cli.run_command import run
from tests.formats.hudi.tables import HudiMergeOnRead
from tests.formats.iceberg.tables import IcebergDeletionVectors
from tests.formats.lance.tables import LanceTable
from tests.formats.table_writers import DeltaCopyOnWrite, ParquetFiles, Row, Table

ROOTS = Path(__file__).with_name("roots")
TABLES: Mapping[str, Callable[[Path], Table]] = {
    "delta": DeltaCopyOnWrite,
    "files": ParquetFiles,
    "hudi": HudiMergeOnRead,
    "iceberg": IcebergDeletionVectors,
    "lance": LanceTable,
}
FIRST_ARCHIVES = {"lance": 15}
"""By table format, the first archive that has a root of it. Table formats that are not listed are in all archives."""
COLUMNS: Mapping[str, Any] = {
    "id": {"frequencies": "repeated", "algorithm": "fingerprints", "value_filter": "on"},
    "text": {"by_partition": "on", "ranks": "on"},
}
"""Policies that need each kind of stored file."""
_PROFILES = ("fragments", "nodes", "partitions", "table", "value_counts")
_ID = re.compile(r"[0-9a-f]{32,64}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{12,}")
_ID_TEXT = re.compile(f"'({_ID.pattern})'")


def rows_of(ids: range, day: str) -> list[Row]:
    """Return one row per id; a half of the texts is Oslo, a quarter each Bari and Lyon."""
    return [(key, ("Bari", "Lyon", "Oslo", "Oslo")[key % 4], day) for key in ids]


def write_root(kind: str, folder: Path) -> Path:
    """Write a table of the format `kind` and refresh its statistics.

    Return the root.

    The root of the Delta table has three versions: of the table's first state, of its last state, and a compacted one.
    Roots of tables in other formats have only one version, of the last state.
    """
    config = folder / "metastore.yaml"
    table = {"name": "t", "uri": str(folder / "table"), "columns": dict(COLUMNS)}
    config.write_text(yaml.safe_dump({"root": str(folder / "root"), "engine": "auto", "tables": [table]}))
    source = TABLES[kind](folder / "table")
    source.append(rows_of(range(30), "2024-01-01") + rows_of(range(30, 60), "2024-01-02"))
    if kind == "delta":
        _metastore(config, "refresh", "t")
    source.delete(range(10))
    source.append(rows_of(range(60, 70), "2024-01-02"))
    _metastore(config, "refresh", "t")
    if kind == "delta":
        _metastore(config, "compact", "t")
    return folder / "root"


def write_archive() -> Path:
    """Write roots of all table formats to the archive of the current file format.

    Return its path.
    """
    ROOTS.mkdir(exist_ok=True)
    archive = ROOTS / f"format_{FORMAT_VERSION}.tar.xz"
    tarred = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder, tarfile.open(fileobj=tarred, mode="w") as tar:
        for kind in TABLES:
            tar.add(write_root(kind, Path(folder)), arcname=kind)
            shutil.rmtree(folder)
            Path(folder).mkdir()
    archive.write_bytes(lzma.compress(tarred.getvalue(), preset=9 | lzma.PRESET_EXTREME))
    return archive


def read_archive(archive: Path, folder: Path) -> Path:
    """Extract an archive into a folder, and return this folder.

    Then the folder has a subfolder with the root of each table format.
    """
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    return folder


def describe_files(root: Path) -> dict[str, Any]:
    """Return the structure of the stored files by path and field.

    Ids in paths are replaced by `*`.

    For Parquet this is the type of each column and the keys of the metadata; for JSON the keys and the types of values.
    """
    described: dict[str, Any] = {}
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        name = without_ids(path.relative_to(root).as_posix())
        for field, value in _fields(path):
            described.setdefault(f"{name}: {field}", set()).add(value)
    return {name: sorted(values) for name, values in described.items()}


def read_values(root: Path) -> dict[str, list[str]]:
    """Return the stored values of profiles and value counts, by path and column.

    Ids are replaced by `*`. Everything else depends only on the table's rows."""
    values: dict[str, list[str]] = {}
    for path in sorted(root.rglob("*.parquet")):
        if path.parent.name in _PROFILES:
            table = pq.read_table(path)
            for column, array in zip(table.column_names, table.columns, strict=True):
                name = f"{without_ids(path.relative_to(root).as_posix())}: {column}"
                values.setdefault(name, []).append(_ID_TEXT.sub("'*'", str(array.to_pylist())))
    return {name: sorted(texts) for name, texts in values.items()}


def without_ids(text: str) -> str:
    """Return a path with `*` in place of random ids and digests."""
    return _ID.sub("*", text)


def _fields(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the structure of a stored file as pairs of names and types.

    For a Parquet file these are (column, type) and (`metadata`, key); for a JSON file, (field, type) at any depth. For
    any other file, the only pair is ("", `file`).
    """
    if path.suffix == ".parquet":
        file = pq.ParquetFile(path)
        for index in range(len(file.schema)):
            column = file.schema.column(index)
            yield column.path, f"{column.physical_type} {column.logical_type}"
        for key in file.schema_arrow.metadata or {}:
            yield "metadata", without_ids(key.decode())
    elif path.suffix == ".json":
        text = path.read_text(encoding="utf-8")
        # The log of the history has a document per line.
        for document in text.splitlines() if "_delta_log" in path.parts else [text]:
            yield from _json_fields(json.loads(document), "")
    else:
        yield "", "file"


def _json_fields(value: Any, prefix: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _json_fields(item, f"{prefix}.{without_ids(key)}")
    elif isinstance(value, list):
        for item in value:
            yield from _json_fields(item, f"{prefix}[]")
    else:
        yield prefix, type(value).__name__


def _metastore(config: Path, *arguments: str) -> None:
    result = run(*arguments, config=config)
    if result.exit_code:
        raise RuntimeError(f"metastore {' '.join(arguments)}: {result.output}")


if __name__ == "__main__":
    written = write_archive()
    sys.stdout.write(f"{written}: {written.stat().st_size:,} bytes\n")
