"""Counts and values of a filtered view of a real table equal those of the matching rows.

A filtered view of a table has only the rows that match a predicate. The counts are those of rows and nulls.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from metastore_assets.config import TableConfig
from metastore_assets.lookup import Table
from scripts.realtables.tables import real_tables
from tests.scan.realtable_predicates import REFUSED, Question, check_table, keys, order


def check_one(name: str, lookup: Table, table: TableConfig, rows: list[list[Any]], question: Question) -> None:
    """Compare the statistics and top values of a filtered view with the rows that match."""
    expected_rows = [row for row in rows if question.holds(row[question.column])]
    answer = (name, question.where)
    scope = lookup.filter(question.where, table=table)
    assert scope.count().value == len(expected_rows), answer
    schema = lookup.version.schema
    for row in scope.statistics():
        at = schema.get_field_index(row.column)
        if at < 0 or schema.names.count(row.column) > 1:
            continue  # a nested field, or a duplicate name
        column_values = [row[at] for row in expected_rows]
        what = (*answer, row.column)
        assert (row.null_count, row.value_count) == (
            column_values.count(None),
            len(column_values) - column_values.count(None),
        ), what
        if row.frequencies != "enumerated" or pa.types.is_time(schema.field(at).type):
            continue  # times of day are enumerated in one unit, which may differ from the table's
        counts = Counter(order(value) for value in column_values if value is not None)
        top = scope.top(row.column, 10**6)
        assert {order(keys(pa.repeat(value, 1))[0]): count for value, count in top} == counts, what


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_every_real_table(realtables: Path, tmp_path: Path) -> None:
    for number, table in enumerate(real_tables(realtables, tmp_path)):
        check_table(check_one, table, tmp_path / str(number), 8)


def test_a_few_real_tables(realtables: Path, tmp_path: Path) -> None:
    tables = [real_table for real_table in real_tables(realtables, tmp_path) if real_table.name not in REFUSED][::401]
    assert sum(check_table(check_one, table, tmp_path / str(number), 3) for number, table in enumerate(tables)) > 0
