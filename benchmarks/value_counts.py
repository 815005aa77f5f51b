"""Value counts of a column with two million values: rows and bytes written by commits, and quantiles.

The value counts of a column are stored as three datasets: all values with their frequencies, sorted by value; the
values that occur at least twice, sorted by frequency; and the number of values of each frequency. Each of 200 commits
changes 1,000 rows. Then the quantiles are read.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.data import FOLDER
from benchmarks.measure import seconds
from benchmarks.report import Row
from metastore_assets.produce import Delta, FlowState
from metastore_assets.store.objects import ObjectStore
from metastore_assets.value_counts import TableValueCounts, ValueCountReader, value_count_dataflow
from metastore_assets.value_counts.graph import FREQUENCIES, FREQUENCY_COUNTS, VALUES, delta_name, rows_of, stage_name

DISTINCT_VALUES = int(os.environ.get("METASTORE_BENCH_VALUES", "2000000"))
COMMITS = int(os.environ.get("METASTORE_BENCH_COMMITS", "200"))
CHANGED = 1000
_QUANTILES = [at / 20 for at in range(1, 20)]


def run() -> list[Row]:
    """Apply commits that add 500 rows and remove 500 rows.

    Return four comparisons.

    1. Rows written per changed row in the dataset of all values. The ratio is the goal / the measured number.
    2. The same for all three datasets together.
    3. Bytes written per commit. The ratio is the initial bytes of the dataset of all values / the bytes that a commit
       writes.
    4. The time of the quantiles. The ratio is one second / the measured time.
    """
    folder = Path(tempfile.mkdtemp(prefix="metastore-bench-", dir=FOLDER))
    store = ObjectStore(str(folder))
    draw = np.random.default_rng(5)
    live = draw.choice(2**50, DISTINCT_VALUES)
    flow = value_count_dataflow(store, ["int64"])
    state = flow.load(FlowState(), _content(live))
    loaded_bytes = _bytes(folder, state.paths(), state)[stage_name(VALUES, "int64")]
    rows = dict.fromkeys((VALUES, FREQUENCIES, FREQUENCY_COUNTS), 0)
    written_bytes = 0
    times = []
    for _ in range(COMMITS):
        removed_positions = draw.choice(len(live), CHANGED // 2, replace=False)
        added_values = np.concatenate([draw.choice(live, CHANGED // 4), draw.choice(2**50, CHANGED // 4)])
        deltas = [Delta(_rows(added_values)), Delta(_rows(live[removed_positions]), removed=True)]
        before, start_time = state, time.perf_counter()
        state = flow.step(before, {delta_name("int64"): deltas})
        times.append(time.perf_counter() - start_time)
        live = np.concatenate([np.delete(live, removed_positions), added_values])
        new = state.paths() - before.paths()
        written_bytes += sum((folder / path).stat().st_size for path in new)
        for kind in rows:
            content = state.stages[stage_name(kind, "int64")].content
            rows[kind] += sum(one.rows for one in content.runs() if one.path in new)
        flow.discard(before, state)
    per_row = {kind: count / (COMMITS * CHANGED) for kind, count in rows.items()}
    print(
        f"{COMMITS} commits of {CHANGED:,} rows to {DISTINCT_VALUES:,} values: rows written per changed row: "
        + ", ".join(f"{kind} {count:.1f}" for kind, count in per_row.items())
        + f"; {written_bytes / COMMITS / 1000:.0f} kB a commit, updates included, of {loaded_bytes / 1e6:.1f} MB; "
        f"{np.median(times):.2f} s (median), {max(times):.2f} s (most)"
    )
    data = folder / "rows.parquet"
    pq.write_table(pa.table({"x": live}), data)
    reader = ValueCountReader(
        store, TableValueCounts({"x": "int64"}, FlowState.from_json(json.loads(json.dumps(state.to_json()))))
    )
    ranks = reader.ranks("int64")
    prefix = pa.table({"column": ["x"]})
    requested_ranks = [max(0, -(-len(live) * round(q * 20) // 20) - 1) for q in _QUANTILES]
    quantiles: list[int] = []
    rank_time = seconds(
        lambda: quantiles.extend(ranks.at_rank(prefix, rank)["value"][0].as_py() for rank in requested_ranks)
    )
    query = f"select quantile_disc(x, {_QUANTILES}) from read_parquet('{data}')"
    answer: list[list[int]] = []
    peer_time = seconds(lambda: answer.append(duckdb.execute(query).fetchall()[0][0]))
    if quantiles != answer[0]:
        raise AssertionError("the quantiles are not DuckDB's")
    all_rows = sum(per_row.values())
    return [
        Row("rows written per changed row in values (at most 6)", [per_row[VALUES]], [6], 6 / per_row[VALUES], 1),
        Row("rows written per changed row in all datasets (at most 16)", [all_rows], [16], 16 / all_rows, 1),
        Row(
            "bytes a commit writes, of the value counts (MB)",
            [written_bytes / COMMITS / 1e6],
            [loaded_bytes / 1e6],
            loaded_bytes * COMMITS / written_bytes,
            50,
        ),
        Row(
            f"{len(requested_ranks)} exact quantiles, against DuckDB over the rows",
            [rank_time],
            [peer_time],
            1 / rank_time,
            1,
        ),
    ]


def _content(live: np.ndarray) -> dict[str, pa.Table]:
    values, counts = np.unique(live, return_counts=True)
    column = pa.array(["x"] * len(values))
    table = pa.table({"column": column, "value": values, "frequency": counts.astype(np.int64)})
    order = np.lexsort((values, -counts))
    rank_rows = table.take(pa.array(order)).append_column("values", pa.array(np.ones(len(values), np.int64)))
    often, number = np.unique(counts, return_counts=True)
    facts = pa.table({"column": ["x"] * len(often), "frequency": often, "values": number.astype(np.int64)})
    return {
        stage_name(VALUES, "int64"): table.cast(rows_of("int64").schema),
        stage_name(FREQUENCIES, "int64"): rank_rows.select(["column", "frequency", "value", "values"]),
        stage_name(FREQUENCY_COUNTS, "int64"): facts,
    }


def _rows(values: np.ndarray) -> pa.Table:
    columns = [pa.array(["x"] * len(values)), pa.array(values), pa.array(np.ones(len(values), np.int64))]
    return pa.Table.from_arrays(columns, schema=rows_of("int64").schema)


def _bytes(folder: Path, paths: set[str], state: FlowState) -> dict[str, int]:
    return {
        name: sum((folder / one.path).stat().st_size for one in stage.content.runs() if one.path in paths)
        for name, stage in state.stages.items()
    }
