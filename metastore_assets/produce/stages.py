"""How a graph is declared: roots, stages with a Produce function, and stages that sum."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from metastore_assets.errors import GraphError
from metastore_assets.produce.rows import Rows

PerKey = Callable[..., Iterable[tuple[Any, Any]]]
"""`produce(key, *ports)` yields (target key, value), any number of them, in any order.

A key or value of one column is a plain Python value, else a tuple. Each port is a sequence (`Port`) of the
values that the port's feeders have for the key, in the order in which the feeders are declared. It may be read in part,
and as often as wanted.
"""


@dataclass(frozen=True)
class Batch:
    """Some source keys with all their values."""

    keys: pa.Table
    """The distinct source keys, ascending."""
    ports: tuple[pa.Table, ...]
    """Per port the column `_source` (int64: row number in `keys`) and the value columns, sorted by `_source`.

    The values of one key are in the order in which the port's feeders are declared, and in theirs.
    """


PerBatch = Callable[[Batch], pa.Table]
"""From a batch to the columns `_source`, target key and value; among rows of one source, in the order of emission."""


class Preserve(Protocol):
    """Carries something over from former rows of the same target key, such as a surrogate key."""

    def __call__(self, rows: pa.Table, former: pa.Table, known: pa.Array, novel: pa.Array) -> pa.Table:
        """Rows of target key and value columns, with what is to be preserved filled in.

        `former` holds, row by row, where `known` (boolean) is true, another row of the same target key: one of the last
        version, though it may be going, or else, for all rows of a new target key but its first, that first row as
        this hook has returned it. `novel` (int64) is, for the first row of a new target key, a number that is new.
        """


@dataclass(frozen=True)
class SurrogateKey:
    """Fills a value column of integers: the former id of a target key while it lives, else the next one never used.

    Whatever Produce emits for the column is replaced.
    """

    column: str

    def check(self, stage: str, rows: Rows) -> None:
        """Raise GraphError when the stage has no column that can hold the ids."""
        name = self.column
        if name in rows.key.names:
            raise GraphError(
                f"stage {stage!r}: the surrogate key {name!r} is a column of its target key; it is given to a target "
                "key, so make it a value column"
            )
        if name not in rows.value.names:
            raise GraphError(
                f"stage {stage!r} has no value column {name!r} for its surrogate key; there are: "
                f"{', '.join(rows.value.names)}"
            )
        type_ = rows.value.field(name).type
        if not pa.types.is_integer(type_):
            raise GraphError(f"stage {stage!r}: its surrogate key {name!r} is declared {type_}; make it int64")

    def __call__(self, rows: pa.Table, former: pa.Table, known: pa.Array, novel: pa.Array) -> pa.Table:
        import pyarrow.compute as pc

        ids = pc.if_else(known, former[self.column], novel)
        place = rows.schema.get_field_index(self.column)
        return rows.set_column(place, rows.schema.field(place), ids.cast(rows.schema.field(place).type))


@dataclass(frozen=True)
class Root:
    """An external source: its updates are given to `Dataflow.advance`."""

    name: str
    rows: Rows


@dataclass(frozen=True)
class DeltaRoot:
    """An external source of which nothing is kept: what it gives are rows that came and rows that went (`Delta`).

    It feeds sum stages only, which need no more than that. What goes has to be given as it came.
    """

    name: str
    rows: Rows


@dataclass(frozen=True)
class Delta:
    """Rows of a `DeltaRoot` that came, or that went; in any order, and a key may have several."""

    rows: pa.Table | Callable[[], Iterable[pa.RecordBatch]]
    """Key and value columns. A function is called by each stage that the root feeds, in its tasks: it has to give the
    same rows every time, and to be picklable where a runner has other processes.
    """
    gone: bool = False
    """Whether the rows went."""
    count: int | None = None
    """How many rows a function gives, about: work is cut by it. Of a table it is known."""

    def __post_init__(self) -> None:
        if self.count is None and not isinstance(self.rows, pa.Table):
            raise ValueError("a Delta whose rows are read by a function needs `count`: about how many rows they are")

    @property
    def row_count(self) -> int:
        """How many rows there are, about."""
        return self.rows.num_rows if isinstance(self.rows, pa.Table) else self.count or 0

    def batches(self) -> Iterable[pa.RecordBatch]:
        """The rows, piece by piece."""
        return self.rows.to_batches() if isinstance(self.rows, pa.Table) else self.rows()


@dataclass(frozen=True)
class Stage:
    """Maps source keys to target keys by a Produce function, which must depend on nothing but its arguments.

    Exactly one of `produce` and `produce_batch` is given.
    """

    name: str
    ports: tuple[tuple[str, ...], ...]
    """Per port the names of its feeders, whose keys and values have the same types. All ports have the same keys."""
    rows: Rows
    """Target keys and values."""
    produce: PerKey | None = None
    produce_batch: PerBatch | None = None
    suppress_unchanged: bool = False
    """Leave groups that came out as they were out of the update."""
    preserve: Preserve | None = None
    revision: str = "1"
    """To be changed when what the functions do changes, `preserve` included: the stage then has to be rebuilt."""

    def __post_init__(self) -> None:
        if (self.produce is None) == (self.produce_batch is None):
            raise GraphError(f"stage {self.name!r} needs either `produce` or `produce_batch`")
        if not self.ports or not all(self.ports):
            raise GraphError(f"stage {self.name!r} needs at least one port, and each port a feeder")
        if self.preserve is not None and (not callable(self.preserve) or isinstance(self.preserve, type)):
            raise GraphError(f"stage {self.name!r}: preserve is {self.preserve!r}; give a hook: SurrogateKey('id')")


@dataclass(frozen=True)
class SumStage:
    """Adds up amounts by key. Keys whose totals are all zero vanish.

    `key` and `amounts` name columns of the feeders' rows, keys or values. Integer totals are int64, decimal ones
    decimal128(38, scale). `count` names an additional total, of rows: with it, a key lives while it has rows.
    """

    name: str
    feeders: tuple[str, ...]
    key: tuple[str, ...]
    amounts: tuple[str, ...] = ()
    count: str | None = None
    descending: tuple[str, ...] = ()
    least: tuple[str, int] | None = None
    """An integer column of the feeders' rows, and what it is at least in the rows that count."""
    revision: str = "1"
    signed: bool = False
    """Whether totals of amounts may be below zero, as balances are. Else that is a corruption; a count's always is."""
    is_followed: bool = True
    """Whether updates are kept, for stages that it feeds and for whoever follows it. May be changed at any time."""

    @property
    def unsigned(self) -> tuple[str, ...]:
        """The totals that are never below zero."""
        counts = () if self.count is None else (self.count,)
        return counts if self.signed else (*self.amounts, *counts)

    def __post_init__(self) -> None:
        if not self.feeders or not self.key or not (self.amounts or self.count):
            raise GraphError(f"stage {self.name!r} needs a feeder, a key column, and something to add up or count")

    def target(self, feeder: Rows) -> Rows:
        """Keys and totals of the stage, whose feeders have such rows. Raises GraphError."""
        fields = {field.name: field for field in feeder.schema}
        named = (*self.key, *self.amounts, *(self.least[:1] if self.least else ()))
        missing = [name for name in named if name not in fields]
        if missing:
            raise GraphError(f"stage {self.name!r}: its feeders have no column {missing[0]!r}, but {list(fields)}")
        if self.least and not pa.types.is_integer(fields[self.least[0]].type):
            type_ = fields[self.least[0]].type
            raise GraphError(f"stage {self.name!r}: least names {self.least[0]!r}, which is {type_}, not an integer")
        totals = [pa.field(name, _total(self.name, fields[name])) for name in self.amounts]
        if self.count is not None:
            totals.append(pa.field(self.count, pa.int64()))
        return Rows(pa.schema([fields[name] for name in self.key]), pa.schema(totals), self.descending)


def _total(stage: str, field: pa.Field) -> pa.DataType:
    if pa.types.is_integer(field.type):
        return pa.int64()
    if pa.types.is_decimal128(field.type):
        return pa.decimal128(38, field.type.scale)
    raise GraphError(f"stage {stage!r}: {field.name!r} is {field.type}; integers and decimals add up exactly")


Node = Root | DeltaRoot | Stage | SumStage
