"""What an answer is of: each carries the version and the snapshot that it is true for, and what it is worth."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import SupportsIndex, TypeVar, overload

import pyarrow as pa

from metastore_assets.caching import lock_free_cached_property
from metastore_assets.statistics.column import ColumnStatistics, Guarantee

T = TypeVar("T")


@dataclass(frozen=True)
class AsOf:
    """The published version that answers are of."""

    version: int
    snapshot: str
    """The snapshot of the table that the version describes, as the table's format names it."""


@dataclass(frozen=True)
class TopValues:
    """The most frequent values of a column."""

    values: list[tuple[pa.Scalar, int]]
    """(value, frequency) by decreasing frequency, then increasing value; null is no value. Values are of the
    canonical Arrow type of their class; `lookup.json.scalar_json` writes them as text."""
    guarantee: Guarantee
    """What the frequencies are worth, and that no other value is more frequent."""
    as_of: AsOf = field(compare=False)


@dataclass(frozen=True)
class Quantile:
    """One quantile of a column."""

    q: float
    """The fraction that was asked for."""
    value: pa.Scalar | None
    """None where the column has no value but NaN."""
    guarantee: Guarantee
    as_of: AsOf = field(compare=False)


@dataclass(frozen=True)
class Count:
    """A number of rows."""

    count: int
    guarantee: Guarantee
    as_of: AsOf = field(compare=False)


@dataclass(frozen=True)
class ExactCount:
    """An exact number of rows, and what it took."""

    count: int
    fragments_read: int
    bytes_read: int
    """Of the table's data files."""
    fragments_total: int
    version: int
    snapshot: str
    """The snapshot that is counted, which need not be the version's."""

    def to_json(self) -> dict[str, object]:
        """The shape of `count --json`."""
        return asdict(self)


class Answers(list[T]):
    """Several answers of one kind, with what all of them are worth."""

    def __init__(self, answers: Iterable[T], guarantee: Guarantee, as_of: AsOf) -> None:
        super().__init__(answers)
        self.guarantee: Guarantee = guarantee
        self.as_of = as_of


def names_of(columns: Iterable[str]) -> list[str]:
    """The columns that are asked for; a text by itself is the name of one, and not of one for each of its letters."""
    return [columns] if isinstance(columns, str) else list(columns)


class Statistics(Sequence[ColumnStatistics]):
    """Rows of statistics, each of one column of the table or of one partition. What a number is worth is in its row.

    A sequence that does not change; equal to another, or to a list, with the same rows. Of many partitions the rows are
    made when the first one is asked for: who wants a table needs none.
    """

    def __init__(self, rows: Iterable[ColumnStatistics] | pa.Table, partitions: list[str] | None, as_of: AsOf) -> None:
        """`rows` may be a table of them as `build_statistics_table` makes it, where the union may have more classes."""
        self._told = rows if isinstance(rows, pa.Table) else list(rows)
        self.partitions = partitions
        """The partition of each row; None where all are of the table as a whole."""
        self.as_of = as_of

    @lock_free_cached_property
    def _rows(self) -> list[ColumnStatistics]:
        from metastore_assets.statistics.tables import parse_statistics_rows

        return parse_statistics_rows(self._told) if isinstance(self._told, pa.Table) else self._told

    @overload
    def __getitem__(self, at: SupportsIndex) -> ColumnStatistics: ...

    @overload
    def __getitem__(self, at: slice) -> list[ColumnStatistics]: ...

    def __getitem__(self, at: SupportsIndex | slice) -> ColumnStatistics | list[ColumnStatistics]:
        return self._rows[at]

    def __len__(self) -> int:
        return len(self._told)

    def __iter__(self) -> Iterator[ColumnStatistics]:
        return iter(self._rows)

    def __eq__(self, other: object) -> bool:
        return self._rows == (other._rows if isinstance(other, Statistics) else other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self._rows)

    def to_arrow(self) -> pa.Table:
        """One row per column, or per partition and column, then with `partition` first: the columns of
        `statistics.parquet`. Version and snapshot are in the schema's metadata.

        `minimum`, `maximum` and the values of `percentiles` are structs with one child per class of values that occurs.
        """
        return self._table

    @lock_free_cached_property
    def _table(self) -> pa.Table:
        from metastore_assets.statistics.tables import build_statistics_table, normalize_statistics_table

        table = (
            normalize_statistics_table(self._told)
            if isinstance(self._told, pa.Table)
            else build_statistics_table(self._told)
        )
        if self.partitions is not None:
            table = table.add_column(0, "partition", pa.array(self.partitions, pa.string()))
        told = {"metastore.version": str(self.as_of.version), "metastore.snapshot": self.as_of.snapshot}
        return table.replace_schema_metadata(told)
