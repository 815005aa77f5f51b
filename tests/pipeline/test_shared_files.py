"""Profiles of fragments share files, in which each profile is a section.

A bundle is the fragments that one task profiles, and the profiles of a bundle share a file. A merge node is a stored
intermediate result of merging profiles. After any commits, no referenced profile is lost and little space is wasted. A
fragment is a data file with its deletes, and its profile is its statistics.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets.config import MetastoreConfig
from metastore_assets.errors import ProfileError
from metastore_assets.formats.base import Fragment
from metastore_assets.pipeline import auto_policies, execution, profiling
from metastore_assets.pipeline.fragments import read_cost
from metastore_assets.pipeline.merging import merge_plan, small_files
from metastore_assets.pipeline.merging.compaction import (
    COMPACT_ALL,
    DEFAULT_LIMITS,
    SegmentChanges,
    _sparse_files,
    plan_compaction,
    table_node_window,
)
from metastore_assets.pipeline.outcome import RefreshResult
from metastore_assets.pipeline.profiling import bundle_fragments, divide_into_jobs
from metastore_assets.pipeline.refresh import refresh
from metastore_assets.store.entries import FRAGMENTS, NODES, RETIRED, StoredEntries
from metastore_assets.store.entry_changes import EntryChanges
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.version import FragmentEntry, NodeEntry, ProfileFiles, RetiredFragment, Version, node_key
from metastore_assets.store.versions import VersionStore
from tests.pipeline.file_lake import Lake, assert_same, everything, latest
from tests.store.sample_versions import version

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FRAGMENTS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 60 << 20)), max_size=60)


@given(_FRAGMENTS, st.integers(0, 2000), st.integers(1, 20), st.randoms(use_true_random=False))
def test_fragments_are_grouped_into_bundles(
    keys_and_sizes: list[tuple[str, int]], columns: int, tasks: int, draw: random.Random
) -> None:
    """Each fragment is in exactly one bundle, and a bundle has fragments of one partition only.

    Each fragment that is chosen to be alone is a bundle by itself. Any other bundle has one fragment, or is within
    limits. With the first fragment of the next such bundle of its partition, it would exceed a limit.
    """
    source: Any = None
    fragments = [Fragment(f"{at:x}", key, f"{at}", size, 1, source) for at, (key, size) in enumerate(keys_and_sizes)]
    alone = {entry.id for entry in fragments if draw.random() < 0.1}
    result = bundle_fragments(fragments, alone, columns, tasks)
    assert Counter(each.id for bundle in result for each in bundle) == Counter(entry.id for entry in fragments)
    for bundle in result:
        assert len({fragment.partition_key for fragment in bundle}) == 1
        assert len(bundle) == 1 or not alone & {fragment.id for fragment in bundle}
        assert len(bundle) == 1 or (read_cost(bundle) <= 32 << 20 and len(bundle) * columns <= 1 << 14)
    # Two successive bundles of a partition would be too large as one.
    together = [group for group in result if group[0].id not in alone]
    for one, other in pairwise(together):
        if one[0].partition_key == other[0].partition_key:
            most = max(4 << 20, min(32 << 20, read_cost(fragments) / tasks))
            assert read_cost([*one, other[0]]) > most or (len(one) + 1) * columns > 1 << 14


@given(
    st.lists(st.lists(st.integers(0, 40 << 20), min_size=1, max_size=3)), st.integers(1, 6), st.integers(0, 200 << 20)
)
def test_bundles_are_divided_into_jobs(sizes: list[list[int]], count: int, cost: int) -> None:
    """A job gets bundles until it has at least `count` of them, with a read cost of at least `cost`.

    The last job has the remaining bundles.
    """
    source: Any = None
    bundles = [tuple(Fragment("", "", "", size, 1, source) for size in bundle) for bundle in sizes]
    jobs = list(divide_into_jobs(bundles, count, cost))
    assert [bundle for job in jobs for bundle in job] == bundles
    assert all(jobs)
    for at, job in enumerate(jobs):
        costs = [read_cost(bundle) for bundle in job]
        assert at == len(jobs) - 1 or (len(job) >= count and sum(costs) >= cost)
        assert len(job) - 1 < count or sum(costs[:-1]) < cost


def no_spark() -> SparkSession:
    raise AssertionError("Spark was started for small work")


class SmallFiles(Lake):
    """A table of many small files in two partitions, refreshed without Spark.

    Profiles of removed fragments expire soon.
    """

    def config(self, root: str = "root") -> MetastoreConfig:
        options = {"engine": "auto", "keep_versions": 1}
        return super().config(root).model_copy(update=options)

    def commit_some(self, away: Path) -> None:
        """Add and remove files, and move files to the folder `away` or back."""
        for _ in range(self.draw.randrange(7)):
            self.append(self.draw.randrange(2), self.draw.randrange(30))
        if self.draw.random() < 0.3:
            for path in sorted(away.rglob("*.parquet")):
                path.rename(self.uri / path.relative_to(away))
        share = self.draw.choice([0.1, 0.6])
        for path in self.files():
            if len(self.files()) > 3 and self.draw.random() < share:
                to = away / path.relative_to(self.uri)
                to.parent.mkdir(parents=True, exist_ok=True)
                path.rename(to)
        while len(self.files()) > 30:
            self.files()[0].unlink()


def store_of(config: MetastoreConfig) -> VersionStore:
    return VersionStore(ObjectStore(config.root), "t")


def named(version: Version) -> list[ProfileFiles]:
    """Return the profiles of fragments and merge nodes that are in shared files.

    The root of a merge tree is in no shared file.
    """
    entries = [*version.fragments, *version.retired, *version.nodes]
    return [entry.files for entry in entries if entry.files.name]


def assert_consistent(versions: VersionStore) -> None:
    """Assert that referenced files exist and that shared files waste little.

    A sparse file is one with more unused profiles than used ones. The fragments of a partition are a group, and so are
    the nodes of a merge tree. The sparse files of a group have at most one unused profile for every four profiles that
    the group uses.
    """
    for number in versions.numbers():
        for path in versions.read(number).paths():
            assert versions.objects.info(path) is not None, (number, path)
    version = versions.read(versions.newest())
    groups = [(entry.group, entry.files) for entry in (*version.fragments, *version.retired)]
    groups += [(f"nodes of {nodes.group}", nodes.files) for nodes in version.nodes]
    shared_files = [(group, file) for group, file in groups if file.sections > 1]
    count = Counter(file.states for _, file in shared_files)
    wasted_sections = Counter[str]()
    for group, path, section_count in {(group, file.states, file.sections) for group, file in shared_files}:
        sections = pq.read_table(Path(versions.objects.uri(path)), columns=["section"])["section"].unique()
        assert section_count == len(sections)
        wasted_sections[group] += section_count - count[path] if section_count > 2 * count[path] else 0
    in_use = Counter(group for group, _ in shared_files)
    assert all(4 * rows <= in_use[group] for group, rows in wasted_sections.items())


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 30))])
def test_shared_files_are_consistent_in_random_histories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """After random commits, the last version equals one from scratch.

    Expiry leaves no file of merge nodes that no version references.
    """
    monkeypatch.setattr(execution, "GRACE", timedelta(0))
    monkeypatch.setattr(profiling, "_MAX_BUNDLE_COST", 5 << 19)
    monkeypatch.setattr(merge_plan, "FAN_IN", 3)
    monkeypatch.setattr(small_files, "MIN_FILES", 2 if seed % 2 else 8)
    lake = SmallFiles(tmp_path, random.Random(seed))
    for _ in range(10):
        lake.append(lake.draw.randrange(2), 20)
    config = lake.config()
    versions = store_of(config)
    for number in range(4):
        refresh(config, lake.table, no_spark)
        assert_consistent(versions)
        if number in (1, 3):
            versions.expire(lake.draw.randrange(1, 4), timedelta(0))
            assert_consistent(versions)
            retained_paths = {path for version in versions.numbers() for path in versions.read(version).paths()}
            assert {info.path for info in versions.objects.list("nodes")} <= retained_paths
        lake.commit_some(tmp_path / "away")
    refresh(config, lake.table, no_spark)
    refresh(lake.config("scratch"), lake.table, no_spark)
    assert_same(everything(config), everything(lake.config("scratch")))


def test_used_profiles_of_a_sparse_file_are_copied(tmp_path: Path) -> None:
    """The used profiles of a sparse shared file are copied, without reading data files.

    They are copied if less than half of the file is used and no restore needs the rest.
    """
    lake = SmallFiles(tmp_path)
    files = [lake.append(0, 20) for _ in range(5)]
    config = lake.config()
    refresh(config, lake.table, no_spark)
    before = {entry.path: entry.files for entry in latest(config).fragments}
    for path in files[2:]:
        path.unlink()
    refresh(config, lake.table, no_spark)
    version = latest(config)
    assert {entry.files for entry in (*version.fragments, *version.retired)} == set(before.values())  # for a restore
    lake.append(1, 20)
    result = refresh(config, lake.table, no_spark)
    # The only partition used the value counts of the table: beside another one it needs its own.
    assert (result.fragments_profiled, result.partitions_changed) == (1, ("part=0", "part=1"))
    after = {entry.path: entry.files for entry in latest(config).fragments if entry.partition_key == "part=0"}
    assert {path: profile.name for path, profile in after.items()} == {path: before[path].name for path in after}
    assert {value.sections for value in after.values()} == {2}
    assert not {value.states for value in after.values()} & {value.states for value in before.values()}
    versions = store_of(config)
    versions.expire(1, timedelta(0))
    assert all(versions.objects.info(value.states) is not None for value in after.values())
    lake.append(0, 20)
    refresh(config, lake.table, no_spark)
    refresh(lake.config("scratch"), lake.table, no_spark)
    assert_same(everything(config), everything(lake.config("scratch")))


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 9), st.integers(1, 9)), max_size=30), st.booleans())
def test_sparse_files_of_a_group_are_compacted_together(group_files: list[tuple[str, int, int]], purging: bool) -> None:
    """The used sections of a group's files that are less than half in use are copied together.

    A group is the profiles of a partition's fragments, or of the nodes of a merge tree. The sections are copied only if
    these files have more unused sections than a quarter of the used sections of the group. A purge copies the used
    sections of every file with an unused one.
    """
    files = [(group, section_count, min(section_count, used_count)) for group, section_count, used_count in group_files]
    entries = [
        NodeEntry(
            node_key(group, f"{at}-{section}"),
            ProfileFiles("", "", (), f"{at}", f"{at}-{section}", section_count),
            "spec_id",
        )
        for at, (group, section_count, used_count) in enumerate(files)
        for section in range(used_count)
    ]
    limits = COMPACT_ALL if purging else DEFAULT_LIMITS
    share, waste = limits.min_used_share, limits.max_waste
    tasks = _sparse_files("nodes", entries, limits)
    expected = set[str]()
    for group in "ab":
        shared_files = [
            (at, section_count, used_count)
            for at, (file_group, section_count, used_count) in enumerate(files)
            if file_group == group and section_count > 1
        ]
        sparse = [item for item in shared_files if item[2] < item[1] * share]
        if sum(section_count - used_count for _, section_count, used_count in sparse) > waste * sum(
            used_count for _, _, used_count in shared_files
        ):
            expected |= {f"{at}-{section}" for at, _, used_count in sparse for section in range(used_count)}
    result = [path.section for task in tasks for path in task.files]
    assert sorted(result) == sorted(expected)


_PROFILES = st.dictionaries(
    st.tuples(st.sampled_from("abc"), st.integers(0, 4), st.integers(0, 5)), st.booleans(), max_size=25
)
"""Profiles by (group, file, section). The value says whether the fragment is retired."""


def wasteful(profiles: dict[tuple[str, int, int], bool]) -> dict[str, set[str]]:
    """Return, by group, the used sections that are copied out of files with few used sections.

    A group is left out if these files have few unused sections. The keys of `profiles` are the used sections as (group,
    number of the file, section); its values are ignored. File n has n + 3 sections in total.
    """
    result = {}
    used_sections = Counter(file for _, file, _ in profiles)
    for group in "abc":
        in_use = [(file, section) for profile_group, file, section in profiles if profile_group == group]
        sparse = {file for file, _ in in_use if used_sections[file] < DEFAULT_LIMITS.min_used_share * (file + 3)}
        if sum(file + 3 - used_sections[file] for file in sparse) > DEFAULT_LIMITS.max_waste * len(in_use):
            result[group] = {f"{group}-{file}-{section}" for file, section in in_use if file in sparse}
    return result


@given(_PROFILES, _PROFILES)
def test_groups_with_many_unused_profiles_are_compacted(
    tmp_path_factory: pytest.TempPathFactory,
    before: dict[tuple[str, int, int], bool],
    after: dict[tuple[str, int, int], bool],
) -> None:
    """The used profiles of a group are copied if the group begins to waste much space with a change.

    The profiles of a partition's fragments are a group. It wastes much space if files of which it uses few profiles
    have many unused ones. A group that wastes little is not copied.
    """
    versions = VersionStore(ObjectStore(str(tmp_path_factory.mktemp("root"))), "orders")

    def entries(profiles: dict[tuple[str, int, int], bool]) -> tuple[list[FragmentEntry], list[RetiredFragment]]:
        live: list[FragmentEntry] = []
        retired_fragments: list[RetiredFragment] = []
        for (group, file, section), is_retired in profiles.items():
            name = f"{group}-{file}-{section}"
            entry = FragmentEntry(
                name, group, name, 1, 1, "spec", (), ProfileFiles("", "", (), f"{file}", name, file + 3)
            )
            (retired_fragments.append(RetiredFragment(1, entry)) if is_retired else live.append(entry))  # type: ignore[func-returns-value]
        return live, retired_fragments

    live, retired_fragments = entries(before)
    versions.publish(replace(version(1), fragments=live, retired=retired_fragments, nodes=[]))
    base = versions.read(1)
    live, retired_fragments = entries(after)
    stored_fragments, stored_retired, shared_entries = base.fragments, base.retired, base.shared_files
    assert isinstance(stored_fragments, StoredEntries)
    assert isinstance(stored_retired, StoredEntries)
    assert isinstance(shared_entries, StoredEntries)
    changes = SegmentChanges(
        EntryChanges.between(FRAGMENTS, stored_fragments, live),
        EntryChanges(NODES, None, {}, {}),
        EntryChanges.between(RETIRED, stored_retired, retired_fragments),
    )
    tasks, _ = plan_compaction("orders", changes, shared_entries, {})
    copied_sections: dict[str, set[str]] = {}
    for task in tasks:
        for files in task.files:
            copied_sections.setdefault(files.section[0], set()).add(files.section)
    expected = wasteful(after)
    assert copied_sections.keys() >= expected.keys() - wasteful(before).keys()
    assert copied_sections == {group: sections for group, sections in expected.items() if group in copied_sections}


@pytest.mark.parametrize("count", [1, 2_000, 2_001, 10_000, 100_000, 10**9])
def test_each_node_of_the_table_is_in_one_window(count: int) -> None:
    """Each node of a merge tree is in exactly one of the successive windows.

    A window is a prefix of names of nodes. A publication compacts only sparse files with nodes in one window. On
    average, a window has at most 2,000 children, or one in 256 of all children if that is more.
    """
    draw = random.Random(count)
    names = ["".join(draw.choices("0123", k=draw.randint(0, 14))) for _ in range(3_000)]
    windows = [window for number in range(10_000) if (window := table_node_window("*", count, number))]
    cycle = list(dict.fromkeys(windows))
    assert windows[: 2 * len(cycle)] == (2 * cycle)[: len(windows)]
    assert len(cycle) == 1 or count / len(cycle) <= max(2_000, count / 256)
    for name in names:
        assert sum(node_key("*", name).startswith(window) for window in cycle) == 1


def test_only_nodes_of_the_window_are_copied(tmp_path: Path) -> None:
    """A plan for one window, which is a part of the merge nodes, copies only profiles of this part.

    The file that wastes space has used profiles in four windows.
    """
    versions = VersionStore(ObjectStore(str(tmp_path)), "orders")

    def node(name: str, file: int) -> NodeEntry:
        return NodeEntry(node_key("*", name), ProfileFiles("", "", (), f"{file}", f"{name}-{file}", 16))

    names = [f"{first}0000{second}" for first in "0123" for second in "0123"]
    versions.publish(replace(version(1), fragments=[], retired=[], nodes=[node(name, 0) for name in names]))
    base = versions.read(1)
    stored_nodes, shared_entries = base.nodes, base.shared_files
    assert isinstance(stored_nodes, StoredEntries)
    assert isinstance(shared_entries, StoredEntries)
    # In each window, three profiles of the first file are replaced by those of another file, and one stays.
    replaced_nodes = [node(name, 1) for name in names if not name.endswith("0")]
    changes = SegmentChanges(
        EntryChanges(FRAGMENTS, None, {}, {}),
        EntryChanges.changed(NODES, stored_nodes, replaced_nodes),
        EntryChanges(RETIRED, None, {}, {}),
    )
    for first in "0123":
        tasks, entries = plan_compaction("orders", changes, shared_entries, {"*": [node_key("*", f"{first}0000")]})
        assert {entry.key for entry in entries} == {node_key("*", f"{first}0000{second}") for second in "0123"}
        assert [files.section for task in tasks for files in task.files] == [f"{first}00000-0"]
    assert plan_compaction("orders", changes, shared_entries, {"*": []}) == ([], [])


def near_unique(lake: SmallFiles, files: int) -> None:
    """Write `files` files of 200 rows, with two near-unique columns and a column of ten values."""
    for _ in range(files):
        lake.written += 1
        numbers = np.arange(lake.written * 200, (lake.written + 1) * 200)
        texts = [f"text {number * 7919 % 100_003:06}" for number in numbers.tolist()]
        table = pa.table({"text": texts, "number": numbers * 31 % 100_003, "few": numbers % 10})
        (lake.uri / "part=0").mkdir(parents=True, exist_ok=True)
        pq.write_table(table, lake.uri / "part=0" / f"{lake.written}.parquet")


def lists(config: MetastoreConfig) -> Counter[str]:
    """Return, by column, the number of fragments whose profile has value counts."""
    occurrences: Counter[str] = Counter()
    for path in {entry.files.states for entry in latest(config).fragments}:
        table = pq.read_table(Path(config.root) / "t" / path, columns=["field_id", "enumerated_counts"])
        occurrences.update(
            name for name, is_named in zip(*(column.to_pylist() for column in table.columns), strict=True) if is_named
        )
    return occurrences


def test_value_counts_are_dropped_with_the_decision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the second commit shows that two columns are near-unique.

    Then no fragment, old or new, has their value counts. The old fragments are not profiled again. After more changes,
    statistics equal those from scratch.
    """
    monkeypatch.setattr(auto_policies, "NEAR_UNIQUE_ABOVE", 2000)
    lake = SmallFiles(tmp_path)
    config = lake.config()

    def run() -> RefreshResult:
        return refresh(config, lake.table, no_spark)

    near_unique(lake, 8)
    run()
    assert lists(config) == {"text": 8, "number": 8, "few": 8, "part": 8}
    names = {entry.id: entry.files.name for entry in latest(config).fragments}
    near_unique(lake, 8)
    result = run()
    assert lists(config) == {"few": 16, "part": 16}
    assert all(entry.not_enumerated == ("number", "text") for entry in latest(config).fragments)
    assert (result.fragments_profiled, result.fragments_unchanged) == (8, 8)
    assert {
        id_: name for id_, name in names.items() if name in {profile.name for profile in named(latest(config))}
    } == names
    # Files with value counts that are neither published nor saved for another attempt are removed at once.
    versions = store_of(config)
    paths = {path for number in versions.numbers() for path in versions.read(number).paths()}
    assert {info.path for info in versions.objects.list("fragments")} <= paths
    near_unique(lake, 2)
    assert run().fragments_profiled == 2
    lake.files()[0].unlink()
    run()
    answer = everything(config)
    row = answer["table"]["columns"]["number"]
    assert (row["frequencies"], row["value_count"]) == ("estimated", 17 * 200)
    assert row["distinct_count"] == pytest.approx(17 * 200, rel=0.05)
    scratch = lake.config("scratch")
    refresh(scratch, lake.table, no_spark)
    other = everything(scratch)["table"]["columns"]
    for column in ("text", "number", "few"):
        for statistic in (
            "minimum",
            "maximum",
            "sum",
            "multiset_hash",
            "bins",
            "distinct_count",
            "enumerated",
            "frequencies",
        ):
            assert answer["table"]["columns"][column][statistic] == other[column][statistic], (column, statistic)


def test_a_kill_before_rewritten_files_are_deleted_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refresh is killed before it deletes profiles that it has rewritten.

    The next attempt reads no data file.
    """
    monkeypatch.setattr(auto_policies, "NEAR_UNIQUE_ABOVE", 2000)
    lake = SmallFiles(tmp_path)
    near_unique(lake, 12)
    config = lake.config()

    def killed(self: ObjectStore, paths: list[str]) -> None:
        raise SystemExit(f"before {paths}")

    with monkeypatch.context() as patch:
        patch.setattr(ObjectStore, "delete", killed)
        with pytest.raises(SystemExit, match="fragments/"):
            refresh(config, lake.table, no_spark)
    assert store_of(config).latest() is None
    assert refresh(config, lake.table, no_spark).fragments_profiled == 0
    assert lists(config) == {"few": 12, "part": 12}
    before = everything(config)
    store_of(config).expire(1, timedelta(0))
    assert everything(config) == before


def test_an_unreadable_fragment_does_not_affect_others(tmp_path: Path) -> None:
    """One of six fragments in a bundle is unreadable.

    The other five profiles are saved for the next attempt, in one file. No entry references the unreadable fragment's
    section of this file.
    """
    lake = SmallFiles(tmp_path)
    for _ in range(6):
        bad = lake.append(0, 40)
    good = bad.read_bytes()
    # Its footer is intact, but the pages of its last column are not.
    start = pq.ParquetFile(bad).metadata.row_group(0).column(5).data_page_offset
    bad.write_bytes(good[:start] + b"\xff" * 20 + good[start + 20 :])
    config = lake.config()
    with pytest.raises(ProfileError, match=f"1 of 6 .*{bad.name}"):
        refresh(config, lake.table, no_spark)
    entries = store_of(config).pending()
    assert len(entries) == 5
    assert len({entry.files.states for entry in entries}) == 1
    assert {entry.files.sections for entry in entries} == {6}
    bad.write_bytes(good)
    assert refresh(config, lake.table, no_spark).fragments_profiled == 1
    refresh(lake.config("scratch"), lake.table, no_spark)
    assert_same(everything(config), everything(lake.config("scratch")))


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The number of times that each Parquet file of the Metastore is opened in this process, by path."""
    open_counts: Counter[str] = Counter()
    plain = ObjectStore.open_parquet

    def counting(self: ObjectStore, path: str, *arguments: Any, **options: Any) -> Any:
        open_counts[path] += 1
        return plain(self, path, *arguments, **options)

    monkeypatch.setattr(ObjectStore, "open_parquet", counting)
    return open_counts


def test_a_file_is_opened_once_per_step(tmp_path: Path, opened: Counter[str]) -> None:
    """A refresh opens a shared file at most five times, not once per fragment in it.

    It is read to decide on `auto` policies, to merge profiles, to sum value counts, and to build the index.
    """
    lake = SmallFiles(tmp_path)
    for _ in range(30):
        lake.append(0, 10)
    refresh(lake.config(), lake.table, no_spark)
    files = {entry.files.states for entry in latest(lake.config()).fragments}
    assert len(files) == 1
    assert all(opened[path] <= 5 for path in files), opened
