"""Tables of very many tiny files as Parquet, Delta and Iceberg, to measure planning alone."""

from __future__ import annotations

import json
from datetime import date, timedelta
from pathlib import Path
from struct import pack

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DateType, DoubleType, LongType, NestedField, StringType

_FILES_PER_DAY = 100
_VARIANTS = 50
_FILES_PER_MANIFEST = 5_000


def make_files(folder: Path, files: int) -> str:
    """Write Parquet files of ten rows, a hundred in the folder of each day.

    Return the table's URI.
    """
    contents = [_parquet(number) for number in range(_VARIANTS)]
    for first in range(0, files, _FILES_PER_DAY):
        day = folder / f"day={date(2024, 1, 1) + timedelta(days=first // _FILES_PER_DAY)}"
        day.mkdir(parents=True)
        for number in range(first, min(files, first + _FILES_PER_DAY)):
            (day / f"part-{number:05}.parquet").write_bytes(contents[number % _VARIANTS])
    return str(folder)


def make_delta(folder: Path, files: int, checkpoint: bool = True) -> str:
    """Write a Delta table with a number of files of ten rows, a hundred in each commit.

    Return its URI.

    Each file has statistics in the log.

    Args:
        folder: The new folder of the table.
        files: The number of files.
        checkpoint: Whether to write a checkpoint of the last commit, so that no commit need be read.
    """
    contents = [_parquet(number) for number in range(_VARIANTS)]
    log = folder / "_delta_log"
    log.mkdir(parents=True)
    for version, first in enumerate(range(0, files, _FILES_PER_DAY)):
        day = str(date(2024, 1, 1) + timedelta(days=version))
        (folder / f"day={day}").mkdir()
        actions: list[dict[str, object]] = [{"commitInfo": {"timestamp": 1_700_000_000_000 + version}}]
        actions += _DELTA_START if version == 0 else []
        for number in range(first, min(files, first + _FILES_PER_DAY)):
            path = f"day={day}/part-{number:05}.parquet"
            data = contents[number % _VARIANTS]
            (folder / path).write_bytes(data)
            ids = (number % _VARIANTS * 10, number % _VARIANTS * 10 + 9)
            statistics = {
                "numRecords": 10,
                "minValues": {"id": ids[0], "text": f"text {ids[0]}", "price": ids[0] / 4, "shop": "shop 0"},
                "maxValues": {"id": ids[1], "text": f"text {ids[1]}", "price": ids[1] / 4, "shop": "shop 2"},
                "nullCount": {"id": 0, "text": 0, "price": 0, "shop": 0},
            }
            add = {"path": path, "partitionValues": {"day": day}, "size": len(data), "modificationTime": 1}
            actions.append({"add": {**add, "dataChange": True, "stats": json.dumps(statistics)}})
        (log / f"{version:020}.json").write_text("".join(json.dumps(action) + "\n" for action in actions))
    if checkpoint:
        DeltaTable(str(folder)).create_checkpoint()
    return str(folder)


def make_iceberg(folder: Path, files: int) -> str:
    """Write an Iceberg table with files of ten rows, partitioned by day.

    Return its URI. A manifest lists 5,000 files.

    Each file has counts and bounds of all columns in its manifest, as pyiceberg writes them.
    """
    table = new_iceberg(folder)
    for first in range(0, files, _FILES_PER_MANIFEST):
        append_iceberg(table, folder, range(first, min(files, first + _FILES_PER_MANIFEST)))
    return str(folder)


def new_iceberg(folder: Path) -> Table:
    """Create an Iceberg table without files, in a catalog in memory."""
    folder.mkdir(parents=True)
    catalog = InMemoryCatalog("benchmark", warehouse=str(folder.parent))
    catalog.create_namespace("benchmark")
    schema = Schema(
        NestedField(1, "id", LongType()),
        NestedField(2, "text", StringType()),
        NestedField(3, "price", DoubleType()),
        NestedField(4, "shop", StringType()),
        NestedField(5, "day", DateType()),
    )
    by_day = PartitionSpec(PartitionField(5, 1000, IdentityTransform(), "day"))
    return catalog.create_table("benchmark.t", schema, str(folder), by_day)


def append_iceberg(table: Table, folder: Path, numbers: range) -> None:
    """Write one data file for each number.

    Append all of them in one commit with one manifest.
    """
    contents = [_parquet(number) for number in range(_VARIANTS)]
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        for number in numbers:
            append.append_data_file(_iceberg_file(folder, number, contents[number % _VARIANTS], table.spec().spec_id))


def _iceberg_file(folder: Path, number: int, content: bytes, spec_id: int) -> DataFile:
    day = 19_723 + number // _FILES_PER_DAY
    path = folder / "data" / f"day={day}" / f"part-{number:05}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    ids = (number % _VARIANTS * 10, number % _VARIANTS * 10 + 9)
    lower, upper = (
        {1: pack("<q", id_), 2: f"text {id_}".encode(), 3: pack("<d", id_ / 4), 4: b"shop 0", 5: pack("<i", day)}
        for id_ in ids
    )
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=str(path),
        file_format=FileFormat.PARQUET,
        partition=Record(day),
        record_count=10,
        file_size_in_bytes=len(content),
        column_sizes=dict.fromkeys(range(1, 6), 80),
        value_counts=dict.fromkeys(range(1, 6), 10),
        null_value_counts=dict.fromkeys(range(1, 6), 0),
        nan_value_counts={3: 0},
        lower_bounds=lower,
        upper_bounds=upper,
        split_offsets=[4],
        sort_order_id=0,
        spec_id=spec_id,
    )


_DELTA_SCHEMA = {
    "type": "struct",
    "fields": [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in (("id", "long"), ("text", "string"), ("price", "double"), ("shop", "string"), ("day", "date"))
    ],
}
_DELTA_START: list[dict[str, object]] = [
    {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
    {
        "metaData": {
            "id": "f1b5d9f2-6c1f-4a53-9a0b-6e6a0c3a2a11",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps(_DELTA_SCHEMA),
            "partitionColumns": ["day"],
            "configuration": {},
        }
    },
]


def _parquet(number: int) -> bytes:
    ids = list(range(number * 10, number * 10 + 10))
    table = pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "text": [f"text {id_}" for id_ in ids],
            "price": [id_ / 4 for id_ in ids],
            "shop": pa.array([f"shop {id_ % 3}" for id_ in ids]).dictionary_encode(),
        }
    )
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return sink.getvalue().to_pybytes()
