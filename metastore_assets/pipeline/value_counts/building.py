"""Building of a table's value counts from scratch, from stored profiles that cover the table.

A profile is the statistics of a set of rows. A column is counted by one task (algorithm `counts`), or by a task for
each range of its values (`ranges`). Both algorithms produce the same rows. A profile spec says which statistics a
profile has.

Rows are written as runs: sorted, immutable Parquet files. Each stage stores the value counts in another order or
grouping. The type class of a column names the physical type of its values, and each class has its own stages. The
stages together are a dataflow, which passes changes from stage to stage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from metastore_assets.config import ResolvedPolicy
from metastore_assets.pipeline.engine import Engine
from metastore_assets.pipeline.profile_spec import ProfileSpec
from metastore_assets.pipeline.value_counts import ranges
from metastore_assets.pipeline.value_counts.deltas import CountSource
from metastore_assets.pipeline.value_counts.frequencies import is_local_sum, map_sums
from metastore_assets.pipeline.value_counts.frequency_sums import FrequencySum
from metastore_assets.pipeline.value_counts.runs import write_runs
from metastore_assets.produce import Dataflow
from metastore_assets.produce.runs import Run
from metastore_assets.store.objects import ObjectStore
from metastore_assets.value_counts import Built
from metastore_assets.value_counts.graph import FREQUENCIES, FREQUENCY_COUNTS, VALUES, stage_name
from metastore_assets.value_counts.state import Where


@dataclass(frozen=True)
class BuiltValueCounts:
    """The new files (runs) of each stage of the dataflow, and how each column was counted."""

    runs: Mapping[str, Sequence[Run]]
    """Runs by name of the stage, in key order."""
    built: Mapping[str, Built]
    """How each column was built, by field id."""


def build_value_counts(
    engine: Engine,
    store: ObjectStore,
    flow: Dataflow,
    spec: ProfileSpec,
    source: CountSource,
) -> BuiltValueCounts:
    """Build the value counts of columns from stored profiles, and write their files.

    Args:
        engine: Runs the sums, on Spark or in this process.
        store: The folder of the table.
        flow: The dataflow of the value counts. It provides the writers of its stages.
        spec: The profile spec of the table.
        source: The columns to build, and the profiles that they are built from.

    Raises:
        CorruptionError: A profile is damaged.
    """
    columns, distinct = source.columns, source.distinct_counts
    profiles = [profile.files for profile in source.profiles()]
    # Columns are in key order, so that adjacent columns share a run.
    counted_columns = sorted(
        ((column, policy) for column, policy in spec.columns if column.field_id in columns),
        key=lambda item: (columns[item[0].field_id], item[0].field_id.encode()),
    )
    spec = ProfileSpec("", {}, tuple(counted_columns), {})
    range_counts = {
        column.field_id: ranges.count_ranges(distinct.get(column.field_id, 0), engine.slots())
        for column, policy in counted_columns
        if _has_ranges(policy, distinct.get(column.field_id, 0))
    }
    splitters = ranges.find_splitters(engine, store, profiles, range_counts) if range_counts else {}
    by_position = {
        at: splitters[column.field_id]
        for at, (column, _) in enumerate(counted_columns)
        if column.field_id in range_counts
    }
    terms = tuple((files, 1) for files in sorted(profiles, key=lambda files: files.states))
    values = sum(distinct.values()) or source.row_count
    sums = [FrequencySum(0, tuple(range(len(counted_columns))), terms, values, by_position)]
    loaders = {
        stage_name(kind, name): flow.loader(stage_name(kind, name))
        for name in set(columns.values())
        for kind in (VALUES, FREQUENCIES, FREQUENCY_COUNTS)
    }
    results = map_sums(engine, store, spec, sums, partial(write_runs, spec, columns, loaders))
    runs = {name: [run for result in results for run in result.get(name, ())] for name in loaders}
    # Ranges of values overlap in stages that are sorted by frequency.
    overlapping = {
        stage_name(kind, columns[field_id]) for kind in (FREQUENCIES, FREQUENCY_COUNTS) for field_id in range_counts
    }
    ordered_runs = {
        name: loader.merge_overlapping(runs[name]) if name in overlapping else loader.in_order(runs[name])
        for name, loader in loaders.items()
    }
    store.delete(sorted(run.path for name in overlapping for run in runs[name]))
    where: Where = "here" if is_local_sum(engine, sums) else "spark"
    builds = {
        column.field_id: Built(
            "ranges" if column.field_id in range_counts else "counts",
            where,
            distinct.get(column.field_id),
            len(profiles),
        )
        for column, _ in counted_columns
    }
    return BuiltValueCounts(ordered_runs, builds)


def _has_ranges(policy: ResolvedPolicy, distinct: int) -> bool:
    """Return whether the values of a column are divided into ranges, each of which is counted alone.

    The policy's `algorithm` decides: always for `ranges`, never for `counts`. Otherwise, columns with many distinct
    values are divided.

    Args:
        policy: The column's policy.
        distinct: Approximate number of its distinct values.
    """
    return policy.algorithm == "ranges" or (policy.algorithm != "counts" and distinct > ranges.MAX_UNSPLIT_VALUES)
