"""Random columns of all types, their values, and Arrow arrays of them.

A column is a tree of nodes. The children of a node are the fields of a struct, the element of a list, or the key and
the value of a map. Each node has a number, its `key`. A value is plain Python: integers in the type's unit for dates,
times and timestamps, `Decimal`, `str`, `bytes`. The value of a struct is a dictionary from the `key` of each field to
its value. A field that is not in the dictionary is null. The value of a map is a list of pairs.
"""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pyarrow as pa

DAY = 86_400 * 10**9
"""Nanoseconds."""
_TICKS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


@dataclass(frozen=True)
class Kind:
    """A type without children."""

    arrow: pa.DataType
    family: str
    """How values are compared: `number`, `float`, `text`, `bytes`, `uuid`, `flag`, `date`, `time`, `local`, `zoned`."""
    pool: Sequence[Any]
    """Values that are drawn often."""

    @property
    def tick(self) -> int:
        """Return the number of nanoseconds in the unit of a time or timestamp, and 1 for other types."""
        return _TICKS[self.arrow.unit] if self.family in ("time", "local", "zoned") else 1

    def drawn(self, draw: random.Random) -> Any:
        """Draw a value."""
        if draw.random() < 0.75:
            return draw.choice(self.pool)
        if self.family == "number" and pa.types.is_integer(self.arrow):
            bits = self.arrow.bit_width - (1 if pa.types.is_signed_integer(self.arrow) else 0)
            value = draw.getrandbits(draw.randrange(1, bits + 1))
            return -value if pa.types.is_signed_integer(self.arrow) and draw.random() < 0.4 else value
        if self.family == "number":
            digits = draw.getrandbits(200) % 10 ** draw.randrange(1, self.arrow.precision + 1)
            return Decimal((draw.randrange(2), tuple(map(int, str(digits))), -self.arrow.scale))
        if self.family == "float":
            return self.rounded(draw.gauss(0, 10 ** draw.randrange(-3, 20)))
        if self.family == "text":
            return "".join(draw.choice("aAbB%_'\"\\ .äß☃😀0") for _ in range(draw.randrange(6)))
        if self.family == "bytes" and not pa.types.is_fixed_size_binary(self.arrow):
            return draw.randbytes(draw.randrange(5))
        if self.family == "date":
            return draw.randrange(-40_000, 40_000)
        if self.family == "time":
            return draw.randrange(DAY // self.tick)
        if self.family in ("local", "zoned"):
            return draw.randrange(-(10**18), 2 * 10**18) // self.tick
        return draw.choice(self.pool)

    def rounded(self, value: float) -> float:
        """Round a float to the precision of the type."""
        if self.arrow == pa.float32():
            return float(struct.unpack("f", struct.pack("f", value))[0])
        return value

    def array(self, values: Sequence[Any]) -> pa.Array:
        """Convert values to an Arrow array of this type."""
        if self.arrow == pa.uuid():
            return pa.ExtensionArray.from_storage(self.arrow, pa.array(values, pa.binary(16)))
        if pa.types.is_dictionary(self.arrow):
            return pa.array(values, self.arrow.value_type).dictionary_encode()
        return pa.array(values, self.arrow)


@dataclass
class Node:
    """A node of a table's schema: a column, a struct's field, a list's element, or a map's key or value.

    A node without `kind` has a nested type.
    """

    key: int
    """Identifies the column in any state of a table.

    A rename does not change it, and a column that is added again has another one.
    """
    name: str
    kind: Kind | None
    form: str = "leaf"
    """`leaf`, `struct`, `list` or `map`."""
    children: list[Node] = field(default_factory=list)

    def copied(self) -> Node:
        """Return a copy with copies of the children."""
        return Node(self.key, self.name, self.kind, self.form, [child.copied() for child in self.children])

    def drawn(self, draw: random.Random, nulls: float) -> Any:
        """Draw a value, or null with the probability `nulls`."""
        if draw.random() < nulls:
            return None
        if self.kind is not None:
            return self.kind.drawn(draw)
        if self.form == "struct":
            return {child.key: child.drawn(draw, nulls) for child in self.children}
        if self.form == "list":
            return [self.children[0].drawn(draw, nulls) for _ in range(draw.choice([0, 1, 1, 2, 3]))]
        keys, items = self.children[0], {}
        for _ in range(draw.randrange(3)):
            key = keys.drawn(draw, 0.0)
            items[repr(key)] = (key, self.children[1].drawn(draw, nulls))
        return list(items.values())

    def array(self, values: Sequence[Any], names: Mapping[int, str] | None = None) -> pa.Array:
        """Convert values to an Arrow array.

        Each field of a struct has its name in `names`, by the `key` of the field, or else its name in the table.
        """
        if self.kind is not None:
            return self.kind.array(values)
        absent = pa.array([value is None for value in values], pa.bool_())
        if self.form == "struct":
            columns = [
                child.array([None if value is None else value.get(child.key) for value in values], names)
                for child in self.children
            ]
            fields = [
                pa.field(name_of(child, names), column.type)
                for child, column in zip(self.children, columns, strict=True)
            ]
            return pa.StructArray.from_arrays(columns, fields=fields, mask=absent)
        offsets, at = [0], 0
        for value in values:
            at += len(value or ())
            offsets.append(at)
        ends = pa.array(offsets, pa.int32())
        elements = [element for value in values for element in value or ()]
        if self.form == "list":
            return pa.ListArray.from_arrays(ends, self.children[0].array(elements, names), mask=absent)
        keys, items = (
            child.array([pair[position] for pair in elements], names) for position, child in enumerate(self.children)
        )
        return pa.MapArray.from_arrays(ends, keys, items, mask=absent)


def name_of(node: Node, names: Mapping[int, str] | None) -> str:
    """Return the name of a column in `names`, by its key, or else its name in the table."""
    return node.name if names is None else names.get(node.key, node.name)


@dataclass(frozen=True)
class NodePath:
    """A node with the nodes above it."""

    nodes: tuple[Node, ...]

    @property
    def node(self) -> Node:
        return self.nodes[-1]

    @property
    def names(self) -> tuple[str, ...]:
        """Return the path from the top-level column, with the fixed names of elements, keys and values."""
        names = [self.nodes[0].name]
        for parent, child in zip(self.nodes, self.nodes[1:], strict=False):
            child_names = {"list": ["element"], "map": ["key", "value"]}.get(parent.form)
            names.append(child.name if child_names is None else child_names[parent.children.index(child)])
        return tuple(names)

    @property
    def keys(self) -> tuple[int, ...]:
        return tuple(node.key for node in self.nodes)

    @property
    def is_repeated(self) -> bool:
        """Return whether the node is below a list or a map."""
        return any(parent.form in ("list", "map") for parent in self.nodes[:-1])

    def values(self, row: Mapping[int, Any]) -> list[Any]:
        """Return the node's values in a row: one value, or one per element of the list or map above it."""
        values = [row.get(self.nodes[0].key)]
        for parent, child in zip(self.nodes, self.nodes[1:], strict=False):
            if parent.form == "struct":
                values = [None if value is None else value.get(child.key) for value in values]
            else:
                position = next(at for at, child_node in enumerate(parent.children) if child_node is child)
                elements = [element for value in values for element in value or ()]
                values = elements if parent.form == "list" else [pair[position] for pair in elements]
        return values


def node_paths_of(columns: Sequence[Node]) -> list[NodePath]:
    """Return the columns and all nodes below them, depth first, which is the order of statistics."""

    def walk(above: tuple[Node, ...], node: Node) -> Iterator[NodePath]:
        yield NodePath((*above, node))
        for child in node.children:
            yield from walk((*above, node), child)

    return [node_path for column in columns for node_path in walk((), column)]


def paths_of(columns: Sequence[Node]) -> dict[tuple[int, ...], str]:
    """Return the path of each node as the package writes it, by the node's `NodePath.keys`.

    A path joins names with dots. If several nodes would have the same path, unusual names in it are in backticks.
    """
    node_paths = node_paths_of(columns)
    plain = [".".join(node_path.names) for node_path in node_paths]
    return {
        node_path.keys: path if plain.count(path) == 1 else ".".join(map(_quoted, node_path.names))
        for node_path, path in zip(node_paths, plain, strict=True)
    }


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`" if "." in name or "`" in name or not name else name


_SINGLES = [struct.unpack("f", struct.pack("f", value))[0] for value in (0.1, 88.001144, 16_777_217.0, 3.4e38, 1e-40)]
_FLOATS = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -1.5]
_TEXTS = ["", "a", "A", "ab", "a%b", "a_b", "it's", 'x"y', "ä", "😀", "null", "a" * 70, "a" * 70 + "b", "\\"]
_DAYS = [0, -1, 19_782, -141_427, 2_932_896, -719_162]
"""1970-01-01 and the day before, 2024-02-29, 1582-10-15, 9999-12-31, 0001-01-01."""
_MOMENTS = [0, 1, -1, 1_709_164_800 * 10**9, 1_709_164_800 * 10**9 + 1, 1_709_164_800_123_456_789, -(10**18)]


def _ticks(unit: str, *more: int) -> list[int]:
    return [*(moment // _TICKS[unit] for moment in _MOMENTS), *more]


_FAR = [253_402_300_799 * 10**6, -62_135_596_800 * 10**6]
"""The last second of the year 9999 and the first of the year 1, in microseconds."""


def _decimal(precision: int, scale: int) -> Kind:
    pool = [Decimal((sign, digits, -scale)) for sign in (0, 1) for digits in ((9,) * precision, (5,), (1, 0))]
    return Kind(pa.decimal128(precision, scale), "number", [*pool, Decimal((0, (0,), -scale))])


LAKE_KINDS: dict[str, Kind] = {
    "boolean": Kind(pa.bool_(), "flag", [True, False]),
    "integer": Kind(pa.int32(), "number", [0, 1, -1, 2, 3, 2**31 - 1, -(2**31)]),
    "long": Kind(pa.int64(), "number", [0, 1, -1, 2**53 + 1, 2**63 - 1, -(2**63), 7]),
    "float": Kind(pa.float32(), "float", [*_FLOATS, *_SINGLES]),
    "double": Kind(pa.float64(), "float", [*_FLOATS, 0.1, 1e300, 5e-324, 9.007199e15]),
    "decimal(12,2)": _decimal(12, 2),
    "decimal(38,0)": _decimal(38, 0),
    "decimal(38,20)": _decimal(38, 20),
    "string": Kind(pa.string(), "text", _TEXTS),
    "binary": Kind(pa.binary(), "bytes", [b"", b"\0", b"a", b"\xff", b"\xff" * 70, b"ab"]),
    "date": Kind(pa.date32(), "date", _DAYS),
    "timestamp": Kind(pa.timestamp("us", "UTC"), "zoned", _ticks("us", *_FAR)),
    "timestamp_ntz": Kind(pa.timestamp("us"), "local", _ticks("us", *_FAR)),
}
"""Types that Delta and Iceberg have, by Delta's names."""
DELTA_KINDS = LAKE_KINDS | {
    "short": Kind(pa.int16(), "number", [0, 1, -(2**15), 2**15 - 1]),
    "byte": Kind(pa.int8(), "number", [0, 1, -128, 127]),
}
ICEBERG_KINDS = LAKE_KINDS | {
    "time": Kind(pa.time64("us"), "time", [0, 1, 86_399_999_999, 43_200_000_000]),
    "fixed": Kind(pa.binary(3), "bytes", [b"abc", b"\0\0\0", b"\xff\xff\xff"]),
}
FILE_KINDS = DELTA_KINDS | {
    "uint8": Kind(pa.uint8(), "number", [0, 1, 255]),
    "uint32": Kind(pa.uint32(), "number", [0, 1, 2**32 - 1]),
    "uint64": Kind(pa.uint64(), "number", [0, 1, 2**63, 2**64 - 1]),
    "ms": Kind(pa.timestamp("ms"), "local", _ticks("ms")),
    "zoned ms": Kind(pa.timestamp("ms", "Europe/Paris"), "zoned", _ticks("ms")),
    "ns": Kind(pa.timestamp("ns"), "local", _ticks("ns", 2**63 - 1, -(2**63) + 1)),
    "zoned ns": Kind(pa.timestamp("ns", "America/New_York"), "zoned", _ticks("ns", 2**63 - 1)),
    "time ns": Kind(pa.time64("ns"), "time", [0, 1, DAY - 1, DAY // 2]),
    "time ms": Kind(pa.time32("ms"), "time", [0, 1, 86_399_999]),
    "uuid": Kind(pa.uuid(), "uuid", [bytes(16), b"\xff" * 16, bytes(range(16))]),
    "fixed": Kind(pa.binary(3), "bytes", [b"abc", b"\0\0\0", b"\xff\xff\xff"]),
    "dictionary": Kind(pa.dictionary(pa.int32(), pa.string()), "text", _TEXTS),
    "large text": Kind(pa.large_string(), "text", _TEXTS),
}

NAMES = [
    *("a", "A", "b", "a.b", "a.B", "a.b.c", "c", "value", "key", "element", "select", "Größe", "größe", "naïve"),
    *(
        'qu"ote',
        "qu'ote",
        "back`tick",
        "a b",
        "日付",
        "😀",
        "null",
        "is",
        "a-b",
        "n%",
        "b.element",
        "1",
        "ä.ö",
        "$",
        '"',
    ),
]
"""Names that are easily taken for other ones."""


class Drawer:
    """Draws columns with unique keys."""

    def __init__(self, draw: random.Random, kinds: Mapping[str, Kind], names: Sequence[str] = NAMES) -> None:
        self.draw = draw
        self.kinds = list(kinds.values())
        self.names = names
        self.numbered = 0

    def node(self, name: str, depth: int = 0) -> Node:
        """Draw a column of any type, with at most three levels below it."""
        draw, key = self.draw, self.next_key()
        form = draw.choice(["leaf"] * 5 + ["struct"] * 3 + ["list", "map"]) if depth < 3 else "leaf"
        if form == "leaf":
            return Node(key, name, draw.choice(self.kinds))
        if form == "struct":
            names = self.draw_names(draw.randrange(1, 4))
            return Node(key, name, None, form, [self.node(child_node, depth + 1) for child_node in names])
        if form == "list":
            return Node(key, name, None, form, [self.node("element", depth + 1)])
        keys = [kind for kind in self.kinds if kind.family in ("number", "text", "date", "local", "bytes")]
        return Node(
            key, name, None, form, [Node(self.next_key(), "key", draw.choice(keys)), self.node("value", depth + 1)]
        )

    def draw_names(self, count: int) -> list[str]:
        """Draw different names."""
        return self.draw.sample(self.names, count)

    def leaf(self, name: str, kind: Kind) -> Node:
        """Return a column of a given type."""
        return Node(self.next_key(), name, kind)

    def next_key(self) -> int:
        """Return an unused key."""
        self.numbered += 1
        return self.numbered
