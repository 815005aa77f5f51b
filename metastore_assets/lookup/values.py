"""The values of one column, of a table or of one of its partitions: what is asked of them, and what tells it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from metastore_assets.errors import CorruptionError, LiteralError, NotKeptError
from metastore_assets.expressions.literals import parse_literal, to_literal
from metastore_assets.lookup.answers import AsOf, Count, Quantile
from metastore_assets.lookup.ordered import ListedValues, Method, Ordered, SketchedValues, StoredValues, quantile
from metastore_assets.lookup.profile_files import Profile
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.statistics.finalize import derive_frequencies
from metastore_assets.statistics.frequencies import EMPTY, Frequencies
from metastore_assets.statistics.spread import Spread, spread
from metastore_assets.values.physical import order_key
from metastore_assets.values.types import TypeClass, class_named

if TYPE_CHECKING:
    from metastore_assets.value_counts import ListReader

Number: TypeAlias = int | float | Decimal | Fraction
_DIGITS = 400
"""Powers of ten that fractions are given in, up or down."""


@dataclass(frozen=True)
class TextValue:
    """A value as text, such as a command is given: of the type of whatever column it is asked about."""

    text: str


def fraction_of(q: object) -> Fraction:
    """A fraction from 0 to 1, as it is written: 0.1 is a tenth, which no float is. Raises LiteralError."""
    try:
        if isinstance(q, bool) or not isinstance(q, (int, float, str, Decimal, Fraction)):
            raise ValueError(q)
        text = str(q)
        number = Decimal(0) if "/" in text else Decimal(text)
        if abs(number.adjusted()) > _DIGITS:
            raise ValueError(q)  # its digits, written out, might fit into no memory
        fraction = Fraction(text)
        if not 0 <= fraction <= 1:
            raise ValueError(q)
    except (ValueError, ArithmeticError) as error:
        raise LiteralError(f"{q!r} is no quantile: give a number from 0 to 1") from error
    return fraction


class ColumnValues:
    """Answers about the values of one column. Reads no more than an answer needs."""

    def __init__(
        self,
        row: ColumnStatistics,
        subject: str,
        profile: Profile,
        lists: Callable[[], ListReader],
        reason: str | None,
        *,
        has_own_lists: bool,
        is_whole: bool,
        as_of: AsOf,
    ) -> None:
        """`profile`, whose row of statistics is given, may have lists of its own; else `lists`, the table's, say what
        the values are, where the profile is of the whole table. `reason`: why the column is not listed, where that was
        decided. `subject`: for messages."""
        self._row = row
        self._subject = subject
        self._profile = profile
        self._lists = lists
        self._reason = reason
        self._has_own_lists = has_own_lists
        self._is_whole = is_whole
        self._as_of = as_of

    def literal(self, value: object) -> pa.Scalar:
        """A value that is asked about. Raises LiteralError, NotKeptError where the column has no values of its own."""
        if isinstance(value, TextValue):
            return parse_literal(value.text, self._class(), self._subject)
        return to_literal(value, self._class(), self._subject)

    def top(self, n: int) -> list[tuple[pa.Scalar, int]]:
        """The n most frequent values with their frequencies. Raises NotKeptError, CorruptionError."""
        row = self._row
        self._check_listed()
        if not row.value_count:
            return []
        from metastore_assets.value_counts import Cut

        cut = self._lists().cuts.get(row.field_id, Cut())
        n = n if cut.most is None else min(n, cut.most)
        values = self._profile.top(row.field_id, n) if self._has_own_lists else None
        if values is None:
            name, lists = self._stored()
            table = lists.top(row.field_id, name, n, cut.least_frequency)
            values = list(zip(table["value"], table["frequency"].to_pylist(), strict=True))
        return [(value, frequency) for value, frequency in values if frequency >= cut.least_frequency]

    def files(self) -> list[str]:
        """The files whose rows add up to the values. Raises NotKeptError."""
        self._check_listed()
        if not self._row.value_count:
            return []
        name, lists = self._stored()
        return lists.files(self._row.field_id, name)

    def quantiles(self, fractions: Sequence[Fraction], method: Method) -> list[Quantile]:
        """One for each fraction. Raises NotKeptError."""
        cls = self._class()
        if method == "continuous" and not cls.is_ordinal and cls.kind != "null":
            raise LiteralError(
                f"{self._subject} has values of {self._row.type}, between which there are no others; ask for "
                "discrete quantiles"
            )
        values = self._ordered()
        return [Quantile(float(own), quantile(values, own, method), values.guarantee, self._as_of) for own in fractions]

    def rank(self, value: pa.Scalar) -> Count:
        """How many values are less. Raises NotKeptError."""
        values = self._ordered()
        return Count(values.before(value), values.guarantee, self._as_of)

    def before(self, value: pa.Scalar, *, inclusive: bool) -> Count | None:
        """How many values are less, or equal and `inclusive`; None where nothing tells."""
        try:
            values = self._ordered()
        except NotKeptError:
            return None
        return Count(values.before(value, inclusive=inclusive), values.guarantee, self._as_of)

    def count_between(self, low: pa.Scalar, high: pa.Scalar) -> Count:
        """How many values there are, both bounds included. Raises NotKeptError."""
        values = self._ordered()
        return Count(max(0, values.before(high, inclusive=True) - values.before(low)), values.guarantee, self._as_of)

    def frequency(self, value: pa.Scalar) -> Count:
        """How often a value occurs; an estimate where a fingerprint says once, for that may be of another value.

        Raises NotKeptError."""
        known = self._known_frequency(value)
        if known is None:
            values = self._exact()
            if values is None and self._has_prints():
                return self._printed_frequency(value)
            if values is None:
                raise NotKeptError(f"the values of {self._subject} are not listed: {self._why_not_listed()}")
            known = values.before(value, inclusive=True) - values.before(value)
        return Count(known, "exact", self._as_of)

    def partitions_of(self, value: pa.Scalar) -> list[tuple[str, int]] | None:
        """The keys of the table's partitions that hold a value, ascending, with its frequency in each; None where that
        is not kept.
        """
        row = self._row
        if not self._is_whole or row.frequencies != "enumerated" or row.field_id not in self._lists().by_partition:
            return None
        return [] if self._known_frequency(value) == 0 else self._lists().partitions_of(row.field_id, value)

    def spread(self) -> Spread:
        """How the values spread. Raises NotKeptError."""
        self._class()
        row = self._row
        own = self._listed()
        if own is not None:
            return spread(_counts(own))
        repeated = self._repeated()
        if repeated is not None:
            from metastore_assets.value_counts.printed import with_singletons

            return spread(with_singletons(_counts(repeated), row.value_count))
        self._check_listed()
        name, lists = self._stored()
        return spread(lists.counts(row.field_id, name))

    def pieces(self) -> Iterator[Frequencies]:
        """All values that are listed with their frequencies, in order, in pieces of bounded size where they are many.

        Where only values are listed that repeat, these. Raises NotKeptError.
        """
        self._class()
        own = self._listed()
        if own is None:
            own = self._repeated()
        if own is not None:
            yield own
            return
        self._check_listed()
        name, lists = self._stored()
        yield from lists.pieces(self._row.field_id, name)

    def _check_listed(self) -> None:
        if self._row.frequencies != "enumerated" and not self._has_prints() and self._repeated() is None:
            raise NotKeptError(f"the values of {self._subject} are not listed: {self._why_not_listed()}")

    def _repeated(self) -> Frequencies | None:
        """The values that occur at least twice, where the profile alone knows these."""
        is_own = self._row.frequencies == "repeated" and self._has_own_lists
        return self._profile.repeated(self._row.field_id) if is_own else None

    def _has_prints(self) -> bool:
        """Whether lists have what repeats, and fingerprints count the rest."""
        return self._row.frequencies == "repeated" and self._is_whole

    def _printed_frequency(self, value: pa.Scalar) -> Count:
        name, lists = self._stored()
        listed = lists.frequency(self._row.field_id, name, value)
        if listed:
            return Count(listed, "exact", self._as_of)
        # All values of a fingerprint that occurs more than once are listed.
        is_maybe = lists.print_frequency(self._row.field_id, value) == 1
        return Count(1, "estimate", self._as_of) if is_maybe else Count(0, "exact", self._as_of)

    def _class(self) -> TypeClass:
        if self._row.type_class is None:
            raise NotKeptError(f"nothing is known of values of {self._subject}: {self._why_not_listed()}")
        return class_named(self._row.type_class)

    def _listed(self) -> Frequencies | None:
        """All values, where that needs no more than the profile."""
        row = self._row
        if not row.value_count:
            return EMPTY
        if row.frequencies == "enumerated":
            return self._profile.frequencies(row.field_id) if self._has_own_lists else None
        return derive_frequencies(row)

    def _exact(self) -> Ordered | None:
        self._class()
        own = self._listed()
        if own is not None:
            return ListedValues(own)
        if self._row.frequencies != "enumerated":
            return None
        name, lists = self._stored()
        return StoredValues(lists, self._row.field_id, name)

    def _ordered(self) -> Ordered:
        values, row = self._exact(), self._row
        if values is not None:
            return values
        sketch = self._profile.sketch(row.field_id)
        if sketch is None or row.minimum is None or row.maximum is None:
            raise NotKeptError(f"the order of values of {self._subject} is not kept: {self._why_not_listed()}")
        return SketchedValues(self._class(), *sketch, (row.minimum, row.maximum), row.nan_count or 0)

    def _stored(self) -> tuple[str, ListReader]:
        """The table's lists, which have the column. Raises CorruptionError where they do not."""
        row, lists = self._row, self._lists()
        if not self._is_whole or row.type_class is None or row.field_id not in lists.columns:
            raise CorruptionError(
                f"the values of {self._subject} are listed in no file of its version; rebuild with "
                "`metastore refresh NAME --full`"
            )
        return row.type_class, lists

    def _known_frequency(self, value: pa.Scalar) -> int | None:
        """What the statistics alone tell: of NaN, and of values beyond the bounds."""
        row = self._row
        key = order_key(value)
        if key != key:
            return row.nan_count
        if row.minimum is not None and key < order_key(row.minimum):
            return 0
        if row.maximum is not None and key > order_key(row.maximum):
            return 0
        return None

    def _why_not_listed(self) -> str:
        row = self._row
        if row.frequencies == "off":
            return "its policy is `frequencies: off`; with `frequencies: all` a refresh lists them"
        if row.frequencies == "estimated":
            about = "" if row.distinct_count_guarantee == "exact" else "about "
            reason = (
                self._reason or f"{about}{row.distinct_count:,} distinct values, more than `frequencies: auto` lists"
            )
            return f"{reason}; with `frequencies: all` a refresh lists them"
        if row.frequencies == "repeated":
            where = "of the table" if self._is_whole else "of the whole table only"
            return (
                f"`frequencies: repeated` keeps those that occur at least twice, {where}; with "
                "`algorithm: enumeration` or `frequencies: all` a refresh lists all"
            )
        return row.reason or f"{row.type} has no values of its own"


def _counts(own: Frequencies) -> list[tuple[int, int]]:
    """(Frequency, number of values that occur so often), by increasing frequency."""
    often, number = np.unique(own.counts.to_numpy(), return_counts=True)
    return list(zip(often.tolist(), number.tolist(), strict=True))
