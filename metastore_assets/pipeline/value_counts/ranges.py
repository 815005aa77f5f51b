"""Division of a column's values into ranges of about equal size, so that no task reads all values.

Splitters separate the ranges: each range except the last one ends with a splitter, inclusive. Splitters are chosen from
a sample of the values. The sample is read from profiles: stored statistics of parts of the table.
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
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.version import ProfileFiles

MAX_UNSPLIT_VALUES = 8_000_000
"""A column with more distinct values is split into ranges."""
_ROWS_PER_RANGE = 4_000_000
_MAX_RANGES = 4096
_SAMPLED_PROFILES = 64
"""The approximate number of profiles that are sampled."""
_SAMPLES_PER_PROFILE = 256
"""Maximum number of values sampled from each profile. Ranges then differ in length by a few percent."""


def count_ranges(distinct: int, slots: int) -> int:
    """Return the number of ranges into which a column is split.

    The number is at least `slots`, unless `slots` is greater than the maximum `_MAX_RANGES`.

    Args:
        distinct: The approximate number of distinct values.
        slots: The number of concurrent tasks.
    """
    return min(_MAX_RANGES, max(slots, distinct // _ROWS_PER_RANGE + 1))


@dataclass(frozen=True)
class _SampleTask:
    """A profile to sample, and the columns whose values are sampled."""

    files: ProfileFiles
    columns: tuple[str, ...]


def find_splitters(
    engine: Engine, store: ObjectStore, profiles: Sequence[ProfileFiles], ranges: Mapping[str, int]
) -> dict[str, pa.Array]:
    """Return {field id: ascending splitters of the column}, from samples of the profiles.

    The splitters divide the values of a column into the requested number of ranges. A column with few distinct values
    may get fewer ranges.

    Args:
        engine: Samples the profiles in one Spark job.
        store: The folder of the table.
        profiles: Profiles whose value counts sum to those of the table.
        ranges: The number of ranges of each column, by field id.
    """
    step = max(1, len(profiles) // _SAMPLED_PROFILES)
    tasks = [_SampleTask(files, tuple(ranges)) for files in profiles[step // 2 :: step]]
    samples = engine.spark_runner.map(partial(_sample, store), tasks)
    splitters = {}
    for column, count in ranges.items():
        total = sum_frequencies((sample[column], 1) for sample in samples if column in sample)
        ends = np.cumsum(total.counts.to_numpy())
        row_count = int(ends[-1]) if len(ends) else 0
        positions = np.searchsorted(ends, [row_count * at // count for at in range(1, count)])
        splitters[column] = total.values.take(pa.array(np.unique(positions[positions < len(ends) - 1])))
    return splitters


def _sample(store: ObjectStore, task: _SampleTask) -> dict[str, Frequencies]:
    """Return {field id: evenly spaced values of the column}.

    The frequency of a sampled value is the number of distinct values that it stands for.
    """
    samples = {}
    with StatesReader(store) as states_reader, FrequencyReader(states_reader, task.files) as reader:
        for column in task.columns:
            frequencies = reader.read(column)
            if frequencies is not None and len(frequencies):
                weight = -(-len(frequencies) // _SAMPLES_PER_PROFILE)
                values = frequencies.values.take(pa.array(np.arange(weight // 2, len(frequencies), weight)))
                samples[column] = Frequencies(values, pa.array(np.full(len(values), weight, np.int64)))
    return samples
