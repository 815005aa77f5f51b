"""Random graphs and random sequences of updates, small enough that everything collides with everything."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest
from random import Random
from typing import Any

import pyarrow as pa

from metastore_assets.produce import Settings
from tests.produce import oracle
from tests.produce.model import Graph, Node, RootNode, StageNode, SumNode, columns
from tests.produce.oracle import Change, Groups, Key, Value

KEYS = 8
"""How many source keys a root may have."""
MOST = 12
"""Outputs of one call, at most: joins of joins would explode."""

Numbers = Callable[..., Iterable[tuple[int, int]]]
"""A function over numbers: a key and per port a list, to (target key, value)."""


@dataclass(frozen=True)
class Form:
    """How small numbers are written as keys or values, so that all types meet all functions."""

    name: str
    schema: pa.Schema
    write: Callable[[int], Any]
    read: Callable[[Any], int]


_TEXTS = ("", "B", "a", "aa", "ä", "z", "é\u0301", "\U0001f34e")
_FLOATS = (0.0, float("nan"), -1.5, 2.0, float("inf"), float("-inf"), -0.0, 1e300)


def _pair(number: int) -> tuple[int | None, str | None]:
    low = number % 4
    return (None if low == 3 else low, None if number % 8 > 5 else _TEXTS[number // 4 % 2])


def _number_of_pair(pair: tuple[int | None, str | None]) -> int:
    low, text = pair
    return (3 if low is None else low) + (8 if text is None else 4 * _TEXTS.index(text))


def _number_of_float(value: float | None) -> int:
    return 9 if value is None else next(n for n, found in enumerate(_FLOATS) if oracle.compare(found, value) == 0)


KEY_FORMS = (
    Form("integer", columns(k="int64"), lambda n: None if n % KEYS == 7 else n % KEYS, lambda k: 7 if k is None else k),
    Form(
        "text",
        columns(k="string"),
        lambda n: None if n % 9 == 8 else _TEXTS[n % 9],
        lambda k: 8 if k is None else _TEXTS.index(k),
    ),
    Form("float", columns(k="float64"), lambda n: None if n % 9 == 8 else _FLOATS[n % 9], _number_of_float),
    Form("pair", columns(c="int32", v="string"), _pair, _number_of_pair),
)
VALUE_FORMS = (
    Form("integer", columns(x="int64"), lambda n: n % 50, lambda v: v),
    Form("nullable", columns(x="int64"), lambda n: None if n % 50 == 13 else n % 50, lambda v: 13 if v is None else v),
    Form(
        "struct",
        columns(x="int64", note="string"),
        lambda n: (n % 50, _TEXTS[n % 7] if n % 3 else None),
        lambda v: v[0],
    ),
)


def identity(key: int, *ports: list[int]) -> Iterator[tuple[int, int]]:
    return ((key, value) for port in ports for value in port)


def modulo(key: int, *ports: list[int]) -> Iterator[tuple[int, int]]:
    return ((key % 3, value) for port in ports for value in port)


def by_value(key: int, *ports: list[int]) -> Iterator[tuple[int, int]]:
    return ((value % 5, key) for port in ports for value in port)


def count(key: int, *ports: list[int]) -> Iterator[tuple[int, int]]:
    """The key depends on how many there are: it moves."""
    yield sum(map(len, ports)) % 6, key


def aggregate(key: int, *ports: list[int]) -> Iterator[tuple[int, int]]:
    yield key % 2, sum(sum(port) for port in ports)


def filtered(key: int, *ports: list[int]) -> Iterator[tuple[int, int]]:
    return ((key, value) for port in ports for value in port if value % 3)


def fan_out(key: int, *ports: list[int]) -> Iterator[tuple[int, int]]:
    for port in ports:
        for value in port:
            yield from (((key + 3 * copy) % KEYS, value + copy) for copy in range(value % 3))


def first_only(key: int, *ports: list[int]) -> Iterator[tuple[int, int]]:
    return ((key, port[0]) for port in ports[:1] if port)


def presence(key: int, *ports: list[int]) -> Iterator[tuple[int, int]]:
    yield key, sum(bool(port) << number for number, port in enumerate(ports))


def inner_join(key: int, left: list[int], right: list[int], *more: list[int]) -> Iterator[tuple[int, int]]:
    if not all(more):
        return iter(())
    return ((key, one + 7 * other) for one in left for other in right)


def left_join(key: int, left: list[int], right: list[int], *more: list[int]) -> Iterator[tuple[int, int]]:
    return ((key, one + 7 * other) for one in left for other in right or [11])


def full_join(key: int, *ports: list[int]) -> Iterator[tuple[int, int]]:
    return ((key, sum(row)) for row in zip_longest(*ports, fillvalue=5))


def anti_join(key: int, left: list[int], right: list[int], *more: list[int]) -> Iterator[tuple[int, int]]:
    return iter(()) if right or any(more) else ((key, value) for value in left)


ANY_PORTS: tuple[Numbers, ...] = (
    identity,
    modulo,
    by_value,
    count,
    aggregate,
    filtered,
    fan_out,
    first_only,
    presence,
)
JOINS: tuple[Numbers, ...] = (inner_join, left_join, full_join, anti_join)


@dataclass(frozen=True)
class Function:
    """A function over numbers, in the types of its stage. Prints as its name."""

    numbers: Numbers
    source: Form
    inputs: tuple[Form, ...]
    target: Form
    output: Form

    def __call__(self, key: Key, *ports: Iterator[Value]) -> Iterator[tuple[Key, Value]]:
        lists = [[form.read(value) for value in port] for form, port in zip(self.inputs, ports, strict=True)]
        for target, value in islice(self.numbers(self.source.read(key), *lists), MOST):
            yield self.target.write(target), self.output.write(value)

    def __repr__(self) -> str:
        forms = "+".join(form.name for form in self.inputs)
        return f"{self.numbers.__name__}({self.source.name}/{forms} → {self.target.name}/{self.output.name})"


@dataclass
class Case:
    """A random graph with all that its runs are drawn from. Prints so that a failure can be told again."""

    seed: int
    graph: Graph
    settings: Settings
    forms: dict[str, tuple[Form, Form]]
    random: Random

    def __repr__(self) -> str:
        lines = [f"seed {self.seed}, {self.settings}"]
        for node in self.graph.nodes:
            forms = "/".join(form.name for form in self.forms.get(node.name, ()))
            match node:
                case RootNode():
                    lines.append(f"  {node.name}: root {forms} descending={node.descending}")
                case StageNode():
                    lines.append(
                        f"  {node.name}: {node.function!r} of {node.ports} descending={node.descending}"
                        f"{' suppress' if node.suppress else ''}{' batch' if node.batch else ''}"
                    )
                case SumNode():
                    lines.append(
                        f"  {node.name}: sum of {node.amounts} by {node.group}, {node.count} of {node.feeders}"
                    )
        return "\n".join(lines)


def random_case(seed: int) -> Case:
    """1–3 roots, 1–5 stages of 1–3 ports of 1–2 feeders, drawn from all earlier nodes."""
    random = Random(seed)
    nodes: list[Node] = []
    forms: dict[str, tuple[Form, Form]] = {}
    key_form = random.choice(KEY_FORMS)
    for number in range(random.randint(1, 3)):
        # Roots mostly share the form of their keys: only then can they meet.
        key = key_form if random.random() < 0.9 else random.choice(KEY_FORMS)
        value = random.choice(VALUE_FORMS)
        name = f"root{number}"
        forms[name] = key, value
        nodes.append(RootNode(name, key.schema, value.schema, _descending(random, key)))
    for number in range(random.randint(1, 5)):
        name = f"stage{number}"
        if random.random() < 0.15:
            total = _sum(random, name, forms)
            nodes.append(total)
            source = forms[total.feeders[0]][0]
            if total.group == tuple(source.schema.names) and total.amounts and not total.count:
                forms[name] = source, VALUE_FORMS[0]  # others may be fed by it
        else:
            nodes.append(_stage(random, name, forms, key_form))
    return Case(seed, Graph(tuple(nodes)), _settings(random), forms, random)


def _stage(random: Random, name: str, forms: dict[str, tuple[Form, Form]], usual: Form) -> StageNode:
    first = random.choice(list(forms))
    source = forms[first][0]
    fitting = [other for other, (key, _) in forms.items() if key is source]
    ports = []
    for number in range(random.choice((1, 1, 2, 2, 3))):
        feeder = first if number == 0 else random.choice(fitting)
        same = [other for other in fitting if forms[other][1] is forms[feeder][1] and other != feeder]
        ports.append((feeder, random.choice(same)) if same and random.random() < 0.5 else (feeder,))
    numbers = random.choice(JOINS if len(ports) > 1 and random.random() < 0.6 else ANY_PORTS)
    target = usual if random.random() < 0.6 else random.choice(KEY_FORMS)
    output = random.choice(VALUE_FORMS)
    forms[name] = target, output
    inputs = tuple(forms[port[0]][1] for port in ports)
    return StageNode(
        name,
        tuple(ports),
        target.schema,
        output.schema,
        Function(numbers, source, inputs, target, output),
        descending=_descending(random, target),
        suppress=random.random() < 0.4,
        batch=random.random() < 0.3,
    )


def _sum(random: Random, name: str, forms: dict[str, tuple[Form, Form]]) -> SumNode:
    # Amounts are not null: a null is no number to add.
    fitting = [other for other, (_, value) in forms.items() if value is not VALUE_FORMS[1]]
    first = random.choice(fitting or list(forms))
    feeders = [other for other in forms if forms[other] == forms[first]]
    random.shuffle(feeders)
    key = forms[first][0].schema.names
    group = random.choice((key, key[:1], key[-1:], ["x"]))
    amounts = () if group == ["x"] or not fitting else ("x",)
    counted = not amounts or random.random() < 0.4
    by = pa.schema([field for schema in (forms[first][0].schema, forms[first][1].schema) for field in schema])
    descending = [column for column in group if random.random() < 0.3 and column in by.names]
    chosen = feeders[: random.randint(1, 2)]
    return SumNode(name, tuple(chosen), tuple(group), amounts, "n" if counted else None, tuple(descending))


def _descending(random: Random, form: Form) -> tuple[str, ...]:
    return tuple(name for name in form.schema.names if random.random() < 0.3)


def _settings(random: Random) -> Settings:
    """Mostly so small that shards, row groups, batches, spills and compactions come with a dozen of rows."""
    kind = random.random()
    if kind < 0.4:
        return Settings()
    if kind < 0.7:
        # Every version adds runs, which are merged tier by tier.
        return Settings(fan_in=2, bulk_share=100.0, base_share=100.0, inline_budget=100, row_group_rows=8)
    return Settings(
        target_rows=random.choice((4, 8, 20)),
        row_group_rows=random.choice((2, 6, 20)),
        batch_rows=random.choice((2, 5, 30)),
        buffer_rows=random.choice((2, 5, 100)),
        task_rows=random.choice((3, 10, 1000)),
        bulk_share=random.choice((0.05, 0.2, 1.0, 100.0)),
        fan_in=random.choice((2, 3, 8)),
        base_share=random.choice((0.5, 0.5, 100.0)),
        max_runs=random.choice((3, 6, 24)),
        inline_budget=random.choice((0, 2, 4, 100)),
        small_rows=random.choice((0, 3, 1000)),
    )


Edits = dict[str, dict[Key, list[Value] | None]]


def random_edits(case: Case) -> Edits:
    """35 % deletes; of each root with probability 0.3 nothing."""
    random, edits = case.random, {}
    for node in case.graph.nodes:
        if not isinstance(node, RootNode) or random.random() < 0.3:
            continue
        key, value = case.forms[node.name]
        own: dict[Key, list[Value] | None] = {}
        for number in random.sample(range(KEYS + 1), random.choice((0, 1, 1, 2, 2, 3, 5))):
            rows = [value.write(random.randrange(50)) for _ in range(random.choice((1, 1, 2, 3)))]
            own[oracle.one(key.write(number))] = None if random.random() < 0.35 else rows
        edits[node.name] = own
    return edits


def random_rows(case: Case, root: str, own: dict[Key, list[Value] | None]) -> list[Change]:
    """The rows of an update, sorted, under random labels."""
    key, _, descending = case.graph.rows(root)
    flags = [name in descending for name in key.names]
    rows: list[Change] = []
    for one_key in oracle.ordered(own, flags):
        values = own[one_key]
        if values is None:
            rows.append(("delete", one_key, None))
        else:
            rows += [(case.random.choice(("add", "update")), one_key, value) for value in values]
    return rows


def shuffled(case: Case, rows: Sequence[Change]) -> list[Change]:
    """The same rows in another order of keys; the rows of a key keep theirs, but need not be together."""
    lanes: dict[Key, list[Change]] = {}
    for row in rows:
        lanes.setdefault(row[1], []).append(row)
    left, out = list(lanes.values()), []
    while left:
        lane = case.random.choice(left)
        out.append(lane.pop(0))
        left = [other for other in left if other]
    return out


def empty_sources(case: Case) -> dict[str, Groups]:
    return {node.name: {} for node in case.graph.nodes if isinstance(node, RootNode)}
