"""The merge policy of sorted segments, in which each commit merges a bounded number of keys.

A segment has rows with unique keys, and tombstones: keys that it removes from older segments. The segments of a set
become larger with their age. A commit, which creates the next version of a set, writes one more segment. If the newest
segments are small, the commit merges them into its own at once. Larger segments are absorbed by an older one in
*steps*: a step merges one range of keys of several newer segments into the older one. Later commits do the next steps.
After the last step, the newer segments are dropped.

Between two steps, the first file of a newer segment may still contain rows and tombstones that a step has merged into
the older one. Readers must ignore these rows and tombstones, because they may be outdated: if several newer segments
had a row with the same key, the older segment now has the newest of these rows. The `first` key of the newer segments
shows where the next step begins.

A version has several segment sets: entries of several kinds, and indexes. A commit that changes many keys merges
segments of one set only (see `store.merged_set`), and only as many as fit into a budget of keys. To the other sets, it
only adds a segment. So the work of a commit is bounded by its changes and this budget, even if a set is large.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeAlias, TypeVar

import pyarrow as pa

from metastore_assets.store.keys import SegmentKeyRange
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.segment_merge import MergeSource, cut_files, merge_segments, shorten_bounds
from metastore_assets.store.segments import (
    EMPTY,
    KeyChanges,
    SegmentFile,
    SegmentFiles,
    SegmentKind,
    key_count,
    retained_files,
)

_GROWTH = 4
"""A commit of few keys absorbs a segment when the next older one has at most this many times as many keys."""
_BASE_GROWTH = 1
"""The oldest segment, the base, absorbs all newer segments when it has at most this many times as many keys as they
have together."""
_DELTA_GROWTH = 1.5
"""A segment other than the base absorbs all newer ones when it has at most this many times as many keys as they have
together."""
_MAX_WAITING = 4
"""Maximum number of segments that wait until the steps of others end, if commits change many keys. If it were smaller,
more keys would be rewritten. If it were larger, lookups would open more files."""
_MAX_WAITING_BEGUN = 10
"""Maximum number of waiting segments while older segments are being absorbed. It is larger than `_MAX_WAITING`, so that
steps that have begun come to an end."""
_MIN_ABSORBED = 1 / 8
"""Minimum number of keys of absorbed segments, as a fraction of the keys of a file."""
_WORK_PER_KEY = 6
"""Minimum budget of a commit in keys, per changed key. Commits of 2,000 random keys of a million need about 6."""
_BUDGET_FILES = 2
"""Budget of a commit of many keys: how many keys it rewrites, in files with the maximum number of keys. The kind of a
set may have another budget."""
_BEGIN_SHARE = 0.5
"""A commit begins another step if it has rewritten at most this share of its budget, also if the step may exceed the
budget. Otherwise, large steps would never be done."""
_MAX_SEGMENTS = 32
"""A commit to a set with more segments has twice the budget."""
_MIN_CHANGED = 1 / 100
"""Minimum number of changed keys of a commit of many keys, as a fraction of the keys of a file."""


@dataclass(frozen=True)
class SegmentPart:
    """One input of a merge: some files of a stored segment, with all of their keys or a range of keys."""

    files: tuple[SegmentFile, ...]
    keys: SegmentKeyRange | None = None
    """The range of keys; None for all keys."""


Batch = TypeVar("Batch")


@dataclass(frozen=True)
class SegmentMerge(Generic[Batch]):
    """The inputs of one new segment: parts of stored segments, and the changes of a commit."""

    parts: Sequence[SegmentPart]
    """The parts of stored segments, the oldest first."""
    batch: Batch | None
    """Rows that the commit adds or replaces; None if there are none."""
    removed_keys: Collection[Any]
    """Keys of rows that the commit removes."""
    with_tombstones: bool
    """Whether tombstones are written, which the oldest segment does not need."""
    file_rows: int
    """Number of keys after which a file is closed."""

    def numbered_parts(self) -> Iterator[tuple[range, SegmentKeyRange | None]]:
        """Yield (numbers of the part's files, range of keys) for each of `parts`.

        The range is None for all keys.

        Files are numbered through all parts: a first part with two files has 0 and 1, and the second starts at 2.
        """
        start = 0
        for part in self.parts:
            numbers = range(start, start + len(part.files))
            yield numbers, part.keys
            start = numbers.stop

    def write_files(
        self,
        sources: Sequence[MergeSource],
        schema: pa.Schema,
        write_file: Callable[[pa.Table, pa.Array], SegmentFile],
        *,
        keeps_replaced: bool = False,
    ) -> list[SegmentFile]:
        """Merge sources, and write the result as the files of one segment, by ascending key.

        Args:
            sources: The rows and tombstones of `parts`, the oldest first, then those of the commit.
            schema: The columns of the merged rows, the key first.
            write_file: Writes the rows and the tombstones of one file.
            keeps_replaced: Whether to write also the tombstones of keys that have a newer row (see `merge_segments`).
        """
        files: list[SegmentFile] = []
        ranges = self.merge_ranges(sources, schema, keeps_replaced=keeps_replaced)
        for rows, tombstones in cut_files(ranges, self.file_rows):
            files.append(write_file(rows, tombstones)._replace(continues=bool(files)))
        return files

    def merge_ranges(
        self, sources: Sequence[MergeSource], schema: pa.Schema, *, keeps_replaced: bool = False
    ) -> Iterator[tuple[pa.Table, pa.Array]]:
        """Merge sources, and yield (rows, tombstones) of successive ranges of keys.

        The arguments are as in `write_files`. If `self.with_tombstones` is false, each array of tombstones is empty.
        """
        for rows, tombstones in merge_segments(sources, schema, keeps_replaced=keeps_replaced):
            yield rows, tombstones if self.with_tombstones else tombstones.slice(0, 0)


WriteMerged: TypeAlias = Callable[[Sequence[SegmentPart], bool, bool, int], Sequence[SegmentFile]]
"""Merges parts of segments, the oldest first, and returns the new files by ascending key. The other arguments: whether
the commit's changes are merged, too; whether tombstones are written; the number of keys after which a file is
closed."""


def update_levels(
    kind: SegmentKind,
    before: SegmentFiles,
    changes: KeyChanges,
    write: WriteMerged,
    *,
    allow_step: bool,
) -> tuple[SegmentFile, ...]:
    """Write the changes of a commit to a segment set.

    Return the files of the new set, the oldest segment first.

    If all keys fit into one file, or the bounds of a stored file are unknown, segments are merged as `retained_files`
    says. Otherwise, the newest segments are merged if they are small, and larger ones in steps.

    Args:
        kind: The merge policy.
        before: The segments before the commit.
        changes: The keys that the commit changes.
        write: Merges parts of segments, with or without the changes of the commit, and writes the merged rows as files.
            It may be called several times. A later call may replace a file that an earlier call wrote: the result then
            lacks this file, and the caller may delete it.
        allow_step: Whether a commit of few keys does a step, if one is due. A step merges one range of keys of newer
            segments into an older segment.
    """
    changed_count = changes.key_count
    segments = before.segments
    limit = kind.file_rows
    if not _have_bounds(segments) or changed_count + sum(map(key_count, segments)) <= limit:
        retained_segment_files = retained_files(kind, before, changes.row_count, changed_count)
        merged_segments = SegmentFiles(0, before.files[len(retained_segment_files) :]).segments
        return (
            *retained_segment_files,
            *write([SegmentPart(files) for files in merged_segments], True, bool(retained_segment_files), limit),
        )
    max_newest, budget = _limit_work(kind, len(segments), changes, allow_step=allow_step)
    count = _retained_segments(kind, segments, changed_count, max_newest)
    rewritten_count = sum(map(key_count, segments[count:]))
    newest = shorten_bounds(write([SegmentPart(files) for files in segments[count:]], True, bool(count), limit))
    segments = [*segments[:count], *([tuple(newest)] if newest else [])]

    def write_step(
        parts: Sequence[SegmentPart], with_changes: bool, with_tombstones: bool, file_rows: int
    ) -> Sequence[SegmentFile]:
        nonlocal rewritten_count
        files = write(parts, with_changes, with_tombstones, file_rows)
        rewritten_count += key_count(files)
        return files

    is_last = False
    # A file that was just written may begin or end with a key that is too long to be recorded.
    while not is_last and (budget is None or rewritten_count < budget) and _have_bounds(segments):
        at = _next_absorbed(kind, segments, None if budget is None else budget - rewritten_count)
        if at is None:
            break
        group = slice(at.start - 1, at.stop)
        if budget is not None and rewritten_count > budget * _BEGIN_SHARE:
            step = _StepRange.of_step(kind, segments[group.start], segments[group.start + 1 : group.stop])
            if rewritten_count + step.key_count > budget:
                break
        segments[group] = _absorb(kind, segments[group], write_step, is_base=at.start == 1)
        is_last = budget is None
    files: list[SegmentFile] = []
    for first, *others in segments:
        files.append(first._replace(continues=False))
        files += [file if file.continues else file._replace(continues=True) for file in others]
    return tuple(files)


def changes_many(kind: SegmentKind, changed_count: int) -> bool:
    """Return whether a commit changes many keys of a set.

    Many keys are at least one percent of the keys of a full file.
    """
    return changed_count > 0 and changed_count >= kind.file_rows * _MIN_CHANGED


def _limit_work(
    kind: SegmentKind, segment_count: int, changes: KeyChanges, *, allow_step: bool
) -> tuple[int, int | None]:
    """Return how much a commit merges: (maximum number of keys of a merge of newest segments, budget).

    The budget is the approximate number of keys that the commit may rewrite in all. If it is 0, the commit does no
    step. If it is None, the commit does one step of any size.

    Args:
        kind: The merge policy.
        segment_count: Number of segments before the commit.
        changes: The keys that the commit changes.
        allow_step: Whether a commit of few keys does a step.
    """
    limit, changed_count = kind.file_rows, changes.key_count
    if not changes_many(kind, changed_count):
        return limit // 2, None if allow_step else 0
    if not changes.may_merge:
        return 0, 0
    if changed_count * _WORK_PER_KEY <= limit // 4:
        return limit // 2, None
    budget = max(kind.merge_budget or limit * _BUDGET_FILES, changed_count * _WORK_PER_KEY)
    if segment_count > _MAX_SEGMENTS:
        budget *= 2
    return round(budget * _BEGIN_SHARE), budget


def _have_bounds(segments: Sequence[Sequence[SegmentFile]]) -> bool:
    """Return whether the first and the last key of every file are known."""
    return not any(None in [bound for file in segment for bound in (file.first, file.last)] for segment in segments)


def _retained_segments(
    kind: SegmentKind, segments: Sequence[Sequence[SegmentFile]], changed_count: int, max_newest: int
) -> int:
    """Return how many of the oldest segments a commit leaves as they are.

    The commit merges all newer segments with its own changes.

    Args:
        kind: The merge policy.
        segments: The files of each segment, the oldest segment first.
        changed_count: Number of keys that the commit changes.
        max_newest: Maximum number of keys of a merge. It does not apply if all merged segments are small, or if the
            commit changes so many keys that it rewrites the set.
    """
    count, merged_count = len(segments), changed_count
    # Small segments are always merged.
    while count > 1 and merged_count + key_count(segments[count - 1]) <= kind.merge_below:
        count -= 1
        merged_count += key_count(segments[count])
    # If there are too many segments, one more is merged, and then those that are no larger than the merged ones.
    is_full = count > kind.max_deltas
    while count > 1 and is_full and merged_count + key_count(segments[count - 1]) <= max_newest:
        count -= 1
        merged_count += key_count(segments[count])
        is_full = count > 1 and key_count(segments[count - 1]) <= merged_count
    # A commit of more keys than the base has rewrites it at once: steps would write all keys of the commit twice.
    return 0 if count == 1 and key_count(segments[0]) <= changed_count else count


def _next_absorbed(kind: SegmentKind, segments: Sequence[Sequence[SegmentFile]], budget: int | None) -> range | None:
    """Return the positions of the segments from which the next step takes keys; None if no step is due.

    The step merges one range of keys of these segments into the segment before them, which is older. The first step
    marks the segments as absorbed. While such a group of segments is being merged, no newer segment joins it: with new
    keys, its steps would have to start over. Newer segments wait until the last step has dropped the group.

    Args:
        kind: The merge policy.
        segments: The files of each segment, the oldest segment first.
        budget: Number of keys that the commit may still rewrite. None for a commit of few keys: then segments are
            absorbed early, so that the many small commits to come read few of them.
    """
    begun_numbers = [number for number in range(1, len(segments)) if segments[number][0].absorbed]
    # Segments that do not take part in the steps of earlier commits.
    waiting = range(begun_numbers[-1] + 1 if begun_numbers else 0, len(segments))
    sizes = list(map(key_count, segments))
    newer_sizes = [sum(sizes[number + 1 :]) for number in range(len(segments))]
    minimum = kind.file_rows * _MIN_ABSORBED
    if budget is None:
        for number in reversed(waiting[1:]):
            if sizes[number] >= max(minimum, sizes[number - 1] / _GROWTH):
                return range(number, number + 1)
    elif not begun_numbers and newer_sizes[0] >= max(minimum, sizes[0] / _BASE_GROWTH):
        return range(1, len(segments))
    elif len(waiting) - (not begun_numbers) > (_MAX_WAITING_BEGUN if begun_numbers else _MAX_WAITING):
        deltas = waiting if begun_numbers else waiting[1:]
        growing = (
            number
            for number in deltas[:-1]
            if sizes[number] <= newer_sizes[number] * _DELTA_GROWTH
            and _StepRange.of_step(kind, segments[number], segments[number + 1 :]).key_count <= budget
        )
        target = next(growing, deltas[-2])
        if newer_sizes[target] >= minimum:
            return range(target + 1, len(segments))
    if not begun_numbers:
        return None
    first = begun_numbers[-1]
    while first - 1 in begun_numbers:
        first -= 1
    return range(first, begun_numbers[-1] + 1)


@dataclass(frozen=True)
class _StepRange:
    """The range of keys that the next step is planned to merge into a segment.

    If newer segments have many rows in the range, `_absorb` merges only the first part of it.
    """

    firsts: list[Any]
    """The first key of each file of the segment that grows."""
    next_key: str
    """A lower bound of the keys that the step takes out of newer segments."""
    start: int
    """Position of the first file that the step replaces, among the files of the segment that grows."""
    end: int
    """Position after the last file that the step replaces."""
    older_count: int
    """Number of keys in the files from `start` to `end`."""
    newer_count: int
    """Estimated number of keys that the step takes out of newer segments: as if the keys of each of their files were
    evenly distributed."""

    @classmethod
    def of_step(
        cls, kind: SegmentKind, older: Sequence[SegmentFile], others: Sequence[Sequence[SegmentFile]]
    ) -> _StepRange:
        """Return the range that is planned for the next step.

        Args:
            kind: The merge policy.
            older: The files of the segment that grows.
            others: The files of each segment from which keys are taken.
        """
        firsts: list[Any] = [file.first for file in older]
        next_key = min(newer[0].first or "" for newer in others)
        start = max(0, bisect_right(firsts, next_key) - 1)
        end, count = start + 1, older[start].rows
        while end < len(older) and count + older[end].rows <= kind.file_rows:
            count += older[end].rows
            end += 1
        step = cls(firsts, next_key, start, end, count, 0)
        keys, newer_count = step.keys, 0
        for file in (file for newer in others for file in newer if keys.overlaps(file.first, file.last)):
            overlap_count = bisect_right(firsts, file.last) - max(0, bisect_right(firsts, file.first) - 1)
            newer_count += file.rows * (end - start) // max(overlap_count, end - start)
        return replace(step, newer_count=newer_count)

    @property
    def keys(self) -> SegmentKeyRange:
        """The range of keys."""
        end = self.firsts[self.end] if self.end < len(self.firsts) else None
        return SegmentKeyRange(None if self.start == 0 else self.firsts[self.start], end)

    @property
    def key_count(self) -> int:
        """The approximate number of keys that the step rewrites."""
        return self.older_count + self.newer_count


def _absorb(
    kind: SegmentKind, segments: Sequence[Sequence[SegmentFile]], write: WriteMerged, *, is_base: bool
) -> list[tuple[SegmentFile, ...]]:
    """Do one step: merge one range of keys of several segments into an older one.

    The range is that of `_StepRange`. If newer segments have more than about `kind.file_rows` rows in the range, the
    step merges only the first part of the range if possible.

    Args:
        kind: The merge policy.
        segments: The files of the segment that grows, then those of the segments from which keys are taken, the oldest
            first. They are consecutive in age.
        write: Writes the merged range.
        is_base: Whether the first segment is the oldest one of the set, which needs no tombstones.

    Returns:
        The files of each segment after the step, in the order of `segments`. A segment from which all keys were taken
        has no files any more, and is omitted.
    """
    older, *others = segments
    step = _StepRange.of_step(kind, older, others)
    start, end, firsts = step.start, step.end, step.firsts
    next_first = firsts[end] if end < len(older) else None
    keys, count = step.keys, step.older_count
    absorbed_files = [[file for file in newer if keys.overlaps(file.first, file.last)] for newer in others]
    # A range with many absorbed rows ends where one of their files begins.
    bounds: set[Any] = {file.first for files in absorbed_files for file in files}
    ends = sorted(bound for bound in bounds if bound > max(step.next_key, firsts[start]))
    while ends and _rows_before(absorbed_files, keys.end) > kind.file_rows:
        keys = SegmentKeyRange(keys.start, ends.pop())
        absorbed_files = [[file for file in files if keys.overlaps(file.first, file.last)] for files in absorbed_files]
    parts = [SegmentPart(tuple(older[start:end]), SegmentKeyRange(firsts[start], None))]
    parts += [SegmentPart(tuple(files), keys) for files in absorbed_files if files]
    count += min(_rows_before(absorbed_files, keys.end), count)
    files = -(-count // kind.file_rows)
    # The absorbed files may have many more keys in the range than the files of `older`.
    written_files = write(parts, False, not is_base, max(-(-count // files), kind.file_rows // 2))
    # After a cut, the files of `older` also have keys from `keys.end` to `next_first`.
    merged_files = (*older[:start], *shorten_bounds(written_files, keys.start, next_first), *older[end:])
    remaining = [[file for file in newer if keys.end is not None and file.last >= keys.end] for newer in others]
    for remaining_files in filter(None, remaining):
        remaining_files[0] = remaining_files[0]._replace(first=keys.end, absorbed=True)
    return [tuple(segment) for segment in (merged_files, *remaining) if segment]


def _rows_before(segments: Sequence[Sequence[SegmentFile]], end: Any) -> int:
    """Return about how many rows of the segments have a key less than `end`.

    If `end` is None, all rows count. Otherwise, every file must begin before `end`. If a file's last key is `end` or
    greater, half of its rows count.
    """
    return sum(file.rows if end is None or file.last < end else file.rows // 2 for files in segments for file in files)


@dataclass(frozen=True)
class SegmentUpdate:
    """An update that writes the next version of a segment set.

    It changes no existing file.
    """

    objects: ObjectStore
    """The store of the files."""
    kind: SegmentKind
    base: SegmentFiles | None
    """The segments before the changes; None if there are none."""
    changes: KeyChanges

    def write(
        self,
        batches: Iterable[Batch],
        merge: Callable[[SegmentMerge[Batch]], Sequence[SegmentFile]],
        *,
        allow_step: bool = True,
    ) -> SegmentFiles:
        """Write the changes as one more segment, and do a bounded part of the due merges.

        Return the new segment set. It is empty if no row is left, and `base` if no key changes.

        If a later step of the call merges one of its new files into another file, the call deletes this new file.

        Args:
            batches: The rows of the added keys. At most two batches are in memory.
            merge: Merges the inputs of a new segment, writes it, and returns its files by ascending key.
            allow_step: Whether a commit of few keys does a step, if one is due (see `update_levels`).

        Raises:
            CorruptionError: A file of `base` is corrupt.
        """
        kind, changes, base = self.kind, self.changes, self.base or EMPTY
        if not changes.row_count:
            return EMPTY
        if not changes.added_keys and not changes.removed_keys:
            return base
        written_paths: set[str] = set()
        temporary: list[SegmentPart] = []
        last: Batch | None = None

        def merge_files(segment_merge: SegmentMerge[Batch]) -> Sequence[SegmentFile]:
            files = merge(segment_merge)
            written_paths.update(path for file in files for path in file.paths)
            return files

        for batch in batches:
            if last is not None and (files := merge_files(SegmentMerge([], last, (), False, kind.file_rows))):
                temporary.append(SegmentPart(tuple(files)))
            last = batch

        def write(
            parts: Sequence[SegmentPart], with_changes: bool, with_tombstones: bool, file_rows: int
        ) -> Sequence[SegmentFile]:
            if with_changes:
                parts = [*parts, *temporary]
                return merge_files(SegmentMerge(parts, last, changes.removed_keys, with_tombstones, file_rows))
            return merge_files(SegmentMerge(parts, None, (), with_tombstones, file_rows))

        files = update_levels(kind, base, changes, write, allow_step=allow_step)
        segments = SegmentFiles(changes.row_count, files)
        if superseded_paths := written_paths - {*segments.paths()}:
            self.objects.delete(sorted(superseded_paths))
        return segments
