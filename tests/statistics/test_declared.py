"""The statistics file and the JSON output have exactly the statistics that the code declares."""

import re
from dataclasses import fields

import pytest

from metastore_assets.lookup.json import column_to_json
from metastore_assets.statistics.column import STATISTICS, ColumnStatistics
from metastore_assets.statistics.profile_tables import build_statistics_table
from metastore_assets.statistics.states import SKETCH_COLUMNS, build_states_table
from metastore_assets.statistics.typed_union import union_type

STATES = {"moments", "quantile_sketch", "distinct_sketch", "user_states"}
"""Fields of a row that are no statistics, but mergeable states, which are stored separately."""
DERIVED = {"sum", "mean", "standard_deviation", "skewness", "kurtosis", "mean_length"}
OF_THE_SCHEMA = {"position", "column", "type"}
NOT_IN_JSON = {"position", "field_id", "type_class", "total_length", "multiset_hash"}


def test_every_field_of_a_row_is_a_statistic_or_a_state() -> None:
    assert {field.name for field in fields(ColumnStatistics)} == STATISTICS.keys() | STATES | {
        "user_defined",
        "partition",
    }
    assert not STATISTICS.keys() & STATES


def test_the_file_has_exactly_the_declared_columns() -> None:
    assert build_statistics_table([]).column_names == list(STATISTICS)


def test_json_has_all_statistics_except_states() -> None:
    row = ColumnStatistics(
        position=0, column="a", field_id="a", type="int64", type_class=None, value_count=0, null_count=0
    )
    assert list(column_to_json(row)) == [*(name for name in STATISTICS if name not in NOT_IN_JSON), "user_defined"]


def test_states_have_all_statistics_that_merges_need() -> None:
    """The table of states has columns for the sketches and for all statistics that merges need.

    States are the forms of statistics that can be merged. All other statistics follow from these columns or from the
    schema.
    """
    stored_columns = build_states_table([], [], union_type([])).column_names
    assert [name for name in STATISTICS if name not in DERIVED | OF_THE_SCHEMA] + list(SKETCH_COLUMNS) == stored_columns


@pytest.mark.parametrize("name", STATISTICS)
def test_a_statistic_has_a_unique_readable_label(name: str) -> None:
    """A label consists of letters and spaces, and no other statistic has it."""
    label = STATISTICS[name].label
    assert re.fullmatch(r"[A-Za-z][A-Za-z ]*", label)
    assert [statistic.label for statistic in STATISTICS.values()].count(label) == 1
