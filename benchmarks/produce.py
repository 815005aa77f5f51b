"""The produce layer (incremental dataflows): time and written rows of commits to stages and a graph.

A dataflow reads inputs (roots), and computes datasets (stages) from them. A commit changes rows of a root. A commit to
a single stage changes 1,000 random keys. A sum stage stores totals by key. A replace stage stores rows that a function
produces from source rows; the rows of a changed source row replace those that it produced before.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.produce_data import PAIRS, PIECE, all_pairs, batch, by_group, flow_of, key_ranges, pairs, table
from benchmarks.report import Row
from metastore_assets.produce import Batch, Dataflow, Root, Rows, Stage, SumStage

SUM_KEYS = 10_000_000
REPLACE_ROWS = 5_000_000
COMMITS = 200
CHANGED = 1_000
GRAPH_ROWS = 5_000_000
AMPLIFICATION = 6.0
"""The limit of rows written per changed row."""
RUNS = 24
"""The limit of runs (sorted files) that the reader of a shard (a key range) has to merge."""


def run() -> list[Row]:
    """Measure a sum stage of 10 million keys, a replace stage of 5 million rows, and a three-stage graph."""
    return [*_sums(), *_replaced(), *_graph()]


def _sums() -> list[Row]:
    """Measure a sum stage.

    Each commit adds a file of 1,000 rows. Half of them have keys that the stage has already.
    """
    rows = Rows(pa.schema([("file", pa.int64())]), pa.schema([("key", pa.int64()), ("amount", pa.int64())]))
    random = np.random.default_rng(1)
    keys = random.permutation(SUM_KEYS) * 1_000

    def file(number: int, file_keys: npt.NDArray[np.int64]) -> pa.RecordBatch:
        ones = np.ones(len(file_keys), np.int64)
        return batch({"file": np.full(len(file_keys), number), "key": file_keys, "amount": ones})

    def commit(number: int) -> pa.RecordBatch:
        existing_keys, new_keys = random.choice(keys, CHANGED // 2), random.integers(0, SUM_KEYS * 1_000, CHANGED // 2)
        return file(SUM_KEYS + number, np.concatenate([existing_keys, new_keys]))

    with flow_of([Root("files", rows), SumStage("totals", ("files",), ("key",), ("amount",))]) as flow:
        flow.advance({"files": (file(at, keys[at : at + PIECE]) for at in range(0, SUM_KEYS, PIECE))})
        return _commits(flow, "totals", f"sum of {SUM_KEYS // 1_000_000} M keys", lambda n: {"files": table(commit(n))})


def _replaced() -> list[Row]:
    """Measure a replace stage, which stores rows by their group.

    Each commit gives 1,000 rows another group.
    """
    target = Rows(pa.schema([("group", pa.int64())]), pa.schema([("amount", pa.int64())]))
    random = np.random.default_rng(2)

    def commit(number: int) -> pa.Table:
        keys = np.sort(random.choice(REPLACE_ROWS, CHANGED, replace=False))
        return table(pairs(keys, random.integers(0, REPLACE_ROWS, CHANGED)))

    stage = Stage("by_group", (("pairs",),), target, produce_batch=by_group)
    with flow_of([Root("pairs", PAIRS), stage]) as flow:
        flow.advance({"pairs": all_pairs(REPLACE_ROWS, random)})
        return _commits(
            flow, "by_group", f"replace of {REPLACE_ROWS // 1_000_000} M rows", lambda n: {"pairs": commit(n)}
        )


def _commits(flow: Dataflow, stage: str, name: str, update: Callable[[int], dict[str, pa.Table]]) -> list[Row]:
    """Apply all commits, and compare their costs with limits and with rewriting the whole dataset.

    The written rows, and the sorted files that a read of the stage must merge, have limits. The time of a commit is
    compared with the time of a rewrite.

    Args:
        flow: A dataflow whose datasets have been computed once.
        stage: The measured stage.
        name: A name for the report.
        update: Returns the new rows of a commit, by root, from the number of the commit.
    """
    commit_times: list[float] = []
    written_rows = changed_rows = most_runs = 0
    earlier_paths = {run.path for run in flow.version().runs(stage)}
    for number in range(COMMITS):
        rows = update(number)
        start_time = time.perf_counter()
        flow.advance(rows)
        commit_times.append(time.perf_counter() - start_time)
        runs = [run for run in flow.version().runs(stage) if run.dataset == "content"]
        new_runs = [run for run in runs if run.path not in earlier_paths]
        changed_rows += sum(run.rows for run in new_runs if run.level == 0) or 2 * CHANGED
        written_rows += sum(run.rows for run in new_runs)
        earlier_paths |= {run.path for run in new_runs}
        shards = {run.shard for run in runs} - {None}
        most_runs = max(most_runs, *(sum(run.shard in (shard, None) for run in runs) for shard in shards))
    rewriting = []
    start_time = time.perf_counter()
    flow.compact(full=True)
    rewriting.append(time.perf_counter() - start_time)
    print(f"{name}: slowest commit {max(commit_times):.2f} s")
    return [
        Row(f"{name}: rows written per changed row, against {AMPLIFICATION:g}", [written_rows / changed_rows],
            [AMPLIFICATION], AMPLIFICATION * changed_rows / written_rows, 1.0),
        Row(f"{name}: runs to read, against {RUNS}", [most_runs], [RUNS], RUNS / most_runs, 1.0),
        Row(f"{name}: commit of {CHANGED} random keys, against rewriting everything", commit_times, rewriting,
            rewriting[0] / median(commit_times), 1.0),
    ]  # fmt: skip


def _graph() -> list[Row]:
    """Compare an update of 0.1 % of the rows of a three-stage graph with computing the whole graph.

    The changed keys are consecutive in one measurement, as if data files had changed, and random in the other.
    """
    random = np.random.default_rng(3)
    count = GRAPH_ROWS // 1_000

    def near(keys: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return np.maximum(keys // 4 + random.integers(-50, 50, len(keys)), 0)

    def together() -> npt.NDArray[np.int64]:
        return np.arange(count) + random.integers(0, GRAPH_ROWS - count)

    def scattered() -> npt.NDArray[np.int64]:
        return np.sort(random.choice(GRAPH_ROWS, count, replace=False))

    rows = []
    for name, draw in (("neighbouring", together), ("random", scattered)):
        with flow_of(_three_stages()) as flow:
            start_time = time.perf_counter()
            flow.advance({"pairs": (pairs(keys, near(keys)) for keys in key_ranges(GRAPH_ROWS))})
            scratch = time.perf_counter() - start_time
            version_times = []
            for _ in range(6):
                keys = draw()
                update = table(pairs(keys, near(keys)))
                start_time = time.perf_counter()
                flow.advance({"pairs": update})
                version_times.append(time.perf_counter() - start_time)
        rows.append(Row(f"version of three stages, 0.1 % {name} keys, against from scratch", version_times[1:],
                        [scratch], scratch / median(version_times[1:]), 50.0))  # fmt: skip
    return rows


def _three_stages() -> list[Root | Stage | SumStage]:
    amounts = Rows(pa.schema([("group", pa.int64())]), pa.schema([("amount", pa.int64())]))
    per_group = Rows(pa.schema([("group", pa.int64())]), pa.schema([("total", pa.int64()), ("size", pa.int64())]))
    return [
        Root("pairs", PAIRS),
        Stage("grouped", (("pairs",),), amounts, produce_batch=by_group),
        Stage("folded", (("grouped",),), per_group, produce_batch=_fold),
        SumStage("sizes", ("folded",), ("size",), ("total",), count="groups"),
    ]


def _fold(batch: Batch) -> pa.Table:
    folded_rows = batch.ports[0].group_by("_source").aggregate([("amount", "sum"), ("amount", "count")])
    keys = batch.keys.take(folded_rows["_source"])
    return pa.table(
        {
            "_source": folded_rows["_source"],
            "group": keys["group"],
            "total": folded_rows["amount_sum"],
            "size": pc.cast(folded_rows["amount_count"], pa.int64()),
        }
    )
