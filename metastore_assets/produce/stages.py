"""The declarations of a dataflow graph: roots, stages with a Produce function, and sum stages.

Roots and stages are the nodes of the graph. A root receives rows from an external source. A Produce function maps
source keys (the keys of a stage's input), with their values, to rows of target keys (the keys of its output). A sum
stage adds up amounts by key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from metastore_assets.errors import GraphError
from metastore_assets.produce.typed_rows import Rows

PerKey = Callable[..., Iterable[tuple[Any, Any]]]
"""A function `produce(key, *ports)` that yields (target key, value) pairs in any number and order.

A key or value of one column is a plain Python value; one of several columns is a tuple. Each port is a sequence
(`Port`) with the values that its feeders have for the key, in the declared order of the feeders."""


@dataclass(frozen=True)
class Batch:
    """A batch of source keys with all of their values: the argument of a Produce function."""

    keys: pa.Table
    """The distinct source keys, ascending."""
    ports: tuple[pa.Table, ...]
    """One table for each port, sorted by `_source` (int64: row number in `keys`), with the value columns.

    The values of one key are in the declared order of the feeders, and within a feeder as stored."""


PerBatch = Callable[[Batch], pa.Table]
"""A function from a batch to a table with the columns `_source`, target key and value. Rows of one source key stay in
their order."""


class Preserve(Protocol):
    """A hook that copies values, such as a surrogate key, from previous rows of the same target key."""

    def __call__(self, rows: pa.Table, previous: pa.Table, has_previous: pa.Array, novel: pa.Array) -> pa.Table:
        """Return `rows` in the same order, with the values that the hook copies or assigns.

        A target key is new if it had no rows before this update. One call gets the first row of a new key. Later
        calls get its further rows.

        Args:
            rows: The new rows: target key and value columns.
            previous: For each row of `rows`, the row to copy from, with the same target key. If the key is not new,
                this is one of the key's previous rows. For the first row of a new key, the value columns are null. For
                a further row of a new key, this is the first row of the key, as the hook returned it.
            has_previous: Boolean array: false for the first row of each new target key, otherwise true.
            novel: Int64 array: an unused number for the first row of each new target key, null for other rows.
        """


@dataclass(frozen=True)
class SurrogateKey:
    """A Preserve hook for an integer column, which gives each new target key the next unused id.

    An existing target key retains its id. Values that the Produce function returns for the column are ignored.
    """

    column: str

    def check(self, stage: str, rows: Rows) -> None:
        """Raise GraphError if the stage has no value column that can hold the ids."""
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

    def __call__(self, rows: pa.Table, previous: pa.Table, has_previous: pa.Array, novel: pa.Array) -> pa.Table:
        import pyarrow.compute as pc

        ids = pc.if_else(has_previous, previous[self.column], novel)
        index = rows.schema.get_field_index(self.column)
        return rows.set_column(index, rows.schema.field(index), ids.cast(rows.schema.field(index).type))


@dataclass(frozen=True)
class Root:
    """A node that stores rows from an external source.

    Its updates are passed to `Dataflow.advance`.
    """

    name: str
    rows: Rows


@dataclass(frozen=True)
class DeltaRoot:
    """A node that receives added and removed rows from an external source, and does not store them.

    The rows are a `Delta`. The node can feed only sum stages. If it feeds a `Stage`, the graph is rejected with
    GraphError.

    The caller must remove only rows that were added before. This is not checked, except that an unsigned total must not
    become negative.
    """

    name: str
    rows: Rows


@dataclass(frozen=True)
class Delta:
    """Added or removed rows of a `DeltaRoot`, in any order.

    A key may have several rows.
    """

    rows: pa.Table | Callable[[], Iterable[pa.RecordBatch]]
    """Key and value columns, or a function that returns batches of them. Each stage that the root feeds calls the
    function in its tasks. It must return the same rows every time, and be picklable if the runner uses other
    processes."""
    removed: bool = False
    """Whether the rows are removed."""
    count: int | None = None
    """Approximate number of rows that the function returns. Not needed for a table."""

    def __post_init__(self) -> None:
        if self.count is None and not isinstance(self.rows, pa.Table):
            raise ValueError("a Delta whose rows are read by a function needs `count`: about how many rows they are")

    @property
    def row_count(self) -> int:
        """Number of rows: exact if `rows` is a table, the approximate `count` if `rows` is a function."""
        return self.rows.num_rows if isinstance(self.rows, pa.Table) else self.count or 0

    def batches(self) -> Iterable[pa.RecordBatch]:
        """Return the rows in batches."""
        return self.rows.to_batches() if isinstance(self.rows, pa.Table) else self.rows()


@dataclass(frozen=True)
class Stage:
    """A stage that maps source keys to target keys by a Produce function.

    The function must depend only on its arguments. Set either `produce` or `produce_batch`.
    """

    name: str
    ports: tuple[tuple[str, ...], ...]
    """The names of the feeders of each port. All ports have the same key types. Feeders of one port have the same
    value types."""
    rows: Rows
    """Types of target keys and values."""
    produce: PerKey | None = None
    produce_batch: PerBatch | None = None
    suppress_unchanged: bool = False
    """Whether the update omits target keys whose values did not change."""
    preserve: Preserve | None = None
    revision: str = "1"
    """A version of the functions, `preserve` included. Change it when they change; the stage must then be rebuilt."""

    def __post_init__(self) -> None:
        if (self.produce is None) == (self.produce_batch is None):
            raise GraphError(f"stage {self.name!r} needs either `produce` or `produce_batch`")
        if not self.ports or not all(self.ports):
            raise GraphError(f"stage {self.name!r} needs at least one port, and each port a feeder")
        if self.preserve is not None and (not callable(self.preserve) or isinstance(self.preserve, type)):
            raise GraphError(f"stage {self.name!r}: preserve is {self.preserve!r}; give a hook: SurrogateKey('id')")


@dataclass(frozen=True)
class SumStage:
    """A stage that adds up amounts by key.

    A key whose totals are all zero is removed.

    `key` and `amounts` name columns of the feeders (the nodes whose output the stage reads). Integer totals are int64,
    decimal totals are decimal128(38, scale). `count` names an additional total, the number of rows: a key then exists
    as long as it has rows.
    """

    name: str
    feeders: tuple[str, ...]
    key: tuple[str, ...]
    amounts: tuple[str, ...] = ()
    count: str | None = None
    descending: tuple[str, ...] = ()
    least: tuple[str, int] | None = None
    """An integer column of the feeders' rows and its minimum: rows below it are ignored. None: no row is ignored."""
    revision: str = "1"
    signed: bool = False
    """Whether totals may be negative, as balances are. Otherwise a negative total is a corruption. A count is never
    negative."""
    is_followed: bool = True
    """Whether updates are stored, for stages that this one feeds and for other readers. It may change without a
    rebuild."""

    @property
    def unsigned(self) -> tuple[str, ...]:
        """The totals that are never negative."""
        counts = () if self.count is None else (self.count,)
        return counts if self.signed else (*self.amounts, *counts)

    def __post_init__(self) -> None:
        if not self.feeders or not self.key or not (self.amounts or self.count):
            raise GraphError(f"stage {self.name!r} needs a feeder, a key column, and something to add up or count")

    def target(self, feeder: Rows) -> Rows:
        """Return the types of the stage's keys and totals.

        Args:
            feeder: The types of the feeders' rows, which are the same for all feeders.

        Raises:
            GraphError: The feeders lack a column that the stage names, an amount is neither an integer nor a
                decimal128, or the column in `least` is not an integer.
        """
        fields = {field.name: field for field in feeder.schema}
        named_columns = (*self.key, *self.amounts, *(self.least[:1] if self.least else ()))
        missing = [name for name in named_columns if name not in fields]
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
