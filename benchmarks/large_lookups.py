"""Lookups in a table of up to ten million fragments: time, bytes, requests and memory, warm and cold.

The table has no data files. Each partition has a hundred fragments. A few profile files are shared by all partitions. A
cold lookup opens a new `Table` with empty caches, and each of its requests is delayed.

`METASTORE_BENCH_FRAGMENTS=10000,10000000` sets the numbers of fragments of the measured tables.

A fragment stands for a data file with the deletes that apply to it. A profile is the stored statistics of a partition
or the table.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks import partitions
from benchmarks.data import FOLDER
from benchmarks.measure import seconds
from benchmarks.report import Row
from benchmarks.scale_requests import ROOT, Requests
from metastore_assets.config import TableConfig
from metastore_assets.index import IndexRows, update_index
from metastore_assets.index.fragment_index import FRAGMENTS, column_schema
from metastore_assets.lookup import Table
from metastore_assets.metastore import Metastore
from metastore_assets.statistics.typed_union import pack_values, union_type
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.segments import KeyChanges, SegmentFiles
from metastore_assets.store.version import PartitionEntry, Version
from metastore_assets.store.versions import VersionStore
from metastore_assets.values.types import class_named

SIZES = (10_000, 1_000_000)
PER_PARTITION = 100
NAMED = 100
"""Number of partitions that a predicate names."""
RUNS = 20
LATENCY = 0.005
_WARM, _COLD = 0.02, 0.15
_SECONDS_PER_MILLION, _BYTES_PER_MILLION = 0.06, 20e6
_LOT = 200_000
_CLASSES = {
    name: class_named(cls)
    for name, cls in {"part": "int64", "at": "timestamp_us", "id": "int64", "name": "string"}.items()
}
_UNION = union_type(_CLASSES.values())
_DAY = 86_400_000_000
_TABLE = "bench"
_PROFILES, _ROWS, _COLUMNS = 5, 2_000, 20


def run() -> list[Row]:
    """Compare the 95th percentile of each lookup's times, warm and cold, with its goal."""
    sizes = map(int, os.environ.get("METASTORE_BENCH_FRAGMENTS", ",".join(map(str, SIZES))).split(","))
    return [row for size in sizes for row in measure(size)]


def measure(fragments: int) -> list[Row]:
    """Build a table with a number of fragments.

    Measure the lookups, and return their times and goals. A child process builds the table, because its memory would
    slow down lookups in the same process.
    """
    FOLDER.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="metastore-bench-", dir=FOLDER))
    try:
        local = ObjectStore(str(folder / ROOT.partition("://")[2]))
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
            build_seconds = seconds(lambda: pool.submit(publish, local, fragments).result())
        print(f"{fragments:,} fragments: written in {build_seconds:.0f} s")
        requests = Requests(folder, LATENCY)
        rows: list[Row] = []
        for name, lookup, goals in _lookups(fragments):
            rows += _measure(local, requests, f"{fragments:,} fragments: {name}", lookup, goals)
        print(f"memory of the process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3:,.0f} MB")
        return rows
    finally:
        shutil.rmtree(folder)


def _lookups(fragments: int) -> Iterator[tuple[str, Callable[[Table], object], tuple[float, float]]]:
    """Yield (name, function, (goal with warm caches, goal with cold ones)) of each lookup.

    The goals are in seconds.
    """
    count = fragments // PER_PARTITION
    draw = random.Random(5)

    def partition() -> str:
        return f"part={draw.randrange(count):07d}"

    def parts(number: int) -> str:
        return f"part in ({', '.join(map(str, draw.sample(range(count), min(number, count))))})"

    def adjacent_parts() -> str:
        first = draw.randrange(max(1, count - NAMED))
        return f"part between {first} and {first + NAMED - 1} and id < 500000000000"

    few_partitions = _WARM, _COLD
    yield "ten top values of one partition", lambda table: table.top("c1", 10, partition=partition()), few_partitions
    yield "a quantile of one partition", lambda table: table.quantile("c1", 0.9, partition=partition()), few_partitions
    yield "one column of one partition", lambda table: table.statistics(["c1"], partition=partition()), few_partitions
    yield "prune, one partition", lambda table: table.prune(parts(1)).paths, few_partitions
    yield f"prune, {NAMED} partitions", lambda table: table.prune(parts(NAMED)).paths, few_partitions
    yield f"prune, {NAMED} partitions in a row", lambda table: table.prune(adjacent_parts()).paths, few_partitions
    yield f"estimate, {NAMED} partitions", lambda table: table.estimate(parts(NAMED)), few_partitions
    goal = _SECONDS_PER_MILLION * max(1, fragments / 1e6)
    all_partitions = goal, goal
    yield (
        "prune, no partition",
        lambda table: table.prune(f"id < {draw.randrange(10**9)}").fragment_count,
        all_partitions,
    )


def _measure(
    local: ObjectStore, requests: Requests, name: str, lookup: Callable[[Table], object], goals: tuple[float, float]
) -> list[Row]:
    """Print and return the times of a lookup with warm and cold caches.

    Args:
        local: The folder with the published statistics, as a store without added latency.
        requests: The simulated object store with the same statistics, which cold lookups read.
        name: The name of the lookup in the output.
        lookup: The measured function. It gets the opened table.
        goals: The times in seconds that warm and cold lookups should reach.
    """
    table = Metastore(local.uri()).table(_TABLE)
    lookup(table)
    start_time = time.process_time()
    warm = [seconds(lambda: lookup(table)) for _ in range(RUNS)]
    cpu = (time.process_time() - start_time) / RUNS
    cold, counts = [], []
    for _ in range(RUNS):
        with requests.installed():
            requests.reset()
            cold.append(seconds(lambda: lookup(Metastore(ROOT).table(_TABLE))))
            counts.append(requests.counts())
    reads = f"{counts[-1]['root requests']} requests, {counts[-1]['root read'] / 1e6:,.2f} MB"
    costs = f"warm {cpu * 1e3:.1f} ms of CPU, cold {reads}"
    rows = []
    for kind, times, goal in zip(("warm", "cold"), (warm, cold), goals, strict=True):
        tail = float(np.quantile(times, 0.95))
        print(f"{name}, {kind}: p50 {np.median(times) * 1e3:7.1f} ms, p95 {tail * 1e3:7.1f} ms; {costs}")
        rows.append(Row(f"{name}, {kind}: p95 against {goal * 1e3:g} ms", [tail], [goal], goal / tail, 1.0))
    return rows


def publish(store: ObjectStore, fragments: int) -> None:
    """Publish a table with a number of fragments, and with a profile for each partition."""
    objects = store.child(_TABLE)
    profiles = [partitions.write_profile(objects, _profiled_rows(seed)) for seed in range(_PROFILES)]
    entries = [
        PartitionEntry(f"part={at:07d}", str(at), 1, 1, PER_PARTITION, profiles[at % len(profiles)], 1)
        for at in range(fragments // PER_PARTITION)
    ]
    # The table has no value counts, so that estimates come from bounds and sketches.
    estimated_table = TableConfig.model_validate(
        {"name": _TABLE, "uri": "none", "columns": {"default": {"frequencies": "off"}}}
    )
    version = Version(
        number=1,
        table=_TABLE,
        format="files",
        snapshot="1",
        committed_at=None,
        published_at=datetime.now(UTC),
        schema=_profiled_rows(0).schema,
        partition_columns=("part",),
        row_count=fragments,
        bytes=fragments,
        content_id="1",
        files=partitions.write_profile(objects, _profiled_rows(0), estimated_table),
        code_version="0",
        spec_id="spec",
        specs={},
        fragments=(),
        partitions=entries,
        index=write_index(objects, fragments),
    )
    VersionStore(store, _TABLE).publish(version)


def _profiled_rows(seed: int) -> pa.Table:
    """Return random rows.

    Their profile is used as the profile of partitions and of the table.
    """
    draw = np.random.default_rng(seed)
    columns = {name: pa.array(draw.integers(0, 10**6, _ROWS)).cast(cls.arrow) for name, cls in _CLASSES.items()}
    return pa.table(columns | {f"c{at}": pa.array(draw.integers(0, 500, _ROWS)) for at in range(_COLUMNS)})


def write_index(store: ObjectStore, fragments: int) -> SegmentFiles:
    """Write the fragment index, which has a row for each fragment, and return its files.

    The rows are generated in batches.

    Args:
        store: The folder of the table.
        fragments: The number of fragments.
    """
    lots = (index_rows(start, min(start + _LOT, fragments)) for start in range(0, fragments, _LOT))
    return update_index(store, None, lots, KeyChanges(range(fragments), (), fragments, may_merge=True))


def index_rows(start: int, end: int) -> IndexRows:
    """Return the index rows of the fragments from number `start` to `end` (exclusive), sorted by key.

    An index row has the minimum and maximum of each column in a fragment. Those of `part` equal the number of the
    partition, those of `at` ascend, and those of `id` and `name` are random.
    """
    numbers = np.arange(start, end)
    draw = np.random.default_rng(start)
    part = numbers // PER_PARTITION
    key = pc.binary_join_element_wise("part=", _digits(part, 7), "")
    hexes = pa.array([f"{value:016x}" for value in draw.integers(0, 2**62, len(numbers)).tolist()])
    path = pc.binary_join_element_wise(
        "s3://bucket/warehouse/data/", key, "/part-", _digits(numbers, 8), "-", hexes, ".parquet", ""
    )
    ids = pc.binary_join_element_wise(hexes, _digits(numbers, 16), "")
    sizes = pa.array(draw.integers(10**6, 10**8, len(numbers)))
    row_counts = pa.array(draw.integers(10**4, 10**6, len(numbers)))
    at = part * _DAY + (numbers % PER_PARTITION) * 10**8
    drawn_ids, drawn_names = draw.integers(0, 10**12, len(numbers)), draw.integers(0, 10**9, len(numbers))
    sides: dict[str, tuple[pa.Array, pa.Array]] = {
        "part": (pa.array(part), pa.array(part)),
        "at": (_times(at), _times(at + 10**9)),
        "id": (pa.array(drawn_ids), pa.array(drawn_ids + 10**9)),
        "name": (_names(drawn_names), _names(drawn_names + 10**6)),
    }
    columns = {name: _bounds(name, minimum, maximum, draw) for name, (minimum, maximum) in sides.items()}
    arrays = [key, path.cast(pa.large_string()), row_counts, sizes, ids.cast(pa.large_string())]
    return IndexRows(pa.table(arrays, schema=FRAGMENTS), columns)


def _times(numbers: np.ndarray) -> pa.Array:
    return pa.array(numbers).view(_CLASSES["at"].arrow)


def _names(numbers: np.ndarray) -> pa.Array:
    return pc.binary_join_element_wise("customer ", _digits(numbers, 12), "").cast(pa.large_string())


def _bounds(name: str, minimum: pa.Array, maximum: pa.Array, draw: np.random.Generator) -> pa.Table:
    count = len(minimum)
    zeros = np.zeros(count, np.int64)
    counts = [pa.array(zeros if name == "part" else draw.integers(0, 100, count)), pa.array(zeros)]
    sides = [pack_values(side, _CLASSES[name], _UNION) for side in (minimum, maximum)]
    return pa.Table.from_arrays([*counts, *sides], schema=column_schema(_UNION))


def _digits(numbers: np.ndarray, width: int) -> pa.Array:
    return pc.utf8_lpad(pa.array(numbers).cast(pa.string()), width, "0")
