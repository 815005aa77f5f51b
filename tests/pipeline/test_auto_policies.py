"""How refreshes decide whether a column with the policy `auto` is enumerated or estimated.

An enumerated column has value counts. The decision is recorded with its reason, and small changes do not revert it. The
work of a refresh depends on the changes since the last one, not on the size of the table.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets.config import FREQUENCY_LIMIT, NEAR_UNIQUE_ABOVE, MetastoreConfig, TableConfig
from metastore_assets.errors import NotStoredError
from metastore_assets.metastore import Metastore
from metastore_assets.pipeline import auto_policies
from metastore_assets.pipeline.auto_policies import why_enumerated, why_estimated
from metastore_assets.pipeline.merging import reduce
from metastore_assets.pipeline.outcome import RefreshResult
from metastore_assets.pipeline.plan import RefreshRequest
from metastore_assets.pipeline.refresh import plan_refresh, refresh
from tests.pipeline.file_lake import Lake, assert_same, everything, latest
from tests.robustness.refresh_assertions import no_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@given(
    st.lists(st.tuples(st.integers(0, 4 * FREQUENCY_LIMIT), st.integers(1, 40)), min_size=1, max_size=30),
    st.booleans(),
)
def test_small_changes_do_not_revert_a_decision(walk: list[tuple[int, int]], is_estimated: bool) -> None:
    """A column near a limit does not change between enumerated and estimated with each commit.

    A column that becomes enumerated stays so even if its numbers of values and of distinct values double. After random
    changes, an estimated column has many values that hardly repeat, or more than half as many distinct values as the
    limit `FREQUENCY_LIMIT`.
    """
    for distinct, repeats in walk:
        values = distinct * repeats
        if why_enumerated(distinct, values) is not None:
            assert why_estimated(distinct, values) is None
            assert why_estimated(2 * distinct, 2 * values) is None
            is_estimated = False
        elif why_estimated(distinct, values) is not None:
            is_estimated = True
    distinct, repeats = walk[-1]
    if is_estimated:
        assert distinct > FREQUENCY_LIMIT // 2 or (repeats < 4 and 2 * distinct * repeats > NEAR_UNIQUE_ABOVE)


@pytest.mark.parametrize("frequencies", ["auto", "repeated"])
def test_a_decision_stays_while_the_number_of_distinct_values_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, frequencies: str
) -> None:
    """A decision stays while the number of distinct values is unknown.

    It is unknown while one file has a text that is not UTF-8. A commit then reads only the file that it adds. After the
    removal of the file with that text, the number is recorded with the decision.
    """
    monkeypatch.setattr(auto_policies, "NEAR_UNIQUE_ABOVE", 30)
    lake = tmp_path / "lake"
    lake.mkdir()
    columns = {"s": {"frequencies": frequencies}}
    table = TableConfig.model_validate({"name": "t", "uri": str(lake), "columns": columns})
    config = MetastoreConfig(root=str(tmp_path / "root"), engine="auto", tables=[table])
    for part in "ab":
        pq.write_table(pa.table({"s": [f"{part}{number}" for number in range(60)]}), lake / f"{part}.parquet")
    pq.write_table(pa.table({"s": pa.array([b"\xff"], pa.binary()).view(pa.string())}), lake / "c.parquet")
    expected = {"auto": "estimated", "repeated": "fingerprinted"}[frequencies]
    for name in ("d", "e"):
        refresh(config, table, no_spark)
        (decision,) = latest(config).decisions.values()
        assert (decision.frequencies, decision.distinct, decision.since) == (expected, 0, 1)
        assert "unknown number" in decision.reason
        pq.write_table(pa.table({"s": [name]}), lake / f"{name}.parquet")
        assert [fragment.path for fragment in plan_refresh(config, table).to_profile] == [str(lake / f"{name}.parquet")]
    (lake / "c.parquet").unlink()
    refresh(config, table, no_spark)
    (decision,) = latest(config).decisions.values()
    assert (decision.frequencies, decision.values) == (expected, 122)
    assert decision.distinct > 100


@dataclass
class Walk:
    """A table whose files each add `step` distinct values to the column `x`, six times each.

    The column `few` has seven values.
    """

    folder: Path
    spark: SparkSession
    step: int = 30_000
    summed: list[tuple[int, int]] = field(default_factory=list)
    """The numbers of (terms, rows) of each sum of value counts of `x` since the last refresh."""

    @property
    def config(self) -> MetastoreConfig:
        table = TableConfig(name="t", uri=str(self.folder / "lake"))
        return MetastoreConfig(root=str(self.folder / "root"), tables=[table])

    def path(self, number: int) -> Path:
        return self.folder / "lake" / f"part={number % 3}" / f"{number}.parquet"

    def put(self, *numbers: int) -> None:
        for number in numbers:
            self.path(number).parent.mkdir(parents=True, exist_ok=True)
            values = np.repeat(np.arange(number * self.step, (number + 1) * self.step), 6)
            columns = {"x": pa.array(values), "few": pa.array(values % 7)}
            pq.write_table(pa.table(columns), self.path(number))

    def refresh(self, **how: Any) -> RefreshResult:
        self.summed.clear()
        return refresh(self.config, self.config.tables[0], lambda: self.spark, **how)

    def state(self) -> str:
        """Return how the frequencies of `x` are stored, which must be equal in partitions and table."""
        table = Metastore(self.config.root).table("t")
        partition_keys = [None, *(entry.key for entry in table.partitions())]
        (state,) = {table.statistics(["x"], partition=location)[0].frequencies for location in partition_keys}
        return state


@pytest.fixture
def walk(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Walk:
    result = Walk(tmp_path, spark)
    real = reduce.sum_columns

    def counting(spark: Any, store: Any, folder: Any, spec: Any, sums: Any) -> Any:
        result.summed += [(len(one.terms), one.rows) for one in sums if 0 in one.positions]
        return real(spark, store, folder, spec, sums)

    monkeypatch.setattr(reduce, "sum_columns", counting)
    return result


def assert_full_says_the_same(walk: Walk) -> None:
    """Assert that a refresh with `--full` gives equal statistics and decisions.

    Such a refresh reads all files again. Estimated percentiles are not compared. Afterwards, the root (the folder with
    all stored state) has its former files again.
    """
    incremental_profiles, decisions = everything(walk.config), latest(walk.config).decisions
    root = Path(walk.config.root)
    shutil.copytree(root, root.with_name("kept"))
    walk.refresh(request=RefreshRequest(full=True))
    again = everything(walk.config)
    for one in (incremental_profiles, again):
        _without_estimated_percentiles(one)
    assert_same(incremental_profiles, again)
    assert {key: decision.frequencies for key, decision in latest(walk.config).decisions.items()} == {
        key: decision.frequencies for key, decision in decisions.items()
    }
    shutil.rmtree(root)
    root.with_name("kept").rename(root)


def _without_estimated_percentiles(answer: dict[str, Any]) -> None:
    """Remove estimated percentiles, whose last digits depend on the order of merges."""
    for _, profile in [(0, answer["table"]), *answer["partitions"].values()]:
        for row in profile["columns"].values():
            if row["percentiles_guarantee"] == "estimate":
                row["percentiles"] = None


@pytest.mark.long
@pytest.mark.spark
def test_decisions_while_distinct_values_grow_and_shrink(walk: Walk) -> None:
    walk.put(0, 1, 2, 3)
    walk.refresh()
    assert (walk.state(), latest(walk.config).decisions) == ("enumerated", {})

    # Up, beyond 131,072: estimated at once, and nothing is read or summed for that.
    walk.put(4)
    up = walk.refresh()
    assert (walk.state(), up.fragments_profiled, walk.summed) == ("estimated", 1, [])
    decision = latest(walk.config).decisions["x"]
    assert (decision.frequencies, decision.since) == ("estimated", 2)
    assert decision.reason.endswith("distinct values, more than 131,072")
    with pytest.raises(NotStoredError, match=r"\b131,072\b.*`frequencies: all`"):
        Metastore(walk.config.root).table("t").top("x")
    assert_full_says_the_same(walk)

    # Down a little, up, and down: the decision stays, and a commit costs its changes only.
    for removed_numbers in ((4,), (3,)):
        for number in removed_numbers:
            walk.path(number).unlink()
        down = walk.refresh()
        assert (walk.state(), down.fragments_profiled, len(down.partitions_changed), walk.summed) == (
            "estimated", 0, 1, [],
        )  # fmt: skip
    walk.put(3, 4)
    assert walk.refresh().fragments_profiled == 2
    assert (walk.state(), latest(walk.config).decisions["x"].since, walk.summed) == ("estimated", 2, [])

    # Far down: the next commit enumerates the column, and its plan names the fragments to read: those without value
    # counts.
    for number in (0, 1, 2):
        walk.path(number).unlink()
    walk.refresh()
    assert walk.state() == "estimated"
    assert not walk.refresh().published
    walk.put(5)
    walk.path(4).unlink()
    plan = plan_refresh(walk.config, walk.config.tables[0])
    assert plan.to_json()["read_again"] == {"x": {"frequencies": 1}}
    back = walk.refresh()
    assert (walk.state(), back.fragments_profiled, back.fragments_added) == ("enumerated", 2, 1)
    decision = latest(walk.config).decisions["x"]
    assert (decision.frequencies, decision.since) == ("enumerated", back.version)
    assert "few enough to be enumerated" in decision.reason
    assert_full_says_the_same(walk)

    # Enumerated below the threshold: a commit sums stored and new values, once per partition and table.
    walk.put(6)
    walk.refresh()
    assert walk.state() == "enumerated"
    assert all(terms <= 4 for terms, _ in walk.summed)


@pytest.mark.spark
def test_a_near_unique_column_is_never_enumerated(walk: Walk) -> None:
    """Columns of 80,000 distinct values per file have no value counts, and an estimated distinct count."""
    folder = walk.folder / "lake" / "part=0"
    folder.mkdir(parents=True)
    for number in range(3):
        ids = np.arange(number * 80_000, (number + 1) * 80_000)
        names = pa.array([f"{one * 2654435761 % 2**32:08x}" for one in ids.tolist()])
        pq.write_table(pa.table({"x": pa.array(ids), "name": names}), folder / f"{number}.parquet")
    walk.refresh()
    version = latest(walk.config)
    assert {value.frequencies for value in version.decisions.values()} == {"estimated"}
    assert {entry.not_enumerated for entry in version.fragments} == {("x", "name")}
    frequency_paths = [path for path in version.paths() if "frequencies" in path]
    assert sum((Path(walk.config.root) / "t" / path).stat().st_size for path in frequency_paths) < 20_000
    row = Metastore(walk.config.root).table("t").statistics(["name"])[0]
    assert (row.distinct_count_guarantee, row.duplicate_count, row.percentiles) == ("estimate", None, None)
    assert row.distinct_count == pytest.approx(240_000, rel=0.06)
    assert_full_says_the_same(walk)


@pytest.mark.long
@pytest.mark.spark
def test_switching_policies_reads_no_table_file(walk: Walk) -> None:
    """Switching value counts and the histogram of a column off and on again reads no table file.

    A change to fewer bins reads none either. A change to more bins reads all files.
    """
    walk.put(0, 1)
    walk.refresh()
    enumerated_profiles = everything(walk.config)

    def refreshed(**column_policy: object) -> RefreshResult:
        table = TableConfig.model_validate(
            {"name": "t", "uri": str(walk.folder / "lake"), "columns": {"x": column_policy} if column_policy else {}}
        )
        return refresh(walk.config, table, lambda: walk.spark)

    off = refreshed(frequencies="off", histogram="off")
    assert (off.fragments_profiled, walk.state()) == (0, "off")
    assert everything(walk.config)["table"]["columns"]["x"]["bins"] is None
    walk.put(2)
    assert refreshed(frequencies="off", histogram="off").fragments_profiled == 1
    walk.path(2).unlink()
    on = refreshed()
    assert (on.fragments_profiled, walk.state()) == (0, "enumerated")
    assert_same(everything(walk.config), enumerated_profiles)
    coarse = refreshed(histogram=1000)
    assert coarse.fragments_profiled == 0
    fine = refreshed(histogram=4000)
    assert fine.fragments_profiled == 2


def test_a_full_refresh_keeps_the_content_id(tmp_path: Path) -> None:
    """A refresh with `--full` reads all files again, and changes no content id.

    The content id of a partition or table is a digest of what determines its statistics.
    """
    lake = Lake(tmp_path)
    lake.append(0)
    lake.append(0)
    lake.append(1)
    config = lake.config().model_copy(update={"engine": "auto"})
    refresh(config, lake.table, no_spark)
    first, statistics = latest(config), everything(config)
    refresh(config, lake.table, no_spark, RefreshRequest(full=True))
    assert latest(config).number == 2
    assert {entry.key: entry.content_id for entry in latest(config).partitions} == {
        entry.key: entry.content_id for entry in first.partitions
    }
    assert latest(config).content_id == first.content_id
    assert_same(everything(config), statistics)
