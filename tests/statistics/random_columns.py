"""Hypothesis strategies for values of every column type, and builders of Arrow arrays.

A type class is a group of Arrow types whose values are converted to one type, such as int8 and int64.

A profile has the statistics of a column. A state is the form of a statistic that can be merged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import settings
from hypothesis import strategies as st

from metastore_assets.config import ColumnPolicy
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.statistics.finalize import finalize_statistics
from metastore_assets.statistics.merge import merge_states
from metastore_assets.statistics.profile import ColumnProfile, profile_field
from metastore_assets.statistics.states import build_states_table, read_state_rows
from metastore_assets.statistics.typed_union import union_type
from metastore_assets.values.types import class_named


@dataclass(frozen=True)
class Kind:
    """A column type to test: Arrow type, type class, and functions that draw values and build arrays."""

    type: pa.DataType
    type_class: str
    values: st.SearchStrategy[Any]
    width: int | None = None
    build: Callable[[list[Any], pa.DataType], pa.Array] | None = None

    def array(self, values: list[Any]) -> pa.Array:
        return (self.build or pa.array)(values, self.type)

    @property
    def numeric(self) -> bool:
        return self.type_class in ("int64", "uint64", "float64") or self.type_class.startswith("decimal")


def integers(bits: int, signed: bool = True) -> st.SearchStrategy[int]:
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    return st.one_of(
        st.integers(low, high), st.integers(max(low, -3), 3), st.sampled_from([low, low + 1, high - 1, high])
    )


def decimals(digits: int, scale: int) -> st.SearchStrategy[Decimal]:
    most = 10**digits - 1
    unscaled_numbers = st.one_of(st.integers(-most, most), st.integers(-3, 3), st.sampled_from([-most, most]))
    return unscaled_numbers.map(lambda number: Decimal((number < 0, tuple(map(int, str(abs(number)))), -scale)))


FLOATS = st.one_of(
    st.floats(),
    st.integers(-3, 3).map(float),
    st.sampled_from([math.nan, math.inf, -math.inf, -0.0, 0.0, 5e-324, -5e-324, 1.7976931348623157e308, 2.0**53, 0.1]),
)
FINITE = FLOATS.filter(math.isfinite)
TEXT = st.one_of(st.text(max_size=12), st.sampled_from(["", "a", "é", "\U0001f600", "\uffff", "\x00", "a" * 200]))
BYTES = st.one_of(st.binary(max_size=12), st.sampled_from([b"", b"\xff", b"\x00", b"x" * 200]))


def _physical(storage: pa.DataType) -> Callable[[list[Any], pa.DataType], pa.Array]:
    return lambda values, type: pa.array(values, storage).view(type)


def _encoded(values: list[Any], type: pa.DataType) -> pa.Array:
    return pa.array(values, type.value_type).dictionary_encode().cast(type)


def _dictionary_with_nulls(values: list[Any], type: pa.DataType) -> pa.Array:
    # The dictionary has repeated, null and unused entries.
    entries = [*values, None, *values]
    indices = [at if at % 2 else at + len(values) + 1 for at in range(len(values))]
    return pa.DictionaryArray.from_arrays(pa.array(indices, pa.int32()), pa.array(entries, type.value_type))


def _runs(values: list[Any], type: pa.DataType) -> pa.Array:
    ends = pa.array(range(1, len(values) + 1), type.run_end_type)
    return pa.RunEndEncodedArray.from_arrays(ends, pa.array(values, type.value_type))


def _halves(values: list[Any], type: pa.DataType) -> pa.Array:
    return pa.array([None if value is None else np.float16(value) for value in values], type)


def _uuids(values: list[Any], type: pa.DataType) -> pa.Array:
    return pa.ExtensionArray.from_storage(type, pa.array(values, pa.binary(16)))


def _timestamp(unit: str, zone: str | None, limit: int = 2**63 - 1) -> Kind:
    cls = ("timestamp_" if zone is None else "timestamptz_") + unit
    values = st.one_of(st.integers(-limit - 1, limit), st.integers(-3, 3))
    return Kind(pa.timestamp(unit, zone), cls, values, 8, _physical(pa.int64()))


DAYS = st.one_of(st.integers(-(2**31), 2**31 - 1), st.integers(-3, 3), st.sampled_from([-719163, 2932897]))
KINDS = {
    "boolean": Kind(pa.bool_(), "boolean", st.booleans(), 1),
    **{f"int{bits}": Kind(getattr(pa, f"int{bits}")(), "int64", integers(bits), bits // 8) for bits in (8, 16, 32, 64)},
    **{
        f"uint{bits}": Kind(getattr(pa, f"uint{bits}")(), "int64", integers(bits, signed=False), bits // 8)
        for bits in (8, 16, 32)
    },
    "uint64": Kind(pa.uint64(), "uint64", integers(64, signed=False), 8),
    "float16": Kind(pa.float16(), "float64", st.floats(width=16), 2, _halves),
    "float32": Kind(pa.float32(), "float64", st.floats(width=32), 4),
    "float64": Kind(pa.float64(), "float64", FLOATS, 8),
    "decimal32": Kind(pa.decimal32(9, 2), "decimal_2", decimals(9, 2), 4),
    "decimal64": Kind(pa.decimal64(18, 5), "decimal_5", decimals(18, 5), 8),
    "decimal128": Kind(pa.decimal128(38, 0), "decimal_0", decimals(38, 0), 16),
    "decimal128_scaled": Kind(pa.decimal128(38, 38), "decimal_38", decimals(38, 38), 16),
    "decimal128_short": Kind(pa.decimal128(15, 2), "decimal_2", decimals(15, 2), 16),
    "decimal256": Kind(pa.decimal256(38, 10), "decimal_10", decimals(38, 10), 32),
    "string": Kind(pa.string(), "string", TEXT),
    "large_string": Kind(pa.large_string(), "string", TEXT),
    "string_view": Kind(pa.string_view(), "string", TEXT),
    "binary": Kind(pa.binary(), "binary", BYTES),
    "large_binary": Kind(pa.large_binary(), "binary", BYTES),
    "binary_view": Kind(pa.binary_view(), "binary", BYTES),
    "fixed_size_binary": Kind(pa.binary(3), "binary", st.binary(min_size=3, max_size=3)),
    "dictionary": Kind(pa.dictionary(pa.int16(), pa.string()), "string", TEXT, None, _encoded),
    "dictionary_nulls": Kind(pa.dictionary(pa.int32(), pa.int64()), "int64", integers(64), 8, _dictionary_with_nulls),
    "dictionary_view": Kind(pa.dictionary(pa.int32(), pa.string_view()), "string", TEXT, None, _dictionary_with_nulls),
    "runs": Kind(pa.run_end_encoded(pa.int32(), pa.float64()), "float64", FLOATS, 8, _runs),
    "runs_view": Kind(pa.run_end_encoded(pa.int64(), pa.string_view()), "string", TEXT, None, _runs),
    "uuid": Kind(pa.uuid(), "uuid", st.binary(min_size=16, max_size=16), 16, _uuids),
    "date32": Kind(pa.date32(), "date", DAYS, 4, _physical(pa.int32())),
    "date64": Kind(pa.date64(), "date", DAYS, 8, lambda v, t: pa.array(v, pa.int32()).view(pa.date32()).cast(t)),
    "time32_ms": Kind(pa.time32("ms"), "time", st.integers(0, 86_399_999), 4, _physical(pa.int32())),
    "time64_us": Kind(pa.time64("us"), "time", st.integers(0, 86_399_999_999), 8, _physical(pa.int64())),
    "time64_ns": Kind(pa.time64("ns"), "time", st.integers(0, 86_399_999_999_999), 8, _physical(pa.int64())),
    "time32_s": Kind(pa.time32("s"), "time", st.integers(0, 86_399), 4, _physical(pa.int32())),
    "timestamp_ms": _timestamp("ms", None),
    "timestamp_us": _timestamp("us", None),
    "timestamp_ns": _timestamp("ns", None),
    "timestamptz_ms": _timestamp("ms", "UTC"),
    "timestamptz_us": _timestamp("us", "Europe/Paris"),
    "timestamptz_ns": _timestamp("ns", "+05:30"),
    "timestamp_s": Kind(pa.timestamp("s"), "timestamp_ms", st.integers(-(2**50), 2**50), 8, _physical(pa.int64())),
    "timestamptz_s": Kind(pa.timestamp("s", "UTC"), "timestamptz_ms", st.integers(-9, 9), 8, _physical(pa.int64())),
}
TICKS = {"time32_s": 10**9, "time32_ms": 10**6, "time64_us": 1000, "timestamp_s": 1000, "timestamptz_s": 1000}
"""The number of units of the type class in one unit of the type, for types whose class is finer."""


def share(percent: int) -> settings:
    """Return settings that run this percentage of the usual number of examples.

    Tests that run for every type use them.
    """
    return settings(max_examples=max(1, settings.default.max_examples * percent // 100))


def rows(kind: Kind, max_size: int = 40) -> st.SearchStrategy[list[Any]]:
    """Return a strategy for lists of values and nulls, in which values repeat."""
    return st.lists(st.one_of(st.none(), kind.values, kind.values), max_size=max_size)


def profile(
    array: pa.Array | list[pa.Array], policy: ColumnPolicy | None = None, *, name: str = "c"
) -> list[ColumnProfile]:
    """Return the profiles of a column and its children.

    The column consists of one array or of several chunks.
    """
    chunks = array if isinstance(array, list) else [array]
    field = pa.field(name, chunks[0].type)
    return profile_field(field, chunks, lambda _: policy or ColumnPolicy())


def profile_one(array: pa.Array | list[pa.Array], policy: ColumnPolicy | None = None) -> ColumnProfile:
    """Return the profile of a column without children."""
    (only,) = profile(array, policy)
    return only


def merge_statistics(children: Sequence[ColumnStatistics]) -> ColumnStatistics:
    """Merge the states of one column's statistics, and return the statistics of the merged state."""
    if len(children) == 1:
        return children[0]
    names = {child.type_class for child in children if child.type_class is not None}
    union = union_type(class_named(name) for name in names)
    first = min(children, key=lambda child: (child.position, child.column, child.field_id))
    merged_states = merge_states([build_states_table([child], [None], union) for child in children], [first.column])
    types = [child.type for child in children if child.value_count] or [first.type]
    (row,) = read_state_rows(merged_states, [(first.column, types[0])])
    return replace(finalize_statistics(row), position=first.position, field_id=first.field_id)
