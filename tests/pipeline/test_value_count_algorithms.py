"""Algorithms that compute value counts from scratch give equal rows, whose counts are DuckDB's."""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.metastore import open_table
from metastore_assets.pipeline.refresh import refresh
from metastore_assets.pipeline.value_counts import ranges
from metastore_assets.statistics.frequencies import Frequencies, split_frequencies
from metastore_assets.store.objects import ObjectStore
from metastore_assets.value_counts import Built, read_value_counts
from tests.robustness.refresh_assertions import no_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Content = Mapping[str, list[dict[str, Any]]]


def config_of(folder: Path, root: str, **policy: Any) -> MetastoreConfig:
    columns = {"default": {"frequencies": "all", **policy}}
    table = TableConfig.model_validate({"name": "t", "uri": str(folder / "lake"), "columns": columns})
    return MetastoreConfig(root=str(folder / root), engine="auto", tables=[table])


def written(folder: Path, draw: random.Random, files: int, count: int) -> None:
    """Write `files` files of `count` random rows each, in three partitions."""

    def column(kind: pa.DataType, values: list[Any]) -> pa.Array:
        return pa.array([None if draw.random() < 0.1 else draw.choice(values) for _ in range(count)], kind)

    numbers = list(range(-300, 300))
    for at in range(files):
        rows = {
            "number": column(pa.int32(), numbers),
            "text": column(pa.string(), [f"{'ä' * (number % 3)}{number}" for number in numbers]),
            "money": column(pa.decimal128(9, 2), [Decimal(number) / 4 for number in numbers]),
            "ratio": column(pa.float64(), [*(number / 8 for number in numbers), float("nan"), float("-inf"), -0.0]),
            "flag": column(pa.bool_(), [True, False]),
            "day": column(pa.date32(), [date.fromordinal(730_000 + number) for number in numbers]),
            "id": column(pa.uuid(), [UUID(int=at).bytes for at in range(40)]),
            "nothing": pa.nulls(count, pa.int32()),
            "one": pa.array([7] * count),
        }
        path = folder / "lake" / f"part={at % 3}" / f"{at}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(rows), path)


def content_of(config: MetastoreConfig) -> tuple[dict[str, pa.Table], Mapping[str, Built]]:
    """Return the stored rows of value counts by stage, and how each column's value counts were built.

    A stage is a stored set of rows of the dataflow that keeps the value counts.
    """
    store = ObjectStore(config.root).child("t")
    lists = read_value_counts(store, open_table(config.root, "t").version.value_counts)
    view = lists.dataflow(store).view(lists.flow)
    stages = {name for name in lists.flow.stages if "deltas" not in name}
    return {name: view.content(name) for name in sorted(stages)}, lists.built


@pytest.mark.spark
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 8))])
def test_all_algorithms_give_equal_value_counts(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Columns of every type class are counted in this process, and in ranges of values on Spark.

    A type class is a group of types that are stored as one Arrow type. Both algorithms give the same value counts, and
    the top values of DuckDB.

    The algorithm is recorded, and a small commit does not change it.
    """
    monkeypatch.setattr(ranges, "_ROWS_PER_RANGE", 250)
    monkeypatch.setattr(ranges, "_SAMPLES_PER_PROFILE", 10)
    draw = random.Random(seed)
    written(tmp_path, draw, 5, 300)
    plain_config, range_config = (
        config_of(tmp_path, "here", algorithm="counts"),
        config_of(tmp_path, "ranged", algorithm="ranges"),
    )
    refresh(plain_config, plain_config.tables[0], no_spark)
    refresh(range_config, range_config.tables[0], lambda: spark)
    plain_frequencies, built_in_one_file = content_of(plain_config)
    assert {(b.algorithm, b.where, b.profiles) for b in built_in_one_file.values()} == {("counts", "here", 3)}
    split_frequencies, built_by_ranges = content_of(range_config)
    assert {(value.algorithm, value.where, value.profiles) for value in built_by_ranges.values()} == {
        ("ranges", "spark", 3)
    }
    assert built_in_one_file["one"].distinct == built_by_ranges["one"].distinct == 1
    assert plain_frequencies.keys() == split_frequencies.keys()
    for stage, rows in plain_frequencies.items():
        assert shown(rows) == shown(split_frequencies[stage]), stage
    answer = open_table(range_config.root, "t")
    with duckdb.connect() as connection:
        connection.execute(f"CREATE VIEW t AS SELECT * FROM '{tmp_path}/lake/*/*.parquet'")
        for column in ("number", "text", "money", "day"):
            counts = f'SELECT "{column}", count(*) FROM t WHERE "{column}" IS NOT NULL GROUP BY 1 ORDER BY 2 DESC, 1'
            top_values = [(value.as_py(), count) for value, count in answer.top(column, 10_000)]
            assert top_values == connection.execute(counts).fetchall(), column
    assert list_unreferenced_files(range_config) == set(), "merged files are removed"
    # A small commit updates what is stored.
    pq.write_table(pa.table({"number": pa.array([9, 9], pa.int32())}), tmp_path / "lake" / "part=0" / "new.parquet")
    refresh(range_config, range_config.tables[0], lambda: spark)
    assert content_of(range_config)[1] == built_by_ranges


def shown(rows: pa.Table) -> str:
    """Return rows as text, in which NaN equals itself."""
    return repr(rows.to_pylist())


def list_unreferenced_files(config: MetastoreConfig) -> set[str]:
    referenced_paths = set(open_table(config.root, "t").version.value_counts.paths())  # type: ignore[union-attr]
    folder = Path(config.root) / "t"
    return {str(path.relative_to(folder)) for path in (folder / "value_counts").iterdir()} - referenced_paths


@pytest.mark.spark
@pytest.mark.long
def test_long_value_counts_are_split_into_ranges_by_default(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranges, "MAX_UNSPLIT_VALUES", 300)
    written(tmp_path, random.Random(3), 4, 400)
    default_config = config_of(tmp_path, "chosen")
    refresh(default_config, default_config.tables[0], lambda: spark)
    _, built_by_column = content_of(default_config)
    long = {name for name, value_counts in built_by_column.items() if value_counts.algorithm == "ranges"}
    assert long == {name for name, value_counts in built_by_column.items() if (value_counts.distinct or 0) > 300}
    assert "number" in long
    assert "one" not in long
    counts = config_of(tmp_path, "counts", algorithm="counts")
    refresh(counts, counts.tables[0], no_spark)
    assert {value.algorithm for value in content_of(counts)[1].values()} == {"counts"}
    assert {name: shown(rows) for name, rows in content_of(default_config)[0].items()} == {
        name: shown(rows) for name, rows in content_of(counts)[0].items()
    }


@given(
    st.lists(st.one_of(st.floats(allow_nan=True), st.sampled_from([0.0, 1.0, float("inf")])), max_size=30, unique=True),
    st.lists(st.floats(allow_nan=False), max_size=6, unique=True),
)
def test_split_frequencies_are_in_their_ranges(values: list[float], splitters: list[float]) -> None:
    sorted_values = sorted({value + 0.0 for value in values if value == value})
    sorted_values += [float("nan")] if any(value != value for value in values) else []
    frequencies = Frequencies(
        pa.array(sorted_values, pa.float64()), pa.array(range(1, len(sorted_values) + 1), pa.int64())
    )
    bounds = sorted({splitter + 0.0 for splitter in splitters})
    pieces = split_frequencies(frequencies, pa.array(bounds, pa.float64()))
    assert len(pieces) == len(bounds) + 1
    assert repr([value for piece in pieces for value in piece.values.to_pylist()]) == repr(sorted_values)
    assert [count for piece in pieces for count in piece.counts.to_pylist()] == frequencies.counts.to_pylist()
    for at, piece in enumerate(pieces):
        for value in piece.values.to_pylist():
            assert at == sum(not value <= bound for bound in bounds)


@pytest.mark.parametrize("policy", [{"algorithm": "ranges"}, {"algorithm": "counts", "frequencies": "repeated"}])
def test_a_policy_selects_the_algorithm(policy: dict[str, str]) -> None:
    config = TableConfig.model_validate({"name": "t", "uri": "/t", "columns": {"a": policy}}).effective_policy("a")
    assert (config.algorithm, config.is_fingerprinted, config.is_enumerated) == (policy["algorithm"], False, True)
