"""Tables and roots in an object store, through Spark, give the same results as on local disk.

A root is the folder with all stored state. A fragment is a data file with the deletes that apply to it, and its profile
is the statistics of its rows. The value counts of a column are its distinct values with the frequency of each. Merge
nodes are stored merges of the profiles of some fragments or partitions. A version is the published statistics of a
table at one snapshot.
"""

from __future__ import annotations

import random
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.errors import StoreError, TableNotFoundError
from metastore_assets.formats import decode_partition_key
from metastore_assets.lookup import Table
from metastore_assets.metastore import Metastore
from metastore_assets.pipeline.refresh import refresh
from tests.formats.s3_proxy import counted
from tests.formats.table_writers import parquet_bytes
from tests.pipeline.file_lake import Lake, assert_same, everything, rows
from tests.robustness.refresh_assertions import assert_equals_scratch, from_scratch, no_spark, refreshed, versions
from tests.robustness.refresh_processes import Drivers
from tests.robustness.test_races import once

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.s3]

BUCKET = "metastore"


@dataclass
class Bucket:
    """A new prefix in a bucket, for a table and a root."""

    options: dict[str, str]
    client: Any
    prefix: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def uri(self) -> str:
        return f"s3://{BUCKET}/{self.prefix}/lake"

    def config(self, root: str = "root") -> MetastoreConfig:
        table = TableConfig(name="t", uri=self.uri, storage_options=self.options)
        return MetastoreConfig(root=f"s3://{BUCKET}/{self.prefix}/{root}", storage_options=self.options, tables=[table])

    def put(self, path: str, data: bytes) -> None:
        self.client.put_object(Bucket=BUCKET, Key=f"{self.prefix}/lake/{path}", Body=data)

    def delete(self, path: str) -> None:
        self.client.delete_object(Bucket=BUCKET, Key=f"{self.prefix}/lake/{path}")

    def paths(self) -> Iterator[str]:
        listing = self.client.list_objects_v2(Bucket=BUCKET, Prefix=f"{self.prefix}/lake/")
        for entry in listing.get("Contents", ()):
            yield entry["Key"].removeprefix(f"{self.prefix}/lake/")

    def mirror(self, lake: Lake) -> None:
        """Make the table in the bucket have the same files as a local one."""
        files = {str(path.relative_to(lake.uri)): path for path in lake.files()}
        for path in set(self.paths()) - set(files):
            self.delete(path)
        for path, file in files.items():
            if path not in set(self.paths()):
                self.put(path, file.read_bytes())


@pytest.fixture
def bucket(s3_options: dict[str, str]) -> Bucket:
    client = boto3.client(
        "s3",
        endpoint_url=s3_options["aws_endpoint"],
        region_name=s3_options["aws_region"],
        aws_access_key_id=s3_options["aws_access_key_id"],
        aws_secret_access_key=s3_options["aws_secret_access_key"],
    )
    return Bucket(s3_options, client)


def lookup(config: MetastoreConfig) -> Table:
    return Metastore(config.root, storage_options=config.storage_options).table("t")


def test_files_and_root_in_a_bucket_equal_local_ones(spark: SparkSession, tmp_path: Path, bucket: Bucket) -> None:
    """Each version in a bucket equals one computed on local disk from the same files.

    The second refresh profiles only the new file, and a third one publishes nothing.
    """
    lake = Lake(tmp_path)
    for partition in (0, 0, 1, 2):
        lake.append(partition)
    bucket.mirror(lake)
    config = bucket.config()
    first = refreshed(config, spark)
    assert (first.version, first.fragments_profiled) == (1, 4)
    assert_same(everything(config), from_scratch(lake.config(), spark, tmp_path))

    lake.append(0)
    lake.files()[-1].unlink()
    bucket.mirror(lake)
    second = refreshed(config, spark)
    assert (second.version, second.fragments_profiled, second.fragments_removed) == (2, 1, 1)
    assert second.partitions_removed == ("part=2",)
    assert_same(everything(config), from_scratch(lake.config(), spark, tmp_path))

    again = refresh(config, config.tables[0], no_spark)
    assert (again.version, again.published) == (2, False)
    newest = lookup(config)
    assert newest.count().value == 200
    assert sum(count for _, count in newest.top("group")) == newest.statistics(["group"])[0].value_count
    assert sum(one.frequency for one in newest.histogram("id", bins=10)) == newest.statistics(["id"])[0].value_count
    assert Metastore(config.root, storage_options=config.storage_options).version_numbers("t") == (1, 2)


@pytest.mark.long
def test_a_delta_table_in_a_bucket_is_refreshed(spark: SparkSession, tmp_path: Path, bucket: Bucket) -> None:
    config = bucket.config()
    draw = Lake(tmp_path).draw

    def write(count: int) -> None:
        write_deltalake(
            bucket.uri, rows(draw, count), partition_by=["group"], mode="append", storage_options=bucket.options
        )

    write(60)
    write(60)
    assert refreshed(config, spark).version == 1
    table = DeltaTable(bucket.uri, storage_options=bucket.options)
    table.delete("\"group\" = 'a'")
    write(5)
    second = refreshed(config, spark)
    assert (second.version, second.snapshot) == (2, "3")
    assert_equals_scratch(config, spark, tmp_path)
    live = DeltaTable(bucket.uri, storage_options=bucket.options).to_pyarrow_table()
    assert lookup(config).count().value == live.num_rows
    table = DeltaTable(bucket.uri, storage_options=bucket.options)
    table.restore(1)
    restore_result = refreshed(config, spark)
    assert (restore_result.version, restore_result.fragments_profiled) == (3, 0)
    assert lookup(config).count().value == 120
    assert refresh(config, config.tables[0], no_spark).published is False


@pytest.mark.long
def test_one_of_two_processes_publishes_to_a_bucket(
    spark: SparkSession, tmp_path: Path, bucket: Bucket, drivers: Drivers
) -> None:
    """Two processes are about to publish the same version.

    The bucket's conditional put accepts one of them.
    """
    lake = Lake(tmp_path)
    lake.append(0)
    lake.append(1)
    for number in (1, 2):
        bucket.mirror(lake)
        outcomes = drivers.together([bucket.config()] * 2, "--meet=2")
        results = [outcome.answer["result"] for outcome in outcomes]
        assert [result["version"] for result in results] == [number, number]
        assert sorted(result["published"] for result in results) == [False, True]
        assert versions(bucket.config()).numbers() == list(range(1, number + 1))
        lake.append(0)
    assert_equals_scratch(bucket.config(), spark, tmp_path)


def test_an_object_overwritten_before_it_is_read_causes_a_new_plan(
    spark: SparkSession, tmp_path: Path, bucket: Bucket
) -> None:
    """If a data file is overwritten after planning and before it is read, the refresh plans again.

    The overwritten object has another ETag. The published statistics are those of the new content.
    """
    bucket.put("1.parquet", parquet_bytes(a=[1, 2]))
    bucket.put("2.parquet", parquet_bytes(a=[3]))
    config = bucket.config()
    overwrite = once("profile", lambda: bucket.put("1.parquet", parquet_bytes(a=[7, 8, 9])))
    assert refreshed(config, spark, progress=overwrite).published
    assert lookup(config).count().value == 4
    assert_equals_scratch(config, spark, tmp_path)


def test_strange_partition_values_in_keys(spark: SparkSession, bucket: Bucket) -> None:
    folders = {
        "p=a%2Fb": "a/b",
        "p=50%25": "50%",
        "p=x,y": "x,y",
        "p=k=v": "k=v",
        "p=two%0Alines": "two\nlines",
        "p=🦊": "🦊",
        "p=a b": "a b",
        "p=": "",
        "p=__HIVE_DEFAULT_PARTITION__": None,
    }
    for folder in folders:
        bucket.put(f"{folder}/1.parquet", parquet_bytes(n=[1]))
    refreshed(bucket.config(), spark)
    newest = lookup(bucket.config())
    row_counts = {
        decode_partition_key(entry.key)[0][1]: newest.count(partition=entry.key).value for entry in newest.partitions()
    }
    assert row_counts == dict.fromkeys(folders.values(), 1)


def test_a_missing_bucket_is_named(bucket: Bucket, tmp_path: Path) -> None:
    """If the bucket of the root or of the table is missing, the error has the URI of the root or table."""
    bucket.put("1.parquet", parquet_bytes(a=[1]))
    config = bucket.config()
    elsewhere = config.model_copy(update={"root": "s3://not-there/root"})
    with pytest.raises(StoreError, match=r"s3://not-there/root/.*\bno such bucket\b"):
        refresh(elsewhere, elsewhere.tables[0], no_spark)
    table = config.tables[0].model_copy(update={"uri": "s3://not-there/lake"})
    with pytest.raises(TableNotFoundError, match=r"s3://not-there/lake\b.*\bno such bucket$") as error_info:
        refresh(config, table, no_spark)
    assert len(str(error_info.value).splitlines()) == 1


def test_small_fragments_are_few_requests(bucket: Bucket) -> None:
    """The profiles of twenty fragments share one file, and the partition's merge nodes share another.

    A refresh after a commit of three more fragments writes one file of each of these two kinds. Each refresh
    writes at most twenty files that are not value counts.
    """
    with counted(bucket.options["aws_endpoint"]) as requests:
        options = {**bucket.options, "aws_endpoint": requests.endpoint}
        config = bucket.config().model_copy(update={"storage_options": options, "engine": "auto"})
        folder = f"{config.root.removeprefix('s3:/')}/{config.tables[0].name}/"

        def written(start: int, count: int) -> Counter[str]:
            """Add `count` fragments from number `start`, and refresh.

            Return the number of written files by folder.
            """
            for number in range(start, start + count):
                sink = pa.BufferOutputStream()
                pq.write_table(rows(random.Random(number), 30), sink)
                bucket.put(f"part=1/{number}.parquet", sink.getvalue().to_pybytes())
            requests.take()
            refresh(config, config.tables[0], no_spark)
            puts = [path for path in requests.take() if path.startswith("PUT") and folder in path]
            return Counter(path.partition(folder)[2].partition("/")[0] for path in puts)

        first = written(0, 20)
        assert (first["fragments"], first["nodes"], first["pending"]) == (1, 1, 2)
        assert sum(first.values()) - first["value_counts"] <= 20
        assert first["value_counts"] <= 3 * 5 + 1  # three stages for each type class, and the file that references them
        again = written(20, 3)
        assert (again["fragments"], again["nodes"]) == (1, 1)
        assert sum(again.values()) - again["value_counts"] <= 20
        assert again["value_counts"] <= 4 * 5 + 1  # and the changed values
