"""Estimates of the numbers of values and of distinct values of columns.

They decide whether a column is enumerated: stored as value counts, which are all distinct values with their
frequencies. A fragment is a data file with its deletes, and its profile is its statistics.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial

from metastore_assets.batching import batched
from metastore_assets.pipeline.engine import Engine
from metastore_assets.pipeline.profiles.states_reader import StatesReader, corruption_guard
from metastore_assets.pipeline.profiles.stored import COUNT_COLUMNS, read_sketches
from metastore_assets.statistics.distinct import distinct_sketch, estimate_distinct, merge_distinct_sketches
from metastore_assets.statistics.hashing import hash_values
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.version import FragmentEntry, ProfileFiles, Version
from metastore_assets.value_counts import ValueCountReader, read_value_counts
from metastore_assets.values.types import class_named

PROFILES_PER_TASK = 16


@dataclass(frozen=True)
class CardinalityEstimate:
    """The estimated numbers of values and of distinct values of one column in some fragments."""

    type_class: str | None
    """Name of the type class of the values; None if there are no values."""
    values: int
    distinct: int
    """Estimated number of distinct values."""
    sketch: bytes | None = None
    """Mergeable sketch of the distinct values; None if it was not read."""
    not_enumerated: bool = False
    """Whether a fragment has no value counts of the column, because its values hardly repeat."""


UNKNOWN = CardinalityEstimate(None, 0, 0)


def estimate_cardinality(
    engine: Engine, store: ObjectStore, field_ids: Set[str], fragments: Sequence[FragmentEntry]
) -> dict[str, CardinalityEstimate]:
    """Return estimates of columns over some fragments, from merged sketches of their profiles.

    Args:
        engine: The engine that reads the profiles.
        store: The table's folder.
        field_ids: Field ids of the columns.
        fragments: The fragments.

    Returns:
        {field id: estimate with its sketch}. Columns that no profile has are missing.
    """
    read = partial(_read_estimates, store, frozenset(field_ids))
    entries = sorted(fragments, key=lambda entry: entry.files.states)  # Profiles of one file are read by one task.
    tasks = list(batched(entries, PROFILES_PER_TASK))
    return _merge_by_column(engine.merge(read, tasks, [len(field_ids) * len(task) for task in tasks]))


def _read_estimates(
    store: ObjectStore, field_ids: frozenset[str], fragments: Sequence[FragmentEntry]
) -> dict[str, CardinalityEstimate]:
    """Return {field id: estimate} over some fragments.

    May run in a worker process.
    """
    estimates = []
    with StatesReader(store) as reader:
        for entry in fragments:
            sketches = read_sketches(reader, entry.files, field_ids)
            estimates.append(
                {
                    field_id: CardinalityEstimate(
                        type_class,
                        values,
                        0 if sketch is None else estimate_distinct(sketch),
                        sketch,
                        not_enumerated=field_id in entry.not_enumerated,
                    )
                    for field_id, (type_class, values, sketch) in sketches.items()
                }
            )
    return _merge_by_column(estimates)


def _merge_by_column(parts: Iterable[Mapping[str, CardinalityEstimate]]) -> dict[str, CardinalityEstimate]:
    by_column: dict[str, list[CardinalityEstimate]] = {}
    for part in parts:
        for field_id, estimate in part.items():
            by_column.setdefault(field_id, []).append(estimate)
    return {field_id: merge_estimates(estimates) for field_id, estimates in by_column.items()}


def merge_estimates(estimates: Sequence[CardinalityEstimate]) -> CardinalityEstimate:
    """Merge estimates of one column.

    Estimates without a sketch add no distinct values.
    """
    sketches = [estimate.sketch for estimate in estimates if estimate.sketch is not None]
    sketch = merge_distinct_sketches(sketches) if sketches else None
    return CardinalityEstimate(
        next((estimate.type_class for estimate in estimates if estimate.type_class is not None), None),
        sum(estimate.values for estimate in estimates),
        0 if sketch is None else estimate_distinct(sketch),
        sketch,
        any(estimate.not_enumerated for estimate in estimates),
    )


def with_sketch(store: ObjectStore, base: Version, field_id: str, estimate: CardinalityEstimate) -> CardinalityEstimate:
    """Return an estimate with a sketch made from the column's published value counts.

    The estimate is returned unchanged if the published version has no value counts of the column.

    Args:
        store: The table's folder.
        base: The published version.
        field_id: The column.
        estimate: The column's estimate from the table's statistics.
    """
    value_counts = read_value_counts(store, base.value_counts)
    if field_id not in value_counts.columns:
        return estimate
    class_name = value_counts.columns[field_id]
    values = ValueCountReader(store, value_counts).frequencies(field_id, class_name).values
    sketch = distinct_sketch(hash_values(values, class_named(class_name))[0])
    return replace(estimate, distinct=estimate_distinct(sketch), sketch=sketch)


def table_cardinality(store: ObjectStore, files: ProfileFiles) -> dict[str, CardinalityEstimate]:
    """Return {field id: estimate} for all columns, from the table's statistics.

    `sketch` of each estimate is None.

    Args:
        store: The table's folder.
        files: The table's profile.

    Raises:
        CorruptionError: The statistics are damaged.
    """
    with corruption_guard(store, files.statistics):
        table = store.read_parquet(files.statistics, COUNT_COLUMNS)
        rows = zip(*(table[name].to_pylist() for name in COUNT_COLUMNS), strict=True)
        return {
            field_id: CardinalityEstimate(class_name, values, distinct or 0)
            for field_id, class_name, values, distinct in rows
        }
