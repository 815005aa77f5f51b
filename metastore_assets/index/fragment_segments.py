"""The segments of a fragment index: their sections, their zones, and which of their rows are live."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metastore_assets.caching import lock_free_cached_property
from metastore_assets.expressions.predicates import BoundColumn
from metastore_assets.expressions.row_bounds import ColumnBounds, RowBounds, RowCounts
from metastore_assets.index.fragments import column_section
from metastore_assets.storage.io_counters import IoCountingThreadPool
from metastore_assets.store.blocks import BlockReader, RowRanges
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.segments import SegmentFile
from metastore_assets.values.physical import one_chunk
from metastore_assets.values.types import TypeClass

BLOCKS, ZONES, DEAD = "blocks", "zones", "dead "
"""Names of sections, and the beginning of names. `fragments` describes them."""
_CACHED_ZONES = 16
"""Maximum number of columns whose zones are cached."""
_READERS = 9
_PARALLEL_ROWS = 10_000
"""Segments of at least this many rows in all are read in parallel; threads cost more than smaller local files."""

Numbers = npt.NDArray[np.int64]
Result = TypeVar("Result")


@dataclass(frozen=True)
class BoundedRows:
    """Sets of rows, such as fragments or zones of fragments, with bounds of columns in each set."""

    row_counts: RowCounts
    """The number of rows of each set."""
    columns: Mapping[str, ColumnBounds]
    """The bounds of requested columns, by field id."""


class Segments:
    """The segments of an index, the oldest first, and which of their rows are live. Threads can share it."""

    def __init__(self, store: ObjectStore, files: Sequence[SegmentFile]) -> None:
        self.store = store
        self._files = files
        self.all = [Segment(store, number, file.path) for number, file in enumerate(files)]

    def map(self, read: Callable[[Segment], Result]) -> list[Result]:
        """Return what a function returns for each segment. Segments are read in parallel if that saves time."""
        is_parallel = self.store.is_remote or sum(file.rows for file in self._files) >= _PARALLEL_ROWS
        if len(self.all) > 1 and is_parallel:
            with IoCountingThreadPool(_READERS) as readers:
                return list(readers.map(read, self.all))
        return [read(segment) for segment in self.all]

    @lock_free_cached_property
    def dead(self) -> list[Numbers]:
        """For each segment, the ascending positions of its rows that are not live."""
        if len(self.all) < 2:
            return [np.zeros(0, np.int64)] * len(self.all)
        named = self.map(lambda segment: segment.dead())
        dead = []
        for number, file in enumerate(self._files):
            parts = [positions[file.path] for positions in named[number + 1 :] if file.path in positions]
            dead.append(np.unique(np.concatenate([np.zeros(0, np.int64), *parts])))
        return dead


class Segment:
    """One file of the index, opened on first use."""

    def __init__(self, store: ObjectStore, number: int, path: str) -> None:
        self._store = store
        self.number = number
        self.path = path
        self._zones: dict[BoundColumn, ColumnBounds] = {}
        self._zone_sizes: tuple[Numbers, RowCounts] | None = None
        """The number of fragments and the number of rows of each zone, once they are read."""

    @lock_free_cached_property
    def file(self) -> BlockReader:
        """The open file."""
        return BlockReader(self._store, self.path)

    @property
    def row_count(self) -> int:
        """Number of rows, live or not."""
        return self.file.sections["row_count"].row_count

    @property
    def all_rows(self) -> RowRanges:
        """The range of all rows, live or not."""
        return RowRanges(np.zeros(1, np.int64), np.array([self.row_count], np.int64))

    def dead(self) -> dict[str, Numbers]:
        """Return the positions that are dead in older segments, ascending, by the path of the segment."""
        names = [name for name in self.file.sections if name.startswith(DEAD)]
        tables = self.file.read(dict.fromkeys(names)) if names else {}
        return {name.removeprefix(DEAD): table["position"].to_numpy() for name, table in tables.items()}

    def fragments(self, columns: Sequence[str], ranges: RowRanges) -> pa.Table:
        """Return columns that describe fragments (see `FRAGMENTS`)."""
        tables = self.file.read(dict.fromkeys(columns), self._restriction(ranges))
        return pa.table({name: tables[name][name] for name in columns})

    def bounds(self, columns: Sequence[BoundColumn], ranges: RowRanges) -> BoundedRows:
        """Return fragments with bounds of columns."""
        sections: dict[str, Collection[str] | None] = {"row_count": None}
        for column in columns:
            if column_section(column.field_id) in self.file.sections:
                sections[column_section(column.field_id)] = _stored_columns(column.cls)
        tables = self.file.read(sections, self._restriction(ranges))
        row_counts = tables["row_count"]["row_count"].to_numpy()
        return BoundedRows(
            row_counts,
            {
                column.field_id: _fragment_bounds(tables.get(column_section(column.field_id)), column.cls, row_counts)
                for column in columns
            },
        )

    def column(self, field_id: str, cls: TypeClass | None, ranges: RowRanges) -> pa.Table:
        """Return `null_count`, `nan_count`, `minimum` and `maximum` of a column in each fragment; null if unknown."""
        section = column_section(field_id)
        if section not in self.file.sections:
            row_counts = self.fragments(("row_count",), ranges)["row_count"]
            none = pa.nulls(len(row_counts), pa.null() if cls is None else cls.arrow)
            sides, counts = (none, none), (row_counts, pa.array(np.zeros(len(row_counts), np.int64)))
        else:
            table = self.file.read({section: _stored_columns(cls)}, self._restriction(ranges))[section]
            sides = _side(table, "minimum", cls), _side(table, "maximum", cls)
            counts = table["null_count"], table["nan_count"]
        return pa.table([*counts, *sides], names=["null_count", "nan_count", "minimum", "maximum"])

    def zones(self, columns: Sequence[BoundColumn]) -> tuple[Numbers, BoundedRows] | None:
        """Return the number of fragments of each zone, and the zones with bounds of columns; None without zones."""
        if ZONES not in self.file.sections:
            return None
        sections = [zone_section(column.field_id) for column in columns if column not in self._zones]
        sections = [name for name in sections if name in self.file.sections]
        if self._zone_sizes is None:
            sections.append(ZONES)
        # Matching zones are read next.
        following = ["row_count", *(column_section(column.field_id) for column in columns)]
        tables = self.file.read(dict.fromkeys(sections), following=following) if sections else {}
        if ZONES in tables:
            self._zone_sizes = tables[ZONES]["fragments"].to_numpy(), tables[ZONES]["row_count"].to_numpy()
        assert self._zone_sizes is not None
        sizes, row_counts = self._zone_sizes
        bounds = {}
        for column in columns:
            stored = self._zones.get(column)
            if stored is None:
                stored = _zone_bounds(tables.get(zone_section(column.field_id)), column.cls, row_counts)
            bounds[column.field_id] = self._zones[column] = stored
        if len(self._zones) > _CACHED_ZONES:
            self._zones = {}
        return sizes, BoundedRows(row_counts, bounds)

    def _restriction(self, ranges: RowRanges) -> RowRanges | None:
        return None if ranges.row_count == self.row_count else ranges


def zone_section(field_id: str) -> str:
    """Return the name of the section with the bounds of a column in each zone."""
    return f"{ZONES} {field_id}"


def count_bounds(counts: pa.ChunkedArray, most: RowCounts) -> RowBounds:
    """Return bounds of numbers of rows; an unknown number is between 0 and `most`."""
    if not counts.null_count:
        exact = counts.to_numpy()
        return RowBounds(exact, exact)
    is_exact = counts.is_valid().to_numpy()
    exact = counts.fill_null(0).to_numpy()
    return RowBounds(np.where(is_exact, exact, 0), np.where(is_exact, exact, most))


def _stored_columns(cls: TypeClass | None) -> list[str]:
    value_columns = [] if cls is None else [f"minimum.{cls.name}", f"maximum.{cls.name}"]
    return ["null_count", "nan_count", *value_columns]


def _fragment_bounds(table: pa.Table | None, cls: TypeClass | None, row_counts: RowCounts) -> ColumnBounds:
    """Return the bounds of a column in each fragment; without a table the column is null in all rows."""
    if table is None:
        return _all_null(cls, row_counts)
    nulls = count_bounds(table["null_count"], row_counts)
    if cls is not None and cls.kind == "float":
        nans = count_bounds(table["nan_count"], np.maximum(row_counts - nulls.least, 0))
    else:
        nans = RowBounds(*[np.zeros_like(row_counts)] * 2)
    return ColumnBounds(row_counts, nulls, nans, *(_side(table, side, cls) for side in ("minimum", "maximum")))


def _zone_bounds(table: pa.Table | None, cls: TypeClass | None, row_counts: RowCounts) -> ColumnBounds:
    """Return the bounds of a column in each zone; without a table the column is null in all rows."""
    if table is None:
        return _all_null(cls, row_counts)
    nulls, nans = (
        RowBounds(table[f"{name}_least"].to_numpy(), table[f"{name}_most"].to_numpy()) for name in ("null", "nan")
    )
    if cls is None or cls.kind != "float":
        nans = RowBounds(*[np.zeros_like(row_counts)] * 2)
    return ColumnBounds(row_counts, nulls, nans, *(_side(table, side, cls) for side in ("minimum", "maximum")))


def _all_null(cls: TypeClass | None, row_counts: RowCounts) -> ColumnBounds:
    none, zeros = pa.nulls(len(row_counts), pa.null() if cls is None else cls.arrow), np.zeros_like(row_counts)
    return ColumnBounds(row_counts, RowBounds(row_counts, row_counts), RowBounds(zeros, zeros), none, none)


def _side(table: pa.Table, side: str, cls: TypeClass | None) -> pa.Array:
    """Return the bounds of a type class; nulls if no fragment has values of the class."""
    if cls is None or f"{side}.{cls.name}" not in table.column_names:
        return pa.nulls(table.num_rows, pa.null() if cls is None else cls.arrow)
    return one_chunk(table[f"{side}.{cls.name}"])
