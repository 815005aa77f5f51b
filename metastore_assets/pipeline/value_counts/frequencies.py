"""Sums of frequencies of any size: in this process if they are short, else on Spark.

Terms have signs. Therefore the same function sums all profiles, or updates an earlier sum by added and removed ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby

from metastore_assets.pipeline.engine import Engine
from metastore_assets.pipeline.profile_spec import ProfileSpec
from metastore_assets.pipeline.profiles.files import FrequencyWriter
from metastore_assets.pipeline.profiles.states_reader import StatesReader
from metastore_assets.pipeline.profiles.stored import FrequencyReader
from metastore_assets.pipeline.value_counts.frequency_sums import FrequencySum, R, WriteSums, full_sums, sum_on_spark
from metastore_assets.statistics.frequencies import Frequencies, FrequencySummary, summarize_frequencies
from metastore_assets.statistics.user_defined.finalize import add_frequency_results
from metastore_assets.store.manifest import ProfileFiles
from metastore_assets.store.objects import ObjectStore
from metastore_assets.values.types import type_class


@dataclass
class SummedColumns:
    """The sums of one profile."""

    facts: dict[int, FrequencySummary] = field(default_factory=dict)
    """The frequency summary of each column, by position."""
    files: list[tuple[int, str]] = field(default_factory=list)
    """The first position and the path of each written file."""


@dataclass(frozen=True)
class _Part:
    total: int
    facts: Mapping[int, FrequencySummary]
    file: tuple[int, str]


def sum_columns(
    engine: Engine, store: ObjectStore, folder: str, spec: ProfileSpec, sums: Sequence[FrequencySum]
) -> dict[int, SummedColumns]:
    """Sum frequencies and write them to files. Return the outcomes by profile number.

    Raises:
        CorruptionError: A total is negative: the terms contradict each other.
    """
    outcomes: dict[int, SummedColumns] = {}
    for part in map_sums(engine, store, spec, sums, partial(_write_sums, store, folder, spec)):
        outcome = outcomes.setdefault(part.total, SummedColumns())
        outcome.facts.update(part.facts)
        outcome.files.append(part.file)
    for outcome in outcomes.values():
        outcome.files.sort()
    return outcomes


def map_sums(
    engine: Engine, store: ObjectStore, spec: ProfileSpec, sums: Sequence[FrequencySum], write: WriteSums[R]
) -> list[R]:
    """Return the results of `write` for the full sums of adjacent columns of a profile, or of one range of a column.

    `write` must be picklable: for long frequencies it is called in Spark tasks.

    Raises:
        CorruptionError: A total is negative: the terms contradict each other.
    """
    if not sums:
        return []
    if are_summed_here(engine, sums):
        return _summed_here(store, spec, sums, write)
    return sum_on_spark(engine, store, spec, sums, write)


def are_summed_here(engine: Engine, sums: Sequence[FrequencySum]) -> bool:
    """Return whether the sums need no Spark: they are short, and no column is split into ranges."""
    lists = sum(len(total.positions) * len(total.terms) for total in sums)
    is_cut = any(total.splitters for total in sums)
    return not is_cut and engine.sums_here(lists, sum(total.rows for total in sums))


def sum_column_frequencies(
    store: ObjectStore, spec: ProfileSpec, positions: Sequence[int], profiles: Sequence[ProfileFiles]
) -> dict[int, Frequencies]:
    """Sum the frequencies of some columns over profiles, in this process; return them by position.

    Raises:
        CorruptionError: A profile is damaged.
    """
    one = FrequencySum(0, tuple(positions), tuple((files, 1) for files in profiles), 0)
    (found,) = _summed_here(store, spec, [one], lambda total, lists: dict(lists))
    return found


def _summed_here(store: ObjectStore, spec: ProfileSpec, sums: Sequence[FrequencySum], write: WriteSums[R]) -> list[R]:
    """Sum all frequencies of a column at once: for short ones, partial sums would be most of the work."""
    outcomes = []
    for number, own in groupby(sorted(sums, key=lambda one: one.total), key=lambda one: one.total):
        with ExitStack() as stack:
            opened = stack.enter_context(StatesReader(store))
            columns: list[tuple[int, list[tuple[FrequencyReader, int]]]] = []
            for one in own:
                readers = [(stack.enter_context(FrequencyReader(opened, files)), sign) for files, sign in one.terms]
                columns += [(position, readers) for position in one.positions]
            columns.sort(key=lambda column: column[0])
            lists = ((position, _lists(spec, position, readers)) for position, readers in columns)
            outcomes.append(write(number, full_sums(spec, lists)))
    return outcomes


def _lists(
    spec: ProfileSpec, position: int, readers: Sequence[tuple[FrequencyReader, int]]
) -> list[tuple[Frequencies, int]]:
    leaf, _ = spec.leaves[position]
    found = [(reader.read(leaf.field_id), sign) for reader, sign in readers]
    return [(own, sign) for own, sign in found if own is not None]


def _write_sums(
    store: ObjectStore, folder: str, spec: ProfileSpec, total: int, lists: Iterable[tuple[int, Frequencies]]
) -> _Part:
    """Write full frequencies as one part of the frequencies of a profile."""
    facts: dict[int, FrequencySummary] = {}
    with FrequencyWriter(store, folder, spec) as writer:
        for position, whole in lists:
            leaf, policy = spec.leaves[position]
            facts[position] = add_frequency_results(summarize_frequencies(whole), policy, type_class(leaf.type), whole)
            writer.add(leaf.path, leaf.field_id, whole)
    return _Part(total, facts, (min(facts), writer.path))
