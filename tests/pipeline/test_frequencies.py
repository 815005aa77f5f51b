"""Value counts are added and subtracted, in this process or in one Spark exchange."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from metastore_assets.config import TableConfig
from metastore_assets.errors import CorruptionError
from metastore_assets.pipeline import engine as engines
from metastore_assets.pipeline.engine import Engine
from metastore_assets.pipeline.profile_spec import ProfileSpec, table_profile_spec
from metastore_assets.pipeline.profiles.files import FrequencyWriter
from metastore_assets.pipeline.profiles.states_reader import StatesReader
from metastore_assets.pipeline.profiles.stored import FrequencyReader
from metastore_assets.pipeline.value_counts import frequency_sums
from metastore_assets.pipeline.value_counts.frequencies import SummedColumns, sum_columns
from metastore_assets.pipeline.value_counts.frequency_sums import FrequencySum
from metastore_assets.statistics.frequencies import Frequencies
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.version import ProfileFiles
from metastore_assets.values.types import type_class

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.string()), ("c", pa.int64())])


def spec(**policies: dict[str, str]) -> ProfileSpec:
    return table_profile_spec(SCHEMA, TableConfig.model_validate({"name": "t", "uri": "/t", "columns": policies}))


def write(store: ObjectStore, **columns: dict[object, int]) -> ProfileFiles:
    with FrequencyWriter(store, "fragments", spec()) as writer:
        for name, counts in columns.items():
            values = pa.array(sorted(counts), type_class(SCHEMA.field(name).type).arrow)
            value_counts = pa.array([counts[value] for value in values.to_pylist()], pa.int64())
            writer.add(name, name, Frequencies(values, value_counts))
    return ProfileFiles("", "", (writer.path,))


def read(store: ObjectStore, column_sum: SummedColumns, column: str) -> dict[object, int]:
    with FrequencyReader(
        StatesReader(store), ProfileFiles("", "", tuple(path for _, path in column_sum.files))
    ) as reader:
        result = reader.read(column)
        assert result is not None
        return dict(zip(result.values.to_pylist(), result.counts.to_pylist(), strict=True))


@pytest.fixture(params=["here", "spark"])
def engine(request: pytest.FixtureRequest, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """An engine that computes any sum in this process, and one that computes any sum on Spark."""
    monkeypatch.setattr(engines, "_SMALL_SUM", 10**9 if request.param == "here" else -1)
    return Engine(lambda: spark)


def test_terms_add_up_by_column_and_sign(engine: Engine, tmp_path: Path) -> None:
    store = ObjectStore(str(tmp_path))
    old_files = write(store, a={1: 5, 2: 1}, b={"x": 2}, c={7: 1})
    added_files = write(store, a={2: 1, 3: 4}, b={"ä": 1})
    removed_files = write(store, a={1: 2, 2: 2}, c={7: 1})
    column_sum = sum_columns(
        engine,
        store,
        "table",
        spec(),
        [FrequencySum(0, (0, 1, 2), ((old_files, 1), (added_files, 1), (removed_files, -1)), 9)],
    )[0]
    assert read(store, column_sum, "a") == {1: 3, 3: 4}
    assert read(store, column_sum, "b") == {"x": 2, "ä": 1}
    assert read(store, column_sum, "c") == {}
    assert {position: facts.distinct_count for position, facts in column_sum.summaries.items()} == {0: 2, 1: 2, 2: 0}


def test_sums_of_several_profiles_are_separate(engine: Engine, tmp_path: Path) -> None:
    store = ObjectStore(str(tmp_path))
    lists = [write(store, a={number: 1, -1: 1}) for number in range(40)]
    sums = [FrequencySum(0, (0,), tuple((one, 1) for one in lists[:33]), 66)]
    sums += [FrequencySum(1, (0,), tuple((one, 1) for one in lists[33:]), 14)]
    column_sums = sum_columns(engine, store, "partitions", spec(), sums)
    assert read(store, column_sums[0], "a") == {-1: 33, **dict.fromkeys(range(33), 1)}
    assert read(store, column_sums[1], "a") == {-1: 7, **dict.fromkeys(range(33, 40), 1)}


@pytest.mark.parametrize("engine", ["spark"], indirect=True)
def test_a_large_sum_is_written_to_several_files_in_column_order(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sum of three columns on Spark is written to three files, in the order of the columns."""
    monkeypatch.setattr(frequency_sums, "_ROWS_PER_PARTITION", 10)
    store = ObjectStore(str(tmp_path))
    lists = [write(store, a={1: 1}, b={"x": 1}, c={5: 1}) for _ in range(3)]
    column_sum = sum_columns(
        engine, store, "table", spec(), [FrequencySum(0, (0, 1, 2), tuple((one, 1) for one in lists), 1000)]
    )[0]
    assert [position for position, _ in column_sum.files] == [0, 1, 2]
    assert [read(store, column_sum, name) for name in "abc"] == [{1: 3}, {"x": 3}, {5: 3}]


def test_a_negative_total_is_corruption_that_names_column_and_value(engine: Engine, tmp_path: Path) -> None:
    store = ObjectStore(str(tmp_path))
    terms = ((write(store, b={"x": 1}), 1), (write(store, b={"x": 2}), -1))
    with pytest.raises(CorruptionError, match=r"'b'.*\bx\b.*--full"):
        sum_columns(engine, store, "table", spec(), [FrequencySum(0, (1,), terms, 2)])
