"""After any commits, the partition index returns the statistics of each partition's rows.

It returns them column by column. The index is stored in segments (sorted files), which later commits merge.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metastore_assets.errors import CorruptionError
from metastore_assets.index import (
    PartitionReader,
    PartitionRows,
    partition_writer,
    stack_partitions,
    update_partitions,
)
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.statistics.profile_tables import build_statistics_table, parse_statistics_rows
from metastore_assets.store import segment_levels
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.segments import KeyChanges
from metastore_assets.store.version import PartitionIndex, UnindexedPartition
from tests.statistics.random_columns import profile_one

KINDS = (
    pa.array([1, 2, None]),
    pa.array(["a", "bb", "x" * 5000]),
    pa.array([0.5, float("nan"), -0.0]),
    pa.array([b"\x00" * 16, b"\xff" * 16, None]).cast(pa.binary(16)),
    pa.array([None, None], pa.decimal128(5, 2)),
)
PROFILED = [profile_one(kind).statistics for kind in KINDS]
UUIDS = profile_one(
    pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"\x00" * 16, None, b"\x07" * 16], pa.binary(16)))
).statistics
ALL = [*PROFILED, UUIDS]


def without_states(row: ColumnStatistics) -> ColumnStatistics:
    """Return the row as it is read from a statistics table: without its mergeable states.

    Sketches are such states.
    """
    (result,) = parse_statistics_rows(build_statistics_table([row]))
    return result


def rows_of(number: int) -> dict[str, ColumnStatistics]:
    """Return a partition's statistics of one to four columns of any types, by field id.

    `number` is the seed of the random choice.
    """
    draw = random.Random(number)
    names = draw.sample(["a", "b", "c", "d.e"], draw.randint(1, 4))
    return {name: without_states(_named(draw.choice(ALL), name)) for name in names}


def _named(row: ColumnStatistics, name: str) -> ColumnStatistics:
    return replace(row, column=name, field_id=name)


def write_small_files(patch: pytest.MonkeyPatch, file_rows: int) -> None:
    """Limit the number of partitions per file of an index."""
    patch.setattr(partition_writer, "KIND", replace(partition_writer.KIND, file_rows=file_rows))
    patch.setattr(partition_writer, "_FILE_STATISTICS", 1)


def read_index(store: ObjectStore, files: PartitionIndex) -> dict[str, dict[str, ColumnStatistics]]:
    """Return the statistics in an index, by partition key and field id, as a reader returns them.

    Partitions that are not yet in the files of the index are included. In this test, such a partition has a number in
    place of the path of its file. `rows_of` computes the statistics from this number.
    """
    reader = PartitionReader(store, files.files)
    keys = reader.partitions["_key"].to_pylist() if files.files.files else []
    assert keys == sorted(keys)
    hidden_keys = {*files.removed, *(partition.key for partition in files.unindexed)}
    result: dict[str, dict[str, ColumnStatistics]] = {key: {} for key in keys if key not in hidden_keys}
    for name in ("a", "b", "c", "d.e") if keys else ():
        for positions, table in reader.column(name):
            for position, row in zip(positions.tolist(), parse_statistics_rows(table), strict=True):
                if keys[position] in result:
                    assert name not in result[keys[position]]
                    result[keys[position]][name] = row
    for partition in files.unindexed:
        result[partition.key] = rows_of(int(partition.path))
    return result


@settings(max_examples=max(5, settings().max_examples // 50), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.dictionaries(st.integers(0, 25), st.integers(0, 10**6), max_size=14),
            st.sets(st.integers(0, 25), max_size=9),
        ),
        min_size=1,
        max_size=9,
    ),
    st.sampled_from([2, 7, 10**9]),
    st.sampled_from([3, 10**9]),
    st.booleans(),
)
def test_the_last_written_statistics_are_read(
    commits: Sequence[tuple[dict[int, int], set[int]]], file_rows: int, lot: int, is_eager: bool
) -> None:
    """The last written statistics of partitions that are added, changed and removed are read.

    Partitions may be added again. Batches and files have any size. Up to eight changes write no file: the index lists
    these partitions as not indexed or removed.
    """
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        write_small_files(patch, file_rows)
        if is_eager:  # More segments are merged, in more steps.
            for name in ("_GROWTH", "_BASE_GROWTH"):
                patch.setattr(segment_levels, name, 100)
            for name in ("_MAX_WAITING", "_MAX_WAITING_BEGUN"):
                patch.setattr(segment_levels, name, 1)
        store = ObjectStore(folder)
        referenced_paths: set[str] = set()
        now: dict[str, int] = {}
        files: PartitionIndex | None = None

        def read(partitions: Sequence[UnindexedPartition]) -> Iterator[PartitionRows]:
            for start in range(0, len(partitions), lot):
                part = partitions[start : start + lot]
                tables = [build_statistics_table(list(rows_of(int(one.path)).values())) for one in part]
                yield stack_partitions([(one.key, one.row_count) for one in part], tables)

        for received_numbers, removed_numbers in commits:
            changed_numbers = {
                f"p={key}": number for key, number in received_numbers.items() if now.get(f"p={key}") != number
            }
            removed_keys = {
                f"p={key}" for key in removed_numbers if f"p={key}" in now and f"p={key}" not in changed_numbers
            }
            before = files
            now = {key: number for key, number in {**now, **changed_numbers}.items() if key not in removed_keys}
            partitions = {key: UnindexedPartition(key, str(number), number) for key, number in changed_numbers.items()}
            files = update_partitions(
                store, files, partitions, KeyChanges(partitions.keys(), removed_keys, len(now), may_merge=True), read
            )
            assert read_index(store, files) == {key: rows_of(number) for key, number in now.items()}
            assert len(files.unindexed) + len(files.removed) <= 8
            assert len(files.files.segments) <= 6
            referenced_paths.update(files.files.paths())
            assert {info.path for info in store.list()} == referenced_paths
            if (
                before is not None
                and len(changed_numbers) + len(removed_keys) + len(before.unindexed) + len(before.removed) <= 8
            ):
                assert files.files == before.files


@pytest.mark.parametrize("removed_count", [0, 4])
def test_no_commit_rewrites_the_statistics_of_all_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, removed_count: int
) -> None:
    """Each commit to an index of 1,500 partitions writes at most 900 of them.

    The index never has more than six segments.
    """
    write_small_files(monkeypatch, 300)
    store, draw = ObjectStore(str(tmp_path)), random.Random(1)
    table = build_statistics_table(list(rows_of(1).values()))

    def read(partitions_to_read: Sequence[UnindexedPartition]) -> Iterator[PartitionRows]:
        yield stack_partitions(
            [(one.key, one.row_count) for one in partitions_to_read], [table] * len(partitions_to_read)
        )

    live = {f"p={number:04}" for number in range(1_500)}
    files: PartitionIndex | None = None
    sizes = []
    for number in range(100):
        changed_keys = set(draw.sample(sorted(live), 9)) if files else live
        removed_keys = set(draw.sample(sorted(live - changed_keys), removed_count)) if files else set()
        live = live - removed_keys
        partitions = {key: UnindexedPartition(key, "1", number) for key in changed_keys}
        before = set() if files is None else set(files.files.paths())
        files = update_partitions(
            store, files, partitions, KeyChanges(changed_keys, removed_keys, len(live), may_merge=True), read
        )
        sizes.append(sum(file.rows for file in files.files.files if file.path not in before))
        assert len(files.files.segments) <= 6
    assert set(PartitionReader(store, files.files).partitions["_key"].to_pylist()) == live
    # Without steps, merges write 13 rows for each commit since the last one.
    assert 300 <= max(sizes[1:]) <= 900


def test_stacked_statistics_are_in_one_chunk() -> None:
    """The statistics of several partitions are stacked into columns of one chunk.

    Many small chunks would take much memory.
    """
    tables = [build_statistics_table(list(rows_of(number).values())) for number in (3, 4, 5)]
    stacked_partitions = stack_partitions([(f"p={number}", number) for number in range(3)], tables)
    assert {
        column.num_chunks for column in (*stacked_partitions.rows.columns, *stacked_partitions.partitions.columns)
    } == {1}
    assert len(stacked_partitions.rows) == sum(map(len, tables))


def test_a_truncated_file_is_reported(tmp_path: object) -> None:
    store = ObjectStore(str(tmp_path))
    partitions = {f"p={at}": UnindexedPartition(f"p={at}", str(at), at) for at in range(12)}

    def read(partitions_to_read: Sequence[UnindexedPartition]) -> Iterator[PartitionRows]:
        tables = [build_statistics_table(list(rows_of(int(one.path)).values())) for one in partitions_to_read]
        yield stack_partitions([(one.key, one.row_count) for one in partitions_to_read], tables)

    files = update_partitions(
        store, None, partitions, KeyChanges(partitions.keys(), (), 12, may_merge=True), read
    ).files
    with pytest.raises(CorruptionError, match=r"\b12 rows.*\b13\b.*--full"):
        PartitionReader(store, type(files)(13, files.files)).partitions  # noqa: B018
    data = store.read(files.files[0].path)
    store.write(files.files[0].path, data[: len(data) // 2])
    with pytest.raises(CorruptionError, match=r"partitions\.parquet"):
        PartitionReader(store, files).partitions  # noqa: B018
