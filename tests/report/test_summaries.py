"""Short summaries of a column's statistics."""

from dataclasses import replace
from decimal import Decimal

import pyarrow as pa
import pytest

from metastore_assets.report.facts import notes_without_values, range_text, scalar_text, short_facts
from metastore_assets.statistics.column import ColumnStatistics

ROW = ColumnStatistics(
    position=0, column="a", field_id="a", type="double", type_class="float64", value_count=1000, null_count=0,
    distinct_count=3, distinct_count_guarantee="exact", percentiles_guarantee="exact", frequencies="enumerated",
)  # fmt: skip


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (pa.scalar(None, pa.int64()), "–"),
        (pa.scalar(True), "true"),
        (pa.scalar("", pa.large_string()), "''"),
        (pa.scalar("  ", pa.large_string()), "'  '"),
        (pa.scalar("a b", pa.large_string()), "a b"),
        (pa.scalar(b"\x00\xff", pa.large_binary()), "0x00ff"),
        (pa.scalar(Decimal("1.50")), "1.50"),
        (pa.scalar(2**60), str(2**60)),
        (pa.scalar(0.1), "0.1"),
        (pa.scalar(-719528, pa.date32()), "0000-01-01"),
        (pa.scalar(10**18 + 5, pa.timestamp("ns")), "2001-09-09 01:46:40.000000005"),
        (pa.scalar(0, pa.timestamp("us", "UTC")), "1970-01-01 00:00:00Z"),
        (pa.scalar(3_600_000_000_000, pa.time64("ns")), "01:00:00"),
    ],
)
def test_values_are_formatted(value: pa.Scalar, text: str) -> None:
    """Values of each type become text, also those beyond the range of Python's types."""
    assert scalar_text(value) == text


def test_summaries_are_short() -> None:
    mean = replace(ROW, mean=25.5, standard_deviation=14.4, null_count=111, nan_count=1)
    assert short_facts(mean) == ("3 distinct", "10.0% null, 0.1% NaN", "mean 25.5 ± 14.4")
    assert short_facts(replace(ROW, true_count=250)) == ("3 distinct", "no nulls", "25.0% of the values true")
    estimated_row = replace(ROW, distinct_count_guarantee="estimate", minimum_length=2, maximum_length=2)
    assert short_facts(estimated_row) == ("~3 distinct", "no nulls", "length 2")


def test_inexact_bounds_are_marked() -> None:
    texts = replace(ROW, minimum=pa.scalar("a"), maximum=pa.scalar("zz"), minimum_exact=True, maximum_exact=False)
    assert range_text(texts) == "a to ≤zz"
    assert notes_without_values(texts) == ("no value occurs twice", "from a", "to ≤zz")
    assert range_text(ROW) == ""


def test_estimated_percentiles_are_marked() -> None:
    row = replace(ROW, percentiles=((0.5, pa.scalar(1.25)),), percentiles_guarantee="estimate", frequencies="estimated")
    assert notes_without_values(row) == ("too many values to list them", "median ~1.25")
