"""Answers about rows that match a predicate equal those computed from these rows.

Tables are random. A filtered view of a table has only the rows that match a predicate.

A fragment is a data file together with the deletes that apply to it. The policy of a column decides which of its
statistics and values are stored.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.errors import NotStoredError
from metastore_assets.lookup import FilteredView
from metastore_assets.metastore import open_table
from metastore_assets.pipeline.refresh import refresh
from metastore_assets.pipeline.value_counts import fingerprints
from tests.expressions.random_predicates import PATHS, holds, plain, predicates, rows_of, sql, table_of
from tests.scan.test_pruned_scan import POLICIES, example, no_spark

COLUMNS = [name for name in PATHS if name != "nothing"]


def key(value: Any) -> Any:
    """Return a sort key with the equality and order of the column's values."""
    if isinstance(value, pa.Scalar):
        value = value.as_py()
    if isinstance(value, float) and math.isnan(value):
        return (1, 0.0)
    if isinstance(value, str):
        value = value.encode()
    if isinstance(value, datetime) and value.tzinfo is not None:
        value = value.astimezone(UTC).replace(tzinfo=None)
    return (0, value)


def values_of(rows: list[dict[str, Any]], name: str) -> list[Any]:
    """Return the sort keys of a column's values, ascending (see `key`).

    The column may be a field of a struct. Nulls are left out.
    """
    outer, _, inner = name.partition(".")
    column_values = [row[outer] for row in rows]
    if inner:
        column_values = [None if value is None else value[inner] for value in column_values]
    return sorted(key(value) for value in column_values if value is not None)


def check_scope(scope: FilteredView, rows: list[dict[str, Any]]) -> None:
    """Compare counts, statistics, values and histograms of a filtered view with its rows.

    `rows` are the rows that match the predicate of the view.
    """
    assert scope.count().value == len(rows)
    assert scope.row_bounds[0] <= len(rows) <= scope.row_bounds[1]
    answer = {row.column: row for row in scope.statistics()}
    for name in COLUMNS:
        values, row = values_of(rows, name), answer[name]
        counts = Counter(values)
        assert (row.value_count, row.null_count) == (len(values), len(rows) - len(values)), name
        if row.frequencies == "enumerated":
            check_listed(scope, name, values, counts)
            assert (row.distinct_count, row.distinct_count_guarantee) == (len(counts), "exact")
            assert row.duplicate_count == sum(value > 1 for value in counts.values())
        elif row.distinct_count_guarantee == "exact":
            assert row.distinct_count == len(counts), name
        if row.frequencies == "repeated":
            check_repeated(scope, name, counts)
        finite = [value for value in values if value[0] == 0]
        if row.type_class is not None:
            assert row.nan_count in (None, len(values) - len(finite))
            for bound, exact, expected_values in (
                (row.minimum, row.minimum_exact, finite[:1]),
                (row.maximum, row.maximum_exact, finite[-1:]),
            ):
                assert bool(expected_values) == (bound is not None), name
                if expected_values and exact:
                    assert key(bound) == expected_values[0], name
        check_bins(scope, name, finite)


def check_listed(scope: FilteredView, name: str, values: list[Any], counts: Counter[Any]) -> None:
    """Compare the answers about a column with its values.

    All values of the column must be stored.

    `values` are the sort keys of the values (see `key`), ascending, and `counts` has the frequency of each.
    """
    most = scope.top(name, 10**6)
    result = [(key(value), count) for value, count in most]
    expected_counts = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    assert result == expected_counts[: len(result)], name
    assert len(result) in (len(expected_counts), 1), name  # 1 if the policy shows only the most frequent value
    numbers = [key_ for key_ in values if key_[0] == 0]
    for fraction in (0, 0.3, 0.5, 1):
        answer = scope.quantile(name, fraction)
        assert answer.guarantee == "exact"
        at = max(1, math.ceil(fraction * len(numbers))) - 1
        assert (None if answer.value is None else key(answer.value)) == (numbers[at] if numbers else None), name
    for value, count in most[:3]:
        assert scope.frequency(name, value).value == count
        assert scope.rank(name, value).value == sum(key_ < key(value) for key_ in values)
        if name == "word":
            assert sum(frequency for _, frequency in scope.locate(name, value)) == count
    assert scope.spread(name).distinct_count == len(counts)


def check_repeated(scope: FilteredView, name: str, counts: Counter[Any]) -> None:
    """Check distinct count, duplicate count, and repeated values with their frequencies.

    The column has the policy `frequencies: repeated`. `counts` has the frequency of each value's sort key.
    """
    (row,) = scope.statistics([name])
    expected_counts = sorted(
        ((value, frequency) for value, frequency in counts.items() if frequency > 1),
        key=lambda frequency: (-frequency[1], frequency[0]),
    )
    assert (row.distinct_count, row.distinct_count_guarantee) == (len(counts), "exact"), name
    assert row.duplicate_count == len(expected_counts), name
    result = [(key(value), count_) for value, count_ in scope.top(name, 10**6) if count_ > 1]
    assert result == expected_counts, name
    assert len(list(scope.values(name))) in (len(expected_counts), len(counts))
    spread = scope.spread(name)
    assert (spread.distinct_count, spread.duplicate_count) == (len(counts), len(expected_counts)), name
    assert spread.singleton_count == len(counts) - len(expected_counts), name


def check_bins(scope: FilteredView, name: str, finite: list[Any]) -> None:
    """Assert that each bin of the histogram, if there is one, counts the values inside it.

    `finite` are the sort keys of the values except NaN.
    """
    numbers = [key_[1] for key_ in finite]
    if name.endswith("day"):
        numbers = [(day - date(1970, 1, 1)).days for day in numbers]
    elif not numbers or not isinstance(numbers[0], int | float | Decimal) or isinstance(numbers[0], bool):
        return
    numbers = [number for number in numbers if math.isfinite(number)]
    try:
        bins = scope.histogram(name)
    except NotStoredError:
        return
    assert sum(bin_.frequency for bin_ in bins) == len(numbers), name
    for bin_ in bins:
        # A bin may end after the year 9999, which Python's dates cannot represent.
        low, high = (one.value if name.endswith("day") else one.as_py() for one in (bin_.minimum, bin_.maximum))
        is_last = bin_ is bins[-1]
        assert bin_.frequency == sum(low <= value < high or (is_last and value == high) for value in numbers), name


def check(folder: Path, number: int, pairs: int) -> Counter[str]:
    """Check `pairs` random predicates on a random table of up to three partitions.

    `number` is the seed of the table and the predicates.

    Returns the number of predicates by the fragments they select: `cut` (parts of some), `whole` (only complete ones),
    or `nothing`.
    """
    draw = random.Random(1000 + number)
    fragments = example(st.lists(rows_of(most=8), min_size=2, max_size=6), draw, 3)[-1]
    predicate_nodes = example(predicates(), draw, pairs)
    uri = folder / f"table{number}"
    every: list[dict[str, Any]] = []
    for at, rows in enumerate(fragments):
        part = uri / f"part={at % 3}"
        part.mkdir(exist_ok=True, parents=True)
        every += [{**row, "part": at % 3} for row in plain(rows)]
        pq.write_table(table_of(rows), part / f"{at}.parquet")
    policy = POLICIES[number % len(POLICIES)]
    table_config = TableConfig.model_validate(
        {"name": "t", "uri": str(uri), "columns": {"default": policy, "part": {"values": "shown"}}}
    )
    config = MetastoreConfig(root=str(folder / f"root{number}"), tables=[table_config], engine="auto")
    refresh(config, table_config, no_spark)
    lookup = open_table(config.root, "t", table_locations=[config.tables[0].uri])
    outcome_counts: Counter[str] = Counter()
    for at, node in enumerate(predicate_nodes):
        chosen_parts = set(draw.sample([0, 1, 2], draw.randrange(1, 4)))
        parts = "part in ({})".format(", ".join(f"'{number}'" for number in sorted(chosen_parts)))
        where, expected_rows = [
            (parts, [row for row in every if row["part"] in chosen_parts]),
            (sql(node), [row for row in every if holds(node, row) is True]),
            (
                f"{parts} and ({sql(node)})",
                [row for row in every if row["part"] in chosen_parts and holds(node, row) is True],
            ),
            (
                f"{parts} or ({sql(node)})",
                [row for row in every if row["part"] in chosen_parts or holds(node, row) is True],
            ),
        ][at % 4]
        scope = lookup.filter(where, table=table_config)
        try:
            check_scope(scope, expected_rows)
        except Exception as error:
            error.add_note(where)
            raise
        partial_count = len(scope.match.partial_fragments)
        outcome_counts["cut" if partial_count else "whole" if expected_rows else "nothing"] += 1
        assert scope.cost.fragments_read == partial_count
        if partial_count:
            with pytest.raises(NotStoredError, match=r"`filter\(…, read=True\)`"):
                lookup.filter(where).top("word")
    return outcome_counts


@pytest.mark.parametrize("number", [0, 2])
def test_answers_about_a_filtered_view_equal_those_of_its_rows(tmp_path: Path, number: int) -> None:
    check(tmp_path, number, 6)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_answers_about_a_filtered_view_equal_those_of_its_rows_at_length(tmp_path: Path) -> None:
    """Answers equal those of the rows for 1,000 pairs of random tables and predicates.

    More than 30 predicates match parts of fragments, more than 30 only complete fragments, and more than 30 nothing.
    """
    outcome_counts = sum((check(tmp_path, 100 + number, 20) for number in range(50)), Counter[str]())
    assert min(outcome_counts["cut"], outcome_counts["whole"], outcome_counts["nothing"]) > 30


@pytest.mark.parametrize("bits", [48, 4])
def test_repeated_values_of_some_rows_come_from_fingerprints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bits: int
) -> None:
    """Statistics of values in several files and partitions are correct, or not called exact.

    Fingerprints are hashes of values. With 48 bits, all statistics are exact. With 4 bits, values share fingerprints,
    and not all are exact.
    """
    monkeypatch.setattr(fingerprints, "TABLE_BITS", bits)
    draw = random.Random(bits)
    every: list[tuple[int, int]] = []
    for part in range(4):
        for at in range(2):
            ids = [draw.randrange(60 if bits == 48 else 12) for _ in range(12)]
            (tmp_path / f"lake/part={part}").mkdir(parents=True, exist_ok=True)
            pq.write_table(pa.table({"id": ids}), tmp_path / f"lake/part={part}/{at}.parquet")
            every += [(part, number) for number in ids]
    policy = {"id": {"frequencies": "repeated", "algorithm": "fingerprints"}}
    table_config = TableConfig.model_validate({"name": "t", "uri": str(tmp_path / "lake"), "columns": policy})
    refresh(MetastoreConfig(root=str(tmp_path / "root"), tables=[table_config], engine="auto"), table_config, no_spark)
    lookup, answer = open_table(str(tmp_path / "root"), "t", table_locations=[str(tmp_path)]), 0
    for where, is_match in (
        ("part in ('0', '1')", lambda part, id_: part < 2),
        ("part = '2' or id < 7", lambda part, id_: part == 2 or id_ < 7),
        ("part = '3'", lambda part, id_: part == 3),
        ("part != '0' and id >= 5", lambda part, id_: part != 0 and id_ >= 5),
    ):
        counts = Counter(id_ for part, id_ in every if is_match(part, id_))
        scope = lookup.filter(where, read=True)
        (row,) = scope.statistics(["id"])
        assert (row.value_count, row.frequencies) == (counts.total(), "repeated")
        if row.distinct_count_guarantee == "exact":
            answer += 1
            check_repeated(scope, "id", Counter({(0, number): count for number, count in counts.items()}))
        else:
            with pytest.raises(NotStoredError, match="`frequencies: repeated`"):
                scope.top("id")
    assert answer == 4 if bits == 48 else answer < 4
