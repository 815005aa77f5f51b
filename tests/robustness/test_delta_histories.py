"""After compactions, restores and schema changes of Delta tables, refreshes read no file again.

The statistics (profiles) of files that an earlier refresh has read are still stored.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from metastore_assets.metastore import Metastore
from metastore_assets.pipeline.outcome import RefreshResult
from metastore_assets.pipeline.refresh import refresh
from tests.formats.delta.log_writer import add_file, commit, mapped, metadata, protocol
from tests.pipeline.file_lake import Lake, assert_same, everything
from tests.robustness.delta_tables import DeltaMapped
from tests.robustness.refresh_assertions import assert_equals_scratch, no_spark, refreshed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_a_compaction_changes_no_other_files(spark: SparkSession, tmp_path: Path) -> None:
    """After a compaction, a refresh reads only the file that the compaction wrote.

    No partition is recomputed, because the rows are the same.
    """
    lake = Lake(tmp_path)
    for number in range(6):
        rows = pa.table({"n": [number] * 5, "p": ["x", "x", "y", "y", "y"]})
        write_deltalake(str(lake.uri), rows, partition_by=["p"], mode="append")
    refreshed(lake.config(), spark)
    before = everything(lake.config())
    DeltaTable(lake.uri).optimize.compact(partition_filters=[("p", "=", "x")])
    result = refreshed(lake.config(), spark)
    assert (result.fragments_added, result.fragments_removed, result.fragments_unchanged) == (1, 6, 6)
    assert (result.fragments_profiled, result.partitions_changed) == (1, ())
    assert_same(everything(lake.config()), before)


def test_a_restore_reads_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """After a table is restored to an older version, a refresh reads no data file.

    The profiles of the files of the older version are still stored, whatever was committed after it.
    """
    lake = Lake(tmp_path)
    write_deltalake(str(lake.uri), pa.table({"n": list(range(20)), "p": ["x", "y"] * 10}), partition_by=["p"])
    write_deltalake(str(lake.uri), pa.table({"n": [1, 2], "p": ["x", "z"]}), mode="append")
    refreshed(lake.config(), spark)
    before = everything(lake.config())
    changes: list[Callable[[DeltaTable], object]] = [
        lambda table: table.delete("p = 'y'"),
        lambda table: table.optimize.compact(),
        lambda table: table.update(predicate="n > 3", updates={"n": "n + 100"}),
        lambda table: write_deltalake(table, pa.table({"n": [7], "p": ["q"]}), mode="overwrite"),
    ]
    for change in changes:
        change(DeltaTable(lake.uri))
        refreshed(lake.config(), spark)
    DeltaTable(lake.uri).restore(1)
    result = refreshed(lake.config(), spark)
    assert (result.fragments_profiled, result.partitions_total) == (0, 3)
    assert_same(everything(lake.config()), before)


class Mapped:
    """A Delta table with column mapping, so that renaming or dropping a column commits no files."""

    def __init__(self, folder: Path, mode: str) -> None:
        self.lake = Lake(folder)
        self._mode = mode
        self._commit(("id", 1), ("name", 2), ("kind", 3), first=True)

    def append(self, number: int, **columns: Any) -> None:
        data = pa.table(columns)
        ids = [pa.field(name, data[name].type, metadata={"PARQUET:field_id": name[1:]}) for name in columns]
        data = data.cast(pa.schema(ids))
        commit(self.lake.uri, add_file(self.lake.uri, data, f"{number}.parquet", p3=f"k{number}"))

    def alter(self, *columns: tuple[str, int]) -> RefreshResult:
        self._commit(*columns)
        return refresh(self.lake.config(), self.lake.table, self.spark)

    spark: Callable[[], SparkSession] = staticmethod(no_spark)

    def _commit(self, *columns: tuple[str, int], first: bool = False) -> None:
        kinds = {1: "long", 2: "string", 3: "string", 4: "long"}
        fields = [mapped(name, kinds[number], number) for name, number in columns]
        partition = next(name for name, number in columns if number == 3)
        configuration = {"delta.columnMapping.mode": self._mode, "delta.columnMapping.maxColumnId": "4"}
        actions = [protocol("columnMapping")] if first else []
        commit(self.lake.uri, *actions, metadata(fields, [partition], **configuration))


@pytest.mark.parametrize("mode", ["name", "id"])
def test_renamed_dropped_and_moved_columns_read_nothing(spark: SparkSession, tmp_path: Path, mode: str) -> None:
    """After columns are renamed, swapped, reordered, dropped or added, a refresh reads no data file.

    Profiles are stored by column id. Names, order and dropped columns matter only when profiles are merged.
    """
    table = Mapped(tmp_path, mode)
    table.spark = lambda: spark
    config = table.lake.config()
    for number in range(2):
        table.append(number, p1=[number, 7, None], p2=["x", "y", f"{number}"])
    refreshed(config, spark)
    assert version_summary(config) == {"id": (4, "0", "7"), "name": (6, "0", "y"), "kind": (6, "k0", "k1")}
    rename_result = table.alter(("id", 1), ("label", 2), ("kind", 3))
    assert (rename_result.published, rename_result.fragments_profiled) == (True, 0)
    assert version_summary(config) == {"id": (4, "0", "7"), "label": (6, "0", "y"), "kind": (6, "k0", "k1")}
    swap_result = table.alter(("label", 1), ("id", 2), ("kind", 3))
    assert swap_result.fragments_profiled == 0
    assert version_summary(config) == {"label": (4, "0", "7"), "id": (6, "0", "y"), "kind": (6, "k0", "k1")}
    reordering_result = table.alter(("kind", 3), ("id", 2), ("label", 1))
    assert reordering_result.fragments_profiled == 0
    assert list(version_summary(config)) == ["kind", "id", "label"]
    drop_result = table.alter(("kind", 3), ("label", 1))
    assert drop_result.fragments_profiled == 0
    assert version_summary(config) == {"kind": (6, "k0", "k1"), "label": (4, "0", "7")}
    addition_result = table.alter(("kind", 3), ("label", 1), ("id", 4))
    assert addition_result.fragments_profiled == 0, "a new column of an old name: no file has it"
    assert version_summary(config) == {"kind": (6, "k0", "k1"), "label": (4, "0", "7"), "id": (0, None, None)}
    table.append(2, p1=[1], p4=[5])
    assert refreshed(config, spark).fragments_profiled == 1
    assert version_summary(config) == {"kind": (7, "k0", "k2"), "label": (5, "0", "7"), "id": (1, "5", "5")}
    partition = table.alter(("sort", 3), ("label", 1), ("id", 4))
    assert partition.fragments_profiled == 0
    assert set(partition.partitions_changed) == {"sort=k0", "sort=k1", "sort=k2"}
    assert_equals_scratch(config, spark, tmp_path)


def test_a_widened_column_reads_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """After a column is widened, a refresh reads no file.

    Statistics of the narrower values, including sizes in bytes, are valid for the wider type.
    """
    history = DeltaMapped(tmp_path, 0)
    refreshed(history.config(), spark)
    history.take("widen")
    assert refreshed(history.config(), spark).fragments_profiled == 0
    assert_equals_scratch(history.config(), spark, tmp_path)


def version_summary(config: Any) -> dict[str, tuple[int, str | None, str | None]]:
    """Return value count and bounds of each column."""
    return {
        row.column: (row.value_count, row.minimum and str(row.minimum), row.maximum and str(row.maximum))
        for row in Metastore(config.root).table("t").statistics()
    }
