"""Tables written by pyiceberg, deltalake and Polars are read as these libraries read them.

The cases use different options and operations of these libraries. The tests take a minute and run only with `long`.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder, TableFeatures, WriterProperties, write_deltalake
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, IdentityTransform, MonthTransform, TruncateTransform, YearTransform
from pyiceberg.types import DecimalType, DoubleType, IntegerType, LongType, StringType

from metastore_assets.config import TableConfig
from metastore_assets.formats import open_table_format
from tests.formats.oracle import read_columns

pytestmark = pytest.mark.long


def _rows(count: int = 20, start: int = 0) -> pa.Table:
    numbers = range(start, start + count)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "s": pa.array([f"s{number % 7}" if number % 5 else None for number in numbers], pa.string()),
            "d": pa.array([18_262 + number % 40 - 20 for number in numbers], pa.int32()).cast(pa.date32()),
            "x": pa.array([math.nan if number % 6 == 0 else number / 3 for number in numbers], pa.float64()),
        },
    )


_EVERYTHING: list[tuple[str, pa.DataType, Any, Any]] = [
    ("b", pa.bool_(), True, False),
    ("i", pa.int32(), -1, 5),
    ("l", pa.int64(), 2**60, -(2**60)),
    ("f", pa.float32(), 0.5, math.nan),
    ("d", pa.float64(), math.inf, -0.0),
    ("dec", pa.decimal128(20, 5), Decimal("1.50000"), Decimal("-9.00001")),
    ("date", pa.date32(), dt.date(1, 1, 1), dt.date(9999, 12, 31)),
    ("ts", pa.timestamp("us"), dt.datetime(1969, 12, 31, 1), dt.datetime(2024, 2, 29)),
    ("tz", pa.timestamp("us", "UTC"), dt.datetime(9999, 1, 1, tzinfo=dt.UTC), dt.datetime(1, 1, 1, tzinfo=dt.UTC)),
    ("s", pa.string(), "", "é😀" * 30),
    ("bin", pa.binary(), b"", b"\xff" * 40),
    ("st", pa.struct([("p", pa.int32()), ("q", pa.string())]), {"p": 1, "q": "a"}, {"p": None, "q": None}),
    ("li", pa.list_(pa.struct([("p", pa.int32())])), [{"p": 1}, None], []),
    ("ma", pa.map_(pa.string(), pa.list_(pa.timestamp("us"))), [("k", [dt.datetime(2020, 1, 1)])], []),
]
_ICEBERG_ONLY: list[tuple[str, pa.DataType, Any, Any]] = [
    ("t", pa.time64("us"), dt.time(1, 2, 3, 4), dt.time(23, 59, 59, 999999)),
    ("fx", pa.binary(3), b"abc", b"\0\xff\0"),
]


def _everything(columns: list[tuple[str, pa.DataType, Any, Any]]) -> pa.Table:
    return pa.table({name: pa.array([first, None, second], type_) for name, type_, first, second in columns})


def _comparable(value: Any) -> Any:
    """Return a value in a form that `==` can compare: NaN equals NaN, and zones of times do not matter."""
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, UUID):
        return value.bytes
    if isinstance(value, dict):
        return [(name, _comparable(item)) for name, item in value.items()]
    if isinstance(value, list | tuple):
        return [_comparable(item) for item in value]
    return value.astimezone(dt.UTC) if isinstance(value, dt.datetime) and value.tzinfo else value


def _sorted_rows(columns: Mapping[str, list[Any]]) -> list[str]:
    return sorted(repr([_comparable(value) for value in row]) for row in zip(*columns.values(), strict=True))


def _check(uri: str, expected: pa.Table, at: str | None = None) -> None:
    table = open_table_format(TableConfig(name="t", uri=uri.removeprefix("file://"), at=at))
    snapshot = table.snapshot()
    columns = read_columns(snapshot)
    assert set(columns) == set(expected.column_names)
    assert _sorted_rows(columns) == _sorted_rows({name: expected[name].to_pylist() for name in columns})
    for field in snapshot.schema:
        if not pa.types.is_nested(field.type):
            table.bounds(snapshot, field.name)


def _appends(table: Table) -> None:
    for number in range(5):
        table.append(_rows(6, 10 * number))
    table.delete("id == 3 or s = 's2'")


def _evolved(table: Table) -> None:
    with table.update_schema() as update:
        update.update_column("i", LongType()).update_column("f", DoubleType()).update_column("dec", DecimalType(30, 5))
        update.rename_column("s", "text").delete_column("bin").add_column("new", StringType()).delete_column("t")
        update.add_column(("st", "r"), DoubleType()).rename_column("st.q", "qq").update_column("st.p", LongType())
    table.append(pa.Table.from_pylist([{"i": 2**40, "new": "n", "text": "z"}], table.schema().as_arrow()))
    with table.update_schema() as update:
        update.move_first("new").move_after("text", "b").move_first("st.r").add_column("t", StringType())
        update.add_column(("li", "zz"), IntegerType()).rename_column("li.p", "pp")
    table.append(pa.Table.from_pylist([{"t": "again", "li": [{"pp": 4, "zz": 5}]}], table.schema().as_arrow()))


def _partitioned(table: Table) -> None:
    with table.update_spec() as update:
        update.add_field("s", IdentityTransform(), "s_").add_field("d", MonthTransform(), "month")
    table.append(_rows(10, 100))
    with table.update_spec() as update:
        update.remove_field("s_").add_field("id", BucketTransform(3), "b").rename_field("month", "m")
    table.append(_rows(10, 200))
    with table.update_spec() as update:
        update.remove_field("b").remove_field("m").add_field("d", IdentityTransform(), "x_")
    table.append(_rows(5, 300))
    table.dynamic_partition_overwrite(_rows(1, 301))
    with table.update_spec() as update:
        update.remove_field("x_").add_field("d", YearTransform(), "y").add_field("id", TruncateTransform(10), "ten")
    table.append(_rows(5, 400))
    table.delete("id in (1, 101, 201, 301)")


def _partitioned_once(table: Table) -> None:
    """Append rows before and after the removal of a partition field, and delete rows of both appends.

    In format version 1, a removed partition field remains in the spec with the transform `void`.
    """
    with table.update_spec() as update:
        update.add_field("s", IdentityTransform(), "s_").add_field("d", MonthTransform(), "month")
    table.append(_rows(10, 100))
    with table.update_spec() as update:
        update.remove_field("s_")
    table.append(_rows(10, 200))
    table.delete("id in (101, 201)")


def _branched(table: Table) -> None:
    table.append(_rows(3))
    head = table.current_snapshot().snapshot_id  # type: ignore[union-attr]
    table.manage_snapshots().create_branch(head, "side").create_tag(head, "v1").commit()
    table.append(_rows(2, 10))
    table.append(_rows(4, 20), branch="side")
    table.delete("id = 0", branch="side")


def _transaction(table: Table) -> None:
    with table.transaction() as transaction:
        transaction.append(_rows(3))
        transaction.delete("id = 1")
        transaction.append(_rows(2, 30))
        with transaction.update_schema() as update:
            update.add_column("z", IntegerType())
    table.append(_rows(1, 77).append_column("z", pa.array([5], pa.int32())))


def _added_files(table: Table) -> None:
    folder = Path(table.location().removeprefix("file://")).parent / "elsewhere é"
    folder.mkdir()
    pq.write_table(_rows(5), folder / "a.parquet")
    pq.write_table(_rows(4, 50).select(["x", "s", "id", "d"]), folder / "b c.parquet")
    table.add_files([str(folder / "a.parquet"), str(folder / "b c.parquet")])
    table.append(_rows(2, 90))
    with table.update_schema() as update:
        update.rename_column("s", "text")


def _upserted(table: Table) -> None:
    table.append(_rows(10))
    table.upsert(_rows(8, 5).set_column(1, "s", pa.array(["new"] * 8)), join_cols=["id"])
    table.overwrite(_rows(3, 50), "id >= 11")


def _expired(table: Table) -> None:
    _appends(table)
    table.maintenance.expire_snapshots().by_id(table.snapshots()[0].snapshot_id).commit()


_PROPERTIES: list[dict[str, str]] = [
    *({"write.avro.compression-codec": codec} for codec in ("zstd", "gzip", "bzip2", "null")),
    *({"write.parquet.compression-codec": codec} for codec in ("zstd", "snappy", "gzip", "lz4", "brotli")),
    *({"write.metadata.metrics.default": mode} for mode in ("none", "counts", "truncate(2)", "full")),
    {"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "2"},
    {"write.object-storage.enabled": "true"},
    {"write.parquet.row-group-limit": "4", "write.parquet.page-size-bytes": "64"},
    {"write.target-file-size-bytes": "64"},
    {"write.metadata.delete-after-commit.enabled": "true", "write.metadata.previous-versions-max": "2"},
    {"schema.name-mapping.default": "[]"},
]
_ICEBERG: dict[str, tuple[Callable[[Table], object], dict[str, str], bool]] = {
    **{f"{key}={value}": (_appends, {key: value}, False) for one in _PROPERTIES for key, value in [*one.items()][:1]},
    "evolved": (_evolved, {}, True),
    "partitioned": (_partitioned, {}, False),
    "partitioned v1": (_partitioned_once, {"format-version": "1"}, False),
    "branched": (_branched, {}, False),
    "transaction": (_transaction, {}, False),
    "added files": (_added_files, {}, False),
    "upserted": (_upserted, {}, False),
    "expired": (_expired, {}, False),
    "deleted": (lambda table: (table.append(_rows(5)), table.delete()), {}, False),
    "no rows": (lambda table: table.append(_rows(0)), {}, False),
    "never written": (lambda table: None, {}, False),
}


@pytest.mark.parametrize("name", _ICEBERG)
def test_tables_of_pyiceberg_are_read_as_by_pyiceberg(tmp_path: Path, name: str) -> None:
    """Each snapshot, branch and tag has the rows that pyiceberg reads.

    Branches and tags with an earlier schema are left out.
    """
    change, properties, everything = _ICEBERG[name]
    catalog = InMemoryCatalog("test", warehouse=str(tmp_path))
    catalog.create_namespace("db")
    rows = _everything([*_EVERYTHING, *_ICEBERG_ONLY]) if everything else _rows()
    table = catalog.create_table("db.t", rows.schema, properties=properties)
    if everything:
        table.append(rows)
    change(table)
    table = catalog.load_table("db.t")
    for uri in (table.location(), table.metadata_location):
        _check(uri, table.scan().to_arrow())
    for at, reference in table.metadata.refs.items():
        state = table.scan(snapshot_id=reference.snapshot_id)
        if at != "main" and state.projection() == table.schema():
            _check(table.location(), state.to_arrow(), at)
    for snapshot in table.snapshots():
        _check(table.location(), table.scan(snapshot_id=snapshot.snapshot_id).to_arrow(), str(snapshot.snapshot_id))


def _delta_appends(path: str) -> None:
    for number in range(5):
        write_deltalake(path, _rows(6, 10 * number), mode="append")
    DeltaTable(path).delete("id = 3 or s = 's2'")


def _delta_changes(path: str) -> None:
    write_deltalake(path, _rows(12), partition_by=["s"])
    write_deltalake(path, _rows(1, 2), mode="overwrite", predicate="s = 's2'")
    DeltaTable(path).update(predicate="id < 4", updates={"x": "0.5"})
    source = _rows(5, 8)
    merge = DeltaTable(path).merge(source, "t.id = u.id", source_alias="u", target_alias="t")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    write_deltalake(path, source.append_column("e", pa.array([1.5] * 5)), mode="append", schema_mode="merge")


def _delta_compacted(path: str) -> None:
    _delta_appends(path)
    DeltaTable(path).optimize.compact()
    write_deltalake(path, _rows(3, 90), mode="append")
    DeltaTable(path).optimize.z_order(["id", "x"])
    DeltaTable(path).vacuum(0, dry_run=False, enforce_retention_duration=False)


def _delta_logs(path: str) -> None:
    _delta_appends(path)
    DeltaTable(path).compact_logs(1, 4)
    DeltaTable(path).restore(2)
    write_deltalake(path, _rows(1, 90), mode="append")
    DeltaTable(path).create_checkpoint()
    DeltaTable(path).cleanup_metadata()


def _delta_everything(path: str) -> None:
    write_deltalake(path, _everything(_EVERYTHING))
    DeltaTable(path).create_checkpoint()


def _delta_options(path: str) -> None:
    options = WriterProperties(compression="BROTLI", max_row_group_size=2, statistics_truncate_length=2)
    write_deltalake(path, _rows(), writer_properties=options, target_file_size=64)


def _delta_configured(key: str, value: str) -> Callable[[str], None]:
    def write(path: str) -> None:
        write_deltalake(path, _rows(), configuration={key: value})
        _delta_appends(path)
        DeltaTable(path).create_checkpoint()
        write_deltalake(path, _rows(1, 99), mode="append")

    return write


def _delta_feature(feature: TableFeatures) -> Callable[[str], None]:
    def write(path: str) -> None:
        write_deltalake(path, _rows())
        DeltaTable(path).alter.add_feature(feature, allow_protocol_versions_increase=True)
        write_deltalake(path, _rows(2, 50), mode="append")

    return write


def _delta_partitions(path: str) -> None:
    values = [
        "a b",
        "a+b",
        "ä:é",
        "null",
        "a\nb",
        "a\\b",
        'q"r',
        "x'y",
        "#?&",
        "a%2Fb",
        " ",
        "__HIVE_DEFAULT_PARTITION__",
    ]
    rows = pa.table({"p é": values, "n": range(len(values)), "q.r": pa.array([1.5] * len(values))})
    write_deltalake(path, rows, partition_by=["p é"])
    DeltaTable(path).delete("n = 3")
    DeltaTable(path).optimize.compact()


def _delta_of_polars(path: str) -> None:
    frame = pl.DataFrame(
        {
            "id": [1, 2, None],
            "l": [[1], [], None],
            "s": [{"a": 1}] * 3,
            "m": pl.Series([1, 2, 3]).cast(pl.Decimal(10, 2)),
            "at": [dt.datetime(2020, 1, 1)] * 3,
            "u": pl.Series([1, 2, 3], dtype=pl.UInt8).cast(pl.Int16),
        }
    )
    frame.write_delta(path)
    other = frame.with_columns(pl.col("id") + 1)
    options = {"predicate": "s.id = t.id", "source_alias": "s", "target_alias": "t"}
    merge = other.write_delta(path, mode="merge", delta_merge_options=options)
    merge.when_matched_update_all().when_not_matched_insert_all().execute()


_DELTA: dict[str, Callable[[str], None]] = {
    "changes": _delta_changes,
    "compacted": _delta_compacted,
    "logs": _delta_logs,
    "everything": _delta_everything,
    "options": _delta_options,
    "partitions": _delta_partitions,
    "Polars": _delta_of_polars,
    **{
        key: _delta_configured(f"delta.{key}", value)
        for key, value in {
            "enableDeletionVectors": "true",
            "enableChangeDataFeed": "true",
            "checkpointInterval": "2",
            "checkpointPolicy": "v2",
            "columnMapping.mode": "name",
            "dataSkippingNumIndexedCols": "0",
            "checkpoint.writeStatsAsStruct": "true",
            "randomizeFilePrefixes": "true",
        }.items()
    },
    **{
        str(feature): _delta_feature(feature)
        for feature in (
            TableFeatures.DeletionVectors,
            TableFeatures.ColumnMapping,
            TableFeatures.TimestampWithoutTimezone,
            TableFeatures.V2Checkpoint,
            TableFeatures.VariantType,
            TableFeatures.CheckConstraints,
            TableFeatures.GeneratedColumns,
        )
    },
}


@pytest.mark.parametrize("name", _DELTA)
def test_tables_of_deltalake_and_polars_are_read_as_by_deltalake(tmp_path: Path, name: str) -> None:
    """The rows of the newest version are those that deltalake reads.

    The version before is compared, too, if its files and log entries remain.
    """
    path = str(tmp_path / "t")
    _DELTA[name](path)
    newest = DeltaTable(path).version()
    # Older versions lack files or log entries.
    for version in [newest] if name in ("compacted", "logs") else [newest, max(0, newest - 1)]:
        table = DeltaTable(path, version=version)
        _check(path, pa.table(QueryBuilder().register("t", table).execute("select * from t")), str(version))
