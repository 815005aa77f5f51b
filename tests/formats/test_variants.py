"""Shredded variants are assembled as Parquet's specification defines it.

PySpark decodes the results.
"""

from __future__ import annotations

import datetime as dt
import json
import uuid
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.variant_utils import VariantUtils

from metastore_assets.config import TableConfig
from metastore_assets.errors import FragmentError
from metastore_assets.formats import open_table_format
from metastore_assets.formats.schema_casting import FieldMatcher, cast_to_schema
from metastore_assets.formats.variants import VARIANT
from tests.formats.delta.log_writer import add_file, commit, field, metadata, protocol
from tests.formats.iceberg.writer import IcebergWriter, column
from tests.formats.oracle import read_columns

_NAMES = ("event_type", "event_ts", "email", "click")
_NULL = b"\x00"


def _metadata(names: Sequence[str]) -> bytes:
    """Return the metadata of a variant with the given field names in the given order."""
    data = [name.encode() for name in names]
    ends = [sum(map(len, data[:index])) for index in range(len(data) + 1)]
    return bytes([1, len(data), *ends]) + b"".join(data)


def _text(text: str) -> bytes:
    return bytes([len(text) << 2 | 1]) + text.encode()


def _decoded(variants: list[dict[str, bytes] | None]) -> list[Any]:
    return [
        None if one is None else json.loads(VariantUtils.to_json(one["value"], one["metadata"], "UTC"))
        for one in variants
    ]


def _assemble(rows: Sequence[Any], value_type: pa.DataType, names: Sequence[str] = _NAMES) -> list[Any]:
    """Assemble shredded variants, and return them as JSON values.

    Args:
        rows: A pair (`value`, `typed_value`) for each variant; None for null.
        value_type: The type of `typed_value`.
        names: The names in the metadata of each variant.
    """
    type_ = pa.struct([("metadata", pa.binary()), ("value", pa.binary()), ("typed_value", value_type)])
    parts = [row and {"metadata": _metadata(names), "value": row[0], "typed_value": row[1]} for row in rows]
    # A slice shows that offsets are respected.
    array = pa.array([parts[0], *parts], type_).slice(1)
    return _decoded(cast_to_schema(array, VARIANT, FieldMatcher()).to_pylist())


def test_numbers_are_assembled_beside_other_values() -> None:
    rows = [(None, 34), (_NULL, None), (_text("n/a"), None), (None, -(2**40)), None, (None, None)]
    # A variant without any value is a variant null.
    assert _assemble(rows, pa.int64()) == [34, None, "n/a", -(2**40), None, None]


@pytest.mark.parametrize(
    ("type_", "value", "decoded_value"),
    [
        (pa.bool_(), True, True),
        (pa.bool_(), False, False),
        (pa.int8(), -128, -128),
        (pa.int16(), 300, 300),
        (pa.int32(), 70_000, 70_000),
        (pa.int64(), 2**63 - 1, 2**63 - 1),
        (pa.float32(), 0.5, 0.5),
        (pa.float64(), 0.1, 0.1),
        (pa.decimal128(9, 2), Decimal("-1234567.89"), -1234567.89),
        (pa.decimal128(18, 3), Decimal("1234567.891"), 1234567.891),
        (pa.decimal128(38, 1), Decimal("-0.5"), -0.5),
        (pa.string(), "é", "é"),
        (pa.string(), "long " * 100, "long " * 100),
        (pa.binary(), b"\x00\xff", "AP8="),
        (pa.date32(), dt.date(1969, 12, 31), "1969-12-31"),
        (pa.timestamp("us", "UTC"), dt.datetime(2024, 1, 2, 3, 4, 5, 6, dt.UTC), "2024-01-02 03:04:05.000006+00:00"),
        (pa.timestamp("us"), dt.datetime(2024, 1, 2, 3, 4, 5, 6), "2024-01-02 03:04:05.000006"),
    ],
    ids=str,
)
def test_values_of_every_type_are_assembled(type_: pa.DataType, value: Any, decoded_value: Any) -> None:
    assert _assemble([(None, value), (_text("x"), None)], type_) == [decoded_value, "x"]


@pytest.mark.parametrize(
    ("type_", "value", "stored_bytes"),
    [
        (pa.time64("us"), 5, b"\x44\x05\0\0\0\0\0\0\0"),
        (pa.timestamp("ns", "UTC"), 5, b"\x48\x05\0\0\0\0\0\0\0"),
        (pa.timestamp("ns"), -2, b"\x4c\xfe\xff\xff\xff\xff\xff\xff\xff"),
    ],
    ids=str,
)
def test_types_that_spark_lacks_are_assembled(type_: pa.DataType, value: int, stored_bytes: bytes) -> None:
    typed_values = pa.array([value], pa.int64()).view(type_)
    array = pa.StructArray.from_arrays([pa.array([b"\x01\x00\x00"]), typed_values], ["metadata", "typed_value"])
    assert cast_to_schema(array, VARIANT, FieldMatcher())[0]["value"].as_py() == stored_bytes


def test_uuids_are_assembled() -> None:
    value = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
    typed_values = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([value.bytes], pa.binary(16)))
    array = pa.StructArray.from_arrays([pa.array([_metadata(())]), typed_values], ["metadata", "typed_value"])
    assert cast_to_schema(array, VARIANT, FieldMatcher())[0]["value"].as_py() == b"\x50" + value.bytes


def test_arrays_are_assembled() -> None:
    element = pa.struct([("value", pa.binary()), ("typed_value", pa.string())])
    comedy, horror, null = ({"typed_value": "comedy"}, {"typed_value": "horror"}, {"value": _NULL})
    rows = [(None, [comedy]), (None, [horror, null]), (_NULL, None), (None, []), (_text("x"), None), (None, [{}] * 300)]
    expected = [["comedy"], ["horror", None], None, [], "x", [None] * 300]
    assert _assemble(rows, pa.list_(element)) == expected


def _object(**fields: bytes) -> bytes:
    """Encode an object from its encoded fields, with names from `_NAMES`.

    The values are stored in reverse order of the names.
    """
    names = sorted(fields)
    values, offsets = b"", {}
    for name in reversed(names):
        offsets[name] = len(values)
        values += fields[name]
    ids = [_NAMES.index(name) for name in names]
    return bytes([2, len(names), *ids, *(offsets[name] for name in names), len(values)]) + values


def test_objects_are_assembled() -> None:
    """Shredded objects give the values of the examples in Parquet's specification."""
    stamp = pa.timestamp("us", "UTC")
    value_type = pa.struct(
        [
            ("event_type", pa.struct([("value", pa.binary()), ("typed_value", pa.string())])),
            ("event_ts", pa.struct([("value", pa.binary()), ("typed_value", stamp)])),
        ]
    )
    moment = {"typed_value": dt.datetime(2024, 10, 24, tzinfo=dt.UTC)}
    event_time = "2024-10-24 00:00:00+00:00"
    rows = [
        (None, {"event_type": {"typed_value": "noop"}, "event_ts": moment}),
        (_object(email=_text("a@b"), click=_text("_b")), {"event_type": {"typed_value": "login"}, "event_ts": moment}),
        (_object(email=_text("e")), {"event_type": {}, "event_ts": {}}),
        (_text("malformed"), None),
        (_object(click=_text("_b")), {"event_type": {}, "event_ts": moment}),
        (None, {"event_type": {"value": _NULL}, "event_ts": moment}),
        (None, {"event_type": {"typed_value": "noop"}, "event_ts": {"value": _text("2024-10-24")}}),
        (None, {"event_type": {}, "event_ts": {}}),
        (_NULL, None),
        None,
    ]
    assert _assemble(rows, value_type) == [
        {"event_type": "noop", "event_ts": event_time},
        {"event_type": "login", "event_ts": event_time, "email": "a@b", "click": "_b"},
        {"email": "e"},
        "malformed",
        {"event_ts": event_time, "click": "_b"},
        {"event_type": None, "event_ts": event_time},
        {"event_type": "noop", "event_ts": "2024-10-24"},
        {},
        None,
        None,
    ]


def test_nested_objects_of_many_fields_are_assembled() -> None:
    names = [f"field {number}" for number in range(300)]
    inner = pa.struct([(name, pa.struct([("typed_value", pa.int32())])) for name in names])
    value_type = pa.struct([("field 7", pa.struct([("value", pa.binary()), ("typed_value", inner)]))])
    value = {name: {"typed_value": number * 1000} for number, name in enumerate(names)}
    lengths = [sum(len(name) for name in names[:index]) for index in range(301)]
    metadata = bytes([0x41]) + b"".join(n.to_bytes(2, "little") for n in [300, *lengths]) + "".join(names).encode()
    array = pa.array(
        [{"metadata": metadata, "typed_value": {"field 7": {"typed_value": value}}}],
        pa.struct([("metadata", pa.binary()), ("typed_value", value_type)]),
    )
    (decoded_value,) = _decoded(cast_to_schema(array, VARIANT, FieldMatcher()).to_pylist())
    assert decoded_value == {"field 7": {name: number * 1000 for number, name in enumerate(names)}}


def test_variants_that_duckdb_shreds_are_assembled(tmp_path: Path) -> None:
    """Variants that DuckDB shreds in part are assembled to the JSON documents from which it wrote them."""
    values: list[Any] = [
        {"id": number, "tags": ["a", number, None], "at": {"x": number / 4, "y": "s" * number}} for number in range(100)
    ]
    values += [None, 5, "text", [1, [2.5]], {"id": "text", "other": {"x": True}}, {}, []]
    documents = pa.table({"document": [value if value is None else json.dumps(value) for value in values]})
    database = duckdb.connect()
    database.register("documents", documents)
    database.sql(f"copy (select document::json::variant v from documents) to '{tmp_path}/v.parquet'")
    array = pq.read_table(tmp_path / "v.parquet")["v"].combine_chunks()
    assert array.type.get_field_index("typed_value") >= 0
    assert _decoded(cast_to_schema(array, VARIANT, FieldMatcher()).to_pylist()) == values


@pytest.mark.parametrize(
    ("value_type", "row"),
    [
        (pa.int64(), (_text("x"), 5)),
        (pa.struct([("unknown", pa.struct([("typed_value", pa.int64())]))]), (None, {"unknown": {"typed_value": 1}})),
        (pa.struct([("click", pa.struct([("typed_value", pa.int64())]))]), (_text("x"), {"click": {}})),
        (pa.struct([("click", pa.struct([("typed_value", pa.int64())]))]), (b"\x02\x09", {"click": {}})),
        (pa.uint32(), (None, 5)),
    ],
    ids=["two values", "unknown name", "no object", "truncated", "no type of variants"],
)
def test_corrupt_variants_are_errors(value_type: pa.DataType, row: Any) -> None:
    with pytest.raises(pa.ArrowInvalid, match="variant"):
        _assemble([row], value_type)


def test_shredded_variants_of_delta_and_iceberg_are_read(tmp_path: Path) -> None:
    type_ = pa.struct([("metadata", pa.binary()), ("value", pa.binary()), ("typed_value", pa.int64())])
    shredded_array = pa.array([{"metadata": b"\x01\x00\x00", "value": None, "typed_value": 5}, None], type_)
    plain = pa.array([{"metadata": b"\x01\x00\x00", "value": b"\x0c\x05"}, None])
    table = tmp_path / "delta"
    files = [add_file(table, pa.table({"v": shredded_array})), add_file(table, pa.table({"v": plain}), "g.parquet")]
    commit(table, protocol("variantType", "variantShredding"), metadata([field("v", "variant")]), *files)
    writer = IcebergWriter(tmp_path / "iceberg", [column(1, "v", "variant")], version=3)
    writer.commit(writer.data(pa.table({"v": shredded_array})), writer.data(pa.table({"v": plain})))
    for uri in (table, writer.folder):
        snapshot = open_table_format(TableConfig(name="t", uri=str(uri))).snapshot()
        assert read_columns(snapshot)["v"] == plain.to_pylist() * 2


def test_a_corrupt_variant_of_a_table_is_named(tmp_path: Path) -> None:
    both = pa.array([{"metadata": b"\x01\x00\x00", "value": b"\x0c\x05", "typed_value": 5}])
    features = protocol("variantType", "variantShredding")
    commit(tmp_path, features, metadata([field("v", "variant")]), add_file(tmp_path, pa.table({"v": both})))
    snapshot = open_table_format(TableConfig(name="t", uri=str(tmp_path))).snapshot()
    with pytest.raises(FragmentError, match=r"f\.parquet.*'v'"):
        read_columns(snapshot)
