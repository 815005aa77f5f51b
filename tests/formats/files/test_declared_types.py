"""Files of every kind are read exactly in declared column types, or refused.

The error has the position of the value.

A fragment is one data file of a table.
"""

from __future__ import annotations

import json
import re
import shutil
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import fastavro
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.orc as pyarrow_orc
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets.config import TableConfig
from metastore_assets.errors import ConfigError, FragmentError, TableFormatError
from metastore_assets.formats import Snapshot, open_table_format
from metastore_assets.formats.files.declared_types import cast_losslessly
from metastore_assets.formats.files.type_names import parse_type_name
from tests.formats.oracle import read_columns


def _snapshot(folder: Path, schema: dict[str, str] | None = None, **options: Any) -> Snapshot:
    config = {"name": "t", "uri": str(folder), "options": options, "schema": schema or {}}
    return open_table_format(TableConfig.model_validate(config)).snapshot()


_NAMES = [
    ("string", pa.string()),
    ("VARCHAR(20)", pa.string()),
    ("int", pa.int32()),
    ("BIGINT", pa.int64()),
    ("uint64", pa.uint64()),
    ("float", pa.float32()),
    ("double precision", pa.float64()),
    ("Boolean", pa.bool_()),
    ("bool", pa.bool_()),
    ("date", pa.date32()),
    ("date32[day]", pa.date32()),
    ("decimal(10,2)", pa.decimal128(10, 2)),
    ("decimal128(10, 2)", pa.decimal128(10, 2)),
    ("NUMERIC( 5 )", pa.decimal128(5, 0)),
    ("timestamp", pa.timestamp("us")),
    ("timestamp[ns]", pa.timestamp("ns")),
    ("timestamp[ms, tz=UTC]", pa.timestamp("ms", "UTC")),
    ("timestamp[us, UTC]", pa.timestamp("us", "UTC")),
    ("timestamptz", pa.timestamp("us", "UTC")),
    ("time64[us]", pa.time64("us")),
    ("time[ms]", pa.time32("ms")),
    ("uuid", pa.uuid()),
]


@pytest.mark.parametrize(("name", "type_"), _NAMES)
def test_type_names(name: str, type_: pa.DataType) -> None:
    """The names of types in SQL and in Arrow are accepted as declared types."""
    assert parse_type_name(name) == type_


@pytest.mark.parametrize(
    "type_",
    [
        *(
            pa.int8(),
            pa.uint32(),
            pa.float32(),
            pa.float64(),
            pa.decimal128(38, 38),
            pa.string(),
            pa.binary(),
        ),
        *(
            pa.date32(),
            pa.time32("s"),
            pa.time64("ns"),
            pa.timestamp("s"),
            pa.timestamp("ns", "UTC"),
            pa.bool_(),
            pa.uuid(),
        ),
    ],
    ids=str,
)
def test_types_in_statistics_are_type_names(type_: pa.DataType) -> None:
    """The type that statistics show for a column can be copied into the configuration."""
    assert parse_type_name(str(type_)) == type_


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"zip": "sting"}, r"schema\.zip = 'sting'.*\bstring\b"),
        ({"zip": "decimal"}, r"schema\.zip = 'decimal'.*\bdecimal\(p,s\)"),
        ({"zip": "decimal(40,2)"}, r"schema\.zip = 'decimal\(40,2\)'.*\b38\b"),
        ({"zip": "struct<a: int>"}, r"schema\.zip = 'struct<a: int>'"),
        ({"zpi": "string"}, r"schema\.zpi\b.*\bzip\b.*\bzip, day"),
        ({"day": "date"}, r"schema\.day\b.*options\.template"),
    ],
)
def test_invalid_declarations_are_refused(tmp_path: Path, schema: dict[str, str], message: str) -> None:
    """The error for an invalid declared type has the table and the column.

    It also has the type, or what to set instead.
    """
    (tmp_path / "day=2024-01-01").mkdir()
    (tmp_path / "day=2024-01-01" / "a.csv").write_text("zip\n1\n")
    with pytest.raises(ConfigError, match=f"'t': {message}"):
        _snapshot(tmp_path, schema)


def test_formats_with_a_schema_accept_no_declared_types(tmp_path: Path) -> None:
    """Declared types for a table whose format has a schema, here Delta, are an error.

    The error has the table, the setting and the format.
    """
    write_deltalake(tmp_path, pa.table({"a": [1]}))
    with pytest.raises(ConfigError, match=r"'t'.*schema.*delta"):
        _snapshot(tmp_path, {"a": "string"})


_VALUES: list[tuple[str, list[str], list[Any]]] = [
    ("string", ["01234", "1", "1.50", " x "], ["01234", "1", "1.50", " x "]),
    ("int", ["007", " 8 ", "+9"], [7, 8, 9]),
    (
        "decimal(20,2)",
        ["1.5", "123456789012345678.12", "1e2"],
        [Decimal("1.50"), Decimal("123456789012345678.12"), 100],
    ),
    ("double", ["1", "1.5", "nan"], None),  # type: ignore[list-item]
    ("float", ["0.5", "16777216"], [0.5, 16777216.0]),
    ("boolean", ["true", "FALSE"], [True, False]),
    ("date", ["2024-01-31"], [date(2024, 1, 31)]),
    (
        "timestamp",
        ["2024-01-31", "2024-01-31 10:00:00.5"],
        [datetime(2024, 1, 31), datetime(2024, 1, 31, 10, 0, 0, 500000)],
    ),
    ("timestamptz", ["2024-01-31 10:00:00+02:00"], [datetime(2024, 1, 31, 8, tzinfo=UTC)]),
    ("time", ["10:00"], [time(10)]),
    ("binary", ["é"], ["é".encode()]),
    ("uuid", ["00112233-4455-6677-8899-aabbccddeeff"], [UUID("00112233-4455-6677-8899-aabbccddeeff")]),
]


@pytest.mark.parametrize(("name", "texts", "values"), _VALUES, ids=[name for name, _, _ in _VALUES])
def test_text_files_are_read_in_the_declared_type(
    tmp_path: Path, name: str, texts: list[str], values: list[Any] | None
) -> None:
    """Texts in CSV and JSON files are parsed as values of the type.

    Nulls and, in CSV, empty values are null.
    """
    csv_, json_ = tmp_path / "csv", tmp_path / "json"
    csv_.mkdir()
    json_.mkdir()
    (csv_ / "a.csv").write_text("k,a\n" + "".join(f'{row},"{text}"\n' for row, text in enumerate(texts)) + "9,\n")
    lines = [f'{{"k": {row}, "a": {json.dumps(text)}}}\n' for row, text in enumerate(texts)] + ['{"k": 9, "a": null}\n']
    (json_ / "a.json").write_text("".join(lines))
    for folder in (csv_, json_):
        snapshot = _snapshot(folder, {"a": name})
        assert snapshot.schema.field("a").type == parse_type_name(name)
        columns = read_columns(snapshot)
        assert columns["k"] == [*range(len(texts)), 9]
        if values is not None:
            assert columns["a"] == [*values, None]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("int", "2147483648"),
        ("int", "1.5"),
        ("int", "x"),
        ("double", "9007199254740993"),
        ("float", "16777217"),
        ("double", "1e400"),
        ("decimal(5,2)", "1.505"),
        ("decimal(5,2)", "1000"),
        ("boolean", "1"),
        ("date", "2024-02-30"),
        ("timestamp", "2024-01-01 10:00:00Z"),
        ("timestamptz", "2024-01-01 10:00:00"),
        ("uuid", "0011"),
    ],
)
def test_a_text_that_is_no_value_of_the_type_is_refused(tmp_path: Path, name: str, text: str) -> None:
    """The error for a text that is no value of the declared type has the file, the line and the text.

    It also has the type, the setting, and for CSV the column. Values are never rounded, truncated or skipped.
    """
    (tmp_path / "a.csv").write_text("k,a\n" + "0,\n" * 100 + f"1,{text}\n" + "2,\n" * 100)
    type_ = re.escape(str(parse_type_name(name)))
    with pytest.raises(FragmentError, match=rf"a\.csv.*line 102: '{text}' .*'a'.* {type_};.*schema\.a"):
        read_columns(_snapshot(tmp_path, {"a": name}))
    (tmp_path / "a.csv").unlink()
    value = text if text[0] in "12" and text.replace(".", "").replace("e", "").isdecimal() else json.dumps(text)
    (tmp_path / "a.json").write_text('{"k": 0, "a": null}\n' * 100 + f'{{"k": 1, "a": {value}}}\n{{"k": 2}}\n')
    with pytest.raises(FragmentError, match=rf"a\.json.*line 101: '{text}' .* {type_};.*`schema`"):
        read_columns(_snapshot(tmp_path, {"a": name}))


def test_json_is_read_as_the_text_that_was_written(tmp_path: Path) -> None:
    """In columns declared as text, numbers have the digits of the file, and objects have no blanks.

    Columns without a declared type do not change.
    """
    content = '{"a": 1.50, "b": {"x": 10000000000000000000001, "y": [1, 2.0]}, "c": [0.1, null], "d": 1}\n'
    content += '{"a": "t", "b": {"x": -0}, "c": [1e2], "d": 2.5}\n{"a": {"é": [1.0, true, null, "z"]}, "b": null}\n'
    (tmp_path / "a.json").write_text(content)
    columns = read_columns(_snapshot(tmp_path, {"a": "string", "b.x": "string", "c.element": "decimal(10,2)"}))
    assert columns == {
        "a": ["1.50", "t", '{"é":[1.0,true,null,"z"]}'],
        "b": [{"x": "10000000000000000000001", "y": [1.0, 2.0]}, {"x": "-0", "y": None}, None],
        "c": [[Decimal("0.10"), None], [Decimal("100.00")], None],
        "d": [1.0, 2.5, None],
    }
    with pytest.raises(TableFormatError, match=r"'a'.*`schema`"):
        _snapshot(tmp_path)


_TYPED: list[tuple[pa.Array, str, list[Any]]] = [
    (pa.array([1, None]), "string", ["1", None]),
    (pa.array([1, 0, None]), "boolean", [True, False, None]),
    (pa.array([5], pa.int64()), "decimal(10,2)", [Decimal("5.00")]),
    (pa.array([1.0, None]), "int", [1, None]),
    (pa.array([0.1, None]), "decimal(10,2)", [Decimal("0.10"), None]),
    (pa.array([0.5, float("inf")]), "float", [0.5, float("inf")]),
    (pa.array([Decimal("5.00")]), "int", [5]),
    (pa.array([0.5], pa.float16()), "double", [0.5]),
    (pa.array([2.0], pa.float16()), "int", [2]),
    (pa.array(["007", " 8"]), "int", [7, 8]),
    (pa.array(["1.50"], pa.large_string()), "decimal(5,2)", [Decimal("1.50")]),
    (pa.array(["2024-01-01"]).dictionary_encode(), "date", [date(2024, 1, 1)]),
    (pa.array([date(2024, 1, 1)]), "timestamp", [datetime(2024, 1, 1)]),
    (pa.array([datetime(2024, 1, 1)], pa.timestamp("ns")), "date", [date(2024, 1, 1)]),
    (pa.array([datetime(2024, 1, 1, 10)]), "timestamptz", [datetime(2024, 1, 1, 10, tzinfo=UTC)]),
    (
        pa.array([datetime(2024, 1, 1, 10, tzinfo=UTC)], pa.timestamp("us", "UTC")),
        "timestamp",
        [datetime(2024, 1, 1, 10)],
    ),
    (pa.array([b"a\xc3\xa9"]), "string", ["aé"]),
    (pa.array(["é"]), "binary", ["é".encode()]),
    (pa.nulls(1), "date", [None]),
]


@pytest.mark.parametrize(("array", "name", "values"), _TYPED, ids=[f"{a.type} {name}" for a, name, _ in _TYPED])
def test_typed_files_are_converted_without_loss(tmp_path: Path, array: pa.Array, name: str, values: list[Any]) -> None:
    """Values of a Parquet file equal the stored ones after the conversion to the declared type.

    Texts are parsed.
    """
    pq.write_table(pa.table({"a": array}), tmp_path / "a.parquet")
    snapshot = _snapshot(tmp_path, {"a": name})
    assert snapshot.schema == pa.schema([("a", parse_type_name(name))])
    assert read_columns(snapshot)["a"] == values


_REFUSED: list[tuple[pa.Array, str, str]] = [
    (pa.array([1, 2]), "boolean", "'2' is no bool"),
    (pa.array([1.0, 1.5]), "int", "'1.5' is no int32"),
    (pa.array([0.125]), "decimal(10,2)", "'0.125' is no decimal"),
    (pa.array([0.5, 0.1]), "float", "'0.1' is no float"),
    (pa.array([1, 2**53 + 1]), "double", "'9007199254740993' is no double"),
    (pa.array([2**40]), "int", "'1099511627776' is no int32"),
    (pa.array(["1", "x"]), "int", "'x' is no int32"),
    (pa.array([datetime(2024, 1, 1), datetime(2024, 1, 1, 1)]), "date", "'2024-01-01 01:00:00.*' is no date32"),
    (pa.array([1], pa.timestamp("ns")), "timestamp", "'1970-01-01 00:00:00.000000001' is no timestamp.us."),
    (pa.array([2**62], pa.timestamp("us")), "date", r"'\+148108-\d\d-\d\dT.*' is no date32"),
    (pa.array([2**31 - 1], pa.date32()), "timestamp", r"'\+5881580-07-11' is no timestamp.us."),
    (pa.array([b"\xff"]), "string", "is no string"),
    (pa.array([[1]]), "string", "list"),
    (pa.array([date(2024, 1, 1)]), "int", "date32.day.*int32"),
]


@pytest.mark.parametrize(("array", "name", "message"), _REFUSED, ids=[f"{a.type} {name}" for a, name, _ in _REFUSED])
def test_lossy_conversions_are_refused(tmp_path: Path, array: pa.Array, name: str, message: str) -> None:
    """The error for a conversion with loss has the file, the column, and the first value that changes.

    If no value can be converted, it has the types instead.
    """
    pq.write_table(pa.table({"a": array}), tmp_path / "a.parquet")
    with pytest.raises(FragmentError, match=rf"a\.parquet.*'a'.*{message}.*`schema`"):
        read_columns(_snapshot(tmp_path, {"a": name}))


def test_a_declared_type_resolves_conflicts_of_files(tmp_path: Path) -> None:
    """Columns whose types differ between files are an error unless types are declared for them.

    The columns may be nested. The files are Parquet, ORC and Avro files.
    """
    table = pa.table({"a": [1], "s": [{"x": "1"}], "l": [[1]]})
    other = pa.table({"a": ["01"], "s": [{"x": 2}], "l": [["2"]]})
    avro = tmp_path / "avro"
    for kind, write in (("parquet", pq.write_table), ("orc", pyarrow_orc.write_table)):
        folder = tmp_path / kind
        folder.mkdir()
        write(table, f"{folder}/1.{kind}")
        write(other, f"{folder}/2.{kind}")
    avro.mkdir()
    for number, (rows, kinds) in enumerate(
        [(table.to_pylist(), "long string long"), (other.to_pylist(), "string long string")]
    ):
        a, x, element = kinds.split()
        fields = [
            {"name": "a", "type": a},
            {"name": "s", "type": {"type": "record", "name": "s", "fields": [{"name": "x", "type": x}]}},
            {"name": "l", "type": {"type": "array", "items": element}},
        ]
        with (avro / f"{number}.avro").open("wb") as file:
            fastavro.writer(file, {"type": "record", "name": "r", "fields": fields}, rows)
    for kind in ("parquet", "orc", "avro"):
        with pytest.raises(TableFormatError, match=rf"1?\.{kind}.*\.{kind}.*`schema`"):
            _snapshot(tmp_path / kind)
        columns = read_columns(_snapshot(tmp_path / kind, {"a": "string", "s.x": "int", "l.element": "string"}))
        assert sorted(columns["a"]) == ["01", "1"]
        assert sorted(row["x"] for row in columns["s"]) == [1, 2]
        assert sorted(columns["l"]) == [["1"], ["2"]]


def test_other_types_change_the_snapshot_and_not_the_fragments(tmp_path: Path) -> None:
    """A declared type changes the snapshot's id, but no fragment id of a Parquet file.

    It changes the fragment ids of CSV files, which are read again.
    """
    pq.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")
    before, after = _snapshot(tmp_path), _snapshot(tmp_path, {"a": "string"})
    assert before.id != after.id
    assert before.fragments[0].id == after.fragments[0].id
    config = {"name": "t", "uri": str(tmp_path), "schema": {"a": "string"}}
    assert open_table_format(TableConfig.model_validate(config)).snapshot_id() == after.id
    (tmp_path / "a.parquet").unlink()
    (tmp_path / "a.csv").write_text("a\n1\n")
    assert _snapshot(tmp_path).fragments[0].id != _snapshot(tmp_path, {"a": "string"}).fragments[0].id


@pytest.mark.parametrize("write", ["pandas", "polars"])
def test_integers_and_floats_are_one_column(tmp_path: Path, write: str) -> None:
    """A column with integers in one file and floats in another is a column of floats.

    pandas writes integers with nulls as floats. Integers up to 2^53 are the same numbers as floats.
    """
    numbers = [[1, 2**53, -(2**53)], [1, None, 3]]
    for number, values in enumerate(numbers):
        if write == "pandas":
            pd.DataFrame({"a": values}).to_parquet(tmp_path / f"{number}.parquet", index=False)
        else:
            pl.DataFrame(
                {"a": pl.Series(values, dtype=pl.UInt64 if number < 0 else pl.Float64 if number else pl.Int64)}
            ).write_parquet(tmp_path / f"{number}.parquet")
    snapshot = _snapshot(tmp_path)
    assert snapshot.schema == pa.schema([("a", pa.float64())])
    assert sorted(read_columns(snapshot)["a"], key=str) == sorted([1.0, 2.0**53, -(2.0**53), 1.0, None, 3.0], key=str)
    (reason,) = snapshot.type_reasons
    assert (reason.column, reason.type, reason.counterexample) == ("a", pa.int64(), f"double in {tmp_path}/1.parquet")


def test_an_integer_that_floats_round_is_refused(tmp_path: Path) -> None:
    """An integer beyond 2^53 in a column that another file stores as floats is an error.

    If a footer shows the integer, planning fails with the column and both files, in either order. Otherwise, reading
    the file fails with the value.
    """
    pq.write_table(pa.table({"a": [2**53 + 1]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"a": [0.5]}), tmp_path / "b.parquet")
    with pytest.raises(TableFormatError, match=r"'a'.*2\^53.*a\.parquet.*double.*b\.parq.*`schema`"):
        _snapshot(tmp_path)
    orc = tmp_path / "orc"
    orc.mkdir()
    pyarrow_orc.write_table(pa.table({"a": [2**53 + 1]}), str(orc / "b.orc"))
    pyarrow_orc.write_table(pa.table({"a": [0.5]}), str(orc / "a.orc"))
    with pytest.raises(TableFormatError, match=r"2\^53.*b\.orc.*double.*a\.orc"):
        _snapshot(orc)
    shutil.rmtree(orc)
    pq.write_table(pa.table({"a": [2**53 + 1]}), tmp_path / "a.parquet", write_statistics=False)
    with pytest.raises(FragmentError, match=r"a\.parquet: .*'a'.*'9007199254740993'.*double.*`schema`"):
        read_columns(_snapshot(tmp_path))
    assert sorted(read_columns(_snapshot(tmp_path, {"a": "string"}))["a"]) == ["0.5", "9007199254740993"]


_ARRAYS = st.sampled_from([pa.int64(), pa.int8(), pa.float64(), pa.decimal128(12, 3), pa.string(), pa.timestamp("us")])


@given(st.data(), _ARRAYS, st.sampled_from([type_ for _, type_ in _NAMES if type_ != pa.uuid()]))
def test_conversions_are_reversible(data: st.DataObject, stored_type: pa.DataType, declared_type: pa.DataType) -> None:
    """Converted values equal the stored ones and have the same nulls, or the conversion is an error.

    Values are not compared if one of the types is text or binary.
    """
    strategies = {
        pa.int64(): st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3),
        pa.int8(): st.integers(-128, 127),
        pa.float64(): st.floats(allow_nan=False) | st.integers(-100, 100).map(float),
        pa.decimal128(12, 3): st.decimals(-(10**8), 10**8, places=3),
        pa.string(): st.sampled_from(["1", "x", "0.5", "true", "2024-01-01", "10:00", ""]),
        pa.timestamp("us"): st.datetimes(datetime(1, 1, 1))
        | st.dates().map(lambda day: datetime(day.year, day.month, day.day)),
    }
    values = data.draw(st.lists(st.none() | strategies[stored_type], max_size=4))
    array = pa.array(values, stored_type)
    try:
        result = cast_losslessly(array, declared_type)
    except pa.ArrowInvalid:
        return
    assert result.type == declared_type
    assert result.is_null().to_pylist() == [value is None for value in values]
    if pa.types.is_string(stored_type) or pa.types.is_string(declared_type) or pa.types.is_binary(declared_type):
        return
    for before, after in zip(values, result.to_pylist(), strict=True):
        if isinstance(before, datetime):
            same = after if isinstance(after, datetime) else datetime(after.year, after.month, after.day)
            assert same.replace(tzinfo=None) == before
        elif isinstance(before, Decimal) and isinstance(after, float):
            assert round(Decimal(after), 3) == before
        elif before is not None:
            assert float(after) == float(before)


@pytest.mark.parametrize(("name", "content"), [("x.csv", ""), ("x.csv", "\n"), ("x.json", ""), ("k=1/x.json", "\n")])
def test_files_without_rows_do_not_contradict_declared_types(tmp_path: Path, name: str, content: str) -> None:
    """Declared types are no error in a table whose files have no rows.

    Such files do not show which columns the table has. If the option `columns` names columns, the table has these
    columns even without rows. An example is a new table of a Hive metastore.
    """
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(content)
    assert set(_snapshot(tmp_path, {"a": "int"}, skip_blank_lines=True).schema.names) <= {"k"}
    if name.endswith(".csv"):
        snapshot = _snapshot(tmp_path, {"a": "int"}, header=False, columns=["a", "b"])
        assert snapshot.schema == pa.schema([("a", pa.int32()), ("b", pa.null())])
        assert sum(fragment.row_count or 0 for fragment in snapshot.fragments) == 0
        assert read_columns(snapshot) == {"a": [], "b": []}
        (tmp_path / "y.csv").write_text("7,x\n")
        assert read_columns(_snapshot(tmp_path, {"a": "int"}, header=False, columns=["a", "b"])) == {
            "a": [7],
            "b": ["x"],
        }
