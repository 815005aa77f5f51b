"""A pruned scan returns the rows of the filtered full scan.

Tables are random, of all types, and so are predicates.

A fragment is a data file together with the deletes that apply to it. The root is the folder with all stored state. The
policy of a column decides which of its statistics and values are stored.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, seed, settings

from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.metastore import open_table
from metastore_assets.pipeline.refresh import refresh
from metastore_assets.reads.matching_rows import matching_rows
from metastore_assets.reads.scan_plan import plan_scan
from tests.expressions.random_predicates import holds, plain, predicates, rows_of, sql, table_of

QUIET = list(HealthCheck)
POLICIES: list[dict[str, str]] = [
    {},
    {"frequencies": "off"},
    {"frequencies": "repeated", "algorithm": "fingerprints"},
    {"frequencies": "off", "histogram": "off", "quantiles": "off"},
    {"values": "hidden"},
    {"by_partition": "on"},
    {"frequencies": "top(1)"},
]
"""Policies of all columns. The statistics that they store determine which fragments predicates can prune."""


def no_spark() -> Any:
    raise AssertionError("nothing here is worth a session")


def check(folder: Path, number: int, pairs: int) -> int:
    """Check that scans of a random table return exactly the rows that match random predicates.

    The number of these rows must be within the bounds of `prune` and of `estimate`. The table has up to four files.

    Args:
        folder: The folder for the table and its root.
        number: The seed of the table and the predicates.
        pairs: The number of predicates.

    Returns:
        How many of the predicates pruned a fragment.
    """
    draw = random.Random(number)
    fragments = example(st.lists(rows_of(most=8), min_size=1, max_size=4), draw, 3)[-1]
    predicate_nodes = example(predicates(), draw, pairs)
    uri = folder / f"table{number}"
    uri.mkdir()
    every: list[dict[str, Any]] = []
    for at, rows in enumerate(fragments):
        part = uri / f"part={at % 2}"
        part.mkdir(exist_ok=True)
        numbered_rows = [{**row, "n": at * 100 + position} for position, row in enumerate(plain(rows))]
        every += numbered_rows
        table = table_of(rows).append_column("n", pa.array([row["n"] for row in numbered_rows], pa.int64()))
        pq.write_table(table, part / f"{at}.parquet")
    policy = POLICIES[number % len(POLICIES)]
    table_config = TableConfig.model_validate(
        {"name": "t", "uri": str(uri), "columns": {"default": policy, "part": {"values": "shown"}}}
    )
    config = MetastoreConfig(root=str(folder / f"root{number}"), tables=[table_config], engine="auto")
    refresh(config, table_config, no_spark)
    lookup = open_table(config.root, "t")
    column_index = lookup.version.schema.get_field_index("n")
    pruned_scans = 0
    for node in predicate_nodes:
        where = sql(node)
        expected_counts = Counter(row["n"] for row in every if holds(node, row) is True)
        plan = plan_scan(lookup, table_config, where, "version")
        result: Counter[int] = Counter()
        for filter_, planned_fragments in ((None, plan.full_fragments), (plan.filter, plan.partial_fragments)):
            for fragment in planned_fragments:
                for batch in matching_rows(filter_, plan.snapshot.schema, [column_index], fragment):
                    result.update(batch.column(0).to_pylist())
        assert result == expected_counts, where
        pruning, about = lookup.prune(where), lookup.estimate(where)
        assert pruning.row_bounds[0] <= expected_counts.total() <= pruning.row_bounds[1], where
        assert about.lower <= expected_counts.total() <= about.upper, (where, about)
        pruned_scans += pruning.fragment_count < pruning.fragments_total
    return pruned_scans


def example(strategy: st.SearchStrategy[Any], draw: random.Random, count: int) -> list[Any]:
    """Return `count` examples of a strategy, determined by the state of `draw`."""
    result: list[Any] = []

    @seed(draw.randrange(2**30))
    @settings(max_examples=count, database=None, suppress_health_check=QUIET, deadline=None)
    @given(strategy)
    def collect(one: Any) -> None:
        result.append(one)

    collect()
    return result[-count:]


@pytest.mark.parametrize("number", range(len(POLICIES)))
def test_a_pruned_scan_returns_the_rows_of_the_full_scan(tmp_path: Path, number: int) -> None:
    """For each policy, scans of a random table by 12 random predicates return exactly the matching rows."""
    check(tmp_path, number, 12)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_pruned_scan_returns_the_rows_of_the_full_scan_at_length(tmp_path: Path) -> None:
    """Scans return exactly the matching rows for 6,000 pairs of random tables and predicates.

    More than 1,000 of the predicates prune fragments.
    """
    assert sum(check(tmp_path, 100 + number, 60) for number in range(100)) > 1000
