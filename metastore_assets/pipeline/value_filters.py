"""Update of the published value filters of a table's fragments to those of the next version.

A fragment is a data file with its deletes, and its profile is its statistics. A value filter is a set of hash prefixes
of a column's values in one fragment. It shows which values the fragment does not contain. The type class of a column
names the physical type of its values, such as `int64`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa

from metastore_assets.batching import batched
from metastore_assets.index.value_filters import ValueFilterReader, ValueFilters, update_value_filters
from metastore_assets.pipeline.engine import Engine
from metastore_assets.pipeline.profile_spec import ProfileSpec
from metastore_assets.pipeline.profiles.states_reader import StatesReader, corruption_guard
from metastore_assets.pipeline.profiles.stored import FrequencyReader
from metastore_assets.statistics.value_filter import build_filter_of_frequencies, parse_filters
from metastore_assets.store.entry_changes import EntryChanges, changed_entries
from metastore_assets.store.merged_set import PlannedUpdate
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.segments import KeyChanges
from metastore_assets.store.version import FragmentEntry, ProfileFiles, ValueFilterFiles

_PROFILES_PER_TASK = 64
_BATCH_FRAGMENTS = 512
"""Number of fragments whose filters are in memory at once."""


def filtered_columns(spec: ProfileSpec) -> tuple[str, ...]:
    """Return the field ids of the columns that have value filters, in table order."""
    typed_ids = spec.typed_ids
    return tuple(
        column.field_id for column, policy in spec.columns if policy.has_value_filter and column.field_id in typed_ids
    )


def plan_value_filters(
    engine: Engine,
    store: ObjectStore,
    columns: tuple[str, ...],
    base: ValueFilterFiles | None,
    fragments: EntryChanges[FragmentEntry],
) -> PlannedUpdate[ValueFilterFiles | None]:
    """Return the update that makes the next value filters from the published ones.

    The filters of all fragments are read again if no filters are published, or if the published filters are of other
    columns.

    `write` of the update returns None if `columns` is empty. It raises CorruptionError if a stored profile, or a
    published filter, is damaged.

    Args:
        engine: The engine that reads profiles.
        store: The table's folder.
        columns: Field ids of the columns with value filters.
        base: The published filters; None if there are none.
        fragments: The fragments of the next version, as changes of the published ones.
    """
    if not columns:
        return PlannedUpdate(0, lambda may_merge: None)
    if base is not None and base.columns != columns:
        base = None  # Rebuilt from all profiles, so that no filter of a removed column remains.
    before, after = changed_entries(fragments, is_rebuilt=base is None)
    before_names, after_names = ({entry.key: entry.files.name for entry in entries} for entries in (before, after))
    changes = KeyChanges.between(before_names, after_names, len(fragments))
    stored_files = base.files if base else None

    def write(may_merge: bool) -> ValueFilterFiles:
        batches = read_filters(engine, store, columns, [entry for entry in after if entry.key in changes.added_keys])
        written_files = update_value_filters(store, stored_files, replace(changes, may_merge=may_merge), batches)
        return ValueFilterFiles(written_files, columns)

    return PlannedUpdate(changes.key_count, write)


def read_filters(
    engine: Engine, store: ObjectStore, columns: Sequence[str], fragments: Sequence[FragmentEntry]
) -> Iterator[ValueFilters]:
    """Yield the value filters of fragments in batches, in the order of the paths of their profiles.

    Filters that a profile does not store are built from its value counts.

    Args:
        engine: The engine. It reads many profiles in Spark tasks.
        store: The table's folder.
        columns: Field ids of the columns with value filters.
        fragments: The fragments, in any order.

    Raises:
        CorruptionError: A stored profile is damaged.
    """
    entries = sorted(fragments, key=lambda entry: (entry.files.states or entry.files.statistics, entry.files.name))
    for batch in batched(entries, _BATCH_FRAGMENTS):
        tasks = list(batched([entry.files for entry in batch], _PROFILES_PER_TASK))
        weights = [len(task) * len(columns) for task in tasks]
        filters_by_profile = {
            name: filters
            for result in engine.merge(partial(_read_profiles, store, columns), tasks, weights)
            for name, filters in result.items()
        }
        by_column = {}
        for at, field_id in enumerate(columns):
            filters = [filters_by_profile[entry.files.name][at] for entry in batch]
            classes = pa.array(
                [None if stored_filter is None else stored_filter[0] for stored_filter in filters], pa.string()
            )
            with corruption_guard(store, batch[0].files.states or batch[0].files.statistics):
                parsed_filters = parse_filters(
                    [None if stored_filter is None else stored_filter[1] for stored_filter in filters]
                )
            by_column[field_id] = classes, parsed_filters
        yield ValueFilters(pa.array([entry.key for entry in batch], pa.large_string()), by_column)


def _read_profiles(
    store: ObjectStore, columns: Sequence[str], profiles: Sequence[ProfileFiles]
) -> dict[str, list[tuple[str, bytes] | None]]:
    """Return {`ProfileFiles.name`: filters of the profile, in the order of `columns`}.

    A filter is (type class, encoded filter). It is None if the profile has no filter of the column, and none can be
    built from value counts.
    """
    with StatesReader(store) as reader:
        return {files.name: [_read_filter(reader, files, field_id) for field_id in columns] for files in profiles}


def _read_filter(reader: StatesReader, files: ProfileFiles, field_id: str) -> tuple[str, bytes] | None:
    """Return (type class of the values, encoded filter) of a column in a profile.

    If the profile stores no filter of the column, the filter is built from the column's value counts. Returns None if
    there are no value counts either, or if the column has no values.
    """
    if files.is_states_only and (stored_filter := reader.read_filter(files, field_id)) is not None:
        return stored_filter
    with FrequencyReader(reader, files) as frequency_reader:
        frequencies = frequency_reader.read(field_id)
    if frequencies is None or (built_filter := build_filter_of_frequencies(frequencies)) is None:
        return None
    return frequencies.type_class.name, built_filter


def find_wrong_filters(
    engine: Engine,
    store: ObjectStore,
    scratch: ObjectStore,
    value_filters: ValueFilterFiles,
    recomputed_entries: Mapping[str, FragmentEntry],
) -> Iterator[tuple[str, str]]:
    """Yield (fragment key, field id) wherever the stored filter differs from the recomputed one.

    Filters also differ if one of the two is missing.

    Args:
        engine: The engine that reads profiles.
        store: The table's folder.
        scratch: The folder of the recomputed profiles.
        value_filters: The stored filters.
        recomputed_entries: The entry of each fragment's recomputed profile, by key of the fragment (see
            `fragment_key`).

    Raises:
        CorruptionError: A file is damaged.
    """
    reader = ValueFilterReader(store, value_filters.files)
    stored_filters = {field_id: reader.filters(field_id) for field_id in value_filters.columns}
    keys_by_profile = {entry.key: key for key, entry in recomputed_entries.items()}
    for batch in read_filters(engine, scratch, value_filters.columns, list(recomputed_entries.values())):
        keys = [keys_by_profile[key] for key in batch.keys.to_pylist()]
        for field_id, (classes, filters) in batch.columns.items():
            positions, prefixes = filters.prefixes()
            rows = zip(keys, classes.to_pylist(), filters.bits.tolist(), strict=True)
            for at, (key, class_name, bits) in enumerate(rows):
                stored_filter = stored_filters[field_id].get(key)
                if (stored_filter is None) != (class_name is None) or (
                    stored_filter is not None
                    and (
                        stored_filter[:2] != (class_name, bits)
                        or not np.array_equal(stored_filter[2], prefixes[positions == at])
                    )
                ):
                    yield key, field_id
