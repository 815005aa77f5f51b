"""How many distinct values are among how many, as far as profiles tell: it decides whether columns are listed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial

from metastore_assets.pipeline.engine import Engine
from metastore_assets.pipeline.profiles.states_reader import StatesReader, sound
from metastore_assets.pipeline.profiles.stored import COUNTS, read_sketches
from metastore_assets.statistics.distinct import distinct_sketch, estimate_distinct, merge_distinct_sketches
from metastore_assets.statistics.hashing import hash_values
from metastore_assets.store.manifest import FragmentEntry, ProfileFiles, Version
from metastore_assets.store.objects import ObjectStore
from metastore_assets.value_counts import ListReader, read_lists
from metastore_assets.values.types import class_named

AT_ONCE = 16
"""Profiles that are looked at by one task."""


@dataclass(frozen=True)
class CardinalityEstimate:
    """What decides, of one column over some fragments."""

    type_class: str | None
    values: int
    distinct: int
    """About how many distinct values there are."""
    sketch: bytes | None = None
    """Of the distinct values, where it was read."""
    unlisted: bool = False
    """Whether the values of one of the fragments were not worth listing."""


NOTHING = CardinalityEstimate(None, 0, 0)


def estimate_cardinality(
    engine: Engine, store: ObjectStore, leaves: Set[str], entries: Sequence[FragmentEntry]
) -> dict[str, CardinalityEstimate]:
    """By field id of some columns, what the profiles of some fragments say together, with a sketch."""
    look = partial(_look, store, frozenset(leaves))
    entries = sorted(entries, key=lambda entry: entry.files.states)  # who shares a file is looked at together
    lots = [entries[start : start + AT_ONCE] for start in range(0, len(entries), AT_ONCE)]
    return _merged(engine.merge(look, lots, [len(leaves) * len(lot) for lot in lots]))


def _look(
    store: ObjectStore, leaves: frozenset[str], entries: Sequence[FragmentEntry]
) -> dict[str, CardinalityEstimate]:
    """What the profiles of some fragments say. Runs in a worker process."""
    found = []
    with StatesReader(store) as opened:
        for entry in entries:
            read = _read(opened, entry.files, leaves)
            found.append({leaf: replace(own, unlisted=leaf in entry.unlisted) for leaf, own in read.items()})
    return _merged(found)


def _read(opened: StatesReader, files: ProfileFiles, leaves: frozenset[str]) -> dict[str, CardinalityEstimate]:
    return {
        leaf: CardinalityEstimate(cls, values, 0 if sketch is None else estimate_distinct(sketch), sketch)
        for leaf, (cls, values, sketch) in read_sketches(opened, files, leaves).items()
    }


def _merged(found: Iterable[Mapping[str, CardinalityEstimate]]) -> dict[str, CardinalityEstimate]:
    by_leaf: dict[str, list[CardinalityEstimate]] = {}
    for one in found:
        for leaf, own in one.items():
            by_leaf.setdefault(leaf, []).append(own)
    return {leaf: together(own) for leaf, own in by_leaf.items()}


def together(parts: Sequence[CardinalityEstimate]) -> CardinalityEstimate:
    """The evidence of several, by their sketches."""
    sketches = [part.sketch for part in parts if part.sketch is not None]
    sketch = merge_distinct_sketches(sketches) if sketches else None
    return CardinalityEstimate(
        next((part.type_class for part in parts if part.type_class is not None), None),
        sum(part.values for part in parts),
        0 if sketch is None else estimate_distinct(sketch),
        sketch,
        any(part.unlisted for part in parts),
    )


def with_sketch(store: ObjectStore, base: Version, field_id: str, told: CardinalityEstimate) -> CardinalityEstimate:
    """What the table's list of a column tells, where it has one."""
    lists = read_lists(store, base.lists)
    if field_id not in lists.columns:
        return told
    name = lists.columns[field_id]
    values = ListReader(store, lists).frequencies(field_id, name).values
    sketch = distinct_sketch(hash_values(values, class_named(name))[0])
    return replace(told, distinct=estimate_distinct(sketch), sketch=sketch)


def table_cardinality(store: ObjectStore, files: ProfileFiles) -> dict[str, CardinalityEstimate]:
    """What the statistics of a table say, by field id, without sketches."""
    with sound(store, files.statistics):
        table = store.read_parquet(files.statistics, COUNTS)
        rows = zip(*(table[name].to_pylist() for name in COUNTS), strict=True)
        return {field_id: CardinalityEstimate(cls, values, distinct or 0) for field_id, cls, values, distinct in rows}
