"""`metastore profile` lists the statistics of every real table in one call without configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.realtables.__main__ import judge
from scripts.realtables.report import page
from scripts.realtables.tables import real_tables
from tests.conftest import REPOSITORY

pytestmark = pytest.mark.spark

_REFUSED = {
    "listing/orc_TestOrcFile_testTimestamp",  # rows that are single values, not records
    "listing/parquet_int96_from_spark",  # a year near 290000: an overflow in the program that wrote it
    "listing/csv_impala_table_missing_columns",  # rows of different lengths
    "listing/csv_impala_strings_with_quotes",  # quotes that belong to values: needs the option `quote`
}


@pytest.mark.long
@pytest.mark.timeout(1200)  # more than a hundred tables, one by one
def test_no_real_table_is_wrong_and_few_are_refused(realtables: Path, tmp_path: Path) -> None:
    """No profile is wrong, and at most 3 % of the tables are refused.

    The page docs/reference/real-tables.md lists these results.
    """
    results = judge(real_tables(realtables, tmp_path))
    assert {result.table.name: result.detail for result in results if result.outcome == "wrong"} == {}
    refused_tables = {result.table.name: result.detail for result in results if result.outcome == "refused"}
    assert set(refused_tables) == _REFUSED, refused_tables
    assert len(refused_tables) <= 0.03 * len(results)
    assert (REPOSITORY / "docs" / "reference" / "real-tables.md").read_text().startswith(page(results)), (
        "run `make formats`"
    )
