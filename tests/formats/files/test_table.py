"""Plain files in folders: listing, partitions, one schema for many files, broken and changed files.

A fragment is one data file of a table. The reference of a snapshot consists of its id and its commit time.
"""

from __future__ import annotations

import os
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metastore_assets.config import TableConfig
from metastore_assets.errors import ConfigError, FragmentError, TableFormatError, TableNotFoundError
from metastore_assets.formats import Snapshot, TableFormat, open_table_format
from metastore_assets.formats.readers.int96 import check_no_overflow, has_common_years
from tests.formats.oracle import read_columns


def _table(folder: Path, **options: Any) -> TableFormat:
    return open_table_format(TableConfig(name="t", uri=str(folder), options=options))


def _snapshot(folder: Path) -> Snapshot:
    return _table(folder).snapshot()


def _write(path: Path, **columns: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)


def test_partitions_are_the_folders(tmp_path: Path) -> None:
    """Partition values are the decoded texts in folder names, and Hive's text for null is null.

    They replace the values of a column of the same name in the files. Partition columns follow the columns of the
    files.
    """
    folders = {
        "day=2024-01-01/c=FR": ("2024-01-01", "FR"),
        "day=2024-01-01/c=a%2Fb%25 %C3%A9": ("2024-01-01", "a/b% é"),
        "day=__HIVE_DEFAULT_PARTITION__/c=x=y": (None, "x=y"),
        "day=/c=%zz": ("", "%zz"),
        "day=😀/c=__HIVE_DEFAULT_PARTITION__": ("😀", None),
    }
    for number, folder in enumerate(folders):
        _write(tmp_path / folder / "deeper" / "x.parquet", a=[number], day=["from the file"])
    snapshot = _snapshot(tmp_path)
    assert snapshot.schema == pa.schema([("a", pa.int64()), ("day", pa.string()), ("c", pa.string())])
    assert snapshot.partition_columns == ("day", "c")
    columns = read_columns(snapshot)
    expected = list(folders.values())
    assert [expected[number] for number in columns["a"]] == list(zip(columns["day"], columns["c"], strict=True))
    assert {fragment.partition_key for fragment in snapshot.fragments} == {
        "day=2024-01-01/c=FR",
        "day=2024-01-01/c=a%2Fb%25 é",
        "day=__HIVE_DEFAULT_PARTITION__/c=x%3Dy",
        "day=/c=%25zz",
        "day=%F0%9F%98%80/c=__HIVE_DEFAULT_PARTITION__",
    }


def test_a_file_above_the_folders_has_partition_values_in_its_rows(tmp_path: Path) -> None:
    """A partition column that is missing in the path is read from the file as text, or is null."""
    _write(tmp_path / "day=1" / "c=x" / "1.parquet", a=[1])
    _write(tmp_path / "day=1" / "2.parquet", a=[2, 3], c=[7, None])
    _write(tmp_path / "3.parquet", a=[4])
    snapshot = _snapshot(tmp_path)
    columns = read_columns(snapshot)
    rows = sorted(zip(columns["a"], columns["day"], columns["c"], strict=True))
    assert rows == [(1, "1", "x"), (2, "1", "7"), (3, "1", None), (4, None, None)]
    assert [fragment.partition_key for fragment in snapshot.fragments] == ["all", "day=1", "day=1/c=x"]


def test_hidden_and_temporary_files_are_no_data(tmp_path: Path) -> None:
    """Files and folders that Spark, Hive and Hadoop ignore by their names are not read.

    A partition column may start with an underscore nevertheless.
    """
    _write(tmp_path / "_x=1" / "a.parquet", a=[1])
    for name in ("_SUCCESS", ".a.parquet.crc", "_temporary/0/b.parquet", ".hidden/c.parquet", "d.parquet._COPYING_"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"not Parquet")
    snapshot = _snapshot(tmp_path)
    assert read_columns(snapshot) == {"a": [1], "_x": ["1"]}


def test_kinds_are_recognised_by_suffix_or_content(tmp_path: Path) -> None:
    """Suffixes are recognised in any case.

    A Parquet file without a suffix, as Hive writes it, is recognised by content.
    """
    _write(tmp_path / "000000_0", a=[1])
    _write(tmp_path / "x.PARQUET", a=[2])
    _write(tmp_path / "y.parq", a=[3])
    assert sorted(read_columns(_snapshot(tmp_path))["a"]) == [1, 2, 3]


def test_a_single_file_is_a_table(tmp_path: Path) -> None:
    """A table of a single file has no partitions, whatever the names of its folders."""
    _write(tmp_path / "day=1" / "x.parquet", a=[1, 2])
    table = _table(tmp_path / "day=1" / "x.parquet")
    snapshot = table.snapshot()
    assert table.snapshot_id() == snapshot.id
    assert read_columns(snapshot) == {"a": [1, 2]}
    assert [(fragment.partition_key, fragment.path) for fragment in snapshot.fragments] == [
        ("all", str(tmp_path / "day=1" / "x.parquet"))
    ]
    assert open_table_format(TableConfig(name="t", uri=(tmp_path / "day=1").as_uri())).snapshot().fragments


def test_current_and_the_next_snapshot_share_a_listing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first snapshot after `current()` has the reference that `current` returned.

    This snapshot does not list the folder. Each later snapshot lists the folder again.
    """
    _write(tmp_path / "x.parquet", a=[1])
    table = _table(tmp_path)
    scanned_paths = []
    plain = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: scanned_paths.append(path) or plain(path))
    reference = table.current()
    _write(tmp_path / "y.parquet", a=[2])
    assert table.snapshot().reference == reference
    assert scanned_paths.count(str(tmp_path)) == 1
    assert len(table.snapshot().fragments) == 2
    assert table.current() == table.snapshot().reference != reference


@pytest.mark.parametrize("name", ["_SUCCESS", "nothing"])
def test_a_folder_without_data_files_is_no_table(tmp_path: Path, name: str) -> None:
    """A folder without data files is an error, and so is a missing folder."""
    (tmp_path / name).write_bytes(b"")
    for folder in (tmp_path, tmp_path / "missing"):
        for ask in (_table(folder).snapshot, _table(folder).snapshot_id):
            with pytest.raises(TableNotFoundError, match=str(folder)):
                ask()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.txt", b"hello", r"'text'.*\bparquet, orc, avro, csv, json\b"),
        ("README", b"hello", r"\.parquet, \.orc, \.avro, \.csv or \.json"),
        ("x.parquet.gz", b"1", r"'parquet'.*gzip"),
        ("x.orc.zst", b"1", r"'orc'.*zstd"),
        ("delta_0000001_0000001_0000/bucket_00000.orc", b"ORC", "transactional"),
    ],
)
def test_a_file_without_a_reader_is_named(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    """A file that cannot be read is an error that names the file, because its rows would be missing."""
    _write(tmp_path / "a.parquet", a=[1])
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(TableFormatError, match=f"{name}.*{message}"):
        _snapshot(tmp_path)


def test_kinds_of_files_do_not_mix(tmp_path: Path) -> None:
    """Files of two kinds in one table are an error, which names one file of each kind."""
    _write(tmp_path / "a.parquet", a=[1])
    (tmp_path / "b.csv").write_text("a\n1\n")
    with pytest.raises(TableFormatError, match=r"a\.parquet.*b\.csv"):
        _snapshot(tmp_path)


def test_one_schema_for_all_files(tmp_path: Path) -> None:
    """Columns are matched by name, types are widened without loss, and missing columns are null.

    Types without a common type are an error, here int64 and double in a struct.
    """
    _write(tmp_path / "1.parquet", a=pa.array([1], pa.int8()), b=pa.array([{"x": 1}]), n=pa.nulls(1))
    _write(tmp_path / "2.parquet", c=["t"], a=pa.array([2**40]), b=pa.array([{"y": [1.5], "x": 2.5}]))
    _write(tmp_path / "3.parquet", n=["n"], a=pa.array([None], pa.int16()), b=pa.nulls(1))
    with pytest.raises(TableFormatError, match=r"'b'.*struct<x: int64>.*1\.parquet.*2\.parquet"):
        _snapshot(tmp_path)
    _write(
        tmp_path / "1.parquet",
        a=pa.array([1], pa.int8()),
        b=pa.array([{"x": 1}]).cast(pa.struct([("x", pa.int32())])),
        n=pa.nulls(1),
    )
    snapshot = _snapshot(tmp_path)
    struct = pa.struct([("x", pa.float64()), ("y", pa.list_(pa.field("element", pa.float64())))])
    assert snapshot.schema == pa.schema([("a", pa.int64()), ("b", struct), ("n", pa.string()), ("c", pa.string())])
    columns = read_columns(snapshot)
    assert sorted(zip(columns["a"], map(str, columns["b"]), columns["n"], columns["c"], strict=True), key=str) == [
        (1, "{'x': 1.0, 'y': None}", None, None),
        (2**40, "{'x': 2.5, 'y': [1.5]}", None, "t"),
        (None, "None", "n", None),
    ]


def test_similar_schemas_are_distinguished(tmp_path: Path) -> None:
    """A table has its own schema, even if another one differs only in a name, a type, a unit or a length.

    The cache of schemas must not confuse such schemas.
    """
    columns = [
        pa.array([{"x": 1}]),
        pa.array([{"x": 1}], pa.struct([("x", pa.int32())])),
        pa.array([datetime(2024, 1, 1)], pa.timestamp("ms")),
        pa.array([datetime(2024, 1, 1)], pa.timestamp("us")),
        pa.array([b"ab"], pa.binary(2)),
        pa.array([b"abc"], pa.binary(3)),
    ]
    for number, column in enumerate(columns):
        for name in "st":
            path = tmp_path / f"{number}{name}" / "a.parquet"
            path.parent.mkdir()
            pq.write_table(pa.table({name: column}), path, store_schema=False)
            schema = _snapshot(path.parent).schema
            assert schema == pa.schema([(name, column.type)])


_VALUES: list[tuple[pa.DataType, list[Any], pa.DataType | None]] = [
    (pa.dictionary(pa.int8(), pa.string()), ["a", None, "b", "a"], pa.string()),
    (pa.dictionary(pa.int32(), pa.large_binary()), [b"a", None], pa.binary()),
    (pa.large_string(), ["a", None, ""], pa.string()),
    (pa.string_view(), ["a", None, "longer than twelve bytes"], pa.string()),
    (pa.binary_view(), [b"\xff", None], pa.binary()),
    (pa.binary(3), [b"abc", None], None),
    (pa.large_list(pa.large_string()), [["a", None], None, []], pa.list_(pa.field("element", pa.string()))),
    (pa.list_(pa.int8(), 2), [[1, 2], None, [None, 3]], pa.list_(pa.field("element", pa.int8()))),
    (pa.list_(pa.dictionary(pa.int8(), pa.string())), [["a"], None], pa.list_(pa.field("element", pa.string()))),
    (
        pa.map_(pa.string(), pa.struct([("x", pa.large_string())])),
        [[("k", {"x": "v"})], None, []],
        pa.map_(pa.string(), pa.struct([("x", pa.string())])),
    ),
    (
        pa.struct([("a", pa.struct([("b", pa.dictionary(pa.int8(), pa.string()))]))]),
        [{"a": {"b": "x"}}, {"a": None}, None],
        pa.struct([("a", pa.struct([("b", pa.string())]))]),
    ),
    (pa.uuid(), [UUID(int=7), None], None),
    (pa.json_(), ['{"a": 1}', None], pa.string()),
    (pa.bool8(), [True, None], pa.bool_()),
    (pa.float16(), [1.5, float("inf"), None], None),
    (pa.decimal128(38, 10), [Decimal("1234567890123456789012345678.0123456789"), None], None),
    (pa.decimal256(60, 5), [Decimal("1e50"), None], None),
    (pa.decimal32(5, 2), [Decimal("123.45"), None], pa.decimal128(5, 2)),
    (pa.uint64(), [2**64 - 1, None], None),
    (pa.time32("ms"), [time(1, 2, 3, 4000), None], None),
    (pa.time64("us"), [time(23, 59, 59, 999999)], None),
    (pa.date32(), [date(1, 1, 1), date(9999, 12, 31), None], None),
    (pa.timestamp("s"), [datetime(1, 1, 1), datetime(9999, 12, 31)], pa.timestamp("ms")),
    (pa.timestamp("us", "America/New_York"), [datetime(2024, 1, 1, 5, tzinfo=UTC), None], None),
    (pa.duration("us"), [None], None),
    (pa.null(), [None, None], None),
    (pa.bool_(), [True, False, None], None),
]


@pytest.mark.parametrize(("stored_type", "values", "read"), _VALUES, ids=[str(stored) for stored, _, _ in _VALUES])
def test_every_type_that_parquet_files_declare_is_read(
    tmp_path: Path, stored_type: pa.DataType, values: list[Any], read: pa.DataType | None
) -> None:
    """Columns have the stored values, even if only the Arrow schema in the file declares their type.

    Dictionaries, views and large types are read as plain types, such as string.
    """
    if stored_type == pa.bool8():
        array = pa.ExtensionArray.from_storage(stored_type, pa.array(values, pa.bool_()).cast(pa.int8()))
    else:
        array = pa.array(values, stored_type)
    _write(tmp_path / "a.parquet", a=array)
    snapshot = _snapshot(tmp_path)
    assert snapshot.schema.field("a").type == (stored_type if read is None else read)
    read_values = read_columns(snapshot)["a"]
    assert read_values == values


def test_int96_timestamps_are_read_as_microseconds(tmp_path: Path) -> None:
    """INT96 timestamps of the years 1 to 9999 are read as microseconds, at any depth."""
    values = [datetime(1, 1, 1), datetime(1677, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999)]
    array = pa.array(values, pa.timestamp("us"))
    nested_array = pa.array([{"a": [value]} for value in values], pa.struct([("a", pa.list_(pa.timestamp("us")))]))
    pq.write_table(
        pa.table({"a": array, "s": nested_array}), tmp_path / "a.parquet", use_deprecated_int96_timestamps=True
    )
    snapshot = _snapshot(tmp_path)
    assert snapshot.schema.field("a").type == pa.timestamp("us")
    assert read_columns(snapshot) == {"a": values, "s": [{"a": [value]} for value in values]}


def test_int96_timestamps_beyond_64_bits_are_detected() -> None:
    """INT96 timestamps that Arrow reads differently in two units have overflowed, and are an error.

    Far years without an overflow are accepted.
    """
    far = pa.array([253_402_300_800_000_000, None], pa.timestamp("us"))
    assert not has_common_years(far)
    assert not has_common_years(
        pa.array([{"a": [{"b": 2**62}]}], pa.struct([("a", pa.list_(pa.struct([("b", far.type)])))]))
    )
    check_no_overflow(far, pa.array([253_402_300_800_000, None], pa.timestamp("ms")))
    with pytest.raises(pa.ArrowInvalid, match="INT96"):
        check_no_overflow(far, pa.array([361_746_257_437_964_157, None], pa.timestamp("ms")))


def test_duplicate_columns_are_refused(tmp_path: Path) -> None:
    """Two columns with one name are an error, because a reference to the name would be ambiguous."""
    pq.write_table(pa.table([[1], [2]], names=["a", "a"]), tmp_path / "a.parquet")
    with pytest.raises(TableFormatError, match=r"a\.parquet.*columns.*'a'"):
        _snapshot(tmp_path)


def test_column_names_are_exact(tmp_path: Path) -> None:
    """Names that differ in case, have dots or are empty belong to different columns."""
    _write(tmp_path / "a.parquet", a=[1], A=[2], **{"a.b": [3], "": [4], "s": pa.array([{"b": 5, "a.b": 6}])})
    assert read_columns(_snapshot(tmp_path)) == {"a": [1], "A": [2], "a.b": [3], "": [4], "s": [{"b": 5, "a.b": 6}]}


def test_a_broken_file_does_not_prevent_planning(tmp_path: Path) -> None:
    """A table with a broken and a valid file can be planned.

    Opening the broken file is an error with its path. If the broken file is the only one, planning is an error.
    """
    broken_file = tmp_path / "b.parquet"
    broken_file.write_bytes(b"PAR1 and nothing else PAR1")
    with pytest.raises(TableFormatError, match=str(broken_file)):
        _snapshot(tmp_path)
    _write(tmp_path / "a.parquet", a=[1, 2])
    snapshot = _snapshot(tmp_path)
    good, bad = sorted(snapshot.fragments, key=lambda fragment: fragment.path)
    assert read_columns(snapshot, [good]) == {"a": [1, 2]}
    assert (bad.path, bad.row_count) == (str(broken_file), None)
    with pytest.raises(FragmentError, match=str(broken_file)) as error_info:
        bad.source.open()
    assert error_info.value.path == str(broken_file)
    assert not error_info.value.missing


def test_a_file_that_becomes_readable_after_planning_is_not_read(tmp_path: Path) -> None:
    """A file that becomes readable only after planning cannot be read until the next plan.

    While it was unreadable, the schema could not include its columns.
    """
    path = tmp_path / "a.parquet"
    _write(path, a=[1], b=[2])
    _write(tmp_path / "b.parquet", a=[3])
    content, times = path.read_bytes(), path.stat().st_mtime_ns
    path.write_bytes(bytes(len(content)))
    os.utime(path, ns=(times, times))
    snapshot = _snapshot(tmp_path)
    assert snapshot.schema.names == ["a"]
    failed_fragment = next(fragment for fragment in snapshot.fragments if fragment.row_count is None)
    path.write_bytes(content)
    os.utime(path, ns=(times, times))
    with pytest.raises(FragmentError, match=r"a\.parquet") as error_info:
        failed_fragment.source.open()
    assert error_info.value.missing
    assert sorted(_snapshot(tmp_path).schema.names) == ["a", "b"]


def test_ids_depend_on_content_and_not_on_location(tmp_path: Path) -> None:
    """Moving a table does not change the ids of its fragments and snapshot.

    A new modification time of a file may mean new content. It changes the ids of the fragment and the snapshot.
    """
    _write(tmp_path / "t" / "a.parquet", a=[1])
    _write(tmp_path / "t" / "b.parquet", a=[2])
    before = _snapshot(tmp_path / "t")
    (tmp_path / "t").rename(tmp_path / "u")
    assert [fragment.id for fragment in _snapshot(tmp_path / "u").fragments] == [f.id for f in before.fragments]
    os.utime(tmp_path / "u" / "a.parquet", ns=(1, 1))
    after = _snapshot(tmp_path / "u")
    assert len({f.id for f in before.fragments} & {f.id for f in after.fragments}) == 1
    assert before.id != after.id == _table(tmp_path / "u").snapshot_id()


def test_large_row_groups_come_in_bounded_chunks(tmp_path: Path) -> None:
    """A chunk of a column that a reader returns has at most 131,072 rows and 40 MiB."""
    texts = [f"{number:06}" * 10_000 for number in range(1500)]
    _write(tmp_path / "a.parquet", small=list(range(1500)), large=texts)
    _write(tmp_path / "b.parquet", small=list(range(400_000)), large=pa.nulls(400_000))
    snapshot = _snapshot(tmp_path)
    for fragment in snapshot.fragments:
        with fragment.source.open() as reader:
            for field in snapshot.schema:
                sizes = [(len(chunk), chunk.nbytes) for chunk in reader.read(field)]
                assert max(rows for rows, _ in sizes) <= 131_072
                assert max(size for _, size in sizes) <= 40 << 20


def test_symbolic_links_are_followed_and_loops_refused(tmp_path: Path) -> None:
    """A link to a folder is a folder.

    A link that leads back to a folder above it is an error, and so is a link to a missing file.
    """
    _write(tmp_path / "real" / "a.parquet", a=[1])
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "d=1").symlink_to(tmp_path / "real")
    assert read_columns(_snapshot(tmp_path / "t")) == {"a": [1], "d": ["1"]}
    (tmp_path / "real" / "loop").symlink_to(tmp_path / "t")
    with pytest.raises(TableFormatError, match="/t/d=1/loop"):
        _snapshot(tmp_path / "t")
    (tmp_path / "real" / "loop").unlink()
    (tmp_path / "real" / "b.parquet").symlink_to(tmp_path / "gone")
    with pytest.raises(TableNotFoundError, match=r"b\.parquet"):
        _snapshot(tmp_path / "t")


def test_a_link_that_leads_nowhere_is_an_error_in_a_partition_too(tmp_path: Path) -> None:
    """A link to a missing file is an error, even if its partition has other files."""
    for name in "abcdefgh":
        _write(tmp_path / "d=1" / f"{name}.parquet", a=[1])
    (tmp_path / "d=1" / "gone.parquet").symlink_to(tmp_path / "nothing")
    with pytest.raises(TableNotFoundError, match=r"d=1/gone\.parquet"):
        _snapshot(tmp_path)


@pytest.mark.parametrize("options", [{"headr": True}, {"delimiter": ",,"}])
def test_invalid_options_are_refused_for_files_of_any_kind(tmp_path: Path, options: dict[str, Any]) -> None:
    """An invalid option is an error, even an option of CSV files for a table of Parquet files."""
    _write(tmp_path / "a.parquet", a=[1])
    with pytest.raises(ConfigError, match=f"options.{next(iter(options))}"):
        _table(tmp_path, **options).snapshot()
