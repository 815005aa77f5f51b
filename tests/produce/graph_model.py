"""Graphs of stages, each described once for the package and for the oracle.

The oracle computes the expected results in plain Python. `Graph.declaration` converts a graph for the package, and
`Graph.oracle` converts it for the oracle. Other functions convert rows between tuples and Arrow tables. The feeders of
a node are the nodes whose rows it reads. A port is an input of a stage's function, and has one or more feeders. A root
is an input of the graph, which has no feeders.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from metastore_assets.produce import Batch, Root, Rows, Stage, SumStage, SurrogateKey
from tests.produce import oracle
from tests.produce.oracle import Change, Key, Value

Function = Callable[..., Iterable[tuple[Key, Value]]]


def columns(**types: Any) -> pa.Schema:
    """Return a schema of nullable columns: `columns(id="int64", name="string")`."""
    return pa.schema(
        [(name, pa.type_for_alias(kind) if isinstance(kind, str) else kind) for name, kind in types.items()]
    )


@dataclass(frozen=True)
class RootNode:
    name: str
    key: pa.Schema
    value: pa.Schema
    descending: tuple[str, ...] = ()


@dataclass(frozen=True)
class StageNode:
    name: str
    ports: tuple[tuple[str, ...], ...]
    key: pa.Schema
    value: pa.Schema
    function: Function
    descending: tuple[str, ...] = ()
    suppress: bool = False
    batch: bool = False
    """Whether the stage has a function of batches, which calls `function` for each key of a batch."""
    numbered: str | None = None
    """The value column, of type int64, that holds a surrogate key."""
    founded: tuple[str, str] | None = None
    """Two value columns: the first gets the value that the second had in the first row of the target key."""


@dataclass(frozen=True)
class SumNode:
    name: str
    feeders: tuple[str, ...]
    group: tuple[str, ...]
    amounts: tuple[str, ...]
    count: str | None = None
    descending: tuple[str, ...] = ()
    signed: bool = False
    is_followed: bool = True


@dataclass(frozen=True)
class Founder:
    """A hook that sets `column`, in all rows of a key, to the value of `origin` in the key's first row.

    A key that had rows in the last version keeps its earlier value.
    """

    column: str
    origin: str

    def __call__(self, rows: pa.Table, previous: pa.Table, has_previous: pa.Array, novel: pa.Array) -> pa.Table:
        values = pc.if_else(has_previous, previous[self.column], rows[self.origin])
        return rows.set_column(rows.schema.get_field_index(self.column), rows.schema.field(self.column), values)


Node = RootNode | StageNode | SumNode


class Call(NamedTuple):
    """A call of a Produce function by the package, with the values that it read of each port."""

    stage: str
    key: Key
    ports: tuple[list[Value], ...]


@dataclass
class Graph:
    """The nodes of a graph, feeders first, and the calls of its functions since `calls` was last cleared."""

    nodes: tuple[Node, ...]
    calls: list[Call] = field(default_factory=list)

    def __getitem__(self, name: str) -> Node:
        return next(node for node in self.nodes if node.name == name)

    def rows(self, name: str) -> tuple[pa.Schema, pa.Schema, tuple[str, ...]]:
        """Return a node's key columns, its value columns, and the names of those key columns that descend."""
        node = self[name]
        if not isinstance(node, SumNode):
            return node.key, node.value, node.descending
        fields = {column.name: column for schema in self.rows(node.feeders[0])[:2] for column in schema}
        totals = [pa.field(name, _total(fields[name].type)) for name in node.amounts]
        if node.count:
            totals.append(pa.field(node.count, pa.int64()))
        return pa.schema([fields[name] for name in node.group]), pa.schema(totals), node.descending

    def is_followed(self, name: str) -> bool:
        """Return whether the node has updates, which other nodes can read."""
        node = self[name]
        return not isinstance(node, SumNode) or node.is_followed

    def source(self, name: str) -> pa.Schema:
        """Return the key columns of the feeders of a stage."""
        node = self[name]
        assert isinstance(node, StageNode)
        return self.rows(node.ports[0][0])[0]

    def declaration(self) -> list[Root | Stage | SumStage]:
        """Return the declaration of the graph for the package."""
        return [self._declared(node) for node in self.nodes]

    def oracle(self) -> list[oracle.Node]:
        """Return the nodes of the graph for the oracle."""
        return [self._described(node) for node in self.nodes]

    def _declared(self, node: Node) -> Root | Stage | SumStage:
        if isinstance(node, RootNode):
            return Root(node.name, Rows(node.key, node.value, node.descending))
        if isinstance(node, SumNode):
            return SumStage(
                node.name,
                feeders=node.feeders,
                key=node.group,
                amounts=node.amounts,
                count=node.count,
                descending=node.descending,
                signed=node.signed,
                is_followed=node.is_followed,
            )
        rows = Rows(node.key, node.value, node.descending)

        def produce(key: Key, *ports: Iterator[Value]) -> Iterator[tuple[Key, Value]]:
            call = Call(node.name, key, tuple([] for _ in ports))
            self.calls.append(call)
            yield from node.function(key, *map(_noted, ports, call.ports))

        form: dict[str, Any] = {"produce": produce}
        if node.batch:
            form = {"produce_batch": self._batched(node, produce)}
        return Stage(
            node.name,
            ports=node.ports,
            rows=rows,
            suppress_unchanged=node.suppress,
            preserve=_hook(node),
            **form,
        )

    def _batched(self, node: StageNode, produce: Function) -> Callable[[Batch], pa.Table]:
        """Return a function that calls `produce` for each key of a batch.

        It asserts the order of its inputs.
        """
        values = [self.rows(port[0])[1].names for port in node.ports]

        def produce_batch(batch: Batch) -> pa.Table:
            out: list[tuple[Any, ...]] = []
            keys = tuples(batch.keys, self.source(node.name).names)
            assert keys == oracle.ordered(set(keys)), "the distinct source keys ascend"
            groups: list[list[list[Value]]] = [[[] for _ in batch.ports] for _ in keys]
            for number, (port, names) in enumerate(zip(batch.ports, values, strict=True)):
                sources = port["_source"].to_pylist()
                assert sources == sorted(sources)
                for source, value in zip(sources, tuples(port, names), strict=True):
                    groups[source][number].append(value)
            for source, (key, group) in enumerate(zip(keys, groups, strict=True)):
                for target, value in produce(key, *(iter(port) for port in group)):
                    out.append((source, *oracle.parts(target), *oracle.parts(value)))
            return arrow(pa.schema([pa.field("_source", pa.int64()), *node.key, *node.value]), out)

        return produce_batch

    def _described(self, node: Node) -> oracle.Node:
        """Return the node as the oracle describes it."""
        key, _, descending = self.rows(node.name)
        flags = tuple(name in descending for name in key.names)
        if isinstance(node, RootNode):
            return oracle.Source(node.name, flags)
        if isinstance(node, StageNode):
            position = node.value.names.index(node.numbered) if node.numbered else None
            founded_positions = node.founded and tuple(map(node.value.names.index, node.founded))
            return oracle.Produced(
                node.name, node.ports, node.function, flags, node.suppress, position, founded_positions
            )
        names = [name for schema in self.rows(node.feeders[0])[:2] for name in schema.names]
        group, amounts, ones = node.group, node.amounts, (1,) if node.count else ()

        def select(key: Key, value: Value) -> tuple[Key, tuple[Any, ...]]:
            row = dict(zip(names, (*oracle.parts(key), *oracle.parts(value)), strict=True))
            return oracle.plain(tuple(row[name] for name in group)), (*(row[name] for name in amounts), *ones)

        return oracle.Summed(node.name, node.feeders, select, flags)


def _hook(node: StageNode) -> SurrogateKey | Founder | None:
    assert not (node.numbered and node.founded), "a stage has one hook"
    if node.numbered:
        return SurrogateKey(node.numbered)
    return Founder(*node.founded) if node.founded else None


def _noted(values: Iterator[Value], read_values: list[Value]) -> Iterator[Value]:
    for value in values:
        read_values.append(value)
        yield value


def _total(type_: pa.DataType) -> pa.DataType:
    return pa.decimal128(38, type_.scale) if pa.types.is_decimal(type_) else pa.int64()


def arrow(schema: pa.Schema, rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    """Return a table of rows.

    Each row is a tuple with one value for each column of the schema.
    """
    arrays = [pa.array([row[number] for row in rows], field.type) for number, field in enumerate(schema)]
    return pa.table(arrays, schema=schema)


def tuples(table: pa.Table, names: Sequence[str]) -> list[Any]:
    """Return the named columns of each row: the value of one column, or a tuple of the values of several."""
    rows_ = zip(*(table[name].to_pylist() for name in names), strict=True)
    return [oracle.one(oracle.plain(row)) for row in rows_]


def changes_table(key: pa.Schema, value: pa.Schema, rows: Iterable[Change]) -> pa.Table:
    """Return an update of a root with the rows in the given order.

    Values of deletes are null.
    """
    nothing = (None,) * len(value)
    full = [
        (change, *oracle.parts(one_key), *(nothing if change == "delete" else oracle.parts(one_value)))
        for change, one_key, one_value in rows
    ]
    return arrow(pa.schema([pa.field("_change", pa.string()), *key, *value]), full)
