"""What a backfill has to do: which partitions, read why, in which chunks. A comparison of versions, not of runs.

A version describes the whole table, so all partitions of which the newest version lacks something come into one
version: they are one chunk, however many there are, whose profiles are kept as it goes. Partitions that the newest
version has, and that are read again all the same, may come into several: each chunk of them is a version.
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
from metastore_assets.store.manifest import Effort

Mode = Literal["outdated", "missing", "stale", "all"]
"""What of the partitions is meant: those that the newest version does not have (missing); those that it has, and that
changed since or are wanted under other policies (stale); both (outdated); or all."""

CHUNK_BYTES = 16 << 30
"""Of files that a chunk reads again, where nobody says how many partitions it has."""


@dataclass(frozen=True)
class Choice:
    """Which partitions of a table are meant: those named, in whatever way, as far as they lie in the range."""

    mode: Mode = "outdated"
    partitions: tuple[str, ...] = ()
    """Keys or patterns, see `match_partitions`."""
    keys: tuple[str, ...] | None = None
    """Keys from a list, which may be empty; None where there is no list."""
    first: str | None = None
    last: str | None = None
    """Bounds of a range, both included, see `PartitionRanges`."""
    where: str | None = None
    """A condition on partition columns, see `PartitionFilter`."""

    @property
    def id(self) -> str:
        """Digest of it: who asks for the same again goes on with what was interrupted."""
        keys = ["keys", *sorted(set(self.keys))] if self.keys is not None else []
        bounds = [repr(self.first), repr(self.last)]
        bounds += [] if self.where is None else [repr(PartitionFilter.of(self.where))]
        return digest([self.mode, *bounds, *sorted(set(self.partitions)), *keys])

    @property
    def is_limited(self) -> bool:
        """Whether it names partitions at all."""
        return bool(self.partitions) or any(own is not None for own in (self.keys, self.first, self.last, self.where))

    def keys_of(self, table: str, snapshot: Snapshot) -> tuple[str, ...]:
        """The keys that are meant, whatever their state, in the order of their values.

        Raises PartitionNotFoundError for what names no partition, and LiteralError for bounds that make no sense.
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
    if unknown := condition.unknown(known):
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
    """What is done in one go."""

    keys: tuple[str, ...]
    """Partitions of the choice, in the order of their values."""
    again: tuple[str, ...]
    """Those that are read again, whatever is stored of them."""
    fragments: int
    """To be read, besides those of the choice included."""
    bytes: int
    publishes: bool = True
    """Whether it ends with a version; else what it reads is kept for the refresh that does."""


@dataclass(frozen=True)
class Group:
    """Some partitions, and what is to be read of them."""

    partitions: int = 0
    fragments: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class BackfillPlan:
    """What a backfill does. Nothing is done by making it."""

    table: str
    snapshot: str
    version: int
    """The newest version, that it starts from; 0 before the first."""
    choice: Choice
    chosen: int
    """Number of partitions named, up to date or not."""
    total: int
    """Of the table."""
    missing: int
    """Of the partitions to be done, those that the version does not have."""
    stale: int
    """Those that it has, and that are out of date."""
    chunks: tuple[Chunk, ...]
    besides: Group
    """What is out of date and was not chosen."""
    done: tuple[str, ...] = ()
    """Partitions that an interrupted backfill for the same choice has done."""
    attempt: str = ""
    """Identifies the backfill, see `BackfillRecord`. The interrupted one's, where this plan continues it."""
    seconds: float | None = None
    """How long it may take, by what earlier versions took; None where there is nothing to tell by."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The partitions to be done, in the order of the chunks."""
        return tuple(chain.from_iterable(chunk.keys for chunk in self.chunks))

    @property
    def publishes(self) -> bool:
        """Whether it ends with a version. Else what is not chosen has to be read before there can be one."""
        return all(chunk.publishes for chunk in self.chunks)

    @property
    def fragments(self) -> int:
        """To be read."""
        return sum(chunk.fragments for chunk in self.chunks)

    @property
    def bytes(self) -> int:
        """Stored size of the fragments to be read."""
        return sum(chunk.bytes for chunk in self.chunks)


def make_backfill_plan(
    plan: Plan,
    choice: Choice,
    *,
    done: Collection[str] = (),
    publish: bool = True,
    chunk: int | None = None,
) -> BackfillPlan:
    """What is to be done for a choice; `plan` is what a refresh would do that reads nothing again.

    `done` are partitions that need not be read again any more. A chunk of what is read again has at most `chunk`
    partitions, without it at most `CHUNK_BYTES`. Without `publish`, or before the first version where other partitions
    lack as well, the chosen ones are read and nothing is published.

    Raises what `Choice.keys_of` does.
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
    # Partitions may have gone, and no other changed: that is a version as well.
    whole = choice.mode in ("outdated", "all") and not choice.is_limited and not again and not _is_current(plan)
    chunks = []
    if lacking or whole:
        read = _group({**unread, **{key: fragments[key] for key in forced}}, lacking)
        also = besides if publishes else Group()
        chunks.append(
            Chunk(tuple(lacking), tuple(forced), read.fragments + also.fragments, read.bytes + also.bytes, publishes)
        )
    # Whoever goes on with an interrupted backfill makes the same chunks: their attempts are known by their keys.
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


def expected_seconds(efforts: Sequence[Effort], bytes_: int, versions: int) -> float | None:
    """How long it takes to make so many versions that read so many bytes in all, by what others took: a rough guess.

    By the one that read most, and no less than the quickest for each.
    """
    if not efforts:
        return None
    most = max(efforts, key=lambda own: own.bytes)
    rate = most.seconds / most.bytes if most.bytes else 0.0
    return max(rate * bytes_, versions * min(own.seconds for own in efforts))


def _is_meant(mode: Mode, is_published: bool) -> bool:
    return mode in ("outdated", "all") or (mode == "stale") == is_published


def _is_current(plan: Plan) -> bool:
    """Whether the published version is of the plan's snapshot and profile spec."""
    base = plan.base
    now = (plan.snapshot.id, plan.snapshot.committed_at, plan.spec.id)
    return base is not None and (base.snapshot, base.committed_at, base.spec_id) == now


def _group(fragments: Mapping[str, Sequence[Fragment]], keys: Collection[str]) -> Group:
    read = [fragment for key in keys for fragment in fragments.get(key, ())]
    return Group(len(keys), len(read), sum(fragment.bytes for fragment in read))


def _chunked(
    keys: Sequence[str], fragments: Mapping[str, Sequence[Fragment]], most: int | None
) -> Iterator[tuple[str, ...]]:
    """The keys in their order, as many at a time as may be, and about as many in each."""
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
