"""Lookup of the values with given fingerprints, in stored value counts or in the files of the table.

A fragment is a data file with its deletes, and its profile is its statistics. A fingerprint is a short hash of a value.
The profile of a fragment has either the value counts or the fingerprints of a fingerprinted column. If it has only
fingerprints, the values are read again from the fragment's file.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import polars as pl
import pyarrow as pa

from metastore_assets.batching import batched
from metastore_assets.errors import CorruptionError, FragmentError, MetastoreError
from metastore_assets.formats.base import Fragment
from metastore_assets.pipeline.engine import Engine
from metastore_assets.pipeline.profiles.states_reader import StatesReader
from metastore_assets.pipeline.profiles.stored import FrequencyReader
from metastore_assets.statistics.fingerprints import (
    EMPTY as NO_FINGERPRINTS,
)
from metastore_assets.statistics.fingerprints import (
    FingerprintCounts,
    Numbers,
    fingerprint_frequencies,
    fingerprint_hashes,
    fingerprint_values,
    narrow_fingerprints,
    sum_fingerprints,
)
from metastore_assets.statistics.frequencies import EMPTY, Frequencies, run_to_frequencies, sum_frequencies
from metastore_assets.statistics.hashing import hash_values
from metastore_assets.statistics.value_runs import concatenate_series, count_values
from metastore_assets.storage.corrupt_input import CORRUPTION_ERRORS, error_reason, is_unsupported
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.version import FragmentEntry, ProfileFiles
from metastore_assets.tasks.runner import limit_arrow_threads
from metastore_assets.value_counts.fingerprinted import partition_location
from metastore_assets.values.columns import split_columns
from metastore_assets.values.physical import canonical_array, physical_series
from metastore_assets.values.types import class_named

_ENTRIES_IN_MEMORY = 10_000
"""Number of entries of fragments that are searched at once."""
_PROFILES_PER_TASK = 16
"""Number of profiles whose fingerprints one task compares."""
_ROWS_PER_WEIGHT = 5_000
"""Number of fingerprints that a task compares in the time of merging the profile of one column."""


@dataclass(frozen=True)
class FingerprintedColumn:
    """A column or nested field that is stored as fingerprints.

    Instances are picklable.
    """

    field_id: str
    path: str
    type_class: str
    field: pa.Field
    """The top-level column that is or contains the column."""
    position: int
    """The position among the columns of `columns_by_field` for the top-level column."""
    bits: int
    is_quiet: bool
    """Whether error messages must not quote values, because a column of the table is hidden."""

    def fingerprints(self, hashes: np.ndarray) -> Numbers:
        """Return the fingerprint of each value, given the first of the two 64-bit hashes of each value."""
        return fingerprint_hashes(hashes, self.bits)

    def narrow(self, fingerprints: FingerprintCounts) -> FingerprintCounts:
        """Shorten stored fingerprints to this column's width, and add up the counts of equal ones."""
        return narrow_fingerprints(fingerprints, self.bits)

    def select_values(self, frequencies: Frequencies, fingerprints: Numbers) -> Frequencies:
        """Return the values that have one of these ascending fingerprints, and their frequencies."""
        if not len(frequencies):
            return frequencies
        mask = pa.array(is_member(fingerprint_values(frequencies, self.bits), fingerprints))
        return Frequencies(frequencies.values.filter(mask), frequencies.counts.filter(mask))


def is_member(candidates: Numbers, fingerprints: Numbers) -> np.ndarray:
    """Return a mask of the candidates that are in the ascending `fingerprints`."""
    if not len(fingerprints):
        return np.zeros(len(candidates), bool)
    positions = np.minimum(np.searchsorted(fingerprints, candidates), len(fingerprints) - 1)
    result: np.ndarray = fingerprints[positions] == candidates
    return result


def read_fingerprints(states_reader: StatesReader, files: ProfileFiles, field_id: str) -> FingerprintCounts:
    """Return the fingerprints of a column in one profile, each with its count.

    If the profile has only value counts of the column, the fingerprints are computed from these. The result is empty if
    the profile has no values of the column.

    Args:
        states_reader: Reads stored fingerprints, and other intermediate statistics of profiles.
        files: The files of the profile.
        field_id: The column.

    Raises:
        CorruptionError: The profile is damaged, or has neither fingerprints nor value counts of the column's values.
    """
    stored_fingerprints = (
        states_reader.read_fingerprints(files, field_id) if files.is_states_only and files.states else None
    )
    if stored_fingerprints is not None:
        return stored_fingerprints
    with FrequencyReader(states_reader, files) as reader:
        frequencies = reader.read(field_id)
    if frequencies is not None:
        return fingerprint_frequencies(frequencies)
    if files.states:
        names = ("field_id", "type_class", "value_count")
        _, states = states_reader.read(files, names)
        for id_, type_class, values in zip(*(states[name].to_pylist() for name in names), strict=True):
            if id_ == field_id and type_class is not None and values:
                raise CorruptionError(
                    f"{states_reader.store.uri(files.states)}: column {field_id!r} has {values:,} values, but neither "
                    "value counts nor fingerprints; rebuild with `metastore refresh NAME --full`"
                )
    return NO_FINGERPRINTS


def sum_stored_fingerprints(
    store: ObjectStore, column: FingerprintedColumn, entries: Iterable[FragmentEntry]
) -> FingerprintCounts:
    """Return the fingerprints of a column, with their counts and locations summed over fragments.

    The location of a row is a short hash of its partition key. A fingerprint has the sum of its rows' locations.

    Args:
        store: The folder of the table.
        column: The column.
        entries: The fragments.

    Raises:
        CorruptionError: A profile is damaged.
    """
    with StatesReader(store) as states_reader:
        return sum_fingerprints(
            column.narrow(read_fingerprints(states_reader, entry.files, column.field_id)).at(
                partition_location(entry.partition_key)
            )
            for entry in entries
        )


def find_values(
    engine: Engine,
    store: ObjectStore,
    column: FingerprintedColumn,
    entries: Iterable[FragmentEntry],
    fingerprints: Numbers,
) -> tuple[list[Frequencies], list[FragmentEntry]]:
    """Find the values with given fingerprints in the stored profiles of fragments.

    Values are found only in profiles with value counts. A profile with fingerprints alone shows whether the fragment
    has such values.

    Args:
        engine: Runs the tasks.
        store: The folder of the table.
        column: The column.
        entries: The fragments to search. They are iterated once. At most `_ENTRIES_IN_MEMORY` of them are in memory at
            a time, besides those in the result.
        fingerprints: The fingerprints, ascending.

    Returns:
        (values, unread). `values` has the found values and their frequencies in parts: a value may be in several.
        `unread` has the fragments with such values whose profiles have no value counts: their files have to be read.

    Raises:
        CorruptionError: A profile is damaged.
    """
    values: list[Frequencies] = []
    unread: list[FragmentEntry] = []
    for part in batched(entries, _ENTRIES_IN_MEMORY):
        sorted_entries = sorted(part, key=lambda entry: entry.files.states)
        batches = list(batched(sorted_entries, _PROFILES_PER_TASK))
        weights = [sum(entry.row_count for entry in batch) // _ROWS_PER_WEIGHT + 1 for batch in batches]
        stored_values = engine.merge(partial(_find_stored_values, store, column, fingerprints), batches, weights)
        values += [batch.values for batch in stored_values if len(batch.values)]
        ids = {id_ for batch in stored_values for id_ in batch.ids}
        unread += [entry for entry in sorted_entries if entry.id in ids]
    return values, unread


def read_values(
    engine: Engine, column: FingerprintedColumn, fragments: Sequence[Fragment], fingerprints: Numbers
) -> list[Frequencies]:
    """Read, from the files of fragments, a column's values that have one of the given fingerprints.

    Return the values of each fragment, with their frequencies. `fingerprints` must be ascending.

    Raises:
        FragmentError: A file of the table cannot be read.
    """
    return engine.reading_runner(fragments).map(
        partial(_read_values, column, fingerprints),
        fragments,
        paths=[fragment.path for fragment in fragments],
        costs=[float(fragment.bytes) for fragment in fragments],
    )


@dataclass(frozen=True)
class _StoredValues:
    """The stored values with given fingerprints, and the fragments whose files must be read.

    A file must be read if the fragment has values with the given fingerprints, but only the fingerprints are stored.
    """

    values: Frequencies
    """The values that are stored, with their frequencies."""
    ids: Sequence[str]
    """The ids of the fragments with such fingerprints whose values are not stored."""


def _find_stored_values(
    store: ObjectStore, column: FingerprintedColumn, fingerprints: Numbers, batch: Sequence[FragmentEntry]
) -> _StoredValues:
    """Return stored values with any of the fingerprints, and the fragments whose files must be read.

    May run in a worker process.
    """
    values: list[Frequencies] = []
    ids: list[str] = []
    with StatesReader(store) as states_reader:
        for entry in batch:
            stored_fingerprints = read_fingerprints(states_reader, entry.files, column.field_id)
            if not is_member(fingerprints, column.narrow(stored_fingerprints).fingerprints).any():
                continue
            with FrequencyReader(states_reader, entry.files) as reader:
                frequencies = reader.read(column.field_id)
            if frequencies is None:
                ids.append(entry.id)
            else:
                values.append(column.select_values(frequencies, fingerprints))
    return _StoredValues(sum_frequencies((part, 1) for part in values), ids)


def _read_values(column: FingerprintedColumn, fingerprints: Numbers, fragment: Fragment) -> Frequencies:
    """Return the values in one fragment's file that have any of the fingerprints, with frequencies.

    Runs in another process, which a corrupt file may crash.

    Args:
        column: The column.
        fingerprints: The ascending fingerprints.
        fragment: The fragment.

    Raises:
        FragmentError: The fragment's file cannot be read.
    """
    limit_arrow_threads()
    path = fragment.path
    try:
        return values_of_rows(column, fingerprints, fragment)
    except MetastoreError:
        raise
    except (*CORRUPTION_ERRORS, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        reason = f"cannot be read ({type(error).__name__})" if column.is_quiet else error_reason(error)
        missing = isinstance(error, FileNotFoundError)
        raise FragmentError(
            f"{path}: column {column.path!r}: {reason}", path=path, missing=missing, unsupported=is_unsupported(error)
        ) from error


def values_of_rows(column: FingerprintedColumn, fingerprints: Numbers, fragment: Fragment) -> Frequencies:
    """Return the values in a fragment that have one of these fingerprints, with their frequencies.

    The rows of the fragment are read. May run in a worker process.

    Args:
        column: The column.
        fingerprints: The ascending fingerprints.
        fragment: The fragment to read.
    """
    cls = class_named(column.type_class)
    parts: list[pl.Series] = []
    with fragment.source.open() as reader:
        for chunk in reader.read(column.field):
            values = physical_series(split_columns(column.field, chunk)[column.position], cls)
            if len(values):
                hashes, _ = hash_values(canonical_array(values, cls), cls)
                parts.append(values.filter(pl.Series(is_member(column.fingerprints(hashes), fingerprints))))
    non_empty = [part for part in parts if len(part)]
    return run_to_frequencies(count_values(concatenate_series(non_empty)), cls) if non_empty else EMPTY
