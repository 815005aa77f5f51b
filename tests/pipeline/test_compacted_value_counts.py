"""Compacted value counts are Parquet files that any tool can read.

They equal DuckDB's counts of the rows. A type class is the physical type of values.

A version is the published statistics of a table at one snapshot.
"""

from __future__ import annotations

import random
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.lookup import Table
from metastore_assets.metastore import open_table
from metastore_assets.pipeline.engine import Engine
from metastore_assets.pipeline.purge import purge
from metastore_assets.pipeline.refresh import refresh
from metastore_assets.pipeline.value_counts import fingerprints
from metastore_assets.pipeline.value_counts.compact import compact
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.versions import VersionStore
from tests.robustness.refresh_assertions import no_spark


class Lake:
    """A folder of Parquet files and its Metastore, refreshed without Spark."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.columns: dict[str, Any] = {}

    @property
    def table(self) -> TableConfig:
        return TableConfig.model_validate({"name": "t", "uri": str(self.folder / "lake"), "columns": self.columns})

    @property
    def config(self) -> MetastoreConfig:
        return MetastoreConfig(root=str(self.folder / "root"), engine="auto", tables=[self.table])

    @property
    def versions(self) -> VersionStore:
        return VersionStore(ObjectStore(self.config.root), "t")

    @property
    def answers(self) -> Table:
        return open_table(self.config.root, "t")

    def put(self, name: str, rows: pa.Table) -> None:
        path = self.folder / "lake" / f"{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows, path)

    def refresh(self) -> None:
        refresh(self.config, self.table, no_spark)

    def compact(self) -> bool:
        return compact(self.versions, self.table).published

    def path(self, file: str | None) -> str:
        assert file is not None
        return str(self.folder / "root" / "t" / file)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def drawn(draw: random.Random, count: int) -> pa.Table:
    def column(kind: pa.DataType, values: list[Any]) -> pa.Array:
        return pa.array([None if draw.random() < 0.1 else draw.choice(values) for _ in range(count)], kind)

    numbers = list(range(-40, 40))
    return pa.table(
        {
            "text": column(pa.string(), ["", "a", "B", "ä", "zz", "'q'", "a,b"]),
            "small": column(pa.int16(), numbers),
            "big": column(pa.uint64(), [2**63 + at for at in range(9)]),
            "money": column(pa.decimal128(9, 2), [Decimal(number) / 4 for number in numbers]),
            "ratio": column(pa.float64(), [*(number / 8 for number in numbers), float("nan"), float("inf"), -0.0]),
            "flag": column(pa.bool_(), [True, False]),
            "day": column(pa.date32(), [date(2024, 1, 1 + at) for at in range(31)]),
            "at": column(pa.timestamp("us", "UTC"), [datetime(2024, 1, 1, at) for at in range(24)]),
            "code": column(pa.binary(), [bytes([at]) for at in (0, 7, 255)]),
            "id": column(pa.uuid(), [UUID(int=at).bytes for at in range(5)]),
            "nothing": pa.nulls(count, pa.int32()),
        }
    )


CLASSES = {
    "text": "string",
    "small": "int64",
    "big": "uint64",
    "money": "decimal_2",
    "ratio": "float64",
    "flag": "boolean",
    "day": "date",
    "at": "timestamptz_us",
    "code": "binary",
    "id": "uuid",
}


def shown(rows: list[Any]) -> str:
    """Return rows as text, in which NaN equals itself and both zeros are one."""
    return repr([(value + 0.0 if isinstance(value, float) else value, *rest) for value, *rest in rows])


def assert_plain(lake: Lake, ranked_columns: set[str]) -> None:
    """Assert that compacted files have, by column and in order, the rows of DuckDB's GROUP BY.

    `ranked_columns` are the columns that the file of ranks must have.
    """
    files = f"{lake.folder}/lake/**/*.parquet"
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(f"CREATE VIEW t AS SELECT * FROM read_parquet('{files}', hive_partitioning = false)")
        answer = lake.answers
        for column, name in CLASSES.items():
            counts_query = f'SELECT "{column}" AS value, count(*) AS n FROM t WHERE "{column}" IS NOT NULL GROUP BY 1'
            file_rows = connection.execute(
                f'SELECT value."{name}", frequency FROM read_parquet(?) f WHERE f.column = ?',
                [lake.path(answer.frequencies_file), column],
            ).fetchall()
            expected = connection.execute(f"SELECT value, n FROM ({counts_query}) ORDER BY n DESC, value").fetchall()
            assert shown(file_rows) == shown(expected), column
            if column in ranked_columns:
                file_rows = connection.execute(
                    f'SELECT value."{name}", frequency, rank FROM read_parquet(?) f WHERE f.column = ?',
                    [lake.path(answer.ranks_file), column],
                ).fetchall()
                ranks = (
                    f"SELECT value, n, (sum(n) OVER (ORDER BY value) - n)::BIGINT FROM ({counts_query}) ORDER BY value"
                )
                assert shown(file_rows) == shown(connection.execute(ranks).fetchall()), column
    complete = pl.read_parquet(lake.path(answer.ranks_file)) if ranked_columns else None
    assert complete is None or set(complete["column"].unique()) == ranked_columns
    stored_columns = set(pq.read_table(lake.path(answer.frequencies_file))["column"].unique().to_pylist())
    assert stored_columns - {"part"} == set(CLASSES)


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 12))])
def test_other_tools_read_plain_files(lake: Lake, seed: int) -> None:
    """DuckDB reads the compacted files of a table, which has a column of each type class.

    The table has one or two partitions. The version of the next commit has no compacted files, and the next compaction
    writes them again.
    """
    draw = random.Random(seed)
    lake.columns = {"default": {"frequencies": "all"}, "money": {"ranks": "on"}, "text": {"ranks": "on"}}
    lake.columns |= {"ratio": {"ranks": "on"}, "small": {"frequencies": "top(3)"}}
    for at in range(3):
        lake.put(f"part={at % (1 + seed % 2)}/{at}", drawn(draw, 60))
    lake.refresh()
    assert (lake.answers.frequencies_file, lake.answers.ranks_file) == (None, None)
    assert lake.compact()
    assert not lake.compact(), "there is nothing left to do"
    assert_plain(lake, {"money", "text", "ratio"})
    lake.put("part=0/1", drawn(draw, 60))
    lake.refresh()
    assert (lake.answers.frequencies_file, lake.answers.ranks_file) == (None, None), "they would be outdated"
    assert lake.compact()
    assert_plain(lake, {"money", "text", "ratio"})


def test_plain_files_are_retained_until_value_counts_change(lake: Lake) -> None:
    """If rows move to another file, or ranks are switched on, the file of frequencies stays the same.

    The file is removed when the value counts of a column are switched off.
    """
    rows = pa.table({"a": [1, 2, 2, 5], "b": ["x", "y", "y", "z"]})
    lake.put("one", rows)
    lake.put("two", rows)
    lake.refresh()
    assert lake.compact()
    before = lake.answers.frequencies_file
    (lake.folder / "lake" / "one.parquet").unlink()
    lake.put("two", pa.concat_tables([rows, rows]))
    lake.refresh()
    assert lake.answers.version.number == 3
    assert lake.answers.frequencies_file == before
    lake.columns = {"a": {"ranks": "on"}}
    lake.refresh()
    assert (lake.answers.frequencies_file, lake.answers.ranks_file) == (before, None)
    assert lake.compact()
    assert lake.answers.frequencies_file == before
    assert pq.read_table(lake.path(lake.answers.ranks_file)).to_pylist() == [
        {"column": "a", "value": {"int64": 1}, "frequency": 2, "rank": 0},
        {"column": "a", "value": {"int64": 2}, "frequency": 4, "rank": 2},
        {"column": "a", "value": {"int64": 5}, "frequency": 2, "rank": 6},
    ]
    lake.columns = {"a": {"ranks": "off"}, "b": {"frequencies": "off"}}
    lake.refresh()
    assert (lake.answers.frequencies_file, lake.answers.ranks_file) == (None, None)


def test_plain_files_of_fingerprinted_columns_have_repeated_values(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file of frequencies has exactly the values that occur at least twice.

    This holds even if fingerprints collide. Profiles have fingerprints, which are parts of hashes, instead of values.
    """
    monkeypatch.setattr(fingerprints, "TABLE_BITS", 5)
    lake.columns = {"a": {"frequencies": "repeated", "algorithm": "fingerprints"}}
    lake.put("one", pa.table({"a": [*range(300), 7, 7, 290]}))
    lake.refresh()
    assert lake.compact()
    rows = pq.read_table(lake.path(lake.answers.frequencies_file)).to_pylist()
    assert rows == [
        {"column": "a", "value": {"int64": 7}, "frequency": 3},
        {"column": "a", "value": {"int64": 290}, "frequency": 2},
    ]
    assert lake.answers.ranks_file is None


def test_a_purge_removes_deleted_values_from_plain_files(lake: Lake) -> None:
    lake.columns = {"a": {"ranks": "on"}}
    lake.put("one", pa.table({"a": ["Ada", "Bea"]}))
    lake.put("two", pa.table({"a": ["Bea"] * 3}))
    lake.refresh()
    assert lake.compact()
    files = {lake.path(lake.answers.frequencies_file), lake.path(lake.answers.ranks_file)}
    (lake.folder / "lake" / "one.parquet").unlink()
    lake.refresh()
    assert all(Path(path).exists() for path in files), "the previous version references them"
    purge(Engine(no_spark), lake.versions, lake.answers.version.number)
    assert not any(Path(path).exists() for path in files)
    lake.compact()
    assert pq.read_table(lake.path(lake.answers.ranks_file)).num_rows == 1


@pytest.mark.parametrize("is_damaged", [False, True])
def test_missing_or_damaged_plain_files_are_written_again(lake: Lake, *, is_damaged: bool) -> None:
    lake.columns = {"a": {"ranks": "on"}}
    lake.put("one", pa.table({"a": [1, 2]}))
    lake.refresh()
    assert lake.compact()
    for file in (lake.answers.frequencies_file, lake.answers.ranks_file):
        path = lake.path(file)
        rows = pq.read_table(path)
        if is_damaged:
            Path(path).write_bytes(Path(path).read_bytes()[:-9])
        else:
            Path(path).unlink()
        assert lake.compact()
        assert not lake.compact()
        again = lake.answers.ranks_file if file and file.endswith("ranks.parquet") else lake.answers.frequencies_file
        assert again != file
        assert pq.read_table(lake.path(again)).equals(rows)


def test_expiry_removes_unreferenced_files(lake: Lake) -> None:
    from datetime import timedelta

    lake.put("one", pa.table({"a": [1, 2]}))
    lake.refresh()
    lake.compact()
    path = Path(lake.path(lake.answers.frequencies_file))
    lake.versions.expire(1, timedelta(0))
    assert path.exists()
    lake.put("two", pa.table({"a": [3]}))
    lake.refresh()
    lake.versions.expire(1, timedelta(0))
    assert not path.exists()


def test_a_table_without_value_counts_has_no_plain_files(lake: Lake) -> None:
    lake.columns = {"default": {"frequencies": "off"}}
    lake.put("one", pa.table({"a": [1, 2]}))
    lake.refresh()
    result = compact(lake.versions, lake.table)
    assert (result.published, result.frequencies, result.ranks) == (False, None, None)
