"""Parts: sorted rows that one task passes to the next, in memory or in a temporary file.

A spool is the destination of a task's rows, and decides whether they may stay in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from metastore_assets.produce.environment import Spool
from metastore_assets.produce.lookup import find_in_run
from metastore_assets.produce.run_schema import RunSchema
from metastore_assets.produce.runs import EVERYTHING, KeyRange, Run, RunWriter, read_run, sample_run_keys
from metastore_assets.produce.streams import Stream, align_streams
from metastore_assets.store.objects import ObjectStore

Part = pl.DataFrame | Run
"""Sorted rows: a frame if they are few, otherwise a temporary file."""


_PART_SHARE = 8
"""Factor by which row groups of temporary files are smaller, because hundreds of files are merged at once."""
_PART_ROWS = 12_500
"""Minimum number of rows in a row group of a large temporary file. Smaller row groups are slow to merge."""


class Sink:
    """A context manager that collects sorted frames into one part, in memory or in a temporary file.

    The part stays in memory if `spool.in_memory` is True and the part has at most `Settings.buffer_rows` rows.
    """

    def __init__(self, spool: Spool, run_schema: RunSchema, row_group_rows: int | None = None) -> None:
        self._spool = spool
        self._run_schema = run_schema
        self._row_group_rows = row_group_rows or spool.settings.row_group_rows
        self._frames: list[pl.DataFrame] = []
        self._rows = 0
        self._writer: RunWriter | None = None
        self.parts: list[Part] = []
        """After the block: one part, or none if there were no rows."""

    def __enter__(self) -> Sink:
        return self

    def add(self, frame: pl.DataFrame) -> None:
        """Append rows.

        All frames together must be sorted.
        """
        if not frame.height:
            return
        self._frames.append(frame)
        self._rows += frame.height
        if self._spool.in_memory and self._rows <= self._spool.settings.buffer_rows:
            return
        if self._writer is None:
            spool = self._spool
            self._writer = RunWriter(spool.storage, spool.folder, self._run_schema, self._row_group_rows)
            self._writer.__enter__()
        for waiting in self._frames:
            self._writer.write(waiting)
        self._frames = []

    def __exit__(self, *exception: Any) -> None:
        if self._writer is not None:
            self._writer.__exit__(*exception)
            self.parts = [self._writer.run(0)]
        elif self._frames:
            self.parts = [pl.concat(self._frames)]


class Sorter:
    """A buffer that sorts rows into parts, and writes a part to a file whenever it is full."""

    def __init__(self, spool: Spool, run_schema: RunSchema) -> None:
        self._spool = spool
        self._run_schema = run_schema
        self._waiting: list[pl.DataFrame] = []
        self._rows = 0
        self._parts: list[Part] = []

    def add(self, frame: pl.DataFrame) -> None:
        """Add rows in any order.

        All rows of a unit, which is a group of rows that are replaced together, must be added in one call.
        """
        if not frame.height:
            return
        self._waiting.append(frame[:, self._run_schema.file_schema.names])
        self._rows += frame.height
        if self._rows >= self._spool.settings.buffer_rows:
            self._flush(replace(self._spool, in_memory=False))

    def parts(self) -> list[Part]:
        """Return all rows as sorted parts."""
        self._flush(self._spool)
        return self._parts

    def _flush(self, spool: Spool) -> None:
        """Sort the buffered rows, append them to `_parts` as one part, and empty the buffer.

        Args:
            spool: Where the part is written. If `spool.in_memory` is True, a small part stays in memory (see `Sink`).
        """
        if self._waiting:
            # Hundreds of parts may be merged at once, with one row group of each in memory.
            settings = spool.settings
            rows = max(1, settings.row_group_rows // _PART_SHARE, min(_PART_ROWS, settings.buffer_rows // 64))
            with Sink(spool, self._run_schema, rows) as sink:
                sink.add(self._run_schema.order.sort(pl.concat(self._waiting)))
            self._parts += sink.parts
        self._waiting, self._rows = [], 0


def part_rows(parts: Sequence[Part]) -> int:
    """Return the number of rows in these parts."""
    return sum(part.rows if isinstance(part, Run) else part.height for part in parts)


def sample_part_keys(storage: ObjectStore, run_schema: RunSchema, parts: Sequence[Part]) -> pl.DataFrame:
    """Return some keys of parts, spread evenly over their rows.

    Work is divided at these keys.
    """
    step = 1000
    samples = [
        sample_run_keys(storage, part)
        if isinstance(part, Run)
        else part.select(run_schema.group.columns).gather_every(step)
        for part in parts
    ]
    return pl.concat([run_schema.empty_keys, *samples])


def merge_parts(
    storage: ObjectStore, run_schema: RunSchema, parts: Sequence[Part], key_range: KeyRange = EVERYTHING
) -> Iterator[pl.DataFrame]:
    """Merge parts: yield frames with those rows of all parts whose keys are in a range, sorted.

    Rows of the same unit are in one frame. A unit is a group of rows that are replaced together (see `RunSchema`).

    Args:
        storage: The storage of parts that are files.
        run_schema: Columns and order of the parts.
        parts: The parts.
        key_range: The range. By default all keys.
    """
    streams = [scan_part(storage, run_schema, part, key_range) for part in parts]
    for frames in align_streams(streams, run_schema.unit):
        present = [frame for frame in frames if frame.height]
        if present:
            yield present[0] if len(present) == 1 else run_schema.order.sort(pl.concat(present))


def scan_part(
    storage: ObjectStore,
    run_schema: RunSchema,
    part: Part,
    key_range: KeyRange = EVERYTHING,
    columns: Sequence[str] | None = None,
) -> Stream:
    """Return a stream of a part's rows in a key range.

    Args:
        storage: The storage of parts that are files.
        run_schema: Columns and order of the part.
        part: The part.
        key_range: The range. By default all keys.
        columns: The columns to return; None for all.
    """
    if isinstance(part, Run):
        return read_run(storage, part, run_schema, key_range, columns)
    names = part.columns if columns is None else list(columns)
    return Stream([key_range.filter(part, run_schema.group)[:, names]], part.clear()[:, names])


def find_in_part(storage: ObjectStore, run_schema: RunSchema, part: Part, keys: pl.DataFrame) -> Stream:
    """Return a stream of the rows of a part whose key is in `keys`.

    Args:
        storage: The storage of parts that are files.
        run_schema: Columns and order of the part.
        part: The part.
        keys: The keys, sorted.
    """
    if isinstance(part, Run):
        return find_in_run(storage, part, run_schema, keys, run_schema.file_schema.names)
    return Stream([run_schema.group.semi(part, keys)], part.clear())
