"""User-defined statistics for tests: one for each interface, and some that fail."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from metastore_assets import FrequencyStatistic, MergeableStatistic


class Parities(MergeableStatistic):
    """The numbers of even and of odd integers.

    States can be merged and subtracted.
    """

    name = "parities"
    revision = "1"
    types = ("int64",)
    state = pa.struct([("even", pa.int64()), ("odd", pa.int64())])
    result = pa.struct([("even", pa.int64()), ("odd", pa.int64())])

    def initial(self) -> dict[str, int]:
        return {"even": 0, "odd": 0}

    def update(self, state: dict[str, int], values: pa.Array, counts: pa.Array) -> dict[str, int]:
        odd = pc.sum(pc.multiply(pc.bit_wise_and(values, 1), counts)).as_py()
        return {"even": state["even"] + pc.sum(counts).as_py() - odd, "odd": state["odd"] + odd}

    def merge(self, one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
        return {key: one[key] + other[key] for key in one}

    def retract(self, complete: dict[str, int], part: dict[str, int]) -> dict[str, int]:
        return {key: complete[key] - part[key] for key in complete}

    def finalize(self, state: dict[str, int]) -> dict[str, int]:
        return state


class Letters(MergeableStatistic):
    """The letters that occur, sorted.

    States grow, and can only be merged.
    """

    name = "letters"
    revision = "1"
    types = ("string",)
    state = pa.list_(pa.string())
    result = pa.string()

    def initial(self) -> list[str]:
        return []

    def update(self, state: list[str], values: pa.Array, counts: pa.Array) -> list[str]:
        return sorted({*state, *"".join(values.to_pylist())})

    def merge(self, one: list[str], other: list[str]) -> list[str]:
        return sorted({*one, *other})

    def finalize(self, state: list[str]) -> str:
        return "".join(state)


class MostFrequent(FrequencyStatistic):
    """The frequency of the most frequent value."""

    name = "most_frequent"
    revision = "1"
    types = ("any",)
    result = pa.int64()

    def compute(self, values: pa.Array, counts: pa.Array) -> int | None:
        return max(counts.to_pylist(), default=None)


class First(MergeableStatistic):
    """The first value, which depends on the order of rows."""

    name = "first"
    revision = "1"
    types = ("int64",)
    state = pa.int64()
    result = pa.int64()

    def initial(self) -> None:
        return None

    def update(self, state: int | None, values: pa.Array, counts: pa.Array) -> int:
        return values[0].as_py() if state is None else state

    def merge(self, one: int | None, other: int | None) -> int | None:
        return other if one is None else one

    def finalize(self, state: int | None) -> int | None:
        return state


class Rows(Parities):
    """A wrong statistic: it counts calls of `update` instead of rows."""

    name = "blocks"

    def update(self, state: dict[str, int], values: pa.Array, counts: pa.Array) -> dict[str, int]:
        return {"even": state["even"] + 1, "odd": 0}


class Raises(Parities):
    """A statistic that raises if a value is odd."""

    name = "raises"

    def update(self, state: dict[str, int], values: pa.Array, counts: pa.Array) -> dict[str, int]:
        if any(value % 2 for value in values.to_pylist()):
            raise RuntimeError("an odd number")
        return super().update(state, values, counts)


class WrongType(MostFrequent):
    """A statistic that returns text, although it declares a number."""

    name = "wrong_type"

    def compute(self, values: pa.Array, counts: pa.Array) -> Any:
        return "many"


class BuiltInName(MostFrequent):
    """A statistic with the name of a built-in one."""

    name = "mean"


class OtherCase(MostFrequent):
    """A statistic whose name differs from the built-in `mean` only in case."""

    name = "Mean"
