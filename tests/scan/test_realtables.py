"""A pruned scan of a real table has the rows of a full scan with the filter, and bounds hold."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from metastore_assets.config import TableConfig
from metastore_assets.formats import open_table_format
from metastore_assets.lookup import Table
from metastore_assets.scan.matching_rows import matching_rows
from metastore_assets.scan.scan_plan import bound_by_format, plan_scan
from scripts.realtables.tables import real_tables
from tests.scan.realtable_predicates import REFUSED, Question, check_table, keys, order

_FEW = 53
"""Of the collection, every so manieth table in a quick run."""


def check_one(name: str, lookup: Table, table: TableConfig, rows: list[list[Any]], question: Question) -> None:
    wanted = Counter(repr([order(key) for key in row]) for row in rows if question.holds(row[question.column]))
    told = (name, question.where)
    plan = plan_scan(lookup, table, question.where, "now")
    places = list(range(len(plan.snapshot.schema)))
    found: Counter[str] = Counter()
    for own, fragments in ((None, plan.full_fragments), (plan.filter, plan.partial_fragments)):
        for fragment in fragments:
            for batch in matching_rows(own, plan.snapshot.schema, places, fragment):
                columns = [keys(column) for column in batch.columns]
                found.update(repr([order(key) for key in row]) for row in zip(*columns, strict=True))
    assert found == wanted, told
    total = wanted.total()
    if plan.snapshot.format != "files":
        table_format = open_table_format(table)
        told_of = bound_by_format(table_format, plan.snapshot, plan.snapshot.fragments, plan.filter.predicate)
        if len(told_of) == len(plan.snapshot.fragments):
            assert sum(own[1] for own in told_of.values()) <= total <= sum(own[2] for own in told_of.values()), told
    bounds, about = lookup.prune(question.where).rows, lookup.estimate(question.where)
    assert bounds[0] <= total <= bounds[1], told
    assert about.lower <= total <= about.upper, told


def test_some_real_tables(realtables: Path, tmp_path: Path) -> None:
    tables = [own for own in real_tables(realtables, tmp_path) if own.name not in REFUSED][::_FEW]
    assert sum(check_table(check_one, table, tmp_path / str(number), 7) for number, table in enumerate(tables)) > 25


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_every_real_table(realtables: Path, tmp_path: Path) -> None:
    for number, table in enumerate(real_tables(realtables, tmp_path)):
        check_table(check_one, table, tmp_path / str(number), 60)
