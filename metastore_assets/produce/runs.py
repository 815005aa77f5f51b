"""Runs: sorted, immutable Parquet files.

An index of the keys of their row groups allows partial reads.

A sum stage has totals by key. Its runs have amounts: columns whose values are added up over all runs. The sums of int64
amounts (`RunSchema.counted`) are stored per row group. Other runs can have tombstones: rows that delete older rows.
"""

from __future__ import annotations

import base64
import io
import json
import sys
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from metastore_assets.errors import CorruptionError
from metastore_assets.produce.order import Order
from metastore_assets.produce.run_schema import TOMBSTONE, RunSchema
from metastore_assets.produce.streams import Stream
from metastore_assets.produce.typed_rows import CHANGE, frame_of, table_of
from metastore_assets.produce.updates import CHANGES
from metastore_assets.store.json_fields import parse_json
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.parquet import ROW_GROUP_ROWS, ParquetOptions

_KEYS = "metastore.keys"
"""File metadata: the first key of each row group, followed by the last key of each."""
_SUMS = "metastore.sums"
"""File metadata: per row group, the sums of the int64 amounts (`RunSchema.counted`), modulo 2**64."""
_READ_ROWS = 50_000
"""Number of rows up to which small row groups are read together."""
_FOOTERS = 256
"""Number of footers that the process caches. One takes up to about 50 kB."""


@dataclass(frozen=True)
class Run:
    """One sorted file of a dataset, as the manifest of a version records it.

    A manifest is a JSON document that names all files of a version.
    """

    path: str
    level: int
    """0 for a run that a step wrote, and one more for each merge. Complete rewrites write `compaction.BASE_LEVEL`."""
    rows: int
    tombstones: int
    """Number of tombstone rows."""
    sums: tuple[int, ...] = ()
    """For a run of sums: the sum of each int64 amount over all rows, modulo 2**64."""
    changes: tuple[int, ...] = ()
    """For an update: the number of `add`, `update` and `delete` rows."""


@dataclass(frozen=True)
class KeyRange:
    """The keys from `after` (exclusive unless `closed`) to `until` (inclusive).

    Bounds are frames with one row; None means no bound.
    """

    after: pl.DataFrame | None = None
    until: pl.DataFrame | None = None
    closed: bool = False
    """Whether `after` itself belongs to the range."""

    @property
    def is_everything(self) -> bool:
        """Whether the range has no bounds."""
        return self.after is None and self.until is None

    def filter(self, frame: pl.DataFrame, group: Order) -> pl.DataFrame:
        """Return the rows whose keys are in the range.

        `group` is the order of keys in which the range is defined.
        """
        if self.after is not None:
            frame = frame.filter(~group.before(self.after, inclusive=not self.closed))
        if self.until is not None:
            frame = frame.filter(group.before(self.until, inclusive=True))
        return frame


EVERYTHING = KeyRange()


class RunWriter:
    """A context manager that writes sorted frames as one run."""

    def __init__(self, storage: ObjectStore, folder: str, run_schema: RunSchema, row_group_rows: int) -> None:
        self.path = f"{folder}/{uuid.uuid4().hex}.parquet"
        self.rows = 0
        self.tombstones = 0
        self._run_schema = run_schema
        # More rows would be written as several row groups, with only one pair of keys in the index.
        self._row_group_rows = min(row_group_rows, ROW_GROUP_ROWS)
        self._context = storage.parquet_writer(self.path, run_schema.file_schema, ParquetOptions(run_schema.encodings))
        self._waiting: list[pl.DataFrame] = []
        self._waiting_rows = 0
        self._first: list[pl.DataFrame] = []
        self._last: list[pl.DataFrame] = []
        self._sums: list[list[int]] = []
        self._changes = [0, 0, 0] if CHANGE in run_schema.schema.names else []

    def __enter__(self) -> RunWriter:
        self._writer = self._context.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        """Complete the file with the index of its keys and sums.

        After an error, the file does not appear.
        """
        if exception[0] is None:
            try:
                self._flush()
                keys = pl.concat([self._run_schema.empty_keys, *self._first, *self._last])
                self._writer.add_metadata({_KEYS: keys_text(keys), _SUMS: json.dumps(self._sums)})
            except BaseException:
                self._context.__exit__(*sys.exc_info())
                raise
        self._context.__exit__(*exception)

    def write(self, frame: pl.DataFrame) -> None:
        """Append rows.

        The rows of all calls must be in the order of the run schema; this is not checked.

        If the tombstone column is missing, no row is a tombstone.
        """
        if self._run_schema.replaces and TOMBSTONE not in frame.columns:
            frame = frame.with_columns(pl.lit(False).alias(TOMBSTONE))
        frame = frame[:, self._run_schema.file_schema.names]
        self.rows += frame.height
        self.tombstones += int(frame[TOMBSTONE].sum()) if self._run_schema.replaces else 0
        if self._changes:
            counts = Counter(frame[CHANGE].to_list())
            self._changes = [count + counts[name] for count, name in zip(self._changes, CHANGES, strict=True)]
        self._waiting.append(frame)
        self._waiting_rows += frame.height
        if self._waiting_rows >= self._row_group_rows:
            self._flush()

    def end_group(self) -> None:
        """End the row group, so that the next row starts another one."""
        self._flush()

    def run(self, level: int) -> Run:
        """Return the description of the written file, with the given level (see `Run`).

        Call it only after the `with` block: before its end, the last rows and their sums are missing. This is not
        checked.
        """
        sums = tuple(wrap_int64(sum(group_sums)) for group_sums in zip(*self._sums, strict=True))
        return Run(self.path, level, self.rows, self.tombstones, sums, tuple(self._changes))

    def _flush(self) -> None:
        """Write the buffered rows as row groups.

        For each row group, record the first key, the last key, and the sums of the amounts in `RunSchema.counted`.
        """
        if not self._waiting:
            return
        frame = pl.concat(self._waiting)
        self._waiting, self._waiting_rows = [], 0
        for start in range(0, frame.height, self._row_group_rows):
            piece = frame[start : start + self._row_group_rows]
            self._writer.write_table(table_of(piece, self._run_schema.file_schema), self._row_group_rows)
            keys = piece[:, list(self._run_schema.group.columns)]
            self._first.append(keys.head(1))
            self._last.append(keys.tail(1))
            self._sums.append([int(piece[name].sum()) for name in self._run_schema.counted])


def read_run(
    storage: ObjectStore,
    run: Run,
    run_schema: RunSchema,
    key_range: KeyRange = EVERYTHING,
    columns: Iterable[str] | None = None,
) -> Stream:
    """Return a stream of the rows of a run in a key range.

    Row groups outside the range are not read.

    Args:
        storage: The storage of the run.
        run: The run.
        run_schema: Columns and order of the run.
        key_range: The range. By default all keys.
        columns: The columns to return; None for all.
    """
    names = run_schema.file_schema.names if columns is None else list(columns)
    return Stream(_read(storage, run, run_schema, key_range, names), run_schema.empty[:, names])


def _read(
    storage: ObjectStore, run: Run, run_schema: RunSchema, key_range: KeyRange, names: list[str]
) -> Iterator[pl.DataFrame]:
    """Yield the rows of a run in a key range, from the row groups that may overlap it."""
    groups, metadata = None, None
    if not key_range.is_everything:
        footer = footer_of(storage, run.path)
        groups, metadata = _row_groups(footer, run_schema, key_range), footer.metadata
        if not groups:
            return
    # A full read needs no index, so the file is opened only once.
    with storage.open_parquet(run.path, metadata) as file:
        groups = [(number, True) for number in range(file.num_row_groups)] if groups is None else groups
        for portion in _portions(groups, file.metadata):
            numbers = [number for number, _ in portion]
            frame = add_tombstone_column(
                frame_of(file.read_row_groups(numbers, columns=stored_columns(run, names))), names
            )
            yield frame if all(inside for _, inside in portion) else key_range.filter(frame, run_schema.group)


def _portions(groups: Sequence[tuple[int, bool]], metadata: pq.FileMetaData) -> Iterator[Sequence[tuple[int, bool]]]:
    """Divide row groups into portions, to be read with one call each.

    Yield the portions in order.

    The first two portions have one row group each, the next ones 2, 4, and so on. A portion ends early once it has
    `_READ_ROWS` rows. A reader that stops after a few rows therefore reads little.

    Args:
        groups: (number of the row group, whether all of its rows are in the range to read).
        metadata: The footer of the file.
    """
    start, size = 0, 1
    while start < len(groups):
        stop = start + 1
        rows = metadata.row_group(groups[start][0]).num_rows
        while stop < min(len(groups), start + size) and rows < _READ_ROWS:
            rows += metadata.row_group(groups[stop][0]).num_rows
            stop += 1
        yield groups[start:stop]
        size = size if not start else 2 * size  # The first two portions have one row group, the next ones 2, 4, …
        start = stop


def stored_columns(run: Run, names: list[str]) -> list[str]:
    """Return those columns in `names` that a run stores.

    A run without tombstones has no tombstone column.
    """
    return names if run.tombstones else [name for name in names if name != TOMBSTONE]


def add_tombstone_column(frame: pl.DataFrame, names: list[str]) -> pl.DataFrame:
    """Return the columns `names` of the frame.

    A missing tombstone column is added, with false in all rows.
    """
    return frame if frame.width == len(names) else frame.with_columns(pl.lit(False).alias(TOMBSTONE))[:, names]


def sample_run_keys(storage: ObjectStore, run: Run) -> pl.DataFrame:
    """Return the first and last keys of all row groups of a run, as a sample of its keys."""
    return footer_of(storage, run.path).ends


@dataclass(frozen=True)
class Footer:
    """The footer of a run's file, with its index of keys and sums."""

    metadata: pq.FileMetaData

    @cached_property
    def ends(self) -> pl.DataFrame:
        """The first keys of all row groups, followed by the last keys."""
        return keys_of(self._text(_KEYS))

    @cached_property
    def first(self) -> pl.DataFrame:
        """The first key of each row group."""
        return self.ends[: self.metadata.num_row_groups]

    @cached_property
    def last(self) -> pl.DataFrame:
        """The last key of each row group."""
        return self.ends[self.metadata.num_row_groups :]

    @cached_property
    def sums(self) -> list[list[int]]:
        """For each row group, the sums of the amounts in `RunSchema.counted`, modulo 2**64."""
        sums: list[list[int]] = parse_json(self._text(_SUMS))
        return sums

    def _text(self, name: str) -> str:
        return str(self.metadata.metadata[name.encode()].decode())


@lru_cache(maxsize=_FOOTERS)
def footer_of(storage: ObjectStore, path: str) -> Footer:
    """Return the footer of a run's file, from a cache or from the file.

    Raises CorruptionError if the footer has no index of keys, or one that does not fit the row groups.
    """
    with storage.open_parquet(path) as file:
        metadata = file.metadata
    if not {_KEYS.encode(), _SUMS.encode()} <= (metadata.metadata or {}).keys():
        raise CorruptionError(f"{storage.uri(path)} has no index of its keys: it was not written as a run")
    footer = Footer(metadata)
    if len(footer.sums) != metadata.num_row_groups:
        # An earlier release wrote such files with `Settings(row_group_rows=...)` of more than ROW_GROUP_ROWS.
        raise CorruptionError(f"{storage.uri(path)}: the index of its keys does not fit its row groups; rebuild it")
    return footer


def wrap_int64(number: int) -> int:
    """Return the signed 64-bit integer that equals a number modulo 2**64."""
    return (number + 2**63) % 2**64 - 2**63


def _row_groups(footer: Footer, run_schema: RunSchema, key_range: KeyRange) -> list[tuple[int, bool]]:
    """Return (number, whether all rows are in the range) of the row groups that may overlap a range."""
    group = run_schema.group
    ends = footer.ends
    late = _flags(ends, None if key_range.until is None else ~group.before(key_range.until, inclusive=True))
    early = _flags(
        ends, None if key_range.after is None else group.before(key_range.after, inclusive=not key_range.closed)
    )
    count = footer.metadata.num_row_groups
    groups = [number for number in range(count) if not late[number] and not early[count + number]]
    return [(number, not early[number] and not late[count + number]) for number in groups]


def _flags(frame: pl.DataFrame, condition: pl.Expr | None) -> list[bool]:
    return [False] * frame.height if condition is None else frame.select(condition).to_series().to_list()


def keys_text(keys: pl.DataFrame) -> str:
    """Encode a frame of keys as text for a file's metadata or a manifest."""
    sink = io.BytesIO()
    keys.write_ipc_stream(sink)
    return base64.b64encode(sink.getvalue()).decode()


def keys_of(text: str) -> pl.DataFrame:
    """Return the frame of keys that `keys_text` encoded as this text.

    Raises ValueError for corrupt text.
    """
    return frame_of(pa.ipc.open_stream(base64.b64decode(text)).read_all())
