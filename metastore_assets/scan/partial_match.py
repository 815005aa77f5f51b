"""Profiles of the rows of a fragment that a predicate is true of, where it is not of all: read column by column.

The predicate's columns are read once, for a mask of the rows; then each column that is asked for, a chunk at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metastore_assets.config import ResolvedPolicy, TableConfig
from metastore_assets.expressions.predicates import Predicate
from metastore_assets.expressions.row_filter import RowFilter
from metastore_assets.formats.base import Fragment, FragmentReader
from metastore_assets.formats.schema_casting import restore_default_values
from metastore_assets.lookup import Table
from metastore_assets.lookup.filtered_view import FilterMatch
from metastore_assets.scan.matching_rows import StartSpark, map_fragments, opened_fragment, row_masks, scan_engine
from metastore_assets.scan.scan_plan import resolve_fragments
from metastore_assets.spark.runner import SizedRunner
from metastore_assets.statistics.fingerprints import FingerprintCounts
from metastore_assets.statistics.frequencies import Frequencies
from metastore_assets.statistics.profile import profile_field
from metastore_assets.statistics.states import build_states_table
from metastore_assets.storage.io_counters import count_io
from metastore_assets.values.leaf_columns import LeafColumn, schema_leaves

Wanted = tuple[LeafColumn, ResolvedPolicy]


@dataclass(frozen=True)
class FilteredProfile:
    """What is known of the rows of one fragment that are meant."""

    row_count: int
    states: pa.Table
    """A row for each column asked for, as of `build_states_table`."""
    lists: tuple[Frequencies | None, ...]
    """Of each of them all values, where its policy lists them."""
    prints: tuple[FingerprintCounts | None, ...]
    """Of each of them fingerprints, where its policy keeps these."""


class PartialFragments:
    """The fragments that a predicate cuts, read as columns of them are asked for."""

    def __init__(
        self, lookup: Table, predicate: Predicate, match: FilterMatch, table: TableConfig, spark: StartSpark | None
    ) -> None:
        self._schema = lookup.version.schema
        self._predicate = predicate
        self._lookup = lookup
        self._match = match
        self._table = table
        self._spark = spark
        self._fragments: list[Fragment] | None = None
        self.read_ids: frozenset[str] = frozenset()
        """Ids of the fragments that were read."""
        self.bytes_read = 0
        """Of the table's data files, over all that was asked so far."""

    @cached_property
    def row_count(self) -> int:
        """How many of their rows are meant."""
        return sum(own.row_count for own in self.read((), pa.struct([("boolean", pa.bool_())])))

    def read(self, columns: Sequence[Wanted], union: pa.StructType) -> list[FilteredProfile]:
        """A profile of each fragment, of some columns, in no particular order. Raises FragmentError, MetastoreError."""
        engine = scan_engine(self._spark)
        if self._fragments is None:
            runner = SizedRunner(engine.start)
            ids = {own.id for own in self._match.partial_fragments}
            self._fragments, schema = resolve_fragments(self._lookup, self._table, ids, runner)
            self._schema = pa.schema([restore_default_values(field, schema) for field in self._schema])
        task = partial(profile_filtered_rows, RowFilter(self._predicate, self._schema), self._fields(columns), union)
        with count_io() as meter:
            found: list[FilteredProfile] = map_fragments(engine, task, self._fragments)
        self.read_ids = frozenset(own.id for own in self._fragments)
        self.bytes_read += meter.counts().read.bytes
        return found

    def _fields(self, columns: Sequence[Wanted]) -> list[tuple[int, list[Wanted]]]:
        """By place in the schema, the columns that are asked for of each top-level column."""
        owners = {own.field_id: at for at, leaves in enumerate(schema_leaves(self._schema)) for own in leaves}
        found: dict[int, list[Wanted]] = {}
        for leaf, policy in columns:
            found.setdefault(owners[leaf.field_id], []).append((leaf, policy))
        return sorted(found.items())


def profile_filtered_rows(
    own: RowFilter, fields: Sequence[tuple[int, Sequence[Wanted]]], union: pa.StructType, fragment: Fragment
) -> FilteredProfile:
    """Runs in whatever process. Raises FragmentError."""
    with opened_fragment(fragment) as reader:
        masks = list(row_masks(own, reader))
        rows = np.concatenate([np.zeros(0, np.bool_), *masks])
        profiles = {}
        for at, wanted in fields:
            leaves = schema_leaves(own.schema)[at]
            policies = {leaf.path: policy for leaf, policy in wanted}
            chunks = _kept(reader, own.schema.field(at), rows)
            for profile in profile_field(own.schema.field(at), chunks, _policy(policies), leaves=leaves):
                if profile.statistics.column in policies:
                    profiles[profile.statistics.field_id] = profile
    found = [profiles[leaf.field_id] for _, wanted in fields for leaf, _ in wanted]
    states = build_states_table([one.statistics for one in found], [one.histogram for one in found], union)
    lists, prints = tuple(one.frequencies for one in found), tuple(one.fingerprints for one in found)
    return FilteredProfile(int(rows.sum()), states, lists, prints)


def _policy(policies: dict[str, ResolvedPolicy]) -> Callable[[str], ResolvedPolicy]:
    nothing = ResolvedPolicy(frequencies="off", histogram="off", quantiles="off")
    return lambda path: policies.get(path, nothing)


def _kept(reader: FragmentReader, field: pa.Field, rows: npt.NDArray[np.bool_]) -> Iterator[pa.Array]:
    start = 0
    for chunk in reader.read(field, encoded=True):
        mask = rows[start : start + len(chunk)]
        start += len(chunk)
        if mask.any():
            yield chunk if mask.all() else chunk.filter(pa.array(mask))
