"""The graph of a dataflow: validated nodes with derived types, in execution order.

A node is a root or a stage. A root receives rows from an external source. A stage maps source keys (the keys of its
input) to target keys (the keys of its output). A port is one input of a stage. The feeders of a port are the nodes
whose output it reads. A node's fingerprint is a digest of its declaration: if it changes, the node must be rebuilt. A
Preserve hook of a stage copies values from previous rows to new rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import partial
from graphlib import CycleError, TopologicalSorter
from typing import Any

import pyarrow as pa

from metastore_assets.digests import digest_json
from metastore_assets.errors import GraphError
from metastore_assets.produce.run_schema import RunSchema, content_schema, mapping_schema, root_schema, sum_schema
from metastore_assets.produce.stages import DeltaRoot, Node, Preserve, Root, Stage, SumStage, SurrogateKey
from metastore_assets.produce.typed_rows import Rows


@dataclass(frozen=True)
class TypedNode:
    """A declared node, with the types and schemas that follow from the node and its feeders."""

    node: Node
    rows: Rows
    """Types of target keys and values."""
    source: pa.Schema
    """Types of source keys; for a root, the types of its keys."""
    input: Rows | None
    """Types of the first port's rows; None for a root."""
    content: RunSchema
    """Schema of the files with the node's rows."""
    mappings: RunSchema | None
    """Schema of the files with key-mappings (source key, target key); None for roots and sum stages."""
    fingerprint: str
    """Digest of what determines the stored state, except the declarations of the feeders."""
    form: str
    """Digest of the file layout: columns, types and order."""

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def feeders(self) -> tuple[str, ...]:
        """Distinct names of the feeders of all ports."""
        return tuple(dict.fromkeys(name for port in ports(self.node) for name in port))


def ports(node: Node) -> tuple[tuple[str, ...], ...]:
    """Return the names of the nodes that feed each port of a node.

    A port is one input table.

    A sum stage has one port, a root none.
    """
    if isinstance(node, Stage):
        return node.ports
    return (node.feeders,) if isinstance(node, SumStage) else ()


def typed_graph(nodes: Sequence[Node]) -> dict[str, TypedNode]:
    """Validate declared nodes.

    Return them by name, each after its feeders.

    Raises GraphError if a declaration is invalid, for example if a name occurs twice or nodes feed each other in a
    circle.
    """
    by_name = {node.name: node for node in nodes}
    if len(by_name) < len(nodes):
        names = [node.name for node in nodes]
        raise GraphError(f"two stages have the name {next(n for n in names if names.count(n) > 1)!r}")
    for node in nodes:
        for port in ports(node):
            for feeder in port:
                if feeder not in by_name:
                    raise GraphError(f"stage {node.name!r} is fed by {feeder!r}, which is not declared")
                feeding_node = by_name[feeder]
                if isinstance(feeding_node, SumStage) and not feeding_node.is_followed:
                    raise GraphError(f"stage {node.name!r} is fed by {feeder!r}, whose updates are not stored")
            if len(set(port)) < len(port):
                raise GraphError(f"stage {node.name!r} has the same feeder twice on one port: {', '.join(port)}")
    try:
        order = list(TopologicalSorter({n.name: [f for port in ports(n) for f in port] for n in nodes}).static_order())
    except CycleError as error:
        raise GraphError(f"stages feed each other in a circle: {' → '.join(error.args[1])}") from None
    result: dict[str, TypedNode] = {}
    for name in order:
        result[name] = _typed(by_name[name], result)
    return result


def _typed(node: Node, typed_nodes: dict[str, TypedNode]) -> TypedNode:
    """Validate a node, given the nodes before it.

    Return it with its types and schemas. Raises GraphError.
    """
    if isinstance(node, Root | DeltaRoot):
        node.rows.check(node.name)
        return TypedNode(
            node, node.rows, node.rows.key, None, root_schema(node.rows), None, *_digests(node, node.rows, [])
        )
    if isinstance(node, Stage):
        for name in (name for port in node.ports for name in port):
            if isinstance(typed_nodes[name].node, DeltaRoot):
                raise GraphError(
                    f"stage {node.name!r} is fed by {name!r}, a DeltaRoot, whose rows are not stored: it can only "
                    "feed sum stages; put a sum stage in between, or declare it as a Root"
                )
    inputs = [_port_rows(node, port, typed_nodes) for port in ports(node)]
    rows = node.target(inputs[0]) if isinstance(node, SumStage) else node.rows
    rows.check(node.name)
    if isinstance(node, Stage) and isinstance(node.preserve, SurrogateKey):
        node.preserve.check(node.name, rows)
    source = inputs[0].key
    if not all(rows_type.key.equals(source) for rows_type in inputs):
        raise GraphError(f"stage {node.name!r}: its ports have different keys; all ports of a stage have the same key")
    digests = _digests(node, rows, inputs)
    if isinstance(node, SumStage):
        return TypedNode(node, rows, source, inputs[0], sum_schema(rows, node.unsigned), None, *digests)
    return TypedNode(
        node, rows, source, inputs[0], content_schema(rows, source), mapping_schema(rows, source), *digests
    )


def _port_rows(node: Node, port: tuple[str, ...], typed_nodes: dict[str, TypedNode]) -> Rows:
    """Return the types of the rows on one port.

    Raises GraphError if its feeders have different types.
    """
    first = typed_nodes[port[0]].rows
    for feeder in port[1:]:
        other = typed_nodes[feeder].rows
        if not (other.key.equals(first.key) and other.value.equals(first.value)):
            raise GraphError(f"stage {node.name!r}: {port[0]!r} and {feeder!r} feed one port with rows of other types")
    return first


def _digests(node: Node, rows: Rows, inputs: list[Rows]) -> tuple[str, str]:
    """Return (`TypedNode.fingerprint`, `TypedNode.form`) of a node.

    The fingerprint is a digest of the node's declaration. The form is a digest of the layout of its files.
    """
    kind = type(node).__name__
    parts: list[object] = [kind, [list(port) for port in ports(node)]]
    parts += [
        [_columns(rows_type.key), _columns(rows_type.value), list(rows_type.descending)]
        for rows_type in (rows, *inputs)
    ]
    form = [kind, _columns(rows.key), _columns(rows.value), list(rows.descending)]
    form += [_columns(rows_type.key) for rows_type in inputs[:1]]
    if isinstance(node, Stage):
        parts.append([node.revision, _hook(node.preserve)])
    if isinstance(node, SumStage):
        parts.append([node.revision, node.key, node.amounts, node.count, *(["signed"] if node.signed else [])])
        parts += [["least", *node.least]] if node.least else []
    return digest_json(parts), digest_json(form)


def _columns(schema: pa.Schema) -> str:
    """Return the names and types of columns as text.

    Metadata is omitted: it must not affect the fingerprint.
    """
    return str(schema.to_string(show_field_metadata=False, show_schema_metadata=False))


def _hook(hook: Preserve | None) -> Any:
    """Return the name and the arguments of a Preserve hook, for the fingerprint; False without a hook.

    Only arguments of simple types, such as texts, numbers, dates and tuples of these, are included.
    """
    if hook is None:
        return False
    if isinstance(hook, partial):
        arguments = {**{str(number): value for number, value in enumerate(hook.args)}, **hook.keywords}
        return [*_hook(hook.func), _plain_arguments(arguments)]
    attributes = getattr(hook, "__dict__", {})
    if is_dataclass(hook):
        attributes = {field.name: getattr(hook, field.name) for field in fields(hook)}
    return [getattr(hook, "__name__", type(hook).__name__), _plain_arguments(attributes)]


def _plain_arguments(values: Mapping[str, object]) -> list[tuple[str, str]]:
    """Return (name, `repr`) of each plain value, sorted by name.

    Plain values are numbers, texts, dates and the like, and tuples of them. Other values, such as lists, are left out:
    calls of the hook may change them, but must not change the fingerprint.

    Args:
        values: The arguments or attributes of a Preserve hook, by name.
    """
    return [(name, repr(value)) for name, value in sorted(values.items()) if _is_plain(value)]


def _is_plain(value: object) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, str | bytes | int | float | Decimal | date | time | timedelta | Enum)
