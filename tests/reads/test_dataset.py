"""A dataset with guarantees returns the rows of one without, and opens fewer files.

This holds for every Arrow filter. A guarantee is an Arrow expression that is true for every row of a file. Arrow calls
it the partition expression of the file. A version has the statistics of one snapshot of the table.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from metastore_assets import open_table
from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.errors import MetastoreError
from metastore_assets.pipeline.refresh import refresh
from tests.formats.delta.log_writer import add_file, commit, field, metadata, protocol
from tests.formats.hudi.tables import HUDI_TABLES
from tests.formats.hudi.writer import FIELDS, HudiWriter
from tests.formats.table_writers import Table
from tests.reads.tables import SCHEMA, build, no_spark, publish, rows

_FIELD = pc.field
_LITERALS: dict[str, list[Any]] = {
    "id": [1, 100, 250],
    "ratio": [0.0, 1.5, float("inf")],
    "word": ["", "ab", "ä", "x" * 70],
    "day": [date(2024, 1, 1)],
    "moment": [datetime(2024, 1, 1), datetime(1969, 12, 31, 23)],
}
_PLAIN = [
    *(
        filter_
        for name in _LITERALS
        for literal in _LITERALS[name]
        for scalar in [pa.scalar(literal, SCHEMA.field(name).type)]
        for filter_ in (
            _FIELD(name) == scalar,
            _FIELD(name) != scalar,
            _FIELD(name) < scalar,
            _FIELD(name) <= scalar,
            _FIELD(name) >= scalar,
            _FIELD(name) > scalar,
            _FIELD(name).isin([literal]),
        )
    ),
    *(_FIELD(name).is_null() for name in SCHEMA.names),
    *(_FIELD(name).is_valid() for name in SCHEMA.names),
    _FIELD("ratio").is_null(nan_is_null=True),
    pc.is_nan(_FIELD("ratio")),
    _FIELD("flag"),
]
_FILTERS = st.one_of(
    st.sampled_from(_PLAIN),
    st.builds(lambda one: ~one, st.sampled_from(_PLAIN)),
    st.builds(lambda one, other: one & ~other, st.sampled_from(_PLAIN), st.sampled_from(_PLAIN)),
    st.builds(lambda one, other: one | other, st.sampled_from(_PLAIN), st.sampled_from(_PLAIN)),
)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["delta", "bare files", "iceberg"])
def test_guarantees_remove_no_row(tmp_path: Path, kind: str) -> None:
    """A dataset with guarantees selects the rows that Arrow selects without guarantees.

    The rows and filters are random. For files without statistics (`bare files`), Arrow filters the rows in memory. For
    other tables, it filters a plain dataset of the same files, because Arrow may skip rows with NaN by the statistics
    of the files.
    """
    folders = (tmp_path / str(number) for number in count())

    @settings(
        max_examples=max(4, settings().max_examples // 100), deadline=None, suppress_health_check=list(HealthCheck)
    )
    @given(rows(), st.integers(0, 1), st.lists(_FILTERS, min_size=20, max_size=20))
    def check(files: Any, late: int, filters: list[pc.Expression]) -> None:
        folder = next(folders)
        folder.mkdir()
        table = build(folder, kind, files, None, late)
        dataset = table.lookup.dataset()
        plain = ds.dataset(table.rows if kind == "bare files" else dataset.files, schema=SCHEMA)
        for filter_ in filters:
            result = dataset.to_table(columns=["id"], filter=filter_)["id"].to_pylist()
            expected_ids = plain.to_table(columns=["id"], filter=filter_)["id"].to_pylist()
            assert sorted(result) == sorted(expected_ids), str(filter_)

    check()


def test_guarantees_skip_fragments(tmp_path: Path) -> None:
    uri = str(tmp_path / "lake")
    for start in range(0, 40, 10):
        ids: list[int | None] = [*range(start, start + 9), None]
        part = {"id": pa.array(ids, pa.int64()), "day": [date(2024, 1, 1 + start // 10)] * 10, "p": [f"p{start}"] * 10}
        write_deltalake(uri, pa.table(part), mode="append", partition_by=["p"])
    lookup = open_table(publish(tmp_path, uri).root, "t", table_locations=[uri])
    dataset = lookup.dataset()
    assert len(list(dataset.get_fragments(_FIELD("id") == 12))) == 1
    assert len(list(dataset.get_fragments(_FIELD("day") >= pa.scalar(date(2024, 1, 3))))) == 2
    assert len(list(dataset.get_fragments(_FIELD("p") == "p20"))) == 1
    assert len(list(dataset.get_fragments(_FIELD("id").is_null()))) == 4
    assert dataset.to_table(filter=_FIELD("p") == "p20")["p"].to_pylist() == ["p20"] * 10
    assert len(lookup.dataset(where="id < 15").files) == 2


def test_tables_that_arrow_would_read_incorrectly_are_refused(tmp_path: Path) -> None:
    (tmp_path / "2").mkdir()
    uri = str(tmp_path / "delta")
    features = {"delta.enableDeletionVectors": "true"}
    write_deltalake(uri, pa.table({"a": [1, 2]}), configuration=features)
    DeltaTable(uri).delete("a = 1")
    lookup = open_table(publish(tmp_path / "2", uri).root, "t", table_locations=[uri])
    if any(add for add in Path(uri).glob("*.bin")):
        with pytest.raises(MetastoreError, match="deleted"):
            lookup.dataset()


def test_intervals_are_refused(tmp_path: Path) -> None:
    """A dataset refuses the intervals of Java's Parquet library, which Arrow alone would read as nulls."""
    (tmp_path / "lake").mkdir()
    pq.write_table(pa.table({"a": [1], "i": pa.array([bytes(12)], pa.binary(12))}), tmp_path / "lake" / "1.parquet")
    lookup = open_table(publish(tmp_path, str(tmp_path / "lake")).root, "t", table_locations=[str(tmp_path)])
    with pytest.raises(MetastoreError, match=r"'i'.*interval"):
        lookup.dataset()


def test_promoted_columns_of_plain_files_have_guarantees(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    pq.write_table(pa.table({"a": pa.array([1, 2], pa.int32())}), tmp_path / "lake" / "1.parquet")
    pq.write_table(pa.table({"a": pa.array([2**40], pa.int64()), "b": ["x"]}), tmp_path / "lake" / "2.parquet")
    lookup = open_table(publish(tmp_path, str(tmp_path / "lake")).root, "t", table_locations=[str(tmp_path)])
    dataset = lookup.dataset()
    assert sorted(dataset.to_table()["a"].to_pylist()) == [1, 2, 2**40]
    assert dataset.to_table(filter=_FIELD("a") > 5).to_pydict() == {"a": [2**40], "b": ["x"]}


def test_a_confined_table_is_checked_when_a_file_is_opened(tmp_path: Path) -> None:
    """A symbolic link in place of a data file is refused if it leads out of the table's folder.

    The table has `restrict_to_table_root: true`. The link replaces the file after a dataset was opened: reading this
    dataset fails, and so do a new dataset and a read.
    """
    lake = tmp_path / "lake"
    lake.mkdir()
    pq.write_table(pa.table({"a": [1]}), lake / "a.parquet")
    pq.write_table(pa.table({"a": [7]}), tmp_path / "secret.parquet")
    lookup = open_table(publish(tmp_path, str(lake)).root, "t", table_locations=[str(lake)])
    confined_table = TableConfig(name="t", uri=str(lake), restrict_to_table_root=True)
    dataset = lookup.dataset(table=confined_table)
    assert dataset.to_table()["a"].to_pylist() == [1]
    (lake / "a.parquet").unlink()
    (lake / "a.parquet").symlink_to(tmp_path / "secret.parquet")
    message = r"/lake/a\.parquet\b.*`restrict_to_table_root: true`"
    with pytest.raises((OSError, MetastoreError), match=message):
        dataset.to_table()
    for read in (lookup.dataset, lookup.read):
        with pytest.raises(MetastoreError, match=message):
            read(table=confined_table)


@pytest.mark.s3
def test_a_table_in_an_object_store_is_read_with_its_options(tmp_path: Path, s3_options: dict[str, str]) -> None:
    """A dataset of a table on S3 has all rows, and a filter opens no file that bounds exclude.

    The dataset's file system refuses to create a folder.
    """
    uri = "s3://metastore/dataset"
    for start in (0, 10):
        write_deltalake(uri, pa.table({"a": list(range(start, start + 10))}), mode="append", storage_options=s3_options)
    table = TableConfig(name="t", uri=uri, storage_options=s3_options)
    config = MetastoreConfig(root=str(tmp_path / "root"), tables=[table], engine="auto")
    refresh(config, table, no_spark)
    dataset = open_table(config.root, "t").dataset(table=table)
    assert all(path.startswith(f"{uri}/") for path in dataset.files)
    assert sorted(dataset.to_table()["a"].to_pylist()) == list(range(20))
    assert len(list(dataset.get_fragments(_FIELD("a") > 12))) == 1
    assert dataset.to_table(filter=_FIELD("a") > 17)["a"].to_pylist() == [18, 19]
    with pytest.raises(PermissionError):
        dataset.filesystem.create_dir("x")


def test_a_pipe_instead_of_a_file_is_refused(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    write_deltalake(str(lake), pa.table({"a": [1]}))
    lookup = open_table(publish(tmp_path, str(lake)).root, "t", table_locations=[str(lake)])
    (file,) = lake.glob("*.parquet")
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(MetastoreError, match=str(file)):
        lookup.dataset()


_POINT = {"type": "struct", "fields": [field("x", "long")]}


@pytest.mark.parametrize(
    ("stored_columns", "error_pattern"),
    [
        ({"Id": [1], "Point": [{"x": 2}]}, None),
        ({"id": [1], "Point": [{"x": 2}]}, "'Id' 'id'"),
        ({"Id": [1], "Point": [{"X": 2}]}, "'Point.x' 'Point.X'"),
        ({"Point": [{"x": 2}]}, None),
        ({"Id": [1], "id": [3]}, None),
    ],
)
def test_a_delta_file_with_names_in_another_case_is_refused(
    tmp_path: Path, stored_columns: Any, error_pattern: str | None
) -> None:
    """A dataset refuses a Delta file if a name in it differs in case from the column of the table.

    Arrow would read nulls, because Delta ignores case and Arrow does not.
    """
    lake = tmp_path / "lake"
    add = add_file(lake, pa.table(stored_columns))
    commit(lake, protocol(), metadata([field("Id", "long"), field("Point", _POINT)]), add)
    lookup = open_table(publish(tmp_path, str(lake)).root, "t", table_locations=[str(lake)])
    if error_pattern is not None:
        with pytest.raises(MetastoreError, match=error_pattern):
            lookup.dataset()
    else:
        assert lookup.dataset().to_table().to_pylist() == lookup.read().read_all().to_pylist()


@pytest.mark.parametrize("unit", ["s", "ms", "us"])
@pytest.mark.parametrize("zone", [None, "UTC"])
def test_timestamps_with_fractions_have_guarantees(tmp_path: Path, unit: str, zone: str | None) -> None:
    """A filter that no row matches opens only the file `last`.

    Other files have guarantees, which exclude them.

    `last` has no guarantees, because its timestamp and its day are before 1582-10-15.
    """
    lake = tmp_path / "lake"
    lake.mkdir()
    fraction = 0 if unit == "s" else 500_000
    first = datetime(1582, 10, 15)
    last = first - timedelta(microseconds=fraction or 1_000_000)
    moments = {"recent": datetime(2024, 1, 1, 0, 0, 1, fraction), "first": first, "last": last}
    for name, moment in moments.items():
        part = pa.table({"a": pa.array([moment], pa.timestamp(unit, zone)), "day": [moment.date()]})
        pq.write_table(part, lake / f"{name}.parquet", write_statistics=False)
    lookup = open_table(publish(tmp_path, str(lake)).root, "t", table_locations=[str(lake)])
    dataset = lookup.dataset()
    for column, literal in (
        ("a", pa.scalar(datetime(2030, 1, 1), dataset.schema.field("a").type)),
        ("day", date(2030, 1, 1)),
    ):
        result = {Path(fragment.path).stem for fragment in dataset.get_fragments(_FIELD(column) == literal)}
        assert result == {"last"}


def test_guarantees_of_times_have_nanoseconds(tmp_path: Path) -> None:
    """A filter for the greatest time in a file finds its row, although the time has nanoseconds.

    Python's times have no nanoseconds, so a guarantee from truncated bounds would exclude the row. A filter for greater
    times opens no file.
    """
    lake = tmp_path / "lake"
    lake.mkdir()
    times = pa.array([1_000, 2_345], pa.time64("ns"))
    pq.write_table(pa.table({"a": times}), lake / "0.parquet", write_statistics=False)
    lookup = open_table(publish(tmp_path, str(lake)).root, "t", table_locations=[str(lake)])
    assert lookup.dataset().to_table(filter=_FIELD("a") == times[1]).num_rows == 1
    assert not list(lookup.dataset().get_fragments(_FIELD("a") > times[1]))


@pytest.fixture
def iceberg(tmp_path: Path) -> Iterator[Any]:
    from pyiceberg.catalog.sql import SqlCatalog

    with SqlCatalog("c", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/iceberg") as catalog:
        catalog.create_namespace("n")
        schema = pa.schema([("a", pa.int32()), ("s", pa.struct([("x", pa.int64())])), ("l", pa.list_(pa.string()))])
        table = catalog.create_table("n.t", schema)
        table.append(pa.table({"a": pa.array([1, None], pa.int32()), "s": [{"x": 1}, None], "l": [["u"], []]}, schema))
        yield table


def _dataset(folder: Path, table: Any) -> ds.Dataset:
    uri = table.location().removeprefix("file://")
    return open_table(publish(folder, uri).root, "t", table_locations=[uri]).dataset()


def test_added_and_widened_iceberg_columns_are_read(tmp_path: Path, iceberg: Any) -> None:
    """A dataset reads Iceberg files that lack an added column or have a column's narrower type.

    Arrow fills the added column with nulls, and widens numbers.
    """
    from pyiceberg.types import LongType

    with iceberg.update_schema() as update:
        update.add_column("b", LongType())
        update.update_column("a", LongType())
    assert _dataset(tmp_path, iceberg).to_table().to_pydict() == {
        "a": [1, None],
        "s": [{"x": 1}, None],
        "l": [["u"], []],
        "b": [None, None],
    }


@pytest.mark.parametrize("change", ["rename", "readd", "nested"])
def test_iceberg_columns_that_arrow_would_misread_are_refused(tmp_path: Path, iceberg: Any, change: str) -> None:
    from pyiceberg.types import IntegerType

    with iceberg.update_schema() as update:
        if change == "rename":
            update.rename_column("a", "b")
        elif change == "readd":
            update.delete_column("a")
        else:
            update.rename_column("s.x", "y")
    if change == "readd":
        with iceberg.update_schema() as update:
            update.add_column("a", IntegerType())
    reason = {"rename": "the former name 'a'", "readd": "'a' is another one", "nested": "other nested fields"}[change]
    with pytest.raises(MetastoreError, match=f"{reason}.*`read`.*`lazy`"):
        _dataset(tmp_path, iceberg)


@pytest.mark.parametrize("kind", HUDI_TABLES, ids=lambda kind: kind.__name__)
def test_a_hudi_table_without_log_files_is_read(tmp_path: Path, kind: type[Table]) -> None:
    (tmp_path / "lake").mkdir()
    table = kind(tmp_path / "lake" / "t")
    table.append([(number, f"text {number % 3}", f"2024-01-0{1 + number % 2}") for number in range(9)])
    lookup = open_table(publish(tmp_path, str(tmp_path / "lake" / "t")).root, "t", table_locations=[str(tmp_path)])
    expected_rows = lookup.read().read_all()
    result = lookup.dataset().to_table()
    assert result.schema.equals(expected_rows.schema)
    assert sorted(map(repr, result.to_pylist())) == sorted(map(repr, expected_rows.to_pylist()))


@pytest.mark.parametrize(
    ("stored_types", "is_refused"), [(("float", pa.float32()), True), (("double", pa.float64()), False)]
)
def test_floats_that_hudi_widens_by_their_text_are_refused(tmp_path: Path, stored_types: Any, is_refused: bool) -> None:
    """A dataset of a Hudi table is refused if it would have to widen floats.

    Arrow widens the float 0.1 to 0.10000000149011612. Hudi reads it as 0.1, which the statistics describe.
    """
    writer = HudiWriter(tmp_path / "t", 9, fields=[FIELDS[0], {"name": "v", "type": ["null", stored_types[0]]}])
    writer.types["v"] = stored_types[1]
    for number in (1, 2):
        instant = writer.tick()
        stat = writer.base_file(writer.new_slice("x", instant), instant, [{"key": str(number), "v": number / 10}])
        writer.complete(instant, "deltacommit", [stat])
        writer.fields[1], writer.types["v"] = {"name": "v", "type": ["null", "double"]}, pa.float64()
    lookup = open_table(publish(tmp_path, str(writer.folder)).root, "t", table_locations=[str(writer.folder)])
    assert sorted(lookup.read(columns=["v"]).read_all()["v"].to_pylist()) == [0.1, 0.2]
    if is_refused:
        with pytest.raises(MetastoreError, match=r"'v'.*float.*`read`"):
            lookup.dataset()
    else:
        assert sorted(lookup.dataset().to_table()["v"].to_pylist()) == [0.1, 0.2]


@pytest.mark.parametrize("day", [date(1, 1, 1), date(1582, 10, 15)])
@pytest.mark.parametrize("is_legacy", [False, True])
@pytest.mark.parametrize("is_nested", [False, True])
def test_days_before_1582_in_the_calendar_of_spark_2_are_refused(
    tmp_path: Path, day: date, is_legacy: bool, is_nested: bool
) -> None:
    """A dataset refuses a file with days before 1582-10-15 in the calendar of Spark 2.

    Arrow would read 0001-01-01 as 0001-01-03. A file in that calendar is refused for any days if the days are nested,
    or if the file was added after the version.
    """
    (tmp_path / "lake").mkdir()
    marks = {"org.apache.spark.version": "3.5.0"} | ({"org.apache.spark.legacyDateTime": ""} if is_legacy else {})
    days = pa.table({"id": [1], "day": [[{"of": day}] if is_nested else day]}).replace_schema_metadata(marks)
    pq.write_table(days, tmp_path / "lake" / "1.parquet")
    lookup = open_table(publish(tmp_path, str(tmp_path / "lake")).root, "t", table_locations=[str(tmp_path)])
    if is_legacy and (day.year == 1 or is_nested):
        with pytest.raises(MetastoreError, match=r"1\.parquet.*1582.*`read`"):
            lookup.dataset()
    else:
        assert lookup.dataset().to_table()["day"].to_pylist() == lookup.read().read_all()["day"].to_pylist()
    pq.write_table(days, tmp_path / "lake" / "2.parquet")
    if is_legacy:
        with pytest.raises(MetastoreError, match=r"\.parquet.*1582"):
            lookup.dataset()
    else:
        assert lookup.dataset().count_rows() == 2
