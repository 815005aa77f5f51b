"""The benchmarks run without errors.

They have few rows here, so their results mean nothing.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import (
    events,
    growth,
    large_lookups,
    partitions,
    planning,
    produce,
    produce_share,
    pruning,
    quantile_errors,
    quantiles,
    readers,
    reads,
    scale_run,
    scale_tables,
    scans,
    ticks,
    tree,
    value_counts,
    value_filters,
)
from benchmarks.report import Row, show
from metastore_assets.config import TableConfig
from metastore_assets.formats import open_table_format

KINDS = ["delta", *(pytest.param(kind, marks=pytest.mark.long) for kind in scale_tables.TABLES if kind != "delta")]
"""Formats of the synthetic tables. By default, only Delta tables are built."""


def test_produce(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"SUM_KEYS": 3_000, "REPLACE_ROWS": 3_000, "COMMITS": 3, "CHANGED": 50, "GRAPH_ROWS": 5_000}
    for name, size in sizes.items():
        monkeypatch.setattr(produce, name, size)
    rows = produce.run()
    assert len({row.name for row in rows}) == len(rows) == 8
    assert all(time > 0 for row in rows for time in (*row.measured, *row.peer))


def test_produce_share(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in {"ROWS": 2_000, "TIMES": 1, "SHARES": (0.1, 0.5)}.items():
        monkeypatch.setattr(produce_share, name, size)
    rows = produce_share.run()
    assert len({row.name for row in rows}) == len(rows) == 8


@pytest.mark.long
def test_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in {"PARTITIONS": 3, "ANSWERS": 128, "RUNS": 1}.items():
        monkeypatch.setattr(readers, name, size)
    rows = readers.run()
    assert len({row.name for row in rows}) == len(rows) == 4
    assert all(time > 0 for row in rows for time in (*row.measured, *row.peer))


def test_pruning(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in {"ROWS": 500, "FOOTERS": 20, "PLANNED": 20, "RUNS": 2}.items():
        monkeypatch.setattr(pruning, name, size)
    rows = pruning.run()
    assert len({row.name for row in rows}) == len(rows) == 9
    assert all(number > 0 for row in rows for number in (*row.measured, *row.peer))


def test_large_lookups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METASTORE_BENCH_FRAGMENTS", "30000")
    monkeypatch.setattr(large_lookups, "RUNS", 2)
    rows = large_lookups.run()
    assert len({row.name for row in rows}) == len(rows) == 16
    assert all(row.measured[0] > 0 for row in rows)


def test_value_filters(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in {"FRAGMENTS": 300, "VALUES": 500, "RUNS": 2}.items():
        monkeypatch.setattr(value_filters, name, size)
    read_row, *others = value_filters.run()
    assert 1 / 300 <= read_row.measured[0] < 0.03
    assert len(others) == 3


def test_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METASTORE_BENCH_TREE", "60x10")
    monkeypatch.setattr(tree, "ROWS", 100)
    read_row, time_row = tree.run()
    assert 0 < read_row.measured[0] < 1
    assert time_row.measured[0] > 0


@pytest.mark.parametrize("kind", KINDS)
def test_scale_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """A table's reader finds the files that the synthetic table reports, before and after each commit.

    The table is first created with few partitions, and then `complete` adds the others. This does not change the
    snapshot of the table, unless the format is `files`.
    """
    monkeypatch.setattr(scale_tables.HudiTable, "MAX_WRITTEN", 1_000)
    table = scale_tables.TABLES[kind](tmp_path / "t", 13_000)
    table.create(complete=False)
    reference = open_table_format(TableConfig(name="t", uri=str(table.folder), format=kind)).current()
    table.complete()
    sizes = []
    with table.installed():
        table_format = open_table_format(TableConfig(name="t", uri=str(table.folder), format=kind))
        # The snapshot of plain files is their listing, which has more files now.
        assert (table_format.snapshot().reference == reference) is (kind != "files")
        for commit in (None, *scale_tables.COMMITS):
            if commit is not None:
                table.commit(commit)
            snapshot = open_table_format(TableConfig(name="t", uri=str(table.folder))).snapshot()
            files = [file for day in range(table.partitions) for file in table.files_of(day)]
            result = {(one.partition_key, re.findall("[0-9a-f]{32}", one.path)[-1]) for one in snapshot.fragments}
            assert result == {(file.partition, file.unique) for file in files}
            assert len(snapshot.fragments) == len(files)
            sizes.append(len(files))
    assert sizes == [13_000, 13_001, 13_101, 13_001, 12_002, 13_001]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [1_000, 13_000])
def test_scale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, count: int) -> None:
    """For each of two commits, the benchmark counts the changed files, and measures a tick and a refresh.

    With 13,000 files, most partitions in the first published statistics are copies that no refresh made.
    """
    monkeypatch.setattr(scale_run, "MAX_REFRESHED", 1_000)
    monkeypatch.setattr(scale_tables.HudiTable, "MAX_WRITTEN", 1_000)
    scale_run.build(tmp_path, kind, count)
    numbers = scale_run.measure(tmp_path, "one file")
    assert (numbers["added"], numbers["removed"], numbers["unchanged"], numbers["partitions"]) == (1, 0, count, 1)
    for step in ("tick", "plan", "publish"):
        assert numbers[f"{step} cpu"] > 0
        assert numbers[f"{step} root requests"] > 0
    assert numbers["plan table requests"] > 0
    assert numbers["plan table read"] > 0
    assert numbers["publish written"] > 0
    numbers = scale_run.measure(tmp_path, "delete a partition")
    assert (numbers["added"], numbers["removed"], numbers["unchanged"]) == (0, 100, count - 99)


def test_quantile_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quantile_errors, "VALUES", 20_000)
    monkeypatch.setattr(quantile_errors, "PARTITIONS", (1, 30))
    rows = quantile_errors.run()
    assert len({row.name for row in rows}) == len(rows) == 20
    assert all(row.ratio >= 1 for row in rows)


@pytest.mark.long
def test_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METASTORE_BENCH_EVENTS", "201")
    assert [row.measured[0] > 0 for row in events.run()] == [True] * 3


@pytest.mark.long
def test_value_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in {"DISTINCT_VALUES": 20_000, "COMMITS": 2}.items():
        monkeypatch.setattr(value_counts, name, size)
    assert all(row.measured[0] > 0 for row in value_counts.run())


@pytest.mark.long
def test_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in {"PARTITIONS": 20, "MANY": 40, "COLUMNS": 80, "RUNS": 2}.items():
        monkeypatch.setattr(partitions, name, size)
    rows = partitions.run()
    assert len({row.name for row in rows}) == len(rows) == 16
    assert all(row.measured[0] > 0 for row in rows)


@pytest.mark.long
def test_planning(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in {"FILES": 200, "RUNS": 1}.items():
        monkeypatch.setattr(planning, name, size)
    rows = planning.run()
    assert all(number > 0 for row in rows for number in (*row.measured, *row.peer))


@pytest.mark.long
def test_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METASTORE_BENCH_TICKS", "100")
    assert [row.measured[0] > 0 for row in ticks.run()] == [True] * 12


@pytest.mark.long
def test_quantiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quantiles, "VALUES", 20_000)
    (row,) = quantiles.run()
    assert all(time > 0 for time in (*row.measured, *row.peer))


@pytest.mark.long
def test_fingerprints() -> None:
    """The benchmark prints how many bytes are moved to find repeated values by fingerprints (hashes).

    It runs in a subprocess with other Spark settings.
    """
    environment = {**os.environ, "METASTORE_BENCH_FINGERPRINTS": "40000"}
    command = [sys.executable, "-m", "benchmarks", "fingerprints"]
    process = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert "fingerprints move" in process.stdout, process.stderr


@pytest.mark.long
def test_growth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "FILES", 30)
    rows = growth.run()
    assert len({row.name for row in rows}) == len(rows) == 10
    assert all(row.ratio >= 1 for row in rows)


_COUNTING = """
import json, subprocess, sys
from benchmarks.measure import CpuTime

work = "import time\\nwhile time.process_time() < 0.5: pass"
ended = CpuTime().of(lambda: subprocess.run([sys.executable, "-c", work], check=True))
command = [sys.executable, "-c", f"{work}\\nprint(flush=True); input()"]
with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
    running = CpuTime().of(child.stdout.readline)
    child.communicate(b"\\n")
print(json.dumps([ended, running]))
"""


def test_cpu_of_children_is_counted() -> None:
    """The CPU time of running and of ended children is counted.

    The test measures in a new process, which has no other children.
    """
    process = subprocess.run([sys.executable, "-c", _COUNTING], capture_output=True, text=True, check=True)
    ended_cpu, running_cpu = json.loads(process.stdout)
    assert sum(ended_cpu.values()) >= 0.4
    assert running_cpu["workers"] >= 0.2


def test_a_missed_goal_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert show([Row("fast", [1.0], [2.0], 2.0, 2.0)])
    assert not show([Row("slow", [1.0], [2.0], 2.0, 2.1)])
    assert "missed" in capsys.readouterr().out


@pytest.mark.long
@pytest.mark.spark
def test_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """The benchmark succeeds.

    It would fail if the compared readers returned different rows.
    """
    for name, size in {"FILES": 40, "ROWS": 20, "RUNS": 1}.items():
        monkeypatch.setattr(reads, name, size)
    assert len(reads.run()) == 4


@pytest.mark.long
@pytest.mark.spark
def test_scans(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in {"FILES": 12, "ROWS": 100, "RUNS": 1}.items():
        monkeypatch.setattr(scans, name, size)
    files, read_row, time_row = scans.run()
    assert (files.measured, files.peer) == ([1], [12])
    assert read_row.measured[0] > 0
    assert time_row.peer[0] > 0
