"""`verify` accepts what was published, and finds every number that was changed since."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metastore_assets.errors import MetastoreError, PartitionNotFoundError, VersionNotFoundError
from metastore_assets.pipeline.profile_spec import ProfileSpec
from metastore_assets.pipeline.profiles.states_reader import StatesReader
from metastore_assets.pipeline.refresh import refresh
from metastore_assets.pipeline.verification import profile_differences
from metastore_assets.pipeline.verification.verify import Verification, VerificationScope, verify
from metastore_assets.produce import Delta
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.sections import SectionReader, SectionWriter
from metastore_assets.store.version import ProfileFiles
from metastore_assets.store.versions import VersionStore
from metastore_assets.value_counts import read_value_counts, value_count_dataflow, write_value_counts
from tests.pipeline.file_lake import Lake, latest
from tests.pipeline.test_refresh import no_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    """A refreshed table of three partitions, of one, two and three files.

    The third file of the last partition was appended after a first refresh.
    """
    lake = Lake(tmp_path, random.Random(9))
    for partition in (1, 2, 2, 3, 3):
        lake.append(partition)
    refresh(lake.config(), lake.table, lambda: spark)
    lake.append(3)
    refresh(lake.config(), lake.table, lambda: spark)
    return lake


def verified(spark: SparkSession, lake: Lake, **options: Any) -> Verification:
    before = sorted(Path(lake.config().root).rglob("*"))
    result = verify(lake.config(), lake.table, lambda: spark, VerificationScope(**options))
    remaining = {path for path in Path(lake.config().root).rglob("*") if path.is_file()}
    assert remaining == {path for path in before if path.is_file()}
    assert list((Path(lake.config().root) / "t" / "verify").glob("*")) == []
    return result


def changed(lake: Lake, path: str, change: Callable[[pa.Table], pa.Table]) -> None:
    """Apply `change` to each row group of a stored file.

    The file's schema and metadata stay.
    """
    file_path = Path(lake.config().root) / "t" / path
    file = pq.ParquetFile(file_path)
    groups = [change(file.read_row_group(at)) for at in range(file.num_row_groups)]
    with pq.ParquetWriter(file_path, file.schema_arrow) as writer:
        for group in groups:
            writer.write_table(group.cast(file.schema_arrow))


def with_column(table: pa.Table, name: str, values: list[Any]) -> pa.Table:
    at = table.schema.get_field_index(name)
    return table.set_column(at, name, pa.array(values, table.schema.field(name).type))


def test_verify_finds_no_difference_in_a_published_version(spark: SparkSession, lake: Lake) -> None:
    result = verified(spark, lake)
    assert result.is_right, result.differences
    assert (result.fragments, result.partitions, result.complete, result.skipped_partitions) == (6, 3, True, 0)
    one = verified(spark, lake, partitions=("part=2",))
    assert (one.is_right, one.fragments, one.partitions, one.complete) == (True, 2, 1, False)
    some = verified(spark, lake, sample=4)
    assert (some.is_right, some.fragments, some.partitions, some.complete) == (True, 4, 0, False)


def test_verify_finds_no_difference_after_schema_changes(spark: SparkSession, tmp_path: Path) -> None:
    """Between commits, two columns are added and one is widened.

    `verify` finds no difference, although merges round: the skewness of the column `even` is not exactly zero.
    """
    lake = Lake(tmp_path, random.Random(3))
    ends = [0.1, 0.3, 0.7, 1.1]
    narrow = pa.table({"n": pa.array(range(8), pa.int32()), "even": [-end for end in ends] + ends})
    wide = narrow.set_column(0, "n", narrow["n"].cast(pa.int64())).append_column("added", [["a", "b"] * 4])
    wide = wide.append_column("several", pa.array([[1, None]] * 8, pa.list_(pa.int64())))
    for number, rows in enumerate((narrow, narrow.slice(2, 4), wide, wide.slice(1, 6), wide)):
        folder = tmp_path / "lake" / f"part={number // 2}"
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows, folder / f"{number}.parquet")
        refresh(lake.config(), lake.table, lambda: spark)
    result = verified(spark, lake)
    assert result.is_right, result.differences
    assert (result.fragments, result.partitions) == (5, 3)


def test_changed_statistics_are_reported(spark: SparkSession, lake: Lake) -> None:
    def one_more(table: pa.Table) -> pa.Table:
        names, counts = table["column"].to_pylist(), table["null_count"].to_pylist()
        return with_column(table, "null_count", [n + (c == "day") for c, n in zip(names, counts, strict=True)])

    changed(lake, latest(lake.config()).files.statistics, one_more)
    (difference,) = verified(spark, lake).differences
    assert (difference.level, difference.difference.column, difference.difference.statistic) == (
        "table",
        "day",
        "null_count",
    )
    assert int(difference.difference.stored) == int(difference.difference.computed) + 1


def test_changed_value_counts_of_a_partition_are_reported(spark: SparkSession, lake: Lake) -> None:
    (partition,) = [partition for partition in latest(lake.config()).partitions if partition.key == "part=3"]

    store = ObjectStore(lake.config().root).child("t")
    (path,) = partition.files.frequencies
    with SectionReader(store, path) as reader:
        lists = {name: reader.read_section(name) for name in reader.sections}
    counts = lists["group"]["frequency"].to_pylist()
    lists["group"] = with_column(lists["group"], "frequency", [counts[0] + 1, *counts[1:]])
    with SectionWriter(store, path, lists["group"].schema) as writer:
        for name, table in lists.items():
            writer.write_section(name, table)
    result = verified(spark, lake)
    assert ("partition", "part=3", "group", "frequencies") in {
        (difference.level, difference.name, difference.difference.column, difference.difference.statistic)
        for difference in result.differences
    }
    assert not verified(spark, lake, partitions=("part=3",)).is_right
    assert verified(spark, lake, partitions=("part=1",)).is_right


def test_changed_value_counts_of_the_table_are_reported(spark: SparkSession, lake: Lake) -> None:
    version = latest(lake.config())
    store = ObjectStore(lake.config().root).child("t")
    lists = read_value_counts(store, version.value_counts)
    classes = set(lists.columns.values())
    one = pa.table({"column": ["group"], "value": pa.array(["a"], pa.large_string()), "frequency": [1]})
    state = value_count_dataflow(store, classes).step(lists.flow, {"deltas.string": [Delta(one)]})
    wrong = write_value_counts(store, replace(lists, flow=state))
    VersionStore(ObjectStore(lake.config().root), "t").publish(replace(version, number=3, value_counts=wrong), version)
    difference, *is_derivable = verified(spark, lake).differences
    assert (difference.level, difference.difference.column, difference.difference.statistic) == (
        "table",
        "group",
        "frequencies",
    )
    assert difference.difference.stored.startswith("a: ")
    assert {each.difference.column for each in is_derivable} == {"group"}
    assert {each.difference.statistic for each in is_derivable} == {"order by frequency", "counts by frequency"}


def test_a_missing_stored_file_is_reported(spark: SparkSession, lake: Lake) -> None:
    removed_entry = next(entry for entry in latest(lake.config()).fragments if entry.partition_key == "part=2")
    path = next(removed_entry.files.paths())
    (Path(lake.config().root) / "t" / path).unlink()
    result = verified(spark, lake, partitions=("part=2",))
    assert "fragment" in {difference.level for difference in result.differences}
    assert path in result.differences[0].difference.stored


def test_the_states_of_each_profile_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The states of a profile that a partition shares with its only data file are read and compared once.

    A profile is the stored statistics of a data file, a partition or the table. A state is the form of a statistic that
    can be merged.
    """
    lake = Lake(tmp_path, random.Random(9))
    for partition in range(3):
        lake.append(partition)
    config = lake.config().model_copy(update={"engine": "auto"})
    refresh(config, lake.table, no_spark)
    read_states, read_paths = profile_differences.read_states, list[str]()

    def record_path(reader: StatesReader, files: ProfileFiles, spec: ProfileSpec) -> tuple[int, pa.Table]:
        read_paths.append(reader.store.uri(files.statistics))
        return read_states(reader, files, spec)

    monkeypatch.setattr(profile_differences, "read_states", record_path)
    assert verify(config, lake.table, no_spark, VerificationScope()).is_right
    assert len(read_paths) == len(set(read_paths)) == 2 * 3


def test_changed_partitions_are_skipped(spark: SparkSession, lake: Lake) -> None:
    next(iter((lake.uri / "part=2").iterdir())).unlink()
    lake.append(1)
    result = verified(spark, lake)
    assert (result.is_right, result.partitions, result.skipped_partitions, result.complete) == (True, 2, 1, False)


def test_a_verification_that_cannot_run_says_why(spark: SparkSession, lake: Lake) -> None:
    with pytest.raises(PartitionNotFoundError, match="part=9"):
        verified(spark, lake, partitions=("part=9",))
    lake.options["columns"] = {"group": {"histogram": "off", "frequencies": "off"}}
    with pytest.raises(MetastoreError, match=r"policies.*version 2\b"):
        verified(spark, lake)
    with pytest.raises(VersionNotFoundError, match=r"'t'.*elsewhere"):
        verify(lake.config("elsewhere"), lake.table, lambda: spark)
