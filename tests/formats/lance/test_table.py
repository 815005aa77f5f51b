"""Lance tables have the rows that pylance reads.

This holds for every kind of commit, and for columns, branches, tags and times.

Fragments are those of Lance: data files and the deletes on them.

A difference is the fragments added and removed between two snapshots, which `changes` computes from metadata of
commits. A comparison computes them from the complete lists of fragments.
"""

from __future__ import annotations

import datetime
import pickle
import random
import re
import time
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance.arrow import bfloat16_array
from lance.blob import Blob, blob_array, blob_field
from lance.fragment import DataFile, LanceFragment

from metastore_assets.config import TableConfig
from metastore_assets.errors import (
    FragmentError,
    SnapshotNotFoundError,
    TableFormatError,
    TableNotFoundError,
)
from metastore_assets.formats import MetadataCache, NoDiff, Snapshot, SnapshotDiff, TableFormat, open_table_format
from metastore_assets.formats.base import SnapshotReference
from metastore_assets.formats.lance import native
from metastore_assets.formats.lance import table as table_module
from metastore_assets.formats.lance.fragment import _dropped_fields
from metastore_assets.formats.lance.versions import LanceVersion, list_versions, newest_version
from metastore_assets.formats.schema_casting import PARQUET_FIELD_ID, identity
from metastore_assets.storage.corrupt_input import LimitError, UnsupportedError
from metastore_assets.storage.location import Location, StoredFile
from metastore_assets.tasks.isolation import run_isolated
from tests.formats.lance.waiting import wait_without_end
from tests.formats.oracle import read_rows
from tests.formats.test_contract import assert_is_difference

_ROWS = pa.table(
    {
        "id": pa.array(range(6), pa.int64()),
        "text": [f"t{number}" for number in range(6)],
        "point": [{"x": number, "tags": [str(number), None]} for number in range(6)],
        "vector": pa.array([[number, 0.5] for number in range(6)], pa.list_(pa.float32(), 2)),
    }
)


def _open(folder: Path, **options: Any) -> TableFormat:
    return open_table_format(TableConfig(name="t", uri=str(folder), **options), MetadataCache(ignore_process=True))


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple((key, _frozen(item)) for key, item in value.items())
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else repr(value)


def _assert_equals_lance(folder: Path, dataset: Any, **options: Any) -> Snapshot:
    """Check that a snapshot has the rows and columns that pylance reads from `dataset`.

    Return the snapshot.

    `options` are settings of the table, such as `at`.
    """
    snapshot = _open(folder, **options).snapshot()
    expected = dataset.to_table()
    assert snapshot.schema.names == expected.schema.names
    rows = Counter(map(_frozen, read_rows(snapshot)))
    assert rows == Counter(_frozen(tuple(row.values())) for row in expected.to_pylist())
    assert sum(fragment.row_count or 0 for fragment in snapshot.fragments) == expected.num_rows
    return snapshot


def _append(dataset: Any, folder: Path) -> None:
    rows = _ROWS.set_column(
        0, "id", pa.array(range(dataset.count_rows() + 100, dataset.count_rows() + 106), pa.int64())
    )
    lance.write_dataset(
        rows.select(dataset.schema.names) if "id" in dataset.schema.names else rows, folder, mode="append"
    )


def _merge(dataset: Any) -> None:
    rows = _ROWS.slice(2, 3).set_column(0, "id", pa.array([2, 3, 900], pa.int64()))
    dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(rows)


_COMMITS: dict[str, Callable[[Any, Path], object]] = {
    "append": _append,
    "overwrite": lambda dataset, folder: lance.write_dataset(_ROWS.slice(0, 3), folder, mode="overwrite"),
    "delete": lambda dataset, folder: dataset.delete("id % 3 = 1"),
    "update": lambda dataset, folder: dataset.update({"text": "'new'"}, where="id > 3"),
    "merge insert": lambda dataset, folder: _merge(dataset),
    "compaction": lambda dataset, folder: dataset.optimize.compact_files(materialize_deletions_threshold=0),
    "restore": lambda dataset, folder: dataset.checkout_version(1).restore(),
    "index": lambda dataset, folder: dataset.create_scalar_index("id", "BTREE"),
    "configuration": lambda dataset, folder: dataset.update_config({"a": "b"}),
}


@pytest.mark.parametrize(
    ("file_version", "stable_row_ids"),
    [
        *(("legacy", False), ("2.0", True), ("2.1", False), ("2.2", True)),
        *(
            pytest.param(*case, marks=pytest.mark.long)
            for case in (("legacy", True), ("2.0", False), ("2.1", True), ("2.2", False))
        ),
    ],
)
def test_every_commit_shows_the_rows_of_pylance_and_their_difference(
    tmp_path: Path, file_version: str, stable_row_ids: bool
) -> None:
    """After each commit, rows and columns are those of pylance, and differences equal comparisons.

    Each kind of commit is made twice, in a random order. Tables with legacy files get no index and no merge
    insert. Equal fragment ids mean equal rows. The differences are those since the previous and since the first
    snapshot.
    """
    folder = tmp_path / "t"
    lance.write_dataset(
        _ROWS, folder, data_storage_version=file_version, enable_stable_row_ids=stable_row_ids, max_rows_per_file=4
    )
    order = random.Random(f"{file_version}{stable_row_ids}").sample(sorted(_COMMITS), k=len(_COMMITS))
    snapshots = [_assert_equals_lance(folder, lance.dataset(folder))]
    contents: dict[str, list[Any]] = {}
    for name in [*order, *order]:
        if file_version == "legacy" and name in ("index", "merge insert"):
            continue
        _COMMITS[name](lance.dataset(folder), folder)
        snapshot = _assert_equals_lance(folder, lance.dataset(folder))
        for fragment in snapshot.fragments:
            rows = sorted(map(_frozen, read_rows(snapshot, [fragment])))
            assert contents.setdefault(fragment.id, rows) == rows, name
        for before in (snapshots[-1], snapshots[0]):
            diff = _open(folder).changes(before.reference)
            assert isinstance(diff, SnapshotDiff), (name, diff)
            assert diff.current.reference == snapshot.reference
            assert_is_difference(diff, before, snapshot)
            assert diff.replaced is not None
        snapshots.append(snapshot)


def test_a_commit_without_rows_keeps_the_fragments(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    dataset = lance.write_dataset(_ROWS, folder)
    before = _open(folder).snapshot()
    dataset.create_scalar_index("id", "BTREE")
    diff = _open(folder).changes(before.reference)
    assert isinstance(diff, SnapshotDiff)
    assert (diff.added, diff.removed, diff.current.id) == ((), frozenset(), "2")


def test_columns_are_added_renamed_cast_and_dropped(tmp_path: Path) -> None:
    """A rename of a column keeps its field id, which identifies it, and a cast changes the id.

    Renaming and dropping columns changes no fragment id. After columns are dropped, the difference is unknown
    (`NoDiff`).
    """
    folder = tmp_path / "t"
    dataset = lance.write_dataset(_ROWS, folder, max_rows_per_file=4)
    first = _assert_equals_lance(folder, dataset)
    ids = {field.name: identity(field) for field in first.schema}
    dataset.alter_columns({"path": "id", "name": "number"}, {"path": "point.x", "name": "z"})
    renamed_snapshot = _assert_equals_lance(folder, dataset)
    assert {identity(field) for field in renamed_snapshot.schema} == set(ids.values())
    assert [fragment.id for fragment in renamed_snapshot.fragments] == [fragment.id for fragment in first.fragments]
    assert identity(renamed_snapshot.schema.field("point").type.field(0)) == identity(
        first.schema.field("point").type.field(0)
    )
    dataset.add_columns({"twice": "number * 2"})
    _assert_equals_lance(folder, dataset)
    dataset.alter_columns({"path": "number", "data_type": pa.int32()})
    cast = _assert_equals_lance(folder, dataset)
    assert cast.schema.field("number").type == pa.int32()
    assert identity(cast.schema.field("number")) != ids["id"]
    dataset.drop_columns(["point.tags", "text"])
    dropped_snapshot = _assert_equals_lance(folder, dataset)
    assert [fragment.id for fragment in dropped_snapshot.fragments] == [fragment.id for fragment in cast.fragments]
    assert isinstance(_open(folder).changes(cast.reference), NoDiff)


def test_a_column_without_stored_values_is_null(tmp_path: Path) -> None:
    """A column that was added without values is null and not in `stored_columns`.

    Fragment ids do not change.
    """
    folder = tmp_path / "t"
    dataset = lance.write_dataset(_ROWS, folder)
    before = _open(folder).snapshot()
    dataset.add_columns(pa.schema([pa.field("added", pa.string())]))
    after = _assert_equals_lance(folder, dataset)
    assert [fragment.id for fragment in after.fragments] == [fragment.id for fragment in before.fragments]
    with after.fragments[0].source.open() as reader:
        assert reader.stored_columns == {identity(field) for field in before.schema}


def test_a_dropped_struct_counts_as_stored(tmp_path: Path) -> None:
    """A dropped struct is in `stored_columns`, although data files have only the ids of its fields."""
    folder = tmp_path / "t"
    dataset = lance.write_dataset(_ROWS, folder)
    struct = identity(_open(folder).snapshot().schema.field("point"))
    dataset.drop_columns(["point"])
    with _open(folder).snapshot().fragments[0].source.open() as reader:
        assert struct in reader.stored_columns


_D = Decimal
_VALUES: dict[str, pa.Array] = {
    "int8": pa.array([1, None, -128], pa.int8()),
    "uint64": pa.array([2**64 - 1, None, 0], pa.uint64()),
    "float16": pa.array([1.5, None, float("nan")], pa.float16()),
    "float32": pa.array([float("nan"), None, -0.0], pa.float32()),
    "decimal": pa.array([_D("1.10"), None, _D("-2.00")], pa.decimal128(10, 2)),
    "decimal256": pa.array([_D("1.10"), None, _D("-2.00")], pa.decimal256(50, 2)),
    "date": pa.array([datetime.date(1, 1, 1), None, datetime.date(9999, 12, 31)], pa.date32()),
    "date64": pa.array([datetime.date(1, 1, 1), None, datetime.date(9999, 12, 31)], pa.date64()),
    "seconds": pa.array([1, None, -(2**33)], pa.timestamp("s")),
    "nanos": pa.array([1, None, 2**62], pa.timestamp("ns", "Europe/Berlin")),
    "time32": pa.array([1, None, 86399], pa.time32("s")),
    "time64": pa.array([1, None, 3], pa.time64("ns")),
    "duration": pa.array([1, None, -3], pa.duration("us")),
    "boolean": pa.array([True, None, False]),
    "binary": pa.array([b"a", None, b""]),
    "fixed": pa.array([b"ab", None, b"\x00\xff"], pa.binary(2)),
    "large_string": pa.array(["a", None, ""], pa.large_string()),
    "large_binary": pa.array([b"a", None, b""], pa.large_binary()),
    "dictionary": pa.array(["x", None, "y"]).dictionary_encode(),
    "vector": pa.array([[1, 2], None, [3, None]], pa.list_(pa.float32(), 2)),
    "matrix": pa.array([[[1, 2], [3, 4]]] * 3, pa.list_(pa.list_(pa.int32(), 2), 2)),
    "list": pa.array([[1, None], None, []]),
    "large_list": pa.array([[1, None], None, []], pa.large_list(pa.int64())),
    "struct": pa.array([{"a": 1, "b": {"c": "x"}}, None, {"a": None, "b": None}]),
    "structs": pa.array([[{"a": 1}], None, [None, {"a": None}]]),
    "map": pa.array([[("a", {"x": 1})], None, []], pa.map_(pa.string(), pa.struct([("x", pa.int64())]))),
    "null": pa.nulls(3),
    "uuid": pa.array([b"0123456789abcdef", None, b"fedcba9876543210"], pa.uuid()),
    "json": pa.array(['{"a":1}', None, "[]"], pa.json_()),
    "view": pa.array(["a", None, ""], pa.string_view()),
    "a b": pa.array([1, 2, 3]),
    "A B": pa.array([4, 5, 6]),
    'q"x + 1': pa.array([7, 8, 9]),
    "é😀": pa.array([7, 8, 9]),
}


@pytest.mark.parametrize("name", _VALUES)
def test_columns_of_every_type(tmp_path: Path, name: str) -> None:
    lance.write_dataset(pa.table({name: _VALUES[name], "n": [1, 2, 3]}), tmp_path / "t", data_storage_version="2.2")
    snapshot = _open(tmp_path / "t").snapshot()
    rows = [row[0] for row in read_rows(snapshot)]
    assert repr(rows) == repr(_VALUES[name].to_pylist())


def test_columns_that_pylance_cannot_select_are_refused(tmp_path: Path) -> None:
    """Columns named `*` or with a backtick are refused.

    Other columns of the table are read.
    """
    folder = tmp_path / "t"
    lance.write_dataset(pa.table({"back`tick": [1], "*": [2], "n": [3]}), folder, data_storage_version="2.0")
    snapshot = _open(folder).snapshot()
    with snapshot.fragments[0].source.open() as reader:
        assert [chunk.to_pylist() for chunk in reader.read(snapshot.schema.field("n"))] == [[3]]
        for name in ("back`tick", "*"):
            with pytest.raises(FragmentError, match=re.escape(name)) as error_info:
                list(reader.read(snapshot.schema.field(name)))
            assert error_info.value.unsupported


@pytest.mark.parametrize("file_version", ["2.0", "2.1", "2.2"])
def test_blobs_are_read_as_bytes(tmp_path: Path, file_version: str) -> None:
    folder = tmp_path / "t"
    values = [b"x" * 10, None, b"", b"y" * 100_000, b"z" * 5_000_000]
    field = pa.field("blob", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    array = pa.array(values, pa.large_binary())
    if file_version == "2.2":
        field, array = blob_field("blob"), blob_array(values)
    table = pa.table([array, pa.array(range(5))], schema=pa.schema([field, pa.field("n", pa.int64())]))
    dataset = lance.write_dataset(table, folder, data_storage_version=file_version)
    dataset.delete("n = 2")
    snapshot = _open(folder).snapshot()
    assert snapshot.schema.field("blob").type == pa.binary()
    assert [row[0] for row in read_rows(snapshot)] == [values[0], None, *values[3:]]


def test_external_blobs_are_refused(tmp_path: Path) -> None:
    """A blob of which the table stores only the URI is refused: it may be any file on this machine."""
    (tmp_path / "secret").write_bytes(b"password")
    array = blob_array([Blob(uri=f"file://{tmp_path / 'secret'}")])
    lance.write_dataset(
        pa.table([array], schema=pa.schema([blob_field("blob")])),
        tmp_path / "t",
        data_storage_version="2.2",
        allow_external_blob_outside_bases=True,
    )
    snapshot = _open(tmp_path / "t").snapshot()
    with snapshot.fragments[0].source.open() as reader, pytest.raises(FragmentError, match="blob") as error_info:
        list(reader.read(snapshot.schema.field("blob")))
    assert error_info.value.unsupported


def test_bfloat16_is_read_as_its_bytes(tmp_path: Path) -> None:
    lance.write_dataset(pa.table({"b": bfloat16_array([1.5, None])}), tmp_path / "t")
    snapshot = _open(tmp_path / "t").snapshot()
    assert snapshot.schema.field("b").type == pa.binary(2)
    assert read_rows(snapshot) == [(b"\xc0?",), (None,)]


def test_overlays_are_refused(tmp_path: Path) -> None:
    """A table with an overlay, which replaces cells of a fragment, is refused.

    pylance 14 can write overlays, but cannot open the table again.
    """
    folder = tmp_path / "t"
    dataset = lance.write_dataset(pa.table({"a": [1, 2, 3]}), folder, data_storage_version="2.1")
    (file,) = LanceFragment.create(folder, pa.table({"a": [20]}), fragment_id=0, data_storage_version="2.1").files
    overlay = lance.LanceOperation.DataOverlayFile(DataFile.create(dataset, file.path), [1])
    operation = lance.LanceOperation.DataOverlay([lance.LanceOperation.DataOverlayGroup(0, [overlay])])
    dataset = lance.LanceDataset.commit(folder, operation, read_version=1)
    assert dataset.to_table()["a"].to_pylist() == [1, 20, 3]
    with pytest.raises(TableFormatError, match=str(folder)):
        _open(folder).snapshot()
    with pytest.raises(UnsupportedError, match="overlay"):
        native.fragment_metadata(dataset.get_fragments()[0], {})


def test_states_are_selected_by_tag_branch_version_and_time(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    dataset = lance.write_dataset(_ROWS, folder)
    dataset.delete("id = 0")
    dataset.tags.create("release", 1)
    dataset.tags.create("2", 1)
    dataset.tags.create("é", 1)
    branch = dataset.create_branch("team/test")
    branch = lance.write_dataset(_ROWS, branch, mode="append")
    branch.delete("id = 1")
    branch.tags.create("of-branch", ("team/test", 3))
    _append(dataset, folder)
    assert lance.dataset(folder).version == 3
    for at, version in {"release": 1, "2": 1, "é": 1, "1": 1, "main:2": 2, "main": 3, "3": 3}.items():
        assert _assert_equals_lance(folder, dataset.checkout_version(version), at=at).id == str(version)
    assert _assert_equals_lance(folder, branch, at="team/test").id == "team/test:4"
    assert _assert_equals_lance(folder, branch.checkout_version(3), at="team/test:3").id == "team/test:3"
    assert _open(folder, at="of-branch").current().id == "team/test:3"
    second = dataset.checkout_version(2).get_version()["timestamp"].astimezone(datetime.UTC)
    assert _open(folder, at=second.isoformat()).current() == SnapshotReference("2", second)
    before = (second - datetime.timedelta(days=1)).isoformat()
    for missing in ("9", "nothing", "team/test:9", "..", "team/../..", before, "a b", ""):
        with pytest.raises(SnapshotNotFoundError, match=re.escape(repr(missing))):
            _open(folder, at=missing).snapshot_id()


def test_the_commit_time_is_exact_where_a_clock_is_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    # 02:30 in Berlin, first in summer time and an hour later in winter time.
    times = [datetime.datetime(2025, 10, 26, hour, 30, tzinfo=datetime.UTC) for hour in (0, 1)]
    folders = []
    for number, moment in enumerate(times):
        folder = tmp_path / str(number)
        commit_time = lance.write_dataset(_ROWS, folder).get_version()["timestamp"]
        (manifest,) = (folder / "_versions").glob("*.manifest")
        data = manifest.read_bytes()
        before = _varint(int(commit_time.timestamp()))
        assert data.count(before) >= 1
        manifest.write_bytes(data.replace(before, _varint(int(moment.timestamp()))))
        folders.append(folder)
    request.addfinalizer(time.tzset)
    with monkeypatch.context() as berlin:
        berlin.setenv("TZ", "Europe/Berlin")
        time.tzset()
        read = [native.read_commit_time(newest_version(Location.of(str(folder)))) for folder in folders]
        assert time.tzname == ("CET", "CEST")
    assert [moment.replace(microsecond=0) for moment in read] == times


def test_a_version_that_is_removed_during_the_search_for_a_time_is_ignored(tmp_path: Path) -> None:
    for _ in range(3):
        lance.write_dataset(_ROWS, tmp_path / "t", mode="append")
    versions = list_versions(Location.of(str(tmp_path / "t")))
    Path(versions[1].manifest_path).unlink()
    newest = native.read_commit_time(versions[3])
    search = tuple(versions.values())
    assert native.read_version_at(search, newest) == 3
    assert native.read_version_at(search, newest - datetime.timedelta(days=1)) is None


def test_a_version_that_is_removed_while_it_is_opened_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error for a version that is removed while it is opened is a FileNotFoundError.

    pylance itself has no specific exception for a missing version.
    """
    for _ in range(2):
        lance.write_dataset(_ROWS, tmp_path / "t", mode="append")
    version = list_versions(Location.of(str(tmp_path / "t")))[1]
    check = Location.check

    def checked(location: Location, stored_file: StoredFile) -> None:
        check(location, stored_file)
        Path(version.manifest_path).unlink()

    monkeypatch.setattr(Location, "check", checked)
    with pytest.raises(FileNotFoundError):
        native.read_commit_time(version)


@pytest.mark.parametrize("folder", ["data", "_deletions"])
def test_a_file_that_is_removed_while_its_fragment_is_read_is_missing(tmp_path: Path, folder: str) -> None:
    """If a data or deletion file is removed while it is read, the error says that it is missing.

    It does not say that the file is corrupt.
    """
    lance.write_dataset(_ROWS, tmp_path / "t")
    lance.dataset(tmp_path / "t").delete("id = 1")
    snapshot = _open(tmp_path / "t").snapshot()
    source = snapshot.fragments[0].source
    with source.open() as reader:
        for path in (tmp_path / "t" / folder).iterdir():
            path.unlink()
        with pytest.raises(FragmentError) as error_info:
            list(reader.read(snapshot.schema.field(0)))
    assert error_info.value.missing


@pytest.mark.parametrize("read", ["snapshot", "current"])
def test_a_version_that_is_removed_after_it_was_listed_is_replaced_by_the_newest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: str
) -> None:
    lance.write_dataset(_ROWS, tmp_path / "t")
    listings = []

    def listed(location: Location) -> LanceVersion:
        listings.append(version := newest_version(location))
        if len(listings) == 1:
            lance.write_dataset(_ROWS, tmp_path / "t", mode="append")
            lance.dataset(tmp_path / "t").cleanup_old_versions(older_than=datetime.timedelta(0))
        return version

    monkeypatch.setattr(table_module, "newest_version", listed)
    assert getattr(_open(tmp_path / "t"), read)().id == "2"
    assert len(listings) == 2


def _varint(number: int) -> bytes:
    """Encode a number as Protocol Buffers do."""
    digits = []
    while number > 127:
        digits.append(number & 127 | 128)
        number >>= 7
    return bytes([*digits, number])


def test_a_branch_has_differences(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    branch = lance.write_dataset(_ROWS, folder).create_branch("b")
    on_main, before = _open(folder).snapshot(), _open(folder, at="b").snapshot()
    branch.delete("id = 1")
    diff = _open(folder, at="b").changes(before.reference)
    assert isinstance(diff, SnapshotDiff)
    assert_is_difference(diff, before, _open(folder, at="b").snapshot())
    assert isinstance(_open(folder, at="b").changes(on_main.reference), NoDiff)


def test_branches_whose_changes_have_equal_numbers_are_not_confused(tmp_path: Path) -> None:
    """Two branches with different commits of equal version numbers have no common fragment id."""
    folder = tmp_path / "t"
    dataset = lance.write_dataset(_ROWS, folder)
    ids: list[set[str]] = []
    for name, deleted_id in (("a", 1), ("b", 2)):
        branch = lance.write_dataset(_ROWS, dataset.create_branch(name), mode="append")
        branch.delete(f"id = {deleted_id}")
        snapshot = _assert_equals_lance(folder, branch, at=name)
        ids.append({fragment.id for fragment in snapshot.fragments})
    assert not set.intersection(*ids)


def test_there_is_no_difference_without_the_earlier_version(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    dataset = lance.write_dataset(_ROWS, folder)
    first = _open(folder).snapshot()
    dataset.delete("id = 1")
    dataset.cleanup_old_versions(datetime.timedelta(0))
    diff = _open(folder).changes(first.reference)
    assert isinstance(diff, NoDiff)
    assert re.search(r"\bversion 1\b", diff.reason)
    with pytest.raises(FragmentError) as error_info:
        read_rows(first)
    assert error_info.value.missing


def test_a_recreated_table_is_detected(tmp_path: Path) -> None:
    """The difference is unknown if a table was dropped and written again with as many versions.

    A file of the dropped table is reported as missing.
    """
    folder = tmp_path / "t"
    lance.write_dataset(_ROWS, folder)
    lance.dataset(folder).delete("id = 1")
    first = _open(folder).snapshot()
    source = pickle.loads(pickle.dumps(first.fragments[0].source))
    assert read_rows(first)
    lance.LanceDataset.drop(folder)
    lance.write_dataset(_ROWS.slice(2), folder)
    lance.dataset(folder).delete("id = 3")
    again = _assert_equals_lance(folder, lance.dataset(folder))
    assert again.id == first.id
    assert _open(folder).history_change(first.reference, again.reference) == "recreated"
    diff = _open(folder).changes(first.reference)
    assert isinstance(diff, NoDiff)
    with pytest.raises(FragmentError) as error_info:
        source.open()
    assert error_info.value.missing


def test_history_changes(tmp_path: Path) -> None:
    times = [datetime.datetime(2024, 1, day, tzinfo=datetime.UTC) for day in (1, 2)]
    table = _open(tmp_path, format="lance")

    def change(before: str, now: str, *, later: bool = True) -> str | None:
        first, second = times if later else reversed(times)
        return table.history_change(SnapshotReference(before, first), SnapshotReference(now, second))

    assert change("1", "2") is None
    assert change("2", "1") == "recreated"
    assert change("2", "1", later=False) == "rolled back"
    assert change("b:2", "3") is None
    assert change("b:2", "b:1") == "recreated"
    assert change("{not a version}", "3") is None


def test_a_shallow_clone_reads_the_files_of_its_source(tmp_path: Path) -> None:
    """A shallow clone has the rows that pylance reads.

    It is refused if `restrict_to_table_root` is set, or if a path mapping has the location of its source.
    """
    source = lance.write_dataset(_ROWS, tmp_path / "source")
    source.delete("id = 1")
    clone = source.shallow_clone(tmp_path / "clone", 2)
    clone.delete("id = 2")
    _assert_equals_lance(tmp_path / "clone", clone)
    with pytest.raises(TableFormatError, match="restrict_to_table_root"):
        _open(tmp_path / "clone", restrict_to_table_root=True).snapshot()
    with pytest.raises(TableFormatError, match="path_mapping"):
        _open(tmp_path / "clone", path_mapping={str(tmp_path / "source"): str(tmp_path / "moved")}).snapshot()


def test_links_out_of_a_restricted_table_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    lance.write_dataset(_ROWS, folder)
    snapshot = _open(folder, restrict_to_table_root=True).snapshot()
    assert read_rows(snapshot)
    path = Path(snapshot.fragments[0].path)
    path.rename(tmp_path / "elsewhere.lance")
    path.symlink_to(tmp_path / "elsewhere.lance")
    with pytest.raises(FragmentError, match="restrict_to_table_root"):
        snapshot.fragments[0].source.open()


def test_empty_tables(tmp_path: Path) -> None:
    dataset = lance.write_dataset(_ROWS.slice(0, 0), tmp_path / "t")
    assert _assert_equals_lance(tmp_path / "t", dataset).fragments == ()
    lance.write_dataset(_ROWS, tmp_path / "t", mode="append").delete("true")
    assert _assert_equals_lance(tmp_path / "t", lance.dataset(tmp_path / "t")).fragments == ()


def test_a_call_that_does_not_return_ends_the_process() -> None:
    """If a call of pylance does not return, its child process ends, and the error names the file.

    pylance never returns for some corrupt files.
    """
    with pytest.raises(TableFormatError, match=r"x\.lance"):
        run_isolated(wait_without_end, "x.lance")
    assert native.call_or_end(lambda: 7) == 7


def test_a_folder_without_versions_is_no_table(tmp_path: Path) -> None:
    with pytest.raises(TableNotFoundError, match=str(tmp_path)):
        _open(tmp_path, format="lance").snapshot()
    (tmp_path / "_versions").mkdir()
    (tmp_path / "_versions" / "1.manifest").write_bytes(b"no manifest")
    with pytest.raises(TableFormatError, match=str(tmp_path)):
        _open(tmp_path, format="lance").snapshot()


def test_partitions_cannot_be_selected(tmp_path: Path) -> None:
    lance.write_dataset(_ROWS, tmp_path / "t")
    with pytest.raises(TableFormatError, match="partitions"):
        _open(tmp_path / "t", partitions={"day": ["2024-*"]}).snapshot()


def test_files_of_a_table_are_not_read_as_plain_files(tmp_path: Path) -> None:
    lance.write_dataset(_ROWS, tmp_path / "t")
    for folder in (tmp_path, tmp_path / "t", tmp_path / "t" / "data"):
        with pytest.raises(TableFormatError, match="Lance"):
            _open(folder, format="files").snapshot()


def test_a_cached_commit_time_needs_no_manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second call of `current` on an unchanged table starts no child process."""
    folder = tmp_path / "t"
    lance.write_dataset(_ROWS, folder)
    table = _open(folder)
    first = table.current()
    monkeypatch.setattr("metastore_assets.formats.lance.table.run_isolated", None)
    assert table.current() == first


def test_a_high_id_of_a_dropped_field_is_refused() -> None:
    """A dropped field with a very high id is refused.

    It would need placeholders for all unused ids up to its own, which would fill the memory.
    """
    assert [field.metadata for field in _dropped_fields({0, 3}, {0, 1})] == [
        {PARQUET_FIELD_ID: b"2"},
        {PARQUET_FIELD_ID: b"3"},
    ]
    with pytest.raises(LimitError, match="2,147,483,647"):
        _dropped_fields({0, 2**31 - 1}, {0})
