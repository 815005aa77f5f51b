"""Cases: Iceberg tables that readers easily get wrong, each with its expected rows or error."""

from __future__ import annotations

import shutil
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform, TruncateTransform, VoidTransform
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimeType,
)

from scripts.adversarial.case import Written, case
from scripts.adversarial.delta_tables import COLUMNS


def created(folder: Path, schema: Schema, spec: PartitionSpec | None = None, **properties: str) -> Table:
    folder.mkdir(parents=True, exist_ok=True)
    catalog = SqlCatalog("c", uri="sqlite://", warehouse=str(folder))
    catalog.create_namespace("n")
    location = str(folder / "t")
    return catalog.create_table("n.t", schema, location, spec or PartitionSpec(), properties=properties)


PLAIN = Schema(NestedField(1, "id", LongType()), NestedField(2, "s", StringType()), NestedField(3, "x", DoubleType()))


def _codec(codec: str) -> None:
    @case(f"iceberg/manifests-{codec}", "pyiceberg", f"manifests in {codec}, metadata in gzip")
    def _(folder: Path) -> Written:
        properties: dict[str, Any] = {"write.avro.compression-codec": codec, "write.metadata.compression-codec": "gzip"}
        table = created(folder, PLAIN, **properties)
        table.append(pa.table(COLUMNS))
        table.append(pa.table(COLUMNS))
        table.delete("id = 2")
        twice = {name: [v for n, v in enumerate(values) if n != 1] * 2 for name, values in COLUMNS.items()}
        return Written(twice, "t")


for _one in ("zstd", "snappy", "gzip", "null", "bzip2"):
    _codec(_one)


@case(
    "iceberg/transforms",
    "pyiceberg",
    "partitions by bucket, truncated text, day and nothing, with nulls",
)
def _(folder: Path) -> Written:
    schema = Schema(
        NestedField(1, "id", LongType()),
        NestedField(2, "s", StringType()),
        NestedField(3, "t", TimestampType()),
        NestedField(4, "d", DecimalType(9, 2)),
    )
    spec = PartitionSpec(
        PartitionField(1, 1000, BucketTransform(4), "id_bucket"),
        PartitionField(2, 1001, TruncateTransform(2), "s_start"),
        PartitionField(3, 1002, DayTransform(), "t_day"),
        PartitionField(4, 1003, VoidTransform(), "d_void"),
    )
    columns: dict[str, list[Any]] = {
        "id": [1, 2, 3, 4],
        "s": ["élan", "ab", None, "a"],
        "t": [datetime(1969, 12, 31, 23), None, datetime(2024, 1, 31), datetime(1, 1, 1)],
        "d": [Decimal("1.10"), None, Decimal("-0.01"), Decimal("9999999.99")],
    }
    created(folder, schema, spec).append(pa.table(columns, schema.as_arrow()))
    return Written(columns, "t")


@case("iceberg/evolved", "pyiceberg", "columns renamed, moved, widened, dropped and added again under the old name")
def _(folder: Path) -> Written:
    schema = Schema(
        NestedField(1, "i", IntegerType()), NestedField(2, "f", FloatType()), NestedField(3, "gone", StringType())
    )
    table = created(folder, schema)
    table.append(pa.table({"i": pa.array([1], pa.int32()), "f": pa.array([1.5], pa.float32()), "gone": ["x"]}))
    with table.update_schema() as update:
        update.update_column("i", LongType())
        update.update_column("f", DoubleType())
        update.delete_column("gone")
    with table.update_schema() as update:
        update.rename_column("i", "number")
        update.add_column("gone", DateType())
        update.move_first("gone")
    with table.update_spec() as update_spec:
        update_spec.add_field("number", IdentityTransform(), "number")
    table.append(pa.table({"gone": [date(2024, 1, 31)], "number": [2**40], "f": [2.5]}))
    return Written({"gone": [None, date(2024, 1, 31)], "number": [1, 2**40], "f": [1.5, 2.5]}, "t")


@case("iceberg/added-files", "pyiceberg", "files without field ids that were added under a name mapping")
def _(folder: Path) -> Written:
    table = created(folder, PLAIN)
    pq.write_table(pa.table(COLUMNS), folder / "outside.parquet")
    table.add_files([str(folder / "outside.parquet")])
    return Written(COLUMNS, "t")


@case("iceberg/moved", "pyiceberg", "a table whose folder was renamed")
def _(folder: Path) -> Written:
    created(folder, PLAIN).append(pa.table(COLUMNS))
    shutil.move(folder / "t", folder / "moved")
    return Written(COLUMNS, "moved")


@case("iceberg/times", "pyiceberg", "times of day to the microsecond, in two files")
def _(folder: Path) -> Written:
    table = created(folder, Schema(NestedField(1, "t", TimeType())))
    for value in (time(0, 0, 0, 1), time(23, 59, 59, 999999)):
        table.append(pa.table({"t": [value]}))
    return Written({"t": ["00:00:00.000001", "23:59:59.999999"]}, "t")


@case("iceberg/metadata-folders", "pyiceberg", "folders with statistics beside the metadata")
def _(folder: Path) -> Written:
    created(folder, PLAIN).append(pa.table(COLUMNS))
    (folder / "t" / "metadata" / "0stats").mkdir()
    (folder / "t" / "metadata" / "0stats" / "a.puffin").write_bytes(b"PFA1")
    return Written(COLUMNS, "t")


@case("iceberg/tagged", "pyiceberg", "the state of a tag")
def _(folder: Path) -> Written:
    table = created(folder, PLAIN)
    table.append(pa.table(COLUMNS))
    snapshot = table.current_snapshot()
    assert snapshot is not None
    table.manage_snapshots().create_tag(snapshot.snapshot_id, "first").commit()
    table.overwrite(pa.table({"id": [9], "s": ["q"], "x": [9.0]}))
    return Written(COLUMNS, "t", ("--at", "first"))


@case("iceberg/upserts", "pyiceberg", "rows replaced by an upsert, and a partition overwritten")
def _(folder: Path) -> Written:
    schema = Schema(
        NestedField(1, "id", LongType(), required=True), NestedField(2, "s", StringType()), identifier_field_ids=[1]
    )
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "s"))
    table = created(folder, schema, spec)
    arrow = schema.as_arrow()
    table.append(pa.table({"id": [1, 2, 3], "s": ["a", "b", "c"]}, arrow))
    table.upsert(pa.table({"id": [2, 4], "s": ["B", "d"]}, arrow))
    table.dynamic_partition_overwrite(pa.table({"id": [7], "s": ["a"]}, arrow))
    return Written({"id": [7, 2, 3, 4], "s": ["a", "B", "c", "d"]}, "t")


@case("iceberg/typed-partitions", "pyiceberg", "identity partitions by every kind of value")
def _(folder: Path) -> Written:
    schema = Schema(
        NestedField(1, "id", LongType()),
        NestedField(2, "d", DateType()),
        NestedField(3, "t", TimestampType()),
        NestedField(4, "n", DecimalType(9, 2)),
        NestedField(5, "b", BooleanType()),
        NestedField(6, "m", TimeType()),
    )
    spec = PartitionSpec(*(PartitionField(i, 998 + i, IdentityTransform(), f"p{i}") for i in range(2, 7)))
    columns: dict[str, list[Any]] = {
        "id": [1, 2],
        "d": [date(1969, 12, 31), None],
        "t": [datetime(2024, 1, 31, 12, 0, 0, 123456), None],
        "n": [Decimal("-0.01"), None],
        "b": [False, None],
        "m": [time(0, 0, 0, 1), None],
    }
    created(folder, schema, spec).append(pa.table(columns, schema.as_arrow()))
    return Written(columns, "t")


@case("iceberg/no-snapshot", "pyiceberg", "a table without any commit")
def _(folder: Path) -> Written:
    created(folder, PLAIN)
    return Written({name: [] for name in COLUMNS}, "t")


@case("iceberg/all-deleted", "pyiceberg", "a table whose rows were all deleted")
def _(folder: Path) -> Written:
    table = created(folder, PLAIN)
    table.append(pa.table(COLUMNS))
    table.delete()
    return Written({name: [] for name in COLUMNS}, "t")


@case("iceberg/nested", "pyiceberg", "fields of structs and of list elements that were added and renamed")
def _(folder: Path) -> Written:
    schema = Schema(
        NestedField(1, "id", LongType()),
        NestedField(2, "s", StructType(NestedField(3, "a", LongType()), NestedField(4, "b", StringType()))),
        NestedField(5, "l", ListType(6, StructType(NestedField(7, "x", LongType())), element_required=False)),
    )
    table = created(folder, schema)
    table.append(pa.table({"id": [1], "s": [{"a": 1, "b": "x"}], "l": [[{"x": 1}]]}, table.schema().as_arrow()))
    with table.update_schema() as update:
        update.rename_column("s.a", "c")
        update.add_column(("s", "d"), DoubleType())
        update.add_column(("l", "y"), StringType())
    after = table.schema().as_arrow()
    rows = {"id": [2], "s": [{"c": 2, "b": None, "d": 2.5}], "l": [[{"x": None, "y": "n"}]]}
    table.append(pa.table(rows, after))
    expected = {"id": [1, 2], "s": [{}, {}], "s.c": [1, 2], "s.b": ["x", None], "s.d": [None, 2.5], "l": [[], []]}
    return Written(expected, "t")


@case("iceberg/object-storage", "pyiceberg", "data files under hashed folders, metadata under a folder of another name")
def _(folder: Path) -> Written:
    properties: dict[str, Any] = {"write.object-storage.enabled": "true"}
    created(folder, PLAIN, **properties).append(pa.table(COLUMNS))
    return Written(COLUMNS, "t")
