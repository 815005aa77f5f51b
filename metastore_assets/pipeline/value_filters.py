"""Update the value filters of a table's fragments from the published version to the next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from metastore_assets.index.value_filters import ValueFilterReader, ValueFilters, update_value_filters
from metastore_assets.pipeline.engine import Engine
from metastore_assets.pipeline.profile_spec import ProfileSpec
from metastore_assets.pipeline.profiles.states_reader import StatesReader, corruption_guard
from metastore_assets.pipeline.profiles.stored import FrequencyReader
from metastore_assets.statistics.value_filter import build_filter_of_frequencies, parse_filters
from metastore_assets.store.manifest import FragmentEntry, ProfileFiles, ValueFilterFiles, Version
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.segments import KeyChanges

_FILES_PER_TASK = 64
_LOT = 512
"""Fragments whose filters are held at once."""


def filtered_columns(spec: ProfileSpec) -> tuple[str, ...]:
    """Return the field ids of the columns that have value filters, in table order."""
    valued = spec.typed_leaves
    return tuple(leaf.field_id for leaf, policy in spec.leaves if policy.has_value_filter and leaf.field_id in valued)


def update_table_value_filters(
    engine: Engine,
    store: ObjectStore,
    columns: tuple[str, ...],
    base: Version | None,
    fragments: Sequence[FragmentEntry],
) -> ValueFilterFiles | None:
    """Return the value filters of `columns` for the version that will have `fragments`; None if `columns` is empty.

    Filters in `base` are retained. The others are read from the profiles of the new fragments. Raises CorruptionError
    if a stored profile or a filter of `base` is corrupt.
    """
    if not columns:
        return None
    known = base.value_filters if base is not None else None
    if known is not None and known.columns != columns:
        known = None  # nothing of a column that is not wanted any more stays
    before = {entry.files.name: "" for entry in base.fragments if entry.retired is None} if base and known else {}
    changes = KeyChanges.between(before, dict.fromkeys((entry.files.name for entry in fragments), ""))
    added = [entry for entry in fragments if entry.files.name in changes.added]
    batches = read_filters(engine, store, columns, added)
    return ValueFilterFiles(update_value_filters(store, known.files if known else None, changes, batches), columns)


def read_filters(
    engine: Engine, store: ObjectStore, columns: Sequence[str], fragments: Sequence[FragmentEntry]
) -> Iterator[ValueFilters]:
    """The filters of fragments, in lots: as they are kept, or made of lists. Many are read by Spark's tasks."""
    entries = sorted(fragments, key=lambda entry: (entry.files.states or entry.files.statistics, entry.files.name))
    for start in range(0, len(entries), _LOT):
        lot = entries[start : start + _LOT]
        tasks = [
            [entry.files for entry in lot[at : at + _FILES_PER_TASK]] for at in range(0, len(lot), _FILES_PER_TASK)
        ]
        work = [len(task) * len(columns) for task in tasks]
        found = {
            name: own
            for part in engine.merge(partial(_read, store, columns), tasks, work)
            for name, own in part.items()
        }
        told = {}
        for at, field_id in enumerate(columns):
            own = [found[entry.files.name][at] for entry in lot]
            classes = pa.array([None if one is None else one[0] for one in own], pa.string())
            with corruption_guard(store, lot[0].files.states or lot[0].files.statistics):
                told[field_id] = classes, parse_filters([None if one is None else one[1] for one in own])
        yield ValueFilters(pa.array([entry.files.name for entry in lot], pa.string()), told)


def _read(
    store: ObjectStore, columns: Sequence[str], profiles: Sequence[ProfileFiles]
) -> dict[str, list[tuple[str, bytes] | None]]:
    with StatesReader(store) as opened:
        return {files.name: [_filter(opened, files, field_id) for field_id in columns] for files in profiles}


def _filter(opened: StatesReader, files: ProfileFiles, field_id: str) -> tuple[str, bytes] | None:
    if files.is_states_only and (own := opened.read_filter(files, field_id)) is not None:
        return own
    with FrequencyReader(opened, files) as reader:
        listed = reader.read(field_id)
    if listed is None or (made := build_filter_of_frequencies(listed)) is None:
        return None
    return listed.type_class.name, made


def wrong_filters(
    engine: Engine,
    store: ObjectStore,
    scratch: ObjectStore,
    membership: ValueFilterFiles,
    fresh: Sequence[FragmentEntry],
    stored: Mapping[str, tuple[str, str]],
) -> Iterator[tuple[str, str]]:
    """(Name of the fresh profile, field id) where the filter that is kept is not that of the fresh profile.

    `stored` has by the name of a fresh profile that of the stored one. Raises CorruptionError.
    """
    reader = ValueFilterReader(store, membership.files)
    kept = {field_id: reader.filters(field_id) for field_id in membership.columns}
    for lot in read_filters(engine, scratch, membership.columns, fresh):
        for field_id, (classes, cells) in lot.columns.items():
            places, prefixes = cells.prefixes()
            rows = zip(lot.names.to_pylist(), classes.to_pylist(), cells.bits.tolist(), strict=True)
            for at, (name, cls, bits) in enumerate(rows):
                own = kept[field_id].get(stored[name][0])
                if (own is None) != (cls is None) or (
                    own is not None and (own[:2] != (cls, bits) or not np.array_equal(own[2], prefixes[places == at]))
                ):
                    yield name, field_id
