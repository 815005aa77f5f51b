"""Plans and versions from snapshot differences equal those from comparing all fragments.

A fragment is a data file with the deletes that apply to it. To find what changed since the last version, a refresh uses
the difference of two snapshots, or compares all fragments of both.

A version is the published statistics of a table at one snapshot.

A plan says which fragments a refresh reads. Merge nodes are stored merges of the statistics of some fragments or
partitions.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn
from unittest.mock import patch

import pytest

from metastore_assets.config import ColumnPolicy, MetastoreConfig
from metastore_assets.formats.base import NoDiff, NoDiffError
from metastore_assets.pipeline import planning
from metastore_assets.pipeline.plan import Plan
from metastore_assets.pipeline.refresh import plan_refresh
from metastore_assets.store.version import Version
from tests.pipeline.file_lake import assert_same, everything
from tests.robustness.delta_tables import DeltaCopyOnWrite, DeltaMapped
from tests.robustness.histories import History, shuffled
from tests.robustness.hudi_tables import HudiTables
from tests.robustness.iceberg_tables import IcebergCopyOnWrite, IcebergMergeOnRead
from tests.robustness.lance_tables import LanceTables
from tests.robustness.refresh_assertions import refreshed, versions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    # Of pyiceberg, where a commit finds nothing to delete.
    pytest.mark.filterwarnings("ignore:Delete operation did not match any records"),
]

_KINDS = [DeltaCopyOnWrite, DeltaMapped, IcebergCopyOnWrite, IcebergMergeOnRead, HudiTables, LanceTables]

_SHORT = [(kind, 3 if kind in (IcebergMergeOnRead, HudiTables) else 0) for kind in _KINDS]
"""The kind and the seed of each short history. With seed 3, Iceberg and Hudi tables have deletes."""


@contextmanager
def without_differences() -> Iterator[None]:
    """During the block, plan as if no format reported what its commits changed."""

    def changes(planner: Any) -> NoReturn:
        raise NoDiffError("a test")

    with patch.object(planning._Planner, "plan_from_difference", changes):
        yield


def plan_content(plan: Plan) -> dict[str, Any]:
    """Return everything that a plan decides, except whether it compared all fragments."""
    target = plan.target
    return {
        **{name: value for name, value in plan.to_json().items() if name != "full_comparison"},
        "to_profile": sorted(fragment.id for fragment in plan.to_profile),
        "added": sorted(plan.added_ids),
        "removed": sorted(entry.id for entry in plan.removed_fragments),
        "partitions": {partition.key: partition.fragments for partition in target.with_all_partitions().partitions},
        "spec": target.spec.id,
    }


def version_content(version: Version) -> dict[str, Any]:
    """Return a version's fragments, partitions, merge nodes and totals, without the names of files."""
    return {
        "fragments": {
            entry.key: (entry.id, entry.row_count, entry.bytes, entry.spec_id) for entry in version.fragments
        },
        "retired": sorted(entry.key for entry in version.retired),
        "partitions": {
            entry.key: (entry.members, entry.row_count, entry.bytes, entry.fragments, entry.content_id, entry.spec_id)
            for entry in version.partitions
        },
        "totals": (version.row_count, version.bytes, version.fragment_count, version.content_id, version.snapshot),
        "nodes": {node.key: (node.children, node.branches, node.count) for node in version.nodes},
    }


def newest(config: MetastoreConfig) -> Version:
    version = versions(config).latest()
    assert version is not None
    return version


def _cases(length: int, histories: list[tuple[type[History], int]]) -> list[object]:
    return [pytest.param(kind, seed, length, id=f"{kind.__name__}-{seed}") for kind, seed in histories]


@pytest.mark.parametrize(("kind", "seed", "length"), _cases(4, _SHORT))
def test_a_history(spark: SparkSession, tmp_path: Path, kind: type[History], seed: int, length: int) -> None:
    _compare(kind, seed, length, tmp_path, spark)


@pytest.mark.parametrize(("kind", "seed", "length"), _cases(3, [(DeltaCopyOnWrite, 0), (HudiTables, 3)]))
def test_a_history_with_fingerprints(
    spark: SparkSession, tmp_path: Path, kind: type[History], seed: int, length: int
) -> None:
    _compare(kind, seed, length, tmp_path, spark, ColumnPolicy(frequencies="repeated", algorithm="fingerprints"))


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "seed", "length"), _cases(14, [(kind, seed) for kind in _KINDS for seed in range(1, 5)])
)
def test_a_long_history_with_fingerprints(
    spark: SparkSession, tmp_path: Path, kind: type[History], seed: int, length: int
) -> None:
    _compare(kind, seed, length, tmp_path, spark, ColumnPolicy(frequencies="repeated", algorithm="fingerprints"))


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "seed", "length"), _cases(14, [(kind, seed) for kind in _KINDS for seed in range(1, 9)])
)
def test_a_long_history(spark: SparkSession, tmp_path: Path, kind: type[History], seed: int, length: int) -> None:
    _compare(kind, seed, length, tmp_path, spark)


def _compare(
    kind: type[History], seed: int, length: int, folder: Path, spark: SparkSession, policy: ColumnPolicy | None = None
) -> None:
    """Refresh two roots after most steps of a random history, and compare their versions.

    Refreshes of the first root may use the difference of two snapshots, and those of the second may not. Each plan for
    the first root is also compared with a plan that compares all fragments.
    """
    history = kind(folder, seed)
    config = history.config().model_copy(update={"keep_versions": 3, "engine": "auto"})
    if policy is not None:
        table = config.tables[0].model_copy(update={"columns": {"default": policy}})
        config = config.model_copy(update={"tables": [table]})
    other = config.model_copy(update={"root": str(folder / "other")})
    difference_count, chance = 0, random.Random(seed)
    for step in ["", *shuffled(history, length)]:
        if step:
            history.take(step)
        if chance.random() < 0.2:
            continue  # The next plan describes several commits.
        plan = plan_refresh(config, config.tables[0])
        difference_count += not plan.target.changes.comparison
        with without_differences():
            assert plan_content(plan) == plan_content(plan_refresh(config, config.tables[0])), step
        refreshed(config, spark)
        with without_differences():
            refreshed(other, spark)
        assert version_content(newest(config)) == version_content(newest(other)), step
        assert_same(everything(config), everything(other))
    assert difference_count, "no plan was made from a difference"


def test_a_plan_says_why_all_fragments_are_compared(tmp_path: Path, spark: SparkSession) -> None:
    history = DeltaCopyOnWrite(tmp_path, 0)
    config = history.config()
    table = config.tables[0]
    assert plan_refresh(config, table).to_json()["full_comparison"] == "no version is published"
    refreshed(config, spark)
    history.append(3)
    assert plan_refresh(config, table).to_json()["full_comparison"] is None
    with patch("metastore_assets.formats.delta.table.DeltaFormat.changes", lambda *_: NoDiff("the log is too short")):
        assert plan_refresh(config, table).to_json()["full_comparison"] == "the log is too short"
    changed_table = type(table).model_validate(
        {"name": "t", "uri": table.uri, "columns": {"n": {"frequencies": "off"}}}
    )
    assert plan_refresh(config, changed_table).to_json()["full_comparison"] == "columns or policies changed"
