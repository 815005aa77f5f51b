"""The values of one column of a table, a partition or a filtered view.

A type class is a group of column types whose values are stored as one Arrow type, the canonical one. A version has the
statistics of one snapshot of the table. The policy of a column decides which of its statistics and values are stored.
Value counts are the distinct values of a column with their frequencies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from metastore_assets.caching import lock_free_cached_property
from metastore_assets.errors import CorruptionError, LiteralError, NotStoredError
from metastore_assets.expressions.literals import parse_literal, to_literal
from metastore_assets.lookup.profiles import Profile
from metastore_assets.lookup.quantiles import (
    ExactValues,
    Method,
    RankedValues,
    SketchedValues,
    TableValues,
    ValuesInMemory,
    quantile,
)
from metastore_assets.lookup.results import AsOf, Count, Quantile, explain_no_values
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.statistics.frequencies import EMPTY, Frequencies, SpreadCounts, derive_frequencies, measure_spread
from metastore_assets.values.physical import array_of, order_key
from metastore_assets.values.types import TypeClass, class_named

if TYPE_CHECKING:
    from metastore_assets.value_counts import ValueCountReader

Number: TypeAlias = int | float | Decimal | Fraction
_DIGITS = 400
"""Fractions with a greater exponent of ten, such as 1e-500, are refused."""


@dataclass(frozen=True)
class TextValue:
    """A value as text, such as an argument of a command.

    It is parsed as a value of the column's type.
    """

    text: str


def parse_fraction(q: object) -> Fraction:
    """Return a number from 0 to 1 as an exact fraction: 0.1 becomes 1/10.

    Raises LiteralError for anything else.
    """
    try:
        if isinstance(q, bool) or not isinstance(q, (int, float, str, Decimal, Fraction)):
            raise ValueError(q)
        text = str(q)
        number = Decimal(0) if "/" in text else Decimal(text)
        if abs(number.adjusted()) > _DIGITS:
            raise ValueError(q)  # written out, its digits might not fit into memory
        fraction = Fraction(text)
        if not 0 <= fraction <= 1:
            raise ValueError(q)
    except (ValueError, ArithmeticError) as error:
        raise LiteralError(f"{q!r} is no quantile: give a number from 0 to 1") from error
    return fraction


@dataclass(frozen=True)
class ValueSource:
    """The source of a column's values: the profile of a set of rows, or the table's value counts.

    A profile has the statistics of the rows. The table's value counts are used only if the profile is of all rows of
    the table.
    """

    profile: Profile
    stores_value_counts: bool
    """Whether the profile itself may have value counts."""
    is_table: bool
    """Whether the profile describes all rows of the table. Then `table_counts` may have the values."""
    table_counts: Callable[[], ValueCountReader]
    """A function that returns the reader of the table's value counts."""


class ColumnValues:
    """The values of one column, with the methods that answer queries.

    Only the files that an answer needs are read.
    """

    def __init__(
        self, row: ColumnStatistics, subject: str, source: ValueSource, reason: str | None, as_of: AsOf
    ) -> None:
        """Prepare answers about a column; nothing is read yet.

        Args:
            row: The statistics of the column in `source.profile`.
            subject: A text that names the column in messages, such as `column 'day' of table 'orders'`.
            source: The profile and the value counts that the values are read from.
            reason: The recorded reason why the column's values are stored or not, for messages; None if there is none.
            as_of: The version that the answers are about.
        """
        self._row = row
        self._subject = subject
        self._profile = source.profile
        self._table_counts = source.table_counts
        self._reason = reason
        self._stores_value_counts = source.stores_value_counts
        self._is_table = source.is_table
        self._as_of = as_of

    @property
    def arrow_type(self) -> pa.DataType:
        """The canonical Arrow type of the column's values.

        It is the type `null` if values of the column's type are not profiled.
        """
        return pa.null() if self._row.type_class is None else class_named(self._row.type_class).arrow

    @property
    def has_values(self) -> bool:
        """Whether the column has values that are not null."""
        return self._row.value_count > 0

    def literal(self, value: object) -> pa.Scalar:
        """Convert a value to a scalar of the column's canonical type.

        Raises:
            LiteralError: The type does not have the value.
            NotStoredError: The column has the policy `values: hidden`, or values of its type are not profiled.
        """
        if isinstance(value, TextValue):
            return parse_literal(value.text, self._type_class(), self._subject)
        return to_literal(value, self._type_class(), self._subject)

    def top(self, n: int) -> list[tuple[pa.Scalar, int]]:
        """Return the n most frequent values with their frequencies; fewer if the column has fewer.

        The policy may limit the values, too: `frequencies: top(100)` returns at most 100.

        Raises:
            NotStoredError: The version stores no value counts of the column.
            CorruptionError: The version should have value counts of the column, but no file has them.
        """
        row = self._row
        self._require_value_counts()
        if not row.value_count:
            return []
        from metastore_assets.value_counts import TopLimits

        limits = self._table_counts().top_limits.get(row.field_id, TopLimits())
        n = n if limits.max_values is None else min(n, limits.max_values)
        values = self._profile.top(row.field_id, n) if self._stores_value_counts else None
        if values is None:
            type_class, table_counts = self._resolve_table_counts()
            table = table_counts.top(row.field_id, type_class, n, limits.min_frequency)
            values = list(zip(table["value"], table["frequency"].to_pylist(), strict=True))
        return [(value, frequency) for value, frequency in values if frequency >= limits.min_frequency]

    def files(self) -> list[str]:
        """Return the paths of the files with the column's value counts; see `Relation.value_files`.

        Raises NotStoredError if the version has no value counts of the column.
        """
        self._require_value_counts()
        if not self._row.value_count:
            return []
        type_class, table_counts = self._resolve_table_counts()
        return table_counts.files(self._row.field_id, type_class)

    def quantiles(self, fractions: Sequence[Fraction], method: Method) -> list[Quantile]:
        """Return the quantile of each fraction.

        Raises:
            NotStoredError: The version has neither value counts nor a quantile sketch of the column.
            LiteralError: The method is `continuous`, and values of the type cannot be interpolated.
        """
        cls = self._type_class()
        if method == "continuous" and not cls.is_ordinal and cls.kind != "null":
            raise LiteralError(
                f"{self._subject} has values of {self._row.type}, which cannot be interpolated; request discrete "
                "quantiles"
            )
        values = self._ranked_values
        return [Quantile(float(q), quantile(values, q, method), values.guarantee, self._as_of) for q in fractions]

    def rank(self, value: pa.Scalar) -> Count:
        """Return the number of values that are less than a value.

        A repeated value counts each time.

        Raises NotStoredError if the version has neither value counts nor a quantile sketch of the column.
        """
        values = self._ranked_values
        return Count(values.count_below(value), values.guarantee, self._as_of)

    @property
    def has_exact_ranks(self) -> bool:
        """Whether the version stores all values of the column, so that `count_below` is exact."""
        try:
            return self._ranked_values.guarantee == "exact"
        except NotStoredError:
            return False

    def count_below(self, value: pa.Scalar, *, inclusive: bool) -> Count | None:
        """Return the number of values < `value`, or <= `value` if `inclusive`; None if the number is unknown."""
        try:
            values = self._ranked_values
        except NotStoredError:
            return None
        return Count(values.count_below(value, inclusive=inclusive), values.guarantee, self._as_of)

    def count_between(self, low: pa.Scalar, high: pa.Scalar) -> Count:
        """Return the number of values from `low` to `high`, both inclusive.

        A repeated value counts each time.

        Raises NotStoredError if the version has neither value counts nor a quantile sketch of the column.
        """
        values = self._ranked_values
        return Count(
            max(0, values.count_below(high, inclusive=True) - values.count_below(low)), values.guarantee, self._as_of
        )

    def frequency(self, value: pa.Scalar) -> Count:
        """Return the number of rows with a value.

        Raises NotStoredError if neither statistics nor value counts of the column have the number.

        If values that occur once are stored only as fingerprints (short hashes), the result may be the estimate 1,
        because different values can have the same fingerprint.
        """
        return self.frequencies(array_of([value]))[0]

    def frequencies(self, values: pa.Array) -> list[Count]:
        """Return the number of rows with each of the values, in their order.

        Results and errors are those of `frequency`. One lookup in the value counts serves all values.
        """
        counts = [self._frequency_by_statistics(value) for value in values]
        unanswered_positions = [position for position, count in enumerate(counts) if count is None]
        remaining_counts: list[Count] = []
        if unanswered_positions:
            requested_values, exact_values = values.take(pa.array(unanswered_positions)), self._exact_values()
            if exact_values is not None:
                remaining_counts = [
                    Count(count, "exact", self._as_of) for count in exact_values.frequencies(requested_values)
                ]
            elif self._has_fingerprints():
                remaining_counts = self._frequencies_by_fingerprint(requested_values)
            else:
                raise NotStoredError(
                    f"the version has no value counts of {self._subject}: {self._why_no_value_counts()}"
                )
        answers = iter(remaining_counts)
        return [next(answers) if count is None else Count(count, "exact", self._as_of) for count in counts]

    def partitions_of(self, value: pa.Scalar) -> list[tuple[str, int]] | None:
        """Return (partition key, frequency) of each partition that has a value, sorted by key.

        The result is None in two cases: the version has no value counts by partition of the column, or this object has
        the values of only some of the table's rows.
        """
        row = self._row
        if (
            not self._is_table
            or row.frequencies != "enumerated"
            or row.field_id not in self._table_counts().by_partition
        ):
            return None
        if self._frequency_by_statistics(value) == 0:
            return []
        return self._table_counts().partitions_of(row.field_id, value)

    def spread(self) -> SpreadCounts:
        """Return the numbers of distinct, repeated and unique values, and the entropy.

        Raises NotStoredError if the version has no value counts of the column.
        """
        self._type_class()
        row = self._row
        frequencies = self._all_frequencies()
        if frequencies is not None:
            return measure_spread(_frequency_counts(frequencies))
        repeated_frequencies = self._repeated()
        if repeated_frequencies is not None:
            from metastore_assets.value_counts.fingerprinted import add_singletons

            return measure_spread(add_singletons(_frequency_counts(repeated_frequencies), row.value_count))
        self._require_value_counts()
        type_class, table_counts = self._resolve_table_counts()
        return measure_spread(table_counts.counts(row.field_id, type_class))

    def pieces(self) -> Iterator[Frequencies]:
        """Yield the values of the column with their frequencies, ascending, in one part or several.

        With the policy `frequencies: repeated`, values that occur once may be missing.

        Raises NotStoredError if neither value counts nor the column's statistics have the values.
        """
        self._type_class()
        frequencies = self._all_frequencies()
        if frequencies is None:
            frequencies = self._repeated()
        if frequencies is not None:
            yield frequencies
            return
        self._require_value_counts()
        type_class, table_counts = self._resolve_table_counts()
        yield from table_counts.pieces(self._row.field_id, type_class)

    def _require_value_counts(self) -> None:
        if self._row.frequencies != "enumerated" and not self._has_fingerprints() and self._repeated() is None:
            raise NotStoredError(f"the version has no value counts of {self._subject}: {self._why_no_value_counts()}")

    def _repeated(self) -> Frequencies | None:
        has_repeated = self._row.frequencies == "repeated" and self._stores_value_counts
        return self._profile.repeated(self._row.field_id) if has_repeated else None

    def _has_fingerprints(self) -> bool:
        """Return whether fingerprints are stored in place of the values that occur once.

        A fingerprint is a short hash of a value. Only whole tables have fingerprints.
        """
        return self._row.frequencies == "repeated" and self._is_table

    def _frequencies_by_fingerprint(self, values: pa.Array) -> list[Count]:
        """Return the number of rows with each of `values`, for a column with fingerprints (short hashes).

        The result is the estimate 1 if only one row has the fingerprint of a value, because the row may have another
        value with the same fingerprint.
        """
        type_class, table_counts = self._resolve_table_counts()
        frequencies = table_counts.frequencies_of(self._row.field_id, type_class, values)
        by_fingerprint = table_counts.fingerprint_frequencies(self._row.field_id, values)
        # A fingerprint that occurs several times has all of its values in the value counts.
        return [
            Count(1, "estimate", self._as_of) if not count and rows == 1 else Count(count, "exact", self._as_of)
            for count, rows in zip(frequencies, by_fingerprint, strict=True)
        ]

    def _type_class(self) -> TypeClass:
        """Return the type class of the column.

        Raises NotStoredError if values are not profiled, or are hidden.
        """
        if self._row.type_class is None:
            raise NotStoredError(f"the version has no values of {self._subject}: {self._why_no_value_counts()}")
        return class_named(self._row.type_class)

    def _all_frequencies(self) -> Frequencies | None:
        """Return all values with their frequencies; None if neither the profile nor the statistics have them."""
        row = self._row
        if not row.value_count:
            return EMPTY
        if row.frequencies == "enumerated":
            return self._profile.frequencies(row.field_id) if self._stores_value_counts else None
        return derive_frequencies(row)

    def _exact_values(self) -> ExactValues | None:
        """Return the column's sorted values from the profile or the table's value counts.

        Returns None if neither has them. Raises NotStoredError if the column is hidden or not profiled.
        """
        self._type_class()
        frequencies = self._all_frequencies()
        if frequencies is not None:
            return ValuesInMemory(frequencies)
        if self._row.frequencies != "enumerated":
            return None
        type_class, table_counts = self._resolve_table_counts()
        return TableValues(table_counts, self._row.field_id, type_class)

    @lock_free_cached_property
    def _ranked_values(self) -> RankedValues:
        """The column's sorted values or, if they are not stored, estimates from the quantile sketch.

        Raises NotStoredError if neither values nor a sketch are stored.
        """
        values, row = self._exact_values(), self._row
        if values is not None:
            return values
        sketch = self._profile.sketch(row.field_id)
        if sketch is None or row.minimum is None or row.maximum is None:
            raise NotStoredError(
                f"the version has neither value counts nor a sketch of {self._subject}: {self._why_no_value_counts()}"
            )
        return SketchedValues(self._type_class(), *sketch, (row.minimum, row.maximum), row.nan_count or 0)

    def _resolve_table_counts(self) -> tuple[str, ValueCountReader]:
        """Return (name of the column's type class, reader of the table's value counts).

        Call it only if the profile of the rows has no values of the column.

        Raises CorruptionError if the table's value counts do not have the column. Also raises it if this object has
        only a part of the table's rows, because the table's value counts are those of all rows.
        """
        row, table_counts = self._row, self._table_counts()
        if not self._is_table or row.type_class is None or row.field_id not in table_counts.columns:
            raise CorruptionError(
                f"no file of the version has the values of {self._subject}; rebuild with "
                "`metastore refresh NAME --full`"
            )
        return row.type_class, table_counts

    def _frequency_by_statistics(self, value: pa.Scalar) -> int | None:
        """Return the frequency of a NaN, or of a value outside the minimum and the maximum.

        It is the NaN count if `value` is NaN, and 0 if it is below the minimum or above the maximum. Otherwise returns
        None.
        """
        row = self._row
        key = order_key(value)
        if key != key:
            return row.nan_count
        if row.minimum is not None and key < order_key(row.minimum):
            return 0
        if row.maximum is not None and key > order_key(row.maximum):
            return 0
        return None

    def _why_no_value_counts(self) -> str:
        """Return why the column has no value counts, and which setting would store them, for messages."""
        row = self._row
        if row.frequencies == "off":
            return "its policy is `frequencies: off`; with `frequencies: all` a refresh stores them"
        if row.frequencies == "estimated":
            about = "" if row.distinct_count_guarantee == "exact" else "about "
            reason = (
                self._reason or f"{about}{row.distinct_count:,} distinct values, more than `frequencies: auto` stores"
            )
            return f"{reason}; with `frequencies: all` a refresh stores them"
        if row.frequencies == "repeated":
            where = "of the table" if self._is_table else "of the whole table only"
            return (
                f"`frequencies: repeated` stores the values that occur at least twice, {where}; with "
                "`algorithm: enumeration` or `frequencies: all` a refresh stores all"
            )
        return explain_no_values(row)


def _frequency_counts(frequencies: Frequencies) -> list[tuple[int, int]]:
    """Return (frequency, number of values with this frequency) pairs, by increasing frequency."""
    often, number = np.unique(frequencies.counts.to_numpy(), return_counts=True)
    return list(zip(often.tolist(), number.tolist(), strict=True))
