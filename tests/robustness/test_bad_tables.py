"""If a table is bad, the error names the problem and the remedy, and the last version stays readable.

A version is the published statistics of a table at one snapshot. A policy says which statistics and values of a column
are stored.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Field, write_deltalake

from metastore_assets.config import MetastoreConfig, TableConfig, load_config
from metastore_assets.errors import ConfigError, MetastoreError, ProfileError, TableFormatError, TableNotFoundError
from metastore_assets.formats import decode_partition_key
from metastore_assets.lookup import Table
from metastore_assets.metastore import Metastore
from metastore_assets.pipeline.refresh import refresh
from tests.pipeline.file_lake import Lake, assert_same, everything
from tests.robustness.refresh_assertions import assert_equals_scratch, no_spark, refreshed, versions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def garble(path: Path) -> None:
    """Rewrite a Parquet file with page checksums, as Spark does, and then overwrite some of its values.

    The footer stays valid.
    """
    pq.write_table(pq.read_table(path, partitioning=None), path, write_page_checksum=True)
    data = path.read_bytes()
    middle = len(data) // 4
    path.write_bytes(data[:middle] + b"\xa5" * 64 + data[middle + 64 :])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def lookup(config: MetastoreConfig) -> Table:
    return Metastore(config.root).table("t")


@pytest.mark.parametrize(
    "damage", [truncate, *(pytest.param(damaging, marks=pytest.mark.long) for damaging in (garble, empty))]
)
def test_a_corrupt_fragment_is_named_and_other_profiles_are_saved(
    spark: SparkSession, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    """If a data file is corrupt, the error of the refresh names the file and its partition.

    The statistics (profiles) of the other new files are saved. A second refresh reads only the corrupt file, and so
    does a refresh after the file is repaired.
    """
    lake = Lake(tmp_path)
    lake.append(0)
    refreshed(lake.config(), spark)
    before = everything(lake.config())
    for partition in (0, 1, 2):
        lake.append(partition)
    bad = lake.append(1)
    intact = bad.read_bytes()
    damage(bad)
    for _ in range(2):
        with pytest.raises(ProfileError, match=f"'t'.*'part=1'.*{bad}") as error_info:
            refreshed(lake.config(), spark)
    assert "1 of 1 fragments" in str(error_info.value), "the others were read again"
    assert_same(everything(lake.config()), before)
    bad.write_bytes(intact)
    result = refreshed(lake.config(), spark)
    assert (result.version, result.fragments_added, result.fragments_profiled) == (2, 4, 1)
    assert_equals_scratch(lake.config(), spark, tmp_path)


def test_refresh_succeeds_after_a_corrupt_fragment_is_removed(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.append(0)
    bad = lake.append(1)
    truncate(bad)
    with pytest.raises(ProfileError, match=str(bad)):
        refreshed(lake.config(), spark)
    bad.unlink()
    assert refreshed(lake.config(), spark).fragments_profiled == 0
    assert_equals_scratch(lake.config(), spark, tmp_path)


def test_a_corrupt_file_of_a_delta_table_is_named(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    for number in range(3):
        write_deltalake(str(lake.uri), pa.table({"a": [number] * 1000}), mode="append")
    bad = Path(sorted(DeltaTable(lake.uri).file_uris())[1])
    intact = bad.read_bytes()
    truncate(bad)
    with pytest.raises(ProfileError, match=rf"\b1 of 3\b.*{bad}"):
        refreshed(lake.config(), spark)
    bad.write_bytes(intact)
    assert refreshed(lake.config(), spark).fragments_profiled == 1
    assert lookup(lake.config()).count().value == 3000


def test_an_unreadable_row_of_a_csv_file_is_named(spark: SparkSession, tmp_path: Path) -> None:
    """If a row of a CSV file has too many values, the error names the file and the line.

    The last version stays. After the file is repaired, a refresh reads only this file.
    """
    lake = Lake(tmp_path)
    (lake.uri / "part=1").mkdir(parents=True)
    (lake.uri / "part=1" / "good.csv").write_text("a,b\n1,x\n2,y\n")
    refreshed(lake.config(), spark)
    bad = lake.uri / "part=1" / "bad.csv"
    bad.write_text("a,b\n1,x\n2,y,z\n3,z\n")
    with pytest.raises(ProfileError, match=rf"{bad}: .*line 3: .*\b2\b.*\b3\b"):
        refreshed(lake.config(), spark)
    assert lookup(lake.config()).count().value == 2
    bad.write_text("a,b\n3,z\n")
    assert refreshed(lake.config(), spark).fragments_profiled == 1
    assert lookup(lake.config()).count().value == 3


@pytest.mark.parametrize("kind", ["files", "delta", None])
def test_a_missing_table_is_an_error(tmp_path: Path, kind: str | None) -> None:
    table = TableConfig.model_validate({"name": "t", "uri": str(tmp_path / "nowhere"), "format": kind})
    config = MetastoreConfig(root=str(tmp_path / "root"), tables=[table])
    with pytest.raises(TableNotFoundError, match=rf"{tmp_path}/nowhere\b"):
        refresh(config, table, no_spark)


def test_a_folder_without_data_files_is_an_error(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    (lake.uri / "part=0").mkdir(parents=True)
    (lake.uri / "_SUCCESS").touch()
    with pytest.raises(TableNotFoundError, match=rf"{lake.uri}\b"):
        refresh(lake.config(), lake.table, no_spark)


def test_a_folder_without_files_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    """A refresh of a table without files is an error that names the last version.

    That version stays readable. When the files are back, it is up to date again.
    """
    lake = Lake(tmp_path)
    file = lake.append(0)
    refreshed(lake.config(), spark)
    before = everything(lake.config())
    file.rename(tmp_path / "away")
    for _ in range(2):
        with pytest.raises(TableNotFoundError, match=rf"{lake.uri}\b.*version 1\b"):
            refresh(lake.config(), lake.table, no_spark)
    assert_same(everything(lake.config()), before)
    (tmp_path / "away").rename(file)
    assert refresh(lake.config(), lake.table, no_spark).version == 1


def test_a_delta_table_without_rows_is_a_table(spark: SparkSession, tmp_path: Path) -> None:
    """Deleting all rows of a Delta table is a normal commit: the next version has zero rows."""
    lake = Lake(tmp_path)
    write_deltalake(str(lake.uri), pa.table({"a": [1, 2], "p": ["x", "y"]}), partition_by=["p"])
    refreshed(lake.config(), spark)
    DeltaTable(lake.uri).delete()
    result = refreshed(lake.config(), spark)
    assert (result.version, result.fragments_removed, result.partitions_removed) == (2, 2, ("p=x", "p=y"))
    newest = lookup(lake.config())
    (row,) = newest.statistics(["a"])
    assert (newest.count().value, newest.partitions(), row.value_count, row.minimum) == (0, [], 0, None)
    assert newest.top("a") == []
    assert newest.histogram("a") == []
    write_deltalake(str(lake.uri), pa.table({"a": [3], "p": ["x"]}), mode="append")
    assert refreshed(lake.config(), spark).fragments_profiled == 1
    assert_equals_scratch(lake.config(), spark, tmp_path)


def test_a_column_that_no_file_has_is_all_null(spark: SparkSession, tmp_path: Path) -> None:
    """After a column is added to a Delta table, the next version counts a null in each row.

    The refresh reads no file.
    """
    lake = Lake(tmp_path)
    write_deltalake(str(lake.uri), pa.table({"a": [1, 2]}))
    refreshed(lake.config(), spark)
    DeltaTable(lake.uri).alter.add_columns([Field("new", "string")])
    assert refreshed(lake.config(), spark).fragments_profiled == 0
    newest = lookup(lake.config())
    for partition in (None, "all"):
        (row,) = newest.statistics(["new"], partition=partition)
        assert (row.value_count, row.null_count, row.distinct_count) == (0, 2, 0)
        assert newest.top("new", partition=partition) == []
    assert_equals_scratch(lake.config(), spark, tmp_path)


def test_a_policy_for_an_unknown_column_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    """The error about a policy for an unknown column names this column and the similar column `price`.

    The last version stays.
    """
    lake = Lake(tmp_path)
    lake.append(0)
    refreshed(lake.config(), spark)
    wrong = Lake(tmp_path, options={"columns": {"pirce": {"frequencies": "off"}}})
    with pytest.raises(ConfigError, match=r"'t'.*columns\.pirce.*'price'"):
        refresh(wrong.config(), wrong.table, no_spark)
    assert lookup(lake.config()).count().value == 50


def test_files_with_contradictory_columns_are_an_error(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.uri.mkdir()
    pq.write_table(pa.table({"a": [1, 2]}), lake.uri / "1.parquet")
    refreshed(lake.config(), spark)
    pq.write_table(pa.table({"a": ["x"]}), lake.uri / "2.parquet")
    with pytest.raises(TableFormatError, match=r"'a'.*int64.*1\.parquet.*string.*2\.parquet"):
        refresh(lake.config(), lake.table, no_spark)
    assert lookup(lake.config()).count().value == 2


def test_two_columns_of_one_name_are_an_error(spark: SparkSession, tmp_path: Path) -> None:
    """A refresh fails if a file has two columns of one name, instead of using the first column.

    The error names the file and the column.
    """
    lake = Lake(tmp_path)
    lake.uri.mkdir()
    twins = pa.Table.from_arrays([pa.array([1, 2]), pa.array([3, 4])], names=["a", "a"])
    pq.write_table(twins, lake.uri / "1.parquet")
    with pytest.raises(MetastoreError, match=r"1\.parquet.*'a'"):
        refreshed(lake.config(), spark)


def test_two_tables_of_one_name_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "metastore.yaml"
    path.write_text("root: ./m\ntables:\n- {name: a-b, uri: ./x}\n- {name: A_B, uri: ./y}\n")
    with pytest.raises(ConfigError, match=f"{path}.*'a-b'.*'A_B'"):
        load_config(path)


def test_columns_that_cannot_be_profiled_are_listed_as_absent(spark: SparkSession, tmp_path: Path) -> None:
    """Columns with unsupported types have a count of nulls, and a reason why other statistics are absent."""
    lake = Lake(tmp_path)
    lake.uri.mkdir()
    columns = {
        "good": pa.array([1, 2, None]),
        "duration": pa.array([1, None, 3], pa.duration("s")),
        "long_decimal": pa.array([1, 2, 3], pa.decimal256(50, 2)),
        "nothing": pa.nulls(3),
    }
    for number in range(2):
        pq.write_table(pa.table(columns), lake.uri / f"{number}.parquet")
    refreshed(lake.config(), spark)
    newest = {row.column: row for row in lookup(lake.config()).statistics()}
    assert list(newest) == list(columns)
    assert [newest[name].null_count for name in columns] == [2, 2, 0, 6]
    assert [newest[name].value_count for name in columns] == [4, 4, 6, 0]
    for name, reason in (("duration", "duration"), ("long_decimal", "38 digits")):
        assert newest[name].distinct_count_guarantee == "absent"
        assert newest[name].minimum is None
        assert reason in (newest[name].reason or "")
    assert_equals_scratch(lake.config(), spark, tmp_path)


def test_a_decimal_of_negative_scale_is_refused(tmp_path: Path) -> None:
    """If a Delta log declares a decimal type of negative scale, the error names the type.

    Neither Parquet nor Delta's protocol has such types.
    """
    lake = Lake(tmp_path)
    write_deltalake(str(lake.uri), pa.table({"a": pa.array([100], pa.decimal128(5, 0))}))
    log = lake.uri / "_delta_log" / f"{0:020}.json"
    log.write_text(log.read_text().replace("decimal(5,0)", "decimal(5,-2)"))
    with pytest.raises(TableFormatError, match=rf"{lake.uri}.*decimal\(5,-2\)"):
        refresh(lake.config(), lake.table, no_spark)


STRANGE = ["a/b", "50%", "x,y", "k=v", "two\nlines", "🦊", " ", "..", "...", "ä", "'\"`", "a\\b", "%2F", "*?[]", "all"]


@pytest.mark.long
def test_strange_partition_values_of_a_delta_table_are_unchanged(spark: SparkSession, tmp_path: Path) -> None:
    """Every partition value, including null, is unchanged after a refresh, a lookup and a delete.

    The result of the refresh after the delete has the value of the deleted partition.
    """
    lake = Lake(tmp_path)
    values = [*STRANGE, None]
    for number in range(2):
        table = pa.table({"p": pa.array(values, pa.string()), "n": range(len(values))})
        write_deltalake(str(lake.uri), table, partition_by=["p"], mode="append")
        refreshed(lake.config(), spark)
        assert partitions(lake.config()) == {(value,): number + 1 for value in values}
    DeltaTable(lake.uri).delete("p = '50%'")
    result = refreshed(lake.config(), spark)
    assert [decode_partition_key(key) for key in result.partitions_removed] == [(("p", "50%"),)]
    assert_equals_scratch(lake.config(), spark, tmp_path)


def test_an_empty_partition_value_of_a_delta_table_is_null(spark: SparkSession, tmp_path: Path) -> None:
    """An empty partition value of a Delta table is read as null, as Delta's protocol defines.

    Partitions and the number of nulls equal those of the rows that deltalake reads.
    """
    lake = Lake(tmp_path)
    table = pa.table({"p": pa.array(["", "x"], pa.string()), "n": [1, 2]})
    write_deltalake(str(lake.uri), table, partition_by=["p"])
    refreshed(lake.config(), spark)
    live = DeltaTable(lake.uri).to_pyarrow_table().to_pylist()
    assert partitions(lake.config()) == {(row["p"],): 1 for row in live}
    (row,) = lookup(lake.config()).statistics(["p"])
    assert row.null_count == sum(one["p"] is None for one in live)


def test_strange_partition_values_in_folders_are_unchanged(spark: SparkSession, tmp_path: Path) -> None:
    """Partition values in folder names of Hive and Spark are read unchanged.

    Folder names are percent-encoded. They have a special text for null, and nothing after `=` for an empty text.
    """
    lake = Lake(tmp_path)
    folders = {
        "p=a%2Fb": "a/b",
        "p=50%25": "50%",
        "p=x,y": "x,y",
        "p=k=v": "k=v",
        "p=two%0Alines": "two\nlines",
        "p=raw\nlines": "raw\nlines",
        "p=🦊": "🦊",
        "p= ": " ",
        "p=...": "...",
        "p=%2A": "*",
        "p=": "",
        "p=__HIVE_DEFAULT_PARTITION__": None,
        "p=all": "all",
    }
    for round_ in range(2):
        for folder in folders:
            (lake.uri / folder).mkdir(parents=True, exist_ok=True)
            pq.write_table(pa.table({"n": [round_]}), lake.uri / folder / f"{round_}.parquet")
        refreshed(lake.config(), spark)
        assert partitions(lake.config()) == {(value,): round_ + 1 for value in folders.values()}
    (row,) = lookup(lake.config()).statistics(["p"])
    assert (row.null_count, row.value_count, row.distinct_count) == (2, 2 * (len(folders) - 1), len(folders) - 1)
    assert_equals_scratch(lake.config(), spark, tmp_path)


def partitions(config: MetastoreConfig) -> dict[tuple[Any, ...], int]:
    """Return row counts by the values of the partition columns, asserting that lookups by key agree."""
    newest = lookup(config)
    row_counts = {}
    for entry in newest.partitions():
        values = tuple(value for _, value in decode_partition_key(entry.key))
        (row,) = newest.statistics(["n"], partition=entry.key)
        assert newest.count(partition=entry.key).value == row.value_count == entry.row_count
        (damaging,) = newest.statistics(["p"], partition=entry.key)
        assert (damaging.minimum.as_py() if damaging.minimum is not None else None) == values[0]
        row_counts[values] = entry.row_count
    return row_counts


def test_a_damaged_delta_log_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    write_deltalake(str(lake.uri), pa.table({"a": [1]}))
    refreshed(lake.config(), spark)
    log = lake.uri / "_delta_log" / f"{1:020}.json"
    log.write_text('{"add": {"path": ')
    with pytest.raises(TableFormatError, match=str(lake.uri)):
        refresh(lake.config(), lake.table, no_spark)
    assert lookup(lake.config()).count().value == 1


def test_a_recreated_delta_table_has_its_own_statistics(spark: SparkSession, tmp_path: Path) -> None:
    """A refresh of a recreated Delta table publishes the statistics of the new rows.

    It does so although both tables are at Delta version 0.
    """
    lake = Lake(tmp_path)
    write_deltalake(str(lake.uri), pa.table({"a": [1, 2, 3]}))
    refreshed(lake.config(), spark)
    lake.uri.rename(tmp_path / "dropped")
    write_deltalake(str(lake.uri), pa.table({"a": [10, 20]}))
    result = refreshed(lake.config(), spark)
    assert (result.published, result.snapshot) == (True, "0")
    assert lookup(lake.config()).count().value == 2
    assert versions(lake.config()).numbers() == [1, 2]
    assert json.loads((Path(lake.config().root) / "t" / "versions" / "2.json").read_text())["snapshot"] == "0"
