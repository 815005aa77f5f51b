"""Random graphs, and random updates of so few keys that most updates change keys of earlier ones.

The feeders of a node are the nodes whose rows it reads. A port is an input of a stage's function, and has one or more
feeders. A stage maps the rows of source keys to rows of target keys. A sum has totals by key.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random

import pyarrow as pa

from metastore_assets.produce import Settings
from tests.produce import oracle
from tests.produce.graph_model import Graph, Node, RootNode, StageNode, SumNode
from tests.produce.number_encodings import (
    FOUNDER_ENCODING,
    ID_ENCODINGS,
    KEY_ENCODINGS,
    SIGNED_ENCODING,
    VALUE_ENCODINGS,
    Function,
    NumberEncoding,
)
from tests.produce.number_functions import ANY_PORTS, JOINS, KEYS
from tests.produce.oracle import Change, Groups, Key, Value


@dataclass
class Case:
    """A random graph, its settings, the encodings of keys and values by node, and a random generator.

    The generator draws the updates. The `repr` of a case begins with the seed, from which `random_case` draws the same
    case again.
    """

    seed: int
    graph: Graph
    settings: Settings
    forms: dict[str, tuple[NumberEncoding, NumberEncoding]]
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
                        f"{' numbered' if node.numbered else ''}{' founded' if node.founded else ''}"
                    )
                case SumNode():
                    lines.append(
                        f"  {node.name}: sum of {node.amounts} by {node.group}, {node.count} of {node.feeders}"
                        f"{' signed' if node.signed else ''}{'' if node.is_followed else ' not followed'}"
                    )
        return "\n".join(lines)


def random_case(seed: int) -> Case:
    """Draw a graph with one to three roots and one to five stages or sums.

    Half of the sums feed another sum.

    A stage has one to three ports of one or two feeders, chosen from all earlier nodes with the same encoding of keys.
    In some graphs, many stages have surrogate keys. In some, many have a column that all rows of a key take from its
    first row (a founder). In some, values may be negative.
    """
    random = Random(seed)
    # A separate generator, so that the rest of each graph is the same as without ids.
    ids = Random(f"ids of {seed}")
    share = 0.7 if ids.random() < 0.2 else 0.0
    more = Random(f"founders and signs of {seed}")
    has_founders, is_signed = more.random() < 0.25, more.random() < 0.3

    def varied(form: NumberEncoding, *, stage: bool) -> NumberEncoding:
        """Return `form`, or at random a variant with negative values or, for stages only, with a founder."""
        if stage and has_founders and form in VALUE_ENCODINGS and more.random() < 0.7:
            return FOUNDER_ENCODING
        return SIGNED_ENCODING if form is VALUE_ENCODINGS[0] and is_signed and more.random() < 0.8 else form

    nodes: list[Node] = []
    forms: dict[str, tuple[NumberEncoding, NumberEncoding]] = {}
    key_form = random.choice(KEY_ENCODINGS)
    for number in range(random.randint(1, 3)):
        # Roots mostly share the encoding of their keys: otherwise joins would not match.
        key = key_form if random.random() < 0.9 else random.choice(KEY_ENCODINGS)
        value = varied(random.choice(VALUE_ENCODINGS), stage=False)
        name = f"root{number}"
        forms[name] = key, value
        nodes.append(RootNode(name, key.schema, value.schema, _descending(random, key)))
    for number in range(random.randint(1, 5)):
        name = f"stage{number}"
        if random.random() < 0.15 or (is_signed and more.random() < 0.35):
            total = _sum(random, ids, name, forms, signed=is_signed or more.random() < 0.3)
            nodes.append(total)
            source = forms[total.feeders[0]][0]
            if total.group == tuple(source.schema.names) and total.amounts == ("x",) and not total.count:
                forms[name] = source, VALUE_ENCODINGS[0]  # others may be fed by it
        else:
            values = ID_ENCODINGS if ids.random() < share else VALUE_ENCODINGS
            nodes.append(_stage(random, name, forms, key_form, values, partial(varied, stage=True)))
    for node in [node for node in nodes if isinstance(node, SumNode)]:
        if more.random() < 0.5:
            # Two feeders of which each has a sum of its own: one may change while the other does not.
            alone = [replace(node, name=f"{node.name}_of_{name}", feeders=(name,)) for name in node.feeders]
            parts = alone if len(alone) > 1 else [node]
            nodes += [part for part in parts if part is not node] + [_of_sums(more, node, parts)]
    feeder_names = {name for node in nodes for name in _feeders(node)}
    for at, node in enumerate(nodes):
        if isinstance(node, SumNode) and node.name not in feeder_names:
            nodes[at] = replace(node, is_followed=more.random() < 0.5)
    settings = _settings(random)
    if (share and ids.random() < 0.6) or (has_founders and more.random() < 0.6):
        # So that the new keys of a version are in several ranges, and in several pieces of each.
        settings = replace(settings, target_rows=4, row_group_rows=2, buffer_rows=2, small_rows=0)
    return Case(seed, Graph(tuple(nodes)), settings, forms, random)


def _of_sums(random: Random, node: SumNode, parts: Sequence[SumNode]) -> SumNode:
    """Return a sum over other sums, `parts`, which have the same columns as `node`.

    The new sum uses one random total of the parts. It either adds this total up, or groups by it.
    """
    totals = [*node.amounts, *([node.count] if node.count else [])]
    total = random.choice(totals)
    group = random.choice((node.group, node.group[:1], (total,), (*node.group, total)))
    amounts = () if total in group else (total,)
    return SumNode(f"{node.name}_again", tuple(part.name for part in parts), group, amounts, "rows", signed=node.signed)


def _feeders(node: Node) -> list[str]:
    match node:
        case StageNode():
            return [name for port in node.ports for name in port]
        case SumNode():
            return list(node.feeders)
    return []


def _stage(
    random: Random,
    name: str,
    forms: dict[str, tuple[NumberEncoding, NumberEncoding]],
    usual: NumberEncoding,
    values: Sequence[NumberEncoding],
    vary_encoding: Callable[[NumberEncoding], NumberEncoding],
) -> StageNode:
    """Draw a stage that reads nodes in `forms`, and add the encodings of its keys and values to `forms`.

    Args:
        random: The generator.
        name: The name of the stage.
        forms: The encodings of keys and values of earlier nodes.
        usual: The encoding that most stages have for their keys.
        values: The encodings from which that of the values is drawn.
        vary_encoding: A function that may replace the encoding of the values.
    """
    first = random.choice(list(forms))
    source = forms[first][0]
    fitting = [other for other, (key, _) in forms.items() if key is source]
    ports = []
    for number in range(random.choice((1, 1, 2, 2, 3))):
        feeder = first if number == 0 else random.choice(fitting)
        same = [other for other in fitting if forms[other][1] is forms[feeder][1] and other != feeder]
        ports.append((feeder, random.choice(same)) if same and random.random() < 0.5 else (feeder,))
    numbers = random.choice(JOINS if len(ports) > 1 and random.random() < 0.6 else ANY_PORTS)
    target = usual if random.random() < 0.6 else random.choice(KEY_ENCODINGS)
    output = vary_encoding(random.choice(values))
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
        numbered="id" if output in ID_ENCODINGS else None,
        founded=("founder", "x") if output is FOUNDER_ENCODING else None,
    )


def _sum(
    random: Random, ids: Random, name: str, forms: dict[str, tuple[NumberEncoding, NumberEncoding]], *, signed: bool
) -> SumNode:
    """Draw a sum over one node in `forms`, or over two with equal encodings of keys and values.

    Args:
        random: The generator of all choices except one.
        ids: The generator that chooses a column if the nodes have surrogate keys or founders. The sum may add
            up this column, or group by it.
        name: The name of the sum.
        forms: The encodings of keys and values of earlier nodes.
        signed: Whether totals may be negative.
    """
    # Amounts are not null: null cannot be added.
    fitting = [other for other, (_, value) in forms.items() if value is not VALUE_ENCODINGS[1]]
    first = random.choice(fitting or list(forms))
    feeders = [other for other in forms if forms[other] == forms[first]]
    random.shuffle(feeders)
    key = forms[first][0].schema.names
    is_preserved = forms[first][1] in (*ID_ENCODINGS, FOUNDER_ENCODING)
    column = ids.choice(forms[first][1].schema.names) if is_preserved else "x"
    group = random.choice((key, key[:1], key[-1:], [column]))
    amounts = () if group == [column] or not fitting else (column,)
    has_count = not amounts or random.random() < 0.4
    by = pa.schema([field for schema in (forms[first][0].schema, forms[first][1].schema) for field in schema])
    descending = [column for column in group if random.random() < 0.3 and column in by.names]
    chosen_feeders = feeders[: random.randint(1, 2)]
    return SumNode(
        name, tuple(chosen_feeders), tuple(group), amounts, "n" if has_count else None, tuple(descending), signed
    )


def _descending(random: Random, form: NumberEncoding) -> tuple[str, ...]:
    return tuple(name for name in form.schema.names if random.random() < 0.3)


def _settings(random: Random) -> Settings:
    """Draw settings: the default ones, ones with which every version adds runs, or small ones.

    A run is a sorted file, and a shard is a range of keys. With small settings, a dozen rows need several shards, row
    groups, batches, spills and compactions.
    """
    kind = random.random()
    if kind < 0.4:
        return Settings()
    if kind < 0.7:
        # Every version adds runs, which are merged tier by tier.
        return Settings(
            single_run_rows=0, fan_in=2, bulk_share=100.0, base_share=100.0, inline_budget=100, row_group_rows=8
        )
    return Settings(
        single_run_rows=0,
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
    """Draw edits of each root, of which about 35 % are deletes.

    A root is left out with probability 0.3.
    """
    random, edits = case.random, {}
    for node in case.graph.nodes:
        if not isinstance(node, RootNode) or random.random() < 0.3:
            continue
        key, value = case.forms[node.name]
        root_edits: dict[Key, list[Value] | None] = {}
        for number in random.sample(range(KEYS + 1), random.choice((0, 1, 1, 2, 2, 3, 5))):
            rows = [value.write(random.randrange(50)) for _ in range(random.choice((1, 1, 2, 3)))]
            root_edits[oracle.one(key.write(number))] = None if random.random() < 0.35 else rows
        edits[node.name] = root_edits
    return edits


def random_rows(case: Case, root: str, root_edits: dict[Key, list[Value] | None]) -> list[Change]:
    """Return the edits as sorted rows of an update.

    Rows that are no deletes are `add` or `update` at random.
    """
    key, _, descending = case.graph.rows(root)
    flags = [name in descending for name in key.names]
    rows: list[Change] = []
    for one_key in oracle.ordered(root_edits, flags):
        values = root_edits[one_key]
        if values is None:
            rows.append(("delete", one_key, None))
        else:
            rows += [(case.random.choice(("add", "update")), one_key, value) for value in values]
    return rows


def shuffled(case: Case, rows: Sequence[Change]) -> list[Change]:
    """Return the rows with keys in another order; rows of a key stay in order, but need not be adjacent."""
    lanes: dict[Key, list[Change]] = {}
    for row in rows:
        lanes.setdefault(row[1], []).append(row)
    remaining, out = list(lanes.values()), []
    while remaining:
        lane = case.random.choice(remaining)
        out.append(lane.pop(0))
        remaining = [other for other in remaining if other]
    return out


def empty_sources(case: Case) -> dict[str, Groups]:
    return {node.name: {} for node in case.graph.nodes if isinstance(node, RootNode)}
