"""What deltalake does not tell of a Delta table: its newest version at the least cost, and deletion vectors' places.

Everything else about a table (which files are live, their sizes, statistics and partition values) comes from deltalake.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from metastore_assets.errors import TableFormatError
from metastore_assets.formats.deletion_vectors import DeletionVector
from metastore_assets.formats.location import Location

LOG = "_delta_log"
_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10})|\.[0-9a-f-]{36})?\.(parquet|json)")
_END = 1 << 16
_VECTOR_FIELDS = ("storageType", "pathOrInlineDv", "offset", "sizeInBytes", "cardinality")


def latest_version(location: Location) -> int | None:
    """The number of the newest version, from a listing of the log's end; None when there is no log."""
    newest = _newest(location.names(LOG, after=_hint(location)))
    # The hint may be left from a longer log that lay here before.
    return _newest(location.names(LOG)) if newest is None else newest


def _hint(location: Location) -> str:
    """A name in the log that sorts before all commits since the newest checkpoint; empty when none is known."""
    try:
        return f"{int(json.loads(location.read(f'{LOG}/_last_checkpoint'))['version']):020}"
    except (OSError, ValueError, LookupError, TypeError):
        return ""


def _newest(names: Iterable[str]) -> int | None:
    matches = (_COMMIT.fullmatch(name) or _CHECKPOINT.fullmatch(name) for name in names)
    return max((int(match[1]) for match in matches if match), default=None)


def commit_time(location: Location, version: int) -> datetime | None:
    """When a version was committed, in UTC, as its commit file says; None when it does not, or is cleaned up.

    Writers put that information first or last: of a long file only both ends are read.
    """
    try:
        with location.open(f"{LOG}/{version:020}.json") as file:
            size = file.size()
            text = file.read(_END)
            file.seek(max(len(text), size - _END))
            text += file.read()
    except FileNotFoundError:
        return None
    for line in text.splitlines():
        if b'"commitInfo"' in line[:32]:
            with suppress(ValueError):  # cut off, where the two ends do not meet
                commit = json.loads(line)["commitInfo"]
                milliseconds = commit.get("inCommitTimestamp", commit.get("timestamp"))
                return None if milliseconds is None else datetime.fromtimestamp(milliseconds / 1000, UTC)
    return None


def deletion_vectors(location: Location, version: int, live: Collection[str]) -> dict[str, DeletionVector]:
    """Deletion vectors of the live data files of a version, by the path that their add actions have.

    A path has one live add action at most, and it is the newest one of that path: so the log is read from its end, as
    far back as the newest checkpoint. Raises TableFormatError when a live file's add action is not found.
    """
    wanted = set(live)
    found: dict[str, DeletionVector] = {}
    for adds in _adds_newest_first(location, version):
        for path, vector in adds:
            if path in wanted:
                wanted.discard(path)
                if vector is not None:
                    found[path] = vector
        if not wanted:
            return found
    if wanted:
        raise TableFormatError(f"{location.uri}: the log of version {version} does not say how {min(wanted)} was added")
    return found


def _adds_newest_first(location: Location, version: int) -> Iterator[Iterator[tuple[str, DeletionVector | None]]]:
    names = sorted(location.names(LOG))
    present = frozenset(names)
    checkpoint = _newest_checkpoint(names, version)
    oldest = checkpoint[0] if checkpoint else -1
    for number in range(version, oldest, -1):
        name = f"{number:020}.json"
        if name not in present:
            raise TableFormatError(f"{location.uri}: the log has no commit {number}, nor a checkpoint behind it")
        yield _commit_adds(location, name)
    if checkpoint:
        yield _checkpoint_adds(location, checkpoint[1])


def _newest_checkpoint(names: list[str], version: int) -> tuple[int, list[str]] | None:
    found: dict[tuple[int, str], tuple[int, list[str]]] = {}
    for name in names:
        match = _CHECKPOINT.fullmatch(name)
        if match and int(match[1]) <= version:
            parts = int(match[3]) if match[3] else 1
            key = (int(match[1]), f"of {match[3]}" if match[3] else name)
            found.setdefault(key, (parts, []))[1].append(name)
    complete = [(number, files) for (number, _), (parts, files) in found.items() if len(files) == parts]
    return max(complete, key=lambda item: item[0], default=None)


def _commit_adds(location: Location, name: str) -> Iterator[tuple[str, DeletionVector | None]]:
    for line in location.read(f"{LOG}/{name}").splitlines():
        if b'"add"' in line and (add := json.loads(line).get("add")):
            yield add["path"], _vector(add.get("deletionVector"))


def _checkpoint_adds(location: Location, names: list[str]) -> Iterator[tuple[str, DeletionVector | None]]:
    for name in names:
        path = f"{LOG}/{name}"
        if name.endswith(".json"):
            yield from _commit_adds(location, name)
            sidecars = [
                action["sidecar"]["path"]
                for line in location.read(path).splitlines()
                if "sidecar" in (action := json.loads(line))
            ]
        else:
            yield from _parquet_adds(location, path)
            sidecars = [row["path"] for row in _parquet_actions(location, path, "sidecar")]
        for sidecar in sidecars:
            yield from _parquet_adds(location, sidecar if "/" in sidecar else f"{LOG}/_sidecars/{sidecar}")


def _parquet_adds(location: Location, path: str) -> Iterator[tuple[str, DeletionVector | None]]:
    for add in _parquet_actions(location, path, "add"):
        yield add["path"], _vector(add.get("deletionVector"))


def _parquet_actions(location: Location, path: str, action: str) -> Iterator[dict[str, Any]]:
    with location.open(path) as source:
        file = pq.ParquetFile(source)
        wanted = [f"{action}.path", *(f"{action}.deletionVector.{name}" for name in _VECTOR_FIELDS)]
        stored = {file.schema.column(index).path for index in range(len(file.schema))}
        columns = [column for column in wanted if column in stored]
        if not columns:
            return
        for batch in file.iter_batches(columns=columns, use_threads=False):
            rows = batch.column(0)
            for row in rows.filter(pa.compute.is_valid(rows)).to_pylist():
                if row.get("path") is not None:
                    yield row


def _vector(descriptor: dict[str, Any] | None) -> DeletionVector | None:
    if not descriptor or descriptor.get("storageType") is None:
        return None
    storage, path, offset, size, cardinality = (descriptor.get(name) for name in _VECTOR_FIELDS)
    return DeletionVector(storage, path, offset or 0, size, cardinality)  # type: ignore[arg-type]
