"""Each retained version is read like a dictionary after any history.

A history has commits, conflicts, interruptions and deletions in any order. A set of rows with unique keys is stored as
segments. A commit publishes a new version of the set: it adds a segment, with new rows and with tombstones of removed
keys. The oldest segment is the base. A merge step copies the rows of a range of keys from newer segments to an older
one: the older one absorbs them.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import pairwise

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from metastore_assets.errors import VersionConflictError
from metastore_assets.store import entries, segment_levels, segment_merge
from metastore_assets.store.entries import NODES, StoredEntries
from metastore_assets.store.entry_changes import EntryChanges, write_entries
from metastore_assets.store.garbage import drop_outdated
from metastore_assets.store.keys import SegmentKeyRange
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.segments import SegmentReader
from metastore_assets.store.version import NodeEntry, ProfileFiles, Version
from metastore_assets.store.versions import VersionStore
from tests.store.sample_versions import version, write_small_segments

_LONG = 1_100
"""Length of a key that is too long to be recorded as the first or last key of a file."""
_ENDS = ["", "\0", "a", "ä", "日", "🎈", "\U0010ffff", "\U0010ffff\U0010ffff"]
NAMES = [
    f"{group}{number:02}{end}" for group in ("a/", "b/", "ä/") for number in range(12) for end in _ENDS[number % 3 :: 3]
]
LONG_NAMES = [f"{group}{number:02}{'x' * _LONG}{number}" for group in ("a/", "b/") for number in (0, 7, 11)]
PREFIXES = ["a", "a/", "a/0", "a/1", "b/", "b/1", "ä", "ä/07", "b/07", "c", ""]


def _node(key: str, value: int) -> NodeEntry:
    return NodeEntry(key, ProfileFiles(f"profiles/{value}", "", ()))


@dataclass
class Published:
    """A version that must stay readable, with what it contains."""

    number: int
    rows: Mapping[str, int]


class SegmentHistories(RuleBasedStateMachine):
    """Random commits to one table, beside other writers and deletions of old versions.

    `_rows` are the keys and values that the newest version must contain.
    """

    def __init__(self) -> None:
        super().__init__()
        self._patch = pytest.MonkeyPatch()
        self._folder = tempfile.TemporaryDirectory(prefix="metastore-test-")
        self._objects = ObjectStore(self._folder.name)
        self._versions = VersionStore.of_folder("orders", self._objects)
        self._rows: dict[str, int] = {}
        self._retained: list[Published] = []
        self._value = 0

    @initialize(
        file_rows=st.sampled_from([3, 6, 12]),
        work=st.sampled_from([0, 1, 3, 6]),
        waiting=st.sampled_from([1, 2, 4]),
        growth=st.sampled_from([1, 2, 4]),
        batch_rows=st.sampled_from([2, 7]),
        draw=st.randoms(use_true_random=False),
    )
    def begin(self, file_rows: int, work: int, waiting: int, growth: int, batch_rows: int, draw: random.Random) -> None:
        write_small_segments(self._patch)
        for module, limits in (
            (entries, {"_FILE_ROWS": 2 * file_rows, "_MAX_DELTAS": 5, "_ROW_GROUP_ROWS": 3}),
            (segment_levels, {"_WORK_PER_KEY": work, "_MAX_WAITING": waiting, "_GROWTH": growth}),
            (segment_merge, {"_BATCH_ROWS": batch_rows, "_PIECE_ROWS": 5}),
        ):
            for name, value in limits.items():
                self._patch.setattr(module, name, value)
        self._commit(dict.fromkeys(draw.sample(NAMES, draw.choice([20, len(NAMES)]))), ())

    @rule(draw=st.randoms(use_true_random=False), count=st.sampled_from([1, 2, 5, 12, 40]))
    def change_some_keys(self, draw: random.Random, count: int) -> None:
        keys = draw.sample(NAMES, count)
        removed_keys = [key for key in keys if draw.random() < 0.3]
        self._commit(keys, removed_keys)

    @rule(draw=st.randoms(use_true_random=False), prefix=st.sampled_from(PREFIXES[:-1]))
    def change_one_range(self, draw: random.Random, prefix: str) -> None:
        keys = [key for key in NAMES if key.startswith(prefix) and draw.random() < 0.8]
        self._commit(keys, ())

    @rule(prefix=st.sampled_from(PREFIXES[:-1]))
    def remove_prefix(self, prefix: str) -> None:
        self._commit((), [key for key in self._rows if key.startswith(prefix)])

    @rule(draw=st.randoms(use_true_random=False))
    def change_keys_at_bounds(self, draw: random.Random) -> None:
        """Add, replace and remove keys that equal recorded bounds of files, and keys beside them."""
        files = self._stored(self._versions.latest()).files.files
        bounds = [bound for file in files for bound in (file.first, file.last) if bound]
        keys = [draw.choice(bounds) + draw.choice(["", "\0", "\U0010ffff"]) for _ in range(5 if bounds else 0)]
        keys += [bound[:-1] for bound in draw.sample(bounds, min(2, len(bounds))) if len(bound) > 1]
        self._commit(keys, [key for key in keys if draw.random() < 0.4])

    @rule(draw=st.randoms(use_true_random=False))
    def change_long_keys(self, draw: random.Random) -> None:
        """Add keys that are too long for the bounds of files, or remove them all.

        While they exist, no merge step is made.
        """
        stored_names = [key for key in LONG_NAMES if key in self._rows]
        self._commit([] if stored_names else draw.sample(LONG_NAMES, 2), stored_names)

    @rule()
    def rewrite_all(self) -> None:
        self._commit(list(self._rows), ())

    @rule()
    def commit_nothing(self) -> None:
        before = self._stored(self._versions.latest()).files
        self._commit((), ())
        assert self._stored(self._versions.latest()).files == before

    @rule(draw=st.randoms(use_true_random=False), is_last=st.booleans())
    def race(self, draw: random.Random, is_last: bool) -> None:
        """Let two writers publish versions of the same number.

        The second writer fails, and deletes no file of others. With `is_last`, it would have published a version
        without rows.
        """
        base = self._versions.latest()
        other = VersionStore.of_folder("orders", self._objects)
        other_base = other.latest()
        keys = draw.sample(NAMES, 9)
        losing = self._next(other_base, {**self._rows, **dict.fromkeys(keys, -1)})
        if is_last:
            losing = replace(losing, nodes=())
        self._commit(draw.sample(NAMES, 5), ())
        assert base is not None
        before = {info.path for info in self._objects.list()}
        with pytest.raises(VersionConflictError):
            other.publish(losing, other_base)
        assert {info.path for info in self._objects.list()} >= before

    @rule(draw=st.randoms(use_true_random=False), count=st.sampled_from([1, 9, 40]))
    def write_without_publishing(self, draw: random.Random, count: int) -> None:
        """Write files of a version as a process that dies before it publishes.

        The files stay.
        """
        base = self._stored(self._versions.latest())
        keys = draw.sample(NAMES, count)
        changes = EntryChanges.changed(NODES, base, [_node(key, -2) for key in keys], ())
        write_entries(self._objects, changes, may_merge=draw.random() < 0.5, allow_step=True)

    @precondition(lambda self: len(self._retained) > 2)
    @rule(keep=st.sampled_from([1, 2, 3]))
    def delete_old_versions(self, keep: int) -> None:
        self._retained = self._retained[-keep:]
        for _ in range(3):
            drop_outdated(self._versions.documents, self._retained[0].number - 1, timedelta(0), ())

    @precondition(lambda self: len(self._retained) > 1)
    @rule(keep=st.sampled_from([1, 2, 3]))
    def expire(self, keep: int) -> None:
        self._retained = self._retained[-keep:]
        self._versions.expire(keep, timedelta(0))
        stored_paths = {path for each in self._retained for path in self._files(each.number)}
        remaining_paths = {info.path for info in self._objects.list() if info.path.startswith("entries/")}
        assert {path for path in remaining_paths if ".nodes." in path} == {
            path for path in stored_paths if ".nodes." in path
        }

    @invariant()
    def every_retained_version_is_read(self) -> None:
        """Check the newest version, a random one, and keys in which three versions differ from the newest."""
        draw = random.Random(self._value)
        entries_and_rows = [(self._stored(self._versions.read(each.number)), each.rows) for each in self._retained]
        for index in {len(entries_and_rows) - 1, draw.randrange(len(entries_and_rows))}:
            _check(self._objects, *entries_and_rows[index], draw)
        *earlier, (newest, newest_rows) = entries_and_rows
        assert all(stored_entries.files.rows == len(rows) for stored_entries, rows in earlier)
        for stored_entries, rows in draw.sample(earlier, min(3, len(earlier))):
            differing = newest.differing_keys(stored_entries)
            assert differing is not None
            keys = rows.keys() | newest_rows.keys()
            assert differing >= {key for key in keys if rows.get(key) != newest_rows.get(key)}

    def teardown(self) -> None:
        self._patch.undo()
        self._folder.cleanup()

    def _commit(self, new_keys: Iterable[str], removed_keys: Iterable[str]) -> None:
        base = self._versions.latest()
        self._value += 1
        rows = {**self._rows, **dict.fromkeys(new_keys, self._value)}
        for key in removed_keys:
            rows.pop(key, None)
        self._versions.publish(self._next(base, rows), base)
        self._rows = rows
        self._retained.append(Published(1 if base is None else base.number + 1, dict(rows)))

    def _next(self, base: Version | None, rows: Mapping[str, int]) -> Version:
        number = 1 if base is None else base.number + 1
        nodes = EntryChanges.between(NODES, base and self._stored(base), [_node(*row) for row in rows.items()])
        return replace(version(number, fragments=0), nodes=nodes, partitions=[])

    def _files(self, number: int) -> tuple[str, ...]:
        return self._stored(self._versions.read(number)).files.paths()

    def _stored(self, version: Version | None) -> StoredEntries[NodeEntry]:
        assert version is not None
        nodes = version.nodes
        assert isinstance(nodes, StoredEntries)
        return nodes


def _check(
    objects: ObjectStore, stored_entries: StoredEntries[NodeEntry], rows: Mapping[str, int], draw: random.Random
) -> None:
    """Assert that three of seven ways to read a version, drawn at random, return `rows`.

    The number of rows and the bounds of files are also checked.
    """
    expected = {key: _node(key, rows[key]) for key in sorted(rows)}
    assert len(stored_entries) == stored_entries.files.rows == len(rows)
    least = stored_entries.least_key() if rows else None
    assert least is None or least <= min(rows)
    for segment in stored_entries.files.segments:
        bounds = [(file.first, file.last) for file in segment if file.first is not None and file.last is not None]
        assert all(first <= last for first, last in bounds)
        assert all(last < first for (_, last), (first, _) in pairwise(bounds))
    names = [*draw.sample(NAMES, 12), *draw.sample(sorted(rows), min(3, len(rows))), *LONG_NAMES, "", "zz"]
    reader = SegmentReader(objects, NODES.segments, stored_entries.files)

    def stream() -> None:
        assert list(stored_entries.stream()) == list(expected.values())

    def stream_rows() -> None:
        keys = [key for table in stored_entries.stream_rows(["statistics"]) for key in table["key"].to_pylist()]
        assert keys == list(expected)

    def read_all() -> None:
        assert list(StoredEntries(NODES, objects, stored_entries.files)) == list(expected.values())

    def read_rows() -> None:
        assert sorted(reader.read_rows(["key"])["key"].to_pylist()) == list(expected)

    def find() -> None:
        assert stored_entries.find_all(names) == {key: expected[key] for key in names if key in rows}
        for key in names[:6]:
            assert stored_entries.find(key) == expected.get(key)

    def find_prefixes() -> None:
        for prefixes in (draw.sample(PREFIXES, 1), draw.sample(PREFIXES, 3)):
            found_entries = [entry for key, entry in expected.items() if key.startswith(tuple(prefixes))]
            assert stored_entries.find_prefixes(prefixes) == found_entries

    def find_ranges() -> None:
        files = stored_entries.files.files
        limits = [*names, *(bound for file in files for bound in (file.first, file.last) if bound)]
        for _ in range(3):
            start, end = (draw.choice([None, draw.choice(limits)]) for _ in range(2))
            found_keys = reader.find(SegmentKeyRange(start, end))["key"].to_pylist()
            assert sorted(found_keys) == [
                key for key in expected if (start is None or key >= start) and (end is None or key < end)
            ]

    for read in draw.sample([stream, stream_rows, read_all, read_rows, find, find_prefixes, find_ranges], 3):
        read()


def test_any_history_of_commits_is_read_like_a_dictionary() -> None:
    run_state_machine_as_test(
        SegmentHistories,
        settings=settings(settings(), stateful_step_count=30, max_examples=max(2, settings().max_examples // 4)),
    )
