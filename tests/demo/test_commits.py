"""The demo's commits change exactly the rows that they claim to change."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from scripts.demo.commits import COMMITS
from scripts.demo.lakehouse import Lakehouse

Summary = dict[str, tuple[int, int]]
"""Per partition key: rows, and a sum that differs when the rows do."""


@pytest.fixture(scope="module")
def lakehouse(tmp_path_factory: pytest.TempPathFactory) -> Lakehouse:
    lakehouse_ = Lakehouse(tmp_path_factory.mktemp("demo"))
    lakehouse_.generate(0.002)
    lakehouse_.build()
    return lakehouse_


def lineitem(lakehouse: Lakehouse) -> Summary:
    query = (
        "select 'l_shipmonth=' || l_shipmonth, count(*),"
        " sum(l_orderkey * 31 + l_linenumber + cast(l_tax * 100 as bigint)) from t group by 1"
    )
    rows = pa.table(QueryBuilder().register("t", DeltaTable(lakehouse.lineitem)).execute(query).read_all())
    return {key: (count, total) for key, count, total in zip(*(c.to_pylist() for c in rows.columns), strict=True)}


def orders(lakehouse: Lakehouse) -> Summary:
    query = """
        select 'o_orderyear=' || o_orderyear || '/o_orderpriority=' || o_orderpriority, count(*),
               sum(o_orderkey * 31 + cast(o_totalprice * 100 as bigint))
        from read_parquet(?, hive_partitioning = true) group by 1
    """
    rows = duckdb.execute(query, [f"{lakehouse.orders}/**/*.parquet"]).fetchall()
    return {key: (count, int(total)) for key, count, total in rows}


SUMMARIES: dict[str, Callable[[Lakehouse], Summary]] = {"lineitem": lineitem, "orders": orders}


def _differences(before: Summary, after: Summary) -> tuple[set[str], set[str]]:
    return {key for key in after if after[key] != before.get(key)}, set(before) - set(after)


def test_commits_change_exactly_their_rows(lakehouse: Lakehouse) -> None:
    """Each commit changes the rows of exactly the partitions that it names, as other engines read them."""
    first = lineitem(lakehouse)
    for commit in COMMITS:
        read = SUMMARIES[commit.table]
        before = read(lakehouse)
        commit.apply(lakehouse)
        changed, removed = _differences(before, read(lakehouse))
        assert removed == set(commit.removed), commit.title
        assert changed == set(commit.changed), commit.title
        if commit.title == "restore the first state":
            assert read(lakehouse) == first


def test_deletes_do_not_rewrite_files(tmp_path: Path) -> None:
    """The demo's commit that deletes rows uses deletion vectors, so the data files stay.

    Each changed month has fewer rows.
    """
    lakehouse = Lakehouse(tmp_path)
    lakehouse.generate(0.002)
    lakehouse.build()
    files = sorted(lakehouse.lineitem.rglob("*.parquet"))
    before = lineitem(lakehouse)
    commit = next(c for c in COMMITS if c.title.startswith("delete from"))
    commit.apply(lakehouse)
    after = lineitem(lakehouse)
    assert sorted(lakehouse.lineitem.rglob("*.parquet")) == files
    assert all(0 < after[key][0] < before[key][0] for key in commit.changed)


def test_titles_are_distinct() -> None:
    """No two commits of the demo have the same table and the same title."""
    assert len({(c.table, c.title) for c in COMMITS}) == len(COMMITS)
