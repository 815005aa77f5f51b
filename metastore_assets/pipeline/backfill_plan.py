"""The plan of a backfill: which partitions are read, and in which chunks.

Partitions that are missing or stale in the newest version make one chunk, because each version describes the whole
table. Only the mode `all` reads partitions that are up to date. They can be split into several chunks, each of which
publishes a version.

A fragment is a data file with its deletes, and its profile is its statistics. A version is the published statistics of
a table at one snapshot.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import ceil
from typing import Literal

from metastore_assets.digests import digest_texts
from metastore_assets.errors import ColumnNotFoundError, PartitionNotFoundError
from metastore_assets.expressions.partition_filter import PartitionFilter
from metastore_assets.expressions.partition_keys import decode_partition_key
from metastore_assets.expressions.partition_patterns import match_partitions, resolve_partition_keys
from metastore_assets.formats.base import SnapshotMetadata
from metastore_assets.formats.partition_ranges import PartitionRanges
from metastore_assets.messages import close_names
from metastore_assets.pipeline.plan import Plan
from metastore_assets.pipeline.planning import FirstVersionTotals
from metastore_assets.store.entries import partition_fragment_counts, partition_sizes
from metastore_assets.store.version import RefreshStats, Version

Mode = Literal["outdated", "missing", "stale", "all"]
"""The partitions to select, by their state. `missing`: the newest version does not have the partition. `stale`: the
partition or its policies changed since the newest version. `outdated`: missing or stale. `all`: every partition."""

CHUNK_BYTES = 16 << 30
"""Maximum stored size in bytes of the fragments that a chunk reads again. Not used if chunks are limited by a number of
partitions."""
CHUNK_FRAGMENTS = 50_000
"""Maximum number of fragments that a chunk reads again, because they are in memory. Not used if chunks are limited by a
number of partitions."""


@dataclass(frozen=True)
class BackfillSelection:
    """The criteria that select the partitions of a backfill.

    A selected partition satisfies all criteria. `partitions` and `keys` together are one criterion, which a partition
    satisfies if either of them names it.
    """

    mode: Mode = "outdated"
    partitions: tuple[str, ...] = ()
    """Partition keys or patterns, see `match_partitions`. Empty: no restriction."""
    keys: tuple[str, ...] | None = None
    """A list of partition keys, which may be empty. None: no restriction."""
    first: str | None = None
    last: str | None = None
    """`first` and `last` are the inclusive bounds of a range of partitions, see `PartitionRanges`. None: no bound."""
    where: str | None = None
    """A condition on partition columns, see `PartitionFilter`. None: no restriction."""

    @property
    def id(self) -> str:
        """A digest of the criteria."""
        keys = ["keys", *sorted(set(self.keys))] if self.keys is not None else []
        bounds = [repr(self.first), repr(self.last)]
        bounds += [] if self.where is None else [repr(PartitionFilter.of(self.where))]
        return digest_texts([self.mode, *bounds, *sorted(set(self.partitions)), *keys])

    @property
    def is_limited(self) -> bool:
        """Whether there is any criterion besides the mode."""
        criteria = (self.keys, self.first, self.last, self.where)
        return bool(self.partitions) or any(criterion is not None for criterion in criteria)

    def select_keys(self, table: str, snapshot: SnapshotMetadata, all_keys: Collection[str]) -> tuple[str, ...]:
        """Return the keys of the partitions that satisfy all criteria except `mode`, ordered by value.

        Args:
            table: Name of the table.
            snapshot: The types of the partition columns.
            all_keys: The keys of all partitions.

        Raises:
            PartitionNotFoundError: A criterion matches no partition, or no partition satisfies all criteria.
            ColumnNotFoundError: The condition names a column that is no partition column.
            LiteralError: A bound of the range, or a literal of the condition, is no value of its partition column.
        """
        ranges = PartitionRanges(table, snapshot, all_keys)
        is_limited = self.first is not None or self.last is not None
        keys = ranges.between(self.first, self.last) if is_limited else ranges.keys
        if self.where is not None:
            keys = _filter_keys(table, self.where, keys, snapshot)
        if not self.partitions and self.keys is None:
            return keys
        named_keys = match_partitions(table, self.partitions, ranges.keys)
        named_keys |= resolve_partition_keys(table, self.keys or (), ranges.keys)
        selected_keys = tuple(key for key in keys if key in named_keys)
        if named_keys and not selected_keys:
            raise PartitionNotFoundError(
                f"table {table!r}: none of the {len(named_keys):,} named partitions is between {keys[0]!r} and "
                f"{keys[-1]!r}, as --from, --to and --where require: name other partitions, or omit these options"
            )
        return selected_keys


def _filter_keys(table: str, where: str, keys: Sequence[str], snapshot: SnapshotMetadata) -> tuple[str, ...]:
    """Return the keys of the partitions that may satisfy the condition `where`.

    Raises:
        PartitionNotFoundError: No partition satisfies the condition.
        ColumnNotFoundError: The condition names a column that is no partition column.
        LiteralError: A literal of the condition is no value of its partition column.
    """
    condition = PartitionFilter.of(where)
    items = {key: decode_partition_key(key) for key in keys}
    names = (name for key_items in items.values() for name, _ in key_items)
    columns = list(dict.fromkeys([*snapshot.partition_columns, *names]))
    if unknown := condition.unknown_columns(columns):
        raise ColumnNotFoundError(
            f"table {table!r} has no partition column {unknown[0]!r}, which --where {where!r} names"
            + (close_names(unknown[0], columns, "; it is partitioned by {}") or "; it is not partitioned")
        )
    bound = condition.bind(table, {name: snapshot.partition_type(name) for name in columns})
    selected_keys = tuple(key for key in keys if bound.may_match(items[key]))
    if not selected_keys:
        raise PartitionNotFoundError(f"table {table!r}: --where {where!r} matches none of {len(keys):,} partitions")
    return selected_keys


@dataclass(frozen=True)
class Chunk:
    """The partitions that one step of a backfill processes."""

    keys: tuple[str, ...]
    """Selected partitions, in the order of their values."""
    read_again: tuple[str, ...]
    """Keys of the partitions whose fragments are read although their profiles are stored."""
    fragments: int
    """Number of fragments to read, including those of partitions that are not selected."""
    bytes: int
    """Stored size in bytes of the fragments to read."""
    publishes: bool = True
    """Whether the chunk publishes a version. If not, its profiles are saved for the next refresh."""


@dataclass(frozen=True)
class PartitionTotals:
    """A number of partitions, with the number and stored bytes of the fragments to read in them."""

    partitions: int = 0
    fragments: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class BackfillOptions:
    """The options of a backfill besides its selection."""

    publish: bool = True
    """Whether chunks publish versions. If the table has no version yet, nothing is published while partitions that are
    not selected are missing."""
    chunk_partitions: int | None = None
    """Maximum number of partitions that a chunk reads again; None to limit chunks by `CHUNK_BYTES` and
    `CHUNK_FRAGMENTS`."""
    restart: bool = False
    """Whether to process again the partitions that an interrupted backfill has finished."""


DEFAULT_OPTIONS = BackfillOptions()


@dataclass(frozen=True)
class BackfillPlan:
    """The chunks of a backfill, and their totals."""

    table: str
    snapshot: str
    version: int
    """Number of the newest version, which the plan starts from; 0 if there is none."""
    selection: BackfillSelection
    selected_count: int
    """Number of partitions that satisfy all criteria except the mode."""
    total: int
    """Number of partitions of the table."""
    missing: int
    """Number of partitions to process that the newest version does not have."""
    stale: int
    """Number of partitions to process that are in the newest version, and whose fragments or policies have changed."""
    chunks: tuple[Chunk, ...]
    unselected_totals: PartitionTotals
    """Totals of the missing and stale partitions that are not selected."""
    done: tuple[str, ...] = ()
    """Keys of the selected partitions that an interrupted backfill of this selection has finished."""
    attempt: str = ""
    """Id of the backfill, see `BackfillRecord`. A continued backfill keeps its id."""
    seconds: float | None = None
    """Estimated duration in seconds, from the durations of earlier refreshes; None if there are none."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of the partitions to process, in the order of the chunks."""
        return tuple(chain.from_iterable(chunk.keys for chunk in self.chunks))

    @property
    def publishes(self) -> bool:
        """Whether every chunk publishes a version."""
        return all(chunk.publishes for chunk in self.chunks)

    @property
    def fragments(self) -> int:
        """Number of fragments to read."""
        return sum(chunk.fragments for chunk in self.chunks)

    @property
    def bytes(self) -> int:
        """Stored size in bytes of the fragments to read."""
        return sum(chunk.bytes for chunk in self.chunks)


@dataclass(frozen=True)
class PlannedRefresh:
    """The work that a refresh would do now: what it would merge and read.

    A backfill is planned from this work. A refresh reads only fragments without a usable profile.
    """

    table: str
    base: Version | None
    """The newest version; None if there is none."""
    snapshot: SnapshotMetadata
    changed_keys: frozenset[str]
    """Keys of the partitions that the refresh would merge."""
    partitions: Mapping[str, tuple[int, int]]
    """Number and stored bytes of the fragments of each partition of the snapshot, by partition key."""
    unread: Mapping[str, tuple[int, int]]
    """Number and stored bytes of the fragments that the refresh would read, by partition key."""
    is_current: bool
    """Whether the newest version has the snapshot and the profile spec of the refresh."""

    @classmethod
    def of(cls, plan: Plan) -> PlannedRefresh:
        """Summarize the plan of a refresh."""
        unread: dict[str, tuple[int, int]] = {}
        for fragment in plan.to_profile:
            count, size = unread.get(fragment.partition_key, (0, 0))
            unread[fragment.partition_key] = count + 1, size + fragment.bytes
        changed_keys, sizes = frozenset(plan.changed_partitions), _partition_sizes(plan)
        return cls(plan.table, plan.base, plan.snapshot, changed_keys, sizes, unread, _is_current(plan))

    @classmethod
    def of_first(cls, table: str, totals: FirstVersionTotals) -> PlannedRefresh:
        """Summarize the first version of a table."""
        partitions = totals.partitions
        return cls(table, None, totals.snapshot, frozenset(partitions), partitions, totals.unread, False)


def make_backfill_plan(
    planned_refresh: PlannedRefresh,
    selection: BackfillSelection,
    options: BackfillOptions = DEFAULT_OPTIONS,
    *,
    done: Collection[str] = (),
) -> BackfillPlan:
    """Return the plan of a backfill: the chunks and their totals.

    If partitions were only removed from the table, the plan has one chunk without partitions, so that a version is
    published.

    `seconds` and `attempt` of the plan keep their defaults. The caller sets them from the records of earlier refreshes
    and backfills.

    Args:
        planned_refresh: What a refresh would merge and read.
        selection: The criteria of the partitions.
        options: Whether versions are published, and the size of chunks.
        done: Keys of partitions that an interrupted backfill has finished. In these partitions, only fragments without
            a usable stored profile are read.

    Raises:
        PartitionNotFoundError: The selection matches no partition.
        ColumnNotFoundError: The condition names a column that is no partition column.
        LiteralError: A bound of the range, or a literal of the condition, is no value of its partition column.
    """
    base, changed_keys, sizes, unread = (
        planned_refresh.base,
        planned_refresh.changed_keys,
        planned_refresh.partitions,
        planned_refresh.unread,
    )
    published_counts = partition_fragment_counts(base) if base else {}
    selected_keys = selection.select_keys(planned_refresh.table, planned_refresh.snapshot, sizes)
    mode = selection.mode
    outdated_keys = [
        key
        for key in selected_keys
        if key in changed_keys and _mode_includes(mode, is_published=key in published_counts)
    ]
    forced_keys = [key for key in outdated_keys if mode == "all" and key in published_counts and key not in done]
    unselected_totals = _totals(unread, changed_keys - set(outdated_keys))
    publishes = options.publish and (base is not None or not unselected_totals.partitions)
    current = [key for key in selected_keys if mode == "all" and key not in changed_keys]
    # If partitions were only removed from the table, a version is published although nothing is read.
    only_removed = (
        mode in ("outdated", "all") and not selection.is_limited and not current and not planned_refresh.is_current
    )
    chunks = []
    if outdated_keys or only_removed:
        totals = _totals({**unread, **{key: sizes[key] for key in forced_keys}}, outdated_keys)
        others = unselected_totals if publishes else PartitionTotals()
        count, size = totals.fragments + others.fragments, totals.bytes + others.bytes
        chunks.append(Chunk(tuple(outdated_keys), tuple(forced_keys), count, size, publishes))
    # A continued backfill makes the same chunks: saved profiles are stored under the keys of their chunk.
    for chunk_keys in _split_into_chunks(current, sizes, options.chunk_partitions):
        keys = tuple(key for key in chunk_keys if key not in done)
        if not keys:
            continue
        totals = _totals(sizes, keys)
        others = unselected_totals if not chunks else PartitionTotals()
        chunks.append(Chunk(keys, keys, totals.fragments + others.fragments, totals.bytes + others.bytes))
    stale = sum(key in published_counts for key in outdated_keys)
    return BackfillPlan(
        table=planned_refresh.table,
        snapshot=planned_refresh.snapshot.id,
        version=base.number if base else 0,
        selection=selection,
        selected_count=len(selected_keys),
        total=len(sizes),
        missing=len(outdated_keys) - stale,
        stale=stale,
        chunks=tuple(chunks),
        unselected_totals=unselected_totals,
        done=tuple(key for key in selected_keys if key in done),
    )


def expected_seconds(refresh_stats: Sequence[RefreshStats], bytes_: int, versions: int) -> float | None:
    """Estimate the duration of a backfill in seconds; None without an earlier refresh.

    The reading speed is taken from the earlier refresh that read the most bytes. Each version takes at least as long
    as the fastest earlier refresh.

    Args:
        refresh_stats: The bytes that earlier refreshes read, and their durations.
        bytes_: Stored bytes to read.
        versions: Number of versions to publish.
    """
    if not refresh_stats:
        return None
    largest = max(refresh_stats, key=lambda stats: stats.bytes)
    rate = largest.seconds / largest.bytes if largest.bytes else 0.0
    return max(rate * bytes_, versions * min(stats.seconds for stats in refresh_stats))


def _mode_includes(mode: Mode, *, is_published: bool) -> bool:
    """Return whether a mode selects a partition that is not up to date.

    Args:
        mode: The mode.
        is_published: Whether the newest version has the partition. If it does, the partition is stale, else missing.
    """
    return mode in ("outdated", "all") or (mode == "stale") == is_published


def _is_current(plan: Plan) -> bool:
    """Return whether the published version has the plan's snapshot and profile spec.

    A profile spec says which statistics a profile has.
    """
    base = plan.base
    planned_identity = (plan.snapshot.id, plan.snapshot.committed_at, plan.spec.id)
    return base is not None and (base.snapshot, base.committed_at, base.spec_id) == planned_identity


def _partition_sizes(plan: Plan) -> dict[str, tuple[int, int]]:
    """Return {partition key: (number of fragments, stored bytes)} of all partitions of the snapshot."""
    sizes = partition_sizes(plan.base) if plan.base else {}
    for key in plan.removed_partitions:
        del sizes[key]
    added_sizes = {fragment.id: fragment.bytes for fragment in plan.target.changes.added_fragments}
    for partition in plan.partitions:
        stored_sizes = {entry.id: entry.bytes for entry in partition.fragments_before}
        fragments = [added_sizes[id_] if id_ in added_sizes else stored_sizes[id_] for id_ in partition.fragments]
        sizes[partition.key] = len(fragments), sum(fragments)
    return sizes


def _totals(sizes: Mapping[str, tuple[int, int]], keys: Collection[str]) -> PartitionTotals:
    members = [sizes.get(key, (0, 0)) for key in keys]
    return PartitionTotals(len(keys), sum(count for count, _ in members), sum(size for _, size in members))


def _split_into_chunks(
    keys: Sequence[str], partition_sizes: Mapping[str, tuple[int, int]], max_partitions: int | None
) -> Iterator[tuple[str, ...]]:
    """Split keys into consecutive chunks of at most `max_partitions` keys.

    If `max_partitions` is None, chunks are of similar size, and as few as possible. Each has at most about
    `CHUNK_BYTES` bytes and `CHUNK_FRAGMENTS` fragments.

    Args:
        keys: The partition keys.
        partition_sizes: {partition key: (number of fragments, their bytes)}.
        max_partitions: The maximum number of keys of a chunk, or None.
    """
    shares = {key: max(size / CHUNK_BYTES, count / CHUNK_FRAGMENTS) for key, (count, size) in partition_sizes.items()}
    total = sum(shares[key] for key in keys)
    limit = total / max(1, ceil(total - 1e-9))
    chunk: list[str] = []
    share = 0.0
    for key in keys:
        is_full = len(chunk) == max_partitions if max_partitions is not None else share + shares[key] / 2 > limit
        if chunk and is_full:
            yield tuple(chunk)
            chunk, share = [], 0.0
        chunk.append(key)
        share += shares[key]
    if chunk:
        yield tuple(chunk)
