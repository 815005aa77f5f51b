"""A dataflow of value counts like that of a table's columns, and a `Counter` as its model.

A type class is a group of Arrow types that are stored as one type. Its name is the `kind`, a key of `ORDERED`. Tests
describe values by numbers: the number of a value is its position in `ORDERED[kind]`, the sorted values of its type
class. Value counts are the distinct values of a column with their frequencies. A delta has frequencies to add to the
value counts, or to subtract from them.
"""

from __future__ import annotations

import json
import pickle
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any
from uuid import UUID

import pyarrow as pa

from metastore_assets.produce import Dataflow, Delta, DeltaRoot, FlowState, InProcessRunner, Rows, Settings, SumStage
from metastore_assets.store.objects import ObjectStore
from metastore_assets.values.types import class_named

NINES = 10**38 - 1
LONG = [-(2**63), -1, 0, 1, 2**53 + 1, 2**63 - 1]
# Some values of each type class, ascending.
ORDERED: Mapping[str, list[Any]] = {
    "boolean": [False, True],
    "int64": LONG,
    "uint64": [0, 1, 2**63 - 1, 2**63, 2**64 - 1],
    "float64": [float("-inf"), -1.5, 0.0, 5e-324, 0.1, float("inf"), float("nan")],
    "decimal_0": [-NINES, -1, 0, 10**37, NINES],
    "decimal_10": [-NINES, -1, 0, 10**37, NINES],
    "string": ["", "B", "a", "a\0", "aa", "z", "ä", "\ue000", "\U0001f34e"],
    "binary": [b"", b"\0", b"\x7f", b"\x80", b"\xff", b"\xff\0"],
    "date": [-(2**31), -1, 0, 20_000, 2**31 - 1],
    "time": [0, 1, 86_400 * 10**9 - 1],
    "uuid": [UUID(int=0), UUID(int=255), UUID(int=2**127), UUID(int=2**128 - 1)],
    **{f"timestamp{zone}_{unit}": LONG for zone in ("", "tz") for unit in ("ms", "us", "ns")},
}
Amounts = Counter[tuple[int, int]]
"""Frequencies by column and number of the value, which is its position in `ORDERED`."""


def array(kind: str, numbers: Sequence[int]) -> pa.Array:
    """Return the values with these numbers as an array of their type class."""
    type_ = class_named(kind).arrow
    values = [ORDERED[kind][number] for number in numbers]
    if pa.types.is_decimal(type_):
        decimal_bytes = b"".join(value.to_bytes(16, "little", signed=True) for value in values)
        return pa.Array.from_buffers(type_, len(values), [None, pa.py_buffer(decimal_bytes)])
    if pa.types.is_temporal(type_):
        return pa.array(values, pa.int32() if type_.bit_width == 32 else pa.int64()).view(type_)
    if kind == "uuid":
        return pa.ExtensionArray.from_storage(type_, pa.array([value.bytes for value in values], pa.binary(16)))
    return pa.array(values, type_)


def numbers_of(kind: str, column: pa.ChunkedArray) -> list[int]:
    """Return the numbers of the values in a column, also for types that Python lacks."""
    assert column.type == class_named(kind).arrow
    number_of_text = {text: number for number, text in enumerate(_texts(array(kind, range(len(ORDERED[kind])))))}
    return [number_of_text[text] for chunk in column.chunks for text in _texts(chunk)]


def _texts(values: pa.Array) -> list[str]:
    if pa.types.is_temporal(values.type):
        values = values.view(pa.int32() if values.type.bit_width == 32 else pa.int64())
    return [repr(value) for value in values.to_pylist()]


def nodes(kind: str) -> list[Any]:
    """Return the declaration of a graph that stores the value counts of one type class."""
    key = pa.schema([("column", pa.int32()), ("value", class_named(kind).arrow)])
    by_frequency = ("column", "frequency", "value")
    return [
        DeltaRoot("lists", Rows(key, pa.schema([("frequency", pa.int64())]))),
        SumStage("values", ("lists",), key=("column", "value"), amounts=("frequency",)),
        SumStage("frequencies", ("values",), by_frequency, (), "values", ("frequency",), least=("frequency", 2)),
        SumStage("facts", ("values",), key=("column", "frequency"), count="values"),
    ]


def table(kind: str, rows: Iterable[tuple[int, int, int]]) -> pa.Table:
    """Return a table from rows of a column's number, a value's number, and a frequency."""
    drawn_rows = list(rows)
    columns = [
        pa.array([row[0] for row in drawn_rows], pa.int32()),
        array(kind, [row[1] for row in drawn_rows]),
        pa.array([row[2] for row in drawn_rows], pa.int64()),
    ]
    return pa.table(columns, names=["column", "value", "frequency"])


def pieces(everything: pa.Table) -> list[pa.RecordBatch]:
    """Return the rows of a delta in several batches."""
    return everything.to_batches(max_chunksize=2)


def delta(kind: str, amounts: Amounts, random: Random, *, is_removed: bool) -> Delta:
    """Return a delta that adds amounts or, with `is_removed`, removes them.

    Its rows are in any order and repeat keys. They are a table, or a function that returns them in batches.
    """
    rows = _split_amounts(amounts, random)
    everything = table(kind, rows)
    return (
        Delta(everything, is_removed)
        if random.random() < 0.5
        else Delta(partial(pieces, everything), is_removed, count=len(rows))
    )


def _split_amounts(amounts: Amounts, random: Random) -> list[tuple[int, int, int]]:
    rows: list[tuple[int, int, int]] = []
    for (column, value), count in amounts.items():
        first = random.randint(0, count)
        rows += [(column, value, part) for part in (first, count - first) if part]
    random.shuffle(rows)
    return rows


class PicklingRunner(InProcessRunner):
    """A runner that pickles and unpickles tasks and their results, as on Spark."""

    def map(self, function: Callable[[Any], Any], tasks: Sequence[Any], **options: object) -> list[Any]:
        return [pickle.loads(pickle.dumps(function(pickle.loads(pickle.dumps(task))))) for task in tasks]


class TableValueCounts:
    """A dataflow of value counts with its current state, and a model of the same counts, a `Counter`."""

    def __init__(self, store: ObjectStore, kind: str, settings: Settings | None = None) -> None:
        self.kind = kind
        self.flow = Dataflow(store, nodes(kind), settings=settings, folder="lists", runner=PicklingRunner())
        self.state = FlowState()
        self.counts: Amounts = Counter()

    def step(self, added_amounts: Amounts, removed_amounts: Amounts, random: Random) -> None:
        previous = self.counts
        self.counts = previous + added_amounts
        self.counts.subtract(removed_amounts)
        self.counts = +self.counts
        deltas = [
            delta(self.kind, added_amounts, random, is_removed=False),
            delta(self.kind, removed_amounts, random, is_removed=True),
        ]
        self.state = self.flow.step(self.state, {"lists": deltas})
        # What the caller's own version stores.
        self.state = FlowState.from_json(json.loads(json.dumps(self.state.to_json())))
        self.check_update(previous)

    def rows(self, stage: str, *columns: str) -> list[tuple[Any, ...]]:
        """Return the content of a stage, with the numbers of values in place of values."""
        return self._plain(self.flow.view(self.state).groups(stage), columns)

    def check(self) -> None:
        """Assert that every stage has the content that the model gives, in the order of the stage's keys."""
        expected_rows = sorted((column, value, count) for (column, value), count in self.counts.items())
        assert self.rows("values", "column", "value", "frequency") == expected_rows
        by_frequency = sorted((column, -count, value) for column, value, count in expected_rows if count > 1)
        frequencies = self.rows("frequencies", "column", "frequency", "value", "values")
        assert frequencies == [(column, -count, value, 1) for column, count, value in by_frequency]
        facts = sorted(Counter((column, count) for column, _, count in expected_rows).items())
        assert self.rows("facts", "column", "frequency", "values") == [(*key, number) for key, number in facts]

    def check_update(self, previous: Amounts) -> None:
        """Assert that the update of the values is the difference between `previous` and the model's counts."""
        update = self.flow.view(self.state).update("values")
        changes = self._plain(update, ("column", "value", "_change", "frequency", "_before_frequency"))
        expected = []
        for key in sorted(previous.keys() | self.counts.keys()):
            before, now = previous.get(key), self.counts.get(key)
            if before != now:
                change = "add" if before is None else "delete" if now is None else "update"
                expected.append((*key, change, now, before))
        assert changes == expected

    def check_ranks(self, random: Random) -> None:
        """Compare ranks with positions in a sorted list of all rows.

        Totals, frequencies between two values, and the rows at ranks are compared, too.
        """
        ranks = self.flow.view(self.state).ranks("values", "frequency")
        every = sorted(key for key, count in self.counts.items() for _ in range(count))
        for column in {column for column, _ in self.counts} | {99}:
            column_values = [value for other, value in every if other == column]
            prefix = pa.table({"column": pa.array([column], pa.int32())})
            assert ranks.total(prefix) == len(column_values)
            keys = [random.randrange(len(ORDERED[self.kind])) for _ in range(2)]
            assert ranks.rank(self._keys(column, keys)) == [sum(value < key for value in column_values) for key in keys]
            low, high = self._keys(column, keys[:1]), self._keys(column, keys[1:])
            assert ranks.amount_between(low, high) == sum(keys[0] <= value <= keys[1] for value in column_values)
            for rank in random.sample(range(len(column_values)), min(3, len(column_values))):
                (row,) = self._plain(ranks.at_rank(prefix, rank), ("column", "value", "frequency", "rank"))
                assert row == (
                    column,
                    column_values[rank],
                    column_values.count(column_values[rank]),
                    column_values.index(column_values[rank]),
                )

    def _keys(self, column: int, numbers: Sequence[int]) -> pa.Table:
        columns = [pa.array([column] * len(numbers), pa.int32()), array(self.kind, numbers)]
        return pa.table(columns, names=["column", "value"])

    def _plain(self, stored_table: pa.Table, columns: Sequence[str]) -> list[tuple[Any, ...]]:
        lists = [
            numbers_of(self.kind, stored_table[name]) if name == "value" else stored_table[name].to_pylist()
            for name in columns
        ]
        return list(zip(*lists, strict=True))


def random_change(kind: str, counts: Amounts, random: Random, columns: int = 3) -> tuple[Amounts, Amounts]:
    """Draw amounts that are added, to the first `columns` columns, and amounts that are removed.

    No more is removed than `counts` and the added amounts have together.
    """
    added_amounts: Amounts = Counter()
    for _ in range(random.randint(0, 8)):
        added_amounts[random.randrange(columns), random.randrange(len(ORDERED[kind]))] += random.randint(1, 3)
    total = counts + added_amounts
    removed_amounts: Amounts = Counter()
    for key in random.sample(sorted(total), min(len(total), random.randint(0, 5))):
        removed_amounts[key] = random.randint(1, total[key])
    return added_amounts, removed_amounts
