"""Delta tables: partition values as the log writes them, filters of partitions."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from metastore_assets.config import TableConfig
from metastore_assets.errors import TableFormatError
from metastore_assets.formats import Snapshot, decode_partition_key, open_table_format
from tests.formats.delta_log_writer import add_file, commit, field, metadata, protocol
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


@pytest.mark.parametrize(("type_", "logged", "value", "text"), _PARTITION_VALUES)
def test_partition_values_are_typed(
    tmp_path: Path, type_: str, logged: str | None, value: Any, text: str | None
) -> None:
    """As the log has them they are text; a row has them as values of the column's type."""
    fields = [field("p", type_), field("a", "long")]
    add = add_file(tmp_path, pa.table({"a": [1, 2]}), p=logged)
    commit(tmp_path, protocol("timestampNtz"), metadata(fields, ["p"]), add)
    snapshot = _snapshot(tmp_path)
    assert read_columns(snapshot) == {"p": [value, value], "a": [1, 2]}
    assert decode_partition_key(snapshot.fragments[0].partition_key) == (("p", text),)


def test_a_binary_partition_value_is_read(tmp_path: Path) -> None:
    """The log has it as text with escapes for the bytes that are none."""
    add = add_file(tmp_path, pa.table({"a": [1]}), p="\u0001ab\u0002")
    commit(tmp_path, protocol(), metadata([field("p", "binary"), field("a", "long")], ["p"]), add)
    snapshot = _snapshot(tmp_path)
    assert read_columns(snapshot)["p"] == [b"\x01ab\x02"]
    assert snapshot.fragments[0].partition_key == "p=01616202"


def test_a_value_that_is_not_of_the_columns_type_is_refused(tmp_path: Path) -> None:
    """The table cannot be read by anybody."""
    add = add_file(tmp_path, pa.table({"a": [1]}), p="abc")
    commit(tmp_path, protocol(), metadata([field("p", "integer"), field("a", "long")], ["p"]), add)
    with pytest.raises(TableFormatError, match=str(tmp_path)):
        _snapshot(tmp_path)


def test_a_partition_value_that_was_corrected_is_another_fragment(tmp_path: Path) -> None:
    """The same file with another partition value has other rows."""
    add = add_file(tmp_path, pa.table({"a": [1]}), p="1")
    commit(tmp_path, protocol(), metadata([field("p", "long"), field("a", "long")], ["p"]), add)
    before = _snapshot(tmp_path).fragments
    remove = {key: add["add"][key] for key in ("path", "partitionValues", "dataChange")}
    commit(tmp_path, {"remove": remove})
    commit(tmp_path, {"add": add["add"] | {"partitionValues": {"p": "2"}}})
    after = _snapshot(tmp_path).fragments
    assert before[0].id != after[0].id
