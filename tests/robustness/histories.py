"""Random histories of tables of any format, with a model of the expected rows.

A step is a change of a table, such as an append. A subclass for a format writes each step. The effect of the step on
the rows is implemented here.

A fragment is a data file with the deletes that apply to it.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from metastore_assets.config import MetastoreConfig, TableConfig
from tests.robustness.column_kinds import Kind

PARTITIONS = ["a", "b", "c/d", "é%", None]
_START = {
    "id": ("id", pa.int64()),
    "n": ("n", pa.int32()),
    "v": ("v", pa.float64()),
    "s": ("s", pa.string()),
    "p": ("p", pa.string()),
}

Rows = dict[int, dict[str, Any]]
"""Rows by `id`. A row has values by column key; a missing value is null."""


@dataclass
class Model:
    """The expected columns and rows of a table.

    A column has a name, and a key that stays the same if the column is renamed.
    """

    rows: Rows = field(default_factory=dict)
    columns: dict[str, tuple[str, pa.DataType]] = field(default_factory=lambda: dict(_START))
    """Name and type of each column, by a key that a rename does not change."""

    def arrow(self, rows: Rows, only: Collection[str] = ()) -> pa.Table:
        """Return rows as an Arrow table under the current names of the columns.

        `only` has the keys of the columns that are included. If it is empty, all columns are.
        """
        columns = {key: name_and_type for key, name_and_type in self.columns.items() if not only or key in only}
        return pa.table(
            {name: pa.array([row.get(key) for row in rows.values()], type_) for key, (name, type_) in columns.items()}
        )

    def live(self) -> pa.Table:
        """Return all rows."""
        return self.arrow(self.rows)


class History(ABC):
    """A table in a folder, and the steps that its format supports.

    `p` is the partition column, and `id` is unique.
    """

    steps: ClassVar[Sequence[str]]
    """Names of methods that change the table."""
    partitions: ClassVar[Sequence[str | None]] = PARTITIONS
    """Values of `p`."""
    partition_column: ClassVar[str | None] = "p"
    """Name of the partition column, or None for a format without partitions."""
    restores_schema: ClassVar[bool] = True
    """Whether a restored table also has the columns that it had."""
    kinds: ClassVar[Mapping[str, Kind]] = {}
    """Kinds of optional columns by name. Each table has up to three of them."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.draw = random.Random(seed)
        self.model = Model()
        for name in self.draw.sample(sorted(self.kinds), min(3, len(self.kinds))):
            self.model.columns[name] = (name, self.kinds[name].type)
        self.next_id = 0
        self.dropped: set[str] = set()
        self.states: list[tuple[Any, Model]] = []
        self._create()
        self.append(20)
        self.states.append((self._token(), deepcopy(self.model)))

    @property
    def uri(self) -> Path:
        return self.folder / "lake"

    def config(self) -> MetastoreConfig:
        """Return the configuration of a Metastore with only this table."""
        table = TableConfig(name="t", uri=str(self.uri))
        return MetastoreConfig(root=str(self.folder / "root"), tables=[table])

    def live(self) -> pa.Table:
        """Return the expected rows."""
        return self.model.live()

    def take(self, step: str) -> None:
        """Execute a step, given by the name of its method, and record the table and its expected rows."""
        getattr(self, step)()
        self.states.append((self._token(), deepcopy(self.model)))

    def append(self, count: int | None = None) -> None:
        rows = self.drawn(count or self.draw.randrange(1, 40))
        only = self._some_columns()
        if only:
            rows = {key: {name: value for name, value in row.items() if name in only} for key, row in rows.items()}
        self._append(self.model.arrow(rows, only))
        self.model.rows |= rows

    def delete(self) -> None:
        removed_ids = self.chosen(3)
        self._delete(removed_ids)
        self._forget(removed_ids)

    def upsert(self) -> None:
        """Change some rows, which may move to other partitions, and add some."""
        rows = self.drawn(3) | self.drawn(0, self.chosen(6))
        self._upsert(rows)
        self.model.rows |= rows

    def overwrite_partition(self) -> None:
        value = self.draw.choice(self.partitions)
        rows = {key: row | {"p": value} for key, row in self.drawn(10).items()}
        removed_ids = self.of_partition(value)
        self._overwrite_partition(value, rows, removed_ids)
        self._forget(removed_ids)
        self.model.rows |= rows

    def drop_partition(self) -> None:
        value = self.draw.choice(self.partitions)
        removed_ids = self.of_partition(value)
        self._drop_partition(value, removed_ids)
        self._forget(removed_ids)

    def add_column(self) -> None:
        """Add a column.

        Its name may be that of a dropped column.
        """
        key = f"new{len(self.states)}"
        used_names = {name for name, _ in self.model.columns.values()}
        name = self.draw.choice([key, *sorted(self.dropped - used_names)])
        self._add_column(key, name, pa.int64())
        self.model.columns[key] = (name, pa.int64())

    def drop_column(self) -> None:
        """Drop an optional column."""
        required_keys = {"id", "n", "s", "p"}
        key = self.draw.choice([key for key in self.model.columns if key not in required_keys])
        name, _ = self.model.columns.pop(key)
        self.dropped.add(name)
        self._drop_column(name)

    def widen(self) -> None:
        """Widen the type of column `n` to 64 bits, unless this has happened before."""
        name, type_ = self.model.columns["n"]
        if type_ == pa.int32():
            self._widen(name)
            self.model.columns["n"] = (name, pa.int64())

    def rename(self) -> None:
        old, type_ = self.model.columns["s"]
        new = f"s{len(self.states)}"
        self._rename(old, new)
        self.model.columns["s"] = (new, type_)

    def compact(self) -> None:
        self._compact()

    def restore(self) -> None:
        if self.states:
            token, model = self.draw.choice(self.states)
            self._restore(token)
            columns = model.columns if self.restores_schema else self.model.columns
            self.model = Model(deepcopy(model.rows), dict(columns))

    def drawn(self, count: int, ids: Iterable[int] = ()) -> Rows:
        """Draw `count` rows with new ids, and one row for each of the given ids."""
        chosen_ids = [*ids, *range(self.next_id, self.next_id + count)]
        self.next_id += count
        return {key: self._row(key) for key in chosen_ids}

    def chosen(self, divisor: int) -> set[int]:
        """Draw the ids of about one in `divisor` rows."""
        return {key for key in self.model.rows if self.draw.randrange(divisor) == 0}

    def of_partition(self, value: str | None) -> set[int]:
        return {key for key, row in self.model.rows.items() if row["p"] == value}

    @abstractmethod
    def fragments(self) -> set[Hashable]:
        """Return a key for each expected fragment: its file, and which rows are live.

        The keys are computed without the reader.
        """

    @abstractmethod
    def _create(self) -> None: ...

    @abstractmethod
    def _append(self, rows: pa.Table) -> None: ...

    @abstractmethod
    def _delete(self, ids: Collection[int]) -> None: ...

    def _upsert(self, rows: Rows) -> None:
        self._delete(rows.keys() & self.model.rows.keys())
        self._append(self.model.arrow(rows))

    def _overwrite_partition(self, value: str | None, rows: Rows, removed_ids: Collection[int]) -> None:
        self._drop_partition(value, removed_ids)
        self._append(self.model.arrow(rows))

    def _drop_partition(self, value: str | None, removed_ids: Collection[int]) -> None:
        self._delete(removed_ids)

    def _add_column(self, key: str, name: str, type_: pa.DataType) -> None:
        raise AssertionError("this kind of table does not support the step")

    def _drop_column(self, name: str) -> None:
        raise AssertionError("this kind of table does not support the step")

    def _widen(self, name: str) -> None:
        raise AssertionError("this kind of table does not support the step")

    def _rename(self, old: str, new: str) -> None:
        raise AssertionError("this kind of table does not support the step")

    @abstractmethod
    def _compact(self) -> None: ...

    @abstractmethod
    def _token(self) -> Any:
        """Return the value that `_restore` needs to restore the table as it is now."""

    @abstractmethod
    def _restore(self, token: Any) -> None: ...

    def _row(self, key: int) -> dict[str, Any]:
        draw = self.draw
        row: dict[str, Any] = {
            "id": key,
            "n": draw.choice([None, draw.randrange(-50, 50)]),
            "v": draw.choice([None, 0.0, float("nan"), draw.gauss(0, 10)]),
            "s": draw.choice([None, "", "x", "y", "🦊"]),
            "p": draw.choice(self.partitions),
        }
        if self.model.columns["n"][1] == pa.int64() and draw.random() < 0.3:
            row["n"] = draw.choice([2**40, -(2**62)])
        for name in sorted(self.model.columns.keys() - row.keys()):
            kind = self.kinds.get(name)
            row[name] = draw.choice([None, 7, 8]) if kind is None else kind.drawn(draw)
        return row

    def _some_columns(self) -> Collection[str]:
        """Return the keys of the columns to write; an empty collection stands for all columns.

        A format may omit columns that were added to the table later.
        """
        return ()

    def _forget(self, ids: Collection[int]) -> None:
        self.model.rows = {key: row for key, row in self.model.rows.items() if key not in ids}


def condition(ids: Collection[int]) -> str:
    """Return an SQL condition for rows with these ids."""
    return f"id in ({', '.join(map(str, sorted(ids))) or 'null'})"


def shuffled(history: History, length: int) -> list[str]:
    """Return `length` random steps.

    The first steps are all of `history.steps`, in random order.
    """
    once = list(history.steps)
    history.draw.shuffle(once)
    return (once + [history.draw.choice(once) for _ in range(length)])[:length]


class ModelledSchemaHistory(History):
    """A history whose table gets its schema from the model after each step.

    So its methods that change the schema do nothing.
    """

    def _drop_column(self, name: str) -> None:
        pass

    def _widen(self, name: str) -> None:
        pass

    def _rename(self, old: str, new: str) -> None:
        pass
