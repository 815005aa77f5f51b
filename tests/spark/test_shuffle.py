"""After a shuffle, each row is in its partition, and the rows of a group are complete and sorted.

Each row has the numbers of a partition and a group, and a position, which sorts it in the group. The rows of a group in
one partition are passed to a reducer together.

Errors of readers and reducers are raised.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from metastore_assets.errors import CorruptionError
from metastore_assets.spark.shuffle import ShuffledRow, shuffle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PARTITIONS = 7


def read_rows(seed: int) -> Iterator[ShuffledRow]:
    """Yield up to 39 rows with random partitions, groups and positions.

    The rows of a group may lie in several partitions. The content of each row is unique.
    """
    draw = random.Random(seed)
    for number in range(draw.randrange(40)):
        yield ShuffledRow(
            draw.randrange(PARTITIONS), draw.randrange(4), draw.randrange(-3, 3), f"{seed}.{number}".encode()
        )


def collect_group(group: int, rows: Iterator[ShuffledRow]) -> tuple[int, list[ShuffledRow]]:
    return group, list(rows)


def fail_on_group_2(group: int, rows: Iterator[ShuffledRow]) -> int:
    if group == 2:
        raise CorruptionError(f"group {group} is damaged")
    return group


def fail_on_seed_3(seed: int) -> Iterator[ShuffledRow]:
    yield from read_rows(seed)
    if seed == 3:
        raise CorruptionError(f"task {seed} is damaged")


def test_every_row_is_reduced_once_with_its_group(spark: SparkSession) -> None:
    tasks = list(range(12))
    expected: dict[tuple[int, int], list[ShuffledRow]] = defaultdict(list)
    for task in tasks:
        for row in read_rows(task):
            expected[row.partition, row.group].append(row)

    results = shuffle(spark, read_rows, tasks, PARTITIONS, collect_group)

    reduced_rows = {(rows[0].partition, group): rows for group, rows in results}
    assert len(results) == len(expected)
    assert {key: sorted(rows) for key, rows in reduced_rows.items()} == {
        key: sorted(rows) for key, rows in expected.items()
    }
    for (partition, group), rows in reduced_rows.items():
        assert {(row.partition, row.group) for row in rows} == {(partition, group)}
        assert [row.position for row in rows] == sorted(row.position for row in rows)


def test_without_tasks_or_rows_nothing_is_reduced(spark: SparkSession) -> None:
    assert shuffle(spark, read_rows, [], PARTITIONS, collect_group) == []
    assert shuffle(spark, lambda seed: iter(()), [1, 2], PARTITIONS, collect_group) == []


def test_errors_of_readers_and_reducers_are_raised(spark: SparkSession) -> None:
    with pytest.raises(CorruptionError, match="task 3"):
        shuffle(spark, fail_on_seed_3, list(range(6)), PARTITIONS, collect_group)
    with pytest.raises(CorruptionError, match="group 2"):
        shuffle(spark, read_rows, list(range(6)), PARTITIONS, fail_on_group_2)
