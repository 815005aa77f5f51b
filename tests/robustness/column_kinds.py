"""Kinds of optional columns of random tables: their Arrow type, and a function that draws values."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa


@dataclass(frozen=True)
class Kind:
    """A type and a function that draws non-null values."""

    type: pa.DataType
    value: Callable[[random.Random], Any]

    def drawn(self, draw: random.Random) -> Any:
        """Draw a value, or null with a probability of 15 %."""
        return None if draw.random() < 0.15 else self.value(draw)


def _long_text(draw: random.Random) -> str:
    """Draw a text that repeats a word up to 600 times.

    It may be longer than a stored minimum or maximum, which is cut to a limited length.
    """
    return "ähnlich " * draw.choice([1, 9, 500, 600]) + draw.choice("xyz")


def _money(draw: random.Random) -> Decimal:
    return Decimal(draw.choice([-1, 0, 5, draw.randrange(-(10**9), 10**9)])) / 100


FLAT = {
    "long": Kind(pa.string(), _long_text),
    "unique": Kind(pa.string(), lambda draw: f"https://example.org/{draw.getrandbits(60):x}"),
    "money": Kind(pa.decimal128(12, 2), _money),
    "day": Kind(pa.date32(), lambda draw: date(2024, 2, 27) + timedelta(draw.randrange(-4, 4))),
    "code": Kind(pa.binary(), lambda draw: bytes([draw.randrange(4)] * draw.randrange(3))),
    "flag": Kind(pa.bool_(), lambda draw: draw.random() < 0.5),
}
NESTED = {
    "at": Kind(pa.timestamp("us", "UTC"), lambda draw: datetime(2024, 1, 1, draw.randrange(24), tzinfo=UTC)),
    "person": Kind(
        pa.struct([("mail", pa.string()), ("ages", pa.list_(pa.int32()))]),
        lambda draw: {"mail": draw.choice([None, "a@b", "c@d"]), "ages": [draw.randrange(5)] * draw.randrange(3)},
    ),
    "tags": Kind(
        pa.list_(pa.string()), lambda draw: [draw.choice([None, "red", "green"]) for _ in range(draw.randrange(4))]
    ),
    "pairs": Kind(
        pa.map_(pa.string(), pa.int64()), lambda draw: [(key, draw.randrange(9)) for key in draw.sample("abc", 2)]
    ),
}
ALL_KINDS = {**FLAT, **NESTED}
