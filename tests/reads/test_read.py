"""`Table.read` returns exactly the live rows that match, and opens only files that may match.

A version has the statistics of one snapshot of the table.
"""

from __future__ import annotations

from collections import Counter
from itertools import count
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from metastore_assets import open_table
from metastore_assets.config import MetastoreConfig
from metastore_assets.errors import (
    ColumnNotFoundError,
    ConfigError,
    FragmentError,
    MetastoreError,
    PredicateError,
    SnapshotNotFoundError,
)
from metastore_assets.pipeline.refresh import refresh
from metastore_assets.storage.io_counters import count_io
from tests.reads.tables import FORMATS, SCHEMA, build, no_spark, predicates, publish, rows

_DELETES = [None, "id = 1", "id >= 100", "word = 'a'"]


@pytest.mark.parametrize("kind", FORMATS)
def test_a_read_has_the_rows_of_the_full_scan_with_the_filter(tmp_path: Path, kind: str) -> None:
    folders = (tmp_path / str(number) for number in count())

    @settings(
        max_examples=max(4, settings().max_examples // 100), deadline=None, suppress_health_check=list(HealthCheck)
    )
    @given(rows(), st.sampled_from(_DELETES), st.integers(0, 2), st.lists(predicates(), min_size=3, max_size=6))
    def check(files: Any, delete_condition: str | None, late: int, wheres: list[str]) -> None:
        folder = next(folders)
        folder.mkdir()
        table = build(folder, kind, files, delete_condition, min(late, len(files)))
        everything = table.lookup.read().read_all()
        assert everything.schema.names == SCHEMA.names
        assert _sorted_rows(everything) == _sorted_rows(table.rows)
        for where in wheres:
            result = table.lookup.read(columns=["word", "id"], where=where).read_all()
            assert result.column_names == ["word", "id"]
            assert sorted(result["id"].to_pylist()) == table.ids(where), where

    check()


def _sorted_rows(table: pa.Table) -> list[str]:
    return sorted(repr(row) for row in table.to_pylist())


@pytest.fixture
def sorted_table(tmp_path: Path) -> tuple[MetastoreConfig, str]:
    """The configuration and the location of a Delta table of four files with ids in ranges.

    Its first version is published.
    """
    uri = str(tmp_path / "lake")
    for start in range(0, 40, 10):
        part = pa.table({"id": pa.array(range(start, start + 10), pa.int64()), "word": ["w"] * 10})
        write_deltalake(uri, part, mode="append")
    return publish(tmp_path, uri), uri


def test_only_files_that_may_match_in_the_index_are_opened(sorted_table: tuple[MetastoreConfig, str]) -> None:
    config, uri = sorted_table
    table = open_table(config.root, "t")
    for path in Path(uri).glob("*.parquet"):
        if pq.read_table(path)["id"][0].as_py() != 20:
            path.write_bytes(b"nobody reads this")
    assert sorted(table.read(where="id between 22 and 24", table=uri).read_all()["id"].to_pylist()) == [22, 23, 24]
    with pytest.raises(FragmentError, match=r"\.parquet"):
        table.read(table=uri).read_all()


def test_a_version_reads_its_snapshot(sorted_table: tuple[MetastoreConfig, str]) -> None:
    config, uri = sorted_table
    DeltaTable(uri).delete("id < 15")
    refresh(config, config.tables[0], no_spark)
    write_deltalake(uri, pa.table({"id": pa.array([99], pa.int64()), "word": ["late"]}), mode="append")
    table = open_table(config.root, "t", table_locations=[uri])
    counts = [table.read(columns=["id"], version=version).read_all().num_rows for version in (1, 2, None)]
    assert counts == [40, 25, 26]
    assert table.read(where="word = 'late'").read_all()["id"].to_pylist() == [99], "the version does not know this file"
    DeltaTable(uri).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    with pytest.raises(FragmentError, match=r"(?s)'t'.*VACUUM.*version 1\b"):
        table.read(version=1).read_all()
    with pytest.raises(FragmentError, match=r"(?s)'t'.*VACUUM.*version 1\b"):
        table.dataset(version=1)
    assert table.read(version=2).read_all().num_rows == 25


def test_a_snapshot_that_expired_is_named_with_its_version(sorted_table: tuple[MetastoreConfig, str]) -> None:
    config, uri = sorted_table
    write_deltalake(uri, pa.table({"id": pa.array([99], pa.int64()), "word": ["late"]}), mode="append")
    refresh(config, config.tables[0], no_spark)
    DeltaTable(uri).create_checkpoint()
    for log in sorted(Path(uri, "_delta_log").glob("*.json"))[:-1]:
        log.unlink()
    table = open_table(config.root, "t", table_locations=[uri])
    message = r"table 't' no longer has the snapshot \d+, which version 1 describes: read a later version"
    with pytest.raises(SnapshotNotFoundError, match=message):
        table.read(version=1)


def test_plain_files_have_no_earlier_snapshot(tmp_path: Path) -> None:
    uri = tmp_path / "lake"
    uri.mkdir()
    pq.write_table(pa.table({"a": [1]}), uri / "1.parquet")
    config = publish(tmp_path, str(uri))
    table = open_table(config.root, "t", table_locations=[str(uri)])
    assert table.read(version=1).read_all().num_rows == 1
    pq.write_table(pa.table({"a": [2]}), uri / "2.parquet")
    assert sorted(table.read().read_all()["a"].to_pylist()) == [1, 2]
    with pytest.raises(MetastoreError, match="snapshots"):
        table.read(version=1)


def test_errors_name_the_invalid_value(sorted_table: tuple[MetastoreConfig, str]) -> None:
    config, uri = sorted_table
    table = open_table(config.root, "t")
    with pytest.raises(ConfigError, match="confirm"):
        table.read()
    with pytest.raises(ColumnNotFoundError, match="wrd"):
        table.read(columns=["wrd"], table=uri)
    with pytest.raises(PredicateError):
        table.read(where="id >", table=uri)


def test_a_stream_is_read_by_pandas_and_duckdb_and_may_be_closed(sorted_table: tuple[MetastoreConfig, str]) -> None:
    config, uri = sorted_table
    table = open_table(config.root, "t", table_locations=[uri])
    assert table.read(where=pc.field("id") > 37).read_pandas()["id"].sum() == 77
    stream = table.read(where="id >= 30")
    with duckdb.connect() as connection:
        connection.register("t", stream)
        assert connection.sql("select count(*), sum(id) from t").fetchall() == [(10, 345)]
    assert table.read(columns=[]).read_all().num_rows == 40
    assert table.read(columns="id").schema.names == ["id"]
    with table.read() as table_stream:
        assert table_stream.read_next_batch().num_rows


def test_a_large_table_is_read_by_several_children(tmp_path: Path) -> None:
    """Several child processes read a table of twenty files, and each row is returned once.

    The bytes that they read are counted in the parent process.
    """
    uri = tmp_path / "lake"
    uri.mkdir()
    for number in range(20):
        start = number * 60_000
        part = pa.table({"id": pa.array(range(start, start + 60_000), pa.int64()), "n": [number] * 60_000})
        pq.write_table(part, uri / f"{number}.parquet", compression="none", use_dictionary=False)
    table = open_table(publish(tmp_path, str(uri)).root, "t", table_locations=[str(uri)])
    with count_io() as meter:
        sums: Counter[int] = Counter()
        for batch in table.read():
            sums.update(dict(zip(("rows", "ids"), (batch.num_rows, pc.sum(batch["id"]).as_py()), strict=True)))  # type: ignore[arg-type]
    assert sums == {"rows": 1_200_000, "ids": 1_200_000 * 1_199_999 // 2}
    assert meter.counts().read.bytes > 20 * 900_000


def test_renamed_dropped_and_promoted_columns_are_read(tmp_path: Path) -> None:
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.types import LongType, StringType

    catalog = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/lake")
    catalog.create_namespace("n")
    first = pa.table({"a": pa.array([1, 2], pa.int32()), "gone": ["x", "y"], "s": [{"p": 1}, {"p": 2}]})
    table = catalog.create_table("n.t", first.schema)
    table.append(first)
    with table.update_schema() as update:
        update.update_column("a", LongType())
    with table.update_schema() as update:
        update.rename_column("a", "b")
        update.delete_column("gone")
        update.add_column("new", StringType())
        update.rename_column("s.p", "q")
    table.append(pa.table({"b": pa.array([2**40], pa.int64()), "s": [{"q": 3}], "new": ["n"]}))
    uri = table.location().removeprefix("file://")
    lookup = open_table(publish(tmp_path, uri).root, "t", table_locations=[uri])
    result = lookup.read().read_all().sort_by("b")
    assert result.to_pydict() == table.scan().to_arrow().sort_by("b").to_pydict()
    assert lookup.read(where="b > 1 and new is null").read_all()["b"].to_pylist() == [2]
    assert lookup.read(version=1, where="s.q >= 2").read_all().num_rows == 2


def test_partition_columns_that_files_do_not_store_are_read(tmp_path: Path) -> None:
    uri = str(tmp_path / "lake")
    part = pa.table({"id": [1, 2, 3], "day": ["2024-01-01", "2024-01-02", None]})
    write_deltalake(uri, part, partition_by=["day"])
    lookup = open_table(publish(tmp_path, uri).root, "t", table_locations=[uri])
    assert (
        lookup.read(columns=["day", "id"]).read_all().sort_by("id").to_pydict()
        == part.select(["day", "id"]).to_pydict()
    )
    assert lookup.read(where="day is null").read_all()["id"].to_pylist() == [3]
