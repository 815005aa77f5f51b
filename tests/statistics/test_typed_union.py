"""Typed unions: arrays whose elements have values of different type classes.

A type class is a group of Arrow types whose values are converted to one type, such as int8 and int64.
"""

from __future__ import annotations

import pyarrow as pa
import pytest

from metastore_assets.statistics.typed_union import cast_to_union, union_type
from metastore_assets.values.types import class_named

_INTEGERS, _TEXTS = (union_type([class_named(name)]) for name in ("int64", "string"))
_BOTH = union_type([class_named("int64"), class_named("string")])


def test_no_value_is_lost_by_a_cast() -> None:
    """A cast to a union with fewer type classes may drop a class that has no values.

    If the dropped class has values, the cast is an error.
    """
    values = pa.array([{"int64": 1, "string": None}, None], _BOTH)
    assert cast_to_union(values, _INTEGERS).to_pylist() == [{"int64": 1}, None]
    with pytest.raises(ValueError, match="int64"):
        cast_to_union(values, _TEXTS)
