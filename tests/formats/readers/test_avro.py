"""Avro files: types, codecs, field ids at every depth, unions, and corrupt files."""

from __future__ import annotations

import io
import json
import tempfile
import zlib
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets import profile
from metastore_assets.config import TableConfig
from metastore_assets.errors import TableFormatError
from metastore_assets.formats import open_table_format
from metastore_assets.formats.readers import avro
from metastore_assets.formats.readers.avro import AvroColumns
from metastore_assets.formats.readers.columns import open_columns
from tests.formats.oracle import read_columns


def _file(fields: list[dict[str, Any]], records: list[dict[str, Any]], codec: str = "null") -> bytes:
    sink = io.BytesIO()
    schema = {"type": "record", "name": "row", "fields": fields}
    fastavro.writer(sink, fastavro.parse_schema(schema), records, codec=codec, sync_interval=100)
    return sink.getvalue()


def _columns(data: bytes) -> dict[str, list[Any]]:
    columns = open_columns("avro", pa.BufferReader(data))
    result = {}
    for index, field in enumerate(columns.fields):
        chunks = list(columns.read(index))
        for chunk in chunks:
            chunk.validate(full=True)
            assert chunk.type == field.type
        result[field.name] = [value for chunk in chunks for value in chunk.to_pylist()]
        assert len(result[field.name]) == columns.row_count
    columns.close()
    return result


def _logical(type_: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": type_, "logicalType": name, **more}


_ENUM = {"type": "enum", "name": "e", "symbols": ["A", "B"]}
_FIXED = {"type": "fixed", "name": "f", "size": 3}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TYPES: list[tuple[Any, pa.DataType, list[Any], list[Any] | None]] = [
    ("int", pa.int32(), [-(2**31), 2**31 - 1], None),
    ("long", pa.int64(), [-(2**63), 2**63 - 1], None),
    ("float", pa.float32(), [1.5, float("inf")], None),
    ("double", pa.float64(), [0.1, -0.0], None),
    ("boolean", pa.bool_(), [True, False], None),
    ("bytes", pa.binary(), [b"", b"\xff\0"], None),
    ("string", pa.string(), ["", "é😀"], None),
    ("null", pa.null(), [None, None], None),
    (_FIXED, pa.binary(3), [b"abc"], None),
    (_FIXED | {"size": 0}, pa.binary(), [b"", b""], None),
    (_ENUM, pa.string(), ["B", "A"], None),
    ({"type": "array", "items": ["null", "long"]}, pa.list_(pa.field("element", pa.int64())), [[1, None], []], None),
    (
        {"type": "map", "values": _FIXED},
        pa.map_(pa.string(), pa.binary(3)),
        [{"k": b"abc"}, {}],
        [[("k", b"abc")], []],
    ),
    (_logical("int", "date"), pa.date32(), [date(1, 1, 1), date(9999, 12, 31)], None),
    (_logical("int", "time-millis"), pa.time32("ms"), [time(1, 2, 3, 4000)], None),
    (_logical("long", "time-micros"), pa.time64("us"), [time(1, 2, 3, 4)], None),
    (_logical("long", "timestamp-millis"), pa.timestamp("ms", "UTC"), [_EPOCH - timedelta(days=700_000)], None),
    (_logical("long", "timestamp-micros"), pa.timestamp("us", "UTC"), [_EPOCH + timedelta(microseconds=1)], None),
    (_logical("long", "local-timestamp-millis"), pa.timestamp("ms"), [datetime(2024, 1, 1)], None),
    (_logical("long", "local-timestamp-micros"), pa.timestamp("us"), [datetime(9999, 12, 31)], None),
    (_logical("bytes", "decimal", precision=4, scale=2), pa.decimal128(4, 2), [Decimal("-99.99"), Decimal("0")], None),
    (_logical("bytes", "decimal", precision=50), pa.decimal256(50, 0), [Decimal(10**49)], None),
    (_logical("bytes", "decimal", precision=77, scale=38), pa.decimal256(76, 38), [Decimal(-(10**37))], None),
    (
        {"type": "fixed", "name": "d", "size": 5, "logicalType": "decimal", "precision": 9, "scale": 1},
        pa.decimal128(9, 1),
        [Decimal("-12345678.9")],
        None,
    ),
    (_logical("string", "uuid"), pa.string(), [str(UUID(int=5))], None),
    (
        {"type": "record", "name": "r", "fields": [{"name": "x", "type": ["null", "int"]}]},
        pa.struct([("x", pa.int32())]),
        [{"x": 1}, {"x": None}],
        None,
    ),
    (
        ["int", "string"],
        pa.struct([("member0", pa.int32()), ("member1", pa.string())]),
        [1, "a"],
        [{"member0": 1, "member1": None}, {"member0": None, "member1": "a"}],
    ),
    (["long", "null", "int"], pa.int64(), [2**40, None], None),
    (["float", "double"], pa.float64(), [0.1], None),
    (
        ["null", {"type": "array", "items": ["null", _ENUM, "bytes"]}],
        pa.list_(pa.field("element", pa.struct([("member0", pa.string()), ("member1", pa.binary())]))),
        [["A", b"x", None], None],
        [[{"member0": "A", "member1": None}, {"member0": None, "member1": b"x"}, None], None],
    ),
]


@pytest.mark.parametrize(("type_", "arrow", "values", "read"), _TYPES, ids=[json.dumps(row[0]) for row in _TYPES])
def test_every_type(type_: Any, arrow: pa.DataType, values: list[Any], read: list[Any] | None) -> None:
    """Each type is read at top level, and as a nullable type of a field in a list of records.

    Unions and null are read at top level only.
    """
    data = _file([{"name": "a", "type": type_}], [{"a": value} for value in values])
    assert avro.read_avro_fields(pa.BufferReader(data)) == [pa.field("a", arrow)]
    expected = values if read is None else read
    assert _columns(data) == {"a": expected}
    if isinstance(type_, list) or type_ == "null":
        return
    inner = {"type": "record", "name": "outer", "fields": [{"name": "b", "type": ["null", type_]}]}
    nested_rows = [{"a": [None, *({"b": value} for value in values), {"b": None}]}]
    data = _file([{"name": "a", "type": {"type": "array", "items": ["null", inner]}}], nested_rows)
    assert _columns(data) == {"a": [[None, *({"b": value} for value in expected), {"b": None}]]}


def test_nanoseconds_uuids_and_logical_types_that_do_not_fit() -> None:
    """Nanoseconds and UUIDs have Arrow's types.

    A logical type that does not fit its Avro type is ignored.
    """
    raw = {"n": 1, "l": -1, "u": UUID(int=7).bytes, "d": b"\x01", "t": "x", "i": 5, "z": 6}
    fixed_type = {"type": "fixed", "name": "uuid16", "size": 16}
    plain = [
        ("n", "long"),
        ("l", "long"),
        ("u", fixed_type),
        ("d", "bytes"),
        ("t", "string"),
        ("i", "int"),
        ("z", "long"),
    ]
    logical_types = [
        _logical("long", "timestamp-nanos"),
        _logical("long", "local-timestamp-nanos"),
        {**fixed_type, "logicalType": "uuid"},
        _logical("bytes", "decimal", precision=2, scale=3),
        _logical("string", "date"),
        _logical("int", "timestamp-micros"),
        _logical("long", "timestamp-micros", **{"adjust-to-utc": False}),
    ]
    block = io.BytesIO()
    fastavro.schemaless_writer(block, _record([{"name": name, "type": type_} for name, type_ in plain]), raw)
    names = [name for name, _ in plain]
    schema = _record([{"name": name, "type": type_} for name, type_ in zip(names, logical_types, strict=True)])
    columns = open_columns("avro", pa.BufferReader(_container(schema, [(1, block.getvalue())])))
    assert [field.type for field in columns.fields] == [
        pa.timestamp("ns", "UTC"),
        pa.timestamp("ns"),
        pa.uuid(),
        pa.binary(),
        pa.string(),
        pa.int32(),
        pa.timestamp("us"),
    ]
    values = [next(iter(columns.read(index))) for index in range(7)]
    assert [array.cast(pa.int64()).to_pylist() for array in values[:2]] == [[1], [-1]]
    assert [array.to_pylist()[0] for array in values[2:6]] == [UUID(int=7), b"\x01", "x", 5]


_SYNC = b"0123456789abcdef"


def _record(fields: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "record", "name": "row", "fields": fields}


def _container(schema: Any, blocks: list[tuple[int, bytes]], codec: str = "null") -> bytes:
    """Return a file of blocks, given as (number of records, bytes), built according to the specification."""
    file = io.BytesIO()
    file.write(b"Obj\x01")
    metadata = {"avro.schema": json.dumps(schema).encode(), "avro.codec": codec.encode()}
    fastavro.schemaless_writer(file, {"type": "map", "values": "bytes"}, metadata)
    file.write(_SYNC)
    for count, data in blocks:
        fastavro.schemaless_writer(file, "long", count)
        fastavro.schemaless_writer(file, "bytes", data)
        file.write(_SYNC)
    return file.getvalue()


def test_field_ids_are_on_every_depth() -> None:
    """Field ids are read for fields, elements, keys and values.

    Maps that Iceberg writes as arrays of key-value records have them, too.
    """
    pair = _record([{"name": "key", "type": "int", "field-id": 8}, {"name": "value", "type": "long", "field-id": 9}])
    struct = {"type": "record", "name": "s", "fields": [{"name": "x", "type": "int", "field-id": 3}]}
    fields = [
        {"name": "a", "type": ["null", {"type": "array", "items": struct, "element-id": 2}], "field-id": 1},
        {"name": "m", "type": {"type": "map", "values": "long", "key-id": 5, "value-id": 6}, "field-id": 4},
        {
            "name": "p",
            "type": {"type": "array", "logicalType": "map", "items": pair | {"name": "k8_v9"}, "element-id": 10},
            "field-id": 7,
        },
    ]
    data = _file(fields, [{"a": [{"x": 1}], "m": {"k": 2}, "p": [{"key": 3, "value": 4}]}])
    columns = open_columns("avro", pa.BufferReader(data))
    a, m, p = columns.fields
    inside = [a, a.type.value_field, a.type.value_type.field("x")]
    inside += [m, m.type.key_field, m.type.item_field, p, p.type.key_field, p.type.item_field]
    assert [field.metadata[b"PARQUET:field_id"] for field in inside] == [
        b"1",
        b"2",
        b"3",
        b"4",
        b"5",
        b"6",
        b"7",
        b"8",
        b"9",
    ]
    assert p.type == pa.map_(pa.int32(), pa.int64())
    assert _columns(data) == {"a": [[{"x": 1}]], "m": [[("k", 2)]], "p": [[(3, 4)]]}


def test_names_are_resolved_in_their_namespace() -> None:
    """A named type is referenced by its name and namespace after its definition.

    Names of fields may be arbitrary.
    """
    inner = {"type": "fixed", "name": "id", "namespace": "other", "size": 2}
    outer = {"type": "record", "name": "o", "namespace": "ns", "fields": [{"name": "x", "type": inner}]}
    fields = [
        {"name": "a-b", "type": outer},
        {"name": "b", "type": "ns.o"},
        {"name": "c", "type": ["null", "other.id"]},
    ]
    value = {"x": b"ab"}
    data = _container(_record(fields), [(1, b"ababzz"[:4] + b"\x02zz")])
    assert _columns(data) == {"a-b": [value], "b": [value], "c": [b"zz"]}


@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2", "xz"])
def test_codecs_that_another_library_writes(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that fastavro writes in each of its codecs are read, in batches of seven rows.

    The sizes of blocks do not matter.
    """
    monkeypatch.setattr(avro, "_BATCH_ROWS", 7)
    data = _file([{"name": "a", "type": "long"}], [{"a": number} for number in range(500)], codec)
    assert _columns(data) == {"a": list(range(500))}


def test_codecs_that_arrow_writes() -> None:
    """Blocks in the codecs Snappy and Zstandard are read, and the checksum of Snappy is verified."""
    plain = bytes([2, 4, 6])
    snappy = pa.compress(plain, codec="snappy", asbytes=True)
    check = zlib.crc32(plain).to_bytes(4, "big")
    schema = _record([{"name": "a", "type": "int"}])
    assert _columns(_container(schema, [(3, snappy + check)], "snappy")) == {"a": [1, 2, 3]}
    with pytest.raises(pa.ArrowInvalid, match="checksum"):
        _columns(_container(schema, [(3, snappy + b"1234")], "snappy"))
    zstd = pa.compress(plain, codec="zstd", asbytes=True)
    assert _columns(_container(schema, [(3, zstd)], "zstandard")) == {"a": [1, 2, 3]}


_NODE = {"type": "record", "name": "node", "fields": [{"name": "next", "type": ["null", "node"]}]}


@pytest.mark.parametrize(
    ("type_", "message"),
    [
        (_NODE, "'node'.*itself"),
        (["int", "long", "string"], "int32, int64, string"),
        ("missing", "'missing'"),
        (_logical("bytes", "decimal", precision=100, scale=77), r"\b77\b"),
        ({"type": "array"}, r"schema.*\bbroken\b"),
    ],
)
def test_schemas_without_a_reader_are_named(tmp_path: Path, type_: Any, message: str) -> None:
    """Planning a table reports the unsupported type in the schema of an Avro file."""
    (tmp_path / "a.avro").write_bytes(_container(_record([{"name": "a", "type": type_}]), []))
    with pytest.raises(TableFormatError, match=rf"a\.avro.*{message}"):
        open_table_format(TableConfig(name="t", uri=str(tmp_path))).snapshot()


def test_a_decimal_of_more_digits_than_arrow_has_is_an_error() -> None:
    """In a column of 77 digits, values of up to 76 digits are read, and a longer one is an error.

    BigQuery's BIGNUMERIC has 77 digits.
    """
    field = {"name": "a", "type": _logical("bytes", "decimal", precision=77, scale=38)}
    assert _columns(_file([field], [{"a": Decimal(10**38 - 1)}])) == {"a": [Decimal(10**38 - 1)]}
    with pytest.raises(pa.ArrowInvalid, match="precision"):
        _columns(_file([field], [{"a": Decimal(10**38)}]))


_INT = _record([{"name": "a", "type": "int"}])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "`Obj`"),
        (b"Obj\x01", "early"),
        (_container(_INT, [(3, b"\x02\x04\x06")])[:-1], "early"),
        (_container(_INT, [(3, b"\x02\x04\x06")])[:-1] + b"x", "marker"),
        (_container(_INT, [(2, b"\x02\x04\x06")]), "longer"),
        (_container(_INT, [(4, b"\x02\x04\x06")]), "early|broken"),
        (_container(_INT, [(-1, b"\x02")]), "fewer"),
        (_container(_INT, [], "lzo"), "codec 'lzo'"),
        (_container(_INT, [(1, b"junk")], "deflate"), "truncated"),
        (_container("int", [(1, b"\x02")]), r"schema.*\brecord\b"),
        (_container(_record([{"name": "a", "type": "int"}] * 2), []), r"columns.*'a'"),
    ],
)
def test_corrupt_files_are_errors(data: bytes, message: str) -> None:
    """Each kind of corruption of an Avro file is an error that describes it."""
    with pytest.raises(pa.ArrowInvalid, match=message):
        open_columns("avro", pa.BufferReader(data))


_VALUE = st.none() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=3) | st.binary(max_size=3) | st.booleans()
_UNION = ["null", "long", "string", "bytes", "boolean"]


@given(st.lists(st.lists(_VALUE, max_size=3), max_size=8))
def test_rows_written_by_another_library(rows: list[list[Any]]) -> None:
    """Random values in all branches of a union, as fastavro writes them, are read back."""
    fields = [{"name": "a", "type": {"type": "array", "items": _UNION}}]
    read = _columns(_file(fields, [{"a": row} for row in rows]))["a"]
    kinds = [int, str, bytes, bool]
    assert [[_chosen(item) for item in row] for row in read] == rows
    for row, items in zip(rows, read, strict=True):
        for value, item in zip(row, items, strict=True):
            assert item is None or item[f"member{kinds.index(type(value))}"] == value


def _chosen(item: dict[str, Any] | None) -> Any:
    return None if item is None else next(value for value in item.values() if value is not None)


def test_a_table_of_avro_files(tmp_path: Path) -> None:
    """Schemas of several Avro files are merged by name, and planning counts no rows.

    A conflict of types names both files.
    """
    (tmp_path / "1.avro").write_bytes(_file([{"name": "a", "type": "int"}], [{"a": 1}]))
    two = _file([{"name": "b", "type": "string"}, {"name": "a", "type": "long"}], [{"a": 2**40, "b": "x"}])
    (tmp_path / "2.avro").write_bytes(two)
    snapshot = open_table_format(TableConfig(name="t", uri=str(tmp_path))).snapshot()
    assert snapshot.schema == pa.schema([("a", pa.int64()), ("b", pa.string())])
    columns = read_columns(snapshot)
    assert sorted(zip(columns["a"], columns["b"], strict=True)) == [(1, None), (2**40, "x")]
    assert [fragment.row_count for fragment in snapshot.fragments] == [None, None]
    (tmp_path / "3.avro").write_bytes(_file([{"name": "a", "type": "string"}], [{"a": "x"}]))
    with pytest.raises(TableFormatError, match=r"'a'.*int64.*2\.avro.*string.*3\.avro"):
        open_table_format(TableConfig(name="t", uri=str(tmp_path))).snapshot()


def test_the_temporary_file_has_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The temporary file of decoded rows has no name, so it cannot remain after a kill."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    columns = AvroColumns(pa.BufferReader(_container(_INT, [(3, b"\x02\x04\x06")])))
    assert list(tmp_path.iterdir()) == []
    assert columns.row_count == 3


_EMPTY = {"type": "record", "name": "empty", "fields": []}


def test_records_without_fields_have_rows(tmp_path: Path) -> None:
    """A file without columns has as many rows as it has records."""
    (tmp_path / "a.avro").write_bytes(_file([], [{}] * 3))
    columns = open_columns("avro", pa.BufferReader(_file([], [{}] * 3)))
    assert (columns.fields, columns.row_count) == ([], 3)
    assert profile(tmp_path).count().value == 3


@pytest.mark.parametrize(
    ("type_", "values", "read"),
    [
        (["null", _EMPTY], [{}, None], None),
        (_EMPTY, [{}, {}], None),
        ({"type": "array", "items": ["null", _EMPTY]}, [[{}, None], []], None),
        ({"type": "map", "values": _EMPTY}, [{"k": {}}, {}], [[("k", {})], []]),
        (
            {"type": "record", "name": "r", "fields": [{"name": "x", "type": ["null", _EMPTY]}]},
            [{"x": {}}, {"x": None}],
            None,
        ),
        (
            ["null", _EMPTY, "int"],
            [("empty", {}), None, 1],
            [{"member0": {}, "member1": None}, None, {"member0": None, "member1": 1}],
        ),
    ],
    ids=str,
)
def test_structs_without_fields(tmp_path: Path, type_: Any, values: list[Any], read: list[Any] | None) -> None:
    """Structs without fields are read at any depth, with their nulls."""
    expected = values if read is None else read
    data = _file([{"name": "a", "type": type_}, {"name": "b", "type": "int"}], [{"a": row, "b": 7} for row in values])
    assert _columns(data) == {"a": expected, "b": [7] * len(values)}
    (tmp_path / "a.avro").write_bytes(data)
    statistics = {row.column: row for row in profile(tmp_path).statistics()}
    assert statistics["a"].null_count == expected.count(None)


def test_the_partition_of_an_unpartitioned_manifest(tmp_path: Path) -> None:
    """A struct without fields has the null count 0.

    An example is `partition` in a manifest of an unpartitioned Iceberg table.
    """
    entry = {
        "type": "record",
        "name": "data_file",
        "fields": [
            {"name": "file_path", "type": "string"},
            {"name": "partition", "type": {"type": "record", "name": "r102", "fields": []}},
        ],
    }
    rows = [{"data_file": {"file_path": f"{number}.parquet", "partition": {}}} for number in range(2)]
    (tmp_path / "m.avro").write_bytes(_file([{"name": "data_file", "type": entry}], rows))
    statistics = {row.column: row.null_count for row in profile(tmp_path).statistics()}
    assert statistics == {"data_file": 0, "data_file.file_path": 0, "data_file.partition": 0}
