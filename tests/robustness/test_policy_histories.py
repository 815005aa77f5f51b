"""Statistics are right in a thousand short histories of tables and policies.

The compared statistics include value counts, ranks, bins and user-defined statistics. Columns are of many kinds. Some
refreshes are killed at a random write, or lose a race to another publisher. Versions equal DuckDB's results over the
live rows. The last version of most histories also equals one from scratch, which a first refresh under an empty root
publishes. Refreshes need no Spark, so a history takes a fraction of a second.

A version is the published statistics of a table at one snapshot. A fragment is a data file with the deletes that apply
to it. A policy says which statistics and values of a column are stored. A root is the folder with all stored state. The
value counts of a column are its distinct values with the frequency of each.
"""

from __future__ import annotations

import random
import shutil
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from metastore_assets.config import MetastoreConfig
from metastore_assets.metastore import Metastore
from metastore_assets.pipeline import auto_policies
from metastore_assets.pipeline.hidden_values import KEY_FILE
from metastore_assets.pipeline.verification.verify import verify
from metastore_assets.value_counts import graph
from tests.pipeline.file_lake import assert_same, close, everything
from tests.pipeline.test_value_counts import RUNS
from tests.robustness.answer_assertions import assert_answers, assert_changes
from tests.robustness.histories import shuffled
from tests.robustness.policy_histories import (
    DeltaPolicies,
    FewPartitions,
    FilePolicies,
    IcebergPolicies,
    MappedPolicies,
    Policies,
    refreshed,
)
from tests.robustness.refresh_assertions import differences_missing_at_random, no_spark

# Warned by pyiceberg if a commit has nothing to delete.
pytestmark = pytest.mark.filterwarnings("ignore:Delete operation did not match any records")

_LOTS = 10
"""Number of histories in one test."""
_NEAR_UNIQUE = 30
"""The number of values from which a column may be near-unique, in every second lot. Tables have more values."""


def _lots(kind: type[Policies], count: int, length: int, first: int = 0, quick: int = 0) -> list[Any]:
    """Return the parameters of tests that run `count` histories in total, `_LOTS` of them per test.

    The seeds of the histories begin at `first`. The first `quick` histories are in every run. The others have the mark
    `long`.
    """
    return [
        pytest.param(
            *(kind, range(at, at + _LOTS), length),
            id=f"{kind.__name__}-{at}",
            marks=[] if at < first + quick else pytest.mark.long,
        )
        for at in range(first, first + count, _LOTS)
    ]


@pytest.fixture(autouse=True)
def _in_runs(monkeypatch: pytest.MonkeyPatch, seeds: range) -> None:
    monkeypatch.setattr(graph, "SETTINGS", RUNS)
    if seeds[0] // _LOTS % 2:
        monkeypatch.setattr(auto_policies, "NEAR_UNIQUE_ABOVE", _NEAR_UNIQUE)


@pytest.mark.parametrize(("kind", "seeds", "length"), _lots(FewPartitions, 50, 2, quick=10))
def test_fifty_histories_equal_duckdb_and_scratch(
    tmp_path: Path, kind: type[Policies], seeds: range, length: int
) -> None:
    """Each history starts as a copy of one refreshed table, and takes one or two steps (changes).

    After the steps, the table is refreshed and compared with DuckDB once. Some histories are also compared with a first
    refresh under an empty root.
    """
    start = kind(tmp_path / "start", seeds[0])
    refreshed(start.config())
    for seed in seeds:
        follow(begun(start, tmp_path / str(seed), seed), seed, 1 + seed % length, always=False)


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "seeds", "length"),
    [
        *_lots(FewPartitions, 600, 5, 100),
        *_lots(FilePolicies, 100, 5),
        *_lots(DeltaPolicies, 150, 5),
        *_lots(MappedPolicies, 100, 5),
        *_lots(IcebergPolicies, 100, 5),
    ],
)
def test_a_thousand_histories_equal_duckdb_and_scratch(
    tmp_path: Path, kind: type[Policies], seeds: range, length: int
) -> None:
    for seed in seeds:
        history = kind(tmp_path / str(seed), seed)
        refreshed(history.config())
        follow(history, seed, length, always=True)
        shutil.rmtree(history.folder)


def begun(start: Policies, folder: Path, seed: int) -> Policies:
    """Return a copy of a table and its root in another folder.

    Modification times, and so fragments, stay the same. `seed` determines the next random steps.
    """
    shutil.copytree(start.folder, folder)
    history = deepcopy(start)
    history.folder, history.draw = folder, random.Random(seed)
    return history


def follow(history: Policies, seed: int, length: int, *, always: bool) -> None:
    """Take `length` random steps (changes) of a history, refresh, and compare with DuckDB.

    With `always`, the table is refreshed and compared after each step. Every version is then verified, and the last
    version is compared with one from scratch. Otherwise, the table is refreshed and compared once, after the last step.
    Only for every tenth seed, the version is then compared with one from scratch.
    """
    done: list[str] = []
    draw = random.Random(seed)
    before, was = Metastore(history.config().root).table("t"), history.live()
    try:
        for step in shuffled(history, length):
            done.append(step)
            history.take(step)
            if not always and len(done) < length:
                continue
            with differences_missing_at_random(100 * seed + len(done)):
                done.append(history.refresh())
            table, live = Metastore(history.config().root).table("t"), history.live()
            assert_answers(table, live, history.config(), draw)
            if (always or seed % 3 == 0) and before.version.number in before.versions.numbers():
                assert_changes(before, was, table, live)
            before, was = table, live
            if always:
                assert_is_verified(history.config())
        if always or seed % _LOTS == 0:
            assert_is_from_scratch(history.config(), history.folder)
    except Exception as error:
        raise AssertionError(f"{type(history).__name__}, seed {seed}: {', '.join(done)}") from error


def assert_is_verified(config: MetastoreConfig) -> None:
    """Assert that `verify`, which reads all data files again, finds no difference to the newest version."""
    result = verify(config, config.tables[0], no_spark)
    assert result.is_right, (result.differences, result.unreadable)
    assert result.complete


def assert_is_from_scratch(config: MetastoreConfig, folder: Path) -> None:
    scratch_config = config.model_copy(update={"root": str(folder / "scratch")})
    if (key := folder / "root" / KEY_FILE).exists():
        (folder / "scratch").mkdir()
        shutil.copy(key, folder / "scratch")
    refreshed(scratch_config)
    actual, other = everything(config), everything(scratch_config)
    _remove_decisions(actual, other)
    assert_same(actual, other)
    for column, row in actual["table"]["columns"].items():
        assert close(custom_statistics_of(row), custom_statistics_of(other["table"]["columns"][column])), column


def _remove_decisions(actual: dict[str, Any], other: dict[str, Any]) -> None:
    """Remove from both results the numbers that depend on whether a column's frequencies are stored.

    Under the policy `frequencies: auto`, a refresh decides this for each column. Numbers are removed only for columns
    with different decisions in the two results. Bins are removed, too, because they may depend on the decision.
    """
    decided_columns = {
        column
        for column, row in actual["table"]["columns"].items()
        if row["frequencies"] != other["table"]["columns"][column]["frequencies"]
    }
    hang = ("frequencies", "reason", "enumerated", "distinct_count", "distinct_count_guarantee", "duplicate_count")
    hang = (*hang, "percentiles", "percentiles_guarantee", "user_defined", "bins")
    for statistics in (actual, other):
        for profile in (statistics["table"], *(each for _, each in statistics["partitions"].values())):
            for column in decided_columns:
                for name in hang:
                    profile["columns"][column].pop(name)


def custom_statistics_of(row: dict[str, Any]) -> dict[str, Any]:
    statistics = row.get("user_defined", {})
    return {name: (actual["array"].to_pylist(), actual["guarantee"]) for name, actual in statistics.items()}
