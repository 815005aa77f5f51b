"""Differences of Iceberg snapshots equal comparisons, and open only manifests that may matter.

If the metadata do not show the difference of two snapshots, it is unknown, and `changes` returns `NoDiff`.

A fragment is a data file and the deletes on it.

A difference is the fragments added and removed between two snapshots, which `changes` computes from metadata of
commits. A comparison computes them from the complete lists of fragments.

The source of a fragment is an object that can be pickled, and that opens the files of the fragment.
"""

from __future__ import annotations

import datetime as dt
import itertools
import json
import math
import random
import re
import tempfile
import uuid
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metastore_assets.config import TableConfig
from metastore_assets.errors import SnapshotNotFoundError, TableFormatError
from metastore_assets.expressions import sql_parser
from metastore_assets.formats import (
    Fragment,
    MetadataCache,
    NoDiff,
    Snapshot,
    SnapshotDiff,
    SnapshotReference,
    open_table_format,
)
from tests.formats.iceberg.tables import ICEBERG_TABLES
from tests.formats.iceberg.writer import Entry, IcebergWriter, column
from tests.formats.oracle import read_rows
from tests.formats.table_writers import DAYS, Table
from tests.formats.test_contract import assert_is_difference
from tests.formats.test_realtables import _config as real_config

_COLUMNS = [column(1, "id", "long"), column(2, "day", "string"), column(3, "level", "double"), column(4, "n", "int")]
_SPECS: dict[int, list[dict[str, Any]]] = {
    0: [],
    1: [{"name": "day", "field-id": 1000, "source-id": 2, "transform": "identity"}],
    2: [
        {"name": "level", "field-id": 1001, "source-id": 3, "transform": "identity"},
        {"name": "n_bucket", "field-id": 1002, "source-id": 4, "transform": "bucket[4]"},
    ],
    3: [{"name": "gone", "field-id": 1003, "source-id": 2, "transform": "void"}],
}
_TYPES = {1000: "string", 1001: "double", 1002: "int", 1003: "string"}
_PATH = 2147483546
"""Field id of the path in position delete files."""
_PARTITIONS: list[tuple[int, tuple[Any, ...]]] = [
    (0, ()),
    (3, (None,)),
    *((1, (day,)) for day in ("2024-01-01", "2024-01-02", "2024", "é", "\U0001f600", "\uff5e", None)),
    *((2, values) for values in ((0.5, 1), (-0.0, 3), (math.nan, 1), (math.inf, 0), (None, 2), (None, None))),
]


def _config(folder: Path, **more: Any) -> TableConfig:
    return TableConfig(name="t", uri=str(folder), **more)


def _snapshot(config: TableConfig) -> tuple[Snapshot, Mapping[bytes, bytes]]:
    """Return the snapshot of a table, and the metadata cached while it was planned."""
    cache = MetadataCache(ignore_process=True)
    return open_table_format(config, cache).snapshot(), cache.entries


def _changes(
    config: TableConfig, since: SnapshotReference, cache_entries: Mapping[bytes, bytes]
) -> SnapshotDiff | NoDiff:
    return open_table_format(config, MetadataCache(lambda: cache_entries, ignore_process=True)).changes(since)


def _difference(config: TableConfig, since: SnapshotReference, cache_entries: Mapping[bytes, bytes]) -> SnapshotDiff:
    diff = _changes(config, since, cache_entries)
    assert isinstance(diff, SnapshotDiff), diff
    return diff


def _with_texts(snapshot: Snapshot) -> Snapshot:
    return replace(snapshot, fragments=_comparable(snapshot.fragments))


def _comparable(fragments: tuple[Fragment, ...]) -> tuple[Fragment, ...]:
    """Return fragments whose sources are texts without object addresses.

    Sources themselves may be unequal to their copies, because they may contain NaN.
    """
    texts = (re.sub(r" object at 0x\w+", "", repr(fragment.source)) for fragment in fragments)
    return tuple(replace(fragment, source=text) for fragment, text in zip(fragments, texts, strict=True))  # type: ignore[arg-type]


class _History:
    """Random commits of files that exist only in metadata."""

    def __init__(self, folder: Path, version: int, seed: int) -> None:
        self.random = random.Random(seed)
        self.writer = IcebergWriter(folder, _COLUMNS, specs=_SPECS, partition_types=_TYPES, version=version)
        self.states: list[tuple[str, list[Entry]]] = []
        """Ids of the snapshots, and their files."""
        self._added: list[Entry] = []
        self._removed: list[Entry] = []

    def commit(self, steps: Collection[str], *, retain_manifests: bool) -> None:
        self._added, self._removed = [], []
        for step in steps:
            getattr(self, f"_{step}")()
        snapshot_id = self.writer.commit(*self._added, removed_entries=self._removed, retain_manifests=retain_manifests)
        self.states.append((str(snapshot_id), list(self.writer.live)))

    def _live(self, content: int, *, can_be_new: bool = False) -> list[Entry]:
        removed_ids = set(map(id, self._removed))
        entries = [entry for entry in self.writer.live if id(entry) not in removed_ids]
        return [
            entry for entry in (*entries, *(self._added if can_be_new else ())) if min(1, entry["content"]) == content
        ]

    def _file(self, kind: str, content: int, partition: tuple[int, tuple[Any, ...]], **more: Any) -> Entry:
        name = f"data/{kind}-{len(self.states)}-{self.random.getrandbits(64):x}.parquet"
        spec_id, values = partition
        rows = self.random.randrange(1, 100)
        entry = self.writer._entry(name, "parquet", rows) | {"content": content, "spec_id": spec_id}
        return entry | {"partition": values} | more

    def _append(self) -> None:
        for _ in range(self.random.choice([1, 1, 2, 5])):
            self._added.append(self._file("data", 0, self.random.choice(_PARTITIONS)))

    def _drop(self) -> None:
        """Remove some data files, and perhaps the delete files that reference them."""
        live = self._live(0)
        dropped_entries = self.random.sample(live, min(len(live), self.random.choice([1, 2, 4])))
        self._removed += dropped_entries
        paths = {entry["file_path"] for entry in dropped_entries}
        referencing_entries = [entry for entry in self._live(1) if entry.get("referenced_data_file") in paths]
        self._removed += [
            entry for entry in referencing_entries if entry["file_format"] == "PUFFIN" or self.random.random() < 0.5
        ]

    def _compact(self) -> None:
        """Replace the files of a partition by one, and remove their deletion vectors.

        The new file has the sequence number of the oldest file or of the commit.
        """
        live = self._live(0)
        if live:
            one = self.random.choice(live)
            partition = one["spec_id"], one["partition"]
            files = [entry for entry in live if (entry["spec_id"], entry["partition"]) == partition]
            self._removed += files
            paths = {entry["file_path"] for entry in files}
            self._removed += [
                entry
                for entry in self._live(1)
                if entry["file_format"] == "PUFFIN" and entry["referenced_data_file"] in paths
            ]
            oldest = min(entry["sequence_number"] for entry in files)
            more = {"sequence_number": oldest} if self.random.random() < 0.5 else {}
            self._added.append(self._file("compacted", 0, partition, **more))

    def _positions(self) -> None:
        """Add position delete files.

        A delete file names one data file by reference or by bounds, which may be truncated, or it names none.
        """
        live = self._live(0, can_be_new=True)
        vectors = {entry.get("referenced_data_file") for entry in self.writer.live if entry["file_format"] == "PUFFIN"}
        for data in self.random.sample(live, min(len(live), self.random.choice([1, 1, 3]))):
            partition, path = (data["spec_id"], data["partition"]), data["file_path"]
            kind = self.random.choice(["reference", "bounds", "cut", "none"])
            if kind == "none" or path in vectors:
                more: dict[str, Any] = {}
            elif kind == "reference":
                more = {"referenced_data_file": path}
            else:
                bound = path.encode() if kind == "bounds" else path.encode()[: self.random.choice([16, -4])]
                bounds = [{"key": _PATH, "value": bound}]
                more = {"lower_bounds": bounds, "upper_bounds": bounds}
            self._added.append(self._file("positions", 1, partition, **more))

    def _vectors(self) -> None:
        """In format version 3, add deletion vectors for some data files.

        The vectors replace earlier delete files of the same data files.
        """
        if self.writer.version < 3:
            return
        live = self._live(0, can_be_new=True)
        for data in self.random.sample(live, min(len(live), self.random.choice([1, 3]))):
            path = data["file_path"]
            self._removed += [entry for entry in self._live(1) if entry.get("referenced_data_file") == path]
            self._added = [entry for entry in self._added if entry.get("referenced_data_file") != path]
            puffin = {"file_format": "PUFFIN", "referenced_data_file": path}
            blob = {"content_offset": self.random.randrange(99), "content_size_in_bytes": 50}
            self._added.append(self._file("vector", 1, (data["spec_id"], data["partition"]), **puffin, **blob))

    def _equality(self) -> None:
        partition = self.random.choice(_PARTITIONS)
        self._added.append(self._file("equality", 2, partition, equality_ids=[1]))

    def _drop_deletes(self) -> None:
        live = self._live(1)
        self._removed += self.random.sample(live, min(len(live), self.random.choice([1, 3])))

    def names_missing_file(self, old: Collection[Entry], new: Collection[Entry]) -> bool:
        """Return whether a new delete file names a data file that the same partition does not have.

        `old` and `new` are the live files of an earlier and a later state. A delete file is new if only `new` has it.
        The data files are those of both states.
        """
        files = [entry for entry in (*old, *new) if entry["content"] == 0]
        earlier = set(map(id, old))
        for entry in new:
            if entry["content"] == 1 and id(entry) not in earlier:
                bounds = entry.get("lower_bounds")
                target = entry.get("referenced_data_file") or (bounds and bounds[0]["value"].decode())
                partition = entry["spec_id"], entry["partition"]
                same_partition = [file for file in files if (file["spec_id"], file["partition"]) == partition]
                if target and not any(file["file_path"].startswith(target) for file in same_partition):
                    return True
        return False


_STEPS = st.sampled_from(
    ["append", "append", "append", "drop", "compact", "positions", "vectors", "equality", "drop_deletes"]
)
_COMMITS = st.lists(
    st.tuples(st.lists(_STEPS, min_size=1, max_size=3), st.sampled_from([True, True, True, False])),
    min_size=2,
    max_size=12,
)


@pytest.mark.slow
@pytest.mark.parametrize("version", [1, 2, 3])
@given(commits=_COMMITS, seed=st.integers(0, 2**32), pairs=st.sets(st.tuples(*[st.integers(0, 11)] * 2), max_size=6))
@settings(max_examples=max(10, settings().max_examples // 3))
def test_changes_are_the_difference_of_snapshots(
    version: int, commits: list[Any], seed: int, pairs: set[tuple[int, int]]
) -> None:
    """Differences of random snapshots in both directions equal comparisons of them.

    A difference may be unknown (`NoDiff`) only if an added delete file names a file that is not in its partition.
    """
    with tempfile.TemporaryDirectory() as folder:
        history = _History(Path(folder) / "t", version, seed)
        for steps, retain_manifests in commits:
            history.commit(["append"] if version == 1 else steps, retain_manifests=retain_manifests)
        configs = [_config(history.writer.folder, at=id_) for id_, _ in history.states]
        plans = list(map(_snapshot, configs))
        steps_of_one = {(index, index + 1) for index in range(len(commits) - 1)}
        for old, new in {(one % len(commits), other % len(commits)) for one, other in pairs} | steps_of_one:
            (before, cache_entries), (now, _) = plans[old], plans[new]
            diff = _changes(configs[new], before.reference, cache_entries)
            if isinstance(diff, NoDiff):
                assert history.names_missing_file(history.states[old][1], history.states[new][1]), diff
                continue
            assert_is_difference(replace(diff, added=_comparable(diff.added)), *map(_with_texts, (before, now)))
            assert diff.since == before.reference
            added_paths = {(fragment.partition_key, fragment.path) for fragment in diff.added}
            assert diff.replaced == added_paths & {
                (fragment.partition_key, fragment.path) for fragment in before.fragments
            }
            for name in ("id", "committed_at", "schema", "partition_columns", "partition_types", "buckets", "derived"):
                assert getattr(diff.current, name) == getattr(now, name), name


@pytest.fixture
def writer(tmp_path: Path) -> IcebergWriter:
    """A table of three partitions with two files each.

    Each file was added by a separate commit.
    """
    writer = IcebergWriter(tmp_path / "t", _COLUMNS, specs=_SPECS, partition_types=_TYPES, version=3)
    for _ in range(2):
        for day in ("a", "b", "c"):
            _append(writer, day)
    return writer


def _append(writer: IcebergWriter, day: str, **more: Any) -> Entry:
    entry = _file(writer, 0, day, **more)
    writer.commit(entry, retain_manifests=True)
    return entry


def _file(writer: IcebergWriter, content: int, day: str | None, **more: Any) -> Entry:
    partition = {"spec_id": 0, "partition": ()} if day is None else {"spec_id": 1, "partition": (day,)}
    return writer._entry(f"data/{uuid.uuid4()}.parquet", "parquet", 3) | {"content": content} | partition | more


def _live(writer: IcebergWriter, day: str, content: int = 0) -> list[Entry]:
    return [entry for entry in writer.live if entry["content"] == content and entry["partition"] == (day,)]


def _opened(writer: IcebergWriter, change: Callable[[], object]) -> tuple[SnapshotDiff, int]:
    """Return the difference that a change makes, and how many earlier manifests are needed to find it.

    Fails if the difference is unknown (`NoDiff`).
    """
    config = _config(writer.folder)
    before, cache_entries = _snapshot(config)
    manifests = set((writer.folder / "metadata").glob("*-m0.avro"))
    change()
    diff = _difference(config, before.reference, cache_entries)
    assert_is_difference(diff, before, _snapshot(config)[0])
    needed_paths = set()
    for path in manifests:
        path.rename(path.with_suffix(".away"))
        try:
            if _changes(config, before.reference, cache_entries) != diff:
                needed_paths.add(path)
        except TableFormatError:
            needed_paths.add(path)
        path.with_suffix(".away").rename(path)
    for path in manifests - needed_paths:
        path.rename(path.with_suffix(".away"))
    assert _difference(config, before.reference, cache_entries) == diff
    for path in manifests - needed_paths:
        path.with_suffix(".away").rename(path)
    return diff, len(needed_paths)


def test_an_append_opens_no_earlier_manifest(writer: IcebergWriter) -> None:
    """The difference after three appends is computed without any earlier manifest.

    The table has delete files. One of the appended files is in a new partition.
    """
    writer.commit(_file(writer, 2, "a", equality_ids=[1]), _file(writer, 1, "b"), retain_manifests=True)
    diff, opened_count = _opened(writer, lambda: [_append(writer, day) for day in ("a", "b", "new")])
    assert (len(diff.added), len(diff.removed), opened_count) == (3, 0, 0)


def test_an_append_does_not_open_the_earlier_manifest_list(writer: IcebergWriter) -> None:
    """The earlier manifest list is not read if all earlier manifests are in the current snapshot.

    This also holds if the metadata of the earlier snapshot were cached while a difference was computed.
    """
    config = _config(writer.folder)
    before, cache_entries = _snapshot(config)
    for _ in range(2):
        earlier_list = Path(writer.snapshots[-1]["manifest-list"])
        _append(writer, "a")
        earlier_list.unlink()
        cache = MetadataCache(lambda cache_entries=cache_entries: cache_entries, ignore_process=True)  # type: ignore[misc]
        diff = open_table_format(config, cache).changes(before.reference)
        assert isinstance(diff, SnapshotDiff), diff
        after, _ = _snapshot(config)
        assert_is_difference(diff, before, after)
        before, cache_entries = after, {**cache_entries, **cache.entries}


def test_a_removed_file_opens_its_manifest(writer: IcebergWriter) -> None:
    file = _live(writer, "b")[0]
    diff, opened_count = _opened(writer, lambda: writer.commit(removed_entries=[file], retain_manifests=True))
    assert (diff.added, diff.removed, opened_count) == ((), {("day=b", file["file_path"])}, 1)


def test_merged_manifests_change_no_fragment(writer: IcebergWriter) -> None:
    """After a commit that only rewrites the manifests, the difference is empty.

    All six earlier manifests are opened.
    """
    diff, opened_count = _opened(writer, lambda: writer.commit(retain_manifests=False))
    assert (diff.added, diff.removed, opened_count) == ((), frozenset(), 6)


@pytest.mark.parametrize(
    ("content", "day", "touched_count"),
    [(1, "b", 2), (2, "b", 2), (2, None, 6), (1, None, 0), (1, "new", 0), (2, "new", 0)],
)
def test_deletes_open_the_manifests_of_their_partition(
    writer: IcebergWriter, content: int, day: str | None, touched_count: int
) -> None:
    """If a delete file is added or removed, only manifests with data files of its partition are opened.

    Other manifests are excluded by partition bounds. Equality deletes of an unpartitioned spec apply to all files.
    """
    deletes = _file(writer, content, day, equality_ids=[1] if content == 2 else None)
    diff, opened_count = _opened(writer, lambda: writer.commit(deletes, retain_manifests=True))
    assert (len(diff.added), opened_count) == (touched_count, touched_count)
    diff, opened_count = _opened(writer, lambda: writer.commit(removed_entries=[deletes], retain_manifests=True))
    assert (len(diff.added), opened_count) == (touched_count, touched_count + 1)
    assert diff.replaced == {(fragment.partition_key, fragment.path) for fragment in diff.added}
    assert not diff.removed


@pytest.mark.parametrize("kind", ["vector", "reference", "bounds"])
def test_a_delete_file_of_one_data_file_touches_no_other(writer: IcebergWriter, kind: str) -> None:
    """A delete file that names one data file changes only the fragment of this file.

    The manifests of its partition are opened to find this data file.
    """
    file = _live(writer, "b")[0]
    path = file["file_path"]
    bounds = [{"key": _PATH, "value": path.encode()}]
    more = {
        "vector": {"file_format": "PUFFIN", "referenced_data_file": path, "content_offset": 4},
        "reference": {"referenced_data_file": path},
        "bounds": {"lower_bounds": bounds, "upper_bounds": bounds},
    }[kind]
    deletes = _file(writer, 1, "b", content_size_in_bytes=30, **more)
    diff, opened_count = _opened(writer, lambda: writer.commit(deletes, retain_manifests=True))
    assert ([fragment.path for fragment in diff.added], opened_count) == ([path], 2)
    assert diff.added[0].source.position_deletes  # type: ignore[attr-defined]


def test_manifests_with_only_newer_files_are_not_opened(writer: IcebergWriter) -> None:
    """If equality deletes are removed, manifests that list only newer data files are not opened.

    The deletes applied only to older files of their partition.
    """
    deletes = _file(writer, 2, "b", equality_ids=[1])
    writer.commit(deletes, retain_manifests=True)
    for _ in range(3):
        _append(writer, "b")
    diff, opened_count = _opened(writer, lambda: writer.commit(removed_entries=[deletes], retain_manifests=True))
    assert (len(diff.added), opened_count) == (2, 2 + 1)


def test_deletes_that_apply_to_an_added_file_are_resolved(writer: IcebergWriter) -> None:
    """In a difference, earlier equality deletes apply to an added file with a lower sequence number.

    A compaction added this file.
    """
    for day in ("a", "b"):
        writer.commit(_file(writer, 2, day, equality_ids=[1]), retain_manifests=True)
    old = _live(writer, "b")
    new = _file(writer, 0, "b", sequence_number=3)
    diff, opened_count = _opened(writer, lambda: writer.commit(new, removed_entries=old, retain_manifests=True))
    assert [len(fragment.source.equality_deletes) for fragment in diff.added] == [1]  # type: ignore[attr-defined]
    assert (len(diff.removed), opened_count) == (2, 2 + 1)


@pytest.mark.parametrize("names_file", [False, True])
def test_the_order_of_manifests_does_not_matter(writer: IcebergWriter, names_file: bool) -> None:
    """If a commit removes one of three delete files, the other two still apply in the difference.

    The commit rewrites the manifest of two of the delete files. The new manifest comes last in the manifest list.
    """
    path = _live(writer, "b")[0]["file_path"]
    first, second, third = (_file(writer, 1, "b", referenced_data_file=path if names_file else None) for _ in range(3))
    writer.commit(first, retain_manifests=True)
    writer.commit(second, third, retain_manifests=True)
    diff, _ = _opened(writer, lambda: writer.commit(removed_entries=[third], retain_manifests=True))
    assert {len(fragment.source.position_deletes) for fragment in diff.added} == {2}  # type: ignore[attr-defined]


def test_changes_of_properties_have_an_empty_difference(writer: IcebergWriter) -> None:
    """After a change of a table property, the difference is empty, and no manifest is opened."""
    writer.properties["owner"] = "x"
    diff, opened_count = _opened(writer, writer.write_metadata)
    assert (diff.added, diff.removed, opened_count) == ((), frozenset(), 0)


def test_rollbacks_and_branches_have_differences(writer: IcebergWriter) -> None:
    first = writer.snapshots[2]["snapshot-id"]
    diff, _ = _opened(writer, lambda: writer.write_metadata(**{"current-snapshot-id": first}))
    assert (len(diff.added), len(diff.removed)) == (0, 3)
    before, cache_entries = _snapshot(_config(writer.folder, at=str(first)))
    writer.commit(_file(writer, 0, "a"), branch="audit", retain_manifests=True)
    diff = _difference(_config(writer.folder, at="audit"), before.reference, cache_entries)
    assert (len(diff.added), len(diff.removed)) == (4, 0)


def test_differences_have_only_selected_partitions(writer: IcebergWriter) -> None:
    """A difference has only files of the partitions that are selected by pattern.

    Files and deletes of other partitions are ignored.
    """
    config = _config(writer.folder, partitions={"day": ["b", "x*"]})
    before, cache_entries = _snapshot(config)
    for day in ("a", "b", "x1"):
        _append(writer, day)
    writer.commit(_file(writer, 2, "a", equality_ids=[1]), removed_entries=_live(writer, "a"), retain_manifests=True)
    diff = _difference(config, before.reference, cache_entries)
    assert_is_difference(diff, before, _snapshot(config)[0])
    assert [fragment.partition_key for fragment in diff.added] == ["day=b", "day=x1"]


def _rename_column(writer: IcebergWriter) -> None:
    writer.schemas.append([column(1, "key", "long"), *_COLUMNS[1:]])
    writer.write_metadata()


def _add_spec(writer: IcebergWriter) -> None:
    writer.specs[4] = [{"name": "id", "field-id": 1004, "source-id": 1, "transform": "identity"}]
    writer.partition_types = {**_TYPES, 1004: "long"}
    writer.write_metadata()


def _expire(writer: IcebergWriter) -> None:
    _append(writer, "a")
    writer.snapshots = writer.snapshots[-1:]
    writer.write_metadata()


def _remove_manifest(writer: IcebergWriter) -> None:
    """Commit the removal of a data file, and delete the earlier manifest that lists it."""
    (removed_record,) = [record for record, entries in writer.manifests if entries == _live(writer, "b")[:1]]
    writer.commit(removed_entries=_live(writer, "b")[:1], retain_manifests=True)
    Path(removed_record["manifest_path"]).unlink()


def _remove_list(writer: IcebergWriter) -> None:
    """Commit the removal of a data file, and delete the earlier manifest list."""
    path = Path(writer.snapshots[-1]["manifest-list"])
    writer.commit(removed_entries=_live(writer, "b")[:1], retain_manifests=True)
    path.unlink()


def _list_twice(writer: IcebergWriter) -> None:
    entry = _file(writer, 0, "a")
    writer.commit(entry, dict(entry), retain_manifests=True)


def _cross_partitions(writer: IcebergWriter) -> None:
    file = _live(writer, "b")[0]
    writer.commit(_file(writer, 1, "a", referenced_data_file=file["file_path"]), retain_manifests=True)


def _recreate(writer: IcebergWriter) -> None:
    writer.write_metadata(**{"table-uuid": str(uuid.uuid4())})


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (_rename_column, "the schema changed"),
        (_add_spec, "the partition specs changed"),
        (_expire, r"the snapshot \d+ has expired"),
        (_remove_manifest, r"a manifest of the snapshot \d+ cannot be read"),
        (_remove_list, r"a manifest of the snapshot \d+ cannot be read"),
        (_list_twice, "lists a file several times"),
        (_cross_partitions, "not in its partition"),
        (_recreate, "recreated"),
    ],
)
def test_some_changes_have_a_reason_instead_of_a_difference(
    writer: IcebergWriter, change: Callable[[IcebergWriter], None], reason: str
) -> None:
    """After some changes, the difference is unknown (`NoDiff`), and the result has the reason.

    The new snapshot can be read.
    """
    config = _config(writer.folder)
    before, cache_entries = _snapshot(config)
    change(writer)
    diff = _changes(config, before.reference, cache_entries)
    assert isinstance(diff, NoDiff)
    assert re.search(reason, diff.reason)
    assert _snapshot(config)[0].fragments


def test_changed_configurations_have_no_difference(writer: IcebergWriter, tmp_path: Path) -> None:
    """The difference is unknown if the selection of partitions or the path mapping changed.

    It is also unknown if nothing is cached, or if the earlier snapshot is unknown.
    """
    before, cache_entries = _snapshot(_config(writer.folder))
    for more, reason in (
        ({"partitions": {"day": ["a"]}}, "the selection of partitions changed"),
        ({"path_mapping": {"/elsewhere": str(tmp_path)}}, "from another location"),
    ):
        diff = _changes(_config(writer.folder, **more), before.reference, cache_entries)
        assert isinstance(diff, NoDiff)
        assert reason in diff.reason
    assert isinstance(_changes(_config(writer.folder), before.reference, {}), NoDiff)
    other = replace(before.reference, id="7")
    assert isinstance(_changes(_config(writer.folder), other, cache_entries), NoDiff)


def test_deletes_across_partitions_have_no_difference(writer: IcebergWriter) -> None:
    """After a delete file for a data file of another partition, the next difference is unknown.

    The delete file applies to the data file that it names. Differences are computed partition by partition.
    """
    _cross_partitions(writer)
    config = _config(writer.folder)
    before, cache_entries = _snapshot(config)
    assert sum(bool(fragment.source.position_deletes) for fragment in before.fragments) == 1  # type: ignore[attr-defined]
    _append(writer, "a")
    diff = _changes(config, before.reference, cache_entries)
    assert isinstance(diff, NoDiff)
    assert re.search(r"\bdelete files\b.*\bpartitions\b", diff.reason)


def test_a_file_that_is_listed_twice_has_its_rows_twice(tmp_path: Path) -> None:
    """A data file with two entries in manifests is one fragment, which has the rows of both entries.

    A delete file that was committed between them applies only to the older entry.
    """
    writer = IcebergWriter(tmp_path / "t", _COLUMNS[:1])
    data = writer.data(pa.table({"id": [1, 2, 3]}))
    writer.commit(data, retain_manifests=True)
    writer.commit(writer.equality_deletes(pa.table({"id": [2]}), "id"), retain_manifests=True)
    writer.commit({key: value for key, value in data.items() if key != "sequence_number"}, retain_manifests=True)
    snapshot, _ = _snapshot(_config(writer.folder))
    (fragment,) = snapshot.fragments
    assert (fragment.row_count, fragment.bytes) == (None, 2)
    assert sorted(read_rows(snapshot)) == [(1,), (1,), (2,), (3,), (3,)]


_ROW_STEPS = st.one_of(
    st.tuples(st.just("append"), st.sets(st.sampled_from(DAYS), min_size=1)),
    st.tuples(st.just("delete"), st.sets(st.integers(0, 25), min_size=1, max_size=9)),
    st.tuples(st.just("compact"), st.sampled_from(DAYS)),
)


@pytest.mark.parametrize("kind", ICEBERG_TABLES, ids=lambda kind: kind.__name__)
@given(steps=st.lists(_ROW_STEPS, min_size=1, max_size=5))
@settings(max_examples=max(5, settings().max_examples // 15))
def test_differences_of_written_tables_equal_comparisons(kind: type[Table], steps: list[tuple[str, Any]]) -> None:
    """After random appends, deletes and compactions, differences equal comparisons of the snapshots.

    The differences are those since the first and since the previous snapshot. The test runs with each kind of deletes.
    """
    with tempfile.TemporaryDirectory() as folder:
        table = kind(Path(folder) / "t")
        table.append([(number, "x", DAYS[number % 3]) for number in range(12)])
        config = _config(table.folder)
        first = last = _snapshot(config)
        for name, argument in steps:
            if name == "append":
                table.append([(table.next_id, "y", day) for day in sorted(argument)])
            else:
                getattr(table, name)(argument)
            now = _snapshot(config)
            for before, cache_entries in (first, last):
                assert_is_difference(_difference(config, before.reference, cache_entries), before, now[0])
            last = now


_REAL = Path(__file__).parents[4] / "shared" / "realtables" / "iceberg"


@pytest.mark.parametrize(
    "name",
    sorted(folder.name for folder in _REAL.glob("*") if folder.suffix != ".ext")
    or [pytest.param("", marks=pytest.mark.skip(reason="the real tables are not there: ../shared/realtables"))],
)
def test_differences_of_real_tables_equal_comparisons(name: str, realtables: Path) -> None:
    """Differences of consecutive snapshots of real tables, in both directions, equal comparisons.

    A difference may be unknown (`NoDiff`) only if the schema changed.
    """
    snapshots: dict[int, int] = {}
    for path in (realtables / "iceberg" / name / "metadata").glob("*.metadata.json"):
        for snapshot in json.loads(path.read_text()).get("snapshots") or []:
            snapshots[snapshot["timestamp-ms"]] = snapshot["snapshot-id"]
    states = []
    for _, snapshot_id in sorted(snapshots.items()):
        config = real_config(f"iceberg/{name}", realtables, str(snapshot_id))
        with suppress(SnapshotNotFoundError, TableFormatError):  # expired, or with missing files
            states.append((config, *_snapshot(config)))
    for older, newer in itertools.pairwise(states):
        for (_, before, cache_entries), (one, now, _) in ((older, newer), (newer, older)):
            diff = _changes(one, before.reference, cache_entries)
            if isinstance(diff, NoDiff):
                assert before.schema != now.schema, diff
            else:
                assert_is_difference(diff, before, now)


def test_a_later_current_date_gives_no_difference(tmp_path: Path) -> None:
    """A difference is unknown if the cached metadata belong to another current date.

    A condition with `current_date` selects other partitions a day later, although its text does not change. Here, the
    cache has the metadata of a plan on the later day.
    """
    spec = [{"name": "day", "field-id": 1000, "source-id": 2, "transform": "identity"}]
    columns = [column(1, "id", "long"), column(2, "day", "date")]
    writer = IcebergWriter(tmp_path / "t", columns, specs={0: spec}, partition_types={1000: "int"})
    first = (dt.date(2024, 1, 1) - dt.date(1970, 1, 1)).days
    writer.commit(*(writer.data(pa.table({"id": [day]}), partition=(first + day,)) for day in range(3)))
    cache = MetadataCache(ignore_process=True)
    table_formats = []
    for day in (3, 4):
        with patch.object(sql_parser, "today", lambda day=day: dt.date(2024, 1, day)):
            config = TableConfig(name="t", uri=str(writer.folder), partitions="day >= current_date - 1")
            table_formats.append(open_table_format(config, cache))
    today, tomorrow = table_formats
    snapshot = today.snapshot()
    assert (len(snapshot.fragments), len(tomorrow.stream().read_all().fragments)) == (2, 1)
    assert today.changes(snapshot.reference) == NoDiff("the selection of partitions changed")
