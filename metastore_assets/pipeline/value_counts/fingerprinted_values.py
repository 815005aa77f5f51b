"""Resolution of fingerprints to values, from stored value counts or from the files of the table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import polars as pl
import pyarrow as pa

from metastore_assets.errors import CorruptionError, FragmentError, MetastoreError
from metastore_assets.formats.base import Fragment
from metastore_assets.pipeline.engine import Engine
from metastore_assets.pipeline.profiles.states_reader import StatesReader
from metastore_assets.pipeline.profiles.stored import FrequencyReader
from metastore_assets.statistics.fingerprints import (
    EMPTY as NO_PRINTS,
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
from metastore_assets.statistics.runs import concatenate_series, count_values
from metastore_assets.storage.corrupt_input import CORRUPTION_ERRORS, error_reason, is_unsupported
from metastore_assets.store.manifest import FragmentEntry, ProfileFiles
from metastore_assets.store.objects import ObjectStore
from metastore_assets.tasks.runner import limit_arrow_threads
from metastore_assets.values.leaf_columns import split_leaves
from metastore_assets.values.physical import canonical_array, physical_series
from metastore_assets.values.types import class_named

_AT_ONCE = 16
"""Number of profiles whose fingerprints one task searches."""
_ROWS_PER_WEIGHT = 5_000
"""Number of fingerprints that are searched in the time of merging the profile of one column."""


@dataclass(frozen=True)
class FingerprintedColumn:
    """A fingerprinted leaf column and its position in the rows of the table. Picklable."""

    field_id: str
    path: str
    type_class: str
    field: pa.Field
    """The top-level column."""
    leaf: int
    """The index of the leaf in the top-level column."""
    bits: int
    is_quiet: bool
    """Whether errors must not quote values, because a column of the table is hidden."""

    def fingerprints(self, hashes: np.ndarray) -> Numbers:
        """Return the fingerprints of values, given the first of their hashes."""
        return fingerprint_hashes(hashes, self.bits)

    def narrowed(self, fingerprints: FingerprintCounts) -> FingerprintCounts:
        """Return stored fingerprints in the width of the column."""
        return narrow_fingerprints(fingerprints, self.bits)

    def within(self, own: Frequencies, fingerprints: Numbers) -> Frequencies:
        """Return the values that have one of some ascending fingerprints."""
        if not len(own):
            return own
        chosen = pa.array(is_member(fingerprint_values(own, self.bits), fingerprints))
        return Frequencies(own.values.filter(chosen), own.counts.filter(chosen))


def is_member(own: Numbers, fingerprints: Numbers) -> np.ndarray:
    """Return whether each fingerprint is in an ascending array of others."""
    if not len(fingerprints):
        return np.zeros(len(own), bool)
    at = np.minimum(np.searchsorted(fingerprints, own), len(fingerprints) - 1)
    found: np.ndarray = fingerprints[at] == own
    return found


def read_fingerprints(opened: StatesReader, files: ProfileFiles, field_id: str) -> FingerprintCounts:
    """Return the fingerprints of a column in a profile: stored ones, or those of its value counts.

    They are empty if the profile was computed without the column.

    Raises:
        CorruptionError: The profile is damaged, or has values without fingerprints or value counts.
    """
    found = opened.read_fingerprints(files, field_id) if files.is_states_only and files.states else None
    if found is not None:
        return found
    with FrequencyReader(opened, files) as lists:
        own = lists.read(field_id)
    if own is not None:
        return fingerprint_frequencies(own)
    if files.states:
        names = ("field_id", "type_class", "value_count")
        _, states = opened.read(files, names)
        for held, type_class, values in zip(*(states[name].to_pylist() for name in names), strict=True):
            if held == field_id and type_class is not None and values:
                raise CorruptionError(
                    f"{opened.store.uri(files.states)}: column {field_id!r} has {values:,} values, and neither a list "
                    "nor fingerprints of them; rebuild with `metastore refresh NAME --full`"
                )
    return NO_PRINTS


def sum_stored_fingerprints(
    store: ObjectStore, column: FingerprintedColumn, entries: Iterable[FragmentEntry]
) -> FingerprintCounts:
    """Return the summed fingerprints of a column over fragments.

    Raises:
        CorruptionError: A profile is damaged.
    """
    with StatesReader(store) as opened:
        return sum_fingerprints(
            column.narrowed(read_fingerprints(opened, entry.files, column.field_id)) for entry in entries
        )


@dataclass(frozen=True)
class Source:
    """A fragment with its profile."""

    entry: FragmentEntry
    fragment: Fragment


def find_values(
    engine: Engine, store: ObjectStore, column: FingerprintedColumn, sources: Sequence[Source], fingerprints: Numbers
) -> Frequencies:
    """Return the values in some fragments that have one of some ascending fingerprints.

    Stored fingerprints select the fragments. Their values are read from stored value counts, or else from the table's
    files: on Spark, or in a child process if they are few.

    Raises:
        FragmentError: A file cannot be read.
    """
    if not len(fingerprints) or not sources:
        return EMPTY
    ordered = sorted(sources, key=lambda own: own.entry.files.states)
    lots = [ordered[at : at + _AT_ONCE] for at in range(0, len(ordered), _AT_ONCE)]
    weights = [sum(own.entry.row_count for own in lot) // _ROWS_PER_WEIGHT + 1 for lot in lots]
    holding = {
        id_ for found in engine.merge(partial(_holding, store, column, fingerprints), lots, weights) for id_ in found
    }
    reading = [own for own in ordered if own.entry.id in holding]
    values = engine.reading_runner([own.fragment for own in reading]).map(
        partial(_values, store, column, fingerprints),
        reading,
        paths=[own.fragment.path for own in reading],
        costs=[float(own.fragment.bytes) for own in reading],
    )
    return sum_frequencies((own, 1) for own in values)


def _holding(
    store: ObjectStore, column: FingerprintedColumn, fingerprints: Numbers, lot: Sequence[Source]
) -> list[str]:
    """Return the ids of the fragments that have one of the fingerprints. May run in a worker process."""
    with StatesReader(store) as opened:
        found = ((own, read_fingerprints(opened, own.entry.files, column.field_id)) for own in lot)
        return [
            own.entry.id for own, held in found if is_member(fingerprints, column.narrowed(held).fingerprints).any()
        ]


def _values(store: ObjectStore, column: FingerprintedColumn, fingerprints: Numbers, source: Source) -> Frequencies:
    """Return the values of one fragment that have one of the fingerprints. Runs in another process."""
    limit_arrow_threads()
    with StatesReader(store) as opened, FrequencyReader(opened, source.entry.files) as lists:
        stored = lists.read(column.field_id)
    if stored is not None:
        return column.within(stored, fingerprints)
    path = source.fragment.path
    try:
        return values_of_rows(column, fingerprints, source.fragment)
    except MetastoreError:
        raise
    except (*CORRUPTION_ERRORS, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        told = f"cannot be read ({type(error).__name__})" if column.is_quiet else error_reason(error)
        missing = isinstance(error, FileNotFoundError)
        raise FragmentError(
            f"{path}: column {column.path!r}: {told}", path=path, missing=missing, unsupported=is_unsupported(error)
        ) from error


def values_of_rows(column: FingerprintedColumn, fingerprints: Numbers, fragment: Fragment) -> Frequencies:
    """Return the values of a fragment's rows with one of some ascending fingerprints. May run in a worker process."""
    cls = class_named(column.type_class)
    found: list[pl.Series] = []
    with fragment.source.open() as reader:
        for chunk in reader.read(column.field):
            values = physical_series(split_leaves(column.field, chunk)[column.leaf], cls)
            if len(values):
                hashes, _ = hash_values(canonical_array(values, cls), cls)
                found.append(values.filter(pl.Series(is_member(column.fingerprints(hashes), fingerprints))))
    kept = [own for own in found if len(own)]
    return run_to_frequencies(count_values(concatenate_series(kept)), cls) if kept else EMPTY
