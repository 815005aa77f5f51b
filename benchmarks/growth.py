"""Requests and bytes to plan a table in an object store after a commit of one file, for each format.

A plan finds the data files of the table's current snapshot, or those that changed since an earlier snapshot. The table
has 10,000 other files, which the previous plan has cached. The store is a local server with S3's protocol, which counts
requests and bytes.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.data import FOLDER
from benchmarks.folder_store import BUCKET, folder_store
from benchmarks.planning_tables import append_iceberg, make_delta, make_files, new_iceberg
from benchmarks.report import Row
from metastore_assets.config import TableConfig
from metastore_assets.formats import MetadataCache, NoDiff, open_table_format
from tests.formats.hudi.writer import HudiWriter

FILES = 10_000
REQUESTS = 12
"""The most requests of a plan, besides one for each 1,000 listed names."""
KILOBYTES = 100
_PAGE = 1_000
_MANIFEST = 2_500

Grow = Callable[[], object]


@dataclass(frozen=True)
class Growing:
    """A kind of table to measure."""

    name: str
    format: str
    make: Callable[[Path, int], Grow]
    """Make a table in a folder with a number of files. Return a function that adds one file."""


def _parquet(folder: Path, files: int) -> Grow:
    make_files(folder, files)
    one = next(folder.rglob("*.parquet"))
    return lambda: shutil.copy(one, one.with_name("new.parquet"))


def _csv(folder: Path, files: int) -> Grow:
    folder.mkdir()
    for number in range(files):
        (folder / f"{number}.csv").write_text(f"id,name\n{number},{'x' * 50}\n")
    return lambda: (folder / "new.csv").write_text("id,name\n1,y\n")


def _delta(folder: Path, files: int) -> Grow:
    make_delta(folder, files)
    log = folder / "_delta_log"

    def grow() -> None:
        newest = max(log.glob("*.json"))
        line = next(line for line in newest.read_text().splitlines() if '"add"' in line)
        action = json.loads(line)
        action["add"]["path"] += ".new"
        (log / f"{int(newest.stem) + 1:020}.json").write_text(json.dumps(action))

    return grow


def _iceberg(folder: Path, files: int) -> Grow:
    table = new_iceberg(folder)
    for first in range(0, files, _MANIFEST):
        append_iceberg(table, folder, range(first, min(files, first + _MANIFEST)))
    return lambda: append_iceberg(table, folder, range(files, files + 1))


def _hudi(folder: Path, files: int) -> Grow:
    writer = HudiWriter(folder, 9)

    def commit(count: int) -> None:
        instant = writer.tick()
        writer.request(instant, "commit")
        stats = [
            writer.base_file(
                writer.new_slice(f"{number // 100}", instant),
                instant,
                [{"key": f"{number}", "part": f"{number // 100}", "ts": 1, "value": 1.0}],
            )
            for number in range(count)
        ]
        writer.complete(instant, "commit", stats)

    commit(files)
    return lambda: commit(1)


TABLES = [
    Growing("Parquet by day", "files", _parquet),
    Growing("CSV", "files", _csv),
    Growing("Delta", "delta", _delta),
    Growing("Iceberg", "iceberg", _iceberg),
    Growing("Hudi", "hudi", _hudi),
]


def run() -> list[Row]:
    """Compare the requests and the kilobytes of each format with their limits."""
    rows = []
    FOLDER.mkdir(parents=True, exist_ok=True)
    for table in TABLES:
        folder = Path(tempfile.mkdtemp(prefix="metastore-bench-", dir=FOLDER))
        try:
            listings, objects, read_bytes = _measured(table, folder)
        finally:
            shutil.rmtree(folder)
        name = f"plan 1 new of {FILES:,} files, {table.name}"
        requests, most = listings + objects, REQUESTS + -(-FILES // _PAGE)
        rows.append(Row(f"{name}: requests ({listings} listings)", [requests], [most], most / requests, 1.0))
        rows.append(Row(f"{name}: kB read", [read_bytes / 1e3], [KILOBYTES], KILOBYTES * 1e3 / max(read_bytes, 1), 1.0))
    return rows


def _measured(table: Growing, folder: Path) -> tuple[int, int, int]:
    """Plan a table before and after one file is added.

    Return the numbers of listings, of other requests, and of bytes read by the second plan. This plan has the metadata
    that the first one cached.
    """
    grow = table.make(folder / "table", FILES)
    with folder_store(folder) as store:
        uri = f"s3://{BUCKET}/table"
        path_mapping = {str(folder / "table"): uri}
        config = TableConfig(
            name="t", uri=uri, format=table.format, path_mapping=path_mapping, storage_options=store.options
        )
        cache = MetadataCache(dict, ignore_process=True)
        before = open_table_format(config, cache).snapshot()
        cached_entries = cache.entries
        grow()
        store.take()
        table_format = open_table_format(config, MetadataCache(lambda: cached_entries, ignore_process=True))
        diff = table_format.changes(before.reference)
        added_count = len(table_format.snapshot().fragments) - FILES if isinstance(diff, NoDiff) else len(diff.added)
        if added_count != 1:
            raise AssertionError(f"{added_count} new files of {table.name} were planned, not 1")
        return store.take()
