"""How a graph is declared: roots, stages with a Produce function, and stages that sum."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import date, time, timedelta
from math import isinf
from typing import Any, Protocol

import pyarrow as pa

from metastore_assets.errors import GraphError
from metastore_assets.produce.rows import SOURCE, Rows

PerKey = Callable[..., Iterable[tuple[Any, Any]]]
"""`produce(key, *ports)` yields (target key, value), any number of them, in any order.

A key or value of one column is a plain Python value, else a tuple. Each port is an iterator over the values that the
port's feeders have for the key, in the order in which the feeders are declared. It need not be read to its end.
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

        `former` holds, row by row, one former row of the same target key, where `known` (boolean) is true; `novel`
        (int64) is a number that is new and the same for all rows of one target key, where there was none.
        """


@dataclass(frozen=True)
class SurrogateKey:
    """Fills an int64 value column: the former id of a target key while it lives, else the next number never used."""

    column: str

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
    """To be changed when the function changes: the stage then has to be rebuilt."""

    def __post_init__(self) -> None:
        if (self.produce is None) == (self.produce_batch is None):
            raise GraphError(f"stage {self.name!r} needs either `produce` or `produce_batch`")
        if not self.ports or not all(self.ports):
            raise GraphError(f"stage {self.name!r} needs at least one port, and each port a feeder")


@dataclass(frozen=True)
class SumStage:
    """Adds up amounts by key. Keys whose totals are all zero vanish; a total below zero is a corruption.

    `key` and `amounts` name columns of the feeders' rows, keys or values. Integer totals are int64, decimal ones
    decimal128(38, scale). `count` names an additional total, of rows.
    """

    name: str
    feeders: tuple[str, ...]
    key: tuple[str, ...]
    amounts: tuple[str, ...] = ()
    count: str | None = None
    descending: tuple[str, ...] = ()
    revision: str = "1"

    def __post_init__(self) -> None:
        if not self.feeders or not self.key or not (self.amounts or self.count):
            raise GraphError(f"stage {self.name!r} needs a feeder, a key column, and something to add up or count")

    def target(self, feeder: Rows) -> Rows:
        """Keys and totals of the stage, whose feeders have such rows. Raises GraphError."""
        fields = {field.name: field for field in feeder.schema}
        missing = [name for name in (*self.key, *self.amounts) if name not in fields]
        if missing:
            raise GraphError(f"stage {self.name!r}: its feeders have no column {missing[0]!r}, but {list(fields)}")
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


Node = Root | Stage | SumStage


def batches_of(stage: Stage) -> PerBatch:
    """The vectorised form of a stage's Produce function."""
    if stage.produce_batch is not None:
        return stage.produce_batch
    assert stage.produce is not None
    return _PerKeyAdapter(stage.produce, stage.rows)


@dataclass(frozen=True)
class _PerKeyAdapter:
    produce: PerKey
    rows: Rows

    def __call__(self, batch: Batch) -> pa.Table:
        keys = _plain_rows(batch.keys)
        ports = [_groups(port, len(keys)) for port in batch.ports]
        sources: list[int] = []
        targets: list[Any] = []
        values: list[Any] = []
        for number, key in enumerate(keys):
            try:
                for target, value in self.produce(key, *(port[number] for port in ports)):
                    sources.append(number)
                    targets.append(target)
                    values.append(value)
            except Exception as error:
                raise KeyFailure(key) from error
        try:
            columns = _columns(targets, self.rows.key) + _columns(values, self.rows.value)
        except Exception as error:
            raise KeyFailure(keys[sources[self._first_wrong(targets, values)]]) from error
        return pa.table([pa.array(sources, pa.int64()), *columns], names=[SOURCE, *self.rows.schema.names])

    def _first_wrong(self, targets: list[Any], values: list[Any]) -> int:
        """The number of the first output that does not have the declared types, when there is one."""
        for number, (target, value) in enumerate(zip(targets, values, strict=True)):
            try:
                _columns([target], self.rows.key)
                _columns([value], self.rows.value)
            except Exception:  # noqa: BLE001 (whatever it is, the caller has the error)
                return number
        return 0


class KeyFailure(Exception):
    """Tells for which source key a Produce function raised."""

    def __init__(self, key: Any) -> None:
        super().__init__(key)
        self.key = key


def _plain_rows(table: pa.Table) -> list[Any]:
    """One plain value per row of a table of one column, else one tuple."""
    columns = [column.to_pylist() for column in table.columns]
    return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))


def _groups(port: pa.Table, keys: int) -> list[Iterator[Any]]:
    """Per source key an iterator over its values, which turns them into Python values as it is read."""
    starts = [0] * (keys + 1)
    for source in port[SOURCE].to_pylist():
        starts[source + 1] += 1
    for number in range(keys):
        starts[number + 1] += starts[number]
    values = port.drop_columns([SOURCE])
    return [_values(values, starts[number], starts[number + 1]) for number in range(keys)]


def _values(values: pa.Table, start: int, stop: int, step: int = 1024) -> Iterator[Any]:
    for first in range(start, stop, step):
        yield from _plain_rows(values.slice(first, min(step, stop - first)))


def _columns(rows: list[Any], schema: pa.Schema) -> list[pa.Array]:
    if len(schema) == 1:
        return [_exact(rows, schema.field(0).type)]
    if not all(isinstance(row, tuple | list) and len(row) == len(schema) for row in rows):
        raise ValueError(f"it needs a tuple of one value for each of the columns {', '.join(schema.names)}")
    return [_exact([row[number] for row in rows], field.type) for number, field in enumerate(schema)]


def _exact(values: list[Any], type_: pa.DataType) -> pa.Array:
    """An array of the values. Raises ValueError where a number or a time would not be the same in its type."""
    array = pa.array(values, type_)
    kinds: Any = (object,) if pa.types.is_integer(type_) else (date, time, timedelta)
    if pa.types.is_integer(type_) or pa.types.is_temporal(type_):
        for given, stored in zip(values, array.to_pylist(), strict=True):
            if given is not None and isinstance(given, kinds) and given != stored:
                raise ValueError(f"{given!r} would become {stored!r} in a column of type {type_}")
    elif pa.types.is_floating(type_):
        for given, stored in zip(values, array.to_pylist(), strict=True):
            if given is not None and isinf(stored) and not isinf(given):
                raise ValueError(f"{given!r} is too large for a column of type {type_}")
    return array
