"""Time to prune 39,000 fragments of 21 columns by the index, against Parquet footers and pyiceberg.

A fragment is a data file. The size of the index is measured, too.

The numbers of fragments and columns are those of a published benchmark of a metadata index. The footers of 1,000 files
are read, and pyiceberg plans a table of 1,000 files. Both times are multiplied by 39.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from struct import pack

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import StaticTable
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField

from benchmarks.data import FOLDER
from benchmarks.measure import paired, ratio
from benchmarks.report import Row
from metastore_assets.index import IndexRows, update_index
from metastore_assets.index.fragment_index import FRAGMENTS, column_schema
from metastore_assets.lookup import Table
from metastore_assets.metastore import open_scanner
from metastore_assets.statistics.typed_union import pack_values, union_type
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.segments import KeyChanges, SegmentFiles
from metastore_assets.store.version import ProfileFiles, Version
from metastore_assets.values.types import class_named

ROWS = 39_000
FOOTERS = 1_000
PLANNED = 1_000
RUNS = 9
_CLASSES = ("int64", "float64", "string", "timestamp_us", "date", "decimal_2", "boolean")
_COLUMNS = 21
_PLANS = 3
_MOST_BYTES = 40e6
_MOST_SECONDS = 0.025
_CLUSTERED = "c0 between 500000000000 and 500100000000"


def run() -> list[Row]:
    """Compare prunes by one column with reads of footers, a plan of pyiceberg, and a time limit.

    The size of the index and the time to update it are compared with limits, too. Each prune opens a new `Table` in a
    process that has imported all modules.
    """
    FOLDER.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="metastore-bench-", dir=FOLDER))
    try:
        store = ObjectStore(str(folder))
        fragments = index_rows(ROWS)
        keys = fragments.keys()
        index = update_index(store, None, [fragments], KeyChanges(keys, (), ROWS, may_merge=True))
        size = sum(info.size for info in store.list("index"))
        footers = footer_files(folder / "footers", FOOTERS)

        def prune(where: str) -> Callable[[], object]:
            return lambda: Table(store, version(index), open_scanner).prune(where).fragment_count

        def read_footers() -> None:
            for path in footers:
                pq.read_metadata(path).row_group(0).column(0).statistics  # noqa: B018

        table = iceberg_table(folder / "iceberg", PLANNED)

        def plan() -> None:
            scan = StaticTable.from_metadata(table).scan(row_filter="c0 >= 500000000000 and c0 <= 500100000000")
            list(scan.plan_files())

        rows: list[Row] = []
        for what, where in {
            "a range of integers, clustered": _CLUSTERED,
            "a range of floats, not clustered": "c1 > 2.5",
            "texts with a prefix": "c2 like 'customer 00000001%'",
        }.items():
            prune(where)()
            measured_times, peer_times = paired(RUNS, prune(where), read_footers)
            peer_times = [seconds * ROWS / FOOTERS for seconds in peer_times]
            rows.append(
                Row(
                    f"prune {ROWS:,} fragments: {what}, against footers",
                    measured_times,
                    peer_times,
                    ratio(peer_times, measured_times),
                    10.0,
                )
            )
            goal = [_MOST_SECONDS] * len(measured_times)
            rows.append(
                Row(
                    f"prune {ROWS:,} fragments: {what}, against 25 ms",
                    measured_times,
                    goal,
                    ratio(goal, measured_times),
                    1.0,
                )
            )
        measured_times, peer_times = paired(min(RUNS, _PLANS), prune(_CLUSTERED), plan)
        peer_times = [seconds * ROWS / PLANNED for seconds in peer_times]
        rows.append(
            Row(
                f"prune {ROWS:,} fragments: as above, against pyiceberg's plan",
                measured_times,
                peer_times,
                ratio(peer_times, measured_times),
                10.0,
            )
        )
        rows.append(Row("bytes of the index, against 40 MB", [size], [_MOST_BYTES], _MOST_BYTES / size, 1.0))
        return [*rows, _commit(store, index, keys)]
    finally:
        shutil.rmtree(folder)


def _commit(store: ObjectStore, index: SegmentFiles, keys: list[str]) -> Row:
    """Measure the CPU time to update the index when a fragment is added and one of `keys` is removed."""
    one = index_rows(1)
    cpu_times = []
    for number in range(RUNS):
        path = pa.array([f"new {number}"], pa.large_string())
        added_rows = IndexRows(one.fragments.set_column(1, "path", path), one.columns)
        start = time.process_time()
        update_index(store, index, [added_rows], KeyChanges(added_rows.keys(), [keys[number]], ROWS, may_merge=True))
        cpu_times.append(time.process_time() - start)
    goal = [0.01] * RUNS
    return Row(
        "processor time that a commit spends on the index, against 10 ms", cpu_times, goal, ratio(goal, cpu_times), 1.0
    )


def version(index: SegmentFiles) -> Version:
    """Return a version (published statistics) with an index, without profiles, partitions or fragments."""
    fields = [(f"c{number}", class_named(_CLASSES[number % len(_CLASSES)]).arrow) for number in range(_COLUMNS)]
    return Version(
        number=1,
        table="t",
        format="files",
        snapshot="s",
        committed_at=None,
        published_at=datetime.now(UTC),
        schema=pa.schema(fields),
        partition_columns=(),
        row_count=0,
        bytes=0,
        content_id="",
        files=ProfileFiles("", "", ()),
        code_version="",
        spec_id="",
        specs={},
        fragments=(),
        partitions=(),
        index=index,
    )


def index_rows(count: int) -> IndexRows:
    """Return index rows of fragments with realistic paths.

    Integers, texts, dates, times and decimals increase from fragment to fragment, as in an append-only table. Floats
    are random.
    """
    draw = np.random.default_rng(0)
    union = union_type(class_named(name) for name in _CLASSES)
    paths = [
        f"s3://bucket/warehouse/data/day=2024-{1 + at % 12:02d}-01/part-{at:05d}-{at * 7919 % 2**31:08x}-c000.parquet"
        for at in range(count)
    ]
    fragments = [
        [path.split("/")[-2] for path in paths],
        paths,
        draw.integers(10**4, 10**6, count),
        draw.integers(10**6, 10**8, count),
        [f"{at:032x}" for at in range(count)],
    ]
    columns = {}
    for number in range(_COLUMNS):
        cls = class_named(_CLASSES[number % len(_CLASSES)])
        low, high = _bounds(cls.name, count, draw)
        sides = [pack_values(values, cls, union) for values in (low, high)]
        counts = [pa.array(draw.integers(0, 100, count)), pa.array(np.zeros(count, np.int64))]
        columns[f"c{number}"] = pa.Table.from_arrays([*counts, *sides], schema=column_schema(union))
    return IndexRows(pa.table(fragments, schema=FRAGMENTS), columns)


def _bounds(name: str, count: int, draw: np.random.Generator) -> tuple[pa.Array, pa.Array]:
    """Draw the minimum and maximum of a column in each of `count` fragments.

    `name` is the column's type class, such as `date`.
    """
    cls = class_named(name)
    if name == "float64":
        low = draw.normal(size=count)
        return pa.array(low), pa.array(low + 1)
    if name == "string":
        sorted_numbers = np.sort(draw.integers(0, 10**9, count))
        texts = [[f"customer {number + more:012d}" for number in sorted_numbers.tolist()] for more in (0, 10**6)]
        return pa.array(texts[0], cls.arrow), pa.array(texts[1], cls.arrow)
    if name == "boolean":
        return pa.array(np.zeros(count, np.bool_)), pa.array(np.ones(count, np.bool_))
    first = np.sort(draw.integers(0, 10**12 if name != "date" else 20_000, count))
    sides = []
    for numbers in (first, first + 5):
        if name == "decimal_2":
            sides.append(pa.array(numbers).cast(pa.decimal128(38, 0)).cast(cls.arrow))
        else:
            sides.append(pa.array(numbers.astype(np.int32) if name == "date" else numbers).view(cls.arrow))
    return sides[0], sides[1]


def iceberg_table(folder: Path, count: int) -> str:
    """Write an Iceberg table with one manifest that names data files that do not exist.

    Args:
        folder: The new folder of the table.
        count: The number of data files.

    Returns:
        The location of the table's metadata file.
    """
    folder.mkdir()
    schema = Schema(*(NestedField(at + 1, f"c{at}", LongType(), required=False) for at in range(_COLUMNS)))
    catalog = InMemoryCatalog("bench", warehouse=folder.as_uri())
    catalog.create_namespace("bench")
    table = catalog.create_table("bench.t", schema)
    ids = range(1, _COLUMNS + 1)
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        for number in range(count):
            low = number * 10**12 // count
            append.append_data_file(
                DataFile.from_args(
                    content=DataFileContent.DATA,
                    file_path=f"{folder}/data/{number:05}.parquet",
                    file_format=FileFormat.PARQUET,
                    partition=Record(),
                    record_count=1_000,
                    file_size_in_bytes=10**6,
                    column_sizes=dict.fromkeys(ids, 80),
                    value_counts=dict.fromkeys(ids, 1_000),
                    null_value_counts=dict.fromkeys(ids, 0),
                    nan_value_counts={},
                    lower_bounds=dict.fromkeys(ids, pack("<q", low)),
                    upper_bounds=dict.fromkeys(ids, pack("<q", low + 5)),
                    split_offsets=[4],
                    sort_order_id=0,
                    spec_id=table.spec().spec_id,
                )
            )
    return str(catalog.load_table("bench.t").metadata_location)


def footer_files(folder: Path, count: int) -> list[Path]:
    """Write a number of small Parquet files with 21 columns into a new folder, and return their paths."""
    folder.mkdir()
    table = pa.table({f"c{number}": [number, number + 1] for number in range(_COLUMNS)})
    for number in range(count):
        pq.write_table(table, folder / f"{number}.parquet")
    return sorted(folder.iterdir())
