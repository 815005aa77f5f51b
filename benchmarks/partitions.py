"""Times of warm and cold lookups in tables of 100 columns with 1,000 and 20,000 partitions.

The times are compared with goals. A cold lookup opens a new `Table` in a process that has imported all modules. Five
profiles are written. In the table `bench` of 1,000 partitions, each partition has a copy of one of them. In the table
`many` of 20,000 partitions, the partitions share the files of the five profiles.

A profile is the stored statistics of a partition or the table. A version is the published statistics of a table at one
snapshot.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from itertools import cycle
from typing import NoReturn

import numpy as np
import pyarrow as pa

from benchmarks.data import FOLDER
from benchmarks.measure import seconds
from benchmarks.report import Row
from metastore_assets.config import TableConfig
from metastore_assets.lookup import Table
from metastore_assets.metastore import Metastore
from metastore_assets.pipeline.engine import Engine
from metastore_assets.pipeline.partition_index import plan_partition_index
from metastore_assets.pipeline.profile_spec import table_profile_spec
from metastore_assets.pipeline.profiles.files import ProfileWriter
from metastore_assets.statistics.profile import profile_field
from metastore_assets.storage.io_counters import count_io
from metastore_assets.store.entries import PARTITIONS as PARTITION_ENTRIES
from metastore_assets.store.entry_changes import EntryChanges
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.version import PartitionEntry, ProfileFiles, Version
from metastore_assets.store.versions import VersionStore
from metastore_assets.values.columns import columns_by_field

PARTITIONS = 1_000
COLUMNS = 100
MANY = 20_000
RUNS = 40
_PROFILES = 5
_ROWS = 2_000
_WARM, _COLD = 0.005, 0.05


def run() -> list[Row]:
    """Compare the 95th percentile of each lookup's times, warm and cold, with its goal."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    folder = tempfile.mkdtemp(prefix="metastore-bench-", dir=FOLDER)
    try:
        store = ObjectStore(folder)
        profiles = make_profiles(store)
        publish_partitions(store, "bench", profiles, PARTITIONS, copies=True)
        publish_partitions(store, "many", profiles, MANY, copies=False)
        rows = []
        for what, table, ask in _questions():
            warm, cold, costs = _times(folder, table, ask)
            for kind, times, goal in (("warm", warm, _WARM), ("cold", cold, _COLD)):
                tail = float(np.quantile(times, 0.95))
                print(f"{what}, {kind}: p50 {np.median(times) * 1e3:7.2f} ms, p95 {tail * 1e3:7.2f} ms; {costs}")
                rows.append(Row(f"{what}, {kind}: p95 against {goal * 1e3:g} ms", [tail], [goal], goal / tail, 1.0))
        return rows
    finally:
        shutil.rmtree(folder)


def _questions() -> list[tuple[str, str, Callable[[Table], object]]]:
    """Return (name, name of its table, function) of each lookup of random columns and partitions."""
    draw = random.Random(5)

    def column() -> str:
        return f"c{draw.randrange(0, COLUMNS, 2)}"

    # These are more columns than a `Table` caches answers of, so that each lookup reads files.
    new = cycle(draw.sample([f"c{at}" for at in range(COLUMNS)], COLUMNS))

    def partition(count: int) -> str:
        return f"p={draw.randrange(count):05d}"

    return [
        ("one column, the table", "bench", lambda table: table.statistics([column()])),
        (
            "one column, one of 20,000 partitions",
            "many",
            lambda table: table.statistics([column()], partition=partition(MANY)),
        ),
        (
            "ten top values, one partition",
            "bench",
            lambda table: table.top(column(), 10, partition=partition(PARTITIONS)),
        ),
        (
            "50 bins, one partition",
            "bench",
            lambda table: table.histogram(column(), bins=50, partition=partition(PARTITIONS)),
        ),
        (
            "a quantile, one partition",
            "bench",
            lambda table: table.quantile(column(), 0.9, partition=partition(PARTITIONS)),
        ),
        ("one column, 1,000 partitions", "bench", lambda table: table.statistics([next(new)], partition="*")),
        (
            "one column, 1,000 partitions, as rows",
            "bench",
            lambda table: list(table.statistics([next(new)], partition="*")),
        ),
        (
            "one column, 1,000 partitions, as a table",
            "bench",
            lambda table: table.statistics([next(new)], partition="*").to_arrow(),
        ),
    ]


def _times(folder: str, name: str, ask: Callable[[Table], object]) -> tuple[list[float], list[float], str]:
    """Return (times with warm caches, times with cold caches, text on what a cold lookup reads)."""
    table = Metastore(folder).table(name)
    ask(table)
    with count_io() as meter:
        ask(Metastore(folder).table(name))
    read_counts = meter.counts().read
    costs = f"cold {read_counts.files} files, {read_counts.bytes:,} bytes"
    # All warm lookups run first: otherwise their time would include the garbage collection of the cold tables.
    warm = [seconds(lambda: ask(table)) for _ in range(RUNS)]
    cold: list[float] = []
    while len(cold) < RUNS and sum(cold) < 20:  # a lookup that misses its goal by so much needs no exact time
        cold.append(seconds(lambda: ask(Metastore(folder).table(name))))
    return warm, cold, costs


def _no_spark() -> NoReturn:
    raise AssertionError("statistics of so few partitions are read in this process")


def make_profiles(store: ObjectStore) -> list[ProfileFiles]:
    """Write five profiles of `COLUMNS` columns, and return their files."""
    return [_profile(store, seed) for seed in range(_PROFILES)]


def _profile(store: ObjectStore, seed: int) -> ProfileFiles:
    draw = np.random.default_rng(seed)
    columns = {
        f"c{at}": pa.array(draw.integers(0, 500, _ROWS)) if at % 2 else pa.array(draw.normal(at, 10, _ROWS).round(1))
        for at in range(COLUMNS)
    }
    return write_profile(store.child("bench"), pa.table(columns))


def write_profile(store: ObjectStore, rows: pa.Table, config: TableConfig | None = None) -> ProfileFiles:
    """Write the profile of some rows, and return its files.

    Args:
        store: The folder of the table.
        rows: The profiled rows.
        config: The table's configuration with the policies of the columns; the default policy without it.
    """
    config = config or TableConfig(name="bench", uri="none")
    spec = table_profile_spec(rows.schema, config)
    with ProfileWriter(store, "partitions", spec, rows.num_rows) as writer:
        for field, array, columns in zip(rows.schema, rows.columns, columns_by_field(rows.schema), strict=True):
            for profile in profile_field(field, array.chunks, config.effective_policy, columns=columns):
                writer.add(profile)
    return writer.files


def publish_partitions(
    store: ObjectStore, name: str, profiles: list[ProfileFiles], count: int, *, copies: bool
) -> None:
    """Publish version 1 of a table with many partitions.

    Args:
        store: The root, a local folder.
        name: The name of the table.
        profiles: Profiles written by `make_profiles`. The partitions have them in turns.
        count: The number of partitions.
        copies: Whether each partition has copies of its profile's files, and the version has a partition index.
            Otherwise, partitions share these files, and there is no such index.
    """
    root = store.uri()
    os.makedirs(f"{root}/{name}/profiles", exist_ok=True)

    def copy_profile(files: ProfileFiles, number: int | str) -> ProfileFiles:
        def copy_file(path: str) -> str:
            target = f"profiles/{number}-{path.rpartition('/')[2]}"
            if path and not os.path.exists(f"{root}/{name}/{target}"):
                shutil.copyfile(f"{root}/bench/{path}", f"{root}/{name}/{target}")
            return target if path else ""

        parts = tuple(map(copy_file, files.frequencies))
        return replace(
            files,
            statistics=copy_file(files.statistics),
            histograms=copy_file(files.histograms),
            frequencies=parts,
            states=copy_file(files.states),
        )

    entries = [
        PartitionEntry(
            f"p={at:05d}",
            str(at),
            _ROWS,
            1,
            1,
            copy_profile(profiles[at % len(profiles)], at if copies else at % len(profiles)),
            1,
        )
        for at in range(count)
    ]
    fields = [(f"c{at}", pa.int64() if at % 2 else pa.float64()) for at in range(COLUMNS)]
    version = Version(
        number=1,
        table=name,
        format="files",
        snapshot="1",
        committed_at=None,
        published_at=datetime.now(UTC),
        schema=pa.schema(fields),
        partition_columns=("p",),
        row_count=_ROWS * count,
        bytes=count,
        content_id="1",
        files=copy_profile(profiles[0], "table"),
        code_version="0",
        spec_id="spec",
        specs={},
        fragments=(),
        partitions=entries,
        partition_index=plan_partition_index(
            Engine(_no_spark, "auto"),
            store.child(name),
            1,
            None,
            EntryChanges.changed(PARTITION_ENTRIES, None, entries),
        ).write(True)
        if copies
        else None,
    )
    VersionStore(store, name).publish(version)
