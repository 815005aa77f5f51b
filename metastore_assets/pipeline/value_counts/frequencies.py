"""Sums of the value frequencies of columns over profiles, computed in this process or on Spark.

Spark computes long sums, which read many values or many column profiles. This process computes the others.

Each profile has a sign: 1 to add its frequencies, -1 to subtract them. So an earlier sum can be updated by the profiles
that were added and removed.

A profile is the statistics of a data file, a partition or the table, and a profile spec says which statistics it has.
A merged profile is made from other profiles: that of a partition from those of its data files, for example.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from operator import attrgetter

from metastore_assets.pipeline.engine import Engine
from metastore_assets.pipeline.profile_spec import ProfileSpec
from metastore_assets.pipeline.profiles.files import FrequencyWriter
from metastore_assets.pipeline.profiles.states_reader import StatesReader
from metastore_assets.pipeline.profiles.stored import FrequencyReader
from metastore_assets.pipeline.value_counts.frequency_sums import FrequencySum, R, WriteSums, full_sums, sum_on_spark
from metastore_assets.statistics.frequencies import Frequencies, FrequencySummary, summarize_frequencies
from metastore_assets.statistics.user_defined.finalize import add_frequency_results
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.version import ProfileFiles
from metastore_assets.values.types import type_class


@dataclass
class SummedColumns:
    """The summed frequencies of one merged profile.

    It has a summary of each column, and the files with the values and their counts.
    """

    summaries: dict[int, FrequencySummary] = field(default_factory=dict)
    """The frequency summary of each column, by position in the profile spec."""
    files: list[tuple[int, str]] = field(default_factory=list)
    """(position of the first column, path) of each written file."""


@dataclass(frozen=True)
class _Part:
    """The summed frequencies of some columns of a profile, written to one file."""

    profile_number: int
    """Number of the merged profile (`FrequencySum.profile_number`)."""
    summaries: Mapping[int, FrequencySummary]
    """The frequency summary of each column, by position in the profile spec."""
    file: tuple[int, str]
    """(position of the first column, path) of the file."""


def sum_columns(
    engine: Engine, store: ObjectStore, folder: str, spec: ProfileSpec, sums: Sequence[FrequencySum]
) -> dict[int, SummedColumns]:
    """Sum frequencies and write them to files.

    Return the summaries and files of each merged profile.

    The keys of the result are the numbers of the merged profiles (`FrequencySum.profile_number`).

    Args:
        engine: Runs long sums on Spark.
        store: The folder of the table.
        folder: The folder of the files, relative to the table's folder.
        spec: The profile spec of the merged profiles.
        sums: The columns to sum, and the profiles to sum them from.

    Raises:
        CorruptionError: A profile is damaged, or profiles contradict each other: a summed frequency is negative.
    """
    outcomes: dict[int, SummedColumns] = {}
    for part in map_sums(engine, store, spec, sums, partial(_write_sums, store, folder, spec)):
        outcome = outcomes.setdefault(part.profile_number, SummedColumns())
        outcome.summaries.update(part.summaries)
        outcome.files.append(part.file)
    for outcome in outcomes.values():
        outcome.files.sort()
    return outcomes


def map_sums(
    engine: Engine, store: ObjectStore, spec: ProfileSpec, sums: Sequence[FrequencySum], write: WriteSums[R]
) -> list[R]:
    """Sum frequencies, pass each group of summed columns to `write`, and return the results of `write`.

    A group has adjacent columns of one merged profile, or one range of the values of a column.

    Args:
        engine: Runs long sums on Spark.
        store: The folder of the table.
        spec: The profile spec of the summed profiles.
        sums: The columns to sum, and the profiles to sum them from.
        write: Writes one group. Must be picklable, because Spark tasks call it for long sums.

    Raises:
        CorruptionError: A profile is damaged, or profiles contradict each other: a summed frequency is negative.
    """
    if not sums:
        return []
    if is_local_sum(engine, sums):
        return _sum_locally(store, spec, sums, write)
    return sum_on_spark(engine, store, spec, sums, write)


def is_local_sum(engine: Engine, sums: Sequence[FrequencySum]) -> bool:
    """Return whether these sums are computed in this process.

    If not, all of them are computed on Spark.

    Spark is used if the sums read many values or many column profiles. It is also used if any sum splits the values of
    a column into ranges, which are summed separately.
    """
    reads = sum(len(part.positions) * len(part.terms) for part in sums)
    has_ranges = any(part.splitters for part in sums)
    return not has_ranges and engine.sums_here(reads, sum(part.rows for part in sums))


def sum_column_frequencies(
    store: ObjectStore, spec: ProfileSpec, positions: Sequence[int], profiles: Sequence[ProfileFiles]
) -> dict[int, Frequencies]:
    """Return {position of the column: frequencies summed over profiles}, computed in this process.

    Args:
        store: The folder of the table.
        spec: The profile spec.
        positions: The positions of the columns in the spec.
        profiles: The profiles to add up.

    Raises:
        CorruptionError: A profile is damaged.
    """
    total = FrequencySum(0, tuple(positions), tuple((files, 1) for files in profiles), 0)
    (frequencies,) = _sum_locally(store, spec, [total], lambda number, columns: dict(columns))
    return frequencies


def _sum_locally(store: ObjectStore, spec: ProfileSpec, sums: Sequence[FrequencySum], write: WriteSums[R]) -> list[R]:
    """Sum frequencies in this process, and pass them to `write`.

    Return the results of `write`.

    Args:
        store: The store of the profiles.
        spec: The profile spec of the merged profiles.
        sums: For each merged profile, the profiles to add or subtract, and the columns.
        write: Writes the sums of one merged profile. It is called once per merged profile, in the order of
            `FrequencySum.profile_number`.
    """
    results = []
    by_profile = attrgetter("profile_number")
    for number, group in groupby(sorted(sums, key=by_profile), key=by_profile):
        with ExitStack() as stack:
            states_reader = stack.enter_context(StatesReader(store))
            columns: list[tuple[int, list[tuple[FrequencyReader, int]]]] = []
            for part in group:
                readers = [
                    (stack.enter_context(FrequencyReader(states_reader, files)), sign) for files, sign in part.terms
                ]
                columns += [(position, readers) for position in part.positions]
            columns.sort(key=lambda column: column[0])
            columns_sums = ((position, _column_frequencies(spec, position, readers)) for position, readers in columns)
            results.append(write(number, full_sums(spec, columns_sums)))
    return results


def _column_frequencies(
    spec: ProfileSpec, position: int, readers: Sequence[tuple[FrequencyReader, int]]
) -> list[tuple[Frequencies, int]]:
    column, _ = spec.columns[position]
    terms = [(reader.read(column.field_id), sign) for reader, sign in readers]
    return [(frequencies, sign) for frequencies, sign in terms if frequencies is not None]


def _write_sums(
    store: ObjectStore, folder: str, spec: ProfileSpec, profile_number: int, columns: Iterable[tuple[int, Frequencies]]
) -> _Part:
    """Write the summed frequencies of some columns of a profile to one file.

    Return the file and a summary per column.

    Args:
        store: The folder of the table.
        folder: The folder of the file, relative to the table's folder.
        spec: The profile spec of the profile.
        profile_number: The number that identifies the merged profile in the sums (`FrequencySum.profile_number`).
        columns: (position in the profile spec, summed frequencies) of each column.
    """
    summaries: dict[int, FrequencySummary] = {}
    with FrequencyWriter(store, folder, spec) as writer:
        for position, frequencies in columns:
            column, policy = spec.columns[position]
            summaries[position] = add_frequency_results(
                summarize_frequencies(frequencies), policy, type_class(column.type), frequencies
            )
            writer.add(column.path, column.field_id, frequencies)
    return _Part(profile_number, summaries, (min(summaries), writer.path))
