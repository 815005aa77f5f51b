"""Filtered views of tables: profiles of matching rows, merged from stored profiles and data files.

A profile has the statistics of a set of rows. A fragment is a data file with the deletes that apply to it. Stored
profiles answer for fragments that match entirely. Fragments that match partly are read. A version has the statistics of
one snapshot of the table. The policy of a column decides which of its statistics and values are stored.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from threading import RLock

from metastore_assets.config import ResolvedPolicy, TableConfig
from metastore_assets.errors import NotStoredError
from metastore_assets.expressions.predicates import Predicate
from metastore_assets.lookup import FilteredView, Table
from metastore_assets.lookup.filtered_view import FilterMatch, match_filter
from metastore_assets.lookup.profiles import Profile
from metastore_assets.reads.matching_rows import StartSpark
from metastore_assets.scan.fingerprinted import FingerprintedValues, FullPartitionProfile
from metastore_assets.scan.merged_profile import MergedProfile, MergedProfileContext
from metastore_assets.scan.partial_match import PartialFragments
from metastore_assets.scan.user_defined import UserDefined
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.statistics.frequencies import Frequencies
from metastore_assets.statistics.profile import HIDDEN_REASON
from metastore_assets.store.entries import find_fragments
from metastore_assets.store.version import FragmentEntry
from metastore_assets.values.columns import Column


def filter_table(
    lookup: Table, predicate: Predicate, table: TableConfig | None = None, spark: StartSpark | None = None
) -> FilteredView:
    """Return a view of the rows of a version that match a predicate.

    Args:
        lookup: The table as of a version.
        predicate: A predicate that is bound to the table's columns.
        table: The table's location, to read fragments that match partly; None if no file may be read.
        spark: Returns a Spark session, which reads the files if they are many or large. If `spark` is None, child
            processes of this process read them.
    """
    match = match_filter(lookup.pruner.prune(predicate))
    return FilteredView(lookup, predicate, match, FilteredProfileReader(lookup, predicate, table, spark))


class FilteredProfileReader:
    """A reader of the profiles of matching rows.

    The profiles are merged from stored profiles and from fragments that the reader reads.

    Threads may share it.
    """

    def __init__(
        self, lookup: Table, predicate: Predicate, table: TableConfig | None, spark: StartSpark | None
    ) -> None:
        """Create a reader for one predicate; nothing is read yet.

        Args:
            lookup: The table as of a version.
            predicate: A predicate that is bound to the table's columns.
            table: The table's location, to read fragments that match partly; None if no file may be read.
            spark: Returns a Spark session, which reads the files if they are many or large. If `spark` is None, child
                processes of this process read them.
        """
        self._lookup = lookup
        self._predicate = predicate
        self._table = table
        self._spark = spark
        self._lock = RLock()
        allowed_statistics = lookup.user_statistics + (() if table is None else table.named_statistics)
        self._user_defined = UserDefined(lookup.version, allowed_statistics)
        self._partial: OrderedDict[str | None, PartialFragments] = OrderedDict()

    def profile(self, match: FilterMatch, partition: str | None) -> Profile:
        """Return the profile of the matching rows.

        Nothing is read before a column of the profile is requested.

        Args:
            match: The partitions and fragments that match. All of them are merged, so if `partition` is given, `match`
                must have only this partition and its fragments. This is not checked.
            partition: The key of a partition; None for all. Calls with the same partition share what is read from
                fragments that match partly.

        Raises:
            NotStoredError: Fragments match partly, and this reader must not read files.
        """
        if len(match.full_partitions) == 1 and not match.partial_partitions:
            stored_profile = self._lookup.profiles.profile(match.full_partitions[0].key)
            return FullPartitionProfile(stored_profile, lambda: self._merged(match, partition))
        return self._merged(match, partition)

    def _merged(self, match: FilterMatch, partition: str | None) -> MergedProfile:
        """Return the profile of all matching rows, merged from stored profiles and from rows that are read.

        The stored profiles are those of partitions and fragments that match entirely. The rows are those of fragments
        that match partly.
        """
        files = [entry.files for entry in match.full_partitions] + [entry.files for entry in match.full_fragments]
        partial = self._partial_fragments(match, partition) if match.partial_fragments else None
        objects, columns = self._lookup.objects, self._lookup.columns.all
        fingerprinted_values = FingerprintedValues(
            objects, lambda: self._lookup.value_counts.reader, lambda: self._full_fragments(match)
        )
        context = MergedProfileContext(objects, columns, self._policies, self._add_user_results)
        return MergedProfile(context, files, partial, fingerprinted_values)

    def count_partial_rows(self, match: FilterMatch, partition: str | None) -> int:
        """Read the fragments that match partly, and return the number of their matching rows.

        Raises NotStoredError if this reader must not read data files.

        Args:
            match: The match, of which only `partial_fragments` are read. If `partition` is given, they must all be in
                this partition. This is not checked.
            partition: The key of a partition; None for all. Another call with the same partition reads nothing.
        """
        return self._partial_fragments(match, partition).row_count

    def cost(self) -> tuple[int, int]:
        """Return (number of fragments read, bytes read) so far."""
        partial = list(self._partial.values())
        ids: frozenset[str] = frozenset().union(*(fragments.read_ids for fragments in partial))
        return len(ids), sum(fragments.bytes_read for fragments in partial)

    def _full_fragments(self, match: FilterMatch) -> list[FragmentEntry]:
        """Return all fragments that match entirely, including those of partitions that match entirely."""
        keys = [entry.key for entry in match.full_partitions]
        return [*match.full_fragments, *find_fragments(self._lookup.version, keys)]

    def _partial_fragments(self, match: FilterMatch, partition: str | None) -> PartialFragments:
        """Return the fragments that match partly; None as partition stands for all partitions.

        The result is cached by partition. Raises NotStoredError if this reader must not read data files.
        """
        with self._lock:
            if partition not in self._partial:
                if self._table is None:
                    raise NotStoredError(self._explain_unread(match))
                self._partial[partition] = PartialFragments(
                    self._lookup, self._predicate, match, self._table, self._spark
                )
            return self._partial[partition]

    def _explain_unread(self, match: FilterMatch) -> str:
        """Return the error message for a profile that needs data files, if this reader must not read files.

        The files are those of the fragments that match partly. The message says how a user can avoid or allow reading
        them.
        """
        # Predicates cannot name partition columns that are derived by hidden partitioning.
        paths = {column.path for column in self._lookup.columns.all}
        by = " and ".join(map(repr, sorted(paths.intersection(self._lookup.version.partition_columns))))
        return (
            f"table {self._lookup.version.table!r}: {self._predicate.to_short_sql()} may match some of the rows of "
            f"{len(match.partial_fragments):,} of {match.fragments_total:,} files, such as "
            f"{match.partial_fragments[0].path}, and stored statistics cannot tell these rows apart: filter by whole "
            f"partitions{f', by {by}' if by else ''}, or allow these files to be read, with `filter(…, read=True)`"
        )

    def _policies(self, columns: Sequence[Column]) -> list[ResolvedPolicy]:
        """Return a policy for each column, inferred from its stored statistics.

        The rows of partly matching fragments are profiled under these policies. The resulting profiles can then be
        merged with stored profiles.
        """
        rows = self._lookup.statistics([column.path for column in columns])
        return [self._policy(row) for row in rows]

    def _policy(self, row: ColumnStatistics) -> ResolvedPolicy:
        """Return the policy of one column, inferred from what the table stores of it."""
        if row.reason == HIDDEN_REASON:
            return ResolvedPolicy(values="hidden")
        histogram = self._lookup.profiles.profile(None).histogram(row.column)
        frequencies = {"enumerated": "all", "repeated": "repeated", "off": "off"}.get(row.frequencies, "estimated")
        return ResolvedPolicy(
            frequencies=frequencies,
            algorithm="fingerprints" if frequencies == "repeated" else "auto",
            histogram="off" if histogram is None else histogram.capacity // 2,
            quantiles="off" if row.percentiles is None else "sketch",
            statistics=self._user_defined.classes(row.field_id) if row.user_defined else (),
        )

    def _add_user_results(
        self, row: ColumnStatistics, policy: ResolvedPolicy, frequencies: Frequencies | None
    ) -> ColumnStatistics:
        (table_row,) = self._lookup.statistics([row.column])
        return self._user_defined.add_results(row, policy, frequencies, table_row)
