"""Every type has a type class or a reason why it has none.

A type class is a group of Arrow types whose values are converted to one type, such as int8 and int64. The fingerprint
of a type is a text. It is equal for two types exactly if the statistics of columns of these types can be merged.
"""

from __future__ import annotations

import pyarrow as pa
import pytest

from metastore_assets.errors import UnsupportedTypeError
from metastore_assets.values.json import scalar_text
from metastore_assets.values.types import class_named, is_binary, is_text, type_class, type_fingerprint
from tests.statistics.random_columns import KINDS


@pytest.mark.parametrize("name", KINDS)
def test_every_type_has_its_class(name: str) -> None:
    """Each type has the expected class, which can be looked up by its name.

    The Arrow type to which the class converts its values has the same class. The fingerprint of the type is the name of
    the class.
    """
    cls = type_class(KINDS[name].type)
    assert cls.name == KINDS[name].type_class
    assert type_class(cls.arrow) == cls
    assert class_named(cls.name) == cls
    assert type_fingerprint(KINDS[name].type) == cls.name


def test_extension_types_have_the_class_of_their_storage() -> None:
    """Extension types have the class of their storage, except uuid and bool8."""
    assert type_class(pa.json_()).name == "string"
    assert type_class(pa.bool8()).name == "boolean"
    assert type_class(pa.uuid()).name == "uuid"
    assert type_class(pa.opaque(pa.int16(), "t", "v")).name == "int64"


@pytest.mark.parametrize(
    ("type", "reason"),
    [
        (pa.decimal128(5, -2), r"decimal128\(5, -2\).*\bscale\b"),
        (pa.decimal256(39, 2), r"decimal256\(39, 2\).*\b38\b"),
        (pa.struct([("a", pa.int8())]), r"\bstruct\b"),
        (pa.list_(pa.int8()), r"\blist\b"),
        (pa.list_view(pa.int8()), r"\blist\b"),
        (pa.map_(pa.string(), pa.int8()), r"\bmap\b"),
        (pa.duration("ns"), r"duration\[ns\]"),
        (pa.dense_union([pa.field("a", pa.int8())]), "dense_union"),
    ],
)
def test_types_without_a_class_have_a_reason_and_a_fingerprint(type: pa.DataType, reason: str) -> None:
    with pytest.raises(UnsupportedTypeError, match=reason):
        type_class(type)
    assert type_fingerprint(type).startswith("<")


def test_fingerprints_of_containers_ignore_their_children() -> None:
    """The type fingerprint of a struct or a list does not depend on the types of its children.

    So a new field does not change the fingerprint. Structs, lists and maps have different fingerprints.
    """
    assert type_fingerprint(pa.struct([])) == type_fingerprint(pa.struct([("a", pa.int8())]))
    assert type_fingerprint(pa.list_(pa.int8())) == type_fingerprint(pa.large_list(pa.string()))
    assert len({type_fingerprint(t) for t in (pa.struct([]), pa.list_(pa.int8()), pa.map_(pa.int8(), pa.int8()))}) == 3


@pytest.mark.parametrize("name", ["int32", "decimal_39", "decimal_x", ""])
def test_unknown_class_names_are_refused(name: str) -> None:
    with pytest.raises(UnsupportedTypeError, match=f"'{name}'"):
        class_named(name)


def test_texts_and_binary_values_are_recognised_in_all_layouts() -> None:
    texts = [pa.string(), pa.large_string(), pa.string_view()]
    binary = [pa.binary(), pa.large_binary(), pa.binary_view()]
    others = [pa.binary(2), pa.int8(), pa.list_(pa.string()), pa.dictionary(pa.int8(), pa.string())]
    assert [type for type in (*texts, *binary, *others) if is_text(type)] == texts
    assert [type for type in (*texts, *binary, *others) if is_binary(type)] == binary


@pytest.mark.parametrize(
    ("stored_type", "text"),
    [(pa.binary(), pa.string()), (pa.large_binary(), pa.large_string()), (pa.binary_view(), pa.string_view())],
)
def test_invalid_utf8_is_escaped_in_messages(stored_type: pa.DataType, text: pa.DataType) -> None:
    (value,) = pa.array([b"a\xff"], stored_type).view(text)
    assert scalar_text(value) == r"a\xff"
