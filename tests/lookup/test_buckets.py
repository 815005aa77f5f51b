"""Pruning by bucket partitions uses the hash of Iceberg's specification."""

from __future__ import annotations

import uuid
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.expressions.literals import to_literal
from metastore_assets.lookup.buckets import compute_buckets
from metastore_assets.metastore import open_table
from metastore_assets.pipeline.refresh import refresh
from metastore_assets.values.types import type_class


def no_spark() -> Any:
    raise AssertionError("nothing here is worth a session")


@pytest.mark.parametrize(
    ("type_", "arrow", "values"),
    [
        (IntegerType(), pa.int32(), [0, 1, -1, 34, 2**31 - 1]),
        (LongType(), pa.int64(), [0, 34, -(2**63), 2**63 - 1]),
        (DecimalType(9, 2), pa.decimal128(9, 2), [Decimal("14.20"), Decimal("-0.01"), Decimal("1.28"), Decimal(0)]),
        (DateType(), pa.date32(), [date(2017, 11, 16), date(1, 1, 1)]),
        (TimeType(), pa.time64("us"), [time(22, 31, 8), time(0, 0, 0, 1)]),
        (TimestampType(), pa.timestamp("us"), [datetime(2017, 11, 16, 22, 31, 8), datetime(1500, 1, 1)]),
        (TimestamptzType(), pa.timestamp("us", "UTC"), [datetime(2017, 11, 16, 14, 31, 8, 1, tzinfo=UTC)]),
        (StringType(), pa.string(), ["iceberg", "", "ä", "a longer text"]),
        (BinaryType(), pa.binary(), [b"\x00\x01\x02\x03", b"", b"\xff" * 9]),
        (UUIDType(), pa.uuid(), [uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7")]),
    ],
    ids=str,
)
def test_a_bucket_is_that_of_the_specification(type_: IcebergType, arrow: pa.DataType, values: list[Any]) -> None:
    bucket = BucketTransform(16).transform(type_)
    cls = type_class(arrow)
    for value in values:
        scalar = to_literal(value, cls, "it")
        argument = (
            value if not isinstance(type_, TimestampType | TimestamptzType | DateType | TimeType) else _ticks(scalar)
        )
        assert compute_buckets([scalar], cls, 16) == {str(bucket(argument))}, value


def _ticks(scalar: pa.Scalar) -> int:
    return int(scalar.value) // 1000 if pa.types.is_time(scalar.type) else int(scalar.value)


def test_fragments_of_other_buckets_are_pruned(tmp_path: Path) -> None:
    catalog = InMemoryCatalog("test", warehouse=str(tmp_path / "lake"))
    catalog.create_namespace("db")
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType()))
    spec = PartitionSpec(PartitionField(2, 1000, BucketTransform(8), "name_bucket"))
    table = catalog.create_table("db.t", schema, partition_spec=spec)
    names = [f"name {at}" for at in range(200)]
    table.append(pa.table({"id": range(201), "name": [*names, None]}))
    table_config = TableConfig(name="t", uri=table.location())
    config = MetastoreConfig(root=str(tmp_path / "root"), tables=[table_config], engine="auto")
    refresh(config, table_config, no_spark)
    lookup = open_table(config.root, "t")
    assert lookup.version.buckets == (("name_bucket", "2", 8),)
    for name in names[::70]:
        pruning = lookup.prune(f"name = '{name}'")
        assert pruning.fragment_count == 1
        assert {row.statistic for row in pruning.explanation} <= {"partition", "minimum", "maximum", "null_count"}
        (scan_task,) = table.scan(f"name = '{name}'").plan_files()
        assert pruning.paths == [scan_task.file.file_path.removeprefix("file://")]
        assert lookup.count(f"name = '{name}' and id >= 0", table=table_config).value == 1
    assert lookup.prune("name in ('name 1', 'name 2') and id > 5").fragment_count <= 2
    assert lookup.prune("name <> 'name 1'").fragment_count == 8
    assert lookup.count("name is null or name = 'name 7'", table=table_config).value == 2
