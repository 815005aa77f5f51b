"""Statistics of many partitions equal those of each single partition, after any commits.

Columns have their current names. The partition index has the statistics of most partitions in a few shared files. The
root is the folder with all stored state.
"""

from __future__ import annotations

import math
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from metastore_assets.errors import ColumnNotFoundError, PartitionNotFoundError
from metastore_assets.lookup import Table
from metastore_assets.metastore import Metastore
from metastore_assets.pipeline.engine import Engine
from metastore_assets.pipeline.partition_index import find_wrong_rows, plan_partition_index
from metastore_assets.store.entries import PARTITIONS, StoredEntries
from metastore_assets.store.entry_changes import EntryChanges
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.versions import VersionStore
from tests.lookup.publishing import publish

PARTS = {
    f"day=2024-01-{at:02}/region={'EU' if at % 2 else 'US%2FX'}": pa.table(
        {"n": list(range(at)), "t": [f"w{at}"] * at, "x": pa.array(([None, 0.5] + [1.5] * at)[:at], pa.float64())}
    )
    for at in range(1, 15)
}


@pytest.fixture(scope="module")
def published_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with a table of the partitions in `PARTS`, which tests copy."""
    root = tmp_path_factory.mktemp("made")
    publish(ObjectStore(str(root)), pa.concat_tables(PARTS.values()), partitions=PARTS)
    return root


@pytest.fixture
def root(published_root: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(published_root, tmp_path / "root"))


def published(root: Path) -> Table:
    return Metastore(str(root)).table("orders")


def one_by_one(table: Table, columns: list[str] | None = None, keys: list[str] | None = None) -> list[object]:
    result = [(key, row) for key in keys or PARTS for row in table.statistics(columns, partition=key)]
    return list(result)


def all_at_once(table: Table, columns: list[str] | None = None, partitions: object = "*") -> list[object]:
    result = table.statistics(columns, partition=partitions)  # type: ignore[arg-type]
    return [(row.partition, row) for row in result]


def test_statistics_of_partitions_equal_those_of_each_one(root: Path) -> None:
    table = published(root)
    for columns in (None, ["x"], ["t", "n"]):
        assert all_at_once(table, columns) == all_at_once(table, columns, "*") == one_by_one(table, columns)
    keys = [key for key in reversed(PARTS) if "EU" in key]
    assert all_at_once(table, ["n"], keys) == one_by_one(table, ["n"], keys)
    assert all_at_once(table, ["n"], "region=EU") == one_by_one(table, ["n"], sorted(keys))
    assert all_at_once(table, ["n"], ["day=2024-01-0*/region=US/X"[:-2] + "*"]) == one_by_one(
        table, ["n"], [key for key in PARTS if "01-0" in key and "US" in key]
    )
    assert table.statistics(["n"], partition="*").to_arrow()["partition"].to_pylist() == list(PARTS)
    with pytest.raises(PartitionNotFoundError, match="day=2023"):
        table.statistics(["n"], partition=["region=EU", "day=2023-*"])


def test_a_column_of_all_partitions_is_read_without_the_files_of_partitions(root: Path) -> None:
    """The statistics of a column in all partitions are read from the partition index only.

    They are the same after the statistics files of the partitions are deleted.
    """
    table = published(root)
    expected = all_at_once(table, ["n"])
    for entry in table.partitions():
        (root / "orders" / entry.files.statistics).unlink()
    assert all_at_once(Metastore(str(root)).table("orders"), ["n"]) == expected


def test_columns_have_current_names_and_new_ones_are_null(root: Path) -> None:
    table = published(root)
    schema = pa.schema(
        [
            pa.field("new", pa.int64(), metadata={"metastore.field_id": "9"}),
            pa.field("words", pa.string(), metadata={"metastore.field_id": "t"}),
            pa.field("n", pa.int64()),
        ]
    )
    versions = VersionStore(ObjectStore(str(root)), "orders")
    # The profile of this version lacks the new column, so only the renamed column is requested.
    versions.publish(replace(table.version, number=2, schema=schema))
    renamed_table = Metastore(str(root)).table("orders")
    before, after = all_at_once(table, ["t"]), all_at_once(renamed_table, ["words"])
    assert [replace(row, column="t", position=1) for _, row in after] == [row for _, row in before]  # type: ignore[type-var]
    assert {(row.column, row.position) for _, row in after} == {("words", 1)}  # type: ignore[attr-defined]


def test_a_few_changed_partitions_are_read_separately(root: Path) -> None:
    """If two partitions change and one is removed, the partition index gets no new file.

    The index lists the two changed partitions as not indexed. The statistics of all partitions still equal those of
    each single partition.
    """
    table = published(root)
    version = table.version
    assert version.partition_index is not None
    entries_before = version.partitions
    assert isinstance(entries_before, StoredEntries)
    keys = list(PARTS)
    relocated_files = {keys[0]: version.partitions[5].files, keys[3]: version.partitions[7].files}
    partitions = [
        replace(partition, files=relocated_files.get(partition.key, partition.files))
        for partition in version.partitions
        if partition.key != keys[9]
    ]
    update = plan_partition_index(
        _engine(),
        VersionStore(ObjectStore(str(root)), "orders").objects,
        3,
        version.partition_index,
        EntryChanges.between(PARTITIONS, entries_before, partitions),
    )
    assert update.key_count == 0
    files = update.write(True)
    assert files.files == version.partition_index.files
    assert [entry.key for entry in files.unindexed] == [keys[0], keys[3]]
    VersionStore(ObjectStore(str(root)), "orders").publish(
        replace(version, number=2, partitions=partitions, partition_index=files), version
    )
    now = Metastore(str(root)).table("orders")
    other_keys = [key for key in keys if key != keys[9]]
    assert all_at_once(now, ["t"]) == one_by_one(now, ["t"], other_keys)
    assert now.statistics(["t"], partition="*")[0].maximum.as_py() == "w6"  # type: ignore[union-attr]


def test_verify_reports_wrong_rows_of_a_partition(root: Path) -> None:
    version = published(root).version
    objects = VersionStore(ObjectStore(str(root)), "orders").objects
    assert list(find_wrong_rows(objects, version, PARTS)) == []
    one, other = version.partitions[4], version.partitions[11]
    objects.write(one.files.statistics, objects.read(other.files.statistics))
    assert {(key, column) for key, column, _ in find_wrong_rows(objects, version, PARTS)} == {
        (one.key, "n"),
        (one.key, "t"),
        (one.key, "x"),
    }
    assert list(find_wrong_rows(objects, version, [other.key])) == []


def test_rows_with_nan_are_equal_to_themselves(tmp_path: Path) -> None:
    """Every partition has the mean NaN, because its values contain infinities of both signs.

    Verification of the partition index reports no partition as wrong.
    """
    rows = pa.table({"x": [-math.inf, 1.0, math.inf]})
    parts = {f"day={at:02}": rows for at in range(12)}
    table = publish(ObjectStore(str(tmp_path)), pa.concat_tables(parts.values()), partitions=parts)
    assert all(math.isnan(row.mean) for row in table.statistics(partition="*"))  # type: ignore[arg-type]
    assert list(find_wrong_rows(VersionStore(ObjectStore(str(tmp_path)), "orders").objects, table.version, parts)) == []


def test_one_column_may_be_named_without_a_list(root: Path) -> None:
    """The columns of a request may be a list of names, or a text, which is the name of one column.

    Partitions that are named twice are returned once.
    """
    table = published(root)
    for answer in (table, table.filter("t is not null")):
        assert [row.column for row in answer.statistics("n")] == ["n"]
    with pytest.raises(ColumnNotFoundError, match="'nt'"):
        table.statistics("nt")
    keys = list(PARTS)
    for some_keys in (keys[:2], keys[:8]):
        assert [row.partition for row in table.statistics(["n"], partition=[*some_keys, *some_keys])] == some_keys


def test_verify_reports_missing_rows(root: Path) -> None:
    version = published(root).version
    objects = VersionStore(ObjectStore(str(root)), "orders").objects
    path = version.partitions[4].files.statistics
    full, answer = objects.read(path), objects.read_parquet(path)
    objects.write_parquet(path, answer.slice(1))
    entries = EntryChanges.between(PARTITIONS, None, version.partitions)
    files = plan_partition_index(_engine(), objects, 3, None, entries).write(True)
    objects.write(path, full)
    incomplete = replace(version, partition_index=files)
    column = answer["column"][0].as_py()
    assert list(find_wrong_rows(objects, incomplete, PARTS)) == [(version.partitions[4].key, column, "no row")]


def _engine() -> Engine:
    def none() -> object:
        raise AssertionError("this is little work")

    return Engine(none, "auto")  # type: ignore[arg-type]
