"""A slow user-defined statistic that writes its progress and process id to a file."""

from __future__ import annotations

import os
import time
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from metastore_assets import MergeableStatistic

_SECONDS = 0.1


def _at(what: str) -> None:
    import metastore_assets

    if "SLOW_LOG" in os.environ:
        with open(os.environ["SLOW_LOG"], "a", encoding="utf-8") as log:
            log.write(f"{what} {os.getpid()} {metastore_assets.__file__}\n")
        time.sleep(_SECONDS)


class SlowSum(MergeableStatistic):
    """The sum of the values of an integer column, computed slowly."""

    name = "slow_sum"
    revision = "1"
    types = ("int64",)
    state = pa.int64()
    result = pa.int64()

    def initial(self) -> int:
        return 0

    def update(self, state: int, values: pa.Array, counts: pa.Array) -> int:
        _at("update")
        total: Any = pc.sum(pc.multiply(values, counts)).as_py()
        return state + (total or 0)

    def merge(self, one: int, other: int) -> int:
        _at("merge")
        return one + other

    def finalize(self, state: int) -> int:
        return state
