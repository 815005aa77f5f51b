"""Everything inside a hidden column is hidden, for any names of the columns around it.

This includes previous names.

A hidden column has the policy `values: hidden`: no statistic or message may show its values.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from deltalake.exceptions import DeltaError, SchemaMismatchError

from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.formats import open_table_format
from metastore_assets.metastore import Metastore
from metastore_assets.pipeline.plan import RefreshRequest
from metastore_assets.pipeline.profile_spec import table_profile_spec
from metastore_assets.pipeline.refresh import refresh
from metastore_assets.values.columns import children, columns_by_field, schema_columns
from tests.robustness.refresh_assertions import no_spark
from tests.security.token_search import files_with

TOKEN = "Zyzzyva-Secret"
NAMES = ["a", "b", "a.b", "b.key", "key", "value", "element", "a.b.key", "a`b", "`a`", "A", "a b", "ä.ß", "default"]


def draw_type(draw: random.Random, depth: int, among: Sequence[str] = NAMES) -> pa.DataType:
    """Draw a type.

    It is nested at most `depth` levels deep, and its fields have names out of `among`.
    """
    kind = draw.choice(["leaf", "leaf", "struct", "list", "map"]) if depth else "leaf"
    if kind == "struct":
        names = draw.sample(among, draw.randint(1, 3))
        return pa.struct([pa.field(name, draw_type(draw, depth - 1, among)) for name in names])
    if kind == "list":
        return pa.list_(pa.field("element", draw_type(draw, depth - 1, among)))
    if kind == "map":
        return pa.map_(pa.string(), draw_type(draw, depth - 1, among))
    return draw.choice([pa.int64(), pa.string(), pa.decimal128(9, 2)])


def enclosing_indexes(field: pa.Field, parents: tuple[int, ...] = (), start: int = 0) -> Iterator[tuple[int, ...]]:
    """Yield, for a field and each column nested in it, the indexes of the columns that enclose it.

    Columns are visited and numbered depth first. `parents` are the indexes of the columns that enclose the field, and
    `start` is the index of the field.
    """
    yield parents
    index = start + 1
    for _, child in children(field.type):
        inner = list(enclosing_indexes(child, (*parents, start), index))
        yield from inner
        index += len(inner)


def dotted_paths_of_schema(schema: pa.Schema) -> list[list[str]]:
    """Return, for each field, its dotted path and those of all nested columns, with duplicates."""

    def walk(field: pa.Field, prefix: str) -> Iterator[str]:
        yield prefix + field.name
        for name, child in children(field.type):
            yield from walk(child.with_name(name), f"{prefix}{field.name}.")

    return [list(walk(field, "")) for field in schema]


def test_policies_go_down_the_tree_of_columns() -> None:
    """A policy applies to the columns inside a column, not to columns whose paths have the same prefix.

    The names in two thousand random schemas look like paths of other columns.
    """
    hidden_count = 0
    for seed in range(2000):
        draw = random.Random(seed)
        schema = pa.schema([pa.field(name, draw_type(draw, 3)) for name in draw.sample(NAMES, draw.randint(1, 5))])
        by_field = columns_by_field(schema)
        plain = dotted_paths_of_schema(schema)
        paths = [column.path for columns in by_field for column in columns if column.path != "default"]
        default = draw.choice(["shown", "shown", "hidden"])
        chosen_paths = draw.sample(paths, min(len(paths), draw.randint(0, 3)))
        policies = {path: draw.choice(["shown", "hidden"]) for path in chosen_paths}
        table = TableConfig.model_validate(
            {
                "name": "t",
                "uri": "x",
                "columns": {path: {"values": values} for path, values in {**policies, "default": default}.items()},
            }
        )
        values_policies = {
            column.field_id: policy.values for column, policy in table_profile_spec(schema, table).columns
        }
        for field, columns, dotted_paths in zip(schema, by_field, plain, strict=True):
            for column, enclosing, path in zip(columns, enclosing_indexes(field), dotted_paths, strict=True):
                config = policies.get(column.path, "hidden" if policies.get(path) == "hidden" else default)
                is_inherited = any(
                    policies.get(columns[index].path, policies.get(dotted_paths[index])) == "hidden"
                    for index in enclosing
                )
                expected = "hidden" if is_inherited else config
                assert values_policies[column.field_id] == expected, (seed, column.path, policies, default)
                hidden_count += is_inherited and config == "shown"
    assert hidden_count > 200


def config_with_policies(folder: Path, **policies: str) -> MetastoreConfig:
    columns = {path: {"values": values} for path, values in policies.items()}
    table = TableConfig.model_validate({"name": "t", "uri": str(folder / "lake"), "columns": columns})
    return MetastoreConfig(root=str(folder / "root"), engine="auto", tables=[table])


ROWS = pa.table(
    {
        "a": pa.array([{"b": 1}, {"b": 2}]),
        "a.b": pa.array([[(TOKEN, 881223)], [(TOKEN, 881223)]], pa.map_(pa.string(), pa.int64())),
    }
)


def test_a_column_with_the_path_of_another_is_hidden_separately(tmp_path: Path) -> None:
    """A map `a.b` stands beside a struct `a` with a field `b`.

    Hiding the map hides its keys and values, not the field.

    The path of the map is in backticks in the policy. The paths of the keys and values have no backticks.
    """
    (tmp_path / "lake").mkdir()
    pq.write_table(ROWS, tmp_path / "lake" / "1.parquet")
    config = config_with_policies(tmp_path, **{"`a.b`": "hidden"})
    refresh(config, config.tables[0], no_spark)
    rows = {row.column: row for row in Metastore(config.root).table("t").statistics()}
    assert rows["a.b"].minimum.as_py() == 1
    for column in ("a.b.key", "a.b.value"):
        assert (rows[column].minimum, rows[column].percentiles) == (None, None)
        assert "hidden" in (rows[column].reason or "")
    assert files_with(tmp_path / "root", TOKEN) == []


@pytest.mark.parametrize(
    ("policies", "is_shown"),
    [
        ({"a": "hidden"}, True),
        ({"a.b": "hidden"}, False),
        ({"a.b": "hidden", "`a.b`": "shown"}, True),
    ],
)
def test_a_policy_applies_to_both_columns_of_a_path(tmp_path: Path, policies: dict[str, str], is_shown: bool) -> None:
    """A map `a.b` stands beside a struct `a` with a field `b`.

    A policy of `a.b` applies to both.

    It does not apply to the map if `` `a.b` `` in backticks has a policy too.
    """
    (tmp_path / "lake").mkdir()
    pq.write_table(ROWS, tmp_path / "lake" / "1.parquet")
    config = config_with_policies(tmp_path, **policies)
    refresh(config, config.tables[0], no_spark)
    rows = {row.column: row for row in Metastore(config.root).table("t").statistics()}
    assert rows["a.b"].minimum is None
    assert (rows["a.b.key"].minimum is not None) == is_shown


def test_a_hidden_column_is_hidden_after_another_takes_its_path(tmp_path: Path) -> None:
    """A hidden map `a.b` stays hidden after a struct `a` with a field `b` takes the path `a.b`."""
    write_deltalake(str(tmp_path / "lake"), ROWS.select(["a.b"]))
    config = config_with_policies(tmp_path, **{"a.b": "hidden"})
    refresh(config, config.tables[0], no_spark)
    write_deltalake(str(tmp_path / "lake"), ROWS, mode="append", schema_mode="merge")
    refresh(config, config.tables[0], no_spark)
    refresh(config, config.tables[0], no_spark, RefreshRequest(full=True))
    assert files_with(tmp_path / "root", TOKEN) == []


def draw_value(draw: random.Random, kind: pa.DataType) -> object:
    """Draw a value of the type `kind`, or null."""
    if draw.random() < 0.1:
        return None
    if pa.types.is_struct(kind):
        return {field.name: draw_value(draw, field.type) for field in kind}
    if pa.types.is_map(kind):
        return [(f"k{draw.randrange(5)}", draw_value(draw, kind.item_type))]
    if pa.types.is_list(kind):
        return [draw_value(draw, kind.value_type) for _ in range(draw.randrange(3))]
    if pa.types.is_string(kind):
        return f"v{draw.randrange(9)}"
    return Decimal(draw.randrange(100)).scaleb(-2) if pa.types.is_decimal(kind) else draw.randrange(100)


def assert_hidden_as_configured(config: MetastoreConfig, schema: pa.Schema, what: object) -> None:
    """Assert, for the table and each partition, that exactly the configured columns are hidden.

    `schema` is the current schema of the table. If an assertion fails, its message contains `what`.
    """
    lookup = Metastore(config.root).table("t")
    hidden_columns = {
        column.path
        for column, policy in table_profile_spec(schema, config.tables[0]).columns
        if policy.values == "hidden"
    }
    for key in (None, *(entry.key for entry in lookup.partitions())):
        for row in lookup.statistics(partition=key):
            stored_values = (row.minimum, row.maximum, row.sum, row.percentiles, row.true_count)
            if row.column in hidden_columns:
                assert (set(stored_values), row.frequencies) == ({None}, "absent"), (what, key, row)
                assert "hidden" in (row.reason or ""), (what, key, row)
            else:
                assert "hidden" not in (row.reason or ""), (what, key, row)


@pytest.mark.parametrize("seeds", [range(4), pytest.param(range(4, 150), marks=pytest.mark.long)], ids=["some", "many"])
def test_random_schemas_and_policies_hide_as_configured(tmp_path: Path, seeds: range) -> None:
    """After each random commit and change of policies, exactly the configured columns are hidden.

    Columns are added, are dropped, and return with another type. Older partitions stay.
    """
    case_distinct_names = [name for name in NAMES if name != "A"]  # Delta treats it as `a`
    for seed in seeds:
        draw = random.Random(seed)
        folder = tmp_path / str(seed)
        pool = {name: draw_type(draw, 2, case_distinct_names) for name in ["a", "a.b", "c", "c.key", "d`e"]}
        for step in range(draw.randint(2, 5)):
            if draw.random() < 0.3:
                name = draw.choice(list(pool))
                pool[name] = draw_type(draw, 2, case_distinct_names)
            names = draw.sample(list(pool), draw.randint(1, 4))
            fields = [pa.field("part", pa.string()), *(pa.field(name, pool[name]) for name in names)]
            count = draw.randint(1, 6)
            columns = [[draw.choice("12") for _ in range(count)]]
            columns += [[draw_value(draw, pool[name]) for _ in range(count)] for name in names]
            rows = pa.table(
                [pa.array(config, field.type) for config, field in zip(columns, fields, strict=True)], pa.schema(fields)
            )
            how: dict[str, Any] = {"mode": "append", "schema_mode": "merge"}
            if draw.random() < 0.4:
                how = {"mode": "overwrite", "schema_mode": "overwrite"}
            try:
                write_deltalake(str(folder / "lake"), rows, partition_by=["part"], **how)
            except (DeltaError, SchemaMismatchError):  # another type with the same name is not another column
                how = {"mode": "overwrite", "schema_mode": "overwrite"}
                write_deltalake(str(folder / "lake"), rows, partition_by=["part"], **how)
            schema = open_table_format(config_with_policies(folder).tables[0]).snapshot().schema
            paths = [column.path for column in schema_columns(schema) if column.path != "part"]
            policies = {path: draw.choice(["hidden", "shown"]) for path in draw.sample(paths, min(3, len(paths)))}
            if draw.random() < 0.3:
                policies |= {"default": "hidden", "part": "shown"}
            config = config_with_policies(folder, **policies)
            refresh(config, config.tables[0], no_spark)
            assert_hidden_as_configured(config, schema, (seed, step, policies))
