"""Search for one id in 10,000 fragments (data files) by value filters.

The remaining fragments, the bytes read, the time and the bits per value are compared with goals.

The ids are random, so that minimum and maximum rule out no fragment. Each prune is cold: it opens a new `Table` in a
process that has imported all modules.

A value filter is the set of hash prefixes of a column's values in one fragment.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.data import FOLDER
from benchmarks.measure import paired, ratio
from benchmarks.pruning import index_rows, version
from benchmarks.report import Row
from metastore_assets.index import update_index
from metastore_assets.index.value_filters import ValueFilters, update_value_filters
from metastore_assets.lookup import Table
from metastore_assets.metastore import open_scanner
from metastore_assets.statistics.hashing import hash_values
from metastore_assets.statistics.value_filter import build_filter, parse_filters
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.segments import KeyChanges, SegmentFiles
from metastore_assets.store.version import ValueFilterFiles
from metastore_assets.values.types import class_named

FRAGMENTS = 10_000
VALUES = 2_000
"""Distinct ids of a fragment."""
RUNS = 9
_COLUMN = "c0"
_LOT = 1_000
_MOST_SECONDS = 0.05


def run() -> list[Row]:
    """Prune by ids that occur and by ids that do not.

    Compare times, fragments and filter sizes with goals.
    """
    FOLDER.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="metastore-bench-", dir=FOLDER))
    try:
        store = ObjectStore(str(folder))
        index_files = _write_index(store)
        keys = index_rows(FRAGMENTS).keys()
        files = update_value_filters(store, None, KeyChanges(keys, (), FRAGMENTS, may_merge=True), _lots(keys))
        size = sum(info.size for info in store.list("index") if "value_filters" in info.path)
        version_with_filters = replace(version(index_files), value_filters=ValueFilterFiles(files, (_COLUMN,)))
        present_ids = iter([int(_ids(at)[at % VALUES]) for at in range(7, FRAGMENTS, max(1, FRAGMENTS // 40))] * RUNS)
        absent_ids = iter(range(1, 40 * RUNS))

        def prune(numbers: Iterator[int]) -> Callable[[], object]:
            return lambda: (
                Table(store, version_with_filters, open_scanner).prune(f"{_COLUMN} = {next(numbers)}").fragment_count
            )

        remaining_counts = [
            Table(store, version_with_filters, open_scanner).prune(f"{_COLUMN} = {next(present_ids)}").fragment_count
            for _ in range(3)
        ]
        cost = Table(store, version_with_filters, open_scanner).prune(f"{_COLUMN} = {next(present_ids)}").cost
        times = paired(RUNS, prune(present_ids), prune(absent_ids))
        goals = [_MOST_SECONDS] * RUNS
        print(
            f"one id in {FRAGMENTS:,} fragments: {remaining_counts} remain; {cost.bytes:,} bytes read, "
            f"filters have {size:,}"
        )
        share = float(np.mean(remaining_counts)) / FRAGMENTS
        bits = 8 * size / (FRAGMENTS * VALUES)
        return [
            Row("one id in 10,000 fragments: share of them read, against 1 %", [share], [0.01], 0.01 / share, 1.0),
            Row("bits per value, with metadata, against 10.5", [bits], [10.5], 10.5 / bits, 1.0),
            *(
                Row(
                    f"an id that is {what}: a cold prune against 50 ms",
                    prune_times,
                    goals,
                    ratio(goals, prune_times),
                    1.0,
                )
                for what, prune_times in zip(("present", "absent"), times, strict=True)
            ),
        ]
    finally:
        shutil.rmtree(folder)


def _ids(fragment: int) -> np.ndarray:
    return np.random.default_rng(fragment).integers(0, 10**12, VALUES)


def _write_index(store: ObjectStore) -> SegmentFiles:
    """Write the index of all fragments, and return its files.

    The minimum and the maximum id of each fragment are so far apart that they rule out no fragment.
    """
    rows = index_rows(FRAGMENTS)
    table = rows.columns[_COLUMN]
    for name, value in (("minimum", 0), ("maximum", 10**12)):
        union = table.schema.field(name).type
        ends = pa.array([{"int64": value}] * FRAGMENTS, union)
        table = table.set_column(table.schema.get_field_index(name), name, ends)
    return update_index(
        store,
        None,
        [replace(rows, columns={_COLUMN: table})],
        KeyChanges(rows.keys(), (), FRAGMENTS, may_merge=True),
    )


def _lots(keys: list[str]) -> Iterator[ValueFilters]:
    cls = class_named("int64")
    for start in range(0, len(keys), _LOT):
        lot = range(start, min(start + _LOT, len(keys)))
        built_filters: list[bytes | None] = [build_filter(hash_values(pa.array(_ids(at)), cls)[0]) for at in lot]
        filters = pa.array(["int64"] * len(lot)), parse_filters(built_filters)
        yield ValueFilters(pa.array([keys[at] for at in lot], pa.large_string()), {_COLUMN: filters})
