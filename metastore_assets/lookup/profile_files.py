"""The files of one profile, read piece by piece: the row of a column, the head of its frequencies, its histogram.

Files keep the names and the order that columns had when they were written. Columns are found by their field ids, and
go by the names of now; one that a profile does not have is null in all its rows.
"""

from __future__ import annotations

import base64
import json
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import Protocol

import pyarrow as pa

from metastore_assets.caching import lock_free_cached_property
from metastore_assets.errors import ObjectNotFoundError
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.statistics.current_schema import apply_schema
from metastore_assets.statistics.frequencies import EMPTY, Frequencies
from metastore_assets.statistics.histogram import Histogram
from metastore_assets.statistics.moments import decode_moments
from metastore_assets.statistics.quantiles import Digest
from metastore_assets.statistics.states import decode_digests
from metastore_assets.statistics.tables import parse_frequencies, parse_histograms, parse_statistics_rows
from metastore_assets.statistics.union import unpack_scalars
from metastore_assets.store.manifest import ProfileFiles
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.parquet import parquet_errors
from metastore_assets.store.sections import SectionReader
from metastore_assets.store.shared_parquet import SharedParquet
from metastore_assets.values.leaf_columns import LeafColumn

_COLUMNS = b"metastore.columns"
"""Metadata key of `statistics`: path and field id of each row, as JSON, deflated, in base 64."""
_LISTED = ("value", "frequency")
_SKETCH = ("moments", "quantile_minimum", "quantile_maximum", "quantile_means", "quantile_weights")


class Profile(Protocol):
    """What is known of some rows, asked column by column."""

    def statistics(self, columns: Iterable[str] | None = None) -> list[ColumnStatistics]:
        """The rows of all columns, or of those named. KeyError for an unknown name."""

    def top(self, field_id: str, n: int) -> list[tuple[pa.Scalar, int]] | None:
        """The n most frequent values of a column with their frequencies; None when it is not listed."""

    def frequencies(self, field_id: str) -> Frequencies | None:
        """All values of a column; None when it is not listed."""

    def repeated(self, field_id: str) -> Frequencies | None:
        """The values of a column that occur at least twice, where these alone are known; else None."""

    def sketch(self, field_id: str) -> tuple[Digest | None, tuple[int, int]] | None:
        """The quantile sketch of a column, and how often -inf and +inf occur beside it; None where none is kept."""

    def histogram(self, column: str) -> Histogram | None:
        """The histogram of a column; None when there is none."""


def with_infinities(digest: Digest | None, moments: bytes | None) -> tuple[Digest | None, tuple[int, int]] | None:
    """As `Profile.sketch`, of the digest of the finite values and the state of their moments."""
    if moments is None:
        return None if digest is None else (digest, (0, 0))
    state = decode_moments(moments)
    # Without a digest infinities are all that is known: of all values, or of too few of them.
    is_known = any(state.infinities) and not state.n if digest is None else True
    return (digest, state.infinities) if is_known else None


class ProfileReader:
    """Opens each file of a profile once, on first use, and keeps what was read of `statistics`. Safe to share."""

    def __init__(
        self,
        objects: ObjectStore,
        files: ProfileFiles,
        leaves: Sequence[LeafColumn],
        missing: Callable[[LeafColumn], ColumnStatistics],
    ) -> None:
        """`leaves`: the table's columns, in table order. `missing` tells what is known of one that the files lack."""
        self._objects = objects
        self._files = files
        self._leaves = leaves
        self._missing = missing
        self._groups: dict[int, pa.Table] = {}
        self._parts: dict[int, SectionReader] = {}
        self.columns = {leaf.path: position for position, leaf in enumerate(leaves)}
        """Position of each column, by dotted path, in table order."""

    def statistics(self, columns: Iterable[str] | None = None) -> list[ColumnStatistics]:
        """The rows of all columns, or of those named, without their mergeable states. KeyError for an unknown name.

        Reads the row groups that hold them, once.
        """
        wanted = range(len(self._leaves)) if columns is None else [self.columns[name] for name in columns]
        leaves = [(position, self._leaves[position]) for position in wanted]
        rows = [self._positions[leaf.field_id] for _, leaf in leaves if leaf.field_id in self._positions]
        found = {row.field_id: row for row in self._rows(rows)}
        return [
            apply_schema(found[leaf.field_id] if leaf.field_id in found else self._missing(leaf), position, leaf)
            for position, leaf in leaves
        ]

    def repeated(self, field_id: str) -> Frequencies | None:
        """Nothing: no list of a column kept by fingerprints is of a profile."""
        return None

    def _rows(self, rows: Sequence[int]) -> list[ColumnStatistics]:
        if not rows:
            return []
        starts = self._group_starts
        wanted = sorted({bisect_right(starts, row) - 1 for row in rows})
        offsets = dict(zip(wanted, accumulate((starts[i + 1] - starts[i] for i in wanted), initial=0), strict=False))
        table = pa.concat_tables([self._group(i) for i in wanted])
        places = [offsets[i] + row - starts[i] for row in rows for i in (bisect_right(starts, row) - 1,)]
        if places == list(range(places[0], places[0] + len(places))):
            return parse_statistics_rows(table.slice(places[0], len(places)))
        return parse_statistics_rows(table.take(pa.array(places)))

    def top(self, field_id: str, n: int) -> list[tuple[pa.Scalar, int]] | None:
        """The first n listed values of a column with their frequencies; None when it is not listed."""
        if field_id not in self._positions:
            return []
        found: list[pa.Table] = []
        listed = False
        for part in self._parts_with(field_id):
            listed = True
            found.append(part.read_section(field_id, n, _LISTED))
            n -= found[-1].num_rows
            if n <= 0:
                break
        if not listed:
            return None
        table = pa.concat_tables(found).combine_chunks()
        if not table.num_rows:
            return []
        values = unpack_scalars(table.column("value").combine_chunks())
        return list(zip(values, table.column("frequency").to_pylist(), strict=True))

    def frequencies(self, field_id: str) -> Frequencies | None:
        """All listed values of a column; None when it is not listed."""
        if field_id not in self._positions:
            return EMPTY
        tables = [part.read_section(field_id, columns=_LISTED) for part in self._parts_with(field_id)]
        return parse_frequencies(pa.concat_tables(tables).combine_chunks()) if tables else None

    def sketch(self, field_id: str) -> tuple[Digest | None, tuple[int, int]] | None:
        """The quantile sketch of a column, and how often -inf and +inf occur beside it; None where none is stored."""
        if not self._files.states:
            return None
        with self._reading(self._files.states):
            file = self._objects.open_parquet(self._files.states)
            for group in range(file.metadata.num_row_groups):
                names = file.read_row_group(group, columns=["section", "field_id"]).to_pylist()
                wanted = {"section": self._files.section, "field_id": field_id}
                if wanted in names:
                    sketches = file.read_row_group(group, columns=list(_SKETCH))
                    row = sketches.slice(names.index(wanted), 1)
                    (digest,) = decode_digests(row.combine_chunks())
                    return with_infinities(digest, row["moments"][0].as_py())
        return None

    def histogram(self, column: str) -> Histogram | None:
        """The histogram of a column; None when there is none."""
        written = self._written_name(self._leaves[self.columns[column]])
        if written not in self._histogram_columns:
            return None
        with self._reading(self._files.histograms):
            # By name the reader takes every column whose dotted path begins so.
            with self._histograms.lent() as file:
                table = file.read(columns=[written])
            return parse_histograms(table.select([written]))[written]

    def columns_with_histograms(self) -> list[str]:
        """Return the names of the columns that have a histogram, in table order."""
        return [leaf.path for leaf in self._leaves if self._written_name(leaf) in self._histogram_columns]

    def _written_name(self, leaf: LeafColumn) -> str | None:
        """Return the name that a column has in the files; None if they lack it."""
        row = self._positions.get(leaf.field_id)
        return None if row is None else self._names[row][0]

    @lock_free_cached_property
    def _positions(self) -> dict[str, int]:
        return {field_id: row for row, (_, field_id) in enumerate(self._names)}

    @lock_free_cached_property
    def _names(self) -> list[tuple[str, str]]:
        """Path and field id of each row of `statistics`."""
        with self._reading(self._files.statistics):
            packed = (self._statistics.metadata.metadata or {})[_COLUMNS]
            try:
                return [(name, field_id) for name, field_id in json.loads(zlib.decompress(base64.b64decode(packed)))]
            except zlib.error as error:
                raise ValueError(f"its list of columns: {error}") from error

    @lock_free_cached_property
    def _statistics(self) -> SharedParquet:
        return SharedParquet(self._objects, self._files.statistics)

    @lock_free_cached_property
    def _histograms(self) -> SharedParquet:
        return SharedParquet(self._objects, self._files.histograms)

    @lock_free_cached_property
    def _histogram_columns(self) -> frozenset[str]:
        if not self._files.histograms:
            return frozenset()
        with self._reading(self._files.histograms):
            return frozenset(self._histograms.metadata.schema.to_arrow_schema().names)

    @lock_free_cached_property
    def _group_starts(self) -> list[int]:
        with self._reading(self._files.statistics):
            metadata = self._statistics.metadata
            rows = (metadata.row_group(i).num_rows for i in range(metadata.num_row_groups))
            return list(accumulate(rows, initial=0))

    def _group(self, index: int) -> pa.Table:
        kept = self._groups.get(index)
        if kept is None:
            with self._reading(self._files.statistics), self._statistics.lent() as file:
                kept = self._groups.setdefault(index, file.read_row_group(index))
        return kept

    def _parts_with(self, field_id: str) -> Iterator[SectionReader]:
        """The frequency files that list a column, in order, by a binary search: they are in column order."""
        target = self._positions.get(field_id, -1)
        low, high = 0, len(self._files.frequencies)
        while high - low > 1:
            middle = (low + high) // 2
            first = self._first_position(middle)
            if first < 0:
                low = 0  # a file without columns says nothing of where to go: look at all from the first on
                break
            low, high = (middle, high) if first < target else (low, middle)
        for index in range(low, len(self._files.frequencies)):
            if field_id in self._part(index).sections:
                yield self._part(index)
            elif self._first_position(index) > target:
                return

    def _first_position(self, index: int) -> int:
        """Table position of the first column of a frequency file; -1 for a file without columns."""
        first = next(iter(self._part(index).sections), None)
        return -1 if first is None else self._positions.get(first, -1)

    def _part(self, index: int) -> SectionReader:
        kept = self._parts.get(index)
        if kept is None:
            path = self._files.frequencies[index]
            with self._reading(path):
                kept = self._parts.setdefault(index, SectionReader(self._objects, path))
        return kept

    @contextmanager
    def _reading(self, path: str) -> Iterator[None]:
        try:
            with parquet_errors(self._objects.uri(path)):
                yield
        except ObjectNotFoundError as error:
            raise ObjectNotFoundError(f"{error}: its version may have expired; open the table again") from error
