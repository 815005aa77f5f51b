"""Ranks and lookups by key prefix equal those of sorted rows.

There are many keys in many small runs (sorted files) and shards (ranges of keys).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from metastore_assets.errors import GraphError
from metastore_assets.produce import Dataflow, Delta, DeltaRoot, FlowState, Ranks, Rows, Settings, SumStage
from metastore_assets.produce.ranks import _last_where
from metastore_assets.store.objects import ObjectStore

TINY = Settings(
    row_group_rows=3, target_rows=20, single_run_rows=0, fan_in=3, max_runs=9, bulk_share=1e9, base_share=0.4
)


def nodes(descending: tuple[str, ...]) -> list[Any]:
    key = pa.schema([("column", pa.string()), ("value", pa.int64())])
    return [
        DeltaRoot("lists", Rows(key, pa.schema([("frequency", pa.int64()), ("other", pa.int64())]))),
        SumStage(
            "values", ("lists",), ("column", "value"), ("frequency", "other"), descending=descending, signed=False
        ),
    ]


def rows(amounts: Counter[tuple[str, int]]) -> pa.Table:
    keys = list(amounts)
    return pa.table(
        {
            "column": [column for column, _ in keys],
            "value": [value for _, value in keys],
            "frequency": list(amounts.values()),
            "other": pa.array([7 * count for count in amounts.values()], pa.int64()),
        }
    )


@pytest.mark.parametrize("seed", [2, 3, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(4, 60))])
def test_ranks_in_many_runs_equal_those_of_sorted_rows(store: ObjectStore, seed: int) -> None:
    draw = Random(seed)
    descending: tuple[str, ...] = ("value",) if seed % 3 == 0 else ()
    flow = Dataflow(store, nodes(descending), settings=TINY)
    state, counts = FlowState(), Counter[tuple[str, int]]()
    for step in range(9):
        added_counts = Counter(
            {(draw.choice("abc"), draw.randrange(60)): draw.randint(1, 9) for _ in range(draw.randint(0, 40))}
        )
        removed_keys = draw.sample(sorted(counts), min(len(counts), draw.randint(0, 30))) if step else []
        removed_counts = Counter({key: draw.randint(1, counts[key]) for key in removed_keys})
        state = flow.step(state, {"lists": [Delta(rows(added_counts)), Delta(rows(removed_counts), removed=True)]})
        counts += added_counts
        counts -= removed_counts
        if step % 3 == 2:
            view = flow.view(state)
            check(view.ranks("values", "frequency"), counts, draw, -1 if descending else 1)
            columns = draw.sample("abcd", 2)
            actual = view.rows_with_prefixes("values", pa.table({"column": columns})).to_pylist()
            expected = {key: count for key, count in counts.items() if key[0] in columns}
            assert {(row["column"], row["value"]): row["frequency"] for row in actual} == expected
            assert len(actual) == len(expected)
    shards = state.stages["values"].content
    assert shards is not None
    assert len(shards.shards) > 1
    assert shards.level0


def check(ranks: Ranks, counts: Counter[tuple[str, int]], draw: Random, sign: int) -> None:
    """Compare the ranks with sorted lists of values.

    `counts` has the frequency of each (column, value).

    `sign` is -1 if values descend, and otherwise 1.
    """
    assert ranks.total() == sum(counts.values())
    for column in "abcd":
        prefix = pa.table({"column": [column]})
        amounts = {sign * value: count for (other, value), count in counts.items() if other == column}
        ascending = [value for value in sorted(amounts) for _ in range(amounts[value])]
        assert ranks.total(prefix) == len(ascending)
        low, high = sorted(sign * draw.randrange(-1, 61) for _ in range(2))
        keys = pa.table({"column": [column] * 2, "value": [sign * low, sign * high]})
        assert ranks.rank(keys) == [bisect_left(ascending, low), bisect_left(ascending, high)]
        between = bisect_right(ascending, high) - bisect_left(ascending, low)
        assert ranks.amount_between(keys.slice(0, 1), keys.slice(1)) == between
        for rank in (
            {0, len(ascending) - 1, *draw.sample(range(len(ascending)), min(2, len(ascending)))} if ascending else ()
        ):
            value, count = ascending[rank], amounts[ascending[rank]]
            assert ranks.at_rank(prefix, rank).to_pylist() == [
                {
                    "column": column,
                    "value": sign * value,
                    "frequency": count,
                    "other": 7 * count,
                    "rank": bisect_left(ascending, value),
                }
            ]


def test_the_last_true_number_is_independent_of_the_guess() -> None:
    """The search finds the last number for which a condition is true, whatever the guess.

    With a guess that is off by two in 100,000 numbers, it needs less than eight calls.
    """
    for last in range(10):
        for guess in range(-3, 14):
            assert _last_where(lambda at, last=last: at <= last, (0, 9), guess) == last
    requested_numbers: list[int] = []

    def holds(at: int) -> bool:
        requested_numbers.append(at)
        return at <= 5_002

    assert _last_where(holds, (0, 100_000), 5_000) == 5_002
    assert len(requested_numbers) < 8


def test_only_sums_are_looked_up_by_key_prefix(store: ObjectStore) -> None:
    view = Dataflow(store, nodes(()), settings=TINY).view(FlowState())
    assert view.rows_with_prefixes("values", pa.table({"column": ["a"]})).num_rows == 0
    with pytest.raises(GraphError, match=r"'values'.*\bvalue\b"):
        view.rows_with_prefixes("values", pa.table({"value": pa.array([1])}))
