"""The state of a Delta table at a version: what is left of the actions in its log."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from metastore_assets.errors import TableFormatError
from metastore_assets.formats.deletion_vectors import DeletionVector
from metastore_assets.formats.delta.checks import check_protocol, check_table
from metastore_assets.formats.delta.log import LOG, Log
from metastore_assets.formats.metadata_json import (
    as_integer,
    as_object,
    as_text,
    check_distinct,
    format_value,
    parse_json,
    parse_json_line,
)
from metastore_assets.formats.readers.parquet import open_parquet
from metastore_assets.formats.values import dates_as_text
from metastore_assets.startup import pc
from metastore_assets.storage.corrupt_input import LimitError, error_reason, metadata_errors
from metastore_assets.storage.location import Location
from metastore_assets.storage.location_policy import path_without_origin
from metastore_assets.tasks.isolation import stream_isolated

_VECTOR_FIELDS = ("storageType", "pathOrInlineDv", "offset", "sizeInBytes", "cardinality")
_ADD_FIELDS = ("path", "partitionValues", "size", "modificationTime", "deletionVector")
_REQUIRED = {"protocol": "minReaderVersion", "metaData": "schemaString", "sidecar": "path", "add": "path"}
"""Actions in checkpoints, and a field without which a row holds none of that kind."""
_ROWS_FIRST = re.compile(r'\s*\{\s*"numRecords"\s*:\s*(\d{1,18})\s*[,}]')
_BATCH = 8192

_Action = tuple[str, Mapping[str, Any]]
"""Its kind, and what it says."""
FileKey = tuple[str, str | None]
"""What tells logical files apart: the path, and the id of the deletion vector."""


@dataclass(frozen=True, slots=True)
class AddedFile:
    """A data file of the table, as the log adds it."""

    path: str
    """A percent-encoded URI, absolute or relative to the table."""
    size: int
    modification_time: int
    partition_values: Mapping[str, str | None]
    """By physical name, as text."""
    row_count: int | None
    """Rows of the file, deleted ones included."""
    vector: DeletionVector | None
    statistics: str | Mapping[str, Any] | None
    """What the log says of the file's columns, when it was asked for: JSON, or what a checkpoint has instead."""

    @property
    def key(self) -> FileKey:
        """What tells the logical file from others."""
        return _file_key(self.path, self.vector)


@dataclass
class TableState:
    """A version of a table."""

    protocol: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    adds: list[AddedFile] = field(default_factory=list)


@dataclass(frozen=True)
class Changes:
    """What some commits that follow each other changed, or a state: the newest action of each logical file in it."""

    adds: list[AddedFile]
    gone: list[FileKey]
    """Logical files that are no more, whatever older actions say."""


class Replay:
    """The log, read from its end: the newest action of each logical file counts."""

    def __init__(self, location: Location, with_statistics: bool = False) -> None:
        self._location = location
        self._with_statistics = with_statistics
        self._state = TableState()
        self._seen: set[FileKey] = set()
        self._live: dict[str, AddedFile] = {}

    def read(self, log: Log, version: int) -> None:
        """Read all that a version is told by. Raises TableFormatError when the log has gaps."""
        names, checkpoint = log.files(self._location.uri, version)
        for name in names:
            self.read_commit(name)
        for name in checkpoint:
            self._add(name, _checkpoint_actions(self._location, name, self._with_statistics))

    def read_commit(self, name: str) -> None:
        """Read the file of a commit, or of several that are summed up. Raises TableFormatError."""
        self._add(name, _json_actions(self._location, f"{LOG}/{name}"))

    def add_known(self, protocol: dict[str, Any], metadata: dict[str, Any], pieces: Iterable[Changes]) -> None:
        """Go on with what is known of all that is older, newest first."""
        state = self._state
        state.protocol, state.metadata = state.protocol or protocol, state.metadata or metadata
        for piece in pieces:
            own = {add.key: add for add in piece.adds}
            for key in own.keys() - self._seen:
                self._live.setdefault(key[0], own[key])
            self._seen.update(own, piece.gone)

    def changes(self) -> Changes:
        """What was read up to now."""
        live = {add.key for add in self._live.values()}
        return Changes(list(self._live.values()), sorted(self._seen - live, key=repr))

    def state(self, version: int) -> TableState:
        """The version's protocol, metadata and live files, in no order. Raises TableFormatError without the former."""
        state = self._state
        for kind, found in (("protocol", state.protocol), ("metaData", state.metadata)):
            if not found:
                raise TableFormatError(f"{self._location.uri}: the log of version {version} has no action {kind!r}")
        state.adds = list(self._live.values())
        return state

    def _add(self, name: str, actions: Iterator[_Action]) -> None:
        state, seen = self._state, self._seen
        own: set[str] = set()
        with metadata_errors(self._location.full_path(f"{LOG}/{name}")):
            for kind, action in actions:
                if kind == "protocol":
                    state.protocol = state.protocol or check_protocol(action)
                elif kind == "metaData":
                    state.metadata = state.metadata or check_table(action)
                elif (key := _key(action)) not in seen:
                    seen.add(key)
                    if kind == "add":
                        if key[0] in own:
                            raise TableFormatError(
                                f"{self._location.uri}: {LOG}/{name} adds the same data file twice, which no protocol "
                                "allows"
                            )
                        own.add(key[0])
                        self._live.setdefault(key[0], _added(action, self._with_statistics))


def replay(location: Location, log: Log, version: int, with_statistics: bool = False) -> TableState:
    """The version's protocol, metadata and live files, in no order.

    The log is read from its end, as far back as a checkpoint. Raises TableFormatError when the log has gaps or
    contradicts the protocol.
    """
    found = Replay(location, with_statistics)
    found.read(log, version)
    return found.state(version)


def _json_actions(location: Location, path: str) -> Iterator[_Action]:
    for place, line in enumerate(location.read(path).splitlines(), 1):
        if not line.strip():
            continue
        try:
            actions = as_object(parse_json_line(line), "a line")
        except (ValueError, RecursionError) as error:
            raise ValueError(f"its line {place} is no action in JSON: {error_reason(error)}") from error
        for kind in ("add", "remove", "metaData", "protocol", "sidecar"):
            if actions.get(kind):
                yield kind, as_object(actions[kind], kind)


def _checkpoint_actions(location: Location, name: str, with_statistics: bool) -> Iterator[_Action]:
    path = f"{LOG}/{name}"
    is_json = name.endswith(".json")
    found = _json_actions(location, path) if is_json else _parquet_actions(location, path, with_statistics)
    sidecars = []
    for kind, action in found:
        if kind == "sidecar":
            sidecars.append(
                as_text(unquote(as_text(action.get("path"), "path")).rpartition("/")[2], "the name of a sidecar")
            )
        elif kind != "remove":  # of an older file, which the checkpoint does not add
            yield kind, action
    check_distinct(sidecars, "the sidecar")
    for sidecar in sidecars:
        path = f"{LOG}/_sidecars/{sidecar}"
        with metadata_errors(location.full_path(path)):
            for kind, action in _parquet_actions(location, path, with_statistics):
                if kind == "add":
                    yield kind, action


def _parquet_actions(location: Location, path: str, with_statistics: bool) -> Iterator[_Action]:
    for kind, rows in stream_isolated(_parquet_rows, location.full_path(path), location, path, with_statistics):
        yield from ((kind, row) for row in rows.to_pylist(maps_as_pydicts="strict"))


def _parquet_rows(location: Location, path: str, with_statistics: bool) -> Iterator[tuple[str, pa.StructArray]]:
    """Actions of one kind, again and again. Runs in a child process."""
    with location.open(path) as source:
        file = open_parquet(source)
        parsed = "stats_parsed" if with_statistics else "stats_parsed.numRecords"
        columns = ["protocol", "metaData", "sidecar.path", *(f"add.{name}" for name in (*_ADD_FIELDS, "stats", parsed))]
        for batch in file.iter_batches(_BATCH, columns=columns, use_threads=False):
            for kind, key in _REQUIRED.items():
                if kind in batch.schema.names:
                    # Most rows are actions of another kind.
                    rows = batch[kind].filter(pc.is_valid(pc.struct_field(batch[kind], key)))
                    rows.validate(full=True)
                    if len(rows):
                        yield kind, dates_as_text(rows)


def _key(action: Mapping[str, Any]) -> FileKey:
    vector = _vector(action.get("deletionVector"))
    return _file_key(as_text(action.get("path"), "path"), vector)


def _file_key(recorded: str, vector: DeletionVector | None) -> FileKey:
    path = as_text(unquote(recorded), "path")
    # Writers name the same file by path or by URI.
    return path_without_origin(path) if path.startswith("file:") else path, vector.id if vector else None


def _added(action: Mapping[str, Any], with_statistics: bool) -> AddedFile:
    told, parsed_ = _statistics_text(action.get("stats")), action.get("stats_parsed")
    values = as_object(action.get("partitionValues") or {}, "partitionValues")
    for name, value in values.items():
        if value is not None and not isinstance(value, str):
            raise ValueError(f"the partition value {format_value(name)} is {format_value(value)}, not a text")
    return AddedFile(
        action["path"],
        as_integer(action.get("size"), "size", minimum=0),
        as_integer(action.get("modificationTime"), "modificationTime"),
        values,
        _row_count(told, parsed_),
        _vector(action.get("deletionVector")),
        (told or parsed_) if with_statistics else None,
    )


def _statistics_text(stats: Any) -> str | None:
    """Return statistics that are an object in JSON; None for the rest, such as the text `null`: they are optional."""
    if not isinstance(stats, str) or not stats:
        return None
    # Statistics of wide tables are long, and the number of rows nearly always comes first.
    if _ROWS_FIRST.match(stats):
        return stats
    try:
        return stats if isinstance(parse_json(stats), Mapping) else None
    except LimitError:
        raise
    except (ValueError, RecursionError):
        return None


def _row_count(told: str | None, parsed_: Mapping[str, Any] | None) -> int | None:
    if not told:
        count = as_object(parsed_, "stats_parsed").get("numRecords") if parsed_ else None
    elif match := _ROWS_FIRST.match(told):
        count = int(match[1])
    else:
        count = as_object(parse_json(told), "stats").get("numRecords")
    return None if count is None else as_integer(count, "numRecords", minimum=0)


def _vector(descriptor: Mapping[str, Any] | None) -> DeletionVector | None:
    if not descriptor or as_object(descriptor, "deletionVector").get("storageType") is None:
        return None
    storage, path, offset, size, cardinality = (descriptor.get(name) for name in _VECTOR_FIELDS)
    if path is None or size is None or cardinality is None:
        raise ValueError(f"a deletion vector lacks one of {', '.join(_VECTOR_FIELDS)}")
    # What the numbers mean, whoever reads the vector compares with what is there.
    return DeletionVector(
        as_text(storage, "storageType"),
        as_text(path, "pathOrInlineDv") if path else "",
        as_integer(offset or 0, "offset"),
        as_integer(size, "sizeInBytes"),
        as_integer(cardinality, "cardinality", minimum=0),
    )
