"""What is inside a hidden column is hidden, whatever the columns around it are or were called."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.lookup import Metastore
from metastore_assets.pipeline.layouts import table_layout
from metastore_assets.pipeline.refresh import refresh
from metastore_assets.statistics.leaves import children, schema_leaves
from tests.robustness.support import no_spark
from tests.security.searching import files_with

TOKEN = "Zyzzyva-Secret"
NAMES = ["a", "b", "a.b", "b.key", "key", "value", "element", "a.b.key", "a`b", "`a`", "A", "a b", "ä.ß", "default"]


def drawn_type(draw: random.Random, depth: int) -> pa.DataType:
    kind = draw.choice(["leaf", "leaf", "struct", "list", "map"]) if depth else "leaf"
    if kind == "struct":
        names = draw.sample(NAMES, draw.randint(1, 3))
        return pa.struct([pa.field(name, drawn_type(draw, depth - 1)) for name in names])
    if kind == "list":
        return pa.list_(pa.field("element", drawn_type(draw, depth - 1)))
    if kind == "map":
        return pa.map_(pa.string(), drawn_type(draw, depth - 1))
    return draw.choice([pa.int64(), pa.string(), pa.decimal128(9, 2)])


def above(field: pa.Field, parents: tuple[int, ...] = (), start: int = 0) -> Iterator[tuple[int, ...]]:
    """For each leaf column of a field, depth first, the places of the columns that it is inside of."""
    yield parents
    place = start + 1
    for _, child in children(field.type):
        inner = list(above(child, (*parents, start), place))
        yield from inner
        place += len(inner)


def schema_leaves_alone(schema: pa.Schema) -> list[list[str]]:
    """The dotted paths of all leaf columns, without regard to others of the same path."""

    def walk(field: pa.Field, above: str) -> Iterator[str]:
        yield above + field.name
        for name, child in children(field.type):
            yield from walk(child.with_name(name), f"{above}{field.name}.")

    return [list(walk(field, "")) for field in schema]


def test_policies_go_down_the_tree_of_columns() -> None:
    """Not by how paths begin: two thousand random schemas, with names that make paths of others."""
    hidden = 0
    for seed in range(2000):
        draw = random.Random(seed)
        schema = pa.schema([pa.field(name, drawn_type(draw, 3)) for name in draw.sample(NAMES, draw.randint(1, 5))])
        columns = schema_leaves(schema)
        plain = schema_leaves_alone(schema)
        paths = [leaf.path for leaves in columns for leaf in leaves if leaf.path != "default"]
        default = draw.choice(["shown", "shown", "hidden"])
        chosen = draw.sample(paths, min(len(paths), draw.randint(0, 3)))
        policies = {path: draw.choice(["shown", "hidden"]) for path in chosen}
        table = TableConfig.model_validate(
            {
                "name": "t",
                "uri": "x",
                "columns": {path: {"values": values} for path, values in {**policies, "default": default}.items()},
            }
        )
        found = {leaf.field_id: policy.values for leaf, policy in table_layout(schema, table).leaves}
        for field, leaves, dotted in zip(schema, columns, plain, strict=True):
            for leaf, places, path in zip(leaves, above(field), dotted, strict=True):
                own = policies.get(leaf.path, "hidden" if policies.get(path) == "hidden" else default)
                inherited = any(
                    policies.get(leaves[place].path, policies.get(dotted[place])) == "hidden" for place in places
                )
                expected = "hidden" if inherited else own
                assert found[leaf.field_id] == expected, (seed, leaf.path, policies, default)
                hidden += inherited and own == "shown"
    assert hidden > 200


def config(folder: Path, **policies: str) -> MetastoreConfig:
    columns = {path: {"values": values} for path, values in policies.items()}
    table = TableConfig.model_validate({"name": "t", "uri": str(folder / "lake"), "columns": columns})
    return MetastoreConfig(root=str(folder / "root"), engine="auto", tables=[table])


ROWS = pa.table(
    {
        "a": pa.array([{"b": 1}, {"b": 2}]),
        "a.b": pa.array([[(TOKEN, 881223)], [(TOKEN, 881223)]], pa.map_(pa.string(), pa.int64())),
    }
)


def test_a_column_of_the_path_of_another(tmp_path: Path) -> None:
    """A map `a.b` beside a field `b` of `a`: its path is in backticks, those of its keys and values are not."""
    (tmp_path / "lake").mkdir()
    pq.write_table(ROWS, tmp_path / "lake" / "1.parquet")
    own = config(tmp_path, **{"`a.b`": "hidden"})
    refresh(own, own.tables[0], no_spark)
    rows = {row.column: row for row in Metastore(own.root).table("t").statistics()}
    assert rows["a.b"].minimum.as_py() == 1
    for column in ("a.b.key", "a.b.value"):
        assert (rows[column].minimum, rows[column].percentiles) == (None, None)
        assert "hidden" in (rows[column].reason or "")
    assert files_with(tmp_path / "root", TOKEN) == []


@pytest.mark.parametrize(
    ("policies", "shown"),
    [
        ({"a": "hidden"}, True),
        ({"a.b": "hidden"}, False),
        ({"a.b": "hidden", "`a.b`": "shown"}, True),
    ],
)
def test_whether_the_other_column_is_hidden_with_it(tmp_path: Path, policies: dict[str, str], shown: bool) -> None:
    """`a.b` means both, unless the policy of the one in backticks says something else: see the next test."""
    (tmp_path / "lake").mkdir()
    pq.write_table(ROWS, tmp_path / "lake" / "1.parquet")
    own = config(tmp_path, **policies)
    refresh(own, own.tables[0], no_spark)
    rows = {row.column: row for row in Metastore(own.root).table("t").statistics()}
    assert rows["a.b"].minimum is None
    assert (rows["a.b.key"].minimum is not None) == shown


def test_a_hidden_column_stays_hidden_when_another_takes_its_path(tmp_path: Path) -> None:
    """`a.b` is a map, alone; then a struct `a` with a field `b` is added, whose path that is from now on."""
    write_deltalake(str(tmp_path / "lake"), ROWS.select(["a.b"]))
    own = config(tmp_path, **{"a.b": "hidden"})
    refresh(own, own.tables[0], no_spark)
    write_deltalake(str(tmp_path / "lake"), ROWS, mode="append", schema_mode="merge")
    refresh(own, own.tables[0], no_spark)
    refresh(own, own.tables[0], no_spark, full=True)
    assert files_with(tmp_path / "root", TOKEN) == []
