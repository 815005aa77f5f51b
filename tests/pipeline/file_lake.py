"""A small table of plain files with random commits, and comparisons of published versions.

A version is the published statistics of a table at one snapshot. The root is the folder with all stored state.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.lookup import Table
from metastore_assets.metastore import Metastore
from metastore_assets.pipeline import engine
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.version import Version
from metastore_assets.store.versions import VersionStore

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("group", pa.string()),
        ("price", pa.decimal128(12, 2)),
        ("ratio", pa.float64()),
        ("day", pa.date32()),
        ("tags", pa.list_(pa.string())),
    ]
)


def rows(random_source: random.Random, count: int) -> pa.Table:
    """Return random rows with nulls, NaN, repeated and near-unique values."""
    draw = random_source

    def maybe(value: Any) -> Any:
        return None if draw.random() < 0.1 else value

    records = [
        {
            "id": maybe(draw.randrange(10**6)),
            "group": maybe(draw.choice(["a", "b", "ä", "", "zz"])),
            "price": maybe(Decimal(draw.randrange(-(10**6), 10**9)) / 100),
            "ratio": maybe(draw.choice([draw.gauss(0, 1e3), 0.0, -0.0, float("nan")])),
            "day": maybe(draw.randrange(-1000, 20000)),
            "tags": maybe([draw.choice(["x", "y"]) for _ in range(draw.randrange(3))]),
        }
        for _ in range(count)
    ]
    columns = [[record[name] for record in records] for name in SCHEMA.names]
    arrays = [
        pa.array(values, pa.int32()).cast(pa.date32()) if kind == pa.date32() else pa.array(values, kind)
        for values, kind in zip(columns, SCHEMA.types, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


@contextmanager
def everything_on_spark() -> Iterator[None]:
    """During the block, run all merges and sums on Spark, however small they are."""
    with patch.object(engine, "_SMALL_MERGE", -1), patch.object(engine, "_SMALL_SUM", -1):
        yield


@dataclass
class Lake:
    """Parquet files in `part=N` folders below `uri`, and a Metastore root beside them.

    `draw` generates the rows and commits, `options` are further fields of the table's configuration, `columns` are the
    columns of new files, and `written` is the number of files that were ever written.
    """

    folder: Path
    draw: random.Random = field(default_factory=lambda: random.Random(0))
    options: dict[str, Any] = field(default_factory=dict)
    columns: Sequence[str] = tuple(SCHEMA.names)
    written: int = 0

    @property
    def uri(self) -> Path:
        return self.folder / "lake"

    @property
    def table(self) -> TableConfig:
        return TableConfig.model_validate({"name": "t", "uri": str(self.uri), **self.options})

    def config(self, root: str = "root") -> MetastoreConfig:
        return MetastoreConfig(root=str(self.folder / root), tables=[self.table])

    def files(self) -> list[Path]:
        return sorted(self.uri.rglob("*.parquet"))

    def append(self, partition: int, count: int = 50) -> Path:
        folder = self.uri / f"part={partition}"
        folder.mkdir(parents=True, exist_ok=True)
        self.written += 1
        path = folder / f"{self.written}.parquet"
        pq.write_table(rows(self.draw, count).select(self.columns), path)
        return path

    def commit(self) -> str:
        """Change the table randomly.

        Return a description of the change.
        """
        files = self.files()
        kind = self.draw.choice(["append", "append", "remove", "rewrite", "compact", "drop", "scatter"])
        if kind == "append" or len(files) < 4:
            self.append(self.draw.randrange(8), self.draw.randrange(0, 80))
        elif kind == "remove":
            self.draw.choice(files).unlink()
        elif kind == "rewrite":
            old = self.draw.choice(files)
            table = pq.read_table(old, partitioning=None)
            old.unlink()
            self.written += 1
            pq.write_table(table.slice(len(table) // 3), old.with_name(f"{self.written}.parquet"))
        elif kind == "compact":
            siblings = list(self.draw.choice(files).parent.glob("*.parquet"))
            complete = pa.concat_tables([pq.read_table(path, partitioning=None) for path in siblings])
            for path in siblings:
                path.unlink()
            self.written += 1
            pq.write_table(complete, siblings[0].with_name(f"{self.written}.parquet"))
        elif kind == "drop":
            for path in self.draw.choice(files).parent.glob("*.parquet"):
                path.unlink()
            if not self.files():  # A folder without files is no table, and a refresh refuses it.
                self.append(0)
        else:
            for partition in self.draw.sample(range(8), 3):
                self.append(partition, 5)
        return kind


def latest(config: MetastoreConfig) -> Version:
    """Return the newest published version of the table `t`."""
    version = VersionStore(ObjectStore(config.root, config.storage_options), "t").latest()
    assert version is not None
    return version


def profile(table: Table, partition: str | None = None) -> dict[str, Any]:
    """Return the row count of a table or partition, and by column its statistics, value counts and bins.

    Without `partition`, they are those of the table.
    """
    columns: dict[str, Any] = {}
    for row in table.statistics(partition=partition):
        value_counts = None
        if row.frequencies == "enumerated":
            values = table.top(row.column, 10**9, partition=partition)
            value_counts = sorted((repr(value.as_py()), count) for value, count in values)
        histogram = table.profiles.profile(partition).histogram(row.column)
        columns[row.column] = {
            **asdict(row),
            "enumerated": value_counts,
            "bins": None
            if histogram is None
            else (histogram.exponent, histogram.first, histogram.counts.tolist(), histogram.capacity),
        }
    return {"row_count": table.count(partition=partition).value, "columns": columns}


def everything(config: MetastoreConfig) -> dict[str, Any]:
    """Return the row count and the profiles of the newest version, for the table and for each partition.

    The profiles are those that `profile` returns.
    """
    table = Metastore(config.root, storage_options=config.storage_options).table("t")
    return {
        "row_count": table.version.row_count,
        "table": profile(table),
        "partitions": {entry.key: (entry.row_count, profile(table, entry.key)) for entry in table.partitions()},
    }


def close(left: Any, right: Any) -> bool:
    """Return whether values are equal.

    Floats may differ by a relative 1e-9, because merges round higher moments.
    """
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(close(left[key], right[key]) for key in left)
    if isinstance(left, float) and isinstance(right, float):
        return left == right or left == pytest.approx(right, rel=1e-9, abs=1e-12, nan_ok=True)
    return bool(left == right)


def numbers(answer: dict[str, Any]) -> dict[str, Any]:
    """Return a result of `profile` without user-defined statistics, and without states.

    States are the forms of statistics that merges need.
    """
    states = {"moments", "quantile_sketch", "distinct_sketch", "user_states", "user_defined"}
    columns = {name: {k: v for k, v in row.items() if k not in states} for name, row in answer["columns"].items()}
    return {"row_count": answer["row_count"], "columns": columns}


def assert_same(first: dict[str, Any], second: dict[str, Any]) -> None:
    """Assert that two results of `everything` have equal row counts and statistics.

    Statistics that `numbers` removes are not compared. The error names the partition, the column and the statistic.
    """
    assert first["row_count"] == second["row_count"]
    assert first["partitions"].keys() == second["partitions"].keys()
    pairs = [("table", first["table"], second["table"])]
    pairs += [(key, answer[1], second["partitions"][key][1]) for key, answer in first["partitions"].items()]
    for partition, left, right in pairs:
        left, right = numbers(left), numbers(right)
        assert left["row_count"] == right["row_count"], partition
        for column, row in left["columns"].items():
            for name, value in row.items():
                assert close(value, right["columns"][column][name]), (partition, column, name)
