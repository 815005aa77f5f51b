"""Time of the same number of lookups by 2, 8 and 64 threads and by two processes, against one thread.

All lookups read the same published statistics. Several threads are not expected to be faster than one, because of
Python's global lock. Several threads must not be slower than one either, because then they would wait for locks of the
package. Two processes should be faster than one thread, because each process can use a core.
"""

from __future__ import annotations

import multiprocessing
import random
import shutil
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.synchronize import Barrier as ProcessBarrier
from threading import Barrier

from benchmarks.data import FOLDER
from benchmarks.measure import ratio
from benchmarks.partitions import COLUMNS, make_profiles, publish_partitions
from benchmarks.report import Row
from metastore_assets.lookup import Table
from metastore_assets.metastore import Metastore
from metastore_assets.store.objects import ObjectStore

PARTITIONS = 50
ANSWERS = 1_920
"""The number of lookups by all readers together. It is a multiple of each number of readers."""
RUNS = 5
THREADS = (2, 8, 64)
PROCESSES = 2
_TABLE = "bench"


def run() -> list[Row]:
    """Compare the times of lookups by several threads, and by two processes, with those of one thread.

    Each lookup is of a random partition, so that files are opened all the time.
    """
    FOLDER.mkdir(parents=True, exist_ok=True)
    folder = tempfile.mkdtemp(prefix="metastore-bench-", dir=FOLDER)
    try:
        store = ObjectStore(folder)
        publish_partitions(store, _TABLE, make_profiles(store), PARTITIONS, copies=True)
        alone, together = [], {count: list[float]() for count in THREADS}
        for _ in range(RUNS):
            alone.append(_by_threads(folder, 1))
            for count in THREADS:
                together[count].append(_by_threads(folder, count))
        by_processes = [_by_processes(folder, PROCESSES) for _ in range(RUNS)]
        print(f"answers a second: 1 reader {ANSWERS / min(alone):,.0f}", end="")
        for count in THREADS:
            print(f", {count} threads {ANSWERS / min(together[count]):,.0f}", end="")
        print(f", {PROCESSES} processes {ANSWERS / min(by_processes):,.0f}")
        return [
            *(Row(f"{count} threads, one object, against one", rates, alone, ratio(alone, rates), 0.8)
              for count, rates in together.items()),
            Row(f"{PROCESSES} processes against one", by_processes, alone, ratio(alone, by_processes), 1.6),
        ]  # fmt: skip
    finally:
        shutil.rmtree(folder)


def _ask(table: Table, seed: int, answers: int) -> None:
    draw, keys = random.Random(seed), [entry.key for entry in table.partitions()]
    for number in range(answers):
        column, key = f"c{2 * draw.randrange(COLUMNS // 2)}", draw.choice(keys)
        if number % 3 == 0:
            table.top(column, 10, partition=key)
        elif number % 3 == 1:
            table.histogram(column, bins=50, partition=key)
        else:
            table.quantile(column, 0.9, partition=key)


def _by_threads(folder: str, count: int) -> float:
    table, start = Metastore(folder).table(_TABLE), Barrier(count + 1)

    def reader(seed: int) -> None:
        start.wait()
        _ask(table, seed, ANSWERS // count)

    with ThreadPoolExecutor(count) as pool:
        readers = [pool.submit(reader, seed) for seed in range(count)]
        start.wait()
        start_time = time.perf_counter()
        for one in readers:
            one.result()
        return time.perf_counter() - start_time


def _by_processes(folder: str, count: int) -> float:
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(count + 1)
    readers = [context.Process(target=_reader, args=(folder, seed, ANSWERS // count, start)) for seed in range(count)]
    for one in readers:
        one.start()
    start.wait()
    start_time = time.perf_counter()
    start.wait()
    wall_time = time.perf_counter() - start_time
    for one in readers:
        one.join()
    return wall_time


def _reader(folder: str, seed: int, answers: int, barrier: ProcessBarrier) -> None:
    table = Metastore(folder).table(_TABLE)
    _ask(table, seed, 9)  # imports
    barrier.wait()
    _ask(table, seed, answers)
    barrier.wait()
