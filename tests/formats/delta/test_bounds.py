"""Bounds from statistics in a Delta log are never wrong, whichever engine wrote them."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets.config import TableConfig
from metastore_assets.formats import TableFormat, open_table_format
from tests.formats.delta.log_writer import (
    add_file,
    commit,
    field,
    list_of,
    mapped,
    metadata,
    protocol,
    struct_of,
    write_vector,
)


def _open(folder: Path | str, **how: Any) -> TableFormat:
    return open_table_format(TableConfig(name="t", uri=str(folder), **how))


def assert_honest(bounds: dict[str, Any], values: Sequence[Any]) -> None:
    """Check the bounds and null count reported for a column of a file against its live values.

    An `exact` bound equals the extreme value, a `bound` may lie beyond it, and an `absent` one is None.
    """
    present = [value for value in values if value is not None and value == value]
    nulls = sum(value is None for value in values)
    guarantee = bounds["null_count_guarantee"]
    assert bounds["null_count"] == (None if guarantee == "absent" else nulls)
    order = (lambda text: text.encode()) if any(isinstance(value, str) for value in present) else None
    for name, extreme, sign in (("minimum", min, -1), ("maximum", max, 1)):
        bound, guarantee = bounds[name], bounds[f"{name}_guarantee"]
        if guarantee == "absent":
            assert bound is None
        elif guarantee == "exact":
            assert bound == extreme(present, key=order)
        else:
            assert guarantee == "bound"
            assert bound == bound
            if present:
                assert extreme([bound, extreme(present, key=order)], key=order) == bound, sign


def _bounds_of(table: TableFormat, column: str) -> dict[str, dict[str, Any]]:
    """Return the bounds of a column in each data file, by the file's path."""
    snapshot = table.snapshot()
    rows = table.bounds(snapshot, column).to_pylist()
    assert [row["fragment_id"] for row in rows] == [fragment.id for fragment in snapshot.fragments]
    return {fragment.path: row for fragment, row in zip(snapshot.fragments, rows, strict=True)}


_INSTANTS = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30))
_LETTERS = st.sampled_from("aZé\U0001f98a\x7f\u07ff")
_COLUMNS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "i": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "b": (pa.int8(), st.integers(-128, 127)),
    "bool": (pa.bool_(), st.booleans()),
    "text": (pa.string(), st.text(_LETTERS, max_size=3) | st.text(_LETTERS, min_size=31, max_size=40)),
    "f": (pa.float32(), st.floats(width=32)),
    "d": (pa.float64(), st.floats()),
    "small": (pa.decimal128(15, 3), st.decimals(-(10**11), 10**11, places=3)),
    "large": (pa.decimal128(38, 2), st.decimals(-(10**35), 10**35, places=2)),
    "whole": (pa.decimal128(38, 0), st.decimals(-(10**38) + 1, 10**38 - 1, places=0)),
    "day": (pa.date32(), st.dates()),
    "instant": (pa.timestamp("us", "UTC"), _INSTANTS.map(lambda moment: moment.replace(tzinfo=UTC))),
    "clock": (pa.timestamp("us"), _INSTANTS),
    "bytes": (pa.binary(), st.binary(max_size=3)),
}
_ROWS = st.fixed_dictionaries({name: st.none() | values for name, (_, values) in _COLUMNS.items()})
_SCHEMA = pa.schema([(name, type_) for name, (type_, _) in _COLUMNS.items()])


@given(st.lists(st.lists(_ROWS, min_size=1, max_size=5), min_size=1, max_size=2), st.booleans())
def test_bounds_of_files_by_deltalake_are_true(files: list[list[dict[str, Any]]], checkpoint: bool) -> None:
    """Bounds from statistics that deltalake wrote agree with the rows of each file.

    The statistics are in commits or in a checkpoint. Checked are columns of many types, a field of a struct, and the
    partition column.
    """
    with tempfile.TemporaryDirectory() as folder:
        for number, rows in enumerate(files):
            columns = pa.Table.from_pylist(rows, schema=_SCHEMA)
            nested_array = pa.StructArray.from_arrays(columns.combine_chunks().columns[0].chunks[:1], names=["x"])
            data = columns.append_column("s", nested_array).append_column("p", pa.array([number % 2] * len(rows)))
            write_deltalake(folder, data, mode="append", partition_by=["p"])
        if checkpoint:
            DeltaTable(folder).create_checkpoint()
        table = _open(folder)
        exact = 0
        for name in [*_COLUMNS, "s.x", "p"]:
            for path, bounds in _bounds_of(table, name).items():
                partition = int(Path(path).parent.name.removeprefix("p="))
                stored_rows = pq.ParquetFile(path).read()
                first = (
                    stored_rows["i"]
                    if name == "s.x"
                    else stored_rows[name]
                    if name != "p"
                    else [partition] * len(stored_rows)
                )
                values = first.to_pylist() if isinstance(first, pa.ChunkedArray) else first
                assert_honest(bounds, values)
                exact += bounds["minimum_guarantee"] == "exact"
        assert exact >= len(files), "not even the partition column has exact bounds"


def _spark_text(value: Any, is_maximum: bool) -> Any:
    """Format a value as Spark does in statistics.

    Texts are cut after 32 characters, and timestamps to milliseconds. If a maximum is a text that is cut, a character
    is appended that is greater than the first one cut off.
    """
    if isinstance(value, str) and len(value) > 32:
        rest = value[32:]
        return value[:32] + (("\x7f" if rest[0] < "\x7f" else "\U0010ffff") if is_maximum else "")
    if isinstance(value, datetime):
        text = value.replace(tzinfo=None).isoformat(timespec="milliseconds")
        return f"{text}Z" if value.tzinfo else text
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return {"inf": "Infinity", "-inf": "-Infinity"}.get(str(value), "NaN")
    return value


def _spark_statistics(rows: list[dict[str, Any]], tight: bool) -> str:
    """Return statistics of rows as Spark writes them.

    Booleans and binaries have no bounds, and NaN is the greatest number. Without `tight`, `tightBounds` is false: the
    bounds need not be values of the rows.
    """
    least, greatest, nulls = {}, {}, {}
    for name in _COLUMNS:
        values = [row[name] for row in rows if row[name] is not None]
        nulls[name] = len(rows) - len(values)
        if name in ("bool", "bytes") or not values:
            continue
        key = _spark_order
        least[name] = _spark_text(min(values, key=key), False)
        greatest[name] = _spark_text(max(values, key=key), True)
    statistics = {"numRecords": len(rows), "minValues": least, "maxValues": greatest, "nullCount": nulls}
    text = json.dumps(statistics | ({} if tight else {"tightBounds": False}), default=lambda number: f"#{number}#")
    return text.replace('"#', "").replace('#"', "")


def _spark_order(value: Any) -> Any:
    if isinstance(value, float):
        return (value != value, 0.0 if value != value else value)
    return value.encode() if isinstance(value, str) else value


_TYPES = ["long", "byte", "boolean", "string", "float", "double", "decimal(15,3)", "decimal(38,2)", "decimal(38,0)"]
_TYPES += ["date", "timestamp", "timestamp_ntz", "binary"]


@given(st.lists(_ROWS, min_size=1, max_size=6), st.booleans(), st.sets(st.integers(0, 5)), st.booleans())
def test_bounds_of_files_by_spark_are_true(
    rows: list[dict[str, Any]], tight: bool, deleted_positions: set[int], mapping: bool
) -> None:
    """Bounds of a file with statistics in Spark's form agree with its live rows.

    Some rows may be deleted, and columns may have physical names. No bound is exact if rows are deleted or
    `tightBounds` is false.
    """
    deleted_positions = {position for position in deleted_positions if position < len(rows)}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fields = [field(column, type_) for column, type_ in zip(_COLUMNS, _TYPES, strict=True)]
        configuration = {}
        if mapping:
            fields = [
                mapped(f"the {each['name']}", each["type"], number, each["name"]) for number, each in enumerate(fields)
            ]
            configuration = {"delta.columnMapping.mode": "name"}
        add = add_file(folder, pa.Table.from_pylist(rows, schema=_SCHEMA))
        add["add"]["stats"] = _spark_statistics(rows, tight and not deleted_positions)
        if deleted_positions:
            add["add"]["deletionVector"] = write_vector(folder, sorted(deleted_positions), "i")
        features = protocol("columnMapping", "deletionVectors", "timestampNtz")
        commit(folder, features, metadata(fields, **configuration), add)
        live = [row for position, row in enumerate(rows) if position not in deleted_positions]
        table = _open(folder)
        for column in _COLUMNS:
            (bounds,) = _bounds_of(table, f"the {column}" if mapping else column).values()
            assert_honest(bounds, [row[column] for row in live])
            if deleted_positions or not tight:
                assert "exact" not in (bounds["minimum_guarantee"], bounds["maximum_guarantee"])
            elif column in ("i", "b", "small", "day") and any(row[column] is not None for row in rows):
                assert bounds["minimum_guarantee"] == bounds["maximum_guarantee"] == "exact"


def _one_file(folder: Path, statistics: Any, *fields: dict[str, Any], **more: Any) -> TableFormat:
    add = add_file(folder, pa.table({"a": [1, 2]}), **more)
    add["add"]["stats"] = statistics if isinstance(statistics, str) else json.dumps(statistics)
    commit(folder, protocol("typeWidening", "timestampNtz"), metadata(fields or [field("a", "long")], list(more)), add)
    return _open(folder)


def _least_and_greatest(least: Any, greatest: Any) -> dict[str, Any]:
    return {"numRecords": 2, "minValues": {"a": least}, "maxValues": {"a": greatest}, "nullCount": {"a": 0}}


@pytest.mark.parametrize(
    ("type_", "least", "greatest"),
    [
        ("long", 1.5, 2.0),
        ("long", "1", True),
        ("byte", -129, 128),
        ("double", "NaN", None),
        ("double", "x", [1]),
        ("decimal(5,2)", 1.234, "1"),
        ("decimal(5,2)", 12345, -12345),
        ("date", "2024-1-1", 19000),
        ("date", "+10000-01-01", "2024-01-01T00:00:00"),
        ("timestamp", "2024-01-01T00:00:00", 5),
        ("timestamp_ntz", "2024-01-01T00:00:00+01:00", "9999-12-31T23:59:59.999"),
        ("string", 5, "\ud83d"),
        ("boolean", 0, "true"),
        ("binary", "a", "b"),
        (list_of("long"), [1], [2]),
    ],
)
def test_uncertain_bounds_are_absent(tmp_path: Path, type_: Any, least: Any, greatest: Any) -> None:
    """Bounds in the log that are invalid or ambiguous for the column's type are ignored without an error."""
    table = _one_file(tmp_path, _least_and_greatest(least, greatest), field("a", type_))
    (bounds,) = _bounds_of(table, "a" if isinstance(type_, str) else "a.element").values()
    assert (bounds["minimum_guarantee"], bounds["maximum_guarantee"]) == ("absent", "absent")


@pytest.mark.parametrize(
    "statistics", ["{}", '{"numRecords":2}', '{"numRecords":2,"minValues":[1],"maxValues":7,"nullCount":null}']
)
def test_malformed_statistics_give_no_bounds(tmp_path: Path, statistics: str) -> None:
    (bounds,) = _bounds_of(_one_file(tmp_path, statistics), "a").values()
    assert {bounds[f"{name}_guarantee"] for name in ("null_count", "minimum", "maximum")} == {"absent"}


def test_bounds_of_a_widened_float_are_absent(tmp_path: Path) -> None:
    """After a column was widened from float to double, the bounds in the log are not used.

    The log may have floats in short decimal form. A float that is written as 0.2 is greater than the double 0.2, which
    is then no upper bound.
    """
    change = {"delta.typeChanges": [{"fromType": "float", "toType": "double"}]}
    table = _one_file(tmp_path, _least_and_greatest(0.1, 0.2), field("a", "double", **change))
    (bounds,) = _bounds_of(table, "a").values()
    assert bounds["minimum_guarantee"] == bounds["maximum_guarantee"] == "absent"


def test_maxima_of_long_texts_by_old_versions_of_spark_are_true(tmp_path: Path) -> None:
    """If an old version of Spark cut a text, the reported maximum is above the full text, or absent.

    These versions cut a text after 32 UTF-16 units, and append U+FFFD. The full texts are 32 or 31 times "x", then
    U+1F600, which has two units. If the cut is inside U+1F600, there is no maximum.
    """
    for prefix, recorded_maximum in (("x" * 32, "x" * 32 + "\ufffd"), ("x" * 31, "x" * 31 + "?\ufffd")):
        table = _one_file(tmp_path / str(len(prefix)), _least_and_greatest("a", recorded_maximum), field("a", "string"))
        (bounds,) = _bounds_of(table, "a").values()
        assert bounds["maximum"] is None or bounds["maximum"] > f"{prefix}\U0001f600", bounds
        assert (bounds["maximum_guarantee"] == "absent") is ("?" in recorded_maximum)


def test_a_date_widened_to_a_timestamp_is_midnight(tmp_path: Path) -> None:
    """If the log has days as bounds of a timestamp column, the minimum is midnight of the first day.

    The maximum is one millisecond after midnight of the last day.
    """
    table = _one_file(tmp_path, _least_and_greatest("2024-01-01", "2024-01-03"), field("a", "timestamp_ntz"))
    (bounds,) = _bounds_of(table, "a").values()
    assert (bounds["minimum"], bounds["minimum_guarantee"]) == (datetime(2024, 1, 1), "bound")
    assert (bounds["maximum"], bounds["maximum_guarantee"]) == (
        datetime(2024, 1, 3) + timedelta(milliseconds=1),
        "bound",
    )


def test_bounds_of_large_decimals_include_rounding_errors(tmp_path: Path) -> None:
    """Bounds of a column of large decimals are wider than the numbers in the log.

    Some writers convert decimals to doubles, so the numbers in the log may be rounded.
    """
    statistics = '{"numRecords":2,"minValues":{"a":-1e19},"maxValues":{"a":10000000000000000000}}'
    (bounds,) = _bounds_of(_one_file(tmp_path, statistics, field("a", "decimal(20,0)")), "a").values()
    for name, sign in (("minimum", -1), ("maximum", 1)):
        assert bounds[f"{name}_guarantee"] == "bound"
        assert Decimal(10**19 + 1) <= sign * bounds[name] <= Decimal(10**19 + 4000)


def test_partition_values_are_exact(tmp_path: Path) -> None:
    """The partition value of a file is its exact minimum and maximum.

    Null and NaN have no bounds.

    The null count is exact, too. A file without a logged row count has no bounds and no null count.
    """
    fields = [field("a", "long"), field("p", "double"), field("q", "string")]
    table = _one_file(tmp_path, {"numRecords": 2}, *fields, p="1.5", q=None)
    commit(tmp_path, add_file(tmp_path, pa.table({"a": [1, 2, 3]}), "2", p="NaN", q="x"))
    unknown = add_file(tmp_path, pa.table({"a": [1]}), "3", p="2", q="x")
    del unknown["add"]["stats"]
    commit(tmp_path, unknown)
    by_file = {Path(path).name: tuple(bounds.values())[1:] for path, bounds in _bounds_of(table, "p").items()}
    nothing = (None, "absent") * 2
    assert by_file == {
        "f.parquet": (0, "exact", 1.5, "exact", 1.5, "exact"),
        "2": (0, "exact", *nothing),
        "3": (None, "absent", *nothing),
    }
    by_file = {Path(path).name: tuple(bounds.values())[1:] for path, bounds in _bounds_of(table, "q").items()}
    assert by_file["f.parquet"] == (2, "exact", *nothing)


def test_a_checkpoint_with_typed_statistics_only_is_read(tmp_path: Path) -> None:
    """Bounds come from `stats_parsed` of a checkpoint that has no JSON statistics.

    Such checkpoints are written with `delta.checkpoint.writeStatsAsStruct`.
    """
    table = _one_file(
        tmp_path, _least_and_greatest(1, 2), field("a", "long"), field("s", struct_of(field("d", "date")))
    )
    values = {"a": 1, "s": {"d": date(2024, 1, 1)}}
    greatest = {"a": 2, "s": {"d": date(2024, 1, 2)}}
    add = {"path": "f.parquet", "partitionValues": None, "size": 1, "modificationTime": 1}
    add["stats_parsed"] = {
        "numRecords": 2,
        "minValues": values,
        "maxValues": greatest,
        "nullCount": {"a": 0, "s": {"d": 1}},
    }
    (log,) = (tmp_path / "_delta_log").glob("*.json")
    actions = [
        action for action in map(json.loads, log.read_text().splitlines()) if {"protocol", "metaData"} & set(action)
    ]
    protocols = pa.array([None, *(action.get("protocol") for action in actions)])
    schemas = [action["metaData"]["schemaString"] if "metaData" in action else None for action in actions]
    metadatas = pa.array([None, *({"schemaString": schema} if schema else None for schema in schemas)])
    rows = pa.table({"add": [add, None, None], "protocol": protocols, "metaData": metadatas})
    pq.write_table(rows, log.with_name(f"{0:020}.checkpoint.parquet"))
    (bounds,) = _bounds_of(table, "a").values()
    assert (bounds["minimum"], bounds["maximum"], bounds["minimum_guarantee"]) == (1, 2, "exact")
    (bounds,) = _bounds_of(table, "s.d").values()
    assert (bounds["minimum"], bounds["maximum"], bounds["null_count"]) == (date(2024, 1, 1), date(2024, 1, 2), 1)


def test_bounds_are_of_the_requested_snapshot(tmp_path: Path) -> None:
    """After an overwrite, the earlier snapshot still has the bounds of its own rows.

    The new snapshot has the bounds of the new rows. An unknown column is an error.
    """
    write_deltalake(str(tmp_path), pa.table({"a": [1, 2]}))
    table = _open(tmp_path)
    before = table.snapshot()
    write_deltalake(str(tmp_path), pa.table({"a": [7, 9]}), mode="overwrite")
    assert table.bounds(before, "a")["maximum"].to_pylist() == [2]
    assert table.bounds(table.snapshot(), "a")["maximum"].to_pylist() == [9]
    with pytest.raises(KeyError, match="'b'"):
        table.bounds(before, "b")
