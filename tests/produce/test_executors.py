"""Versions are equal wherever and however often tasks run.

The tasks of a dataflow compute the rows of its stages, in this process, in others or on Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from metastore_assets.errors import ProduceError
from metastore_assets.produce import (
    Dataflow,
    InProcessRunner,
    Root,
    Rows,
    Settings,
    Stage,
    SumStage,
    SurrogateKey,
    TaskRunner,
)
from metastore_assets.store.objects import ObjectStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
R = TypeVar("R")

_SMALL = Settings(
    single_run_rows=0,
    target_rows=100,
    row_group_rows=40,
    batch_rows=40,
    buffer_rows=60,
    task_rows=40,
    small_rows=0,
    bulk_share=0.9,
    fan_in=3,
    max_runs=6,
)
"""Settings with which every commit becomes several tasks of the runner."""
_PAIRS = Rows(pa.schema([("key", pa.int64())]), pa.schema([("word", pa.string())]))
_WORDS = Rows(pa.schema([("word", pa.string())]), pa.schema([("id", pa.int64()), ("key", pa.int64())]), ("word",))


class _Twice(InProcessRunner):
    """A runner that runs every task twice and uses the second result, as after a lost worker."""

    def map(self, function: Callable[[T], R], tasks: Sequence[T], **options: object) -> list[R]:
        for task in tasks:
            function(task)
        return [function(task) for task in tasks]

    @property
    def parallelism(self) -> int:
        return 3


def _flow(store: ObjectStore, runner: TaskRunner) -> Dataflow:
    stage = Stage(
        "words",
        (("pairs",),),
        _WORDS,
        produce=lambda key, words: [(letter, (None, key)) for word in words for letter in word],
        preserve=SurrogateKey("id"),
    )
    counts = SumStage("counts", ("words",), ("word",), ("key",), count="uses")
    squares = Stage("squares", (("pairs",), ("pairs",)), _SQUARES, produce=_squared, preserve=_first_value)
    balances = SumStage("balances", ("squares",), ("letter",), ("x",), signed=True)
    nodes = [Root("pairs", _PAIRS), stage, counts, squares, balances]
    return Dataflow(store, nodes, runner=runner, settings=_SMALL)


_SQUARES = Rows(pa.schema([("letter", pa.string())]), pa.schema([("x", pa.int64()), ("first", pa.int64())]))


def _squared(key: int, left: Sequence[str], right: Sequence[str]) -> Iterator[tuple[str, tuple[int, None]]]:
    """Emit a row for each pair of a letter in `left` and a letter in `right`.

    The letter in `right` is the target key. The value has `x`, which is key - 100, and null in place of `first`.
    """
    return ((letter, (key - 100, None)) for word in left for _ in word for other in right for letter in other)


def _first_value(rows: pa.Table, previous: pa.Table, has_previous: pa.Array, novel: pa.Array) -> pa.Table:
    """Set the column `first` of rows to a value that all rows of a letter share.

    A letter that had rows before keeps its value. A new letter gets the `x` of its first row.
    """
    return rows.set_column(2, "first", pc.if_else(has_previous, previous["first"], rows["x"]))


def _commits() -> list[pa.Table]:
    random = np.random.default_rng(7)
    commits = []
    for _ in range(3):
        keys = np.sort(random.choice(120, 50, replace=False))
        words = ["".join(random.choice(list("abcdefghijkläöü"), random.integers(0, 4))) for _ in keys]
        changes = ["delete" if random.random() < 0.3 else "update" for _ in keys]
        commits.append(pa.table({"_change": changes, "key": keys, "word": words}))
    return commits


def _everything(flow: Dataflow) -> list[Any]:
    views: list[Any] = []
    for number in range(1, flow.version().number + 1):
        view = flow.version(number)
        for name in ("pairs", "words", "counts", "squares", "balances"):
            views += [view.content(name).to_pylist(), view.update(name).to_pylist()]
        views.append(view.mappings("words").to_pylist())
    return views


def _published(location: Path | ObjectStore, runner: TaskRunner) -> Dataflow:
    flow = _flow(ObjectStore(str(location)) if isinstance(location, Path) else location, runner)
    for commit in _commits():
        flow.advance({"pairs": commit})
    return flow


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """The content, updates and mappings of all versions, computed one task at a time in this process."""
    return _everything(_published(tmp_path_factory.mktemp("plain"), InProcessRunner()))


@pytest.mark.parametrize(
    "runner", [InProcessRunner(3), pytest.param(_Twice(), marks=pytest.mark.long)], ids=["threads", "twice"]
)
def test_threads_and_retries_change_nothing(runner: TaskRunner, tmp_path: Path, plain: list[Any]) -> None:
    flow = _published(tmp_path / "own", runner)
    assert _everything(flow) == plain
    assert any(run.shard for run in flow.version().runs("words")), "there are several shards"


@pytest.mark.spark
def test_spark_changes_nothing(spark: SparkSession, tmp_path: Path, plain: list[Any]) -> None:
    from metastore_assets.spark.runner import SparkRunner

    flow = _published(tmp_path / "spark", SparkRunner(lambda: spark))
    assert _everything(flow) == plain
    assert flow.compact(full=True)
    assert _everything(flow) == plain


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.s3
def test_spark_changes_nothing_in_a_bucket(spark: SparkSession, s3_store: ObjectStore, tmp_path: Path) -> None:
    """Versions that Spark tasks wrote to a bucket equal those on disk.

    Tasks open the bucket with the storage's options.
    """
    from metastore_assets.spark.runner import SparkRunner

    flow = _published(s3_store, SparkRunner(lambda: spark))
    assert _everything(flow) == _everything(_published(tmp_path, InProcessRunner()))


@pytest.mark.spark
def test_an_error_of_produce_on_spark_names_the_key(spark: SparkSession, tmp_path: Path) -> None:
    from metastore_assets.spark.runner import SparkRunner

    def fails(key: int, words: Any) -> list[Any]:
        raise ZeroDivisionError(f"on {key}")

    nodes = [Root("pairs", _PAIRS), Stage("words", (("pairs",),), _WORDS, produce=fails)]
    flow = Dataflow(ObjectStore(str(tmp_path)), nodes, runner=SparkRunner(lambda: spark), settings=_SMALL)
    with pytest.raises(ProduceError, match=r"'words'.*\bkey 5: on 5") as error_info:
        flow.advance({"pairs": pa.table({"_change": ["add"], "key": [5], "word": ["x"]})})
    assert (error_info.value.stage, error_info.value.key) == ("words", 5)
    assert flow.version().number == 0
