"""Reads of real tables return the rows of the filtered full scan.

Counts of rows and nulls are those that other libraries established.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from metastore_assets.config import TableConfig
from metastore_assets.errors import MetastoreError, UnsupportedTypeError
from metastore_assets.lookup import Table
from scripts.realtables.tables import RealTable, real_tables
from tests.scan.realtable_predicates import REFUSED, Question, check_table, keys, order

_FEW = 53


def _rows(batches: pa.RecordBatchReader) -> Counter[str]:
    """Return the rows as a multiset, each as text."""
    result: Counter[str] = Counter()
    for batch in batches:
        if not batch.num_columns:
            result["[]"] += batch.num_rows
            continue
        columns = [keys(column) for column in batch.columns]
        result.update(repr([order(key) for key in row]) for row in zip(*columns, strict=True))
    return result


def check_one(name: str, lookup: Table, table: TableConfig, rows: list[list[Any]], question: Question) -> None:
    expected_rows = Counter(repr([order(key) for key in row]) for row in rows if question.holds(row[question.column]))
    assert _rows(lookup.read(where=question.where, table=table)) == expected_rows, (name, question.where)


def _check(real_table: RealTable, root: Path, most: int) -> int:
    check_count = 0

    def check(name: str, lookup: Table, table: TableConfig, rows: list[list[Any]], question: Question) -> None:
        nonlocal check_count
        if not check_count:
            _check_truth(real_table, lookup.read(table=table).read_all())
            _check_dataset(name, lookup, table)
            _check_lazy(name, lookup, table)
        check_count += 1
        check_one(name, lookup, table, rows, question)

    check_table(check, real_table, root, most)
    return check_count


def _check_dataset(name: str, lookup: Table, table: TableConfig) -> None:
    """Check that a dataset has the rows that `Table.read` returns, or that the table is refused.

    A table is refused if Arrow would read other rows.
    """
    refusal = ""
    try:
        dataset = lookup.dataset(table=table)
    except MetastoreError as error:
        refusal = str(error)
    else:
        assert _rows(dataset.to_table().to_reader()) == _rows(lookup.read(table=table)), name
    assert not refusal or "use `read` or `lazy`" in refusal, name


def _check_lazy(name: str, lookup: Table, table: TableConfig) -> None:
    """Check that columns of a lazy frame have as many nulls as the columns that `Table.read` returns.

    Tables with a type that Polars lacks are skipped.
    """
    try:
        frame = lookup.lazy(table=table)
    except UnsupportedTypeError:
        return
    rows = lookup.read(table=table).read_all()
    nulls = frame.null_count().collect().row(0)
    assert list(nulls) == [column.null_count for column in rows.columns], name


def _check_truth(real_table: RealTable, rows: pa.Table) -> None:
    """Compare row counts and null counts with numbers that other libraries established."""
    assert rows.num_rows == real_table.truth["row_count"], real_table.name
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        truth = real_table.truth["columns"].get(name)
        if truth is not None and not pa.types.is_nested(column.type):
            assert column.null_count == truth["null_count"], (real_table.name, name)


def test_reads_of_some_real_tables_equal_full_scans(realtables: Path, tmp_path: Path) -> None:
    tables = [real_table for real_table in real_tables(realtables, tmp_path) if real_table.name not in REFUSED][::_FEW]
    assert sum(_check(table, tmp_path / str(number), 5) for number, table in enumerate(tables)) > 15


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_reads_of_all_real_tables_equal_full_scans(realtables: Path, tmp_path: Path) -> None:
    for number, table in enumerate(real_tables(realtables, tmp_path)):
        _check(table, tmp_path / str(number), 12)
