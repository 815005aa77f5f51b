"""After commits of one data file each, few small files of profiles remain.

A fragment is a data file with its deletes, and its profile is its stored statistics. After a commit, a refresh stores
the profiles of new fragments in new files. After later commits to a partition, the refresh copies the profiles of the
partition's small files into one file.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets.errors import ProfileError
from metastore_assets.pipeline import execution
from metastore_assets.pipeline.merging import small_files
from metastore_assets.pipeline.merging.small_files import FULL_BYTES, MIN_FILES, plan_bundles
from metastore_assets.pipeline.refresh import refresh
from metastore_assets.store.version import FragmentEntry, ProfileFiles
from tests.pipeline.file_lake import assert_same, everything, latest
from tests.pipeline.test_shared_files import SmallFiles, assert_consistent, no_spark, store_of
from tests.robustness.crashing_files import ROWS, negative_lengths

_MAX_BYTES = MIN_FILES * FULL_BYTES


class Partitions:
    """A model of two partitions, whose files of profiles are combined after commits as in a refresh."""

    def __init__(self) -> None:
        self.entries: dict[str, dict[str, FragmentEntry]] = {"a": {}, "b": {}}
        self.copies = Counter[str]()
        """Number of times that each profile was copied."""
        self._files = 0

    def write(self, sizes: list[int]) -> list[ProfileFiles]:
        """Return the locations of profiles of the given sizes in bytes, which share one new file."""
        self._files += 1
        path, size = f"{self._files:09}", sum(sizes)
        return [ProfileFiles("", "", (), path, f"{path}-{at}", len(sizes), size) for at in range(len(sizes))]

    def commit(self, added_sizes: dict[str, list[int]], removed_names: set[str]) -> None:
        """Add a file of profiles to each changed partition, remove fragments, and combine small files.

        `added_sizes` has the sizes of the added profiles in bytes, by changed partition. No fragments of other
        partitions are removed.
        """
        changed_entries: list[FragmentEntry] = []
        for key, sizes in added_sizes.items():
            for name in removed_names & self.entries[key].keys():
                del self.entries[key][name]
            for files, size in zip(self.write(sizes), sizes, strict=True):
                changed_entries.append(FragmentEntry(files.name, key, files.name, size, 1, "spec", (), files))
            self.entries[key] |= {entry.id: entry for entry in changed_entries if entry.partition_key == key}
        tasks = plan_bundles(changed_entries, [list(self.entries[key].values()) for key in added_sizes])
        read_bytes = sum({files.states: files.states_bytes for task in tasks for files in task.files}.values())
        assert read_bytes <= max(_MAX_BYTES, 2 * sum(map(sum, added_sizes.values())))
        for task in tasks:
            assert len({files.states for files in task.files}) >= MIN_FILES
            assert {files.name for files in task.files}.isdisjoint(entry.id for entry in changed_entries)
            new = self.write([files.states_bytes // files.sections for files in task.files])
            for files, copy in zip(task.files, new, strict=True):
                (key,) = (key for key, entries in self.entries.items() if files.name in entries)
                entry = self.entries[key][files.name]
                self.entries[key][files.name] = replace(entry, files=replace(copy, section=files.name))
                self.copies[files.name] += 1

    def small_files(self, key: str) -> list[int]:
        """Return the number of used profiles in each of the partition's files that can be combined."""
        entries = self.entries[key].values()
        use_counts = Counter(entry.files.states for entry in entries if entry.files.states_bytes < FULL_BYTES)
        return [count for count in use_counts.values() if count < MIN_FILES**2]


@given(st.integers(0, 10**9), st.sampled_from([100, 20_000, 100_000]), st.sampled_from([1, 3, 12]))
def test_a_partition_has_few_small_files_after_any_history(seed: int, size: int, per_commit: int) -> None:
    """After random commits, each partition has at most 2 * (`MIN_FILES` + 1) small files.

    To copy profiles, a commit reads at most `_MAX_BYTES`, or twice as many bytes as it adds, whichever is more.
    Profiles that are copied at all are copied at most 2.5 times on average.
    """
    draw = random.Random(seed)
    partitions = Partitions()
    names: list[str] = []
    for _ in range(draw.choice([30, 200])):
        keys = draw.choice([["a"], ["b"], ["a", "b"]])
        added_sizes = {key: [draw.randint(size // 2, size) for _ in range(draw.randint(1, per_commit))] for key in keys}
        removed_names = {name for name in names if draw.random() < draw.choice([0, 0, 0.02])}
        partitions.commit(added_sizes, removed_names)
        names = [name for entries in partitions.entries.values() for name in entries]
        for key in keys:
            # Two kinds of small files, and those that this commit wrote, at most two of each kind.
            assert len(partitions.small_files(key)) <= 2 * (MIN_FILES + 1)
    assert sum(partitions.copies.values()) <= 2.5 * max(1, len(partitions.copies))


def assert_few_files(lake: SmallFiles) -> None:
    """Assert that each partition's profiles are in few files.

    These are at most 2 * (`MIN_FILES` + 1), and one more for every `MIN_FILES`² profiles.
    """
    files = defaultdict[str, set[str]](set)
    counts = Counter[str]()
    for entry in latest(lake.config()).fragments:
        if entry.files.is_states_only:  # The first fragment of a partition has files that are also the partition's.
            counts[entry.partition_key] += 1
            files[entry.partition_key].add(entry.files.states)
            assert entry.files.states_bytes == Path(lake.config().root, "t", entry.files.states).stat().st_size
    least = small_files.MIN_FILES
    assert all(len(paths) <= 2 * (least + 1) + counts[key] // least**2 for key, paths in files.items()), files


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 12))])
def test_commits_of_one_file_leave_few_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Each of 22 commits leaves few files, and the last version equals one from scratch.

    Expiry deletes every file of fragments that no version references.
    """
    monkeypatch.setattr(small_files, "MIN_FILES", 3)
    monkeypatch.setattr(execution, "GRACE", timedelta(0))
    lake = SmallFiles(tmp_path, random.Random(seed))
    config, versions = lake.config(), store_of(lake.config())
    for number in range(22):
        if number > 6 and lake.draw.random() < 0.2:
            lake.draw.choice(lake.files()).unlink()
        lake.append(lake.draw.randrange(2), lake.draw.randrange(20))
        assert refresh(config, lake.table, no_spark).fragments_profiled == 1
        assert_few_files(lake)
        assert_consistent(versions)
    refresh(lake.config("scratch"), lake.table, no_spark)
    assert_same(everything(config), everything(lake.config("scratch")))
    stored_paths = {info.path for folder in ("fragments", "nodes") for info in versions.objects.list(folder)}
    versions.expire(1, timedelta(0))
    assert {info.path for folder in ("fragments", "nodes") for info in versions.objects.list(folder)} <= stored_paths
    retained_paths = {path for number in versions.numbers() for path in versions.read(number).paths()}
    assert {info.path for info in versions.objects.list("fragments")} <= retained_paths
    assert_same(everything(config), everything(lake.config("scratch")))


def test_profiles_share_a_file_after_a_crash(tmp_path: Path) -> None:
    """One of five files crashes its reader.

    The other four are read all the same, and their profiles share one file.
    """
    import pyarrow as pa
    from pyarrow import orc

    lake = SmallFiles(tmp_path)
    folder = lake.uri / "part=0"
    folder.mkdir(parents=True)
    maps = pa.array([[(7, number)] for number in range(ROWS)], pa.map_(pa.int32(), pa.int32()))
    for number in range(4):
        table = pa.table({"id": pa.array(range(number, number + ROWS), pa.int64()), "m": maps})
        orc.write_table(table, folder / f"{number}.orc")
    killer = folder / "killer.orc"
    killer.write_bytes(negative_lengths())
    config = lake.config()
    with pytest.raises(ProfileError, match=rf"1 of 5 .*{killer}"):
        refresh(config, lake.table, no_spark)
    entries = store_of(config).pending()
    (path,) = {entry.files.states for entry in entries}
    assert [entry.files.sections for entry in entries] == [4] * 4
    assert [info.path for info in store_of(config).objects.list("fragments")] == [path]
    killer.unlink()
    assert refresh(config, lake.table, no_spark).fragments_profiled == 0
    refresh(lake.config("scratch"), lake.table, no_spark)
    assert_same(everything(config), everything(lake.config("scratch")))
