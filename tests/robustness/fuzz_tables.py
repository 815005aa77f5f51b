"""Small tables of every format, and the kinds of their files that the fuzz tests mutate."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import duckdb
import fastavro
import lance
import polars as pl
import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, write_deltalake

from metastore_assets.config import TableConfig
from tests.formats.delta.log_writer import commit, newest
from tests.formats.hudi.tables import HudiCopyOnWrite, HudiMergeOnRead
from tests.formats.iceberg.tables import IcebergDeletionVectors, IcebergEqualityDeletes, IcebergPositionDeletes
from tests.formats.readers.avro_container import recode
from tests.formats.table_writers import DAYS, DeltaDeletionVectors, Row, Table

ROWS: list[Row] = [(number, f"text {number}", DAYS[number % 2]) for number in range(12)]
RICH = pa.table(
    {
        "id": pa.array(range(40), pa.int64()),
        "s": [f"value {number % 7}" if number % 5 else None for number in range(40)],
        "f": [number / 8 for number in range(40)],
        "b": [number % 3 == 0 for number in range(40)],
        "n": pa.array([Decimal(number) / 4 for number in range(40)], pa.decimal128(12, 2)),
        "d": [date(2024, 1, 1 + number % 28) for number in range(40)],
        "t": pa.array(
            [datetime(2024, 1, 1, number % 24, tzinfo=UTC) for number in range(40)], pa.timestamp("us", "UTC")
        ),
        "l": [[number, None][: number % 3] for number in range(40)],
        "st": [{"x": number, "y": {"z": str(number)}} for number in range(40)],
    }
)
FLAT = RICH.select(["id", "s", "f", "b", "d"])


@dataclass(frozen=True)
class Target:
    """Files to mutate: those of one kind in one of TABLES."""

    table: str
    files: str
    """A glob pattern of the files, relative to the folder of the table."""
    is_frugal: bool = True
    """Whether the reader checks lengths before it allocates memory."""
    sealed: bool = False
    """Whether a mutation of the file is always noticed or changes nothing, as with a checksum of the whole file."""


def _delta(folder: Path) -> None:
    for number, day in enumerate(("a", "b", "a")):
        rows = RICH.take(list(range(number * 10, number * 10 + 10))).append_column("day", pa.array([day] * 10))
        write_deltalake(str(folder), rows, mode="append", partition_by=["day"])
        if number == 1:
            DeltaTable(str(folder)).create_checkpoint()
    custom_properties = CommitProperties(custom_metadata={"by": "a test"})
    DeltaTable(str(folder)).delete("id < 3", commit_properties=custom_properties)
    (folder / "_delta_log" / f"{3:020}.crc").write_text('{"tableSizeBytes": 1, "numFiles": 3}')


def _delta_v2(folder: Path) -> None:
    """Write a Delta table with a JSON checkpoint, which lists the data files in a sidecar file."""
    write_deltalake(str(folder), FLAT.slice(0, 10))
    write_deltalake(str(folder), FLAT.slice(10, 10), mode="append")
    log = folder / "_delta_log"
    DeltaTable(str(folder)).create_checkpoint()
    classic = next(log.glob("*.checkpoint.parquet"))
    (log / "_sidecars").mkdir()
    sidecar = log / "_sidecars" / "3a0d65cd-4056-49b8-937b-95f9e3ee90e5.parquet"
    classic.rename(sidecar)
    pointer = {"path": sidecar.name, "sizeInBytes": sidecar.stat().st_size, "modificationTime": 1}
    head = [{"protocol": newest(folder, "protocol")}, {"metaData": newest(folder, "metaData")}]
    actions = [{"checkpointMetadata": {"version": 1}}, *head, {"sidecar": pointer}]
    target = log / f"{1:020}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json"
    target.write_text("\n".join(json.dumps(action) for action in actions))
    for number in (0, 1):
        (log / f"{number:020}.json").unlink()
    (log / "_last_checkpoint").unlink()
    commit(folder, {"commitInfo": {"timestamp": 1_700_000_000_000}})


def _with_deletes(kind: type[Table]) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        table = kind(folder)
        table.append(ROWS)
        table.delete([0, 1, 5])
        table.delete([2])

    return write


def _iceberg(folder: Path) -> None:
    """Write a table with pyiceberg.

    The reader gets the folder of the table, not the catalog.
    """
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.transforms import IdentityTransform

    folder.mkdir()
    with SqlCatalog("c", uri="sqlite:///:memory:", warehouse=folder.parent.as_uri()) as catalog:
        catalog.create_namespace("n")
        rows = RICH.append_column("day", pa.array(["a", "b"] * 20))
        table = catalog.create_table("n.t", rows.schema, location=folder.as_uri())
        with table.update_spec() as update:
            update.add_field("day", IdentityTransform(), "day")
        table.append(rows.slice(0, 20))
        table.append(rows.slice(20, 20))
        table.delete("id < 4")


def _recoded(codec: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        _with_deletes(IcebergPositionDeletes)(folder)
        for path in (folder / "metadata").glob("*.avro"):
            recode(path, codec)

    return write


def _packed_metadata(folder: Path) -> None:
    _with_deletes(IcebergPositionDeletes)(folder)
    newest_ = sorted((folder / "metadata").glob("*.json"), key=lambda path: int(path.name.split(".")[0][1:]))[-1]
    newest_.with_name(newest_.name.replace(".metadata", ".gz.metadata")).write_bytes(
        gzip.compress(newest_.read_bytes())
    )
    for path in (folder / "metadata").glob("v*.metadata.json"):
        if ".gz." not in path.name:
            path.unlink()


def _files(name: str, write: Callable[[Path, pa.Table], object], rows: pa.Table = RICH) -> Callable[[Path], None]:
    """Return a writer of a folder of two files, each with 20 of the rows.

    Args:
        name: The name of the files, with `{}` for their number.
        write: A function that writes one file.
        rows: The rows of both files.
    """

    def write_all(folder: Path) -> None:
        folder.mkdir()
        for number in range(2):
            write(folder / name.format(number), rows.take(list(range(number * 20, number * 20 + 20))))

    return write_all


def _parquet(**options: object) -> Callable[[Path, pa.Table], object]:
    return lambda path, rows: pq.write_table(rows, path, **options)


def _avro(codec: str) -> Callable[[Path, pa.Table], object]:
    def write(path: Path, rows: pa.Table) -> None:
        fields = [{"name": name, "type": ["null", type_]} for name, type_ in _AVRO_TYPES.items()]
        schema = fastavro.parse_schema({"type": "record", "name": "r", "fields": fields})
        with path.open("wb") as file:
            fastavro.writer(file, schema, rows.select(list(_AVRO_TYPES)).to_pylist(), codec=codec, sync_interval=200)

    return write


_AVRO_TYPES: Mapping[str, object] = {
    "id": "long",
    "s": "string",
    "f": "double",
    "b": "boolean",
    "d": {"type": "int", "logicalType": "date"},
    "l": {"type": "array", "items": ["null", "long"]},
    "n": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2},
}


def _by_duckdb(options: str) -> Callable[[Path, pa.Table], object]:
    def write(path: Path, rows: pa.Table) -> None:
        with duckdb.connect() as connection:
            connection.register("rows", rows)
            connection.execute(f"COPY rows TO '{path}' ({options})")

    return write


def _lance(file_version: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        for number in range(2):
            rows = RICH.take(list(range(number * 20, number * 20 + 20)))
            lance.write_dataset(rows, folder, mode="append", data_storage_version=file_version)
        lance.dataset(folder).delete("id in (1, 3, 25)")
        lance.dataset(folder).tags.create("release", 2)

    return write


TABLES: Mapping[str, Callable[[Path], None]] = {
    "delta": _delta,
    "delta v2": _delta_v2,
    "delta vectors": _with_deletes(DeltaDeletionVectors),
    "iceberg": _iceberg,
    "iceberg positions": _with_deletes(IcebergPositionDeletes),
    "iceberg equality": _with_deletes(IcebergEqualityDeletes),
    "iceberg vectors": _with_deletes(IcebergDeletionVectors),
    "iceberg packed": _packed_metadata,
    **{f"iceberg {codec}": _recoded(codec) for codec in ("null", "snappy", "zstandard", "bzip2", "xz", "lz4")},
    "hudi": _with_deletes(HudiCopyOnWrite),
    "hudi logs": _with_deletes(HudiMergeOnRead),
    **{f"lance {version}": _lance(version) for version in ("2.0", "2.1", "2.2")},
    "parquet": _files("{}.parquet", _parquet(compression="snappy")),
    "parquet plain": _files("{}.parquet", _parquet(compression="none", use_dictionary=False, store_schema=False)),
    "parquet sums": _files("{}.parquet", _parquet(write_page_checksum=True, data_page_version="2.0")),
    "parquet polars": _files("{}.parquet", lambda path, rows: pl.from_arrow(rows).write_parquet(path)),  # type: ignore[union-attr]
    "parquet duckdb": _files("{}.parquet", _by_duckdb("FORMAT parquet")),
    **{
        f"orc {codec}": _files("{}.orc", lambda path, rows, codec=codec: orc.write_table(rows, path, compression=codec))
        for codec in ("uncompressed", "zlib", "zstd")
    },
    **{f"avro {codec}": _files("{}.avro", _avro(codec)) for codec in ("null", "deflate", "snappy", "zstandard", "xz")},
    "csv": _files("{}.csv", _by_duckdb("FORMAT csv, HEADER true"), FLAT),
    "csv gzip": _files("{}.csv.gz", _by_duckdb("FORMAT csv, HEADER true, COMPRESSION gzip"), FLAT),
    "csv zstd": _files("{}.csv.zst", _by_duckdb("FORMAT csv, HEADER true, COMPRESSION zstd"), FLAT),
    "json": _files("{}.json", _by_duckdb("FORMAT json"), FLAT),
    "json gzip": _files("{}.json.gz", _by_duckdb("FORMAT json, COMPRESSION gzip"), FLAT),
}

TARGETS: Mapping[str, Target] = {
    "delta commit": Target("delta", "_delta_log/*.json"),
    "delta checkpoint": Target("delta", "_delta_log/*.checkpoint.parquet"),
    "delta hint": Target("delta", "_delta_log/_last_checkpoint", sealed=True),
    "delta crc": Target("delta", "_delta_log/*.crc", sealed=True),
    "delta data": Target("delta", "day=*/*.parquet"),
    "delta v2 checkpoint": Target("delta v2", "_delta_log/*.checkpoint.*.json"),
    "delta sidecar": Target("delta v2", "_delta_log/_sidecars/*.parquet"),
    "delta vector": Target("delta vectors", "deletion_vector_*.bin", sealed=True),
    "delta vector commit": Target("delta vectors", "_delta_log/*.json"),
    "iceberg metadata": Target("iceberg", "metadata/*.metadata.json"),
    "iceberg packed metadata": Target("iceberg packed", "metadata/*.metadata.json"),
    "iceberg manifest list": Target("iceberg", "metadata/snap-*.avro"),
    "iceberg manifest": Target("iceberg", "metadata/*-m*.avro"),
    "iceberg data": Target("iceberg", "data/*/*.parquet"),
    **{
        f"iceberg {codec} manifest": Target(f"iceberg {codec}", "metadata/*.avro")
        for codec in ("null", "snappy", "zstandard", "bzip2", "xz", "lz4")
    },
    "iceberg positions": Target("iceberg positions", "data/pos-*"),
    "iceberg equality": Target("iceberg equality", "data/eq-*"),
    "iceberg vector": Target("iceberg vectors", "data/*.puffin", sealed=True),
    "hudi properties": Target("hudi", ".hoodie/hoodie.properties"),
    "hudi commit": Target("hudi", ".hoodie/*.commit"),
    "hudi base": Target("hudi", "day=*/*.parquet"),
    "hudi timeline": Target("hudi logs", ".hoodie/timeline/*commit"),
    "hudi log": Target("hudi logs", "day=*/.*.log.*"),
    "hudi base with logs": Target("hudi logs", "day=*/*.parquet"),
    "lance manifest": Target("lance 2.1", "_versions/*.manifest"),
    "lance deletions": Target("lance 2.1", "_deletions/*"),
    **{
        f"lance {version} data": Target(f"lance {version}", "data/*.lance", is_frugal=False)
        for version in ("2.0", "2.1", "2.2")
    },
    **{name: Target(name, "*.*") for name in TABLES if name.startswith(("parquet", "orc", "avro", "csv", "json"))},
}


def built(folder: Path, name: str) -> TableConfig:
    """Write one of TABLES into a folder, replacing its content.

    Returns the configuration of the table.
    """
    shutil.rmtree(folder, ignore_errors=True)
    TABLES[name](folder)
    return TableConfig(name="t", uri=str(folder))
