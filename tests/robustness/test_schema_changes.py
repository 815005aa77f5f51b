"""If columns are added, dropped, renamed, reordered or widened, no data file is read.

No partition is recomputed either. All answers equal those from scratch: those after a first refresh under an empty
root. A fragment is a data file with the deletes that apply to it. Merge nodes are stored merges of the statistics of
some fragments or partitions. A root is the folder with all stored state.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, LongType, NestedField, StringType

from metastore_assets.assets.metadata import TableDescription, profile_metadata
from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.lookup.json import columns_json
from metastore_assets.metastore import Metastore
from metastore_assets.report.summary import read_summary
from metastore_assets.store.version import Version
from tests.pipeline.file_lake import everything_on_spark, latest
from tests.robustness.delta_tables import DeltaMapped
from tests.robustness.histories import History, shuffled
from tests.robustness.iceberg_tables import IcebergCopyOnWrite
from tests.robustness.refresh_assertions import assert_equals_scratch, refreshed
from tests.robustness.statistics_assertions import assert_statistics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    # Warned by pyiceberg if a commit has nothing to delete.
    pytest.mark.filterwarnings("ignore:Delete operation did not match any records"),
]

_SCHEMA_STEPS = ("add_column", "drop_column", "reorder", "rename", "widen")


class _Evolving(History):
    """A random history of commits (steps) to a table, some of which drop or move a column.

    Subclasses override `_drop_column` and `_move_first` for their format. By default, these do nothing.
    """

    def drop_column(self) -> None:
        key = self.draw.choice([key for key in self.model.columns if key not in ("id", "n", "s", "p")] or [""])
        if key:
            self._drop_column(self.model.columns.pop(key)[0])

    def reorder(self) -> None:
        """Move a random column to the first position."""
        key = self.draw.choice(list(self.model.columns))
        self._move_first(self.model.columns[key][0])
        self.model.columns = {key: self.model.columns[key], **self.model.columns}

    def _drop_column(self, name: str) -> None:
        pass

    def _move_first(self, name: str) -> None:
        pass


class EvolvingDelta(_Evolving, DeltaMapped):
    steps: ClassVar = ("append", "delete", "compact", "restore", *_SCHEMA_STEPS)

    def take(self, step: str) -> None:
        before = self._metadata()
        super().take(step)
        if step in ("drop_column", "reorder") and self._metadata() != before:
            self.commit_schema()

    def commit_schema(self) -> None:
        from tests.formats.delta.log_writer import commit

        commit(self.uri, self._metadata())


class EvolvingIceberg(_Evolving, IcebergCopyOnWrite):
    steps: ClassVar = ("append", "delete", "compact", *_SCHEMA_STEPS)

    def _drop_column(self, name: str) -> None:
        with self.table.update_schema() as update:
            update.delete_column(name)

    def _move_first(self, name: str) -> None:
        with self.table.update_schema() as update:
            update.move_first(name)


@pytest.mark.parametrize(
    ("kind", "seed", "length"),
    [
        (EvolvingDelta, 0, 7),
        *(
            pytest.param(kind, seed, 16, marks=pytest.mark.long)
            for kind in (EvolvingDelta, EvolvingIceberg)
            for seed in range(12)
        ),
    ],
)
def test_answers_after_any_schema_changes_equal_those_from_scratch(
    spark: SparkSession, tmp_path: Path, kind: type[_Evolving], seed: int, length: int
) -> None:
    history = kind(tmp_path, seed)
    config = history.config()
    refreshed(config, spark)
    for step in shuffled(history, length):
        before = latest(config)
        history.take(step)
        result = refreshed(config, spark)
        assert_statistics(Metastore(config.root).table("t"), history.live(), step)
        if step in _SCHEMA_STEPS:
            assert (result.fragments_profiled, result.partitions_changed) == (0, ()), step
            assert _files(latest(config)) == _files(before), step
        if length > 7:
            assert_equals_scratch(config, spark, tmp_path)
    with everything_on_spark():
        assert_equals_scratch(config, spark, tmp_path)


def _files(version: Version) -> dict[str, Any]:
    return {entry.key: entry.files for entry in version.partitions}


def _written(root: Path) -> set[str]:
    """Return the stored files of partitions, fragments, and merge nodes."""
    return {
        str(path.relative_to(root))
        for folder in ("partitions", "fragments", "nodes")
        for path in (root / "t" / folder).glob("*")
    }


@pytest.mark.parametrize("count", [16, pytest.param(200, marks=pytest.mark.long)])
def test_schema_changes_write_no_files_of_partitions(spark: SparkSession, tmp_path: Path, count: int) -> None:
    """A refresh after schema changes writes no file of partitions, fragments or merge nodes.

    The changes are a rename, an addition and a reordering. The data files are moved away during this refresh. Answers
    equal those from scratch, also after the next commit.
    """
    catalog = SqlCatalog("c", uri="sqlite://", warehouse=tmp_path.as_uri())
    catalog.create_namespace("n")
    fields = [NestedField(1, "p", StringType()), NestedField(2, "x", LongType()), NestedField(3, "y", DoubleType())]
    table = catalog.create_table(
        "n.t",
        Schema(*fields),
        location=(tmp_path / "lake").as_uri(),
        partition_spec=PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "p")),
    )
    keys = [f"{one % count:03}" for one in range(3 * count)]
    rows = pa.table({"p": keys, "x": range(3 * count), "y": [one / 7 for one in range(3 * count)]})
    table.append(rows)
    table.append(rows.slice(0, 10))
    config = MetastoreConfig(root=str(tmp_path / "root"), tables=[TableConfig(name="t", uri=str(tmp_path / "lake"))])
    refreshed(config, spark)
    root, before = Path(config.root), latest(config)
    written_files = _written(root)

    with table.update_schema() as update:
        update.rename_column("x", "renamed")
        update.add_column("added", StringType())
        update.move_first("y")
    data = tmp_path / "lake" / "data"
    data.rename(tmp_path / "away")
    result = refreshed(config, spark)
    (tmp_path / "away").rename(data)
    assert (result.published, result.fragments_profiled, result.partitions_changed) == (True, 0, ())
    assert (_files(latest(config)), _written(root)) == (_files(before), written_files)

    assert_equals_scratch(config, spark, tmp_path)
    incremental, scratch = (Metastore(str(folder)).table("t") for folder in (root, tmp_path / "scratch"))
    assert [row.column for row in incremental.statistics(partition="p=007")] == ["y", "p", "renamed", "added"]
    added_column = incremental.statistics(["added"], partition="p=007")[0]
    assert (added_column.value_count, added_column.null_count, added_column.frequencies) == (
        0,
        incremental.count(partition="p=007").value,
        "enumerated",
    )
    assert incremental.top("added", partition="p=007") == []
    for key in (None, "p=007", "p=015"):
        shown_columns = [columns_json(one.version, one.statistics(partition=key)) for one in (incremental, scratch)]
        assert shown_columns[0] == shown_columns[1]
        pictures = [
            profile_metadata("statistics", TableDescription(read_summary(one, key, 5), "t", one.version.schema), [])
            for one in (incremental, scratch)
        ]
        assert pictures[0] == pictures[1]

    # The next commit computes the partition that it changes, which has the column then, and no other.
    table.append(pa.table({"y": [0.5], "p": ["007"], "renamed": [7], "added": ["new"]}))
    result = refreshed(config, spark)
    assert (result.fragments_profiled, result.partitions_changed) == (1, ("p=007",))
    assert incremental.version.number < latest(config).number
    assert_equals_scratch(config, spark, tmp_path)
    assert [str(v) for v, _ in Metastore(config.root).table("t").top("added")] == ["new"]
