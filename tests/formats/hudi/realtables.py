"""The unpacked real Hudi tables, and their rows computed in plain Python.

The rows are computed from commits, base files and log files.
"""

from __future__ import annotations

import atexit
import io
import json
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import fastavro
import pyarrow.parquet as pq


@cache
def _folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="hudi-realtables-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@cache
def unpacked(realtables: Path, name: str) -> Path:
    """Return the folder of a table, which is unpacked once per process and must not be changed."""
    with zipfile.ZipFile(realtables / "hudi" / f"{name}.zip") as archive:
        archive.extractall(_folder())
    return _folder() / name


def properties(table: Path) -> dict[str, str]:
    lines = (table / ".hoodie/hoodie.properties").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


def completed(table: Path) -> dict[str, dict[str, Any]]:
    """Return the metadata of completed writes by instant, in ascending order."""
    folder = table / ".hoodie"
    if properties(table)["hoodie.table.version"] >= "8":
        folder /= "timeline"
    tables_read = {}
    for path in folder.iterdir():
        if path.suffix in (".commit", ".deltacommit", ".replacecommit"):
            tables_read[path.name.split(".")[0].split("_")[0]] = _metadata(path.read_bytes())
    return dict(sorted(tables_read.items()))


def rows_by_replay(table: Path, until: str) -> list[dict[str, Any]] | None:
    """Return the rows after the write with the instant `until`, without Hudi's meta columns.

    The rows are computed from the commits. Return None if a base file is in Lance format.
    """
    groups: dict[tuple[str, str], tuple[str, list[str]]] = {}
    for instant, metadata in completed(table).items():
        if instant > until:
            break
        for partition, ids in (metadata.get("partitionToReplaceFileIds") or {}).items():
            for file_id in ids:
                groups.pop((partition, file_id))
        for partition, stats in metadata["partitionToWriteStats"].items():
            for stat in stats:
                key = (partition, stat["fileId"])
                if stat["path"].rpartition("/")[2].startswith("."):
                    groups.setdefault(key, ("", []))[1].append(stat["path"])
                else:
                    groups[key] = (stat["path"], [])
    settings = properties(table)
    rows: list[dict[str, Any]] = []
    for base, logs in groups.values():
        if base.endswith(".lance"):
            return None
        rows += _merged(table, settings, base, logs)
    return [{name: value for name, value in row.items() if not name.startswith("_hoodie_")} for row in rows]


def _merged(table: Path, settings: dict[str, str], base: str, logs: list[str]) -> Iterator[dict[str, Any]]:
    """Yield the live rows of a file slice: its base file changed by the blocks of its log files."""
    keys = settings["hoodie.table.recordkey.fields"].split(",")
    ordering = settings.get("hoodie.table.ordering.fields") or settings.get("hoodie.table.precombine.field")
    by_event = settings.get("hoodie.record.merge.mode") == "EVENT_TIME_ORDERING"

    def key_of(row: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(row[key] for key in keys)

    rows = {key_of(row): row for row in pq.ParquetFile(table / base).read().to_pylist()}
    names = {_key_text(keys, key): key for key in rows}
    blocks = [block for log in logs for block in _blocks((table / log).read_bytes())]
    undone = {headers[1] for kind, headers, _ in blocks if kind == 0}
    for kind, headers, content in blocks:
        if kind == 0 or headers[0] in undone:
            continue
        if kind == 1:
            for text, value in _deletes(content):
                before = rows.get(names.get(text, ()))
                if before is not None and (not by_event or not value or value >= before[ordering]):
                    del rows[names[text]]
            continue
        for row in _records(kind, headers, content):
            before = rows.get(key_of(row))
            if before is None or not by_event or row[ordering] >= before[ordering]:
                rows[key_of(row)] = row
                names[_key_text(keys, key_of(row))] = key_of(row)
    yield from rows.values()


def _key_text(keys: list[str], values: tuple[Any, ...]) -> str:
    """Return a record key as delete blocks store it."""
    if len(keys) == 1:
        return str(values[0])
    return ",".join(f"{key}:{value}" for key, value in zip(keys, values, strict=True))


def _blocks(data: bytes) -> Iterator[tuple[int, dict[int, str], bytes]]:
    stream = io.BytesIO(data)
    while stream.read(6) == b"#HUDI#":
        stream.read(8 + 4)
        kind = _number(stream, 4)
        headers = {}
        for _ in range(_number(stream, 4)):
            key, length = _number(stream, 4), _number(stream, 4)
            headers[key] = stream.read(length).decode()
        content = stream.read(_number(stream, 8))
        for _ in range(_number(stream, 4)):
            stream.read(4)
            stream.read(_number(stream, 4))
        stream.read(8)
        yield kind, headers, content


def _number(stream: io.BytesIO, width: int) -> int:
    return int.from_bytes(stream.read(width), "big")


def _records(kind: int, headers: dict[int, str], content: bytes) -> Iterator[dict[str, Any]]:
    if kind == 5:
        yield from pq.ParquetFile(io.BytesIO(content)).read().to_pylist()
        return
    schema = fastavro.parse_schema(json.loads(headers[2]))
    stream = io.BytesIO(content)
    stream.read(4)
    for _ in range(_number(stream, 4)):
        yield fastavro.schemaless_reader(io.BytesIO(stream.read(_number(stream, 4))), schema)


def _deletes(content: bytes) -> Iterator[tuple[str, int]]:
    """Yield the key and the ordering value of each delete in a block.

    The ordering value of a delete without one is zero.
    """
    stream = io.BytesIO(content[8:])
    while count := _varint(stream):
        if count < 0:
            count = -count
            _varint(stream)
        for _ in range(count):
            texts = [stream.read(_varint(stream)).decode() if _varint(stream) else "" for _ in range(2)]
            branch = _varint(stream)
            assert branch in (0, 2, 3), "an ordering value other than an integer"
            yield texts[0], _varint(stream) if branch else 0


def _varint(stream: io.BytesIO) -> int:
    number = shift = 0
    while True:
        byte = stream.read(1)[0]
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return (number >> 1) ^ -(number & 1)


def _metadata(data: bytes) -> dict[str, Any]:
    if data.startswith(b"Obj"):
        record: Any = next(iter(fastavro.reader(io.BytesIO(data))))
        return dict(record)
    return dict(json.loads(data))


def plain(value: Any) -> Any:
    """Convert a value to a form that does not depend on the decoder."""
    if isinstance(value, datetime):
        moment = value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
        return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    if isinstance(value, date):
        return (value - date(1970, 1, 1)).days
    if isinstance(value, dict):
        return sorted((key, plain(item)) for key, item in value.items())
    if isinstance(value, list):
        return [plain(list(item) if isinstance(item, tuple) else item) for item in value]
    return value
