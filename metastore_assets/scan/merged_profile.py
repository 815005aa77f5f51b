"""A profile of rows that no stored profile is of: of some partitions or fragments together, and of cut fragments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from threading import RLock
from typing import TypeAlias

import pyarrow as pa

from metastore_assets.config import ResolvedPolicy
from metastore_assets.errors import CorruptionError
from metastore_assets.lookup.profiles import with_infinities
from metastore_assets.pipeline.profile_spec import ProfileSpec
from metastore_assets.pipeline.profiles.files import shown_histogram
from metastore_assets.pipeline.profiles.states_reader import StatesReader
from metastore_assets.pipeline.profiles.states_writer import value_union
from metastore_assets.pipeline.profiles.stored_states import read_together
from metastore_assets.pipeline.value_counts.frequencies import summed_lists
from metastore_assets.scan.fingerprinted import FingerprintedValues, with_repeated
from metastore_assets.scan.partial_match import FilteredProfile, PartialFragments, Wanted
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.statistics.current_schema import apply_schema
from metastore_assets.statistics.finalize import apply_summary, finalize_statistics
from metastore_assets.statistics.frequencies import EMPTY, Frequencies, sum_frequencies, summarize_frequencies
from metastore_assets.statistics.histogram import Histogram, decode_histograms
from metastore_assets.statistics.merge import merge_states
from metastore_assets.statistics.profile import profile_all_null
from metastore_assets.statistics.quantiles import Digest, decode_digest
from metastore_assets.statistics.states import read_state_rows
from metastore_assets.store.manifest import ProfileFiles
from metastore_assets.store.objects import ObjectStore
from metastore_assets.values.leaf_columns import LeafColumn
from metastore_assets.values.types import type_text

TellUserDefined: TypeAlias = Callable[[ColumnStatistics, ResolvedPolicy, Frequencies | None], ColumnStatistics]
"""Adds to a row what its states and the list of its values, where there is one, say of user-defined statistics."""


@dataclass(frozen=True)
class _Column:
    row: ColumnStatistics
    histogram: Histogram | None
    listed: Frequencies | None
    """All values; None where they are not listed."""
    repeated: Frequencies | None
    """Those that occur at least twice, of a column kept by fingerprints; None where that is not known."""


class MergedProfile:
    """Answers as a `ProfileReader` does, from several stored profiles and what is read of the table. Safe to share.

    A column that is listed everywhere is described from the sum of its lists, as if it were profiled; of others states
    are merged. Each column is read once.
    """

    def __init__(
        self,
        store: ObjectStore,
        leaves: Sequence[LeafColumn],
        policies: Callable[[Sequence[LeafColumn]], Sequence[ResolvedPolicy]],
        profiles: Sequence[ProfileFiles],
        cut: PartialFragments | None,
        told: TellUserDefined,
        prints: FingerprintedValues,
    ) -> None:
        """`leaves`: the table's columns, in its order; `policies` says what is kept of some; `told` adds what is
        user-defined, `prints` what repeats."""
        self._store = store
        self._leaves = leaves
        self._policies = policies
        self._profiles = sorted(profiles, key=lambda own: own.states)  # neighbours in a file one after the other
        self._cut = cut
        self._told = told
        self._prints = prints
        self._lock = RLock()
        self._known: dict[str, _Column] = {}
        self.columns = {leaf.path: position for position, leaf in enumerate(leaves)}

    def statistics(self, columns: Iterable[str] | None = None) -> list[ColumnStatistics]:
        """The rows of all columns, or of those named. KeyError for an unknown name."""
        wanted = range(len(self._leaves)) if columns is None else [self.columns[name] for name in columns]
        found = self._columns([self._leaves[position] for position in wanted])
        return [
            apply_schema(own.row, position, self._leaves[position]) for own, position in zip(found, wanted, strict=True)
        ]

    def top(self, field_id: str, n: int) -> list[tuple[pa.Scalar, int]] | None:
        """The n most frequent values with their frequencies, of those that are known; None where none are."""
        column = self._column(field_id)
        listed = column.repeated if column.listed is None else column.listed
        if listed is None:
            return None
        counts = listed.counts.to_numpy()
        order = (-counts).argsort(kind="stable")[:n]
        return list(zip(listed.values.take(pa.array(order)), counts[order].tolist(), strict=True))

    def frequencies(self, field_id: str) -> Frequencies | None:
        """All values; None where they are not listed."""
        return self._column(field_id).listed

    def repeated(self, field_id: str) -> Frequencies | None:
        """The values that occur at least twice, of a column kept by fingerprints; None where that is not known."""
        return self._column(field_id).repeated

    def sketch(self, field_id: str) -> tuple[Digest | None, tuple[int, int]] | None:
        """As of `ProfileReader`."""
        row = self._column(field_id).row
        digest = None if row.quantile_sketch is None else decode_digest(row.quantile_sketch)
        return with_infinities(digest, row.moments)

    def histogram(self, column: str) -> Histogram | None:
        """The histogram of a column; None when there is none."""
        return self._column(self._leaves[self.columns[column]].field_id).histogram

    def _column(self, field_id: str) -> _Column:
        return self._columns([leaf for leaf in self._leaves if leaf.field_id == field_id])[0]

    def _columns(self, leaves: Sequence[LeafColumn]) -> list[_Column]:
        with self._lock:
            wanted = {leaf.field_id for leaf in leaves} - self._known.keys()
            if wanted:
                missing = [leaf for leaf in self._leaves if leaf.field_id in wanted]
                self._known |= self._read(list(zip(missing, self._policies(missing), strict=True)))
            return [self._known[leaf.field_id] for leaf in leaves]

    def _read(self, wanted: Sequence[Wanted]) -> dict[str, _Column]:
        spec = ProfileSpec("", {}, tuple(wanted), {})
        cut = [] if self._cut is None else self._cut.read(wanted, value_union(spec))
        rows = self._merged(spec, cut)
        listed = [at for at, (row, _) in enumerate(rows) if row.frequencies == "enumerated" and row.value_count]
        lists = self._lists(spec, listed, cut)
        found = {}
        for at, ((leaf, policy), (row, histogram)) in enumerate(zip(wanted, rows, strict=True)):
            own = lists.get(at)
            if own is not None:
                row = apply_summary(row, summarize_frequencies(own))
                _check_total(self._store, leaf, row, own)
            repeated = None
            if row.frequencies == "repeated":
                cuts = [held for one in cut if (held := one.prints[at]) is not None]
                repeated = self._prints.repeated(replace(row, field_id=leaf.field_id, column=leaf.path), cuts)
            if repeated is not None:
                row = with_repeated(row, repeated)
            is_empty = row.frequencies == "enumerated" and not row.value_count
            row = self._told(row, policy, EMPTY if own is None and is_empty else own)
            shown = None if histogram is None else shown_histogram(histogram, row)
            found[leaf.field_id] = _Column(row, shown, own, repeated)
        return found

    def _merged(
        self, spec: ProfileSpec, cut: Sequence[FilteredProfile]
    ) -> list[tuple[ColumnStatistics, Histogram | None]]:
        with StatesReader(self._store) as opened:
            parts = read_together(opened, self._profiles, spec)[1] if self._profiles else []
        parts += [own.states for own in cut]
        if not parts:
            rows = [profile_all_null(leaf, 0, policy) for leaf, policy in spec.leaves]
            return [(row, None) for row in rows]
        states = merge_states(parts, [leaf.path for leaf, _ in spec.leaves])
        labels = [(leaf.path, type_text(leaf.type)) for leaf, _ in spec.leaves]
        pairs = zip(read_state_rows(states, labels), decode_histograms(states), strict=True)
        return [(finalize_statistics(row), histogram) for row, histogram in pairs]

    def _lists(
        self, spec: ProfileSpec, positions: Sequence[int], cut: Sequence[FilteredProfile]
    ) -> dict[int, Frequencies]:
        if not positions:
            return {}
        stored = summed_lists(self._store, spec, positions, self._profiles)
        read = {at: [(held, 1) for own in cut if (held := own.lists[at]) is not None] for at in positions}
        return {at: sum_frequencies([(stored[at], 1), *read[at]]) for at in positions}


def _check_total(store: ObjectStore, leaf: LeafColumn, row: ColumnStatistics, listed: Frequencies) -> None:
    total = sum(listed.counts.to_pylist())
    if total != row.value_count:
        raise CorruptionError(
            f"{store.uri()}: the lists of column {leaf.path!r} are of {total} values, and its states of "
            f"{row.value_count}; rebuild with `metastore refresh NAME --full`"
        )
