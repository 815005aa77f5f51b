"""Delta tables: column mapping, type widening, partition values, paths, features, and the log's forms."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from metastore_assets.config import TableConfig
from metastore_assets.errors import FragmentError, TableFormatError, TableNotFoundError
from metastore_assets.formats import Snapshot, decode_partition_key, open_table_format
from metastore_assets.formats.base import FIELD_ID
from tests.formats.delta_log_writer import add_file, commit, field, mapped, metadata, protocol
from tests.formats.oracle import read_columns, read_rows


def _snapshot(table: Path) -> Snapshot:
    return open_table_format(TableConfig(name="t", uri=str(table))).snapshot()


def _struct(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields)}


def _list(element: Any) -> dict[str, Any]:
    return {"type": "array", "elementType": element, "containsNull": True}


def _map(key: Any, value: Any) -> dict[str, Any]:
    return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}


def _numbered(name: str, type_: pa.DataType, number: int) -> pa.Field:
    return pa.field(name, type_, metadata={b"PARQUET:field_id": str(number).encode()})


def _inner(number: int) -> pa.DataType:
    """A struct whose fields have the ids `number` and `number + 1`, and the physical names p3 and p4 wherever it is."""
    return pa.struct([_numbered("p3", pa.int32(), number), _numbered("p4", pa.string(), number + 1)])


_PHYSICAL = pa.schema(
    [
        _numbered("p1", pa.int64(), 1),
        _numbered("p2", _inner(3), 2),
        _numbered("p5", pa.list_(_inner(10)), 5),
        _numbered("p6", pa.map_(pa.string(), _inner(12)), 6),
    ]
)
_ROWS = [
    {
        "p1": 1,
        "p2": {"p3": 7, "p4": "x"},
        "p5": [{"p3": 8, "p4": None}, None],
        "p6": [("k", {"p3": 9, "p4": "z"})],
    },
    {"p1": None, "p2": None, "p5": None, "p6": None},
]


def _logical(one: str, two: str, three: str) -> list[dict[str, Any]]:
    def inner(number: int) -> dict[str, Any]:
        return _struct(mapped(three, "integer", number, "p3"), mapped("text", "string", number + 1, "p4"))

    return [
        mapped(one, "long", 1),
        mapped(two, inner(3), 2),
        mapped("list", _list(inner(10)), 5),
        mapped("map", _map("string", inner(12)), 6),
    ]


@pytest.mark.parametrize("mode", ["name", "id"])
def test_columns_are_found_by_identity_at_every_depth(tmp_path: Path, mode: str) -> None:
    """A rename, of a nested field too, changes names only: same ids, same rows, same identities."""
    settings = {"delta.columnMapping.mode": mode}
    data = pa.Table.from_pylist(_ROWS, schema=_PHYSICAL)
    if mode == "id":
        # By id, whatever the file calls them.
        data = data.rename_columns(["w", "x", "y", "z"]).cast(
            pa.schema([field.with_name(name) for field, name in zip(_PHYSICAL, "wxyz", strict=True)])
        )
    fields = _logical("one", "two", "three")
    commit(tmp_path, protocol("columnMapping"), metadata(fields, **settings), add_file(tmp_path, data))
    before = _snapshot(tmp_path)
    renamed = [*_logical("two", "one", "text`.x"), mapped("new", "date", 99)]
    commit(tmp_path, metadata([renamed[1], renamed[0], *renamed[2:]], **settings))
    after = _snapshot(tmp_path)
    assert [fragment.id for fragment in after.fragments] == [fragment.id for fragment in before.fragments]
    assert read_columns(before) == {
        "one": [1, None],
        "two": [{"three": 7, "text": "x"}, None],
        "list": [[{"three": 8, "text": None}, None], None],
        "map": [[("k", {"three": 9, "text": "z"})], None],
    }
    assert read_columns(after) == {
        "one": [{"text`.x": 7, "text": "x"}, None],
        "two": [1, None],
        "list": [[{"text`.x": 8, "text": None}, None], None],
        "map": [[("k", {"text`.x": 9, "text": "z"})], None],
        "new": [None, None],
    }
    prefix = "p" if mode == "name" else ""
    assert after.schema.field("two").metadata[FIELD_ID].decode() == f"{prefix}1"
    assert after.schema.field("one").type.field("text`.x").metadata[FIELD_ID].decode() == f"{prefix}3"
    below_list = after.schema.field("list").type.value_type.field("text").metadata[FIELD_ID].decode()
    assert below_list == {"name": "p4", "id": "11"}[mode]
    with after.fragments[0].source.open() as reader:
        assert reader.stored_columns == {f"{prefix}{number}" for number in (1, 2, 5, 6)}


def test_a_file_without_ids_in_a_table_mapped_by_id_is_refused(tmp_path: Path) -> None:
    """All its columns would be null."""
    settings = {"delta.columnMapping.mode": "id"}
    add = add_file(tmp_path, pa.table({"p1": [1]}))
    commit(tmp_path, protocol("columnMapping"), metadata([mapped("a", "long", 1)], **settings), add)
    with pytest.raises(FragmentError, match="no field ids"):
        _snapshot(tmp_path).fragments[0].source.open()


def test_enabling_column_mapping_keeps_identities(tmp_path: Path) -> None:
    """The physical names of a table that was written without a mapping are its names."""
    commit(tmp_path, protocol("columnMapping"), metadata([field("a", "long"), field("b", "long")], ["b"]))
    commit(tmp_path, add_file(tmp_path, pa.table({"a": [1, 2]}), b="5"))
    before = _snapshot(tmp_path)
    fields = [mapped("x", "long", 1, "a"), mapped("y", "long", 2, "b")]
    commit(tmp_path, metadata(fields, ["y"], **{"delta.columnMapping.mode": "name"}))
    after = _snapshot(tmp_path)
    assert [fragment.id for fragment in after.fragments] == [fragment.id for fragment in before.fragments]
    assert read_columns(after) == {"x": [1, 2], "y": [5, 5]}
    assert [fragment.partition_key for fragment in after.fragments] == ["y=5"]


def test_a_variant_in_a_table_mapped_by_id_is_read(tmp_path: Path) -> None:
    """Its two parts have no ids: they go by name."""
    variant = pa.struct([("metadata", pa.binary()), ("value", pa.binary())])
    data = pa.table({"a": pa.array([{"metadata": b"m", "value": b"v"}, None], variant)})
    data = data.cast(pa.schema([_numbered("a", variant, 1)]))
    settings = {"delta.columnMapping.mode": "id"}
    features = protocol("columnMapping", "variantType")
    commit(tmp_path, features, metadata([mapped("v", "variant", 1)], **settings), add_file(tmp_path, data))
    assert read_columns(_snapshot(tmp_path)) == {"v": [{"metadata": b"m", "value": b"v"}, None]}


_WIDENED = [
    ("byte", pa.int8(), "short"),
    ("byte", pa.int8(), "double"),
    ("byte", pa.int8(), "decimal(10,0)"),
    ("short", pa.int16(), "integer"),
    ("short", pa.int16(), "decimal(12,2)"),
    ("integer", pa.int32(), "long"),
    ("integer", pa.int32(), "double"),
    ("integer", pa.int32(), "decimal(11,1)"),
    ("long", pa.int64(), "decimal(20,0)"),
    ("float", pa.float32(), "double"),
    ("decimal(5,2)", pa.decimal128(5, 2), "decimal(7,4)"),
    ("decimal(18,2)", pa.decimal128(18, 2), "decimal(38,2)"),
    ("date", pa.date32(), "timestamp_ntz"),
]


@pytest.mark.parametrize(("_old", "stored", "new"), _WIDENED, ids=[f"{old}-{new}" for old, _, new in _WIDENED])
def test_types_widen_without_loss(tmp_path: Path, _old: str, stored: pa.DataType, new: str) -> None:
    """The greatest, the least, zero and null of the old type come out as the same values of the new one."""
    values: list[Any] = {
        "int8": [-128, 0, 127],
        "int16": [-(2**15), 0, 2**15 - 1],
        "int32": [-(2**31), 0, 2**31 - 1],
        "int64": [-(2**63), 0, 2**63 - 1],
        "float": [float("-inf"), 0.1, 3.4e38],
        "decimal128(5, 2)": [Decimal("-999.99"), Decimal(0), Decimal("999.99")],
        "decimal128(18, 2)": [Decimal("-9999999999999999.99"), Decimal(0), Decimal("0.01")],
        "date32[day]": [date(1, 1, 1), date(1969, 12, 31), date(9999, 12, 31)],
    }[str(stored)]
    array = pa.array([*values, None], stored)
    features = protocol("typeWidening", "timestampNtz")
    commit(tmp_path, features, metadata([field("a", new)]), add_file(tmp_path, pa.table({"a": array})))
    found = read_columns(_snapshot(tmp_path))["a"]
    if stored == pa.date32():
        assert found == [*(datetime(day.year, day.month, day.day) for day in values), None]
    else:
        assert found == array.to_pylist()


@pytest.mark.parametrize(
    ("stored", "declared"),
    [
        (pa.array([2**40]), "integer"),
        (pa.array([1.5]), "long"),
        (pa.array([0.1]), "float"),
        (pa.array(["5"]), "long"),
        (pa.array([5]), "boolean"),
        (pa.array([Decimal("1.23")]), "decimal(10,1)"),
        (pa.array([{"a": 1}]), "long"),
        (pa.array([[1]]), "long"),
        (pa.array([1]), _list("long")),
        (pa.array([b"\xff"]), "string"),
    ],
    ids=str,
)
def test_what_does_not_fit_the_declared_type_is_refused(tmp_path: Path, stored: pa.Array, declared: Any) -> None:
    """Rather an error that names the file and the column than a value that nobody wrote."""
    commit(tmp_path, protocol(), metadata([field("a", declared)]), add_file(tmp_path, pa.table({"a": stored})))
    snapshot = _snapshot(tmp_path)
    with pytest.raises(FragmentError, match=r"f\.parquet: column 'a'"):
        read_columns(snapshot)


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


@pytest.mark.parametrize(
    "name", ["a b.parquet", "é😀.parquet", "100%.parquet", "a%20b.parquet", "x#y?z.parquet", "a+b.parquet"]
)
def test_paths_in_the_log_are_decoded_once(tmp_path: Path, name: str) -> None:
    """Spaces, percent signs, and what looks like an encoding itself."""
    encoded = "".join(
        c if (c.isalnum() and c.isascii()) or c in "./" else "".join(f"%{b:02X}" for b in c.encode()) for c in name
    )
    add = add_file(tmp_path, pa.table({"a": [1]}), f"d=1 %/{name}", f"d=1%20%25/{encoded}")
    commit(tmp_path, protocol(), metadata([field("a", "long")]), add)
    snapshot = _snapshot(tmp_path)
    assert read_columns(snapshot) == {"a": [1]}
    assert snapshot.fragments[0].path == str(tmp_path / "d=1 %" / name)


def test_absolute_paths_are_read_where_they_point_to(tmp_path: Path) -> None:
    """A shallow clone names the files of another table."""
    source = tmp_path / "so urce%20"
    uri = (source / "f.parquet").as_uri()
    for number, path in enumerate((uri, uri.removeprefix("file://"), uri.replace("file://", "file:"))):
        clone = tmp_path / f"clone{number}"
        add = add_file(source, pa.table({"a": [1, 2]}))
        add["add"]["path"] = path
        commit(clone, protocol(), metadata([field("a", "long")]), add)
        assert read_columns(_snapshot(clone)) == {"a": [1, 2]}


def test_names_are_matched_whatever_their_case(tmp_path: Path) -> None:
    """Spark writes a column under the case of the statement, and reads it under the table's."""
    data = pa.table({"ID": [1], "s": pa.array([{"X": 2}])})
    fields = [field("id", "long"), field("S", _struct(field("x", "long")))]
    commit(tmp_path, protocol(), metadata(fields), add_file(tmp_path, data))
    assert read_columns(_snapshot(tmp_path)) == {"id": [1], "S": [{"x": 2}]}


def test_names_with_dots_and_backticks_are_columns_of_their_own(tmp_path: Path) -> None:
    """`a.b` is not the field `b` of `a`."""
    data = pa.table({"a.b": [1], "a": pa.array([{"b": 2}]), "`c`": [3]})
    fields = [field("a.b", "long"), field("a", _struct(field("b", "long"))), field("`c`", "long")]
    commit(tmp_path, protocol(), metadata(fields), add_file(tmp_path, data))
    assert read_columns(_snapshot(tmp_path)) == {"a.b": [1], "a": [{"b": 2}], "`c`": [3]}


def test_columns_that_a_file_lacks_are_null_and_dropped_ones_are_known(tmp_path: Path) -> None:
    """Columns and fields added later are null; what the table has dropped the file can still answer for."""
    data = pa.table({"a": [1], "gone": ["x"], "s": pa.array([{"b": 1}])})
    fields = [field("a", "long"), field("new", "string"), field("s", _struct(field("b", "long"), field("c", "void")))]
    commit(tmp_path, protocol(), metadata(fields), add_file(tmp_path, data))
    snapshot = _snapshot(tmp_path)
    assert read_columns(snapshot) == {"a": [1], "new": [None], "s": [{"b": 1, "c": None}]}
    with snapshot.fragments[0].source.open() as reader:
        assert reader.stored_columns == {"a", "gone", "s"}
        assert [chunk.to_pylist() for chunk in reader.read(pa.field("gone", pa.string()))] == [["x"]]


@pytest.mark.parametrize("feature", ["variantShredding-preview", "catalog", "someThingNew"])
def test_a_feature_without_a_reader_is_named(tmp_path: Path, feature: str) -> None:
    """Reading on would give wrong rows."""
    needed = protocol(f"{feature}Managed" if feature == "catalog" else feature)
    commit(tmp_path, needed, metadata([field("a", "long")]), add_file(tmp_path, pa.table({"a": [1]})))
    with pytest.raises(TableFormatError, match=feature):
        _snapshot(tmp_path)


def test_an_unknown_column_type_is_named(tmp_path: Path) -> None:
    """With the table and the column."""
    commit(tmp_path, protocol(), metadata([field("a", "interval year")]))
    with pytest.raises(TableFormatError, match="interval year"):
        _snapshot(tmp_path)


def test_files_of_one_name_in_tables_written_anew_have_different_ids(tmp_path: Path) -> None:
    """Same path, same size, other rows: the time of writing tells."""
    ids = set()
    for number in (1, 2):
        folder = tmp_path / str(number)
        add = add_file(folder, pa.table({"a": [number]}))
        add["add"]["modificationTime"] = number
        commit(folder, protocol(), metadata([field("a", "long")]), add)
        fragment = _snapshot(folder).fragments[0]
        assert fragment.bytes == add["add"]["size"]
        ids.add(fragment.id)
    assert len(ids) == 2


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


def test_an_empty_table_has_a_schema_and_no_fragments(tmp_path: Path) -> None:
    """Created, or emptied by a delete."""
    commit(tmp_path, protocol(), metadata([field("p", "long"), field("a", "long")], ["p"]))
    snapshot = _snapshot(tmp_path)
    assert snapshot.fragments == ()
    assert snapshot.schema.names == ["p", "a"]
    assert snapshot.partition_columns == ("p",)


def test_a_folder_without_a_log_is_no_table(tmp_path: Path) -> None:
    """By snapshot and by the cheap look for a new version alike."""
    table = open_table_format(TableConfig(name="t", uri=str(tmp_path), format="delta"))
    with pytest.raises(TableNotFoundError, match=str(tmp_path)):
        table.snapshot()
    with pytest.raises(TableNotFoundError, match=str(tmp_path)):
        table.snapshot_id()


def test_a_location_is_taken_as_it_stands(tmp_path: Path) -> None:
    """A percent sign in it is no encoding: `a%20b` is not `a b`."""
    for name, value in (("a b", 1), ("a%20b", 2)):
        folder = tmp_path / name
        commit(folder, protocol(), metadata([field("a", "long")]), add_file(folder, pa.table({"a": [value]})))
    assert read_columns(_snapshot(tmp_path / "a b")) == {"a": [1]}
    assert read_columns(_snapshot(tmp_path / "a%20b")) == {"a": [2]}


def test_a_broken_log_is_a_clear_error(tmp_path: Path) -> None:
    """One line that names the table."""
    write_deltalake(str(tmp_path), pa.table({"a": [1]}))
    (tmp_path / "_delta_log" / f"{1:020}.json").write_text("{")
    with pytest.raises(TableFormatError, match=str(tmp_path)):
        _snapshot(tmp_path)


def test_the_version_is_found_without_reading_the_log(tmp_path: Path) -> None:
    """From names alone: with a checkpoint, with the commits before it gone, with a stale or broken hint."""
    for number in range(4):
        write_deltalake(str(tmp_path), pa.table({"a": [number]}), mode="append")
    table = open_table_format(TableConfig(name="t", uri=str(tmp_path)))
    log = tmp_path / "_delta_log"
    assert table.snapshot_id() == "3"
    DeltaTable(str(tmp_path)).create_checkpoint()
    for number in range(3):
        (log / f"{number:020}.json").unlink()
    (log / f"{3:020}.json").rename(log / "last")
    assert table.snapshot_id() == table.snapshot().id == "3"
    assert len(read_rows(table.snapshot())) == 4
    (log / "last").rename(log / f"{3:020}.json")
    write_deltalake(str(tmp_path), pa.table({"a": [9]}), mode="append")
    assert table.snapshot_id() == table.snapshot().id == "4"
    hint = log / "_last_checkpoint"
    for text in (json.dumps({"version": 1000}), "{", "[]"):
        hint.write_text(text)
        assert table.snapshot_id() == "4"


def test_the_time_of_the_commit_is_told(tmp_path: Path) -> None:
    """In UTC."""
    commit(tmp_path, protocol(), metadata([field("a", "long")]))
    assert _snapshot(tmp_path).committed_at == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)


def test_a_moved_table_keeps_its_ids(tmp_path: Path) -> None:
    """What is profiled is the content, wherever it lies."""
    write_deltalake(str(tmp_path / "a"), pa.table({"a": [1], "p": ["x"]}), partition_by=["p"])
    ids = [fragment.id for fragment in _snapshot(tmp_path / "a").fragments]
    shutil.move(tmp_path / "a", tmp_path / "b")
    assert [fragment.id for fragment in _snapshot(tmp_path / "b").fragments] == ids


@pytest.mark.parametrize("lines", [0, 2000])
def test_the_time_of_the_commit_tells_tables_of_one_version_apart(tmp_path: Path, lines: int) -> None:
    """Also where the information comes last in a long commit, of which only the ends are read."""
    references = []
    for time in (1700000000000, 1700000000001):
        folder = tmp_path / str(time)
        write_deltalake(str(folder), pa.table({"a": [1]}))
        log = folder / "_delta_log" / f"{0:020}.json"
        actions = [line for line in log.read_text().splitlines() if "commitInfo" not in line]
        padding = [json.dumps({"txn": {"appId": f"{number} {'x' * 80}", "version": 1}}) for number in range(lines)]
        log.write_text("\n".join([*actions, *padding, json.dumps({"commitInfo": {"timestamp": time}})]) + "\n")
        table = open_table_format(TableConfig(name="t", uri=str(folder)))
        assert table.current() == table.snapshot().reference
        references.append(table.current())
    assert [reference.id for reference in references] == ["0", "0"]
    assert references[0] != references[1]
