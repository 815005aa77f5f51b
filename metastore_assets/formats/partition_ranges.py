"""Ranges of partitions, such as `--from 9 --to 10`.

Partitions are ordered by their values, not by their texts: `hour=9` comes before `hour=10`. Values in the folder
names of plain files have no type. They are compared as integers if all values of the column are integers, else as
texts. A partition key is the text of a whole partition, such as `day=2024-01-01/hour=9`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from pyarrow import types as t

from metastore_assets.errors import LiteralError, PartitionNotFoundError
from metastore_assets.expressions.partition_keys import NULL_VALUE, decode_partition_key, encode_partition_key
from metastore_assets.expressions.partition_patterns import split_column_patterns
from metastore_assets.formats.base import SnapshotMetadata
from metastore_assets.iso8601 import parse_date, parse_time, parse_timestamp
from metastore_assets.messages import close_names

_INTEGER = re.compile(r"[+-]?[0-9]+")
_OF_SOURCE_TYPE = ("identity", "truncate[")
_BOOLEANS = {"false": 0, "true": 1}


@dataclass(frozen=True)
class _Order:
    """The rules to parse and order the values of one partition column."""

    kind: str
    """What the values are, for messages: "a date"."""
    parse: Callable[[str], Any]
    """Convert a text to a comparable value. Raises ValueError, InvalidOperation or OverflowError."""


_TEXT = _Order("text", lambda text: text.encode("utf-8", "surrogatepass"))


class PartitionRanges:
    """The sorted partition keys of a snapshot, from which `between` selects a range.

    They are sorted by the values of the first partition column, then by those of the next.
    """

    def __init__(self, table: str, snapshot: SnapshotMetadata, keys: Collection[str]) -> None:
        """Sort the partition keys of a snapshot.

        Args:
            table: the table's name, for messages.
            snapshot: the metadata of the snapshot, which have the types of the partition columns.
            keys: the keys of all partitions of the snapshot.
        """
        self._table = table
        self._items = {key: dict(decode_partition_key(key)) for key in sorted(keys)}
        names = (name for items in self._items.values() for name in items)
        self._columns = list(dict.fromkeys([*snapshot.partition_columns, *names]))
        self._orders = {name: self._order(snapshot, name) for name in self._columns}
        self.keys: tuple[str, ...] = tuple(sorted(keys, key=self._sort_key))
        """All partition keys in ascending order; null comes last."""

    def between(self, first: str | None, last: str | None) -> tuple[str, ...]:
        """Return the keys between two bounds, both inclusive, in ascending order.

        A bound is `day=2024-01-01/hour=9`, for example. If there is one partition column, its value suffices.
        The values of a partition are compared with those of a bound column by column, until two differ. A partition
        with a null in a compared column is out of range.

        Args:
            first: the lower bound; None for no lower bound.
            last: the upper bound; None for no upper bound.

        Raises:
            LiteralError: a bound is not a value of its column, or names no column although there are several. Or
                `first` is after `last`.
            PartitionNotFoundError: the table is not partitioned, or no partition is in the range.
        """
        lower, upper = self._bound(first, "--from"), self._bound(last, "--to")
        if first is not None and last is not None and lower.keys() == upper.keys() and _is_after(lower, upper):
            raise LiteralError(
                f"table {self._table!r}: --from {first!r} is after --to {last!r}: give the lesser value first"
            )
        keys = tuple(key for key in self.keys if self._is_within(key, lower, 1) and self._is_within(key, upper, -1))
        if not keys:
            if not self.keys:
                raise PartitionNotFoundError(f"table {self._table!r} has no partitions, because it has no rows")
            limits = " ".join(f"{name} {text!r}" for name, text in (("from", first), ("to", last)) if text is not None)
            raise PartitionNotFoundError(
                f"table {self._table!r} has no partition {limits}: its {len(self.keys):,} partitions go from "
                f"{self.keys[0]!r} to {self.keys[-1]!r}"
            )
        return keys

    def _order(self, snapshot: SnapshotMetadata, name: str) -> _Order:
        """Return an order of a column's values: by its type, as integers, or as texts.

        It is the first of these that can parse all values. A column whose type is unknown, such as one from folders of
        plain files, has no order by its type.
        """
        texts = [items[name] for items in self._items.values() if items.get(name) is not None]
        type_ = snapshot.partition_type(name)
        # Folders of plain files have no types, and formats report text for values of unknown types. Use the first order
        # that can parse all values.
        is_column = name in snapshot.schema.names and t.is_string(snapshot.schema.field(name).type)
        is_text = snapshot.format != "files" and (is_column or _has_source_type(snapshot, name))
        orders = [value_order(type_)] if is_text or not t.is_string(type_) else []
        if texts:
            orders.append(_Order("a whole number", _integer))
        return next((order for order in orders if _can_parse(order, texts)), _TEXT)

    def _sort_key(self, key: str) -> list[tuple[int, Any]]:
        values = [(name, self._items[key].get(name)) for name in self._columns]
        return [(1, 0) if text is None else (0, self._orders[name].parse(text)) for name, text in values]

    def _is_within(self, key: str, bound: Mapping[str, Any], sign: int) -> bool:
        """Return True if a partition is >= a lower bound (`sign` 1), or <= an upper bound (`sign` -1).

        A partition with a null in a compared column is outside of both.
        """
        items = self._items[key]
        for name, limit in bound.items():
            text = items.get(name)
            if text is None:
                return False
            value = self._orders[name].parse(text)
            if value != limit:
                return bool(value > limit if sign > 0 else value < limit)
        return True

    def _bound(self, text: str | None, option: str) -> dict[str, Any]:
        """Parse one end of a range, such as `day=2024-01-01`.

        Return its values by column; empty if `text` is None.

        Args:
            text: The end of the range; None for no limit.
            option: The command's option with this end, such as `--from`, for messages.

        Raises:
            PartitionNotFoundError: The table is not partitioned.
            LiteralError: The text does not name the columns, or is not a value of its column.
        """
        if text is None:
            return {}
        if not self._columns:
            raise PartitionNotFoundError(f"table {self._table!r} is not partitioned: leave out {option} {text!r}")
        named_patterns = split_column_patterns(text, self._columns)
        if not named_patterns and len(self._columns) > 1:
            form = encode_partition_key([(name, "…") for name in self._columns]).replace("%E2%80%A6", "…")
            near = close_names(text.partition("=")[0], self._columns, "") if "=" in text else ""
            raise LiteralError(
                f"table {self._table!r} is partitioned by {' and '.join(map(repr, self._columns))}: name the columns "
                f"of {option} {text!r}, as in `{option} {form}`{near}"
            )
        texts = dict(named_patterns or [(self._columns[0], text)])
        return {name: self._parse(name, texts[name], option) for name in self._columns if name in texts}

    def _parse(self, name: str, text: str, option: str) -> Any:
        """Parse the text of a bound as a value of the column `name`.

        The text may be percent-encoded.

        Raises LiteralError if the text stands for null, or is not a value of the column. `option` is the command's
        option with the bound, such as `--from`, for messages.
        """
        order = self._orders[name]
        if text == NULL_VALUE:
            raise LiteralError(
                f"table {self._table!r}: null is in no range: instead of {option}, select it with "
                f"`--partition {name}={NULL_VALUE}`"
            )
        for form in dict.fromkeys((text, unquote(text))):
            try:
                return order.parse(form)
            except (ValueError, OverflowError, InvalidOperation):
                continue
        example = next((f", such as {items[name]!r}" for items in self._items.values() if items.get(name)), "")
        raise LiteralError(
            f"table {self._table!r}: {option} {text!r} is not a value of the partition column {name!r}: give "
            f"{order.kind}{example}"
        )


def value_order(type_: pa.DataType) -> _Order:
    """Return the rules to parse and order the partition values of a type.

    They parse the texts that `values.value_text` returns.
    """
    if t.is_integer(type_):
        return _Order("a whole number", _integer)
    if t.is_date(type_):
        return _Order("a date", parse_date)
    if t.is_timestamp(type_):
        return _Order("a timestamp", lambda text: _timestamp(text, type_))
    if t.is_time(type_):
        return _Order("a time of day", lambda text: parse_time(text, type_.unit))
    if t.is_boolean(type_):
        return _Order("true or false", _boolean)
    if t.is_decimal(type_):
        return _Order("a decimal number", _decimal)
    if t.is_floating(type_):
        return _Order("a number", _float)
    if t.is_binary(type_) or t.is_large_binary(type_) or t.is_fixed_size_binary(type_):
        return _Order("hexadecimal bytes", bytes.fromhex)
    return _TEXT


def _has_source_type(snapshot: SnapshotMetadata, name: str) -> bool:
    """Return True if a partition field has values of its source column's type, as with `identity`."""
    transforms = (field.transform for field in snapshot.derived if field.is_partition_field and field.name == name)
    return any(transform.strip().lower().startswith(_OF_SOURCE_TYPE) for transform in transforms)


def _can_parse(order: _Order, texts: Iterable[str | None]) -> bool:
    try:
        for text in texts:
            order.parse(text or "")
    except (ValueError, OverflowError, InvalidOperation):
        return False
    return True


def _is_after(lower: Mapping[str, Any], upper: Mapping[str, Any]) -> bool:
    pairs: Sequence[tuple[Any, Any]] = [(lower[name], upper[name]) for name in lower]
    return next((bool(first > last) for first, last in pairs if first != last), False)


def _integer(text: str) -> int:
    if _INTEGER.fullmatch(text) is None:
        raise ValueError(f"{text!r} is no whole number")
    return int(text)


def _boolean(text: str) -> int:
    if text not in _BOOLEANS:
        raise ValueError(f"{text!r} is neither true nor false")
    return _BOOLEANS[text]


def _decimal(text: str) -> Decimal:
    number = Decimal(text)
    if not number.is_finite() or "_" in text:
        raise ValueError(f"{text!r} is no decimal number")
    return number


def _float(text: str) -> tuple[bool, float]:
    if "_" in text:  # Python would take 1_0 as 10.
        raise ValueError(f"{text!r} is no number")
    number = float(text)
    return (True, 0.0) if math.isnan(number) else (False, number)


def _timestamp(text: str, type_: pa.DataType) -> int:
    ticks, offset = parse_timestamp(text, type_.unit)
    if offset is not None and type_.tz is None:
        raise ValueError(f"{text!r} has a zone")
    return ticks
