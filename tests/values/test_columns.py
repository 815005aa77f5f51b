"""Columns have the right paths, identities and arrays, at every depth and in every encoding.

A column may be nested in another one, such as a field of a struct. Its identity joins, with dots, the
field ids of the columns above it and its own field id. Where there is no field id, the name is used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets.values import columns as values_columns
from metastore_assets.values.columns import (
    FIELD_ID,
    Column,
    columns_by_field,
    field_columns,
    logical_nulls,
    schema_columns,
    split_columns,
)

NESTED = pa.struct(
    [
        ("a", pa.int8()),
        ("b", pa.list_(pa.struct([("c", pa.string())]))),
        ("m", pa.map_(pa.string(), pa.list_(pa.int8()))),
    ]
)


def test_columns_are_in_depth_first_table_order() -> None:
    """Containers come before their children.

    Columns below a list or a map are marked as repeated.
    """
    result = [(column.path, column.repeated) for column in field_columns(pa.field("s", NESTED))]
    assert result == [
        ("s", False),
        ("s.a", False),
        ("s.b", False),
        ("s.b.element", True),
        ("s.b.element.c", True),
        ("s.m", False),
        ("s.m.key", True),
        ("s.m.value", True),
        ("s.m.value.element", True),
    ]


def test_child_fields_have_the_names_of_paths() -> None:
    """The child field of a list is named `element`, and those of a map `key` and `value`.

    The child fields of a dictionary-encoded struct are the fields of the struct.
    """
    struct = pa.struct([("a", pa.int8()), ("b", pa.string())])
    assert values_columns.child_fields(pa.dictionary(pa.int8(), struct)) == [*struct]
    assert values_columns.child_fields(pa.list_(pa.field("item", struct))) == [pa.field("element", struct)]
    names = [field.name for field in values_columns.child_fields(pa.map_(pa.field("k", pa.int8(), False), pa.string()))]
    assert names == ["key", "value"]
    assert values_columns.child_fields(pa.int8()) == []


def test_a_flat_column_has_no_nested_columns() -> None:
    """A field of a flat type is a single column with the name and the type of the field.

    Its identity is its name. An encoded type, such as a dictionary, stays encoded.
    """
    type = pa.dictionary(pa.int8(), pa.string())
    assert field_columns(pa.field("c", type)) == [Column("c", "c", type)]


def test_identities_come_from_the_metadata_at_every_depth() -> None:
    """The identity of a column consists of the field ids in the metadata of the Arrow fields.

    If a field has no field id, the identity contains its name, or `element` for the element of a list.
    """
    assert values_columns.FIELD_ID == FIELD_ID

    def field(name: str, type: pa.DataType, identity: str) -> pa.Field:
        return pa.field(name, type, metadata={FIELD_ID: identity})

    element = field("array", pa.struct([field("x", pa.int8(), "4"), pa.field("y", pa.int8())]), "3")
    result = field_columns(field("l", pa.list_(element), "2"))
    assert [(column.path, column.field_id) for column in result] == [
        ("l", "2"),
        ("l.element", "2.3"),
        ("l.element.x", "2.3.4"),
        ("l.element.y", "2.3.y"),
    ]
    unnamed_columns = field_columns(pa.field("l", pa.list_(pa.field("array_element", pa.int8()))))
    assert unnamed_columns[1].field_id == "l.element"


def test_paths_that_collide_stay_distinct() -> None:
    """A name with dots is quoted in its path only if another column has the unquoted path.

    Identities always quote names with dots.
    """
    plain = columns_by_field([pa.field("id.num", pa.int8()), pa.field("id.num`s", pa.int8())])
    assert [column.path for row in plain for column in row] == ["id.num", "id.num`s"]
    assert [column.field_id for row in plain for column in row] == ["`id.num`", "`id.num``s`"]
    clash = columns_by_field([pa.field("a.b", pa.int8()), pa.field("a", pa.struct([("b", pa.int8())]))])
    assert [column.path for row in clash for column in row] == ["`a.b`", "a", "a.b"]
    inside = field_columns(pa.field("s", pa.struct([("x.y", pa.int8()), ("x", pa.struct([("y", pa.int8())]))])))
    assert [column.path for column in inside] == ["s", "s.`x.y`", "s.x", "s.x.y"]


NAMES = st.text(alphabet="ab.`[]2", max_size=4)
FLAT = st.just(pa.int8())
DEEP = st.recursive(
    FLAT,
    lambda inner: st.one_of(
        inner.map(pa.list_),
        inner.map(lambda type: pa.map_(pa.string(), type)),
        st.lists(st.tuples(NAMES, inner), min_size=1, max_size=4).map(lambda fields: pa.struct(fields)),
    ),
    max_leaves=6,
)


@given(fields=st.lists(st.tuples(NAMES, DEEP), min_size=1, max_size=5))
def test_all_paths_and_identities_are_distinct(fields: list[tuple[str, pa.DataType]]) -> None:
    """All columns of a schema have different paths and different identities.

    Names are arbitrary and may be duplicates.
    """
    result = schema_columns([pa.field(name, type) for name, type in fields])
    assert len({column.path for column in result}) == len(result)
    assert len({column.field_id for column in result}) == len(result)


ROW: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.fixed_dictionaries(
        {
            "a": st.one_of(st.none(), st.integers(0, 9)),
            "b": st.one_of(
                st.none(), st.lists(st.one_of(st.none(), st.just({"c": "x"}), st.just({"c": None})), max_size=3)
            ),
            "m": st.one_of(
                st.none(),
                st.lists(st.tuples(st.text(max_size=2), st.one_of(st.none(), st.lists(st.integers(0, 9)))), max_size=2),
            ),
        }
    ),
)


def below(value: Any, *keys: str) -> list[Any]:
    """Return the values below a value by a path of keys, according to the definition of nested columns."""
    values = [value]
    for key in keys:
        result: list[Any] = []
        for each in values:
            if key == "element":
                result += each or []
            elif key in ("key", "value"):
                result += [entry[key == "value"] for entry in each or []]
            else:
                result.append(None if each is None else each[key])
        values = result
    return values


@given(rows=st.lists(ROW, max_size=8), start=st.integers(0, 3), stop=st.integers(3, 8))
def test_values_of_nested_columns_are_those_of_the_definition(rows: list[Any], start: int, stop: int) -> None:
    """A field below a null struct is null, elements of null lists do not exist, and slices are respected."""
    array = pa.array(rows, NESTED).slice(start, max(0, stop - start))
    field = pa.field("s", NESTED)
    arrays = split_columns(field, array)
    rows = rows[start:stop]
    for column, result in zip(field_columns(field), arrays, strict=True):
        expected = [value for row in rows for value in below(row, *column.path.split(".")[1:])]
        assert result.to_pylist() == expected, column.path


def _int32(*numbers: int) -> pa.Array:
    return pa.array(numbers, pa.int32())


PROFILE_SPECS: dict[str, Callable[[pa.Array, pa.Array], pa.Array]] = {
    "list": lambda v, mask: pa.ListArray.from_arrays(_int32(0, 2, 4), v, mask=mask),
    "large": lambda v, mask: pa.LargeListArray.from_arrays(pa.array([0, 2, 4]), v, mask=mask),
    "view": lambda v, mask: pa.ListViewArray.from_arrays(_int32(0, 2), _int32(2, 2), v, mask=mask),
    "large_view": lambda v, mask: pa.LargeListViewArray.from_arrays(pa.array([0, 2]), pa.array([2, 2]), v, mask=mask),
    "fixed_size": lambda v, mask: pa.FixedSizeListArray.from_arrays(v, 2, mask=mask),
    "map": lambda v, mask: pa.MapArray.from_arrays(_int32(0, 2, 4), pa.array(["a", "b", "c", "d"]), v, mask=mask),
}
ELEMENTS = {
    "int8": pa.array([1, 2, 3, None], pa.int8()),
    "view": pa.array(["a", "b", "c", "d" * 20], pa.string_view()),
    "uuid": pa.ExtensionArray.from_storage(pa.uuid(), pa.array([bytes([n]) * 16 for n in range(4)], pa.binary(16))),
    "dictionary": pa.array(["a", "b", "c", None]).dictionary_encode(),
}
ELEMENTS["struct"] = pa.StructArray.from_arrays([ELEMENTS["uuid"], ELEMENTS["view"]], names=["u", "v"])


@pytest.mark.parametrize("layout", PROFILE_SPECS)
@pytest.mark.parametrize("elements", ELEMENTS)
def test_elements_below_null_lists_do_not_exist(layout: str, elements: str) -> None:
    """A null list may have elements in its buffers, which are ignored."""
    values = ELEMENTS[elements]
    array = PROFILE_SPECS[layout](values, pa.array([True, False]))
    result = split_columns(pa.field("l", array.type), array)[2 if layout == "map" else 1]
    assert result.to_pylist() == values.slice(2).to_pylist()


@pytest.mark.parametrize("layout", PROFILE_SPECS)
@pytest.mark.parametrize("elements", ELEMENTS)
def test_a_column_of_null_lists_has_no_elements(layout: str, elements: str) -> None:
    array = PROFILE_SPECS[layout](ELEMENTS[elements], pa.array([True, True]))
    below = split_columns(pa.field("l", array.type), array)[1:]
    assert [len(column) for column in below] == [0] * len(below)


def test_nulls_of_parents_count_in_children_without_validity() -> None:
    """A null struct makes its children null, even if they have no validity bitmap.

    Such children are run-end encoded arrays and unions.
    """
    mask = pa.array([False, True, False])
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array(["a", None], pa.string_view()))
    union = pa.UnionArray.from_dense(
        pa.array([0, 1, 0], pa.int8()), pa.array([0, 0, 1], pa.int32()), [pa.array([1, None]), pa.array(["x"])]
    )
    struct = pa.StructArray.from_arrays([runs, union, pa.array([1, 2, 3])], names=["r", "u", "i"], mask=mask)
    _, runs_result, union_result, numbers_result = split_columns(pa.field("s", struct.type), struct)
    assert runs_result.to_pylist() == ["a", None, None]
    assert union_result.is_valid().to_pylist() == [True, False, False]
    assert numbers_result.to_pylist() == [1, None, 3]


def test_encoded_structs_have_nested_columns() -> None:
    """Children of dictionary-encoded and run-end encoded structs have the decoded values, also in slices.

    This includes types that Arrow's `take` does not support.
    """
    values = pa.StructArray.from_arrays([pa.array(["a", "b"], pa.string_view())], names=["x"])
    dictionary = pa.DictionaryArray.from_arrays(pa.array([1, None, 0, 1]), values)
    _, result = split_columns(pa.field("s", dictionary.type), dictionary)
    assert result.to_pylist() == ["b", None, "a", "b"]
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([1, 3], pa.int16()), values).slice(1)
    _, result = split_columns(pa.field("s", runs.type), runs)
    assert result.to_pylist() == ["b", "b"]


@given(st.lists(st.tuples(st.integers(0, 1), st.one_of(st.none(), st.integers(0, 3)))), st.data())
def test_nulls_in_dictionaries_and_unions_are_those_of_python(
    rows: list[tuple[int, int | None]], data: st.DataObject
) -> None:
    """`logical_nulls` finds all nulls of dictionary arrays and unions, also in slices.

    Nulls may be in a dictionary, in a union's child, or in the dictionary of a child.
    """
    start = data.draw(st.integers(0, len(rows)))
    codes = pa.array([code for code, _ in rows], pa.int8())
    dictionary = pa.array([None, 0, 1, 2, 3], pa.int64())
    indices = pa.array(
        [
            None if value is None and at % 2 else (value or 0) + (value is not None)
            for at, (_, value) in enumerate(rows)
        ],
        pa.int32(),
    )
    dictionary_array = pa.DictionaryArray.from_arrays(indices, dictionary)
    values = [value for _, value in rows]
    children = [pa.array(values, pa.int64()), dictionary_array]
    dense = pa.UnionArray.from_dense(codes, pa.array(range(len(rows)), pa.int32()), children)
    sparse = pa.UnionArray.from_sparse(codes, children)
    for array in (dictionary_array, dense, sparse):
        assert logical_nulls(array.slice(start)).to_pylist() == [value is None for value in values[start:]]
