"""What a plan asks an object store for when one file is new among 10,000 known ones: requests and bytes, per format.

The store is moto's S3 on this machine, behind a proxy that counts. Of formats with metadata only those are uploaded,
and what listings show: a plan opens no data file of theirs.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import obstore

from benchmarks.data import FOLDER
from benchmarks.planning_tables import append_iceberg, make_delta, make_files, new_iceberg
from benchmarks.report import Row
from metastore_assets.config import TableConfig
from metastore_assets.formats import Memory, open_table_format
from metastore_assets.formats.places.object_store import open_object_store
from tests.formats.hudi.writer import HudiWriter
from tests.formats.s3_proxy import Requests, counted
from tests.s3_server import bucket_options, s3_server

FILES = 10_000
REQUESTS = 12
"""A plan may send so many, and one for each 1,000 names that it lists."""
KILOBYTES = 100
_PAGE = 1_000
_MANIFEST = 2_500

Grow = Callable[[], object]


@dataclass(frozen=True)
class Growing:
    """A kind of table: makes one of so many files in a folder, and returns what adds a file."""

    name: str
    format: str
    make: Callable[[Path, int], Grow]
    needed: str
    """What has to be in the store, as a pattern of files in the folder."""


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
    Growing("Parquet by day", "files", _parquet, "**/*"),
    Growing("CSV", "files", _csv, "**/*"),
    Growing("Delta", "delta", _delta, "_delta_log/**/*"),
    Growing("Iceberg", "iceberg", _iceberg, "metadata/**/*"),
    Growing("Hudi", "hudi", _hudi, "**/*"),
]


def run() -> list[Row]:
    """Per format the requests, against as many as there may be, and the kilobytes read, likewise."""
    rows = []
    FOLDER.mkdir(parents=True, exist_ok=True)
    with s3_server() as endpoint, counted(endpoint) as requests:
        options = bucket_options(endpoint)
        for number, table in enumerate(TABLES):
            folder = Path(tempfile.mkdtemp(prefix="metastore-bench-", dir=FOLDER))
            try:
                asked, listed, read = _measured(table, folder / "table", f"tables/{number}", options, requests)
            finally:
                shutil.rmtree(folder)
            name = f"plan of a new file among {FILES:,}, {table.name}"
            most = REQUESTS + -(-FILES // _PAGE)
            rows.append(Row(f"{name}: requests ({listed} of them listings)", [asked], [most], most / asked, 1.0))
            rows.append(Row(f"{name}: kB read", [read / 1e3], [KILOBYTES], KILOBYTES * 1e3 / max(read, 1), 1.0))
    return rows


def _measured(
    table: Growing, folder: Path, prefix: str, options: dict[str, str], requests: Requests
) -> tuple[int, int, int]:
    """Requests, how many of them are listings, and bytes of objects."""
    grow = table.make(folder, FILES)
    uri = f"s3://metastore/{prefix}"
    relocate = {str(folder): uri}
    before = _upload(table, folder, prefix, options, {})
    direct = TableConfig(name="t", uri=uri, format=table.format, relocate=relocate, storage_options=options)
    own = direct.model_copy(update={"storage_options": {**options, "aws_endpoint": requests.endpoint}})
    learnt = Memory(dict, anew=True)
    open_table_format(direct, learnt).snapshot()
    known = learnt.kept
    grow()
    _upload(table, folder, prefix, options, before)
    requests.take()
    found = open_table_format(own, Memory(lambda: known, anew=True)).snapshot()
    asked = requests.take()
    if len(found.fragments) != FILES + 1:
        raise AssertionError(f"{len(found.fragments)} files of {table.name} were planned, not {FILES + 1}")
    return len(asked), sum(one.startswith("list ") for one in asked), requests.data_bytes


def _upload(
    table: Growing, folder: Path, prefix: str, options: dict[str, str], before: dict[Path, int]
) -> dict[Path, int]:
    """Make the store hold what the folder does; `before`, and returned: when each file there was written."""
    store = open_object_store("s3://metastore", options.items())
    now = {path: path.stat().st_mtime_ns for path in folder.glob(table.needed) if path.is_file()}
    new = [path for path, written in now.items() if before.get(path) != written]

    def put(path: Path) -> None:
        obstore.put(store, f"{prefix}/{path.relative_to(folder)}", path.read_bytes())

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(put, new))
    return now
