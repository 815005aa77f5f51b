"""The plan of a backfill: which partitions are read, and in which chunks.

A version describes the whole table. All partitions that are missing or outdated in the newest version therefore make
one chunk, however many there are; their profiles are saved as they are finished. Partitions that are up to date and
are read again can be split into several chunks, each of which publishes a version.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal

from metastore_assets.errors import ColumnNotFoundError, PartitionNotFoundError
from metastore_assets.expressions.partition_filter import PartitionFilter
from metastore_assets.expressions.partition_keys import decode_partition_key
from metastore_assets.expressions.partition_patterns import match_partitions, resolve_partition_keys
from metastore_assets.formats.base import Fragment, Snapshot
from metastore_assets.formats.partition_ranges import PartitionRanges
from metastore_assets.messages import close_names
from metastore_assets.pipeline.column_spec import digest
from metastore_assets.pipeline.plan import Plan
from metastore_assets.store.manifest import RefreshStats

Mode = Literal["outdated", "missing", "stale", "all"]
"""The state of the selected partitions: `missing` from the newest version; `stale`, because they or their policies
changed since; `outdated`, which is both; or `all`."""

CHUNK_BYTES = 16 << 30
"""Most stored bytes that a chunk reads again, unless a number of partitions is requested."""


@dataclass(frozen=True)
class BackfillSelection:
    """The partitions that a backfill is for: those that satisfy all of the criteria."""

    mode: Mode = "outdated"
    partitions: tuple[str, ...] = ()
    """Keys or patterns, see `match_partitions`. Empty for all partitions."""
    keys: tuple[str, ...] | None = None
    """Keys from a list, which may be empty; None without a list."""
    first: str | None = None
    last: str | None = None
    """Bounds of a range, both included, see `PartitionRanges`."""
    where: str | None = None
    """A condition on partition columns, see `PartitionFilter`."""

    @property
    def id(self) -> str:
        """Digest of the selection: a backfill with the same id continues an interrupted one."""
        keys = ["keys", *sorted(set(self.keys))] if self.keys is not None else []
        bounds = [repr(self.first), repr(self.last)]
        bounds += [] if self.where is None else [repr(PartitionFilter.of(self.where))]
        return digest([self.mode, *bounds, *sorted(set(self.partitions)), *keys])

    @property
    def is_limited(self) -> bool:
        """Whether any criterion besides the mode is given."""
        return bool(self.partitions) or any(own is not None for own in (self.keys, self.first, self.last, self.where))

    def keys_of(self, table: str, snapshot: Snapshot) -> tuple[str, ...]:
        """Return the selected keys, whatever their state, in the order of their values.

        Args:
            table: Name of the table.
            snapshot: The snapshot with the partitions.

        Raises:
            PartitionNotFoundError: A criterion matches no partition.
            LiteralError: A bound is no value of the partition columns.
        """
        ranges = PartitionRanges(table, snapshot)
        limited = self.first is not None or self.last is not None
        between = ranges.between(self.first, self.last) if limited else ranges.keys
        if self.where is not None:
            between = _where(table, self.where, between, snapshot)
        if not self.partitions and self.keys is None:
            return between
        named = match_partitions(table, self.partitions, ranges.keys)
        named |= resolve_partition_keys(table, self.keys or (), ranges.keys)
        found = tuple(key for key in between if key in named)
        if named and not found:
            raise PartitionNotFoundError(
                f"table {table!r}: none of the {len(named):,} partitions named lies between {between[0]!r} and "
                f"{between[-1]!r}, as --from, --to and --where say: name others, or leave these out"
            )
        return found


def _where(table: str, where: str, keys: Sequence[str], snapshot: Snapshot) -> tuple[str, ...]:
    condition = PartitionFilter.of(where)
    items = {key: decode_partition_key(key) for key in keys}
    known = list(dict.fromkeys([*snapshot.partition_columns, *(name for own in items.values() for name, _ in own)]))
    if unknown := condition.unknown_columns(known):
        raise ColumnNotFoundError(
            f"table {table!r} has no partition column {unknown[0]!r}, which --where {where!r} is about"
            + (close_names(unknown[0], known, "; it is partitioned by {}") or "; it is not partitioned")
        )
    bound = condition.bind(table, {name: snapshot.partition_type(name) for name in known})
    found = tuple(key for key in keys if bound.may_match(items[key]))
    if not found:
        raise PartitionNotFoundError(f"table {table!r}: --where {where!r} is true of none of {len(keys):,} partitions")
    return found


@dataclass(frozen=True)
class Chunk:
    """The partitions that are processed at a time."""

    keys: tuple[str, ...]
    """Selected partitions, in the order of their values."""
    again: tuple[str, ...]
    """Partitions that are read again although their profiles are stored."""
    fragments: int
    """Number of fragments to read, those of partitions that are not selected included."""
    bytes: int
    publishes: bool = True
    """Whether the chunk publishes a version. Else its profiles are saved for the next refresh."""


@dataclass(frozen=True)
class Group:
    """Totals of a group of partitions."""

    partitions: int = 0
    fragments: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class BackfillPlan:
    """The chunks of a backfill, and the numbers that describe them."""

    table: str
    snapshot: str
    version: int
    """The newest version, which the plan starts from; 0 before the first."""
    choice: BackfillSelection
    chosen: int
    """Number of selected partitions, up to date or not."""
    total: int
    """Number of partitions of the table."""
    missing: int
    """Number of partitions to process that the version does not have."""
    stale: int
    """Number of partitions to process that the version has, and that are outdated."""
    chunks: tuple[Chunk, ...]
    besides: Group
    """Outdated partitions that are not selected."""
    done: tuple[str, ...] = ()
    """Partitions that an interrupted backfill with the same selection has finished."""
    attempt: str = ""
    """Identifies the backfill, see `BackfillRecord`. The interrupted one's, where this plan continues it."""
    seconds: float | None = None
    """Estimated duration from that of earlier versions; None without an earlier version."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The partitions to process, in the order of the chunks."""
        return tuple(chain.from_iterable(chunk.keys for chunk in self.chunks))

    @property
    def publishes(self) -> bool:
        """Whether the backfill publishes versions. Else other partitions have to be read before the first version."""
        return all(chunk.publishes for chunk in self.chunks)

    @property
    def fragments(self) -> int:
        """Number of fragments to read."""
        return sum(chunk.fragments for chunk in self.chunks)

    @property
    def bytes(self) -> int:
        """Stored size of the fragments to be read."""
        return sum(chunk.bytes for chunk in self.chunks)


def make_backfill_plan(
    plan: Plan,
    choice: BackfillSelection,
    *,
    done: Collection[str] = (),
    publish: bool = True,
    chunk: int | None = None,
) -> BackfillPlan:
    """Return the plan of a backfill.

    Args:
        plan: The plan of a refresh that reads nothing again.
        choice: The selected partitions.
        done: Partitions that an interrupted backfill has finished.
        publish: Whether versions are published. Nothing is published before the first version if partitions that are
            not selected are missing as well.
        chunk: Most partitions that a chunk reads again. By default, chunks are limited by `CHUNK_BYTES`.

    Raises:
        PartitionNotFoundError: The selection matches no partition.
        LiteralError: A bound is no value of the partition columns.
    """
    base = plan.base
    published = {entry.key for entry in base.partitions} if base else set()
    changed = set(plan.changed_partitions)
    chosen = choice.keys_of(plan.table, plan.snapshot)
    fragments: dict[str, list[Fragment]] = {}
    unread: dict[str, list[Fragment]] = {}
    for fragment in plan.snapshot.fragments:
        fragments.setdefault(fragment.partition_key, []).append(fragment)
    for fragment in plan.to_profile:
        unread.setdefault(fragment.partition_key, []).append(fragment)

    lacking = [key for key in chosen if key in changed and _is_meant(choice.mode, key in published)]
    forced = [key for key in lacking if choice.mode == "all" and key in published and key not in done]
    besides = _group(unread, changed - set(lacking))
    publishes = publish and (base is not None or not besides.partitions)
    again = [key for key in chosen if choice.mode == "all" and key not in changed]
    # If partitions were only removed, a version is published as well.
    whole = choice.mode in ("outdated", "all") and not choice.is_limited and not again and not _is_current(plan)
    chunks = []
    if lacking or whole:
        read = _group({**unread, **{key: fragments[key] for key in forced}}, lacking)
        also = besides if publishes else Group()
        chunks.append(
            Chunk(tuple(lacking), tuple(forced), read.fragments + also.fragments, read.bytes + also.bytes, publishes)
        )
    # A continued backfill makes the same chunks: saved profiles are found by the keys of their chunk.
    for all_keys in _chunked(again, fragments, chunk):
        keys = tuple(key for key in all_keys if key not in done)
        if not keys:
            continue
        own = _group(fragments, keys)
        also = besides if not chunks else Group()
        chunks.append(Chunk(keys, keys, own.fragments + also.fragments, own.bytes + also.bytes))
    stale = sum(key in published for key in lacking)
    return BackfillPlan(
        table=plan.table,
        snapshot=plan.snapshot.id,
        version=base.number if base else 0,
        choice=choice,
        chosen=len(chosen),
        total=len(plan.partitions),
        missing=len(lacking) - stale,
        stale=stale,
        chunks=tuple(chunks),
        besides=besides,
        done=tuple(key for key in chosen if key in done),
    )


def expected_seconds(efforts: Sequence[RefreshStats], bytes_: int, versions: int) -> float | None:
    """Estimate the duration of a backfill; None without an earlier version.

    The rate is that of the version that read most. Each version takes at least as long as the fastest one.

    Args:
        efforts: The refresh_stats of earlier versions.
        bytes_: Stored bytes to read.
        versions: Number of versions to publish.
    """
    if not efforts:
        return None
    most = max(efforts, key=lambda own: own.bytes)
    rate = most.seconds / most.bytes if most.bytes else 0.0
    return max(rate * bytes_, versions * min(own.seconds for own in efforts))


def _is_meant(mode: Mode, is_published: bool) -> bool:
    return mode in ("outdated", "all") or (mode == "stale") == is_published


def _is_current(plan: Plan) -> bool:
    """Return whether the published version has the plan's snapshot and profile spec."""
    base = plan.base
    now = (plan.snapshot.id, plan.snapshot.committed_at, plan.spec.id)
    return base is not None and (base.snapshot, base.committed_at, base.spec_id) == now


def _group(fragments: Mapping[str, Sequence[Fragment]], keys: Collection[str]) -> Group:
    read = [fragment for key in keys for fragment in fragments.get(key, ())]
    return Group(len(keys), len(read), sum(fragment.bytes for fragment in read))


def _chunked(
    keys: Sequence[str], fragments: Mapping[str, Sequence[Fragment]], most: int | None
) -> Iterator[tuple[str, ...]]:
    """Split keys into chunks of about the same size, in their order."""
    sizes = {key: sum(fragment.bytes for fragment in fragments[key]) for key in keys}
    whole = sum(sizes.values())
    limit = whole / max(1, -(-whole // CHUNK_BYTES))
    chunk: list[str] = []
    size = 0
    for key in keys:
        full = len(chunk) == most if most is not None else size + sizes[key] // 2 > limit
        if chunk and full:
            yield tuple(chunk)
            chunk, size = [], 0
        chunk.append(key)
        size += sizes[key]
    if chunk:
        yield tuple(chunk)
