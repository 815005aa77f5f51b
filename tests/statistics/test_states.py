"""Tables of states survive a round trip, and columns merge together as they do alone.

States are the forms of statistics that can be merged.

The value counts of a column are its distinct values with the frequency of each.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets.config import ColumnPolicy
from metastore_assets.errors import CorruptionError
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.statistics.column_profiler import profile_frequencies
from metastore_assets.statistics.finalize import finalize_statistics
from metastore_assets.statistics.histogram import Histogram, decode_histograms
from metastore_assets.statistics.merge import merge_states
from metastore_assets.statistics.profile import ColumnProfile
from metastore_assets.statistics.states import build_states_table, read_state_rows
from metastore_assets.statistics.typed_union import union_type
from metastore_assets.values.columns import field_columns
from metastore_assets.values.types import class_named
from tests.statistics.random_columns import KINDS, profile_one, rows, share

UNION = union_type(class_named(kind.type_class) for kind in KINDS.values())


def states(profiles: list[ColumnProfile]) -> pa.Table:
    return build_states_table(
        [profile.statistics for profile in profiles], [profile.histogram for profile in profiles], UNION
    )


def read_back(table: pa.Table, names: list[str]) -> list[tuple[ColumnStatistics, Histogram | None]]:
    result = read_state_rows(table, [(name, "") for name in names])
    return list(zip(map(finalize_statistics, result), decode_histograms(table), strict=True))


def equal_rows(result: ColumnStatistics, expected: ColumnStatistics) -> bool:
    """Return whether two rows are equal, except for position, name and type of the column.

    NaN equals itself.
    """
    pairs = [
        (getattr(result, field.name), getattr(expected, field.name))
        for field in fields(ColumnStatistics)
        if field.name not in ("position", "column", "type")
    ]
    return all(left == right or (left != left and right != right) for left, right in pairs)


@pytest.mark.parametrize("name", KINDS)
@share(5)
@given(data=st.data())
def test_states_survive_a_round_trip(name: str, data: st.DataObject) -> None:
    """A round trip changes neither the statistics derived from the states nor the histogram.

    Round trips through Parquet are included.
    """
    profile = profile_one(KINDS[name].array(data.draw(rows(KINDS[name], 8))))
    sink = pa.BufferOutputStream()
    pq.write_table(states([profile]), sink)
    for table in (states([profile]), pq.read_table(pa.BufferReader(sink.getvalue()))):
        ((row, histogram),) = read_back(table, [name])
        assert equal_rows(row, profile.statistics)
        assert histogram == profile.histogram


@share(15)
@given(data=st.data())
def test_columns_do_not_meet(data: st.DataObject) -> None:
    """Columns of several types have the same results merged together as merged alone."""
    names = data.draw(st.lists(st.sampled_from(list(KINDS)), min_size=2, max_size=4))
    parts = [
        [profile_one(KINDS[name].array(data.draw(rows(KINDS[name], 4)))) for name in names]
        for _ in range(data.draw(st.integers(2, 3), label="parts"))
    ]
    together = read_back(merge_states([states(part) for part in parts], names), names)
    for at, (row, histogram) in enumerate(together):
        alone = read_back(merge_states([states([part[at]]) for part in parts], [names[at]]), [names[at]])
        assert equal_rows(row, alone[0][0])
        assert histogram == alone[0][1]


@pytest.mark.parametrize("name", KINDS)
@share(5)
@given(data=st.data())
def test_frequencies_determine_all_statistics(name: str, data: st.DataObject) -> None:
    """All statistics and the histogram of a column can be derived from its value counts."""
    kind = KINDS[name]
    values: list[Any] = data.draw(rows(kind, 30))
    profile = profile_one(kind.array(values))
    row = profile.statistics
    assert row.type_class is not None
    assert profile.frequencies is not None
    (column,) = field_columns(pa.field("c", kind.type))
    result, histogram = profile_frequencies(column, ColumnPolicy(), row.type_class, row.null_count, profile.frequencies)
    assert equal_rows(result, row)
    assert histogram == profile.histogram


def test_a_clash_of_classes_names_its_column() -> None:
    parts = [[profile_one(pa.array([1])), profile_one(pa.array(values))] for values in ([1], ["a"])]
    with pytest.raises(CorruptionError, match=r"'second'.*int64, string"):
        merge_states([states(part) for part in parts], ["first", "second"])


def test_no_columns() -> None:
    assert merge_states([states([]), states([])], []).num_rows == 0
