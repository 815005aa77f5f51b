"""Instructions on their way from the tasks that make them to those that apply them: sorted, in memory or spilled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from metastore_assets.produce.lookup import find_in_run
from metastore_assets.produce.run_schema import RunSchema
from metastore_assets.produce.runs import EVERYTHING, KeyRange, Run, RunWriter, read_run, run_bounds
from metastore_assets.produce.settings import Settings
from metastore_assets.produce.streams import Stream, aligned
from metastore_assets.store.objects import ObjectStore

Part = pl.DataFrame | Run
"""Sorted rows: few of them in memory, else a file that no version will name."""


@dataclass(frozen=True)
class Spool:
    """Where rows go, and how many of them stay in memory."""

    storage: ObjectStore
    folder: str
    settings: Settings
    in_memory: bool
    """Whether what does not have to be spilled is handed on as it is, or as a file like the rest."""


_PART_SHARE = 8
"""A row group of sorted instructions has one of so many rows of one of a run."""
_PART_ROWS = 12_500
"""But where much is sorted in memory, so many: nothing is looked up in them, and small ones are slow to merge."""


class Sink:
    """Takes sorted rows one frame after the other and hands them out as one part. Use as a context manager.

    In memory they are only while they are no more than `Settings.buffer_rows`.
    """

    def __init__(self, spool: Spool, run_schema: RunSchema, row_group_rows: int | None = None) -> None:
        self._spool = spool
        self._run_schema = run_schema
        self._row_group_rows = row_group_rows or spool.settings.row_group_rows
        self._frames: list[pl.DataFrame] = []
        self._rows = 0
        self._writer: RunWriter | None = None
        self.parts: list[Part] = []
        """Once the block has ended: one part, or none when there were no rows."""

    def __enter__(self) -> Sink:
        return self

    def add(self, frame: pl.DataFrame) -> None:
        """Append rows."""
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
    """Takes rows in any order and hands them out as sorted parts, spilling when there are too many."""

    def __init__(self, spool: Spool, run_schema: RunSchema) -> None:
        self._spool = spool
        self._run_schema = run_schema
        self._waiting: list[pl.DataFrame] = []
        self._rows = 0
        self._parts: list[Part] = []

    def add(self, frame: pl.DataFrame) -> None:
        """Rows of one unit must come in one call."""
        if not frame.height:
            return
        self._waiting.append(frame[:, self._run_schema.file_schema.names])
        self._rows += frame.height
        if self._rows >= self._spool.settings.buffer_rows:
            self._flush(self._spool if not self._spool.in_memory else _spilling(self._spool))

    def parts(self) -> list[Part]:
        """All that was added."""
        self._flush(self._spool)
        return self._parts

    def _flush(self, spool: Spool) -> None:
        if self._waiting:
            # Hundreds of parts may be merged at once, of each of which a row group is held.
            settings = spool.settings
            rows = max(1, settings.row_group_rows // _PART_SHARE, min(_PART_ROWS, settings.buffer_rows // 64))
            with Sink(spool, self._run_schema, rows) as sink:
                sink.add(self._run_schema.order.sort(pl.concat(self._waiting)))
            self._parts += sink.parts
        self._waiting, self._rows = [], 0


def _spilling(spool: Spool) -> Spool:
    return Spool(spool.storage, spool.folder, spool.settings, in_memory=False)


def part_rows(parts: Sequence[Part]) -> int:
    """Number of rows."""
    return sum(part.rows if isinstance(part, Run) else part.height for part in parts)


def part_bounds(storage: ObjectStore, run_schema: RunSchema, parts: Sequence[Part]) -> pl.DataFrame:
    """Some keys of the parts, spread evenly over their rows."""
    step = 1000
    found = [
        run_bounds(storage, part) if isinstance(part, Run) else part.select(run_schema.group.columns).gather_every(step)
        for part in parts
    ]
    return pl.concat([run_schema.empty_keys, *found])


def joined(
    storage: ObjectStore, run_schema: RunSchema, parts: Sequence[Part], key_range: KeyRange = EVERYTHING
) -> Iterator[pl.DataFrame]:
    """The rows of all parts in a range of keys, sorted; no unit is split between two frames."""
    streams = [scan_part(storage, run_schema, part, key_range) for part in parts]
    for frames in aligned(streams, run_schema.unit):
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
    """The rows of a part in a range of keys."""
    if isinstance(part, Run):
        return read_run(storage, part, run_schema, key_range, columns)
    names = part.columns if columns is None else list(columns)
    return Stream([key_range.filter(part, run_schema.group)[:, names]], part.clear()[:, names])


def find_in_part(storage: ObjectStore, run_schema: RunSchema, part: Part, keys: pl.DataFrame) -> Stream:
    """The rows of a part that have one of some sorted keys."""
    if isinstance(part, Run):
        return find_in_run(storage, part, run_schema, keys, run_schema.file_schema.names)
    return Stream([run_schema.group.semi(part, keys)], part.clear())
