"""The total order of keys as operations on frames: sort, compare with a bound, find groups, look up.

Order and equality are those of Polars. Null comes first. NaN equals itself and is the greatest. −0.0 equals 0.0. Texts
compare by their UTF-8 bytes. A descending column reverses all of that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl


@dataclass(frozen=True)
class Order:
    """An order of rows by columns, the most significant column first."""

    columns: tuple[str, ...]
    descending: tuple[bool, ...]

    @classmethod
    def of(cls, columns: Sequence[str], descending: Sequence[str] = ()) -> Order:
        """Return the order by some columns, ascending except those in `descending`."""
        return cls(tuple(columns), tuple(name in descending for name in columns))

    def first(self, count: int) -> Order:
        """Return the order by the first `count` columns."""
        return Order(self.columns[:count], self.descending[:count])

    def __add__(self, other: Order) -> Order:
        return Order(self.columns + other.columns, self.descending + other.descending)

    def sort(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Sort a frame.

        The sort is stable.
        """
        if frame.height < 2:
            return frame
        return frame.sort(
            self.columns, descending=self.descending, nulls_last=list(self.descending), maintain_order=True
        )

    def before(self, bound: pl.DataFrame, *, inclusive: bool = False) -> pl.Expr:
        """Return an expression that is true for rows before a key, or equal to the key if `inclusive`.

        Args:
            bound: The key, as a frame with one row.
            inclusive: Whether rows with the key itself match.
        """
        # The bound is a frame, not a tuple: Python has no timestamps with nanoseconds.
        result = pl.lit(inclusive)
        for column, descending in reversed(list(zip(self.columns, self.descending, strict=True))):
            expression, value = pl.col(column), bound[column]
            if value.dtype.is_temporal():
                # Compare the stored integers: Polars has no literals for years beyond 9999.
                expression, value = expression.to_physical(), value.to_physical()
            equal = expression.eq_missing(pl.lit(value).first())
            result = _less(expression, value, descending) | (equal & result)
        return result

    def least(self, keys: pl.DataFrame) -> pl.DataFrame:
        """Return the first of the keys in this order, as a frame with one row."""
        return self.sort(keys[:, list(self.columns)]).head(1)

    def changes(self) -> pl.Expr:
        """Return an expression that is true for the first row of each key, in a sorted frame."""
        index = pl.int_range(pl.len()) == 0
        for column in self.columns:
            index = index | pl.col(column).ne_missing(pl.col(column).shift(1))
        return index

    def distinct(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return the distinct keys of a sorted frame, sorted."""
        return frame[:, list(self.columns)].filter(self.changes())

    def is_sorted(self, frame: pl.DataFrame) -> bool:
        """Return whether the rows are sorted in this order."""
        keys = frame.select(self.columns).with_row_index("_row")
        return bool(self.sort(keys)["_row"].is_sorted())

    def semi(self, frame: pl.DataFrame, keys: pl.DataFrame) -> pl.DataFrame:
        """Semi join: return the rows of `frame` whose key is in `keys`, in the order of `frame`."""
        return self._join(frame, keys[:, list(self.columns)], "semi")

    def positions(self, frame: pl.DataFrame, keys: pl.DataFrame) -> npt.NDArray[np.int64]:
        """Return the positions, ascending, of the rows of `frame` whose key is in `keys`."""
        numbered_rows = frame[:, list(self.columns)].with_row_index("_row")
        return self.semi(numbered_rows, keys)["_row"].cast(pl.Int64).to_numpy()

    def anti(self, frame: pl.DataFrame, keys: pl.DataFrame) -> pl.DataFrame:
        """Anti join: return the rows of `frame` whose key is not in `keys`, in the order of `frame`."""
        return self._join(frame, keys[:, list(self.columns)], "anti")

    def beside(self, frame: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
        """Left join by the columns of this order: return `frame` with the columns that only `other` has.

        These columns are null in rows whose key `other` lacks. The rows stay in the order of `frame`.
        """
        return self._join(frame, other, "left")

    def counts(self, keys: pl.DataFrame, first: pl.DataFrame, last: pl.DataFrame) -> list[int]:
        """Return the number of sorted keys in each range.

        Args:
            keys: The keys, sorted.
            first: The first key of each range, inclusive.
            last: The last key of each range, inclusive.
        """
        key_numbers, least, greatest = (self.numbers(frame[self.columns[0]]) for frame in (keys, first, last))
        if len(self.columns) == 1 and key_numbers is not None and least is not None and greatest is not None:
            return list(np.searchsorted(key_numbers, greatest, "right") - np.searchsorted(key_numbers, least))
        number = pl.int_range(pl.len(), dtype=pl.Int64).alias("_range")
        no_number = pl.lit(None, pl.Int64).alias("_range")
        # The sort is stable, so keys that equal an end of a range stay inside the range.
        tagged_frames = [first.select(*self.columns, number), keys.select(*self.columns, no_number)]
        sorted_keys = self.sort(pl.concat([*tagged_frames, last.select(*self.columns, number)]))
        ends = sorted_keys.with_columns(_seen=pl.col("_range").is_null().cum_sum()).filter(
            pl.col("_range").is_not_null()
        )
        seen_counts = ends.sort("_range", maintain_order=True)["_seen"].to_list()
        return [after - before for before, after in zip(seen_counts[::2], seen_counts[1::2], strict=True)]

    def numbers(self, column: pl.Series) -> npt.NDArray[Any] | None:
        """Return the values of this order's first column as integers with the same order.

        Returns None if the column is descending, has nulls, or is neither integer nor time.
        """
        if self.descending[0] or column.null_count() or not (column.dtype.is_integer() or column.dtype.is_temporal()):
            return None
        return (column if column.dtype.is_integer() else column.to_physical()).to_numpy()

    def _join(self, frame: pl.DataFrame, other: pl.DataFrame, how: Any) -> pl.DataFrame:
        on = list(self.columns)
        options: dict[str, Any] = {"how": how, "nulls_equal": True, "maintain_order": "left"}
        if len(on) > 1 or not frame.schema[on[0]].is_float():
            return frame.join(other, on=on, **options)
        # Polars joins a sorted float column by merging, which treats NaN as unequal to NaN. It hashes two columns.
        one = pl.lit(0, pl.Int8).alias("_one")
        return frame.with_columns(one).join(other.with_columns(one), on=[*on, "_one"], **options).drop("_one")


def normalize_zeros(frame: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
    """Return the frame with 0.0 in place of −0.0 in some columns, so that equal keys have equal bytes."""
    floats = [name for name in columns if frame.schema[name].is_float()]
    if not floats:
        return frame
    # Polars simplifies adding 0.0 away, so compare explicitly.
    return frame.with_columns(
        pl.when(pl.col(name) == 0).then(0.0).otherwise(pl.col(name)).alias(name) for name in floats
    )


def _less(column: pl.Expr, value: pl.Series, descending: bool) -> pl.Expr:
    if value.null_count():
        return column.is_not_null() if descending else pl.lit(False)
    literal = pl.lit(value).first()
    return (column > literal).fill_null(False) if descending else (column < literal).fill_null(True)
