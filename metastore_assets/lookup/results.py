"""The results of lookups.

Each result has the version and snapshot that it is true for.

An answer with rows is a `ResultSet`. An answer with one number or value has the fields `value`, `guarantee` and
`as_of`. A type class is a group of column types whose values are stored as one Arrow type, the canonical one. A
guarantee says how precise an answer is, for example `exact` or `estimate`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, SupportsIndex, TypeVar, overload

import pyarrow as pa

from metastore_assets.caching import lock_free_cached_property
from metastore_assets.errors import MissingPackageError
from metastore_assets.statistics.column import ColumnStatistics, Guarantee
from metastore_assets.store.version import Version
from metastore_assets.values.json import ScalarFieldsRepr

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
_ROWS_AT_ONCE = 4096
"""Number of rows of a table that an iteration converts at once."""


@dataclass(frozen=True)
class AsOf:
    """The published version that an answer is true for.

    A version has the statistics of one snapshot of the table.
    """

    version: int
    snapshot: str
    """The id of the snapshot that the version describes, as in the table's format."""

    @classmethod
    def of(cls, version: Version) -> AsOf:
        """Return the number and the snapshot of a version."""
        return cls(version.number, version.snapshot)


@dataclass(frozen=True)
class ReadCost:
    """The numbers of fragments and bytes of the table's data files that an answer has read.

    A fragment is a data file with its deletes.
    """

    fragments_read: int
    bytes_read: int
    """The number of bytes of data files that were read."""
    fragments_total: int
    """The number of fragments of the version."""


@dataclass(frozen=True)
class Count:
    """A number of rows or values."""

    value: int
    guarantee: Guarantee
    as_of: AsOf = field(compare=False)
    cost: ReadCost | None = field(default=None, compare=False)
    """What was read of the table's data files, possibly nothing; None for a number that never needs data files."""


@dataclass(frozen=True, repr=False)
class Quantile(ScalarFieldsRepr):
    """One quantile of a column."""

    q: float
    """The requested fraction, from 0 to 1."""
    value: pa.Scalar | None
    """The value at the fraction; None if the column has no values except NaN."""
    guarantee: Guarantee
    as_of: AsOf = field(compare=False)


@dataclass(frozen=True, repr=False)
class Mode(ScalarFieldsRepr):
    """The most frequent value of a column."""

    value: pa.Scalar | None
    """The most frequent value; the least one if several are equally frequent; None if the column has no values."""
    frequency: int
    """The number of rows with the value; 0 if there is none."""
    guarantee: Guarantee
    as_of: AsOf = field(compare=False)


@dataclass(frozen=True)
class Spread:
    """The numbers of distinct, repeated and unique values of a column, and its entropy.

    NaN is a value, null is not.
    """

    column: str
    """The dotted path of the column."""
    distinct_count: int
    duplicate_count: int
    """Number of distinct values that occur more than once."""
    singleton_count: int
    """Number of distinct values that occur once."""
    entropy: float
    """Shannon entropy in bits: 0 if there is at most one distinct value, log2(n) if all n values differ."""
    guarantee: Guarantee
    as_of: AsOf = field(compare=False)


@dataclass(frozen=True, repr=False)
class ValueFrequency(ScalarFieldsRepr):
    """A value of a column and the number of rows that have it.

    It unpacks: `value, frequency = row`.
    """

    value: pa.Scalar
    """A scalar of the canonical Arrow type of the column's type class."""
    frequency: int

    def __iter__(self) -> Iterator[Any]:
        yield self.value
        yield self.frequency


@dataclass(frozen=True)
class PartitionFrequency:
    """A partition and the number of its rows with a given value.

    It unpacks: `partition, frequency = row`.
    """

    partition: str
    """The key of the partition."""
    frequency: int

    def __iter__(self) -> Iterator[Any]:
        yield self.partition
        yield self.frequency


class TableRows(Sequence[T]):
    """The rows of an Arrow table as dataclass instances, which are created when they are accessed."""

    def __init__(self, table: pa.Table, parse: Callable[[pa.Table], Iterable[T]]) -> None:
        """Create the rows.

        Args:
            table: The table.
            parse: A function that converts some rows of the table to instances, in the same order.
        """
        self._table = table
        self._parse = parse

    @overload
    def __getitem__(self, at: SupportsIndex) -> T: ...

    @overload
    def __getitem__(self, at: slice[Any, Any, Any]) -> Sequence[T]: ...

    def __getitem__(self, at: SupportsIndex | slice[Any, Any, Any]) -> T | Sequence[T]:
        positions = range(len(self))[at] if isinstance(at, slice) else range(len(self))[at.__index__()]
        if isinstance(positions, int):
            return next(iter(self._parse(self._table.slice(positions, 1))))
        if positions.step == 1:
            return list(self._parse(self._table.slice(positions.start, len(positions))))
        return list(self._parse(self._table.take(pa.array(positions, pa.int64()))))

    def __len__(self) -> int:
        return self._table.num_rows  # type: ignore[no-any-return]

    def __iter__(self) -> Iterator[T]:
        for start in range(0, len(self), _ROWS_AT_ONCE):
            yield from self._parse(self._table.slice(start, _ROWS_AT_ONCE))


def explain_no_values(row: ColumnStatistics) -> str:
    """Return why a version has no values of a column, for messages.

    The result is the reason that the version stores. Without a stored reason, the result says that columns of this
    type, such as structs, have no values of their own.
    """
    return row.reason or f"{row.type} has no values of its own"


class ResultSet(Sequence[T_co], Generic[T_co]):
    """An answer with rows: an immutable sequence of dataclass instances, which is also an Arrow table.

    It equals another result set, a list or a tuple with the same rows. Other libraries read it through the Arrow
    PyCapsule interface: `pyarrow.table(rows)`.
    """

    def __init__(
        self,
        rows: Sequence[T_co],
        as_of: AsOf | None,
        table: pa.Schema | Callable[[], pa.Table],
        *,
        guarantee: Guarantee | None = "exact",
        shapes: Callable[[], Sequence[Sequence[int]]] | None = None,
    ) -> None:
        """Create an answer.

        Args:
            rows: The rows.
            as_of: The version that the answer is true for; None if each row has its own.
            table: A function that returns the rows as a table, or a schema whose columns have the names of the rows'
                fields.
            guarantee: The guarantee of all rows; None if each row has its own.
            shapes: Returns a list of frequencies for each of the first rows. Notebooks show each list as a small bar
                chart. None for no charts.
        """
        self._rows = rows
        self._to_table = table
        self._shapes = shapes
        self.as_of = as_of
        """The version that the answer is true for; None if each row has its own."""
        self.guarantee: Guarantee | None = guarantee
        """The guarantee of all rows; None if each row has its own."""

    @overload
    def __getitem__(self, at: SupportsIndex) -> T_co: ...

    @overload
    def __getitem__(self, at: slice[Any, Any, Any]) -> Sequence[T_co]: ...

    def __getitem__(self, at: SupportsIndex | slice[Any, Any, Any]) -> T_co | Sequence[T_co]:
        return self._rows[at] if isinstance(at, slice) else self._rows[at.__index__()]

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[T_co]:
        return iter(self._rows)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ResultSet | list | tuple):
            return NotImplemented
        return len(self) == len(other) and all(one == another for one, another in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        from metastore_assets.lookup.display import rows_text

        return rows_text(self, self._shown_names)

    def _repr_html_(self) -> str:
        from metastore_assets.lookup.display import rows_html

        return rows_html(self, [] if self._shapes is None else self._shapes(), self._shown_names)

    @property
    def _shown_names(self) -> Sequence[str] | None:
        """The names of the columns to display; None for the fields that `lookup.display` shows by default."""
        return (self._to_table.names or None) if isinstance(self._to_table, pa.Schema) else None

    def to_arrow(self) -> pa.Table:
        """Return the rows as an Arrow table.

        The schema's metadata has the version and the snapshot of `as_of`.
        """
        return self._table

    def to_polars(self) -> pl.DataFrame:
        """Return the rows as a data frame of Polars."""
        import polars as pl

        frame = pl.from_arrow(self._table)
        assert isinstance(frame, pl.DataFrame)
        return frame

    def to_pandas(self) -> pd.DataFrame:
        """Return the rows as a data frame of pandas.

        Raises MissingPackageError if pandas is not installed.

        All columns have the type `pandas.ArrowDtype` if any value does not exist in Python, such as a date after the
        year 9999.
        """
        try:
            import pandas
        except ModuleNotFoundError as error:
            # No extra: those with pandas limit its version for PySpark.
            raise MissingPackageError(
                "`to_pandas` needs the package pandas, which is not installed: pip install pandas"
            ) from error
        try:
            return self._table.to_pandas()
        except (OverflowError, ValueError):
            return self._table.to_pandas(types_mapper=pandas.ArrowDtype)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)

    @lock_free_cached_property
    def _table(self) -> pa.Table:
        table = _build_table(self._rows, self._to_table) if isinstance(self._to_table, pa.Schema) else self._to_table()
        if self.as_of is None:
            return table
        metadata = {"metastore.version": str(self.as_of.version), "metastore.snapshot": self.as_of.snapshot}
        return table.replace_schema_metadata(metadata)


def _build_table(rows: Sequence[object], schema: pa.Schema) -> pa.Table:
    """Return a table with a row for each object, and with the columns of the schema.

    The values of a column are those of the attribute with the column's name. If the values are Arrow scalars, the
    column has their type instead of the schema's.
    """
    from metastore_assets.statistics.typed_union import scalars_array

    arrays = []
    for column in schema:
        values = [getattr(row, column.name) for row in rows]
        if any(isinstance(value, pa.Scalar) for value in values):
            type_ = next(value.type for value in values if value is not None)
            arrays.append(scalars_array(values, type_))
        else:
            arrays.append(pa.array(values, column.type))
    return pa.Table.from_arrays(arrays, names=schema.names)
