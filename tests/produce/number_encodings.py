"""Encodings of small numbers as keys and values of any type.

So functions over numbers run on all types. A Produce function maps the values of a source key to rows of target keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pyarrow as pa

from tests.produce import oracle
from tests.produce.graph_model import columns
from tests.produce.number_functions import KEYS, Numbers
from tests.produce.oracle import Key, Value

MOST = 12
"""The most rows that one call of a function emits. Without a limit, joins of joins would become too large."""


@dataclass(frozen=True)
class NumberEncoding:
    """An encoding of small numbers as keys or values of some type."""

    name: str
    schema: pa.Schema
    write: Callable[[int], Any]
    read: Callable[[Any], int]


_TEXTS = ("", "B", "a", "aa", "ä", "z", "é\u0301", "\U0001f34e")
_FLOATS = (0.0, float("nan"), -1.5, 2.0, float("inf"), float("-inf"), -0.0, 1e300)


def _pair(number: int) -> tuple[int | None, str | None]:
    low = number % 4
    return (None if low == 3 else low, None if number % 8 > 5 else _TEXTS[number // 4 % 2])


def _number_of_pair(pair: tuple[int | None, str | None]) -> int:
    low, text = pair
    return (3 if low is None else low) + (8 if text is None else 4 * _TEXTS.index(text))


def _number_of_float(value: float | None) -> int:
    return 9 if value is None else next(n for n, other in enumerate(_FLOATS) if oracle.compare(other, value) == 0)


KEY_ENCODINGS = (
    NumberEncoding(
        "integer", columns(k="int64"), lambda n: None if n % KEYS == 7 else n % KEYS, lambda k: 7 if k is None else k
    ),
    NumberEncoding(
        "text",
        columns(k="string"),
        lambda n: None if n % 9 == 8 else _TEXTS[n % 9],
        lambda k: 8 if k is None else _TEXTS.index(k),
    ),
    NumberEncoding("float", columns(k="float64"), lambda n: None if n % 9 == 8 else _FLOATS[n % 9], _number_of_float),
    NumberEncoding("pair", columns(c="int32", v="string"), _pair, _number_of_pair),
)
VALUE_ENCODINGS = (
    NumberEncoding("integer", columns(x="int64"), lambda n: n % 50, lambda v: v),
    NumberEncoding(
        "nullable", columns(x="int64"), lambda n: None if n % 50 == 13 else n % 50, lambda v: 13 if v is None else v
    ),
    NumberEncoding(
        "struct",
        columns(x="int64", note="string"),
        lambda n: (n % 50, _TEXTS[n % 7] if n % 3 else None),
        lambda v: v[0],
    ),
)
# The id that the functions emit is replaced. The first two encodings show it to downstream stages.
ID_ENCODINGS = (
    NumberEncoding("id", columns(id="int64"), lambda n: None, lambda v: v),
    NumberEncoding(
        "id and integer", columns(id="int64", x="int64"), lambda n: (n % 3 - 1, n % 50), lambda v: 3 * v[0] + v[1]
    ),
    NumberEncoding("hidden id", columns(x="int64", id="int64"), lambda n: (n % 50, None), lambda v: v[0]),
)
FOUNDER_ENCODING = NumberEncoding(
    "founder", columns(x="int64", founder="int64"), lambda n: (n % 50, None), lambda v: v[0] if v[0] % 2 else v[1]
)
SIGNED_ENCODING = NumberEncoding("signed", columns(x="int64"), lambda n: n % 50 - 25, lambda v: v + 25)


@dataclass(frozen=True)
class Function:
    """A Produce function that applies `numbers` to decoded keys and values, and encodes the results.

    It emits at most `MOST` rows.
    """

    numbers: Numbers
    source: NumberEncoding
    inputs: tuple[NumberEncoding, ...]
    target: NumberEncoding
    output: NumberEncoding

    def __call__(self, key: Key, *ports: Iterator[Value]) -> Iterator[tuple[Key, Value]]:
        lists = [[form.read(value) for value in port] for form, port in zip(self.inputs, ports, strict=True)]
        for target, value in islice(self.numbers(self.source.read(key), *lists), MOST):
            yield self.target.write(target), self.output.write(value)

    def __repr__(self) -> str:
        forms = "+".join(form.name for form in self.inputs)
        return f"{self.numbers.__name__}({self.source.name}/{forms} → {self.target.name}/{self.output.name})"
