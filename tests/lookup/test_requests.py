"""An answer takes a few requests to an object store for any number of partitions and fragments.

A fragment is a data file together with the deletes that apply to it. A version has the statistics of one snapshot of
the table. Its document names its files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from benchmarks import large_lookups
from benchmarks.scale_requests import ROOT, Requests
from metastore_assets.index import fragment_writer
from metastore_assets.lookup import Table
from metastore_assets.metastore import Metastore
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.versions import VersionStore
from tests.lookup.publishing import publish

MANY = 20_000
MAX_OF_LOOKUPS = {
    "ten top values of one partition": (7, 60_000),
    "a quantile of one partition": (7, 60_000),
    "one column of one partition": (6, 25_000),
    "prune, one partition": (12, 200_000),
    "prune, 100 partitions": (66, 1_000_000),
    "prune, 100 partitions in a row": (27, 680_000),
    "estimate, 100 partitions": (15, 250_000),
    "prune, no partition": (26, 1_800_000),
}
"""Maximum numbers of requests and bytes of each cold lookup of the benchmark `large_lookups` in 100,000 fragments."""


def parts(count: int) -> dict[str, pa.Table]:
    """Return the rows of `count` partitions by key, in a few columns with repeated values."""
    return {
        f"p={at:05}": pa.table(
            {f"c{i}": [at * 7 + i, at, None, at % 5] for i in range(6)} | {"t": ["a", "b", "b", str(at)]}
        )
        for at in range(count)
    }


def _digest(number: int) -> str:
    return hashlib.md5(str(number).encode()).hexdigest()


@pytest.mark.s3
def test_a_cold_answer_takes_at_most_four_requests(
    s3_store: ObjectStore, s3_options: dict[str, str], read_sizes: list[int]
) -> None:
    """Without caches, an answer takes at most four requests, whatever it is about.

    It can be about the table, a partition, or all partitions. Requests for the version's document are not counted. An
    answer about another column of all partitions takes at most one further request.
    """
    partitions = parts(14)
    publish(s3_store, pa.concat_tables(partitions.values()), partitions=partitions)
    asks: list[Callable[[Table], object]] = [
        lambda table: table.statistics(["c3"], partition="*"),
        lambda table: table.statistics(["t", "c3", "c5"], partition="*"),
        lambda table: table.statistics(["c3"]),
        lambda table: table.statistics(["c3"], partition="p=00011"),
        lambda table: table.top("t", 10),
        lambda table: table.top("t", 10, partition="p=00011"),
        lambda table: table.quantile("c3", 0.9),
        lambda table: table.histogram("c3", bins=50),
        lambda table: table.histogram("c3", bins=50, partition="p=00011"),
        lambda table: table.quantile("c3", 0.9, partition="p=00011"),
    ]
    for ask in asks:
        table = Metastore(s3_store.uri(), storage_options=s3_options).table("orders")
        read_sizes.clear()
        ask(table)
        assert len(read_sizes) <= 4
    table = Metastore(s3_store.uri(), storage_options=s3_options).table("orders")
    table.statistics(["c3"], partition="*")
    read_sizes.clear()
    table.statistics(["c4"], partition="*")
    assert len(read_sizes) <= 1


@pytest.mark.s3
def test_one_of_many_partitions_is_read_without_the_others(
    s3_store: ObjectStore, s3_options: dict[str, str], read_sizes: list[int]
) -> None:
    """Finding a partition reads less than half of the list of partitions, in at most two requests.

    Reading its statistics takes at most two more requests.
    """
    few = parts(3)
    first_version = publish(s3_store, pa.concat_tables(few.values()), partitions=few).version
    entries = [
        replace(first_version.partitions[at % 3], key=f"p={at:05}", content_id=_digest(at)) for at in range(MANY)
    ]
    versions = VersionStore(s3_store, "orders")
    versions.publish(replace(first_version, number=2, partitions=entries, partition_index=None))
    full = sum(info.size for info in versions.objects.list("entries") if ".partitions." in info.path)
    assert full > 300_000
    table = Metastore(s3_store.uri(), storage_options=s3_options).table("orders")
    read_sizes.clear()
    assert table.find_partition("p=12345") == replace(entries[12345])
    assert len(read_sizes) <= 2
    assert sum(read_sizes) < full / 2
    read_sizes.clear()
    assert table.statistics(["c3"], partition="p=12345")[0].value_count == 3
    assert len(read_sizes) <= 2
    assert sum(read_sizes) < 80_000
    read_sizes.clear()
    assert table.find_partition("p=99999") is None
    assert len(read_sizes) <= 2


@pytest.mark.slow
def test_cold_lookups_in_a_large_table_have_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each lookup in a table of 100,000 fragments stays below its limits in `MAX_OF_LOOKUPS`.

    Caches are empty. A directory is an object that describes the row groups of some files of the fragment index. This
    index has as many directories as an index of seven million fragments usually has. A lookup of 100 random partitions
    has to read from all files of the index, and so does a lookup without a partition.
    """
    count = 100_000
    monkeypatch.setattr(fragment_writer, "_DIRECTORY_FILES", 1)
    large_lookups.publish(ObjectStore(str(tmp_path / ROOT.partition("://")[2])), count)
    requests = Requests(tmp_path)
    lookups = list(large_lookups._lookups(count))
    assert {name for name, _, _ in lookups} == MAX_OF_LOOKUPS.keys()
    for name, lookup, _ in lookups:
        with requests.installed():
            requests.reset()
            lookup(Metastore(ROOT).table("bench"))
            counts = requests.counts()
        max_requests, max_bytes = MAX_OF_LOOKUPS[name]
        assert counts["root requests"] <= max_requests, name
        assert counts["root read"] <= max_bytes, name
