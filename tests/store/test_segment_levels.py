"""Large segment sets are merged in steps, so that no commit rewrites much.

Every state between steps is read correctly. A set of rows with unique keys is stored as segments. A commit adds a
segment, with new rows and with tombstones of removed keys. The oldest segment is the base. A merge step copies the rows
of a range of keys from newer segments to an older one: the older one absorbs them.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metastore_assets.store import entries, segment_levels
from metastore_assets.store.entries import NODES, StoredEntries
from metastore_assets.store.entry_changes import EntryChanges, write_entries
from metastore_assets.store.keys import KeyPrefixes, KeySet, SegmentKeyRange
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.segment_levels import SegmentPart, update_levels
from metastore_assets.store.segment_merge import MAX_BOUND, shorten_bounds
from metastore_assets.store.segments import KeyChanges, SegmentFile, SegmentFiles, SegmentKind
from metastore_assets.store.version import NodeEntry, ProfileFiles
from tests.store.sample_versions import write_small_segments

KIND = SegmentKind("nodes", "entries", NODES.schema, 500, 6, 500, file_rows=1_000)


@dataclass
class KeysOnly:
    """A segment set whose files are lists of keys in memory."""

    rows: int
    files: SegmentFiles = field(init=False)
    written: int = 0
    """Number of keys that the last commit wrote."""

    def __post_init__(self) -> None:
        self.contents: dict[str, list[str]] = {}
        self.files = SegmentFiles(self.rows, self._write([f"{at:07}" for at in range(self.rows)], KIND.file_rows))

    def commit(self, keys: set[str], *, allow_step: bool, may_merge: bool = True) -> None:
        def write(
            parts: Sequence[SegmentPart], with_changes: bool, with_tombstones: bool, file_rows: int
        ) -> tuple[SegmentFile, ...]:
            merged_keys = set(keys) if with_changes else set()
            for part in parts:
                for file in part.files:
                    keys_left = file.omit_absorbed(pa.array(self.contents[file.path])).to_pylist()
                    merged_keys.update(key for key in keys_left if part.keys is None or part.keys.overlaps(key, key))
            return self._write(sorted(merged_keys), file_rows)

        self.written = 0
        self.files = SegmentFiles(
            self.rows,
            update_levels(
                KIND, self.files, KeyChanges(keys, (), self.rows, may_merge=may_merge), write, allow_step=allow_step
            ),
        )

    def _write(self, keys: list[str], file_rows: int) -> tuple[SegmentFile, ...]:
        files = []
        for start in range(0, len(keys), file_rows):
            file_keys = keys[start : start + file_rows]
            path = str(len(self.contents))
            self.contents[path] = file_keys
            first, last = (key if len(key) <= MAX_BOUND else None for key in (file_keys[0], file_keys[-1]))
            files.append(SegmentFile(path, len(file_keys), first, last, continues=start > 0))
        self.written += len(keys)
        return tuple(files)


@pytest.mark.parametrize(
    ("change_count", "bound", "per_key", "segments"), [(15, 2_000, 30, 6), (150, 3_000, 8, 11), (2_000, 15_000, 5, 12)]
)
def test_no_commit_rewrites_a_large_set(change_count: int, bound: int, per_key: int, segments: int) -> None:
    """Commits change `change_count` of 50,000 keys each.

    A commit writes at most `bound` keys, and leaves at most `segments` segments. All commits together write at most
    `per_key` keys per changed key. In the end, the oldest segment has all keys.
    """
    draw = random.Random(0)
    key_set = KeysOnly(50_000)
    total = 0
    commits = max(60, 30_000 // change_count)
    for number in range(commits):
        key_set.commit({f"{draw.randrange(50_000):07}" for _ in range(change_count)}, allow_step=number % 6 == 0)
        assert key_set.written <= bound
        assert len(key_set.files.segments) <= segments
        newer = sum(file.rows for segment in key_set.files.segments[1:] for file in segment)
        assert newer <= (20_000 if change_count < 100 else 50_000)
        total += key_set.written
    assert total <= commits * change_count * per_key
    assert sum(file.rows for file in key_set.files.segments[0]) == 50_000


def test_a_commit_merges_one_of_several_sets_within_a_budget() -> None:
    """A commit to three sets merges segments only in the set with the most, within a budget of keys.

    To each of the other sets, it writes few keys besides those that it changes. In the end, the base of each set has
    absorbed newer segments.
    """
    draw = random.Random(1)
    sets = [KeysOnly(10_000) for _ in range(3)]
    first = [key_set.files.files for key_set in sets]
    budget = segment_levels._BUDGET_FILES * KIND.file_rows
    merged_rows = 0
    for _ in range(200):
        turn = max(sets, key=lambda key_set: len(key_set.files.segments))
        for key_set in sets:
            keys = {f"{draw.randrange(10_000):07}" for _ in range(100)}
            key_set.commit(keys, allow_step=True, may_merge=key_set is turn)
            if key_set is turn:
                # The last step begins below the share of the budget, and rewrites at most two files.
                assert key_set.written - len(keys) <= budget * segment_levels._BEGIN_SHARE + 2 * KIND.file_rows
                merged_rows += key_set.written - len(keys)
            else:
                assert key_set.written <= KIND.merge_below
            assert len(key_set.files.segments) <= 20
    assert merged_rows <= 200 * budget
    # The base of each set has absorbed newer segments.
    assert all(key_set.files.segments[0] != files for key_set, files in zip(sets, first, strict=True))


def test_a_commit_may_write_a_key_that_is_too_long_to_be_recorded() -> None:
    """A commit of a key that is too long to be recorded as the last key of a file loses no key.

    A merge step needs the first and the last key of each file, so none is made while such a file exists.
    """
    key_set = KeysOnly(5_000)
    for number in range(5):
        keys = {*(f"{key:07}" for key in range(number, 5_000, 5)), "9" * (MAX_BOUND + 1)}
        key_set.commit(keys, allow_step=True)
        assert keys <= {key for file in key_set.files.files for key in key_set.contents[file.path]}


_LAST = chr(sys.maxunicode)
"""The greatest character."""


@given(
    st.sets(st.text("\0ab" + _LAST, max_size=6), min_size=2),
    st.sets(st.text("\0ab" + _LAST, max_size=6), min_size=1, max_size=4),
    st.randoms(use_true_random=False),
)
def test_shortened_bounds_separate_files(keys: set[str], selected_keys: set[str], draw: random.Random) -> None:
    """Shortened bounds of files do not overlap, and lookups by them find every selected key's file."""
    sorted_keys = sorted(keys)
    start, end = draw.choice([None, sorted_keys.pop(0)]), draw.choice([None, sorted_keys.pop()])
    contents: list[list[str]] = []
    for key in sorted_keys:
        if not contents or draw.random() < 0.5:
            contents.append([])
        contents[-1].append(key)
    exact = [SegmentFile(str(at), len(part), part[0], part[-1]) for at, part in enumerate(contents)]
    files = shorten_bounds(exact, start, end)
    for file, part in zip(files, contents, strict=True):
        assert str(file.first) <= part[0] <= part[-1] <= str(file.last)
        assert len(str(file.last)) <= len(part[-1])
    bounds = [bound for file in files for bound in (str(file.first), str(file.last))]
    assert all(last < first for last, first in zip(bounds[1::2], bounds[2::2], strict=False))
    assert start is None or not files or files[0].first == start
    assert end is None or not files or str(files[-1].last) < end
    low, high = draw.choice(sorted_keys or [""]), draw.choice(sorted_keys or [""])
    for selection, is_selected in (
        (KeySet(selected_keys), selected_keys.__contains__),
        (KeyPrefixes(selected_keys), lambda key: key.startswith(tuple(selected_keys))),
        (SegmentKeyRange(low, high), lambda key: low <= key < high),
        (SegmentKeyRange(None, None), lambda key: True),
    ):
        numbers = selection.find_ranges([str(file.first) for file in files])
        overlapping_numbers = {
            number for number in numbers if selection.overlaps(files[number].first, files[number].last)
        }
        assert overlapping_numbers >= {number for number, part in enumerate(contents) if any(map(is_selected, part))}


def _node(key: str, value: int) -> NodeEntry:
    return NodeEntry(key, ProfileFiles(f"s{value}", "", ()))


@settings(deadline=None, max_examples=max(5, settings().max_examples // 5))
@given(st.lists(st.sampled_from([1, 2, 5, 9, 30]), min_size=3, max_size=16), st.randoms(use_true_random=False))
def test_every_state_between_two_merge_steps_is_read_correctly(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], draw: random.Random
) -> None:
    """After each of several commits, lookups and streams equal those of a dictionary.

    The keys that are reported as different between two versions include all whose entries differ. No unreferenced file
    is written.
    """
    with pytest.MonkeyPatch.context() as patch:
        write_small_segments(patch)
        patch.setattr(entries, "_FILE_ROWS", draw.choice([3, 16]))
        patch.setattr(segment_levels, "_WORK_PER_KEY", draw.choice([0, 1, 6]))
        patch.setattr(segment_levels, "_MAX_WAITING", draw.choice([1, 2, 4]))
        patch.setattr(segment_levels, "_GROWTH", draw.choice([1, 2, 8]))
        objects = ObjectStore(str(tmp_path_factory.mktemp("levels")))
        base: StoredEntries[NodeEntry] | None = None
        state: dict[str, int] = {}
        versions: list[tuple[StoredEntries[NodeEntry], dict[str, int]]] = []
        # Bounds of files are shortened, so keys have characters after those that differ.
        names = [f"{number:03}{_LAST * draw.randrange(3)}{draw.randrange(100)}" for number in range(80)]
        for size in (60, *sizes):
            before = dict(state)
            for _ in range(size):
                key = draw.choice(names)
                if draw.random() < 0.35:
                    state.pop(key, None)
                else:
                    state[key] = draw.randrange(1000)
            new_nodes = [_node(key, value) for key, value in state.items() if before.get(key) != value]
            changes = EntryChanges.changed(NODES, base, new_nodes, before.keys() - state.keys())
            files = write_entries(objects, changes, allow_step=draw.random() < 0.6, may_merge=draw.random() < 0.7)
            base = StoredEntries(NODES, objects, files)
            expected = [_node(key, state[key]) for key in sorted(state)]
            assert list(base.stream()) == expected
            assert list(StoredEntries(NODES, objects, files)) == expected
            keys = [draw.choice(names) for _ in range(6)]
            assert base.find_all(keys) == {key: _node(key, state[key]) for key in keys if key in state}
            prefix = f"0{draw.randrange(8)}"
            assert base.find_prefixes([prefix]) == [entry for entry in expected if entry.key.startswith(prefix)]
            for other, state_before in versions:
                differing = {
                    key for key in state.keys() | state_before.keys() if state.get(key) != state_before.get(key)
                }
                reported_keys = base.differing_keys(other)
                assert reported_keys is not None
                assert reported_keys >= differing
            versions.append((base, dict(state)))
        referenced_paths = {path for stored_entries, _ in versions for path in stored_entries.files.paths()}
        assert {info.path for info in objects.list()} == referenced_paths


def test_rows_that_an_older_segment_has_absorbed_are_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two merge steps, a newer segment still has rows that an older one has absorbed.

    These rows are not returned.
    """
    write_small_segments(monkeypatch)
    monkeypatch.setattr(entries, "_FILE_ROWS", 24)
    monkeypatch.setattr(segment_levels, "_MAX_WAITING", 2)
    monkeypatch.setattr(segment_levels, "_WORK_PER_KEY", 3)
    objects, draw = ObjectStore(str(tmp_path)), random.Random(0)
    base: StoredEntries[NodeEntry] | None = None
    state: dict[str, int] = {}
    is_absorbed: list[bool] = []
    for number in range(12):
        before = dict(state)
        for at in [draw.randrange(120) for _ in range(20)] if number else range(120):
            if number and draw.random() < 0.3:
                state.pop(f"{at:04}", None)
            else:
                state[f"{at:04}"] = number
        new_nodes = [_node(key, value) for key, value in state.items() if before.get(key) != value]
        changes = EntryChanges.changed(NODES, base, new_nodes, before.keys() - state.keys())
        files = write_entries(objects, changes, allow_step=True, may_merge=True)
        is_absorbed.append(sum(segment[0].absorbed for segment in files.segments) > 1)
        base = StoredEntries(NODES, objects, files)
        expected = {key: _node(key, state[key]) for key in sorted(state)}
        assert list(base.stream()) == list(expected.values())
        assert list(StoredEntries(NODES, objects, files)) == list(expected.values())
        assert base.find_all([f"{at:04}" for at in range(120)]) == expected
    assert any(is_absorbed)


@pytest.mark.parametrize("base", [1, 600])
def test_a_commit_of_more_keys_than_the_base_has_writes_each_key_once(base: int) -> None:
    key_set = KeysOnly(base)
    key_set.rows = 30_000
    key_set.commit({f"{key:07}a" for key in range(30_000)}, allow_step=True)
    assert key_set.written <= 30_000 + base
    assert len(key_set.files.files) <= 31


def test_a_small_file_that_absorbs_many_keys_does_not_become_many_small_files() -> None:
    key_set = KeysOnly(1_001)
    for start in (1_001, 1_701):
        key_set.rows = start + 700
        key_set.commit({f"{key:07}" for key in range(start, start + 700)}, allow_step=True)
    assert len(key_set.files.segments) == 1
    assert len(key_set.files.files) <= 4
