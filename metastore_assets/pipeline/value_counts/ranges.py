"""Splitters: values that split the value counts of a column into ranges of about equal length, one per task.

Algorithm 3 of three for frequencies: with many repeated values, no task has to hold a whole column.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from metastore_assets.pipeline.engine import Engine
from metastore_assets.pipeline.profiles.states_reader import StatesReader
from metastore_assets.pipeline.profiles.stored import FrequencyReader
from metastore_assets.statistics.frequencies import Frequencies, sum_frequencies
from metastore_assets.store.manifest import ProfileFiles
from metastore_assets.store.objects import ObjectStore

LONG = 8_000_000
"""The number of distinct values above which a column is split into ranges."""
_ROWS_PER_RANGE = 4_000_000
_MOST_RANGES = 4096
_SAMPLED = 64
"""The approximate number of profiles that are sampled."""
_PER_LIST = 256
"""The maximum number of values sampled from each profile. Ranges then differ in length by a few percent."""


def count_ranges(distinct: int, slots: int) -> int:
    """Return the number of ranges for about `distinct` values; at least the number of concurrent tasks."""
    return min(_MOST_RANGES, max(slots, distinct // _ROWS_PER_RANGE + 1))


@dataclass(frozen=True)
class _Task:
    files: ProfileFiles
    columns: tuple[str, ...]


def find_splitters(
    engine: Engine, store: ObjectStore, profiles: Sequence[ProfileFiles], ranges: Mapping[str, int]
) -> dict[str, pa.Array]:
    """Return the last value of each range except the last range, by field id.

    Values are ascending and distinct; there are fewer if the column has few values. Samples profiles in one Spark job.
    """
    step = max(1, len(profiles) // _SAMPLED)
    tasks = [_Task(files, tuple(ranges)) for files in profiles[step // 2 :: step]]
    samples = engine.spark_runner.map(partial(_sampled, store), tasks)
    found = {}
    for column, number in ranges.items():
        whole = sum_frequencies((own[column], 1) for own in samples if column in own)
        ends = np.cumsum(whole.counts.to_numpy())
        total = int(ends[-1]) if len(ends) else 0
        places = np.searchsorted(ends, [total * at // number for at in range(1, number)])
        found[column] = whole.values.take(pa.array(np.unique(places[places < len(ends) - 1])))
    return found


def _sampled(store: ObjectStore, task: _Task) -> dict[str, Frequencies]:
    """Return evenly spaced values of each column. The frequency of each is the number of values that it represents."""
    found = {}
    with StatesReader(store) as opened, FrequencyReader(opened, task.files) as reader:
        for column in task.columns:
            own = reader.read(column)
            if own is not None and len(own):
                each = -(-len(own) // _PER_LIST)
                values = own.values.take(pa.array(np.arange(each // 2, len(own), each)))
                found[column] = Frequencies(values, pa.array(np.full(len(values), each, np.int64)))
    return found
