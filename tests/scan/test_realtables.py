"""A pruned scan of a real table returns the filtered rows, and the bounds of their number hold."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from metastore_assets.config import TableConfig
from metastore_assets.formats import open_table_format
from metastore_assets.lookup import Table
from metastore_assets.reads.matching_rows import matching_rows
from metastore_assets.reads.scan_plan import bound_by_format, plan_scan
from scripts.realtables.tables import real_tables
from tests.scan.realtable_predicates import REFUSED, Question, check_table, keys, order

_FEW = 53
"""A quick run tests every 53rd table."""
FALSE_BOUNDS = {("delta/kernel_parsed-stats", "ts_col")}
"""Columns with false bounds in the table's own metadata: this log has bounds of a column that no file has."""


def check_one(name: str, lookup: Table, table: TableConfig, rows: list[list[Any]], question: Question) -> None:
    """Compare the rows of a scan, and the bounds of the number of rows, with the matching rows.

    The bounds come from statistics, without a scan.
    """
    expected_rows = Counter(repr([order(key) for key in row]) for row in rows if question.holds(row[question.column]))
    answer = (name, question.where)
    plan = plan_scan(lookup, table, question.where, "now")
    columns_read = list(range(len(plan.snapshot.schema)))
    result: Counter[str] = Counter()
    for row_filter, fragments in ((None, plan.full_fragments), (plan.filter, plan.partial_fragments)):
        for fragment in fragments:
            for batch in matching_rows(row_filter, plan.snapshot.schema, columns_read, fragment):
                columns = [keys(column) for column in batch.columns]
                result.update(repr([order(key) for key in row]) for row in zip(*columns, strict=True))
    assert result == expected_rows, answer
    total = expected_rows.total()
    if plan.snapshot.format != "files" and (name, plan.snapshot.schema.names[question.column]) not in FALSE_BOUNDS:
        table_format = open_table_format(table)
        bounds_by_id = bound_by_format(table_format, plan.snapshot, plan.snapshot.fragments, plan.filter.predicate)
        if len(bounds_by_id) == len(plan.snapshot.fragments):
            assert (
                sum(value[1] for value in bounds_by_id.values())
                <= total
                <= sum(value[2] for value in bounds_by_id.values())
            ), answer
    bounds, about = lookup.prune(question.where).row_bounds, lookup.estimate(question.where)
    assert bounds[0] <= total <= bounds[1], answer
    assert about.lower <= total <= about.upper, answer


def test_scans_of_some_real_tables_equal_full_scans(realtables: Path, tmp_path: Path) -> None:
    tables = [real_table for real_table in real_tables(realtables, tmp_path) if real_table.name not in REFUSED][::_FEW]
    assert sum(check_table(check_one, table, tmp_path / str(number), 7) for number, table in enumerate(tables)) > 25


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_scans_of_all_real_tables_equal_full_scans(realtables: Path, tmp_path: Path) -> None:
    for number, table in enumerate(real_tables(realtables, tmp_path)):
        check_table(check_one, table, tmp_path / str(number), 60)
