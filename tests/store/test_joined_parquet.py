"""Several Parquet files that are read as one have the rows of all of them, in order."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from metastore_assets.errors import CorruptionError
from metastore_assets.store.joined_parquet import OFFSET_BITS, JoinedParquet
from metastore_assets.store.objects import MinimalParquet, ObjectStore, ParquetOptions
from metastore_assets.store.parquet_footers import DividedFooter, split_footer

SCHEMA = pa.schema([("number", pa.int64()), ("text", pa.string()), ("list", pa.list_(pa.int32()))])
GROUP_ROWS = 10


def rows(start: int, count: int) -> pa.Table:
    numbers = range(start, start + count)
    columns = [[*numbers], [f"text {at % 3}" for at in numbers], [[at] * (at % 3) or None for at in numbers]]
    return pa.table([pa.array(values, field.type) for values, field in zip(columns, SCHEMA, strict=True)], SCHEMA)


def written(store: ObjectStore, path: str, table: pa.Table, number: int) -> DividedFooter:
    with store.parquet_writer(path, SCHEMA, ParquetOptions(minimal=MinimalParquet(stores_arrow_types=True))) as writer:
        writer.write_table(table, GROUP_ROWS)
    return split_footer(writer.metadata, number << OFFSET_BITS)


@pytest.mark.parametrize(
    ("sizes", "numbers"),
    [([170, 25, 3], [5, (1 << 28) - 1, 0]), ([0, 7], [1, 2]), ([1], [9]), ([140], [3]), ([150], [3]), ([5, 0], [2, 1])],
)
def test_joined_files_have_the_row_groups_of_each_file(tmp_path: Path, sizes: list[int], numbers: list[int]) -> None:
    store = ObjectStore(str(tmp_path))
    tables = [rows(1000 * at, size) for at, size in enumerate(sizes)]
    paths = {number: f"{at}.parquet" for at, number in enumerate(numbers)}
    footers = [written(store, paths[number], table, number) for table, number in zip(tables, numbers, strict=True)]
    joined_files = JoinedParquet(store, paths, footers)
    assert joined_files.metadata.num_rows == sum(sizes)
    assert joined_files.group_counts == [-(-size // GROUP_ROWS) for size in sizes]
    groups = [table.slice(start, GROUP_ROWS) for table in tables for start in range(0, len(table), GROUP_ROWS)]
    for selected_groups in ([*range(len(groups))], [*range(0, len(groups), 7)], [len(groups) - 1]):
        for columns in (["number", "text", "list"], ["text"]):
            expected = pa.concat_tables([groups[at] for at in selected_groups]).select(columns)
            assert joined_files.read_row_groups(selected_groups, columns).equals(expected)


def test_the_damaged_one_of_joined_files_is_named(store: ObjectStore) -> None:
    paths = {number: f"{number}.parquet" for number in range(3)}
    joined_files = JoinedParquet(
        store, paths, [written(store, paths[number], rows(0, 50), number) for number in range(3)]
    )
    data = store.read("1.parquet")
    store.write("1.parquet", data[:300])
    assert len(joined_files.read_row_groups([0, 14], ["number"])) == 20
    with pytest.raises(CorruptionError, match=r"/1\.parquet"):
        joined_files.read_row_groups([0, 7, 14], ["number"])
    store.write("1.parquet", data)
    assert len(joined_files.read_row_groups([0, 7, 14], ["number"])) == 30


def test_neighbouring_row_groups_of_joined_files_are_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ObjectStore(str(tmp_path))
    paths = {number: f"{number}.parquet" for number in range(2)}
    joined_files = JoinedParquet(
        store, paths, [written(store, paths[number], rows(0, 50), number) for number in range(2)]
    )
    read_range, paths_read = ObjectStore.read_range, []

    def counted(store: ObjectStore, path: str, start: int, end: int) -> bytes:
        paths_read.append(path)
        return read_range(store, path, start, end)

    monkeypatch.setattr(ObjectStore, "read_range", counted)
    joined_files.read_row_groups([*range(10)], ["number", "text"])
    assert paths_read == ["0.parquet", "1.parquet"]
