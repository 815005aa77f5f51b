"""Laws of user-defined statistics, such as that `merge` is associative, tested on random data.

If a statistic obeys the laws, its incremental results equal those of a full computation: states of the same rows are
equal, however the rows were split. Floats are compared up to rounding.

A *type class* is a group of column types, such as all signed integers, whose values are converted to one Arrow type.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from metastore_assets.statistics.user_defined.interface import (
    FrequencyStatistic,
    MergeableStatistic,
    SupportsRetract,
    UserStatistic,
)
from metastore_assets.statistics.user_defined.states import UserCodeError, call_user_code
from metastore_assets.statistics.value_runs import count_values
from metastore_assets.values.physical import canonical_array, physical_series
from metastore_assets.values.types import TypeClass, class_named

TRIES = 200
"""Default number of random data sets per type class."""
_MOST_ROWS = 30
_CLOSE = 1e-9
_EXACT = Context(prec=76)


@dataclass(frozen=True)
class Counterexample:
    """Data that violates a law."""

    law: str
    type_class: str
    data: tuple[str, ...]
    """The values of each set of rows, as text."""
    expected: str
    observed: str

    def to_json(self) -> dict[str, object]:
        """Return the counterexample as JSON values, as `metastore check-statistic --json` prints it."""
        return {
            "law": self.law,
            "type_class": self.type_class,
            "data": list(self.data),
            "expected": self.expected,
            "observed": self.observed,
        }


def list_tested_classes(statistic: UserStatistic) -> list[TypeClass]:
    """Return the type classes on which to test a statistic."""
    classes = [class_named(name) for name in (*_VALUES, *(f"decimal_{scale}" for scale in (0, 2, 38)))]
    others = [class_named(name) for name in statistic.types if name.startswith(("decimal_", "timestamp"))]
    return [cls for cls in dict.fromkeys([*classes, *others]) if statistic.is_for(cls)]


def find_counterexample(statistic: UserStatistic, tries: int = TRIES, seed: int = 0) -> Counterexample | None:
    """Test a statistic on random data, and return the first violation of a law; None if there is none.

    An error of the statistic's own code is a violation, too.

    Args:
        statistic: The statistic to test.
        tries: Number of tests for each type class of values that the statistic accepts. Later tests may have
            more rows.
        seed: Seed of the random data.
    """
    for cls in list_tested_classes(statistic):
        draw = random.Random(f"{seed}:{cls.name}")
        for number in range(tries):
            size = number * _MOST_ROWS // tries
            sets = [_random_rows(draw, cls, draw.randint(0, size)) for _ in range(3)]
            for law, expected, actual, data in _laws(statistic, cls, draw, sets):
                if not equals_up_to_rounding(expected, actual):
                    texts = tuple(str([str(value) for value in rows]) for rows in data)
                    return Counterexample(law, cls.name, texts, _text(expected), _text(actual))
    return None


def equals_up_to_rounding(one: Any, other: Any, near_zero: float = _CLOSE) -> bool:
    """Return whether two Python values are equal, floats up to rounding; NaN equals itself.

    Floats may differ relatively by at most `_CLOSE`, or absolutely by at most `near_zero`.
    """
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=_CLOSE, abs_tol=near_zero) or (one != one and other != other)
    is_equal = partial(equals_up_to_rounding, near_zero=near_zero)
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(is_equal(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(is_equal, one, other))
    return bool(one == other)


_Law = tuple[str, Any, Any, Sequence[pa.Array]]
"""(text of the law, expected value, actual value, tested sets of rows)."""


def _laws(statistic: UserStatistic, cls: TypeClass, draw: random.Random, sets: Sequence[pa.Array]) -> Iterator[_Law]:
    """Yield (law, expected value, actual value, tested sets) for each law, also for those that hold.

    If the statistic's code fails, a last tuple has the error as its actual value, and the remaining laws are missing.

    Args:
        statistic: The statistic.
        cls: The type class of the values.
        draw: The source of random numbers.
        sets: Three sets of rows.
    """
    try:
        if isinstance(statistic, MergeableStatistic):
            yield from _merge_laws(statistic, draw, sets)
        elif isinstance(statistic, FrequencyStatistic):
            yield from _frequency_laws(statistic, cls, sets[0])
    except UserCodeError as error:
        yield "methods raise no error and return values of the declared types", "no error", str(error), sets


def _merge_laws(statistic: MergeableStatistic, draw: random.Random, sets: Sequence[pa.Array]) -> Iterator[_Law]:
    """Yield (law, expected value, actual value, tested sets) for each law of `update` and `merge`.

    Laws of `retract` follow if the statistic has it. Laws that hold are yielded, too. `sets` has three sets of rows.
    """
    rows, others, third = sets

    def call_for_state(what: str, call: Callable[[], Any]) -> Any:
        return call_user_code(what, statistic.state, call)[0].as_py()

    def updated(current: Any, values: pa.Array, counts: Sequence[int] | None = None) -> Any:
        if not len(values):
            return current
        value_counts = pa.array([1] * len(values) if counts is None else counts, pa.int64())
        return call_for_state("update()", partial(statistic.update, current, values, value_counts))

    def merged(one: Any, other: Any) -> Any:
        return call_for_state("merge()", partial(statistic.merge, one, other))

    def initial() -> Any:
        return call_for_state("initial()", statistic.initial)

    a, b, c = (updated(initial(), values) for values in (rows, others, third))
    call_user_code("finalize()", statistic.result, partial(statistic.finalize, a))
    shuffled_rows = rows.take(pa.array(draw.sample(range(len(rows)), len(rows)), pa.int64()))
    yield "update() does not depend on the order of rows", a, updated(initial(), shuffled_rows), [rows, shuffled_rows]
    yield "merge() of a state with the initial state changes nothing", a, merged(a, initial()), [rows]
    yield "merge() of the initial state with a state changes nothing", a, merged(initial(), a), [rows]
    yield "merge() is commutative", merged(a, b), merged(b, a), [rows, others]
    yield "merge() is associative", merged(merged(a, b), c), merged(a, merged(b, c)), sets
    combined_state = updated(initial(), pa.concat_arrays([rows, others]))
    yield "merge() of the states of two parts gives the state of all rows", combined_state, merged(a, b), [rows, others]
    yield (
        "update() may receive the rows in several calls",
        combined_state,
        updated(updated(initial(), rows), others),
        [rows, others],
    )
    counts = [draw.randint(1, 3) for _ in range(len(rows))]
    repeated_rows = rows.take(pa.array(np.repeat(np.arange(len(rows)), counts)))
    counted_state = updated(initial(), rows, counts)
    yield (
        "update() treats a value with the count n like n equal values",
        updated(initial(), repeated_rows),
        counted_state,
        [repeated_rows],
    )
    statistic = type(statistic)()
    yield "the object stores nothing between calls", a, updated(initial(), rows), [rows]
    if isinstance(statistic, SupportsRetract):
        retracted_state = call_for_state("retract()", partial(statistic.retract, merged(a, b), b))
        yield "retract() reverses merge()", a, retracted_state, [rows, others]


def _frequency_laws(statistic: FrequencyStatistic, cls: TypeClass, rows: pa.Array) -> Iterator[_Law]:
    """Test `compute` on the frequencies of the values in `rows`.

    Yield (law, expected value, actual value, `[rows]`) for each law, also for those that hold. `[rows]` is the list of
    tested sets of rows, which has one item here.
    """
    run = count_values(physical_series(rows, cls))
    values = canonical_array(run.values, cls) if len(run) else pa.nulls(0, cls.arrow)
    counts = pa.array(np.ones(0, np.int64) if run.counts is None else run.counts)

    def computed(tested_statistic: FrequencyStatistic) -> Any:
        compute = partial(tested_statistic.compute, values, counts)
        return call_user_code("compute()", tested_statistic.result, compute)[0].as_py()

    result = computed(statistic)
    yield "compute() gives the same result for the same frequencies", result, computed(statistic), [rows]
    yield "the object stores nothing between calls", result, computed(type(statistic)()), [rows]


def _text(value: Any) -> str:
    return repr(value) if not isinstance(value, str) else value


def _random_rows(draw: random.Random, cls: TypeClass, size: int) -> pa.Array:
    """Return an array of `size` random values of a type class.

    Values may repeat; none is null.
    """
    if pa.types.is_decimal(cls.arrow):
        unscaled_values = [
            draw.choice([0, 1, -1, draw.randrange(1000), draw.randrange(-(10**37), 10**37)]) for _ in range(size)
        ]
        return pa.array([Decimal(number).scaleb(-cls.scale, _EXACT) for number in unscaled_values], cls.arrow)
    kind = cls.name.partition("_")[0]
    pick = _VALUES[cls.name if cls.name in _VALUES else f"{kind}_us"]
    values = [pick(draw) for _ in range(size)]
    if cls.name == "uuid":
        return pa.ExtensionArray.from_storage(cls.arrow, pa.array(values, pa.binary(16)))
    if pa.types.is_temporal(cls.arrow):
        width = pa.int32() if cls.name == "date" else pa.int64()
        return pa.array(values, width).view(cls.arrow)
    return pa.array(values, cls.arrow)


def _random_word(draw: random.Random) -> str:
    letters = draw.choice(["ab", "aé☃", "0123456789", "A-@.:/ \n"])
    return draw.choice(["", "ab", "ab"]) + "".join(draw.choices(letters, k=draw.randint(0, 6)))


def _random_number(draw: random.Random) -> float:
    special = (0.0, 1.0, -1.5, math.nan, math.inf, -math.inf, 5e-324, 1.7e308)
    return draw.choice([*special, float(draw.randrange(10)), draw.gauss(0, 1000)])


_VALUES: Mapping[str, Callable[[random.Random], Any]] = {
    "boolean": lambda draw: draw.random() < 0.5,
    "int64": lambda draw: draw.choice([0, 1, -1, draw.randrange(100), -(2**63), 2**63 - 1]),
    "uint64": lambda draw: draw.choice([0, 1, draw.randrange(100), 2**64 - 1]),
    "float64": _random_number,
    "string": _random_word,
    "binary": lambda draw: draw.randbytes(draw.randint(0, 3)),
    "uuid": lambda draw: bytes([draw.randrange(3)]) * 16,
    "date": lambda draw: draw.randrange(-1000, 20_000),
    "time": lambda draw: draw.randrange(86_400 * 10**9),
    "timestamp_us": lambda draw: draw.randrange(10**15),
    "timestamptz_us": lambda draw: draw.randrange(10**15),
}
