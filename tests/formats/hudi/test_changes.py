"""A difference of Hudi snapshots turns one into the other; computing it reads only changes.

If the metadata do not show the difference of two snapshots, it is unknown, and `changes` returns `NoDiff`.

A fragment is a file slice: a base file and its log files.

A difference is the fragments added and removed between two snapshots, which `changes` computes from metadata of
commits. A comparison computes them from the complete lists of fragments.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metastore_assets.config import TableConfig
from metastore_assets.errors import SnapshotNotFoundError
from metastore_assets.formats import MetadataCache, NoDiff, Snapshot, SnapshotDiff, SnapshotMetadata, open_table_format
from metastore_assets.formats.metadata_cache import cache_key
from metastore_assets.storage.location import Location
from tests.formats.hudi.random_histories import History
from tests.formats.hudi.realtables import completed, unpacked
from tests.formats.hudi.test_histories import _PARTS, _ROWS, _STEPS
from tests.formats.hudi.test_realtables import _NAMES
from tests.formats.hudi.test_time_travel import _archive
from tests.formats.hudi.writer import FIELDS, HudiWriter, block, rollback
from tests.formats.test_contract import assert_is_difference

_A = {"key": "a", "ts": 1, "value": 1.0}
_B = {"key": "b", "ts": 1, "value": 2.0}


@dataclass(frozen=True)
class Planned:
    """A snapshot, and the metadata that were cached while it was planned."""

    snapshot: Snapshot
    cached: Mapping[bytes, bytes]

    @classmethod
    def of(cls, config: TableConfig, cache_entries: Mapping[bytes, bytes] | None = None) -> Planned:
        cache = MetadataCache(lambda: cache_entries or {}, ignore_process=True)
        return cls(open_table_format(config, cache).snapshot(), cache.entries)

    def changes(self, config: TableConfig) -> tuple[SnapshotDiff | NoDiff, Mapping[bytes, bytes]]:
        """Return the difference to the current snapshot, and the metadata cached while it was computed."""
        cache = MetadataCache(lambda: self.cached, ignore_process=True)
        return open_table_format(config, cache).changes(self.snapshot.reference), cache.entries


def _config(folder: Path, at: str | None = None, **options: Any) -> TableConfig:
    return TableConfig(name="t", uri=str(folder), at=at, **options)


def assert_difference(previous: Planned, config: TableConfig) -> Planned:
    """Check the difference since a snapshot against a comparison with the current snapshot.

    Return the current snapshot with the metadata that were cached while the difference was computed.
    """
    snapshot = open_table_format(config, MetadataCache(ignore_process=True)).snapshot()
    diff, cache_entries = previous.changes(config)
    assert isinstance(diff, SnapshotDiff), diff.reason
    assert diff.since == previous.snapshot.reference
    for field in fields(SnapshotMetadata):
        assert getattr(diff.current, field.name) == getattr(snapshot, field.name), field.name
    assert diff.current.schema.equals(snapshot.schema, check_metadata=True)
    assert_is_difference(diff, previous.snapshot, snapshot)
    old, new = (
        {(fragment.partition_key, fragment.path) for fragment in one.fragments} for one in (previous.snapshot, snapshot)
    )
    added_paths = {(fragment.partition_key, fragment.path) for fragment in diff.added}
    assert (diff.removed, diff.replaced) == (old - new, old & added_paths)
    assert not {fragment.id for fragment in diff.added} & {fragment.id for fragment in previous.snapshot.fragments}
    return Planned(snapshot, cache_entries)


class CleanedHistory(History):
    """A history with cleans, which remove old data files."""

    def clean(self) -> None:
        """Remove the files that the newest slices do not need, and write the metadata of a clean.

        File groups with a planned compaction keep all files.
        """
        writer = self.writer
        newest = {(one.partition, one.file_id): one.base_name for one in self.slices()}
        pending = {one.file_id for one in self.slices() if one.planned}
        removed_names: dict[str, list[str]] = {}
        for path in sorted(writer.folder.glob("part=*/*")):
            file_id = path.name.lstrip(".").partition("_")[0]
            if path.name.startswith(".hoodie") or "orphan" in str(path) or file_id in pending:
                continue
            base = newest.get((path.parent.name, file_id))
            is_old_base = path.suffix == ".parquet" and path.name != base
            is_old_log = ".log." in path.name and base is not None and self._is_older(path.name, base)
            if base is None or is_old_base or is_old_log:
                removed_names.setdefault(path.parent.name, []).append(path.name)
        writer.clean(removed_names)

    def _is_older(self, log: str, base: str) -> bool:
        """Return whether a log file is older than the base file."""
        instant = log.partition(".log.")[0].rpartition("_")[2]
        return instant < base.rpartition("_")[2].removesuffix(".parquet")


_MORE_STEPS = st.one_of(_STEPS, _STEPS, st.tuples(st.just("clean")))


def _take(history: History, name: str, arguments: list[Any]) -> None:
    if arguments and isinstance(arguments[0], int):
        groups = history.slices()
        arguments[0] = groups[arguments[0] % len(groups)]
    getattr(history, name)(*arguments)


@settings(max_examples=max(16, settings().max_examples))
@given(
    st.sampled_from([6, 9]),
    st.booleans(),
    _PARTS,
    _ROWS,
    st.lists(st.tuples(_MORE_STEPS, st.booleans()), min_size=1, max_size=14),
)
def test_differences_of_random_histories_equal_comparisons(
    version: int, by_commit: bool, part: str, rows: list[Any], steps: list[tuple[tuple[Any, ...], bool]]
) -> None:
    """After random steps, differences of snapshots equal comparisons of all their fragments.

    The earlier snapshot of a difference is the previous or the first one. A difference can be unknown only if log files
    of the earlier snapshot were removed or rolled back.
    """
    with tempfile.TemporaryDirectory() as folder:
        history = CleanedHistory(HudiWriter(Path(folder) / "t", version, by_commit=by_commit))
        config = _config(history.writer.folder)
        history.insert(part, rows)
        first = chained_plan = Planned.of(config)
        for (name, *arguments), is_planned in steps:
            _take(history, name, arguments)
            if is_planned:
                chained_plan = _assert_difference_unless_cleaned(chained_plan, config)
        _assert_difference_unless_cleaned(chained_plan, config)
        _assert_difference_unless_cleaned(first, config)


def _assert_difference_unless_cleaned(previous: Planned, config: TableConfig) -> Planned:
    diff, _ = previous.changes(config)
    if diff == NoDiff("log files of the earlier snapshot were removed or rolled back"):
        return Planned.of(config)
    return assert_difference(previous, config)


@settings(max_examples=max(6, settings().max_examples // 4))
@given(st.sampled_from([6, 9]), st.booleans(), _PARTS, _ROWS, st.lists(_STEPS, min_size=2, max_size=8), st.data())
def test_differences_between_any_two_instants_equal_comparisons(
    version: int, by_commit: bool, part: str, rows: list[Any], steps: list[tuple[Any, ...]], data: st.DataObject
) -> None:
    """Differences between two instants of a random history equal comparisons, forwards and backwards.

    Instants that can no longer be read are skipped.
    """
    with tempfile.TemporaryDirectory() as folder:
        history = History(HudiWriter(Path(folder) / "t", version, by_commit=by_commit))
        history.insert(part, rows)
        for name, *arguments in steps:
            _take(history, name, arguments)
        ats = data.draw(st.lists(st.sampled_from(sorted(history.states)), min_size=2, max_size=2))
        try:
            previous = Planned.of(_config(history.writer.folder, ats[0]))
            assert_difference(previous, _config(history.writer.folder, ats[1]))
        except SnapshotNotFoundError:
            return


@pytest.mark.parametrize("name", _NAMES)
def test_differences_of_real_tables_equal_comparisons(name: str, realtables: Path) -> None:
    """Differences of real tables, forwards and backwards, equal comparisons of the snapshots.

    A difference is unknown (`NoDiff`) if the schema changed.
    """
    table = unpacked(realtables, name)
    instants = list(completed(table))
    plans = [Planned.of(_config(table, instant)) for instant in instants]
    pairs = [*pairwise(range(len(instants))), *([(0, len(instants) - 1)] if instants else [])]
    for previous, current in (*pairs, *((current, previous) for previous, current in pairs)):
        config = _config(table, instants[current])
        if plans[previous].snapshot.schema.equals(plans[current].snapshot.schema):
            assert_difference(plans[previous], config)
        else:
            assert_no_diff(plans[previous], config, "the schema changed")


def assert_no_diff(previous: Planned, config: TableConfig, reason: str) -> None:
    diff, _ = previous.changes(config)
    assert isinstance(diff, NoDiff)
    assert reason in diff.reason


@pytest.fixture(params=[6, 9], ids=["v6", "v9"])
def history(request: pytest.FixtureRequest, tmp_path: Path) -> CleanedHistory:
    """A table of three partitions: `x` has a base file with a log file, `y` two base files, and `z` one."""
    result = CleanedHistory(HudiWriter(tmp_path / "t", request.param))
    for part in "xyyz":
        result.insert(part, [_A, _B])
    result.upsert(result.slices()[0], [_A | {"ts": 2}], {"b": 2}, 3)
    return result


def _of_partition(history: History, part: str) -> Any:
    return next(one for one in history.slices() if one.partition == f"part={part}")


def test_a_difference_reads_what_changed(history: CleanedHistory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A difference reads the properties and the new commits.

    The only listings are those of the timeline and of the partitions that these commits name.
    """
    config = _config(history.writer.folder)
    previous = Planned.of(config)
    second = _of_partition(history, "y")
    history.rewrite(second, [_A | {"ts": 3}])
    history.insert("new", [_A])
    new_commits = sorted(history.states)[-2:]
    snapshot = open_table_format(config, MetadataCache(ignore_process=True)).snapshot()
    read, listed_folders = [], []

    def noted_read(location: Location, path: str, original: Any = Location.read) -> Any:
        read.append(path)
        return original(location, path)

    def noted_files(location: Location, folder: str, *bounds: str, original: Any = Location.files) -> Iterator[Any]:
        listed_folders.append(folder)
        return original(location, folder, *bounds)  # type: ignore[no-any-return]

    monkeypatch.setattr(Location, "read", noted_read)
    monkeypatch.setattr(Location, "files", noted_files)
    monkeypatch.setattr(Location, "list", None)
    diff, cache_entries = previous.changes(config)
    assert isinstance(diff, SnapshotDiff), diff.reason
    assert_is_difference(diff, previous.snapshot, snapshot)
    (properties, *commits), (timeline, *partitions) = read, listed_folders
    assert properties == ".hoodie/hoodie.properties"
    assert sorted(path.rpartition("/")[2][:17] for path in commits) == new_commits
    assert timeline.startswith(".hoodie")
    assert sorted(partitions) == ["part=new", "part=y"]
    # The next plan computes the same from this one's cached metadata.
    read.clear()
    again, _ = Planned(snapshot, cache_entries).changes(config)
    assert isinstance(again, SnapshotDiff)
    assert (again.added, again.removed, read) == ((), frozenset(), [".hoodie/hoodie.properties"])
    assert len(cache_entries) <= len(previous.cached) + 2


@pytest.mark.parametrize("is_cleaned", [False, True])
def test_a_restored_table_has_a_difference(history: CleanedHistory, is_cleaned: bool) -> None:
    """The difference since a state that a restore removed is computed from cached commits.

    A restore removes the files and instants after an earlier state. Without cached commits, the difference is unknown.
    """
    writer = history.writer
    config = _config(writer.folder)
    base = Planned.of(config)
    restored_instant = max(history.states)
    files = set(writer.folder.rglob("*"))
    history.rewrite(_of_partition(history, "y"), [_A | {"ts": 3}])
    history.upsert(_of_partition(history, "x"), [_A | {"ts": 4}], {}, 3)
    history.replace("z", [_B])
    previous = Planned.of(config, base.cached)
    for instant in [instant for instant in history.states if instant > restored_instant]:
        for path in writer.timeline.glob(f"{instant}*"):
            path.unlink()
        if writer.version == 6 and any(".log." in path.name for path in _new_files(writer, files)):
            one = _of_partition(history, "x")
            writer.raw_log_file(one, instant, rollback(instant, instant))
    for path in _new_files(writer, files):
        if path.suffix == ".parquet" or (writer.version >= 8 and ".log." in path.name):
            path.unlink()
    without_commits = {key: value for key, value in previous.cached.items() if key in base.cached}
    if is_cleaned:
        assert_no_diff(Planned(previous.snapshot, without_commits | _state(previous)), config, "were rolled back")
    else:
        assert_difference(previous, config)
        history.insert("w", [_A])
        assert_difference(previous, config)


def _new_files(writer: HudiWriter, files: set[Path]) -> list[Path]:
    return [path for path in writer.folder.rglob("part=*/*") if path not in files]


def _state(previous: Planned) -> dict[bytes, bytes]:
    """Return the cache entry that describes the whole table at the earlier snapshot.

    The cache entries of single commits are left out.
    """
    reference = previous.snapshot.reference
    key = cache_key("hudi state", former_uri(previous), reference.id, str(reference.committed_at))
    return {key: previous.cached[key]}


def former_uri(previous: Planned) -> str:
    return previous.snapshot.fragments[0].path.partition("/part=")[0]


def test_differences_with_archived_writes_are_correct_or_unknown(history: CleanedHistory) -> None:
    """A difference is known only if a write of the earlier snapshot is still on the timeline.

    Other writes of this snapshot may be archived. If all of them are, later writes may be archived, too.
    """
    config = _config(history.writer.folder)
    first = Planned.of(config)
    history.rewrite(_of_partition(history, "y"), [_A | {"ts": 3}])
    second = Planned.of(config)
    history.insert("w", [_A])
    _archive(history, len(history.states) - 2)
    chained_plan = assert_difference(second, config)
    assert len(chained_plan.cached) < len(second.cached) + 3
    assert_no_diff(first, config, "no write of the earlier snapshot")


def test_a_difference_uses_cleans_on_the_timeline(history: CleanedHistory) -> None:
    """A difference takes the removed files from the metadata of a clean.

    If these metadata are missing or empty, the difference is unknown.
    """
    config = _config(history.writer.folder)
    history.rewrite(_of_partition(history, "y"), [_A | {"ts": 3}])
    history.clean()
    previous = Planned.of(config)
    _archive(history, len(history.states) - 1)
    history.rewrite(_of_partition(history, "y"), [_A | {"ts": 4}])
    history.replace("z", [_B])
    history.clean()
    assert_difference(previous, config)
    max(history.writer.timeline.glob("*.clean")).write_bytes(b"")
    assert_no_diff(previous, config, "metadata of a clean cannot be read")
    for path in history.writer.timeline.glob("*.clean"):
        path.unlink()
    assert_no_diff(previous, config, "no clean")


def test_a_difference_is_uncertain_without_the_clean_of_replaced_files(history: CleanedHistory) -> None:
    """A difference is unknown if neither a commit nor a clean shows the files of a replaced file group.

    The commit that wrote the group is archived, and the metadata of the clean that removed its files are removed.
    Before that, the difference is known.
    """
    config = _config(history.writer.folder)
    history.insert("w", [_A])
    previous = Planned.of(config)
    history.replace("z", [_B])
    history.clean()
    assert_difference(previous, config)
    _archive(history, len(history.states) - 2)
    for path in history.writer.timeline.glob("*.clean"):
        path.unlink()
    assert_no_diff(previous, config, "uncertain which files")


def test_a_difference_is_uncertain_after_an_incomplete_clean(history: CleanedHistory) -> None:
    """A difference is unknown if a clean removed files, and the metadata of this clean are missing."""
    config = _config(history.writer.folder)
    previous = Planned.of(config)
    history.rewrite(_of_partition(history, "y"), [_A | {"ts": 4}])
    history.clean()
    assert_difference(previous, config)
    for path in history.writer.timeline.glob("*.clean"):
        path.unlink()
    assert_no_diff(previous, config, "uncertain")


def test_files_of_failed_attempts_are_not_in_the_difference(history: CleanedHistory) -> None:
    """A base file that a failed attempt left behind is not in the difference.

    It has the same instant as the live base file of its group. The commit shows which file is live.
    """
    config = _config(history.writer.folder)
    one = _of_partition(history, "y")
    history.writer.base_file(one, one.base_instant, [_A, _B, {"key": "c", "ts": 1}], token="7-7-7")
    previous = Planned.of(config)
    history.rewrite(one, [_A | {"ts": 3}])
    assert_difference(previous, config)


def test_a_pending_write_is_in_the_difference_once_completed(history: CleanedHistory) -> None:
    """A difference includes a write that was pending in the earlier snapshot and is completed now.

    If the write was archived since, the difference is unknown.
    """
    writer = history.writer
    config = _config(writer.folder)
    late = writer.tick()
    one = writer.new_slice("w", late)
    writer.request(late, "deltacommit")
    stat = writer.base_file(one, late, [_A])
    history.insert("y", [_A])
    previous = Planned.of(config)
    assert "~" in previous.snapshot.id
    writer.complete(late, "deltacommit", [stat])
    assert_difference(previous, config)
    history.insert("y", [_B])
    for path in [*writer.timeline.iterdir()]:
        if path.name[:17] <= late and path.name[0].isdigit():
            path.unlink()
    assert_no_diff(previous, config, "incomplete")


def test_some_changes_have_no_difference(history: CleanedHistory) -> None:
    """The difference is unknown if the schema, the selected partitions or the merge mode changed.

    Other cases are the option `meta_columns`, a missing cache, and rewritten metadata of a commit.
    """
    writer = history.writer
    config = _config(writer.folder)
    previous = Planned.of(config)
    assert_no_diff(Planned(previous.snapshot, {}), config, "cached")
    assert_no_diff(previous, _config(writer.folder, partitions={"part": ("x",)}), "selected partitions")
    assert_no_diff(previous, _config(writer.folder, options={"meta_columns": True}), "properties")
    writer.fields.append({"name": "extra", "type": ["null", "string"], "default": None})
    history.insert("y", [_A])
    assert_no_diff(previous, config, "schema changed")
    writer.fields.pop()
    history.insert("y", [_A])
    assert_difference(previous, config)
    writer.set_properties(**{"hoodie.table.metadata.partitions": "files", "hoodie.table.checksum": "7"})
    assert_difference(previous, config)
    writer.set_properties(**{"hoodie.record.merge.mode": "COMMIT_TIME_ORDERING"})
    assert_no_diff(previous, config, "properties")
    previous = Planned.of(config)
    path = next(
        path for path in writer.timeline.iterdir() if path.name.startswith(min(history.states)) and path.stat().st_size
    )
    path.write_bytes(path.read_bytes() + b" ")
    assert_no_diff(previous, config, "metadata")


def test_differences_have_only_selected_partitions(history: CleanedHistory) -> None:
    """If partitions are selected, changes of other partitions are not in the difference."""
    config = _config(history.writer.folder, partitions={"part": ("x", "w")})
    previous = Planned.of(config)
    history.rewrite(_of_partition(history, "y"), [_A | {"ts": 3}])
    history.insert("w", [_A])
    history.replace("x", [_B])
    chained_plan = assert_difference(previous, config)
    assert {fragment.partition_key for fragment in chained_plan.snapshot.fragments} == {"part=w", "part=x"}


def test_types_of_partition_columns_follow_the_folders(tmp_path: Path) -> None:
    """Values of a partition column are numbers unless a folder has another text.

    Then all are texts. If the type changes, the difference is unknown.
    """
    part = {"name": "part", "type": ["null", "long"], "default": None}
    writer = HudiWriter(tmp_path / "t", 9, fields=[FIELDS[0], part, *FIELDS[2:]])
    config = _config(writer.folder)

    def write(folder: str, replaced_slices: Any = ()) -> None:
        instant = writer.tick()
        one = writer.new_slice(folder, instant)
        one.base_name = writer.base_file(one, instant, [_A])["path"].rpartition("/")[2]
        stat = writer._stat(one, f"{one.partition}/{one.base_name}", 1, "null")
        writer.complete(instant, "replacecommit" if replaced_slices else "commit", [stat], replaced_slices)
        writer.slices[one.file_id] = one

    write("1")
    previous = Planned.of(config)
    assert previous.snapshot.partition_type("part") == pa.int64()
    write("2")
    previous = assert_difference(previous, config)
    write("x")
    assert_no_diff(previous, config, "type")
    previous = Planned.of(config)
    assert previous.snapshot.partition_type("part") == pa.string()
    write("3")
    previous = assert_difference(previous, config)
    write("3", [one for one in writer.slices.values() if one.partition == "part=x"])
    assert_no_diff(previous, config, "type")
    assert Planned.of(config).snapshot.partition_type("part") == pa.int64()


def test_unrecorded_partition_columns_follow_the_folders(tmp_path: Path) -> None:
    """If a table with partition folders does not record partition columns, the difference is unknown.

    The columns are then taken from folder names. A table without partition folders has no partition columns, and its
    difference is known.
    """
    for folder, partition, reason in ((tmp_path / "a", "", ""), (tmp_path / "b", "d=1", "partition columns")):
        writer = HudiWriter(folder, 6, partition_field="")
        writer.set_properties(**{"hoodie.table.partition.fields": ""})
        for number in range(2):
            if number:
                previous = Planned.of(_config(folder))
            instant = writer.tick()
            stat = writer.base_file(writer.new_slice(partition, instant), instant, [_A])
            writer.complete(instant, "commit", [stat])
        if reason:
            assert_no_diff(previous, _config(folder), reason)
        else:
            assert_difference(previous, _config(folder))


def test_file_groups_of_two_partitions_may_have_the_same_names(tmp_path: Path) -> None:
    """File groups with one id in several partitions are different fragments with their own row counts.

    Such ids occur in Flink's bucket index.
    """
    writer = HudiWriter(tmp_path / "t", 9)
    instant = writer.tick()
    writer.complete(instant, "commit", [writer.base_file(writer.new_slice("w", instant), instant, [_A])])
    config = _config(writer.folder)
    previous = Planned.of(config)
    instant = writer.tick()
    stats = []
    for part, rows in (("x", [_A]), ("y", [_A, _B]), ("z", [_A, _B])):
        one = writer.new_slice(part, instant)
        one.file_id = "00000000-0000-0000-0000-000000000000-0"
        stats.append(writer.base_file(one, instant, rows))
    writer.complete(instant, "commit", stats)
    chained_plan = assert_difference(previous, config)
    assert [fragment.row_count for fragment in chained_plan.snapshot.fragments] == [1, 1, 2, 2]
    diff, _ = previous.changes(config)
    assert isinstance(diff, SnapshotDiff)
    assert [fragment.row_count for fragment in diff.added] == [1, 2, 2]


def test_writes_without_rows_change_no_fragment(history: CleanedHistory) -> None:
    """A write that adds an empty log file changes the snapshot's id, but no fragment id.

    In version 6, a failed write also appends to an existing log file.
    """
    writer = history.writer
    config = _config(writer.folder)
    previous = Planned.of(config)
    one = _of_partition(history, "x")
    instant = writer.tick()
    writer.complete(instant, "deltacommit", [writer.raw_log_file(one, instant, b"")])
    if writer.version == 6:
        failed_instant = writer.tick()
        writer.request(failed_instant, "deltacommit")
        (log,) = [path for path in (writer.folder / one.partition).glob(".*.log.*") if path.stat().st_size]
        log.write_bytes(
            log.read_bytes() + block(3, {0: failed_instant, 2: json.dumps(writer.stored_schema)}, b"\0\0\0\3\0\0\0\0")
        )
    chained_plan = assert_difference(previous, config)
    assert chained_plan.snapshot.id != previous.snapshot.id
    assert [one.id for one in chained_plan.snapshot.fragments] == [one.id for one in previous.snapshot.fragments]
