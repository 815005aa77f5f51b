"""A pruned scan of a real table has the rows of a full scan with the filter, and bounds hold."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.errors import MetastoreError
from metastore_assets.formats import open_table_format
from metastore_assets.lookup import TableLookup, open_table
from metastore_assets.pipeline.refresh import refresh
from metastore_assets.scan.choosing import choose, told_by_format
from metastore_assets.scan.reading import matching_rows
from scripts.realtables.tables import RealTable, real_tables
from tests.scan.realtables import Question, full_rows, keys, order, questions

_REFUSED = {
    "listing/orc_TestOrcFile_testTimestamp",  # rows that are single values, not records
    "listing/parquet_int96_from_spark",  # a year near 290000 that its writer itself let overflow
    "listing/csv_impala_table_missing_columns",  # rows of different lengths
    "listing/csv_impala_strings_with_quotes",  # quotes that belong to values: `quote` has to say so
}
_FEW = 53
"""Of the collection, every so manieth table in a quick run."""


def no_spark() -> Any:
    raise AssertionError("no real table is worth a session")


def config_of(table: RealTable, root: Path) -> MetastoreConfig:
    own = TableConfig(name="t", uri=table.uri, relocate=dict(table.relocate))
    return MetastoreConfig(root=str(root), tables=[own], engine="auto")


def check(table: RealTable, root: Path, most: int) -> int:
    """How many predicates were tried, evenly spread over the columns."""
    config = config_of(table, root)
    own = config.tables[0]
    try:
        refresh(config, own, no_spark)
    except MetastoreError:
        if table.name not in _REFUSED:
            raise
        return 0
    snapshot = open_table_format(own).snapshot()
    lookup = open_table(config.root, "t")
    rows = full_rows(snapshot)
    asked = list(questions(snapshot))
    asked = asked[:: max(1, len(asked) // most)]
    for question in asked:
        check_one(table.name, lookup, own, rows, question)
    return len(asked)


def check_one(name: str, lookup: TableLookup, table: TableConfig, rows: list[list[Any]], question: Question) -> None:
    wanted = Counter(repr([order(key) for key in row]) for row in rows if question.holds(row[question.column]))
    told = (name, question.where)
    chosen = choose(lookup, table, question.where, "now")
    places = list(range(len(chosen.snapshot.schema)))
    found: Counter[str] = Counter()
    for own, fragments in ((None, chosen.whole), (chosen.filter, chosen.undecided)):
        for fragment in fragments:
            for batch in matching_rows(own, chosen.snapshot.schema, places, fragment):
                columns = [keys(column) for column in batch.columns]
                found.update(repr([order(key) for key in row]) for row in zip(*columns, strict=True))
    assert found == wanted, told
    total = wanted.total()
    if chosen.snapshot.format != "files":
        table_format = open_table_format(table)
        told_of = told_by_format(table_format, chosen.snapshot, chosen.snapshot.fragments, chosen.filter.predicate)
        if len(told_of) == len(chosen.snapshot.fragments):
            assert sum(own[1] for own in told_of.values()) <= total <= sum(own[2] for own in told_of.values()), told
    bounds, about = lookup.prune(question.where).rows, lookup.estimate(question.where)
    assert bounds[0] <= total <= bounds[1], told
    assert about.lower <= total <= about.upper, told


def test_some_real_tables(realtables: Path, tmp_path: Path) -> None:
    tables = [own for own in real_tables(realtables, tmp_path) if own.name not in _REFUSED][::_FEW]
    assert sum(check(table, tmp_path / str(number), 7) for number, table in enumerate(tables)) > 25


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_every_real_table(realtables: Path, tmp_path: Path) -> None:
    for number, table in enumerate(real_tables(realtables, tmp_path)):
        check(table, tmp_path / str(number), 60)
