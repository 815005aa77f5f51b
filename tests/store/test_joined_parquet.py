"""Several Parquet files that are read as one have the rows of all of them, in order.

A reading is a generator that yields the row groups that it needs next, and is sent their rows. Row groups that several
readings need at once are read together, and each reading gets the row groups that it needs.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pyarrow as pa
import pytest

from metastore_assets.errors import CorruptionError
from metastore_assets.store import joined_parquet
from metastore_assets.store.joined_parquet import JoinedParquet, run_joined_reading
from metastore_assets.store.objects import MinimalParquet, ObjectStore, ParquetOptions
from metastore_assets.store.parquet_footers import PackedFooter, pack_footer
from metastore_assets.store.read_rounds import Reading, join_readings

SCHEMA = pa.schema([("number", pa.int64()), ("text", pa.string()), ("list", pa.list_(pa.int32()))])
GROUP_ROWS = 10


def rows(start: int, count: int) -> pa.Table:
    numbers = range(start, start + count)
    columns = [[*numbers], [f"text {at % 3}" for at in numbers], [[at] * (at % 3) or None for at in numbers]]
    return pa.table([pa.array(values, field.type) for values, field in zip(columns, SCHEMA, strict=True)], SCHEMA)


def written(store: ObjectStore, path: str, table: pa.Table) -> PackedFooter:
    with store.parquet_writer(path, SCHEMA, ParquetOptions(minimal=MinimalParquet(stores_arrow_types=True))) as writer:
        writer.write_table(table, GROUP_ROWS)
    return pack_footer(writer.metadata)


@pytest.mark.parametrize(
    ("sizes", "numbers"),
    [([170, 25, 3], [5, (1 << 28) - 1, 0]), ([0, 7], [1, 2]), ([1], [9]), ([140], [3]), ([150], [3]), ([5, 0], [2, 1])],
)
def test_joined_files_have_the_row_groups_of_each_file(tmp_path: Path, sizes: list[int], numbers: list[int]) -> None:
    store = ObjectStore(str(tmp_path))
    tables = [rows(1000 * at, size) for at, size in enumerate(sizes)]
    paths = {number: f"{at}.parquet" for at, number in enumerate(numbers)}
    footers = [written(store, path, table) for table, path in zip(tables, paths.values(), strict=True)]
    joined_files = JoinedParquet(store, paths, footers)
    assert joined_files.row_counts.sum() == sum(sizes)
    assert joined_files.group_counts.tolist() == [-(-size // GROUP_ROWS) for size in sizes]
    assert joined_files.columns == {"number", "text", "element"}
    groups = [table.slice(start, GROUP_ROWS) for table in tables for start in range(0, len(table), GROUP_ROWS)]
    for selected_groups in ([*range(len(groups))], [*range(0, len(groups), 7)], [len(groups) - 1]):
        for columns in (["number", "text", "list"], ["text"]):
            expected = pa.concat_tables([groups[at] for at in selected_groups]).select(columns)
            assert joined_files.read_row_groups(selected_groups, columns).equals(expected)


def test_the_damaged_one_of_joined_files_is_named(store: ObjectStore) -> None:
    paths = {number: f"{number}.parquet" for number in range(3)}
    joined_files = JoinedParquet(store, paths, [written(store, paths[number], rows(0, 50)) for number in range(3)])
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
    joined_files = JoinedParquet(store, paths, [written(store, paths[number], rows(0, 50)) for number in range(2)])
    read_range, paths_read = ObjectStore.read_range, []

    def counted(store: ObjectStore, path: str, start: int, end: int) -> bytes:
        paths_read.append(path)
        return read_range(store, path, start, end)

    monkeypatch.setattr(ObjectStore, "read_range", counted)
    joined_files.read_row_groups([*range(10)], ["number", "text"])
    assert paths_read == ["0.parquet", "1.parquet"]


@pytest.mark.parametrize(
    ("numbers", "columns", "open_count"),
    [
        (([1, 2], [3, 4]), (["text"], ["text"]), 1),
        (([1, 2], [2, 3]), (["text"], ["text"]), 2),  # Different files have the number 2.
        (([1, 2], [3, 4]), (["text"], ["number"]), 2),
        (([1, 2], [3, 4]), (["number", "text"], ["number", "text"]), 1),
    ],
)
def test_row_groups_of_joined_readings_are_read_together(
    store: ObjectStore,
    monkeypatch: pytest.MonkeyPatch,
    numbers: tuple[list[int], list[int]],
    columns: tuple[list[str], list[str]],
    open_count: int,
) -> None:
    tables = [[rows(100 * (2 * at + part), 15 + 3 * at) for part in range(2)] for at in range(2)]
    files = []
    for at in range(2):
        paths = {number: f"{at}-{number}.parquet" for number in numbers[at]}
        footers = [written(store, path, table) for path, table in zip(paths.values(), tables[at], strict=True)]
        files.append(JoinedParquet(store, paths, footers))
    store.write("bytes", b"0123456789")

    def reading_of_bytes() -> Reading[list[bytes]]:
        first = yield [("bytes", 0, 3), ("bytes", 5, 7)]
        return [*first, *(yield [("bytes", 9, 10)])]

    open_parquet = Mock(wraps=joined_parquet.open_parquet)
    monkeypatch.setattr(joined_parquet, "open_parquet", open_parquet)
    first, data, second, reordered = run_joined_reading(
        store,
        join_readings(
            [
                files[0].reading([0, 3], columns[0]),
                reading_of_bytes(),
                files[1].reading([1, 2], columns[1]),
                files[0].reading([2, 1], columns[0]),
            ]
        ),
    )
    groups = [[table.slice(start, GROUP_ROWS) for table in pair for start in (0, GROUP_ROWS)] for pair in tables]
    assert first.equals(pa.concat_tables([groups[0][0], groups[0][3]]).select(columns[0]))
    assert data == [b"012", b"56", b"9"]
    assert second.equals(pa.concat_tables([groups[1][1], groups[1][2]]).select(columns[1]))
    assert reordered.equals(pa.concat_tables([groups[0][2], groups[0][1]]).select(columns[0]))
    assert open_parquet.call_count == open_count


@pytest.mark.parametrize("missing", ["row_groups", "chunk_heads", "head", "tail"])
def test_footers_that_are_cut_short_are_corrupt(store: ObjectStore, missing: str) -> None:
    footer = written(store, "a.parquet", rows(0, 25))
    damaged = replace(footer, **{missing: getattr(footer, missing)[:-3]})
    with pytest.raises(CorruptionError, match=r"/a\.parquet"):
        assert JoinedParquet(store, {0: "a.parquet"}, [damaged]).columns


def test_a_footer_with_some_row_groups_equals_the_stored_one(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A footer that is built for some row groups describes them as the file's own footer does.

    One row group has no dictionary page, because all of its texts are null.
    """
    numbers, _, lists = rows(0, 10).columns
    without_texts = pa.table([numbers, pa.nulls(10, pa.string()), lists], SCHEMA)
    table = pa.concat_tables([rows(0, 20), without_texts, rows(50, 10)])
    joined_files = JoinedParquet(store, {0: "a.parquet"}, [written(store, "a.parquet", table)])
    open_parquet = Mock(wraps=joined_parquet.open_parquet)
    monkeypatch.setattr(joined_parquet, "open_parquet", open_parquet)
    for groups in ([0, 1, 2, 3], [2, 3], [3, 2, 1], [1]):
        joined_files.read_row_groups(groups, ["number"])
        _, _, built = open_parquet.call_args.args
        with store.open_parquet("a.parquet") as file:
            stored = file.metadata
            for at, group in enumerate(groups):
                assert built.row_group(at).num_rows == stored.row_group(group).num_rows
                assert built.row_group(at).total_byte_size == stored.row_group(group).total_byte_size
                for column in range(stored.num_columns):
                    chunk, expected = built.row_group(at).column(column), stored.row_group(group).column(column)
                    for name in (
                        "path_in_schema",
                        "physical_type",
                        "compression",
                        "num_values",
                        "data_page_offset",
                        "dictionary_page_offset",
                        "total_compressed_size",
                        "total_uncompressed_size",
                    ):
                        assert getattr(chunk, name) == getattr(expected, name)
