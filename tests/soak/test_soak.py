"""Tables of four formats get commits for hours, with a daemon and sensors.

Daemon, runs and Spark are killed meanwhile. Afterwards, each version must be right and be reported at most once, and
the memory of no process may have grown much. A version is the published statistics of a table at one snapshot.
"""

from __future__ import annotations

import logging
import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest
from dagster import AssetKey, DagsterInstance

from metastore_assets.config import load_config
from metastore_assets.formats import open_table_format
from metastore_assets.metastore import Metastore
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.versions import VersionStore
from tests.formats.hudi.tables import HudiMergeOnRead
from tests.formats.iceberg.tables import IcebergPositionDeletes
from tests.formats.table_writers import DeltaDeletionVectors, ParquetFiles, Row, Table
from tests.formats.table_writers import arrow as arrow_of
from tests.robustness.statistics_assertions import assert_statistics
from tests.soak.dagster_processes import DagsterProcesses

pytestmark = [pytest.mark.soak, pytest.mark.timeout(4 * 3600)]

_LOG = logging.getLogger(__name__)
COMMITS = int(os.environ.get("METASTORE_SOAK", "200"))
SEED = int(os.environ.get("METASTORE_SOAK_SEED", "1"))
KINDS: dict[str, type[Table]] = {
    "delta": DeltaDeletionVectors,
    "iceberg": IcebergPositionDeletes,
    "hudi": HudiMergeOnRead,
    "files": ParquetFiles,
}
DAYS = ("2024-01-01", "2024-01-02", "2024-01-03")
_KILLED = 0.2
"""Fraction of the commits after which a process is killed."""
_CALM = 0.6
"""After this fraction of all commits, nothing is killed any more, so that memory can be compared."""
_CAUGHT_UP = 0.4
"""Fraction of the commits after which the test waits for a version. Others come in bursts, and during runs."""
_MOST_GROWTH = 1.3


@dataclass
class Changing:
    """A table that changes, with its expected rows in each of its snapshots."""

    name: str
    table: Table
    draw: random.Random
    batches: list[list[int]] = field(default_factory=list)
    states: dict[str, dict[int, Row]] = field(default_factory=dict)

    def commit(self) -> str:
        """Append, delete or compact rows at random, and record the rows of the new snapshot.

        Return what was done.
        """
        kind = self.draw.choice(["append", "append", "append", "delete", "compact"])
        day = self.draw.choice(DAYS)
        present = [batch for batch in self.batches if set(batch) & set(self.table.rows)]
        if kind == "append" or len(present) < 4:
            kind, count = "append", self.draw.randrange(1, 60)
            first = self.table.next_id
            rows = [(first + at, self.draw.choice(["", "x", "é", f"{at}"]), day) for at in range(count)]
            self.table.append(rows)
            self.batches.append([row[0] for row in rows])
        elif kind == "delete":
            batch = [key for key in self.draw.choice(present) if key in self.table.rows]
            self.table.delete(batch[: self.draw.randrange(1, len(batch) + 1)])
        else:
            self.table.compact(day)
        self.states[self.snapshot()] = dict(self.table.rows)
        return f"{kind} {self.name}"

    def snapshot(self) -> str:
        return self.table.format().current().id


@pytest.fixture
def tables(tmp_path: Path) -> dict[str, Changing]:
    new_tables = {}
    for name, kind in KINDS.items():
        folder = tmp_path / "lake" / name
        folder.parent.mkdir(exist_ok=True)
        new_tables[name] = Changing(name, kind(folder), random.Random(f"{SEED} {name}"))
        new_tables[name].commit()
    lines = [f"  - {{name: {name}, uri: ./lake/{name}, sensor: {{interval: 2}}}}" for name in new_tables]
    settings = 'spark: {spark.remote: "local[2]", spark.driver.memory: 512m}'
    (tmp_path / "metastore.yaml").write_text(
        "\n".join(["root: ./metastore", settings, "keep_versions: 10000", "tables:", *lines]), encoding="utf-8"
    )
    return new_tables


@pytest.fixture
def site(tables: dict[str, Changing], tmp_path: Path) -> Iterator[DagsterProcesses]:
    new_site = DagsterProcesses(tmp_path)
    try:
        new_site.start()
        yield new_site
    finally:
        new_site.stop()


def test_nothing_is_lost_and_nothing_done_twice(
    site: DagsterProcesses, tables: dict[str, Changing], tmp_path: Path
) -> None:
    draw = random.Random(SEED)
    done: Counter[str] = Counter()
    memory: list[dict[str, float]] = []
    with DagsterInstance.from_config(str(tmp_path / "home")) as instance:
        for number in range(COMMITS):
            changing_table = draw.choice(list(tables.values()))
            done[changing_table.commit()] += 1
            time.sleep(draw.choice([0.0, 0.5, 2.0, 6.0]))
            if draw.random() < _CAUGHT_UP:
                settle(site, instance, {changing_table.name: changing_table}, 600, runs=False)
            if number < COMMITS * _CALM and draw.random() < _KILLED:
                done[kill(draw, site, instance)] += 1
            if number >= COMMITS * _CALM:
                memory.append(site.megabytes())
        start = time.monotonic()
        settle(site, instance, tables, 1200)
        _LOG.warning("%s; settled in %.0f s", dict(done), time.monotonic() - start)
        assert_events_are_reported_once(instance, tables)
    for changing in tables.values():
        assert_versions_are_true(tmp_path, changing)
    assert_flat(memory)


def kill(draw: random.Random, site: DagsterProcesses, instance: DagsterInstance) -> str:
    kind = draw.choice(["daemon", "run", "spark"])
    if kind == "daemon":
        site.kill_daemon()
    elif not (site.kill_run(instance) if kind == "run" else site.kill_spark()):
        return f"no {kind} to kill"
    return f"killed {kind}"


def versions_of(folder: Path, name: str) -> VersionStore:
    return VersionStore(ObjectStore(load_config(folder / "metastore.yaml").root), name)


def settle(
    site: DagsterProcesses, instance: DagsterInstance, tables: dict[str, Changing], seconds: float, runs: bool = True
) -> None:
    """Wait until each table's newest version describes its newest snapshot.

    With `runs`, also wait until no run is active. Fail if this takes longer than `seconds`.
    """
    ends = time.monotonic() + seconds
    while True:
        behind = {}
        for name, changing in tables.items():
            latest = versions_of(site.folder, name).latest()
            if latest is None or latest.snapshot != changing.snapshot():
                behind[name] = latest and latest.number
        unfinished_runs = [run.run_id for run in instance.get_runs() if not run.is_finished] if runs else []
        if not behind and not unfinished_runs:
            return
        assert time.monotonic() < ends, f"behind: {behind}, runs: {unfinished_runs}"
        time.sleep(1)


def assert_versions_are_true(folder: Path, changing: Changing) -> None:
    """Compare the versions of a table with the commits of the test.

    No version may be missing, consecutive versions must have different snapshots, and the newest version must have the
    current snapshot. A version whose snapshot is that of a commit must have the statistics of the commit's rows. More
    than half of the versions must have the snapshot of a commit. The others may have been published when only some
    files of a commit were written.
    """
    config = load_config(folder / "metastore.yaml")
    store = versions_of(folder, changing.name)
    numbers = sorted(store.numbers())
    assert numbers == list(range(1, len(numbers) + 1)), "a version is missing"
    snapshots = []
    compared_count = 0
    for number in numbers:
        published_table = Metastore(config.root).table(changing.name, version=number)
        snapshots.append(published_table.version.snapshot)
        rows = changing.states.get(published_table.version.snapshot)
        # Plain files change one by one, and Hudi's rows file by file: what lies between is no commit of ours.
        if rows is not None:
            compared_count += 1
            live = arrow_of(list(rows.values())) if rows else arrow_of([(0, "", "")]).slice(1)
            assert_statistics(published_table, live, f"{changing.name} {number}", "day")
    assert all(one != next_ for one, next_ in pairwise(snapshots)), "a snapshot was done twice"
    assert snapshots[-1] == open_table_format(config.table(changing.name)).current().id
    _LOG.warning(
        "%s: %d versions, %d compared, %d rows", changing.name, len(numbers), compared_count, len(changing.table.rows)
    )
    assert compared_count > len(numbers) / 2


def assert_events_are_reported_once(instance: DagsterInstance, tables: dict[str, Changing]) -> None:
    """Assert that each version was reported to Dagster at most once, and in ascending order."""
    for name in tables:
        records = instance.fetch_materializations(AssetKey([name, f"{name}_statistics"]), limit=5000).records
        materializations = [record.asset_materialization for record in records]
        reported_versions = [
            int(str(event.metadata["version"].value)) for event in materializations if event is not None
        ]
        assert reported_versions == sorted(set(reported_versions), reverse=True), (name, reported_versions)


def assert_flat(memory: list[dict[str, float]]) -> None:
    """Assert that no process uses much more memory in the second half of the samples than in the first.

    The medians of both halves are compared.
    """
    half = len(memory) // 2
    for name in memory[-1]:
        first = median(sample[name] for sample in memory[:half] if name in sample)
        last = median(sample[name] for sample in memory[half:] if name in sample)
        _LOG.warning("%s: %.0f MB, then %.0f MB", name, first, last)
        assert last < first * _MOST_GROWTH + 100, name
