"""What is known of one table as of one published version: statistics, most frequent values, histograms."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, partial
from threading import RLock

import numpy as np
import pyarrow as pa

from metastore_assets.errors import ColumnNotFoundError, CorruptionError, NotKeptError, PartitionNotFoundError
from metastore_assets.lists import ListReader, read_lists
from metastore_assets.lookup.profile_files import ProfileReader
from metastore_assets.messages import close_names, near_names
from metastore_assets.statistics.column import ColumnStatistics, Guarantee
from metastore_assets.statistics.histogram import Histogram
from metastore_assets.statistics.leaves import LeafColumn, schema_leaves
from metastore_assets.statistics.types import class_named
from metastore_assets.store.manifest import PartitionEntry, ProfileFiles, Version
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.stored_entries import find_partition

_OPEN_PROFILES = 32


@dataclass(frozen=True)
class TopValues:
    """The most frequent values of a column."""

    values: list[tuple[pa.Scalar, int]]
    """(value, frequency) by decreasing frequency, then increasing value; null is no value. Values are of the
    canonical Arrow type of their class; `lookup.json.scalar_json` writes them as text."""
    guarantee: Guarantee
    """What the frequencies are worth, and that no other value is more frequent."""


@dataclass(frozen=True)
class Bin:
    """One bin of a histogram."""

    minimum: pa.Scalar
    """Inclusive."""
    maximum: pa.Scalar
    """Exclusive; but inclusive where it is the greatest value that the type can hold."""
    frequency: int


class TableLookup:
    """Answers from one version of one table. Reads no more of its files than an answer needs; safe to share."""

    def __init__(self, objects: ObjectStore, version: Version) -> None:
        self._objects = objects
        self._version = version
        self._leaves = [leaf for leaves in schema_leaves(version.schema) for leaf in leaves]
        self._lock = RLock()
        self._found: dict[str, PartitionEntry | None] = {}
        self._profiles: OrderedDict[str | None, ProfileReader] = OrderedDict()

    @property
    def version(self) -> Version:
        """The version that all answers are of, and so the snapshot that they are true for."""
        return self._version

    def partitions(self) -> list[PartitionEntry]:
        """The table's partitions, in the order of the version. Empty for a table without rows."""
        return list(self._version.partitions)

    def row_count(self, partition: str | None = None) -> int:
        """Live rows of the table or of one partition. Raises PartitionNotFoundError."""
        return self._version.row_count if partition is None else self._partition(partition).row_count

    def statistics(self, columns: Iterable[str] | None = None, partition: str | None = None) -> list[ColumnStatistics]:
        """Statistics of all leaf columns in table order, or of those named in the order given.

        The mergeable states are left out (None). Raises ColumnNotFoundError, PartitionNotFoundError.
        """
        profile = self._profile(partition)
        wanted = None if columns is None else list(columns)
        for column in wanted or ():
            self._check(column, profile)
        return profile.statistics(wanted)

    def top(self, column: str, n: int = 10, partition: str | None = None) -> TopValues:
        """The n most frequent values of a column, fewer when there are fewer.

        Raises NotKeptError when the column's values are not listed, ColumnNotFoundError, PartitionNotFoundError.
        """
        if n < 0:
            raise ValueError(f"n must not be negative, not {n}")
        row = self.statistics([column], partition)[0]
        if row.frequencies != "listed":
            decision = self._version.decisions.get(row.field_id)
            why = _why_not_listed(row, None if decision is None else decision.reason)
            raise NotKeptError(f"the values of {self._named(column)} are not listed: {why}")
        values = None if partition is None else self._profile(partition).top(row.field_id, n)
        # The only partition of a table has no lists but the table's.
        if values is None and (partition is None or len(self._version.partitions) == 1):
            values = self._top(row, n)
        if values is None:
            raise CorruptionError(
                f"the values of {self._named(column)} are listed in no file of version {self._version.number}; "
                "rebuild with `metastore refresh --full`"
            )
        return TopValues(values, "exact")

    def _top(self, row: ColumnStatistics, n: int) -> list[tuple[pa.Scalar, int]] | None:
        if not row.value_count:
            return []
        with self._lock:
            if row.type_class is None or row.field_id not in self._lists.columns:
                return None
            table = self._lists.top(row.field_id, row.type_class, n)
        return list(zip(table["value"], table["frequency"].to_pylist(), strict=True))

    @cached_property
    def _lists(self) -> ListReader:
        return ListReader(self._objects, read_lists(self._objects, self._version.lists))

    def histogram(self, column: str, bins: int | None = None, partition: str | None = None) -> list[Bin]:
        """The column's histogram, by increasing minimum, without gaps. NaN and infinities are in no bin.

        With `bins`, at most so many: neighbouring bins are added up, the last one over fewer where it does not come
        out even. Empty for a column without a finite value. Raises NotKeptError when there is no histogram,
        ColumnNotFoundError, PartitionNotFoundError.
        """
        if bins is not None and bins < 1:
            raise ValueError(f"bins must be at least 1, not {bins}")
        profile = self._profile(partition)
        self._check(column, profile)
        histogram = profile.histogram(column)
        if histogram is not None:
            return _bins(histogram, len(histogram) if bins is None else bins)
        row = profile.statistics([column])[0]
        reason = _why_no_histogram(row)
        if reason is not None:
            raise NotKeptError(f"{self._named(column)} has no histogram: {reason}")
        return []

    def find_partition(self, key: str) -> PartitionEntry | None:
        """The partition with that key, if there is one. Reads little of a table that has many."""
        if key not in self._found:
            self._found[key] = find_partition(self._version, key)
        return self._found[key]

    def _partition(self, key: str) -> PartitionEntry:
        entry = self.find_partition(key)
        if entry is None:
            name = self._version.table
            raise PartitionNotFoundError(
                f"table {name!r} has no partition {key!r} in version {self._version.number}"
                + near_names(key, [entry.key for entry in self._version.partitions])
                + f"; list them with `metastore show {name} --partitions`"
            )
        return entry

    def _profile(self, partition: str | None) -> ProfileReader:
        files: ProfileFiles = self._version.files if partition is None else self._partition(partition).files
        with self._lock:
            if partition not in self._profiles:
                missing = partial(self._all_null, self.row_count(partition))
                self._profiles[partition] = ProfileReader(self._objects, files, self._leaves, missing)
                if len(self._profiles) > _OPEN_PROFILES:
                    self._profiles.popitem(last=False)
            self._profiles.move_to_end(partition)
            return self._profiles[partition]

    def _all_null(self, rows: int, leaf: LeafColumn) -> ColumnStatistics:
        """What is known of a column in a partition whose rows were written, and profiled, before there was one."""
        # Loaded when needed: most lookups do without.
        from metastore_assets.config import KeptPolicy
        from metastore_assets.statistics.profile import all_null_statistics

        row = self._profile(None).statistics([leaf.path])[0]
        decision = self._version.decisions.get(leaf.field_id)
        policy = KeptPolicy()
        if row.frequencies == "off":
            policy = KeptPolicy(frequencies="off")
        elif row.frequencies == "estimated" or (decision is not None and decision.frequencies == "estimated"):
            policy = KeptPolicy(frequencies="estimated")
        return all_null_statistics(leaf, rows, policy)

    def _check(self, column: str, profile: ProfileReader) -> None:
        if column not in profile.columns:
            raise ColumnNotFoundError(
                f"table {self._version.table!r} has no column {column!r}"
                + close_names(column, list(profile.columns), "; its columns are: {}")
            )

    def _named(self, column: str) -> str:
        return f"column {column!r} of table {self._version.table!r}"


def _bins(histogram: Histogram, most: int) -> list[Bin]:
    width = max(1, -(-len(histogram) // most))
    starts = list(range(0, len(histogram), width))
    edges = histogram.edges().take(pa.array([*starts, len(histogram)]))
    frequencies = np.add.reduceat(histogram.counts, starts).tolist()
    return [Bin(edges[i], edges[i + 1], frequency) for i, frequency in enumerate(frequencies)]


def _why_not_listed(row: ColumnStatistics, decided: str | None) -> str:
    if row.frequencies == "off":
        return "its policy is `frequencies: off`; change it and refresh"
    if row.frequencies == "estimated":
        about = "" if row.distinct_count_guarantee == "exact" else "about "
        reason = decided or f"{about}{row.distinct_count:,} distinct values, more than `frequencies: auto` lists"
        return f"{reason}; with `frequencies: all` a refresh lists them"
    return row.reason or f"{row.type} has no values of its own"


def _why_no_histogram(row: ColumnStatistics) -> str | None:
    """None when it has one, without a bin."""
    if row.type_class is None:
        return row.reason or f"{row.type} has no values of its own"
    cls = class_named(row.type_class)
    if not cls.is_ordinal:
        return f"{row.type} is not numeric or temporal"
    finite = row.value_count - (row.nan_count or 0)
    if finite == 0 or (cls.kind == "float" and _only_infinities(row)):
        return None
    return "its policy is `histogram: off`; change it and refresh"


def _only_infinities(row: ColumnStatistics) -> bool:
    held = {bound.as_py() for bound in (row.minimum, row.maximum) if bound is not None}
    distinct = (row.distinct_count or 0) - bool(row.nan_count)
    return held <= {float("-inf"), float("inf")} and row.distinct_count_guarantee == "exact" and distinct <= len(held)
