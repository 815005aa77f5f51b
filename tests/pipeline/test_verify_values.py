"""User-defined statistics and `verify` handle values beyond Python's dates and comparisons."""

from __future__ import annotations

import math
import os
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from metastore_assets import FrequencyStatistic, MergeableStatistic, Metastore
from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.pipeline.refresh import refresh
from metastore_assets.pipeline.verification.profile_differences import _TableFrequencies
from metastore_assets.pipeline.verification.verify import verify
from metastore_assets.statistics.column import column_to_json
from metastore_assets.store.objects import ObjectStore
from metastore_assets.value_counts import ValueCountReader, read_value_counts
from tests.pipeline.file_lake import Lake, latest
from tests.pipeline.test_refresh import no_spark

FAR = 3_000_000
"""The day 10183-09-21, in days since 1970."""


class Latest(FrequencyStatistic):
    """The latest day, which may be later than Python's dates."""

    name = "latest"
    revision = "1"
    types = ("date",)
    result = pa.date32()

    def compute(self, values: pa.Array, counts: pa.Array) -> Any:
        return pc.max(values)


class LatestText(Latest):
    """A statistic that returns the latest day, although its declared result is a text."""

    name = "latest_text"
    result = pa.string()


class LatestState(MergeableStatistic):
    """A mergeable statistic: the latest day.

    If Python has no value for its state, the result is absent.
    """

    name = "latest_state"
    revision = "1"
    types = ("date",)
    state = result = pa.date32()

    def initial(self) -> None:
        return None

    def update(self, state: Any, values: pa.Array, counts: pa.Array) -> Any:
        return pc.max(values)

    def merge(self, one: Any, other: Any) -> Any:
        return max(one, other)

    def finalize(self, state: Any) -> Any:
        return state


class Undefined(FrequencyStatistic):
    """A statistic that returns a list with NaN."""

    name = "undefined"
    revision = "1"
    types = ("date",)
    result = pa.list_(pa.float64())

    def compute(self, values: pa.Array, counts: pa.Array) -> list[float]:
        return [math.nan, 0.5]


def write(path: Path, first: int) -> None:
    days = pa.array([first, first + 1, first + 1], pa.int32()).cast(pa.date32())
    pq.write_table(pa.table({"day": days}), path, compression="none", use_dictionary=False, write_statistics=False)


def test_values_beyond_pythons_are_compared_and_named(tmp_path: Path) -> None:
    """Statistics of days beyond Python's dates are reported, or absent with a reason.

    Then a file with later days replaces one of the same size and time, so the table seems unchanged. `verify` reports
    the stored and the computed values.
    """
    (tmp_path / "t").mkdir()
    write(tmp_path / "t" / "a.parquet", FAR)
    write(tmp_path / "t" / "b.parquet", FAR)
    statistics = [f"{__name__}:{kind.__name__}" for kind in (Latest, LatestText, LatestState, Undefined)]
    column = {"statistics": statistics}
    table = TableConfig.model_validate({"name": "t", "uri": str(tmp_path / "t"), "columns": {"day": column}})
    config = MetastoreConfig(root=str(tmp_path / "root"), engine="auto", tables=[table])
    refresh(config, table, no_spark)
    (row,) = Metastore(config.root).table("t").statistics()
    results = column_to_json(row)["user_defined"]
    assert results["latest"]["value"] == "+10183-09-22"
    assert results["latest_text"]["reason"].startswith("compute() returned a value without")
    assert "without a Python value" in results["latest_state"]["reason"]
    result = verify(config, table, no_spark)
    assert result.is_right, result.differences

    before = (tmp_path / "t" / "a.parquet").stat()
    write(tmp_path / "t" / "a.parquet", FAR + 1)
    os.utime(tmp_path / "t" / "a.parquet", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (tmp_path / "t" / "a.parquet").stat().st_size == before.st_size
    reported_values = {
        each.difference.statistic: (each.difference.stored, each.difference.computed)
        for each in verify(config, table, no_spark).differences
        if each.level == "table" and each.difference.column == "day"
    }
    assert reported_values["maximum"] == ("+10183-09-22", "+10183-09-23")
    assert reported_values["latest"] == ("+10183-09-22", "+10183-09-23")
    assert reported_values["frequencies"][0].startswith("+10183-09-21: 2")
    assert "undefined" not in reported_values


def test_value_counts_of_many_columns_are_read_in_one_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading the value counts of many columns in one pass gives the same as a search for each column.

    The pass may read only some of the columns, or read them in reverse order.
    """
    lake = Lake(tmp_path, random.Random(4))
    lake.append(1)
    refresh(lake.config().model_copy(update={"engine": "auto"}), lake.table, no_spark)
    version = latest(lake.config())
    store = ObjectStore(lake.config().root).child("t")
    reader = ValueCountReader(store, read_value_counts(store, version.value_counts))
    expected = {column: reader.frequencies(column, type_class) for column, type_class in reader.columns.items()}
    assert len(expected) > 4
    for columns in (sorted(expected), sorted(expected)[1::2], sorted(expected, reverse=True)):
        counts = _TableFrequencies(reader)
        for column in columns:
            value_counts = counts.read(column)
            assert value_counts is not None
            assert str(value_counts.values.to_pylist()) == str(expected[column].values.to_pylist())  # NaN, too
            assert value_counts.counts.equals(expected[column].counts)
    assert _TableFrequencies(reader).read("no column") is None
    monkeypatch.setattr(ValueCountReader, "frequencies", lambda *_: pytest.fail("a search"))
    counts = _TableFrequencies(reader)
    assert sum(len(counts.read(column) or ()) for column in sorted(expected)) > 50
