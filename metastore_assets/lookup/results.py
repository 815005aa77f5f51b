"""The results of lookups. Each carries its guarantee, and the version and snapshot that it is true for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import SupportsIndex, TypeVar, overload

import pyarrow as pa

from metastore_assets.caching import lock_free_cached_property
from metastore_assets.statistics.column import ColumnStatistics, Guarantee
from metastore_assets.store.manifest import Version

T = TypeVar("T")


@dataclass(frozen=True)
class AsOf:
    """The published version that an answer is true for."""

    version: int
    snapshot: str
    """The snapshot that the version describes, as the table's format names it."""

    @classmethod
    def of(cls, version: Version) -> AsOf:
        """Return the number and the snapshot of a version."""
        return cls(version.number, version.snapshot)


@dataclass(frozen=True)
class TopValues:
    """The most frequent values of a column."""

    values: list[tuple[pa.Scalar, int]]
    """(value, frequency) by decreasing frequency, then increasing value, without null. Values are scalars of the
    canonical Arrow type of the column's type class; `lookup.json.scalar_json` formats them as text."""
    guarantee: Guarantee
    """Applies to the frequencies, and to the claim that no other value is more frequent."""
    as_of: AsOf = field(compare=False)


@dataclass(frozen=True)
class Quantile:
    """One quantile of a column."""

    q: float
    """The requested fraction, from 0 to 1."""
    value: pa.Scalar | None
    """The value at the fraction; None if the column has no value except NaN."""
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
    """An exact number of rows, and how much was read to count them."""

    count: int
    fragments_read: int
    bytes_read: int
    """How many bytes of the table's data files were read."""
    fragments_total: int
    version: int
    snapshot: str
    """The snapshot whose rows were counted, which may be newer than that of the version."""

    def to_json(self) -> dict[str, object]:
        """Return the document of `count --json`."""
        return asdict(self)


def explain_no_values(row: ColumnStatistics) -> str:
    """Return why a version has no values of a column: the stored reason, or a text that names the type."""
    return row.reason or f"{row.type} has no values of its own"


class Answers(list[T]):
    """A list of answers of one kind, with the guarantee of all of them."""

    def __init__(self, answers: Iterable[T], guarantee: Guarantee, as_of: AsOf) -> None:
        super().__init__(answers)
        self.guarantee: Guarantee = guarantee
        self.as_of = as_of


class Statistics(Sequence[ColumnStatistics]):
    """Statistics of columns, of the table or of partitions: one row per column, or per partition and column.

    An immutable sequence that equals another one, or a list, with the same rows. Rows of many partitions become objects
    when a row is first accessed. `to_arrow` does not create them.
    """

    def __init__(self, rows: Iterable[ColumnStatistics] | pa.Table, partitions: list[str] | None, as_of: AsOf) -> None:
        """Create the sequence from rows, or from an Arrow table of them.

        Args:
            rows: The rows, or an Arrow table with the columns of `build_statistics_table`. Its structs, such as
                `minimum`, may also have children for type classes that do not occur in these rows.
            partitions: The partition key of each row; None where all rows describe the table.
            as_of: The version that the rows belong to.
        """
        self._stored = rows if isinstance(rows, pa.Table) else list(rows)
        self.partitions = partitions
        """The partition key of each row; None where all rows describe the table."""
        self.as_of = as_of

    @lock_free_cached_property
    def _rows(self) -> list[ColumnStatistics]:
        from metastore_assets.statistics.tables import parse_statistics_rows

        return parse_statistics_rows(self._stored) if isinstance(self._stored, pa.Table) else self._stored

    @overload
    def __getitem__(self, at: SupportsIndex) -> ColumnStatistics: ...

    @overload
    def __getitem__(self, at: slice) -> list[ColumnStatistics]: ...

    def __getitem__(self, at: SupportsIndex | slice) -> ColumnStatistics | list[ColumnStatistics]:
        return self._rows[at]

    def __len__(self) -> int:
        return len(self._stored)

    def __iter__(self) -> Iterator[ColumnStatistics]:
        return iter(self._rows)

    def __eq__(self, other: object) -> bool:
        return self._rows == (other._rows if isinstance(other, Statistics) else other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self._rows)

    def to_arrow(self) -> pa.Table:
        """Return the rows with the columns of `statistics.parquet`, and `partition` first where there are partitions.

        `minimum`, `maximum` and the values of `percentiles` are structs with one child per type class that occurs. The
        schema's metadata has the version and the snapshot.
        """
        return self._table

    @lock_free_cached_property
    def _table(self) -> pa.Table:
        """The table that `to_arrow` returns."""
        from metastore_assets.statistics.tables import build_statistics_table, normalize_statistics_table

        table = (
            normalize_statistics_table(self._stored)
            if isinstance(self._stored, pa.Table)
            else build_statistics_table(self._stored)
        )
        if self.partitions is not None:
            table = table.add_column(0, "partition", pa.array(self.partitions, pa.string()))
        metadata = {"metastore.version": str(self.as_of.version), "metastore.snapshot": self.as_of.snapshot}
        return table.replace_schema_metadata(metadata)
