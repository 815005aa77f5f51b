"""The share of changed rows from which rewriting a dataset is faster than adding sorted files to it.

The sorted files are called runs. The same change is applied in both ways to two kinds of stage: one that stores rows by
their group, and one that stores the sum of each group. A change gives rows other groups. Then all rows of the stage are
read. The default of `Settings.bulk_share` follows from the result.
"""

from __future__ import annotations

import time
from statistics import median

import numpy as np
import pyarrow as pa

from benchmarks.produce_data import PAIRS, all_pairs, by_group, flow_of, key_ranges, pairs
from benchmarks.report import Row
from metastore_assets.produce import Root, Rows, Settings, Stage, SumStage

ROWS = 2_000_000
SHARES = (0.05, 0.1, 0.2, 0.4, 0.8)
TIMES = 3
_ALWAYS, _NEVER = 0.0, 1e9


def run() -> list[Row]:
    """Compare rewriting with adding runs, for each kind of stage and each share of changed rows."""
    target = Rows(pa.schema([("group", pa.int64())]), pa.schema([("amount", pa.int64())]))
    kinds: dict[str, Stage | SumStage] = {
        "stage": Stage("measured", (("pairs",),), target, produce_batch=by_group),
        "sum": SumStage("measured", ("pairs",), ("group",), ("amount",)),
    }
    rows = []
    for kind, stage in kinds.items():
        for share in SHARES:
            times_by_setting = {
                setting: [_taken(stage, share, setting, seed) for seed in range(TIMES)] for setting in (_ALWAYS, _NEVER)
            }
            for number, what in enumerate(("advance", "read all")):
                measured_times, peer_times = (
                    [times[number] for times in times_by_setting[setting]] for setting in (_ALWAYS, _NEVER)
                )
                name = f"{kind} with {share:.0%} of its rows changed: {what}, rewritten against runs added"
                rows.append(Row(name, measured_times, peer_times, median(peer_times) / median(measured_times), 0.0))
    return rows


def _taken(stage: Stage | SumStage, share: float, bulk_share: float, seed: int) -> tuple[float, float]:
    """Return the seconds of a commit that changes a share of the rows, and of a read of all rows.

    Args:
        stage: The stage. It reads the input `pairs`.
        share: The share of the changed rows.
        bulk_share: The setting, the share of changed rows from which the dataset is rewritten.
        seed: The seed of the random rows.
    """
    random = np.random.default_rng(seed)
    with flow_of([Root("pairs", PAIRS), stage], Settings(bulk_share=bulk_share)) as flow:
        flow.advance({"pairs": all_pairs(ROWS, random)})
        keys = np.sort(random.choice(ROWS, int(ROWS * share), replace=False))
        update = [pairs(keys[at], random.integers(0, ROWS // 4, len(at))) for at in key_ranges(len(keys))]
        start_time = time.perf_counter()
        flow.advance({"pairs": iter(update)})
        advance_time = time.perf_counter()
        for _ in flow.version().content_batches("measured"):
            pass
        return advance_time - start_time, time.perf_counter() - advance_time
