"""Reference counts and garbage of a version equal those determined from all entries.

A version is the published statistics of a table at one snapshot. The entries of a version reference files: a fragment
(a data file with its deletes), a partition, or a node of a merge tree references the files of its profile (its
statistics). A shared file has several references, or was written with several sections, which are one profile each. The
garbage of a version is the files that the previous version references and the version itself does not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metastore_assets.errors import CorruptionError
from metastore_assets.store.entries import FRAGMENTS, NODES, PARTITIONS, RETIRED, EntryKind, StoredEntries
from metastore_assets.store.entry_changes import EntryChanges
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.version import (
    FragmentEntry,
    NodeEntry,
    PartitionEntry,
    ProfileFiles,
    RetiredFragment,
    SharedFileEntry,
    ValueCountFiles,
    Version,
    node_key,
    shared_file_key,
)
from metastore_assets.store.version_document import stored_entries
from metastore_assets.store.versions import VersionStore
from tests.store.sample_versions import version, write_small_segments


@pytest.fixture(autouse=True)
def write_small_sets_like_large_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    write_small_segments(monkeypatch)


@dataclass
class History:
    """A table whose commits add, remove, restore, rewrite and move fragments at random.

    As refreshes do, the commits also change partitions, and the nodes of merge trees.
    """

    random: Random
    fragments: dict[str, FragmentEntry] = field(default_factory=dict)
    retired: list[RetiredFragment] = field(default_factory=list)
    partitions: dict[str, PartitionEntry] = field(default_factory=dict)
    nodes: dict[str, NodeEntry] = field(default_factory=dict)
    table: ProfileFiles = field(default_factory=lambda: ProfileFiles("table/0", "", ()))
    number: int = 0
    _names: int = 0
    _open: list[tuple[str, int]] = field(default_factory=list)

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def name(self, folder: str) -> str:
        self._names += 1
        return f"{folder}/{self._names}"

    def profile(self, folder: str) -> ProfileFiles:
        """Return new files of a profile, or a section of a new or earlier shared file."""
        if self.chance(0.5):
            return ProfileFiles(self.name(folder), self.name(folder) if self.chance(0.5) else "", (self.name(folder),))
        if not self._open or self.chance(0.3):
            self._open.append((self.name(folder), self.random.choice([1, 2, 3, 128])))
        path, sections = self.random.choice(self._open)
        return ProfileFiles("", "", (), path, self.name("section"), sections)

    def commit(self) -> Version:
        """Make a random commit, and return the next version.

        The version lists all entries, not only those that the commit changed.
        """
        self.number += 1
        before = {key: self.members(key) for key in self.partitions}
        used_paths = {entry.files.states for entry in (*self.fragments.values(), *self.retired, *self.nodes.values())}
        self._open = [(path, sections) for path, sections in self._open if path in used_paths and sections > 1]
        rewritten = set()
        for _ in range(self.random.randrange(4)):
            key = self.random.choice(["a", "b", "c", "d"])
            entry = FragmentEntry(self.name("id"), key, self.name("path"), 1, 1, "spec", (), self.profile("fragments"))
            self.fragments[entry.key] = entry
        for key, entry in list(self.fragments.items()):
            if self.chance(0.25):
                del self.fragments[key]
                if self.chance(0.7):
                    self.retired.append(RetiredFragment(self.number, entry))
            elif self.chance(0.1):
                moved_entry = replace(entry, partition_key=self.random.choice(["a", "b", "c"]))
                del self.fragments[key]
                self.fragments[moved_entry.key] = moved_entry
            elif self.chance(0.1) and len(self.members(entry.partition_key)) == 1:
                # The same rows moved to other files, so the partition's profile is reused.
                del self.fragments[key]
                for _ in range(self.random.choice([1, 2])):
                    new = replace(entry, id=self.name("id"), path=self.name("path"), files=self.profile("fragments"))
                    self.fragments[new.key] = new
                rewritten.add(entry.partition_key)
        for retired_fragment in list(self.retired):
            if self.chance(0.2):
                self.retired.remove(retired_fragment)
                if self.chance(0.5) and retired_fragment.fragment.key not in self.fragments:
                    self.fragments[retired_fragment.fragment.key] = retired_fragment.fragment
                    rewritten.discard(retired_fragment.fragment.partition_key)
        for key in sorted({entry.partition_key for entry in self.fragments.values()} | self.partitions.keys()):
            members = self.members(key)
            if not members:
                del self.partitions[key]
            elif key in rewritten and key in self.partitions and before.get(key):
                self.partitions[key] = replace(self.partitions[key], fragments=len(members), members=str(self.number))
            elif members != before.get(key) or self.chance(0.2):
                single = len(members) == 1 and members[0].files.statistics
                files = members[0].files if single else ProfileFiles(self.name("partitions"), "", ())
                self.partitions[key] = PartitionEntry(key, "", 1, 1, len(members), files, self.number, "spec")
        for key in list(self.nodes):
            if self.chance(0.3):
                del self.nodes[key]
        for _ in range(self.random.randrange(3)):
            node = NodeEntry(node_key(self.random.choice(["a", "*"]), self.name("node")), self.profile("nodes"))
            self.nodes[node.key] = node
        if len(self.partitions) == 1 and self.chance(0.7):
            (self.table,) = (entry.files for entry in self.partitions.values())
        elif self.chance(0.7):
            self.table = ProfileFiles(self.name("table"), "", ())
        return replace(
            version(self.number, fragments=0),
            fragments=list(self.fragments.values()),
            retired=list(self.retired),
            partitions=list(self.partitions.values()),
            nodes=list(self.nodes.values()),
            files=self.table,
            value_counts=ValueCountFiles(f"state/{self.number // 2}", ("counts/1",)) if self.number % 3 else None,
        )

    def members(self, key: str) -> list[FragmentEntry]:
        return [entry for entry in self.fragments.values() if entry.partition_key == key]


def references(version: Version) -> Iterator[tuple[str, str, int]]:
    """Yield every reference of a version to a file as (path, group, number of sections).

    The group is a partition key, or `*` for the table. A file of states, the mergeable forms of statistics, has the
    number of sections with which it was written. Other files have 0.
    """
    for entries in (version.fragments, version.retired, version.partitions, version.nodes):
        for entry in entries:
            for path in set(entry.files.paths()):
                yield path, entry.group, entry.files.sections if path == entry.files.states else 0
    for path in set(version.document_paths()):
        yield path, "*", 0


def shared_files(version: Version) -> list[SharedFileEntry]:
    """Return the shared files with their references, counted from all entries."""
    groups: dict[str, Counter[str]] = {}
    sections: dict[str, int] = {}
    for path, group, count in references(version):
        groups.setdefault(path, Counter())[group] += 1
        sections[path] = count
    return [
        SharedFileEntry(path, sections[path], tuple(sorted(files)), tuple(files[group] for group in sorted(files)))
        for path, files in sorted(groups.items(), key=lambda item: shared_file_key(item[0]))
        if files.total() > 1 or sections[path] > 1
    ]


def all_paths(version: Version) -> set[str]:
    return {
        *version.paths(),
        *version.auxiliary_files(),
        *(path for entries in stored_entries(version) for path in entries.files.paths()),
    }


def as_changes(new: Version, base: Version) -> Version:
    """Return the version `new` with its entries as changes to those of `base`."""

    def changes(kind: Any) -> EntryChanges[Any]:
        base_entries, entries = getattr(base, kind.name), getattr(new, kind.name)
        assert isinstance(base_entries, StoredEntries)
        keys = {kind.key(entry) for entry in entries}
        unread = StoredEntries(kind, base_entries._objects, base_entries.files)
        return EntryChanges.changed(
            kind, unread, entries, [kind.key(e) for e in base_entries if kind.key(e) not in keys]
        )

    return replace(new, **{kind.name: changes(kind) for kind in (FRAGMENTS, RETIRED, PARTITIONS, NODES)})


@settings(max_examples=max(10, settings().max_examples // 5))
@given(st.randoms(use_true_random=False), st.integers(2, 12))
def test_garbage_and_counts_equal_those_from_all_entries(
    tmp_path_factory: pytest.TempPathFactory, random: Random, commits: int
) -> None:
    history = History(random)
    versions = VersionStore(ObjectStore(str(tmp_path_factory.mktemp("versions"))), "orders")
    base: Version | None = None
    for _ in range(commits):
        new = history.commit()
        versions.publish(new if base is None or history.chance(0.5) else as_changes(new, base), base)
        published_version = versions.read(new.number)
        kinds: tuple[EntryKind[Any], ...] = (FRAGMENTS, RETIRED, PARTITIONS, NODES)
        assert published_version == replace(
            new, **{kind.name: sorted(getattr(new, kind.name), key=kind.key) for kind in kinds}
        )
        assert list(published_version.shared_files) == shared_files(new)
        if base is not None:
            manifest = published_version.garbage_manifest
            garbage = list(published_version.garbage)
            if manifest is not None:
                garbage = versions.objects.read_parquet(manifest)["path"].to_pylist()
            assert garbage == sorted(all_paths(base) - all_paths(published_version))
        base = published_version


def test_counts_that_contradict_the_entries_are_a_corruption_error(local_store: ObjectStore) -> None:
    """A commit that removes four references to a shared file with only three is an error.

    The error advises `--full`.
    """
    versions = VersionStore(local_store, "orders")
    files = ProfileFiles("", "", (), "shared", "a", 3)
    entries = [
        FragmentEntry(name, "p", name, 1, 1, "spec", (), replace(files, section=name)) for name in ("a", "b", "c")
    ]
    versions.publish(replace(version(1), fragments=entries))
    base = versions.read(1)
    assert [(entry.path, entry.references) for entry in base.shared_files] == [("shared", 3)]
    wrong = EntryChanges(FRAGMENTS, base.fragments, {}, {entry.key: entry for entry in entries})  # type: ignore[arg-type]
    wrong.dropped_entries = {**wrong.dropped_entries, "p\0d": replace(entries[0], id="d", path="d")}
    with pytest.raises(CorruptionError, match=r"shared.*--full"):
        versions.publish(replace(version(2), fragments=wrong), base)
