"""Replay of a Delta log to the protocol, the metadata and the live files of a version.

A file is live if it was added and not removed since. A logical file is a data file together with its deletion vector.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias
from urllib.parse import unquote

import pyarrow as pa

from metastore_assets.errors import TableFormatError
from metastore_assets.formats.deletion_vectors import DeletionVector
from metastore_assets.formats.delta.log import LOG, Log
from metastore_assets.formats.delta.protocol import check_metadata, check_protocol
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
from metastore_assets.storage.io_counters import IoCountingThreadPool
from metastore_assets.storage.location import Location
from metastore_assets.storage.location_policy import path_without_origin

_VECTOR_FIELDS = ("storageType", "pathOrInlineDv", "offset", "sizeInBytes", "cardinality")
_ADD_FIELDS = ("path", "partitionValues", "size", "modificationTime", "deletionVector")
_REQUIRED = {"protocol": "minReaderVersion", "metaData": "schemaString", "sidecar": "path", "add": "path"}
"""By kind of action, a field that every action of this kind has. It is null in checkpoint rows of other kinds."""
_LEADING_COUNT = r'^\s*\{\s*"numRecords"\s*:\s*(?P<count>[0-9]{1,18})\s*[,}]'
_LEADING_ROW_COUNT = re.compile(_LEADING_COUNT)
_PARSED_COUNT = "stats_parsed.numRecords"
"""Column of the row counts of files, in checkpoints with parsed statistics."""
_METADATA_COLUMNS = ("protocol", "metaData")
"""The columns of a checkpoint with the protocol and the metadata."""
_BATCH = 8192
_READERS = 4
"""Number of commits that are read at the same time from an object store."""

Action: TypeAlias = tuple[str, Mapping[str, Any]]
"""Kind and JSON content of an action."""
FileKey: TypeAlias = tuple[str, str | None]
"""Identity of a logical file, which is a data file with its deletion vector: (path, id of the vector or None)."""


@dataclass(frozen=True, slots=True)
class AddedFile:
    """A data file that the log adds to the table (action `add`)."""

    path: str
    """A percent-encoded URI, absolute or relative to the table."""
    size: int
    """In bytes."""
    modification_time: int
    """In milliseconds since 1970."""
    partition_values: Mapping[str, str | None] | None
    """Partition values by physical column name, as text; None if the log records none. Readers take a missing value for
    null."""
    row_count: int | None
    """Number of rows of the file, including deleted ones; None if the log does not record it."""
    vector: DeletionVector | None
    statistics: str | Mapping[str, Any] | None
    """Column statistics: JSON text, which may be invalid, or the struct of a checkpoint. None if the file has none, or
    if the replay does not read statistics."""

    @property
    def key(self) -> FileKey:
        """Identity of the data file together with its deletion vector."""
        return _file_key(self.path, self.vector)


@dataclass
class TableState:
    """The protocol, the metadata and the live files of a table at one version."""

    protocol: dict[str, Any]
    metadata: dict[str, Any]
    adds: Iterable[AddedFile]
    """The live files, in no order. `replay` returns an iterator here, which reads the checkpoint while it is used."""


class Replay:
    """A reader that replays the log, from the newest commit backwards.

    If the log has several actions on one logical file (a data file with its deletion vector), the newest decides
    whether the file is live.
    """

    def __init__(self, location: Location, with_statistics: bool = False) -> None:
        self._location = location
        self._with_statistics = with_statistics
        self.protocol: dict[str, Any] = {}
        """The newest protocol; empty if the log that was read has none."""
        self.metadata: dict[str, Any] = {}
        """The newest metadata; empty if the log that was read has none."""
        self._file_keys: set[FileKey] = set()
        self._live: dict[str, AddedFile] = {}

    def read_commits(self, names: Sequence[str]) -> None:
        """Read commits and compacted files (several commits in one file), whose names are given newest first.

        Raises TableFormatError if a file violates the protocol.
        """
        for name, read in _prefetch(self._location, names):
            self._add(name, _json_actions(read))

    def read_metadata(self, checkpoint: Sequence[str]) -> None:
        """Read the protocol and the metadata from a checkpoint, unless newer commits had them.

        Raises TableFormatError if the log has no protocol or no metadata.
        """
        for name in checkpoint:
            if self.protocol and self.metadata:
                return
            self._add(name, _checkpoint_actions(self._location, name, _METADATA_COLUMNS))
        for kind, action in (("protocol", self.protocol), ("metaData", self.metadata)):
            if not action:
                raise TableFormatError(f"{self._location.uri}: the log has no action {kind!r}")

    def files(self, checkpoint: Sequence[str]) -> Iterator[AddedFile]:
        """Yield the live files: first those that the commits added, then those in the older checkpoint.

        The checkpoint is not held in memory. A file that it contains twice is yielded twice.

        Raises TableFormatError if the checkpoint cannot be read.
        """
        yield from self._live.values()
        columns = _file_columns(self._with_statistics)
        for name in checkpoint:
            with metadata_errors(self._location.full_path(f"{LOG}/{name}")):
                for kind, action in _checkpoint_actions(self._location, name, columns):
                    key = action_key(action) if kind == "add" else None
                    if key is not None and key not in self._file_keys and key[0] not in self._live:
                        yield _added_file(action, self._with_statistics)

    def _add(self, name: str, actions: Iterator[Action]) -> None:
        """Apply the actions of the file `name` of the log.

        Newer files were applied before, and their actions prevail.

        Raises TableFormatError if an action is invalid. Also raises it if the file adds a data file twice with
        different fields, such as deletion vectors, or both adds and removes a logical file.
        """
        file_keys = self._file_keys
        added_files: dict[str, AddedFile] = {}
        kinds: dict[FileKey, str] = {}
        with metadata_errors(self._location.full_path(f"{LOG}/{name}")):
            for kind, action in actions:
                if kind == "protocol":
                    self.protocol = self.protocol or check_protocol(action)
                elif kind == "metaData":
                    self.metadata = self.metadata or check_metadata(action)
                elif (key := action_key(action)) in kinds and kinds[key] != kind:
                    raise TableFormatError(
                        f"{self._location.uri}: {LOG}/{name} both adds and removes the data file {action['path']}; "
                        "readers differ in whether the table then has it"
                    )
                elif key not in file_keys or key in kinds:
                    file_keys.add(key)
                    kinds[key] = kind
                    if kind == "add":
                        file = _added_file(action, self._with_statistics)
                        if added_files.setdefault(key[0], file) != file:
                            raise TableFormatError(
                                f"{self._location.uri}: {LOG}/{name} adds the data file {action['path']} twice, with "
                                "different fields; readers differ in which of them apply"
                            )
                        self._live.setdefault(key[0], file)


def replay(location: Location, log: Log, version: int, with_statistics: bool = False) -> TableState:
    """Return the protocol, metadata and live files of a version.

    The files can be iterated once. Files in a checkpoint are read during the iteration.

    Args:
        location: the table's folder.
        log: the files of its log.
        version: the version to replay.
        with_statistics: whether `AddedFile.statistics` are needed.

    Raises:
        TableFormatError: the log has gaps or violates the protocol.
    """
    names, checkpoint = log.files(location.uri, version)
    log_replay = Replay(location, with_statistics)
    log_replay.read_commits(names)
    log_replay.read_metadata(checkpoint)
    return TableState(log_replay.protocol, log_replay.metadata, log_replay.files(checkpoint))


def _prefetch(location: Location, names: Sequence[str]) -> Iterator[tuple[str, Callable[[], bytes]]]:
    """Yield each name with a function that reads this file of the log.

    If the log is in an object store, the next files are read in the background.
    """
    if location.is_local or len(names) < 2:
        yield from ((name, partial(location.read, f"{LOG}/{name}")) for name in names)
        return
    with IoCountingThreadPool(_READERS) as pool:
        started_reads: deque[tuple[str, Future[bytes]]] = deque()
        for name in names:
            started_reads.append((name, pool.submit(location.read, f"{LOG}/{name}")))
            if len(started_reads) > _READERS:
                oldest, content = started_reads.popleft()
                yield oldest, content.result
        yield from ((name, content.result) for name, content in started_reads)


def _json_actions(read: Callable[[], bytes]) -> Iterator[Action]:
    """Yield each `add`, `remove`, `metaData`, `protocol` and `sidecar` action in a JSON file of the log.

    Other actions, such as `commitInfo`, are skipped. `read` returns the content of the file.

    Raises ValueError, which names the number of the line, if a line is not a JSON object. Also raises ValueError,
    without the number, if the value of one of the five actions is not a JSON object.
    """
    for number, line in enumerate(read().splitlines(), 1):
        if not line.strip():
            continue
        try:
            actions = as_object(parse_json_line(line), "a line")
        except (ValueError, RecursionError) as error:
            raise ValueError(f"line {number} is not a JSON action: {error_reason(error)}") from error
        for kind in ("add", "remove", "metaData", "protocol", "sidecar"):
            if actions.get(kind):
                yield kind, as_object(actions[kind], kind)


def _checkpoint_actions(location: Location, name: str, columns: Sequence[str]) -> Iterator[Action]:
    """Yield the actions in one file of a checkpoint.

    After them, yield the `add` actions in the file's sidecars.

    Actions that remove files or name sidecars are not yielded.

    Args:
        location: the table's folder.
        name: name of the file in the log.
        columns: the columns to read from Parquet files.
    """
    path = f"{LOG}/{name}"
    is_json = name.endswith(".json")
    actions = _json_actions(partial(location.read, path)) if is_json else _parquet_actions(location, path, columns)
    sidecars = []
    for kind, action in actions:
        if kind == "sidecar":
            sidecars.append(
                as_text(unquote(as_text(action.get("path"), "path")).rpartition("/")[2], "the name of a sidecar")
            )
        elif kind != "remove":  # files that a checkpoint lists as removed are not in it
            yield kind, action
    check_distinct(sidecars, "the sidecar")
    for sidecar in sidecars:
        path = f"{LOG}/_sidecars/{sidecar}"
        with metadata_errors(location.full_path(path)):
            for kind, action in _parquet_actions(location, path, columns):
                if kind == "add":
                    yield kind, action


def _file_columns(with_statistics: bool) -> list[str]:
    """Return the columns of a checkpoint that describe data files.

    `with_statistics` includes all of `stats_parsed`. Otherwise, only the row count in `stats_parsed` is included.
    """
    parsed_statistics = "stats_parsed" if with_statistics else _PARSED_COUNT
    return ["sidecar.path", *(f"add.{name}" for name in (*_ADD_FIELDS, "stats", parsed_statistics))]


def _parquet_actions(location: Location, path: str, columns: Sequence[str]) -> Iterator[Action]:
    """Yield the actions of a Parquet checkpoint, each as (kind of action, its fields)."""
    # Imported at first use: most lookups of the newest version read no checkpoint.
    from metastore_assets.tasks.streams import stream_isolated

    for kind, rows in stream_isolated(_parquet_rows, location.full_path(path), location, path, columns):
        names = [field.name for field in rows.type]
        # Lists of each column take a third of the time of `rows.to_pylist`.
        values = [_to_list(pc.struct_field(rows, name)) for name in names]
        yield from ((kind, dict(zip(names, row, strict=True))) for row in zip(*values, strict=True))


def _to_list(column: pa.Array) -> list[Any]:
    """Return the values of a column as `to_pylist` does, but faster for common columns."""
    if column.null_count == len(column):
        return [None] * len(column)
    if pa.types.is_string(column.type) or (pa.types.is_integer(column.type) and not column.null_count):
        values: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
        return values
    result: list[Any] = column.to_pylist(maps_as_pydicts="strict")
    return result


def _parquet_rows(location: Location, path: str, columns: Sequence[str]) -> Iterator[tuple[str, pa.StructArray]]:
    """Read actions from a Parquet file, and yield them in batches: (kind, actions of this kind).

    Runs in a child process.
    """
    with location.open(path) as source:
        file = open_parquet(source)
        for batch in file.iter_batches(_BATCH, columns=columns, use_threads=False):
            for kind, key in _REQUIRED.items():
                if kind in batch.schema.names:
                    # Most rows are actions of other kinds.
                    rows = batch[kind].filter(pc.is_valid(pc.struct_field(batch[kind], key)))
                    rows.validate(full=True)
                    if len(rows):
                        rows = dates_as_text(rows)
                        yield kind, _compact_statistics(rows) if f"add.{_PARSED_COUNT}" in columns else rows


def _compact_statistics(rows: pa.StructArray) -> pa.StructArray:
    """Return `add` actions with row counts in place of most statistics texts.

    If the text `stats` begins with the row count, as in `{"numRecords":5,…}`, the count is stored in
    `stats_parsed.numRecords`, and the text becomes null. All other fields of `stats_parsed` are dropped. The child
    process that reads checkpoints then sends less data to its parent.
    """
    columns = {field.name: pc.struct_field(rows, field.name) for field in rows.type}
    if "stats" not in columns or not pa.types.is_string(columns["stats"].type):
        return rows
    counts = pc.struct_field(pc.extract_regex(columns["stats"], _LEADING_COUNT), "count").cast(pa.int64())
    columns["stats"] = pc.if_else(pc.is_valid(counts), pa.scalar(None, pa.string()), columns["stats"])
    if "stats_parsed" in columns:
        counts = pc.coalesce(counts, pc.struct_field(columns["stats_parsed"], "numRecords").cast(pa.int64()))
    columns["stats_parsed"] = pa.StructArray.from_arrays([counts], ["numRecords"])
    return pa.StructArray.from_arrays(list(columns.values()), list(columns))


def action_key(action: Mapping[str, Any]) -> FileKey:
    """Return the identity of the logical file that an action adds or removes.

    A logical file is a data file together with its deletion vector.

    Raises ValueError if the path or the deletion vector in the action is invalid.
    """
    vector = _parse_vector(action.get("deletionVector"))
    return _file_key(as_text(action.get("path"), "path"), vector)


def _file_key(recorded_path: str, vector: DeletionVector | None) -> FileKey:
    """Return the key of a file with its deletion vector.

    It is equal for different spellings of the path.

    Raises ValueError if the path is invalid, for example if it is not UTF-8.
    """
    try:
        # By default, all invalid bytes become one character, and different files become one.
        path = as_text(unquote(recorded_path, errors="strict"), "path")
    except UnicodeDecodeError:
        raise ValueError(f"the path {recorded_path!r} is not UTF-8; rewrite the file under another name") from None
    # Writers name the same file by its path or by its URI.
    return path_without_origin(path) if path.startswith("file:") else path, vector.id if vector else None


def _added_file(action: Mapping[str, Any], with_statistics: bool) -> AddedFile:
    """Return the file of an `add` action.

    Without `with_statistics`, the result has no column statistics. Raises ValueError for an invalid value.
    """
    stats_text, stats_parsed = _statistics_text(action.get("stats")), action.get("stats_parsed")
    recorded_values = action.get("partitionValues")
    values = None if recorded_values is None else as_object(recorded_values, "partitionValues")
    for name, value in (values or {}).items():
        if value is not None and not isinstance(value, str):
            raise ValueError(f"the partition value {format_value(name)} is {format_value(value)}, not a text")
    return AddedFile(
        action["path"],
        as_integer(action.get("size"), "size", minimum=0),
        as_integer(action.get("modificationTime"), "modificationTime"),
        values,
        _row_count(stats_text, stats_parsed),
        _parse_vector(action.get("deletionVector")),
        (stats_text or stats_parsed) if with_statistics else None,
    )


def _statistics_text(stats: Any) -> str | None:
    """Return `stats` if it is a text that seems to be a JSON object; otherwise None.

    To save time, a text that begins with a row count is returned without parsing, even if its end is invalid. Any other
    text is parsed. Raises LimitError if a parsed text is beyond the limits of `parse_json`.
    """
    if not isinstance(stats, str) or not stats:
        return None
    # Statistics of wide tables are long. Nearly all writers put the row count first, so that few texts are parsed.
    if _LEADING_ROW_COUNT.match(stats):
        return stats
    try:
        return stats if isinstance(parse_json(stats), Mapping) else None
    except LimitError:
        raise
    except (ValueError, RecursionError):
        return None


def _row_count(stats_text: str | None, stats_parsed: Mapping[str, Any] | None) -> int | None:
    """Return the row count in the statistics of a file; None if the statistics lack it.

    `stats_parsed` is used only without `stats_text`. Raises ValueError if the count is invalid.
    """
    if not stats_text:
        count = as_object(stats_parsed, "stats_parsed").get("numRecords") if stats_parsed else None
    elif match := _LEADING_ROW_COUNT.match(stats_text):
        count = int(match[1])
    else:
        count = as_object(parse_json(stats_text), "stats").get("numRecords")
    return None if count is None else as_integer(count, "numRecords", minimum=0)


def _parse_vector(descriptor: Mapping[str, Any] | None) -> DeletionVector | None:
    """Return the deletion vector of an action; None if it has none.

    Raises ValueError if it is invalid.
    """
    if not descriptor or as_object(descriptor, "deletionVector").get("storageType") is None:
        return None
    storage, path, offset, size, cardinality = (descriptor.get(name) for name in _VECTOR_FIELDS)
    if path is None or size is None or cardinality is None:
        raise ValueError(f"a deletion vector lacks one of {', '.join(_VECTOR_FIELDS)}")
    # The reader of the vector checks these numbers against its file.
    return DeletionVector(
        as_text(storage, "storageType"),
        as_text(path, "pathOrInlineDv") if path else "",
        as_integer(offset or 0, "offset"),
        as_integer(size, "sizeInBytes"),
        as_integer(cardinality, "cardinality", minimum=0),
    )
