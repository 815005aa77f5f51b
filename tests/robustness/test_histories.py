"""After random histories, statistics are those of the live rows, and no fragment is read twice.

The tables are Delta, Iceberg, Hudi and Lance tables and plain files. The oracle is DuckDB over a model of the live
rows, without the package's readers. A fragment is a data file with the deletes that apply to it. A version is the
published statistics of a table at one snapshot. A version *from scratch* is the first one that a refresh publishes
under an empty root. A root is the folder with all stored state.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from metastore_assets.metastore import Metastore
from tests.pipeline.file_lake import everything_on_spark
from tests.robustness.delta_tables import DeltaCopyOnWrite, DeltaMapped
from tests.robustness.file_tables import PlainFiles
from tests.robustness.histories import History, shuffled
from tests.robustness.hudi_tables import HudiTables
from tests.robustness.iceberg_tables import IcebergCopyOnWrite, IcebergMergeOnRead
from tests.robustness.lance_tables import LanceTables
from tests.robustness.refresh_assertions import assert_equals_scratch, differences_missing_at_random, refreshed
from tests.robustness.statistics_assertions import assert_statistics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    # Warned by pyiceberg if a commit has nothing to delete.
    pytest.mark.filterwarnings("ignore:Delete operation did not match any records"),
]

_QUICK = [DeltaMapped, IcebergCopyOnWrite, LanceTables, PlainFiles]
_KINDS = [DeltaCopyOnWrite, IcebergMergeOnRead, HudiTables, *_QUICK]


def _histories(length: int, seeds: range, kinds: list[type[History]]) -> list[object]:
    return [pytest.param(kind, seed, length, id=f"{kind.__name__}-{seed}") for kind in kinds for seed in seeds]


@pytest.mark.parametrize(("kind", "seed", "length"), _histories(5, range(1), _QUICK))
def test_statistics_are_correct_after_any_history(
    spark: SparkSession, tmp_path: Path, kind: type[History], seed: int, length: int
) -> None:
    """Every version has DuckDB's statistics.

    The last version equals a version from scratch, which is computed completely on Spark.
    """
    history = _follow(kind, seed, length, tmp_path, spark)
    with everything_on_spark():
        assert_equals_scratch(history.config(), spark, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize(("kind", "seed", "length"), _histories(14, range(9), _KINDS))
def test_statistics_are_correct_after_any_long_history(
    spark: SparkSession, tmp_path: Path, kind: type[History], seed: int, length: int
) -> None:
    """Every version has DuckDB's statistics, and equals a version from scratch.

    The version from scratch is computed completely on Spark.
    """
    _follow(kind, seed, length, tmp_path, spark, always=True)


def _follow(
    kind: type[History], seed: int, length: int, folder: Path, spark: SparkSession, always: bool = False
) -> History:
    """Take `length` random steps (changes of the table) of a history, and return the history.

    After each step, refresh the table, and compare its statistics with DuckDB's. Some refreshes compare all fragments.
    A fragment that was profiled before is read again only if types changed. With `always`, every version is also
    compared with a version from scratch, which is computed on Spark.
    """
    history = kind(folder, seed)
    config = history.config()
    all_fragments = set()
    types: dict[str, object] = {}
    for step in ["", *shuffled(history, length)]:
        if step:
            history.take(step)
        now = history.fragments()
        with differences_missing_at_random(100 * seed + len(history.states)):
            result = refreshed(config, spark)
        published_table = Metastore(config.root).table("t")
        assert_statistics(published_table, history.live(), step, history.partition_column)
        before, types = types, {row.column: row.type for row in published_table.statistics()}
        if all(types[name] == before[name] for name in types.keys() & before.keys()):
            assert result.fragments_profiled == len(now - all_fragments), step
        all_fragments |= now
        if always:
            with everything_on_spark():
                assert_equals_scratch(config, spark, folder)
    return history
