"""The bytes and requests that a refresh reports equal those that the object server counted.

The counts include all processes. A step is a part of a refresh, such as planning or profiling.
"""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.pipeline.outcome import STEPS, RefreshResult
from metastore_assets.pipeline.refresh import refresh
from metastore_assets.storage import io_counters
from metastore_assets.storage.io_counters import (
    FileCount,
    IoCountingThreadPool,
    add_io_counts,
    count_io,
    counting_input,
    io_step,
    record_read,
    record_write,
)
from tests.formats.s3_proxy import Requests, counted
from tests.pipeline.file_lake import Lake, everything_on_spark, rows
from tests.robustness.refresh_assertions import no_spark


@pytest.fixture
def requests(s3_options: dict[str, str]) -> Iterator[Requests]:
    with counted(s3_options["aws_endpoint"]) as request_counter:
        yield request_counter


@pytest.mark.s3
@pytest.mark.spark
@pytest.mark.parametrize("engine", ["auto", "spark"])
def test_the_counts_of_steps_equal_the_requests_of_the_server(
    request: pytest.FixtureRequest, s3_options: dict[str, str], requests: Requests, tmp_path: Path, engine: Any
) -> None:
    """The bytes that a refresh reports for its steps add up to those that the server counted.

    The sum of the reported files may exceed the number that the server counted, because a file may count in several
    steps. A refresh without new files writes nothing. The refresh runs in one process with a child or, as far as
    possible, on Spark's workers.
    """
    options = {**s3_options, "aws_endpoint": requests.endpoint}
    prefix = f"s3://metastore/steps-{engine}-{random.randrange(10**12)}"
    table = TableConfig(name="t", uri=f"{prefix}/lake", storage_options=options)
    config = MetastoreConfig(root=f"{prefix}/root", storage_options=options, engine=engine, tables=[table])
    spark = no_spark if engine == "auto" else lambda: request.getfixturevalue("spark")

    def refreshed() -> RefreshResult:
        """Refresh the table.

        Assert that the reported bytes and files agree with those that the server counted.
        """
        requests.objects_read.clear()
        requests.objects_written.clear()
        with nullcontext() if engine == "auto" else everything_on_spark():
            result = refresh(config, table, spark)
        read_counts, written_counts = (
            [counts[side] for counts in _reported_counts(result).values()] for side in ("read", "written")
        )
        assert sum(counts["bytes"] for counts in read_counts) == sum(requests.objects_read.values())
        assert sum(counts["bytes"] for counts in written_counts) == sum(requests.objects_written.values())
        # A file that two steps read counts in both.
        assert (
            max(counts["files"] for counts in read_counts)
            <= len(requests.objects_read)
            <= sum(counts["files"] for counts in read_counts)
        )
        # Hints are overwritten by several steps; everything else is written once.
        assert (
            len(requests.objects_written)
            <= sum(counts["files"] for counts in written_counts)
            <= len(requests.objects_written) + 1
        )
        return result

    client = boto3.client(
        "s3",
        endpoint_url=s3_options["aws_endpoint"],
        region_name=s3_options["aws_region"],
        aws_access_key_id=s3_options["aws_access_key_id"],
        aws_secret_access_key=s3_options["aws_secret_access_key"],
    )
    draw, sizes = random.Random(1), []
    for number in range(3 if engine == "auto" else 2):
        sink = pa.BufferOutputStream()
        pq.write_table(rows(draw, 40), sink)
        data = sink.getvalue().to_pybytes()
        sizes.append(len(data))
        key = f"{prefix.removeprefix('s3://metastore/')}/lake/part={number // 2}/{number}.parquet"
        client.put_object(Bucket="metastore", Key=key, Body=data)
        if number == 0:
            continue
        reported_counts = _reported_counts(refreshed())
        assert list(reported_counts) == list(STEPS)
        assert reported_counts["profile"]["read"]["files"] == (2 if number == 1 else 1)
        assert reported_counts["profile"]["read"]["bytes"] >= sizes[-1] / 2
        assert reported_counts["value_counts"]["written"]["files"] > 0
        assert reported_counts["publish"]["written"]["bytes"] > 0
    idle = _reported_counts(refreshed())
    assert idle["plan"]["read"]["bytes"] > 0
    assert all(counts["written"] == {"files": 0, "bytes": 0} for counts in idle.values())


def test_remaining_files_on_local_disk_were_counted(tmp_path: Path) -> None:
    """The count of written bytes is at least the size of the root's files, and at most twice this size.

    The count of written files is at least the number of these files. Both counts may be greater, because the
    refresh removed some files again. Each data file was read once. The count of read bytes is between half and twice
    the size of the data files.
    """
    lake = Lake(tmp_path)
    for partition in (0, 0, 1):
        lake.append(partition)
    config = lake.config().model_copy(update={"engine": "auto"})
    reported_counts = _reported_counts(refresh(config, lake.table, no_spark))
    remaining = [path.stat().st_size for path in (tmp_path / "root").rglob("*") if path.is_file()]
    assert (
        sum(remaining) <= sum(counts["written"]["bytes"] for counts in reported_counts.values()) <= 2 * sum(remaining)
    )
    assert len(remaining) <= sum(counts["written"]["files"] for counts in reported_counts.values())
    data = {path: path.stat().st_size for path in lake.files()}
    assert reported_counts["profile"]["read"]["files"] == len(data)
    assert sum(data.values()) / 2 <= reported_counts["profile"]["read"]["bytes"] <= 2 * sum(data.values())


def test_counts_belong_to_the_thread_that_counts(tmp_path: Path) -> None:
    """A read or write counts for the innermost counter and step that are active in the same thread.

    A counter and a step are `with` blocks. A thread pool passes the counter and the step on to its tasks. Reads of a
    file count for the step that opened the file. Without a counter, nothing is counted.
    """
    path = tmp_path / "file"
    path.write_bytes(bytes(100))
    record_read("nobody", 5)
    with count_io() as meter:
        with io_step("a"):
            file = counting_input(pa.OSFile(str(path)), str(path))
            with io_step("b"):
                record_write("x", 7)
                with IoCountingThreadPool(2) as pool:
                    list(pool.map(lambda size: record_read("y", size), [1, 2, 3]))
            assert len(file.read(10)) == 10
        file.seek(50)
        assert file.read_buffer(20).size == 20
        assert (len(file.read()), file.size()) == (30, 100)
        with count_io() as inner:
            record_write("z", 1)
    counts_by_step = {name: meter.counts(name) for name in ("", "a", "b")}
    assert counts_by_step["a"].read.to_json() == {"files": 1, "bytes": 60}
    assert counts_by_step["b"].read.to_json() == {"files": 1, "bytes": 6}
    assert counts_by_step["b"].written.to_json() == {"files": 1, "bytes": 7}
    assert counts_by_step[""].read.to_json() == counts_by_step[""].written.to_json() == {"files": 0, "bytes": 0}
    assert inner.counts().written.to_json() == {"files": 1, "bytes": 1}


@given(st.lists(st.lists(st.integers(0, 60), max_size=30), max_size=6), st.integers(1, 20))
def test_distinct_files_are_counted(parts: list[list[int]], unpacked_limit: int) -> None:
    """A file counts once, however often it is read, and in however many parts.

    A part is a list of reads, counted separately, as in one of several processes. The counts of all parts are then
    added.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(io_counters, "_UNPACKED", unpacked_limit)
        counts = []
        for part in parts:
            with count_io() as task:
                for number in part:
                    record_read(f"file {number}", number)
            assert task.counts().read.to_json() == {"files": len(set(part)), "bytes": sum(part)}
            counts.append(task.counts())
        with count_io() as total:
            for count in counts:
                add_io_counts(count)
            record_read("file 0", 1)
        numbers = [0, *(number for part in parts for number in part)]
        assert total.counts().read.to_json() == {"files": len(set(numbers)), "bytes": sum(numbers) + 1}
        total_count = sum((count.read for count in counts), FileCount())
        assert total_count.to_json() == {"files": len({n for part in parts for n in part}), "bytes": sum(numbers)}


def test_counts_of_many_files_take_little_memory() -> None:
    tracemalloc.start()
    with count_io() as meter:
        for number in range(60_000):
            record_read(f"file {number}", 1)
    counts = meter.counts()
    assert counts.read.files == 60_000
    assert tracemalloc.get_traced_memory()[1] < 4 << 20
    tracemalloc.stop()


def _reported_counts(result: RefreshResult) -> dict[str, dict[str, dict[str, int]]]:
    return result.to_json()["steps"]  # type: ignore[return-value]
