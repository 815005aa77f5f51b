"""What a scope is made of, read: profiles that are stored, and fragments of the table that the predicate cuts."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from threading import RLock

from metastore_assets.config import ResolvedPolicy, TableConfig
from metastore_assets.errors import NotKeptError
from metastore_assets.expressions.predicates import Predicate
from metastore_assets.expressions.sql_text import to_short_sql
from metastore_assets.lookup import FilteredView, Table
from metastore_assets.lookup.profile_files import Profile
from metastore_assets.lookup.scope import Scope, scope_of
from metastore_assets.scan.fingerprinted import FingerprintedValues, OnePartition
from metastore_assets.scan.matching_rows import StartSpark
from metastore_assets.scan.merged_profile import MergedProfile
from metastore_assets.scan.partial_match import PartialFragments
from metastore_assets.scan.user_defined import UserDefined
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.statistics.frequencies import Frequencies
from metastore_assets.statistics.profile import HIDDEN_REASON
from metastore_assets.store.manifest import FragmentEntry
from metastore_assets.values.leaf_columns import LeafColumn


def filter_table(
    lookup: Table, predicate: Predicate, table: TableConfig | None = None, spark: StartSpark | None = None
) -> FilteredView:
    """The rows of a version that a predicate is true of.

    `table`: where fragments are read that the predicate cuts; None where nothing may be read.
    """
    scope = scope_of(lookup.pruned(predicate), lookup.find_partition)
    return FilteredView(lookup, predicate, scope, FilteredProfileReader(lookup, predicate, table, spark))


class FilteredProfileReader:
    """A `ScopeReader`. Safe to share."""

    def __init__(
        self, lookup: Table, predicate: Predicate, table: TableConfig | None, spark: StartSpark | None
    ) -> None:
        self._lookup = lookup
        self._predicate = predicate
        self._table = table
        self._spark = spark
        self._lock = RLock()
        named = lookup.user_statistics + (() if table is None else table.named_statistics)
        self._user_defined = UserDefined(lookup.version, named)
        self._cuts: OrderedDict[str | None, PartialFragments] = OrderedDict()

    def profile(self, scope: Scope, partition: str | None) -> Profile:
        """As `ScopeReader`."""
        if len(scope.partitions) == 1 and not scope.cut_partitions:
            stored = self._lookup._profile(scope.partitions[0].key)
            return OnePartition(stored, lambda: self._merged(scope, partition))
        return self._merged(scope, partition)

    def _merged(self, scope: Scope, partition: str | None) -> MergedProfile:
        files = [own.files for own in scope.partitions] + [own.files for own in scope.fragments]
        cut = self._cut(scope, partition) if scope.cut else None
        objects, leaves = self._lookup.versions.objects, self._lookup._leaves
        prints = FingerprintedValues(objects, lambda: self._lookup._lists, lambda: self._fragments(scope))
        return MergedProfile(objects, leaves, self._policies, files, cut, self._told, prints)

    def cut_rows(self, scope: Scope, partition: str | None) -> int:
        """As `ScopeReader`."""
        return self._cut(scope, partition).row_count

    def cost(self) -> tuple[int, int]:
        """As `ScopeReader`."""
        cuts = list(self._cuts.values())
        read: frozenset[str] = frozenset().union(*(own.read_ids for own in cuts))
        return len(read), sum(own.bytes_read for own in cuts)

    def _fragments(self, scope: Scope) -> list[FragmentEntry]:
        """Of what is chosen as a whole."""
        keys = {own.key for own in scope.partitions}
        every = self._lookup.version.fragments if keys else ()
        return [*scope.fragments, *(own for own in every if own.retired is None and own.partition_key in keys)]

    def _cut(self, scope: Scope, partition: str | None) -> PartialFragments:
        with self._lock:
            if partition not in self._cuts:
                if self._table is None:
                    raise NotKeptError(self._why_not(scope))
                own = PartialFragments(self._lookup, self._predicate, scope, self._table, self._spark)
                self._cuts[partition] = own
            return self._cuts[partition]

    def _why_not(self, scope: Scope) -> str:
        # Those of hidden partitions are no columns that could be asked.
        names = {leaf.path for leaf in self._lookup._leaves}.intersection(self._lookup.version.partition_columns)
        by = " and ".join(map(repr, sorted(names)))
        return (
            f"table {self._lookup.version.table!r}: {to_short_sql(self._predicate)} may be true of some of the rows of "
            f"{len(scope.cut):,} of {scope.fragments_total:,} files, such as {scope.cut[0].path}, and what is "
            f"kept tells them not apart: choose whole partitions{f', by {by}' if by else ''}, or let these files be "
            "read, with `filter(…, read=True)`"
        )

    def _policies(self, leaves: Sequence[LeafColumn]) -> list[ResolvedPolicy]:
        """What is kept of columns, as far as it shows."""
        rows = self._lookup.statistics([leaf.path for leaf in leaves])
        return [self._policy(row) for row in rows]

    def _policy(self, row: ColumnStatistics) -> ResolvedPolicy:
        if row.reason == HIDDEN_REASON:
            return ResolvedPolicy(values="hidden")
        kept = self._lookup._profile(None).histogram(row.column)
        frequencies = {"enumerated": "all", "repeated": "repeated", "off": "off"}.get(row.frequencies, "estimated")
        return ResolvedPolicy(
            frequencies=frequencies,
            algorithm="fingerprints" if frequencies == "repeated" else "auto",
            histogram="off" if kept is None else kept.capacity // 2,
            quantiles="off" if row.percentiles is None else "sketch",
            statistics=self._user_defined.classes(row.field_id) if row.user_defined else (),
        )

    def _told(self, row: ColumnStatistics, policy: ResolvedPolicy, listed: Frequencies | None) -> ColumnStatistics:
        (of_table,) = self._lookup.statistics([row.column])
        return self._user_defined.told(row, policy, listed, of_table)
