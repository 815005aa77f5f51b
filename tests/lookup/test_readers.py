"""Concurrent readers of one version get the same answers as a single reader.

The value counts of a column are its distinct values with the frequency of each. A profile is the stored statistics of a
partition or the table. A version has the statistics of one snapshot of the table. The root is the folder with all
stored state.
"""

from __future__ import annotations

import multiprocessing
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from threading import Barrier
from typing import Any

import pyarrow as pa
import pytest

from metastore_assets.lookup import Table, profiles
from metastore_assets.lookup.profiles import ProfileReader
from metastore_assets.metastore import open_table
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.parquet import ParquetObject
from tests.lookup.publishing import publish

READERS = 64
PROCESSES = 2
_EACH = 6
"""Number of questions that each reader asks."""
Question = Callable[[Table], object]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A root with a table of four columns with value counts in three partitions.

    One column has value counts by partition.
    """
    folder = str(tmp_path_factory.mktemp("readers"))
    draw = random.Random(3)
    count = 3_000
    rows = pa.table(
        {
            "id": pa.array([draw.randrange(1_000) for _ in range(count)]),
            "name": pa.array([draw.choice(["a", "b", None, f"n{draw.randrange(300)}"]) for _ in range(count)]),
            "ratio": pa.array([draw.choice([float("nan"), 0.0, draw.gauss(0, 9)]) for _ in range(count)]),
            "day": pa.array([draw.randrange(20_000) for _ in range(count)], pa.date32()),
        }
    )
    parts = {f"part={at}": rows.slice(at * count // 3, count // 3) for at in range(3)}
    policy = {"default": {"frequencies": "all"}, "name": {"frequencies": "all", "by_partition": "on"}}
    publish(ObjectStore(folder), rows, columns=policy, partitions=parts)
    return folder


@pytest.fixture(scope="module")
def alone(root: str) -> dict[int, str]:
    """The answers of a single reader to all questions, by number of the question."""
    return answers_in_order(open_table(root, "orders"), range(len(questions())))


def questions() -> list[Question]:
    """Return functions that ask a table one question each, of every kind that reads a file."""
    result: list[Question] = [
        lambda table: table.statistics(),
        lambda table: table.statistics(["id", "day"], partition="*"),
        lambda table: table.spread(),
        lambda table: table.locate("name", "a"),
        lambda table: table.locate("id", 7),
        lambda table: [piece.counts.to_pylist() for piece in table.value_batches("name")],
        lambda table: table.prune("id > 990 and name in ('a', 'n7')").paths,
        lambda table: table.estimate("ratio > 3 or day < date '1990-01-01'"),
        lambda table: table.filter("id >= 0").top("name", 5),
    ]
    for column in ("id", "name", "ratio", "day"):
        for key in (None, "part=0", "part=2"):
            result += [
                lambda table, column=column, key=key: table.top(column, 20, partition=key),  # type: ignore[misc]
                lambda table, column=column, key=key: table.quantile(column, [0, 0.3, 0.99], partition=key),  # type: ignore[misc]
            ]
            if column != "name":
                result += [lambda table, column=column, key=key: table.histogram(column, bins=9, partition=key)]  # type: ignore[misc]
    return result


def answers_in_order(table: Table, order: Sequence[int]) -> dict[int, str]:
    """Ask the questions with the given numbers in this order, and return the answers as text by number.

    As text, NaN is equal to itself.
    """
    all_questions = questions()
    return {at: repr(all_questions[at](table)) for at in order}


def random_order(seed: int) -> list[int]:
    """Return the numbers of a random selection of questions in random order."""
    return random.Random(seed).sample(range(len(questions())), _EACH)


def answers_of_process(root: str, seed: int) -> dict[int, str]:
    """Return the answers to a random selection of questions.

    Child processes call this.
    """
    return answers_in_order(open_table(root, "orders"), random_order(seed))


@contextmanager
def switching_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


@pytest.mark.parametrize("is_shared", [True, False], ids=["one object", "objects of their own"])
def test_concurrent_readers_get_the_same_answers(root: str, alone: dict[int, str], is_shared: bool) -> None:
    """Readers start together with cold caches, and ask in different orders.

    They get a single reader's answers.
    """
    assert len(set(alone.values())) > len(alone) // 2
    shared_table, start = open_table(root, "orders"), Barrier(READERS)

    def reader(seed: int) -> dict[int, str]:
        table = shared_table if is_shared else open_table(root, "orders")
        start.wait()
        return answers_in_order(table, random_order(seed))

    with switching_often(), ThreadPoolExecutor(READERS) as pool:
        assert all(answer.items() <= alone.items() for answer in pool.map(reader, range(READERS)))


@pytest.mark.parametrize("question", ["top", "quantile", "histogram"])
def test_a_question_opens_each_file_once(root: str, question: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A question opens no file twice, even if another profile is opened before the answer is complete.

    The cache of open profiles has room for only one, so the other profile replaces that of the question.
    """
    monkeypatch.setattr(profiles, "_OPEN_PROFILES", 1)
    shared_table, opened_paths = open_table(root, "orders"), list[str]()
    plain_open, plain_statistics = ObjectStore.open_parquet, ProfileReader.statistics

    def open_parquet(self: ObjectStore, path: str, *arguments: Any, **options: Any) -> ParquetObject:
        opened_paths.append(path)
        return plain_open(self, path, *arguments, **options)

    def statistics(self: ProfileReader, columns: Iterable[str] | None = None) -> list[ColumnStatistics]:
        result = plain_statistics(self, columns)
        shared_table.profiles.profile("part=2")
        return result

    monkeypatch.setattr(ObjectStore, "open_parquet", open_parquet)
    monkeypatch.setattr(ProfileReader, "statistics", statistics)
    questions = {
        "top": lambda: shared_table.top("id", 3, partition="part=0"),
        "quantile": lambda: shared_table.quantile("id", 0.5, partition="part=0"),
        "histogram": lambda: shared_table.histogram("id", bins=9, partition="part=0", lower=5),
    }
    questions[question]()
    assert len(opened_paths) == len(set(opened_paths)) > 1


@pytest.mark.long
def test_processes_get_the_same_answers(root: str) -> None:
    alone = answers_in_order(open_table(root, "orders"), range(len(questions())))
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(PROCESSES, mp_context=context) as pool:
        assert all(answer.items() <= alone.items() for answer in pool.map(answers_of_process, [root] * 4, range(4)))
