"""Commits that only move rows change no statistics; commits that change a row do."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metastore_assets.pipeline.plan import RefreshRequest
from metastore_assets.pipeline.refresh import RefreshResult, refresh
from metastore_assets.store.version import Version
from tests.pipeline.file_lake import Lake, assert_same, everything, latest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def files_of(version: Version) -> list[str]:
    return [*version.files.paths(), *(path for entry in version.partitions for path in entry.files.paths())]


def rewritten(lake: Lake, partition: int, table: pa.Table, parts: int = 1) -> None:
    """Replace the partition's files by `parts` files that have the rows of `table`."""
    folder = lake.uri / f"part={partition}"
    for path in folder.iterdir():
        path.unlink()
    for at in range(parts):
        lake.written += 1
        part = table.slice(at * len(table) // parts, (at + 1) * len(table) // parts - at * len(table) // parts)
        pq.write_table(part, folder / f"{lake.written}.parquet")


def read_partition(lake: Lake, partition: int) -> pa.Table:
    files = sorted((lake.uri / f"part={partition}").iterdir())
    return pa.concat_tables([pq.read_table(path, partitioning=None) for path in files])


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake(tmp_path, random.Random(5))
    for partition in (1, 1, 1, 2, 2):
        lake.append(partition)
    return lake


def shuffled(table: pa.Table, seed: int = 3) -> pa.Table:
    order = list(range(len(table)))
    random.Random(seed).shuffle(order)
    return table.take(order)


@pytest.mark.parametrize("parts", [1, 4])
def test_rewritten_files_with_the_same_rows_reuse_profiles(spark: SparkSession, lake: Lake, parts: int) -> None:
    def run() -> RefreshResult:
        return refresh(lake.config(), lake.table, lambda: spark)

    run()
    before = latest(lake.config())
    rewritten(lake, 1, shuffled(read_partition(lake, 1)), parts)
    result = run()
    after = latest(lake.config())
    assert (result.published, result.partitions_changed) == (True, ())
    assert (result.fragments_added, result.fragments_removed) == (parts, 3)
    assert after.content_id == before.content_id
    assert files_of(after) == files_of(before)
    assert after.bytes == sum(path.stat().st_size for path in lake.files())
    assert [entry.fragments for entry in after.partitions] == [parts, 2]
    # The profiles of the new files are correct as well: the next commits depend on them.
    again = run()
    assert not again.published
    lake.append(1)
    assert run().partitions_changed == ("part=1",)
    refresh(lake.config("scratch"), lake.table, lambda: spark)
    assert_same(everything(lake.config()), everything(lake.config("scratch")))


def test_one_changed_value_is_detected(spark: SparkSession, lake: Lake) -> None:
    refresh(lake.config(), lake.table, lambda: spark)
    before = latest(lake.config())
    table = read_partition(lake, 1)
    texts = table["group"].to_pylist()
    at = texts.index("a")
    texts[at] = "zz"
    rewritten(lake, 1, table.set_column(1, "group", pa.array(texts)))
    result = refresh(lake.config(), lake.table, lambda: spark)
    after = latest(lake.config())
    assert result.partitions_changed == ("part=1",)
    assert after.content_id != before.content_id
    refresh(lake.config("scratch"), lake.table, lambda: spark)
    assert_same(everything(lake.config()), everything(lake.config("scratch")))


def test_changed_list_lengths_are_detected(spark: SparkSession, lake: Lake) -> None:
    """A partition has changed if its lists have other lengths, even with the same elements.

    Examples are [x, x], [] and [x], [x].
    """
    table = read_partition(lake, 1).slice(0, 2)
    rewritten(lake, 1, table.set_column(5, "tags", pa.array([["x"], ["x"]], pa.list_(pa.string()))))
    refresh(lake.config(), lake.table, lambda: spark)
    rewritten(lake, 1, table.set_column(5, "tags", pa.array([["x", "x"], []], pa.list_(pa.string()))))
    assert refresh(lake.config(), lake.table, lambda: spark).partitions_changed == ("part=1",)


def test_requested_partitions_are_merged_even_if_only_rewritten(spark: SparkSession, lake: Lake) -> None:
    refresh(lake.config(), lake.table, lambda: spark)
    rewritten(lake, 1, read_partition(lake, 1))
    result = refresh(lake.config(), lake.table, lambda: spark, RefreshRequest(partitions=("part=1",)))
    assert result.partitions_changed == ("part=1",)
