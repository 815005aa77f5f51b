"""Partition values of Delta tables are typed, and partition filters use them.

A fragment is a data file and the deletes on it.
"""

from __future__ import annotations

import re
import tempfile
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets.config import TableConfig
from metastore_assets.errors import ConfigError, TableFormatError
from metastore_assets.formats import NoDiff, Snapshot, decode_partition_key, open_table_format
from metastore_assets.formats.delta import table as table_module
from tests.formats.delta.log_writer import add_file, commit, field, mapped, metadata, protocol
from tests.formats.oracle import read_columns


def _snapshot(table: Path, **how: Any) -> Snapshot:
    return open_table_format(TableConfig(name="t", uri=str(table), **how)).snapshot()


_PARTITION_VALUES = [
    ("string", "a/b%20c=d,é😀\n", "a/b%20c=d,é😀\n", "a/b%20c=d,é😀\n"),
    ("string", "null", "null", "null"),
    ("string", "__HIVE_DEFAULT_PARTITION__", "__HIVE_DEFAULT_PARTITION__", "__HIVE_DEFAULT_PARTITION__"),
    ("string", "", None, None),
    ("long", str(-(2**63)), -(2**63), str(-(2**63))),
    ("integer", "007", 7, "7"),
    ("short", "-5", -5, "-5"),
    ("byte", "127", 127, "127"),
    ("boolean", "true", True, "true"),
    ("float", "0.1", 0.10000000149011612, "0.1"),
    ("float", "-0.0", 0.0, "0.0"),
    ("double", "Infinity", float("inf"), "inf"),
    ("double", "-0.0", 0.0, "0.0"),
    ("double", "1e300", 1e300, "1e+300"),
    ("decimal(10,2)", "-12.50", Decimal("-12.50"), "-12.50"),
    ("decimal(38,10)", "0.0000000001", Decimal("1E-10"), "0.0000000001"),
    ("date", "2024-02-29", date(2024, 2, 29), "2024-02-29"),
    ("date", "0001-01-01", date(1, 1, 1), "0001-01-01"),
    ("date", "9999-12-31", date(9999, 12, 31), "9999-12-31"),
    ("timestamp", "2024-01-01 10:00:00", datetime(2024, 1, 1, 10, tzinfo=UTC), "2024-01-01 10:00:00Z"),
    (
        "timestamp",
        "2024-01-01T10:00:00.123456Z",
        datetime(2024, 1, 1, 10, 0, 0, 123456, UTC),
        "2024-01-01 10:00:00.123456Z",
    ),
    ("timestamp_ntz", "2024-01-01 10:00:00.5", datetime(2024, 1, 1, 10, 0, 0, 500000), "2024-01-01 10:00:00.500000"),
    ("timestamp_ntz", "0001-01-01 00:00:00", datetime(1, 1, 1), "0001-01-01 00:00:00"),
    ("integer", None, None, None),
]


@pytest.mark.parametrize(("type_", "logged_value", "value", "text"), _PARTITION_VALUES)
def test_partition_values_are_typed(
    tmp_path: Path, type_: str, logged_value: str | None, value: Any, text: str | None
) -> None:
    """A partition value, which is a text in the log, has the type of its column in rows.

    The partition key has the value as a text in one standard form.
    """
    fields = [field("p", type_), field("a", "long")]
    add = add_file(tmp_path, pa.table({"a": [1, 2]}), p=logged_value)
    commit(tmp_path, protocol("timestampNtz"), metadata(fields, ["p"]), add)
    snapshot = _snapshot(tmp_path)
    assert read_columns(snapshot) == {"p": [value, value], "a": [1, 2]}
    assert decode_partition_key(snapshot.fragments[0].partition_key) == (("p", text),)


def test_a_binary_partition_value_is_read(tmp_path: Path) -> None:
    """Rows have the bytes of a partition value, whose text in the log has control characters.

    The partition key has the bytes as hexadecimal digits.
    """
    add = add_file(tmp_path, pa.table({"a": [1]}), p="\u0001ab\u0002")
    commit(tmp_path, protocol(), metadata([field("p", "binary"), field("a", "long")], ["p"]), add)
    snapshot = _snapshot(tmp_path)
    assert read_columns(snapshot)["p"] == [b"\x01ab\x02"]
    assert snapshot.fragments[0].partition_key == "p=01616202"


def test_a_partition_value_that_is_invalid_for_its_type_is_refused(tmp_path: Path) -> None:
    add = add_file(tmp_path, pa.table({"a": [1]}), p="abc")
    commit(tmp_path, protocol(), metadata([field("p", "integer"), field("a", "long")], ["p"]), add)
    with pytest.raises(TableFormatError, match=str(tmp_path)):
        _snapshot(tmp_path)


def test_a_file_with_another_partition_value_is_another_fragment(tmp_path: Path) -> None:
    """A file that is removed and added again with another partition value has another fragment id.

    The partition value is part of its rows.
    """
    add = add_file(tmp_path, pa.table({"a": [1]}), p="1")
    commit(tmp_path, protocol(), metadata([field("p", "long"), field("a", "long")], ["p"]), add)
    before = _snapshot(tmp_path).fragments
    remove = {key: add["add"][key] for key in ("path", "partitionValues", "dataChange")}
    commit(tmp_path, {"remove": remove})
    commit(tmp_path, {"add": add["add"] | {"partitionValues": {"p": "2"}}})
    after = _snapshot(tmp_path).fragments
    assert before[0].id != after[0].id


@pytest.mark.parametrize(
    ("text", "is_same"), [("0.1", False), ("0.5", True), ("NaN", True), ("-Infinity", True), ("", True)]
)
def test_a_widened_partition_value_that_becomes_another_number_is_another_fragment(
    tmp_path: Path, text: str, is_same: bool
) -> None:
    """If widening a partition column changes a value, the fragment id changes, and otherwise it does not.

    The text in the log is parsed as the column's current type, as Spark does. The double 0.1 is not the float 0.1.
    """
    add = add_file(tmp_path, pa.table({"a": [1]}), p=text)
    commit(tmp_path, protocol(), metadata([field("p", "float"), field("a", "long")], ["p"]), add)
    before = _snapshot(tmp_path)
    commit(tmp_path, metadata([field("p", "double"), field("a", "long")], ["p"]))
    after = _snapshot(tmp_path)
    values = [read_columns(snapshot)["p"][0] for snapshot in (before, after)]
    assert (repr(values[0]) == repr(values[1])) == is_same
    assert (before.fragments[0].id == after.fragments[0].id) == is_same


def test_a_filter_excludes_other_partitions(tmp_path: Path) -> None:
    """A partition filter, as patterns for columns or as a condition, selects the rows that are read.

    The pattern `*` does not match null, and Hive's name for null does. A condition with an unknown column or a syntax
    error is refused.
    """
    fields = [field("a", "long"), field("day", "date"), field("p", "integer")]
    commit(tmp_path, protocol(), metadata(fields, ["day", "p"]))
    for number, (day, p) in enumerate([("2024-01-01", "1"), ("2024-02-01", "1"), ("2024-02-02", None), (None, "2")]):
        add = add_file(tmp_path, pa.table({"a": [number]}), f"{number}.parquet", day=day, p=p)
        commit(tmp_path, add)

    def numbers_matching(**partitions: Any) -> list[int]:
        return sorted(read_columns(_snapshot(tmp_path, partitions=partitions))["a"])

    assert numbers_matching() == [0, 1, 2, 3]
    assert numbers_matching(day="2024-02-*") == [1, 2]
    assert numbers_matching(day="2024-02-*", p="1") == [1]
    assert numbers_matching(p=["1", "2"]) == [0, 1, 3]
    assert numbers_matching(p="__HIVE_DEFAULT_PARTITION__") == [2]
    assert numbers_matching(day="*") == [0, 1, 2]
    assert numbers_matching(day="1999-*") == []

    def where(condition: str) -> list[int]:
        return sorted(read_columns(_snapshot(tmp_path, partitions=condition))["a"])

    assert where("day >= '2024-02-01'") == [1, 2]
    assert where("day >= '2024-02-01' and p is null or p > 1") == [2, 3]
    assert where("not (day = '2024-01-01')") == [1, 2]
    assert where("day < current_date - 30") == [0, 1, 2]
    with pytest.raises(TableFormatError, match=r"\bdya\b.*\bday, p"):
        where("dya > '2024-01-01'")
    with pytest.raises(ConfigError, match=r"'t'.*partitions.*'day >'"):
        where("day >")


def test_a_filter_on_an_unpartitioned_column_is_refused(tmp_path: Path) -> None:
    commit(tmp_path, protocol(), metadata([field("a", "long"), field("p", "long")], ["p"]))
    with pytest.raises(TableFormatError, match=r"\ba\b.*\bp$"):
        _snapshot(tmp_path, partitions={"a": "1"})


def test_a_filter_uses_the_logical_column_name(tmp_path: Path) -> None:
    """A filter names a column by its logical name, although the log has a physical one."""
    configuration = {"delta.columnMapping.mode": "name"}
    fields = [mapped("a", "long", 1), mapped("p", "timestamp_ntz", 2)]
    commit(tmp_path, protocol("columnMapping", "timestampNtz"), metadata(fields, ["p"], **configuration))
    commit(tmp_path, add_file(tmp_path, pa.table({"p1": [1]}), p2="2024-01-01 10:00:00"))
    assert read_columns(_snapshot(tmp_path, partitions={"p": "2024-01-01 10:*"})) == {
        "a": [1],
        "p": [datetime(2024, 1, 1, 10)],
    }
    assert _snapshot(tmp_path, partitions={"p": "2024-01-02*"}).fragments == ()


def test_a_missing_partition_value_is_null(tmp_path: Path) -> None:
    """A partition value that an add action lacks in `partitionValues` is null, as for deltalake.

    If a remove action lacks the value, the partition of the file is unknown, and so is the difference of versions.
    """
    adds = [add_file(tmp_path, pa.table({"a": [1]}), "x.parquet"), add_file(tmp_path, pa.table({"a": [2]}))]
    commit(tmp_path, protocol(), metadata([field("p", "long"), field("a", "long")], ["p"]), *adds)
    table = open_table_format(TableConfig(name="t", uri=str(tmp_path)))
    snapshot = table.snapshot()
    assert {fragment.partition_key for fragment in snapshot.fragments} == {"p=__HIVE_DEFAULT_PARTITION__"}
    assert read_columns(snapshot)["p"] == [None, None]
    assert DeltaTable(tmp_path).to_pyarrow_table()["p"].to_pylist() == [None, None]
    commit(tmp_path, {"remove": {"path": "x.parquet", "dataChange": True, "partitionValues": {}}})
    diff = table.changes(snapshot.reference)
    assert isinstance(diff, NoDiff)
    assert re.search(rf"\b{snapshot.reference.id}\b.*\bpartition\b", diff.reason)
    assert read_columns(table.snapshot()) == {"a": [2], "p": [None]}


def test_a_file_without_partition_values_is_refused(tmp_path: Path) -> None:
    """In a partitioned table, an add action without `partitionValues` is refused, as by deltalake.

    The protocol requires this field. In a table that is not partitioned, the file is read nevertheless.
    """
    add = add_file(tmp_path, pa.table({"a": [1]}))
    del add["add"]["partitionValues"]
    commit(tmp_path / "t", protocol(), metadata([field("p", "long"), field("a", "long")], ["p"]), add)
    with pytest.raises(TableFormatError, match=re.escape(add["add"]["path"])):
        _snapshot(tmp_path / "t")
    with pytest.raises(DeltaError):
        DeltaTable(tmp_path / "t").to_pyarrow_table()
    commit(tmp_path, protocol(), metadata([field("a", "long")]), add)
    assert read_columns(_snapshot(tmp_path)) == {"a": [1]}


@pytest.mark.parametrize(
    ("type_", "logged_value"),
    [
        ("long", "1.0"),
        ("long", "1_000"),
        ("byte", "128"),
        ("boolean", "1"),
        ("date", "20240101"),
        ("date", "2024-01-01 00:00:00"),
        ("timestamp", "2024"),
        ("timestamp_ntz", "2024-01-01 10:00:00+01:00"),
        ("decimal(5,2)", "1.234"),
        ("decimal(5,2)", "1234"),
        ("double", "one"),
    ],
)
def test_values_of_another_type_are_refused(tmp_path: Path, type_: str, logged_value: str) -> None:
    """If a partition value does not fit its column's type, the error has its text and the table."""
    add = add_file(tmp_path, pa.table({"a": [1]}), p=logged_value)
    commit(tmp_path, protocol("timestampNtz"), metadata([field("p", type_), field("a", "long")], ["p"]), add)
    with pytest.raises(TableFormatError, match=f"{re.escape(str(tmp_path))}.*{re.escape(repr(logged_value))}"):
        _snapshot(tmp_path)


_FLOATS = st.sampled_from([float("nan"), float("inf"), -0.0]) | st.integers(-(10**9), 10**9).map(lambda n: n / 7)
"""Partition values. None is so small that its text is too long for the name of a folder."""
_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=3)


@given(st.lists(st.tuples(st.none() | _TEXTS, st.none() | st.datetimes(), st.none() | _FLOATS), max_size=5))
def test_values_written_by_deltalake_are_read_unchanged(rows: list[tuple[Any, Any, Any]]) -> None:
    """Random partition values that deltalake writes are read unchanged: texts, timestamps and floats.

    An empty text is read as null, as in the protocol.
    """
    numbers = pa.array(range(len(rows)), pa.int64())
    texts, times, floats = (pa.array([row[index] for row in rows], type_) for index, type_ in enumerate(_TYPES))
    with tempfile.TemporaryDirectory() as folder:
        data = pa.table({"n": numbers, "text": texts, "time": times, "float": floats})
        write_deltalake(folder, data, partition_by=["text", "time", "float"])
        read = read_columns(_snapshot(Path(folder)))
    by_number = {row[0]: row[1:] for row in zip(*(read[name] for name in ("n", "text", "time", "float")), strict=True)}
    assert by_number.keys() == set(range(len(rows)))
    for number, (text, time, float_) in enumerate(rows):
        text_value, time_value, float_value = by_number[number]
        assert (text_value, time_value) == (text or None, time)
        assert float_value == float_ or (float_value != float_value and float_ != float_)


_TYPES = (pa.string(), pa.timestamp("us"), pa.float64())


def test_a_stream_has_few_partitions_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_module, "_STREAMED_PARTITIONS", 3)
    write_deltalake(str(tmp_path), pa.table({"a": range(20), "day": [at % 10 for at in range(20)]}), partition_by="day")
    write_deltalake(str(tmp_path), pa.table({"a": range(10), "day": range(10)}), mode="append")
    counts = []
    create = table_module._Table._fragment

    def fragment(table: Any, *arguments: Any) -> Any:
        counts.append(len(table._partitions))
        return create(table, *arguments)

    monkeypatch.setattr(table_module._Table, "_fragment", fragment)
    table_format = open_table_format(TableConfig(name="t", uri=str(tmp_path)))
    fragments = sorted(table_format.stream().fragments, key=lambda fragment: (fragment.partition_key, fragment.id))
    assert len(fragments) == 20
    assert max(counts) == 3
    assert fragments == list(table_format.snapshot().fragments)
