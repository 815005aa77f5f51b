"""Laws of every table format, tested on tables that are written, changed, compacted and restored.

A fragment is the smallest unit of rows that a format adds or removes: a data file and the deletes on it.

The source of a fragment is an object that can be pickled, and that opens the files of the fragment.
"""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import fastavro
import lance
import pyarrow as pa
import pyarrow.csv
import pyarrow.orc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metastore_assets.config import TableConfig
from metastore_assets.errors import FragmentError
from metastore_assets.formats import (
    MetadataCache,
    NoDiff,
    Snapshot,
    SnapshotDiff,
    open_table_format,
)
from metastore_assets.formats.base import SnapshotStream
from metastore_assets.formats.schema_casting import identity
from metastore_assets.plugins import TABLE_FORMATS
from tests.arrow_scalars import scalars_in
from tests.formats.external import installed
from tests.formats.hudi.tables import HUDI_TABLES
from tests.formats.iceberg.tables import ICEBERG_TABLES, IcebergEqualityDeletes
from tests.formats.lance.tables import LANCE_TABLES
from tests.formats.oracle import read_rows
from tests.formats.table_writers import (
    DAYS,
    TABLES,
    DeltaCopyOnWrite,
    DeltaDeletionVectors,
    Files,
    OrcFiles,
    Row,
    RowFiles,
    Table,
    rows_of,
)


def _external_tables() -> tuple[type[Table], ...]:
    """Return the test tables that installed packages register as entry points.

    An example of such a package is `external_package`.
    """
    with installed():
        return tuple(
            kind
            for entry_point in entry_points(group="metastore_assets.contract_tables")
            for kind in entry_point.load()
        )


_TABLES = (*TABLES, *ICEBERG_TABLES, *HUDI_TABLES, *LANCE_TABLES, *_external_tables())
_SCHEMA = pa.schema({"id": pa.int64(), "text": pa.string(), "day": pa.string()})
_FIRST = [(number, f"text {number}", DAYS[number % 3]) for number in range(12)]


@pytest.fixture(scope="module", autouse=True)
def external_package() -> Iterator[None]:
    with installed():
        yield


def test_the_suite_covers_every_registered_format() -> None:
    assert {kind.kind for kind in _TABLES} == set(TABLE_FORMATS.names())


@pytest.fixture(params=_TABLES, ids=lambda kind: kind.__name__)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    """A table of 12 rows in 3 files, one for each day.

    The days are partitions if the format has partitions.
    """
    result: Table = request.param(tmp_path / "ta ble é")
    result.append(_FIRST)
    return result


def _contents(snapshot: Snapshot) -> dict[str, list[Row]]:
    return {fragment.id: sorted(rows_of(snapshot, fragment)) for fragment in snapshot.fragments}


_STEPS = st.one_of(
    st.tuples(st.just("append"), st.sets(st.sampled_from(DAYS), min_size=1)),
    st.tuples(st.just("delete"), st.sets(st.integers(0, 25), min_size=1, max_size=9)),
    st.tuples(st.just("compact"), st.sampled_from(DAYS)),
)


@pytest.mark.parametrize("kind", _TABLES, ids=lambda kind: kind.__name__)
@given(steps=st.lists(_STEPS, min_size=1, max_size=6))
@settings(max_examples=max(5, settings().max_examples // 6))
def test_fragments_have_the_live_rows_and_an_id_means_the_same_rows(kind: type[Table], steps: list[Any]) -> None:
    """After each random step, the fragments have the live rows, each once and in its partition.

    Fragments with equal ids have equal rows, and so have snapshots with equal ids.
    """
    with tempfile.TemporaryDirectory() as folder:
        table = kind(Path(folder) / "t")
        table.append(_FIRST)
        history: dict[str, list[Row]] = {}
        snapshot_ids: dict[str, dict[int, Row]] = {}
        for step in [("append", ()), *steps]:
            _apply(table, step)
            if not table.rows:
                return
            snapshot = table.snapshot()
            contents = _contents(snapshot)
            assert sorted(row for rows in contents.values() for row in rows) == sorted(table.rows.values())
            for fragment in snapshot.fragments:
                assert {table.partition_key(row[2]) for row in contents[fragment.id]} <= {fragment.partition_key}
                assert fragment.row_count in (None, len(contents[fragment.id]))
                assert history.setdefault(fragment.id, contents[fragment.id]) == contents[fragment.id]
            keys = [(fragment.partition_key, fragment.id) for fragment in snapshot.fragments]
            assert keys == sorted(keys)
            assert len(contents) == len(keys)
            assert table.format().snapshot_id() == snapshot.id
            assert snapshot_ids.setdefault(snapshot.id, dict(table.rows)) == table.rows


def _apply(table: Table, step: tuple[str, Any]) -> None:
    name, argument = step
    if name == "append" and argument:
        start = table.next_id
        table.append([(start + index, f"t{start}\n,\"'", day) for index, day in enumerate(sorted(argument) * 2)])
    elif name == "delete":
        table.delete(argument)
    elif name == "compact":
        table.compact(argument)


def test_unchanged_fragments_have_the_same_id(table: Table) -> None:
    """An append changes no id of an earlier fragment.

    A delete changes only ids of fragments with deleted rows. An equality delete may change the ids of all fragments in
    its partition. A compaction changes only ids of fragments in its partition.
    """
    before = {fragment.id for fragment in table.snapshot().fragments}
    table.append([(100, "new", DAYS[0]), (101, "new", DAYS[1])])
    appended_snapshot = table.snapshot()
    assert before < {fragment.id for fragment in appended_snapshot.fragments}
    touched_ids = {fragment.id for fragment, _ in table.fragments_of({100})}
    if isinstance(table, IcebergEqualityDeletes):
        # For equality deletes, metadata do not show which files of a partition have deleted rows.
        touched_ids |= {
            fragment.id
            for fragment in appended_snapshot.fragments
            if fragment.partition_key == table.partition_key(DAYS[0])
        }
    table.delete({100})
    assert {fragment.id for fragment in appended_snapshot.fragments} - touched_ids <= {
        f.id for f in table.snapshot().fragments
    }
    table.append([(102, "new", DAYS[0])])
    key = table.partition_key(DAYS[0])
    others = {f.id for f in table.snapshot().fragments if f.partition_key != key}
    table.compact(DAYS[0])
    compacted_fragments = table.snapshot().fragments
    assert others == {f.id for f in compacted_fragments if f.partition_key != key}
    assert sum(f.partition_key == key for f in compacted_fragments) == 1


def test_changes_are_the_difference_of_two_snapshots(table: Table) -> None:
    config, cache = TableConfig(name="t", uri=str(table.folder)), MetadataCache(ignore_process=True)
    before = open_table_format(config, cache).snapshot()
    table.append([(100, "new", DAYS[0])])
    table.delete({0})
    now = table.snapshot()
    diff = open_table_format(config, cache).changes(before.reference)
    if isinstance(diff, NoDiff):
        return
    assert (diff.since, diff.current.reference) == (before.reference, now.reference)
    assert_is_difference(diff, before, now)


def assert_is_difference(diff: SnapshotDiff, before: Snapshot, now: Snapshot) -> None:
    """Check that the difference, applied to the earlier snapshot, gives the later one."""
    old_paths = {(fragment.partition_key, fragment.path) for fragment in before.fragments}
    assert diff.removed <= old_paths
    assert not diff.removed & diff.possibly_removed
    removed_paths = diff.removed | diff.possibly_removed
    replaced_paths = removed_paths | {(fragment.partition_key, fragment.path) for fragment in diff.added}
    assert not removed_paths & {(fragment.partition_key, fragment.path) for fragment in now.fragments}
    retained_fragments = [f for f in before.fragments if (f.partition_key, f.path) not in replaced_paths]
    result_fragments = sorted(
        [*retained_fragments, *diff.added], key=lambda fragment: (fragment.partition_key, fragment.id)
    )
    assert [fragment.id for fragment in result_fragments] == [fragment.id for fragment in now.fragments]
    old_ids = {fragment.id for fragment in before.fragments}
    added_fragments = [fragment for fragment in diff.added if fragment.id not in old_ids]
    assert added_fragments == [fragment for fragment in now.fragments if fragment.id not in old_ids]
    assert {fragment.id for fragment in diff.added} <= {fragment.id for fragment in now.fragments}


def test_a_stream_has_the_fragments_of_the_snapshot(table: Table) -> None:
    table.delete({0})
    table_format = table.format()
    snapshot, stream = table_format.snapshot(), table_format.stream()
    assert stream.metadata == SnapshotStream.of(snapshot).metadata
    assert sorted(stream.fragments, key=lambda each: (each.partition_key, each.id)) == list(snapshot.fragments)


def test_fragments_are_found_by_partition_key_and_path(table: Table) -> None:
    table.delete({0})
    table_format = table.format()
    fragments = table_format.snapshot().fragments
    paths = {(each.partition_key, each.path) for each in fragments[::2]}
    found_fragments = table_format.find_fragments({*paths, ("none", fragments[0].path)})
    assert sorted(found_fragments, key=lambda each: (each.partition_key, each.id)) == list(fragments[::2])


def test_partition_columns_are_those_of_the_snapshot(table: Table) -> None:
    assert table.format().partition_columns() == table.snapshot().partition_columns == table.partition_columns


def test_a_delete_gives_a_new_id(table: Table) -> None:
    old = {fragment.id for fragment, _ in table.fragments_of({0})}
    table.delete({0})
    assert not old & {fragment.id for fragment in table.snapshot().fragments}


@pytest.mark.parametrize("kind", [DeltaCopyOnWrite, DeltaDeletionVectors])
def test_a_restored_version_has_its_ids_again(kind: type[DeltaCopyOnWrite], tmp_path: Path) -> None:
    """After a restore, fragments have the ids and rows of the restored version.

    The steps before are an append and a delete.
    """
    table = kind(tmp_path / "t")
    table.append(_FIRST)
    before = table.snapshot()
    table.append([(50, "new", DAYS[0])])
    DeltaCopyOnWrite._delete(table, {1, 2})
    table.restore(int(before.id))
    after = table.snapshot()
    assert int(after.id) > int(before.id)
    assert _contents(after) == _contents(before)


def test_a_snapshot_is_immune_to_later_commits(table: Table) -> None:
    """After an append and a delete, the rows of an earlier snapshot can still be read.

    If the delete replaced a plain file, reading this file is an error that reports it as missing.
    """
    snapshot = table.snapshot()
    before = _contents(snapshot)
    table.append([(100, "new", DAYS[0])])
    table.delete({0, 1})
    for fragment in snapshot.fragments:
        if isinstance(table, Files) and {row[0] for row in before[fragment.id]} & {0, 1}:
            with pytest.raises(FragmentError) as error_info:
                rows_of(snapshot, fragment)
            assert error_info.value.missing
            assert error_info.value.path == fragment.path
        else:
            assert sorted(rows_of(snapshot, fragment)) == before[fragment.id]


def test_overwriting_a_file_while_it_is_read_is_an_error(tmp_path: Path) -> None:
    """If a plain file changes while a reader has it open, the next read is an error.

    The error reports the file as missing.
    """
    for kind in _TABLES:
        if not issubclass(kind, Files):
            continue
        table = kind(tmp_path / kind.__name__)
        table.append(_FIRST)
        snapshot = table.snapshot()
        fragment = snapshot.fragments[0]
        with fragment.source.open() as reader:
            path = Path(fragment.path)
            path.write_bytes(path.read_bytes() + b" ")
            with pytest.raises(FragmentError, match=re.escape(fragment.path)) as error_info:
                list(reader.read(snapshot.schema.field("id")))
            assert error_info.value.missing


_WORKER = """
import pickle, sys
result = []
for source, schema in pickle.load(sys.stdin.buffer):
    with source.open() as reader:
        columns = [[v for chunk in reader.read(field) for v in chunk.to_pylist()] for field in schema]
        result.append((reader.row_count, sorted(reader.stored_columns), columns))
pickle.dump(result, sys.stdout.buffer)
"""


def test_another_process_reads_the_same_rows(tmp_path: Path) -> None:
    """Another process reads the same rows from the schema and the pickled sources of fragments.

    Each pickled source has less than 2000 bytes.
    """
    sources: list[Any] = []
    expected: list[Any] = []
    for kind in _TABLES:
        table = kind(tmp_path / kind.__name__)
        table.append(_FIRST)
        table.delete({0, 1, 2, 5})
        snapshot = table.snapshot()
        assert snapshot.schema.equals(_SCHEMA)
        for fragment in snapshot.fragments:
            sources.append((fragment.source, snapshot.schema))
            assert len(pickle.dumps(fragment.source)) < 2000
            assert list(scalars_in(fragment)) == []
            rows = read_rows(snapshot, [fragment])
            expected.append(
                (
                    len(rows),
                    sorted(map(identity, snapshot.schema)),
                    [list(column) for column in zip(*rows, strict=True)],
                )
            )
    done = subprocess.run([sys.executable, "-c", _WORKER], input=pickle.dumps(sources), capture_output=True, check=True)
    assert pickle.loads(done.stdout) == expected


def test_a_read_touches_only_the_requested_column(table: Table) -> None:
    """A broken column chunk is an error only for reads of that column.

    Formats that store rows, and ORC, are not tested.
    """
    if isinstance(table, RowFiles | OrcFiles):
        return  # Row formats are read completely. pyarrow does not show the position of an ORC column: see test_orc.
    snapshot = table.snapshot()
    fragment = snapshot.fragments[0]
    path = Path(fragment.path)
    stat = path.stat()
    start, size = table.column_range(path, 1)
    data = bytearray(path.read_bytes())
    data[start : start + size] = b"\xff" * size
    path.write_bytes(data)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    with fragment.source.open() as reader:
        assert sum(map(len, reader.read(snapshot.schema.field("id")))) == reader.row_count
        with pytest.raises(FragmentError, match="text") as error_info:
            list(reader.read(snapshot.schema.field("text")))
    assert error_info.value.path == fragment.path
    assert not error_info.value.missing


def test_a_fragment_whose_file_was_deleted_is_reported(table: Table) -> None:
    """The error for a file that was deleted after planning has its path, and says that it is missing."""
    fragment = table.snapshot().fragments[0]
    Path(fragment.path).unlink()
    with pytest.raises(FragmentError, match=re.escape(fragment.path)) as error_info:
        fragment.source.open()
    assert error_info.value.missing
    assert error_info.value.path == fragment.path


def test_columns_that_a_fragment_lacks_are_null(table: Table) -> None:
    """A column that no file has is read as nulls of the requested type.

    The column is not in the reader's `stored_columns`.
    """
    snapshot = table.snapshot()
    requested_field = pa.field("added", pa.struct([pa.field("a", pa.list_(pa.int8()))]))
    with snapshot.fragments[0].source.open() as reader:
        assert reader.stored_columns == {identity(field) for field in snapshot.schema}
        chunks = list(reader.read(requested_field))
        assert [chunk.type for chunk in chunks] == [requested_field.type] * len(chunks)
        assert sum(chunk.null_count for chunk in chunks) == reader.row_count


def test_planning_reads_no_file_with_a_native_reader(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Snapshots and bounds call no reader of Parquet, ORC, CSV, Avro or Lance files in this process.

    The reason is that such a reader may crash the process if a file is corrupt.
    """
    table.append([(number, f"text {number}", DAYS[number % 3]) for number in range(20, 26)])
    table.delete([1, 21])

    read_calls: list[object] = []

    def noted(read: Any, *arguments: Any, **options: Any) -> Any:
        read_calls.append(read)
        return read(*arguments, **options)

    native = ((pq, "ParquetFile"), (pq, "ParquetReader"), (pq, "read_table"), (pq, "read_metadata"))
    for module, name in (
        *native,
        (pyarrow.orc, "ORCFile"),
        (pyarrow.csv, "read_csv"),
        (fastavro, "block_reader"),
        (lance, "dataset"),
    ):
        monkeypatch.setattr(module, name, partial(noted, getattr(module, name)))
    snapshot = table.snapshot()
    for field in snapshot.schema:
        assert table.format().bounds(snapshot, field.name).num_rows == len(snapshot.fragments)
    assert read_calls == []
    assert sorted(row for rows in _contents(snapshot).values() for row in rows) == sorted(table.rows.values())
    assert read_calls or "Json" in type(table).__name__, "the test does not detect reads"
