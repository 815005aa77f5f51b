"""Columns and files of Delta tables have identities, and fragment ids change only with the rows.

A fragment is a data file and the deletes on it.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from metastore_assets.config import TableConfig
from metastore_assets.errors import FragmentError
from metastore_assets.formats import Snapshot, open_table_format
from metastore_assets.values.columns import FIELD_ID
from tests.formats.delta.log_writer import (
    add_file,
    commit,
    field,
    list_of,
    map_of,
    mapped,
    metadata,
    protocol,
    struct_of,
    write_vector,
)
from tests.formats.oracle import read_columns


def _snapshot(table: Path) -> Snapshot:
    return open_table_format(TableConfig(name="t", uri=str(table))).snapshot()


def _numbered(name: str, type_: pa.DataType, number: int) -> pa.Field:
    return pa.field(name, type_, metadata={b"PARQUET:field_id": str(number).encode()})


def _inner(number: int) -> pa.DataType:
    """Return a struct type of the physical fields p3 and p4 with the ids `number` and `number + 1`."""
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
        return struct_of(mapped(three, "integer", number, "p3"), mapped("text", "string", number + 1, "p4"))

    return [
        mapped(one, "long", 1),
        mapped(two, inner(3), 2),
        mapped("list", list_of(inner(10)), 5),
        mapped("map", map_of("string", inner(12)), 6),
    ]


@pytest.mark.parametrize("mode", ["name", "id"])
def test_columns_are_matched_by_identity_at_every_depth(tmp_path: Path, mode: str) -> None:
    """After renames of columns and nested fields, fragment ids, values and field ids are unchanged.

    A column mapping gives columns their identities. In mode `id`, the file has other column names than the log.
    """
    settings = {"delta.columnMapping.mode": mode}
    data = pa.Table.from_pylist(_ROWS, schema=_PHYSICAL)
    if mode == "id":
        # Columns are matched by id, independent of names in the file.
        data = data.rename_columns(["w", "x", "y", "z"]).cast(
            pa.schema([field.with_name(name) for field, name in zip(_PHYSICAL, "wxyz", strict=True)])
        )
    fields = _logical("one", "two", "three")
    commit(tmp_path, protocol("columnMapping"), metadata(fields, **settings), add_file(tmp_path, data))
    before = _snapshot(tmp_path)
    renamed_fields = [*_logical("two", "one", "text`.x"), mapped("new", "date", 99)]
    commit(tmp_path, metadata([renamed_fields[1], renamed_fields[0], *renamed_fields[2:]], **settings))
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
    """A data file without field ids is refused in a table with column mapping by id.

    If the file were read, all its columns would be null.
    """
    settings = {"delta.columnMapping.mode": "id"}
    add = add_file(tmp_path, pa.table({"p1": [1]}))
    commit(tmp_path, protocol("columnMapping"), metadata([mapped("a", "long", 1)], **settings), add)
    with pytest.raises(FragmentError, match=r"f\.parquet.*\bids\b"):
        _snapshot(tmp_path).fragments[0].source.open()


def test_enabling_column_mapping_keeps_identities(tmp_path: Path) -> None:
    """Fragment ids and rows do not change if column mapping is enabled and columns are renamed.

    The old names `a` and `b` become the physical names of the columns.
    """
    commit(tmp_path, protocol("columnMapping"), metadata([field("a", "long"), field("b", "long")], ["b"]))
    commit(tmp_path, add_file(tmp_path, pa.table({"a": [1, 2]}), b="5"))
    before = _snapshot(tmp_path)
    fields = [mapped("x", "long", 1, "a"), mapped("y", "long", 2, "b")]
    commit(tmp_path, metadata(fields, ["y"], **{"delta.columnMapping.mode": "name"}))
    after = _snapshot(tmp_path)
    assert [fragment.id for fragment in after.fragments] == [fragment.id for fragment in before.fragments]
    assert read_columns(after) == {"x": [1, 2], "y": [5, 5]}
    assert [fragment.partition_key for fragment in after.fragments] == ["y=5"]


def test_physical_names_without_column_mapping_are_ignored(tmp_path: Path) -> None:
    """Without column mapping, columns, statistics and partition values have logical names.

    The fields may still have physical names in their metadata, for example in a copied schema. deltalake ignores them,
    too.
    """
    fields = [mapped("a", "long", 1, "col-1"), mapped("b", "long", 2, "col-2")]
    add = add_file(tmp_path, pa.table({"a": [1, 2]}), b="5")
    add["add"]["stats"] = json.dumps({"numRecords": 2, "minValues": {"a": 1}, "maxValues": {"a": 2}})
    commit(tmp_path, protocol(), metadata(fields, ["b"]), add)
    table = open_table_format(TableConfig(name="t", uri=str(tmp_path)))
    snapshot = table.snapshot()
    assert read_columns(snapshot) == {"a": [1, 2], "b": [5, 5]}
    assert table.bounds(snapshot, "a")["maximum"].to_pylist() == [2]


def test_a_variant_in_a_table_mapped_by_id_is_read(tmp_path: Path) -> None:
    """A variant column is matched by its id, and its two nested fields, which have no ids, by name."""
    variant = pa.struct([("metadata", pa.binary()), ("value", pa.binary())])
    data = pa.table({"a": pa.array([{"metadata": b"m", "value": b"v"}, None], variant)})
    data = data.cast(pa.schema([_numbered("a", variant, 1)]))
    settings = {"delta.columnMapping.mode": "id"}
    features = protocol("columnMapping", "variantType")
    commit(tmp_path, features, metadata([mapped("v", "variant", 1)], **settings), add_file(tmp_path, data))
    assert read_columns(_snapshot(tmp_path)) == {"v": [{"metadata": b"m", "value": b"v"}, None]}


@pytest.mark.parametrize(
    "name", ["a b.parquet", "é😀.parquet", "100%.parquet", "a%20b.parquet", "x#y?z.parquet", "a+b.parquet"]
)
def test_paths_in_the_log_are_decoded_once(tmp_path: Path, name: str) -> None:
    """A path, which is URL-encoded in the log, is decoded exactly once.

    File names have spaces, percent signs, and text that looks encoded.
    """
    encoded_name = "".join(
        c if (c.isalnum() and c.isascii()) or c in "./" else "".join(f"%{b:02X}" for b in c.encode()) for c in name
    )
    add = add_file(tmp_path, pa.table({"a": [1]}), f"d=1 %/{name}", f"d=1%20%25/{encoded_name}")
    commit(tmp_path, protocol(), metadata([field("a", "long")]), add)
    snapshot = _snapshot(tmp_path)
    assert read_columns(snapshot) == {"a": [1]}
    assert snapshot.fragments[0].path == str(tmp_path / "d=1 %" / name)


def test_absolute_paths_are_read(tmp_path: Path) -> None:
    """A file of another table is read if the log names it by absolute path or URI, as in a shallow clone."""
    source = tmp_path / "so urce%20"
    uri = (source / "f.parquet").as_uri()
    for number, path in enumerate((uri, uri.removeprefix("file://"), uri.replace("file://", "file:"))):
        clone = tmp_path / f"clone{number}"
        add = add_file(source, pa.table({"a": [1, 2]}))
        add["add"]["path"] = path
        commit(clone, protocol(), metadata([field("a", "long")]), add)
        assert read_columns(_snapshot(clone)) == {"a": [1, 2]}


@pytest.mark.parametrize("form", ["", "file:", "file://"])
def test_moved_files_are_read_by_path_mapping(tmp_path: Path, form: str) -> None:
    """Moved files that the log names by absolute paths are read with a path mapping.

    The files are a data file and its deletion vector. Fragment ids do not change.
    """
    source, clone, now = tmp_path / "sou rce", tmp_path / "clone", tmp_path / "n%20w"
    add = add_file(source, pa.table({"a": [1, 2, 3]}))["add"]
    vector = write_vector(source, [1], "p")
    recorded_folder = form + quote(str(source))
    vector["pathOrInlineDv"] = f"{recorded_folder}/{Path(vector['pathOrInlineDv']).name}"
    action = {"add": add | {"path": f"{recorded_folder}/f.parquet", "deletionVector": vector}}
    commit(clone, protocol("deletionVectors"), metadata([field("a", "long")]), action)
    before = _snapshot(clone)
    assert read_columns(before) == {"a": [1, 3]}
    source.rename(now)
    with pytest.raises(FragmentError, match=r"sou rce/f\.parquet"):
        read_columns(_snapshot(clone))
    config = TableConfig(name="t", uri=str(clone), path_mapping={str(source): str(now)})
    after = open_table_format(config).snapshot()
    assert read_columns(after) == {"a": [1, 3]}
    assert [fragment.id for fragment in after.fragments] == [fragment.id for fragment in before.fragments]
    assert [fragment.path for fragment in after.fragments] == [str(now / "f.parquet")]


def test_names_are_matched_without_regard_to_case(tmp_path: Path) -> None:
    """A column or field of the file matches one of the schema whose name differs only in case.

    For example, the file has `ID`, and the schema has `id`. Spark may write such files.
    """
    data = pa.table({"ID": [1], "s": pa.array([{"X": 2}])})
    fields = [field("id", "long"), field("S", struct_of(field("x", "long")))]
    commit(tmp_path, protocol(), metadata(fields), add_file(tmp_path, data))
    assert read_columns(_snapshot(tmp_path)) == {"id": [1], "S": [{"x": 2}]}


def test_names_with_dots_and_backticks_are_separate_columns(tmp_path: Path) -> None:
    """The column `a.b` is not the field `b` of `a`."""
    data = pa.table({"a.b": [1], "a": pa.array([{"b": 2}]), "`c`": [3]})
    fields = [field("a.b", "long"), field("a", struct_of(field("b", "long"))), field("`c`", "long")]
    commit(tmp_path, protocol(), metadata(fields), add_file(tmp_path, data))
    assert read_columns(_snapshot(tmp_path)) == {"a.b": [1], "a": [{"b": 2}], "`c`": [3]}


def test_missing_columns_are_null_and_dropped_ones_are_reported(tmp_path: Path) -> None:
    """Columns and fields that the file lacks are null.

    A column of the file that the schema lacks is in `stored_columns`, and can be read.
    """
    data = pa.table({"a": [1], "gone": ["x"], "s": pa.array([{"b": 1}])})
    fields = [field("a", "long"), field("new", "string"), field("s", struct_of(field("b", "long"), field("c", "void")))]
    commit(tmp_path, protocol(), metadata(fields), add_file(tmp_path, data))
    snapshot = _snapshot(tmp_path)
    assert read_columns(snapshot) == {"a": [1], "new": [None], "s": [{"b": 1, "c": None}]}
    with snapshot.fragments[0].source.open() as reader:
        assert reader.stored_columns == {"a", "gone", "s"}
        assert [chunk.to_pylist() for chunk in reader.read(pa.field("gone", pa.string()))] == [["x"]]


def test_files_of_one_name_in_rewritten_tables_have_different_ids(tmp_path: Path) -> None:
    """Files of equal path and size have different fragment ids if their modification times differ.

    The files belong to two tables. Their entries in the logs differ only in the modification time.
    """
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


def test_an_empty_table_has_a_schema_and_no_fragments(tmp_path: Path) -> None:
    """A table to which no commit added a file has a schema, partition columns, and no fragments."""
    commit(tmp_path, protocol(), metadata([field("p", "long"), field("a", "long")], ["p"]))
    snapshot = _snapshot(tmp_path)
    assert snapshot.fragments == ()
    assert snapshot.schema.names == ["p", "a"]
    assert snapshot.partition_columns == ("p",)


def test_a_location_is_used_as_written(tmp_path: Path) -> None:
    """A percent sign is not decoded: `a%20b` is not `a b`."""
    for name, value in (("a b", 1), ("a%20b", 2)):
        folder = tmp_path / name
        commit(folder, protocol(), metadata([field("a", "long")]), add_file(folder, pa.table({"a": [value]})))
    assert read_columns(_snapshot(tmp_path / "a b")) == {"a": [1]}
    assert read_columns(_snapshot(tmp_path / "a%20b")) == {"a": [2]}


def test_a_relocated_table_has_the_same_ids(tmp_path: Path) -> None:
    """Fragment ids do not depend on the table's location."""
    write_deltalake(str(tmp_path / "a"), pa.table({"a": [1], "p": ["x"]}), partition_by=["p"])
    ids = [fragment.id for fragment in _snapshot(tmp_path / "a").fragments]
    shutil.move(tmp_path / "a", tmp_path / "b")
    assert [fragment.id for fragment in _snapshot(tmp_path / "b").fragments] == ids
