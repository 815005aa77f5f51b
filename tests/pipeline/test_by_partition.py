"""Value counts by partition equal DuckDB's counts after each commit.

These counts say how often each value of a column occurs in each partition. The `by_partition` option of a column stores
them.

A version is the published statistics of a table at one snapshot.
"""

from __future__ import annotations

import datetime
import json
import math
import random
import uuid
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import NestedField, StringType

from metastore_assets.config import MetastoreConfig
from metastore_assets.errors import MetastoreError, VersionConflictError
from metastore_assets.lookup.profiles import ProfileReader
from metastore_assets.metastore import Metastore
from metastore_assets.pipeline.engine import Engine
from metastore_assets.pipeline.purge import purge
from metastore_assets.pipeline.refresh import plan_refresh, refresh
from metastore_assets.pipeline.value_counts.compact import compact
from metastore_assets.pipeline.verification.verify import verify
from metastore_assets.produce import Delta
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.versions import VersionStore
from metastore_assets.value_counts import ValueCountReader, graph, read_value_counts, write_value_counts
from tests.pipeline.file_lake import Lake, everything_on_spark, latest
from tests.pipeline.test_refresh import no_spark
from tests.pipeline.test_value_counts import RUNS, Plain
from tests.pipeline.test_value_counts import plain as plain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
COLUMNS = ("id", "group", "price", "ratio", "day")
ON = {"by_partition": "on"}


def config(lake: Lake, root: str = "root") -> MetastoreConfig:
    """Return a configuration of the lake that uses Spark only for large work."""
    return lake.config(root).model_copy(update={"engine": "auto"})


def reader(lake: Lake, root: str = "root") -> ValueCountReader:
    config = lake.config(root)
    return ValueCountReader(ObjectStore(config.root).child("t"), read_value_counts(ObjectStore(config.root).child("t"),
                                                                      latest(config).value_counts))  # fmt: skip


def stored_counts(lists: ValueCountReader) -> dict[str, Counter[tuple[str, str]]]:
    """Return, by column, the frequency of each pair of a value (as text) and a partition."""
    counts_by_column: dict[str, Counter[tuple[str, str]]] = {}
    for column in lists.by_partition:
        counts = counts_by_column.setdefault(column, Counter())
        table = lists.table_by_partition(column)
        columns = (table[name].to_pylist() for name in ("value", "partition", "frequency"))
        for value, partition, count in zip(*columns, strict=True):
            counts[_text(value), partition] += count
    return counts_by_column


def counted(lake: Lake, columns: Any) -> dict[str, Counter[tuple[str, str]]]:
    """Return how many rows of each partition have each value of the columns, as DuckDB counts them.

    The result has the form of `stored_counts`.
    """
    source = f"read_parquet('{lake.uri}/*/*.parquet', hive_partitioning = true, hive_types_autocast = false)"
    result = {}
    for column in columns:
        query = f'SELECT "{column}", part, count(*) FROM {source} WHERE "{column}" IS NOT NULL GROUP BY ALL'
        frequencies: Counter[tuple[str, str]] = Counter()
        for value, part, count in duckdb.execute(query).fetchall():
            frequencies[_text(value), f"part={part}"] += count
        result[column] = frequencies
    return result


def _text(value: Any) -> str:
    return repr(0.0 if value == 0 and isinstance(value, float) else value)


def _value(text: str) -> Any:
    return eval(text, {"nan": math.nan, "datetime": datetime, "Decimal": Decimal})


@pytest.mark.parametrize("seed", [21, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(22, 50))])
def test_counts_by_partition_equal_duckdbs_after_any_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """After each random commit, the stored counts by partition and `Table.locate` equal DuckDB's counts.

    In between, `by_partition` is switched on for other columns. `Table.locate`, which returns the partitions with a
    value, reads only the counts by partition. If the table has one partition, no counts by partition are stored, and
    `Table.locate` reads the value counts of the partition instead.
    """
    draw = random.Random(seed)
    if seed % 2:
        monkeypatch.setattr(graph, "SETTINGS", RUNS)
    lake = Lake(tmp_path, draw)
    for partition in range(4):
        lake.append(partition, 40)
    on: set[str] = set()
    for number in range(3):
        if number % 2 == 0:
            on = set(draw.sample(COLUMNS, draw.randint(1, 4)))
        lake.options = {"columns": dict.fromkeys(sorted(on), ON)}
        refresh(config(lake), lake.table, no_spark)
        several = len(latest(lake.config()).partitions) > 1
        counts_in_store, expected = stored_counts(reader(lake)), counted(lake, on if several else ())
        assert counts_in_store == expected
        table = Metastore(lake.config().root).table("t")
        with monkeypatch.context() as patch:
            if several:
                patch.setattr(ProfileReader, "frequencies", None)
            for column in sorted(on):
                rows = sorted(expected.get(column, ()))
                for value, _ in draw.sample(rows, min(3, len(rows))):
                    frequencies = {
                        part: count
                        for (counted_value, part), count in expected[column].items()
                        if counted_value == value
                    }
                    assert [*map(tuple, table.locate(column, _value(value)))] == sorted(frequencies.items()), (
                        column,
                        value,
                    )
        lake.commit()
    refresh(config(lake), lake.table, no_spark)
    refresh(config(lake, "scratch"), lake.table, no_spark)
    assert stored_counts(reader(lake)) == stored_counts(reader(lake, "scratch")) == counted(lake, on)
    assert verify(config(lake), lake.table, no_spark).is_right
    compact(VersionStore(ObjectStore(lake.config().root), "t"), lake.table)
    assert stored_counts(reader(lake)) == counted(lake, on)


def test_turning_by_partition_on_reads_stored_profiles_only(plain: Plain) -> None:
    """Turning `by_partition` on reads no data file.

    A commit that adds the table's second partition reads only the new file. Counts by partition are removed if only one
    partition remains, or if `by_partition` is turned off.
    """
    plain.put("p=1/one", pa.table({"a": ["x", "x", None, "y"], "b": [1, 2, 3, 3]}))
    plain.put("p=2/one", pa.table({"a": ["y", "z", "z", "z"], "b": [3, 3, None, 4]}))
    plain.refresh()
    plain.columns = {"a": ON}
    assert plan_refresh(plain.config, plain.config.tables[0]).to_json()["bytes_to_read"] == 0
    result = plain.refresh()
    assert (result.fragments_profiled, result.partitions_changed, result.published) == (0, (), True)
    table = Metastore(plain.config.root).table("t")
    assert [*map(tuple, table.locate("a", "y"))] == [("p=1", 1), ("p=2", 1)]
    assert stages(plain) == {"by_partition.string"}
    plain.columns = {"default": ON}
    assert plain.refresh().fragments_profiled == 0
    assert [*map(tuple, Metastore(plain.config.root).table("t").locate("b", 3))] == [("p=1", 2), ("p=2", 2)]
    assert stages(plain) == {"by_partition.string", "by_partition.int64"}
    (plain.folder / "lake/p=2/one.parquet").unlink()
    plain.refresh()
    assert stages(plain) == set(), "one partition holds all"
    assert [*map(tuple, Metastore(plain.config.root).table("t").locate("a", "x"))] == [("p=1", 2)]
    plain.put("p=3/two", pa.table({"a": ["x"], "b": [7]}))
    assert plain.refresh().fragments_profiled == 1
    assert [*map(tuple, Metastore(plain.config.root).table("t").locate("a", "x"))] == [("p=1", 2), ("p=3", 1)]
    assert [*map(tuple, Metastore(plain.config.root).table("t").locate("a", "z"))] == []
    plain.columns = {}
    assert plain.refresh().fragments_profiled == 0
    assert stages(plain) == set()
    assert [*map(tuple, Metastore(plain.config.root).table("t").locate("a", "x"))] == [("p=1", 2), ("p=3", 1)]


def stages(plain: Plain) -> set[str]:
    """Return the names of the newest version's datasets of counts by partition.

    A dataset has the values of one type class, such as strings.
    """
    lists = read_value_counts(ObjectStore(plain.config.root).child("t"), latest(plain.config).value_counts)
    result = {name for name in lists.flow.stages if name.startswith(graph.BY_PARTITION)}
    assert {name.partition(".")[2] for name in result} == set(lists.by_partition.values())
    return result


def test_a_widened_column_and_renamed_partitions(plain: Plain) -> None:
    for part in (1, 2, 3):
        plain.put(f"p={part}/one", pa.table({"a": [part, 7], "b": ["x"] * 2}))
    plain.columns = {"a": ON, "b": ON}
    plain.refresh()
    plain.put("p=3/two", pa.table({"a": [7.5, 7.0], "b": ["x", "y"]}))
    plain.refresh()
    table = Metastore(plain.config.root).table("t")
    assert [*map(tuple, table.locate("a", 7))] == [("p=1", 1), ("p=2", 1), ("p=3", 2)]
    assert [*map(tuple, table.locate("b", "x"))] == [("p=1", 2), ("p=2", 2), ("p=3", 3)]
    assert stages(plain) == {"by_partition.string", "by_partition.float64"}
    (plain.folder / "lake/p=2").rename(plain.folder / "lake/p=9")
    plain.refresh()
    assert [*map(tuple, Metastore(plain.config.root).table("t").locate("a", 7))] == [("p=1", 1), ("p=3", 2), ("p=9", 1)]


@pytest.mark.parametrize("all_of_them", [True, False])
def test_partitions_with_changed_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, all_of_them: bool) -> None:
    """An Iceberg partition field is renamed, so the keys of partitions change, and one file is added.

    Only this file is read, and `locate` returns the new keys. With `all_of_them`, the keys of all three partitions
    change, otherwise those of two.
    """
    monkeypatch.setattr(graph, "SETTINGS", RUNS)
    lake = tmp_path / "lake"
    catalog = SqlCatalog("c", uri="sqlite://", warehouse=tmp_path.as_uri())
    catalog.create_namespace("n")
    schema = Schema(NestedField(1, "a", StringType()), NestedField(2, "p", StringType()))
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "p"))
    table = catalog.create_table("n.t", schema, location=lake.as_uri(), partition_spec=spec)

    def put(part: str, values: list[str]) -> None:
        table.append(pa.table({"a": values, "p": [part] * len(values)}))

    def where() -> tuple[int, list[tuple[str, int]], int]:
        fields = {"name": "t", "uri": str(lake), "columns": {"a": ON}}
        config = MetastoreConfig.model_validate({"root": str(tmp_path / "root"), "engine": "auto", "tables": [fields]})
        refresh_result = refresh(config, config.tables[0], no_spark)
        result = Metastore(config.root).table("t")
        return (
            refresh_result.fragments_profiled,
            [*map(tuple, result.locate("a", "x"))],
            result.frequency("a", "x").value,
        )

    put("k", ["x", "y"])
    put("l", ["x", "x"])
    if not all_of_them:
        with table.update_spec() as update:
            update.rename_field("p", "r")
    put("m", ["x", *"yz" * 40])
    last = "p=m" if all_of_them else "r=m"
    assert where() == (3, [("p=k", 1), ("p=l", 2), (last, 1)], 4)
    metadata = Path(table.metadata_location.removeprefix("file://"))
    answer = json.loads(metadata.read_text())
    answer["partition-specs"][0]["fields"][0]["name"] = "q"
    new_metadata = metadata.with_name(f"{int(metadata.name[:5]) + 1:05d}-{uuid.uuid4()}.metadata.json")
    new_metadata.write_text(json.dumps(answer))
    table = catalog.register_table("n.renamed", new_metadata.as_uri())
    put("m", ["x"])
    last = "q=m" if all_of_them else "r=m"
    assert where() == (1, [("q=k", 1), ("q=l", 2), (last, 2)], 5)


def test_changed_counts_by_partition_are_reported(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(tmp_path, options={"columns": {"group": ON}})
    for partition in range(3):
        lake.append(partition)
    with everything_on_spark():
        refresh(lake.config(), lake.table, lambda: spark)
    assert stored_counts(reader(lake)) == counted(lake, ["group"])
    store, version = ObjectStore(lake.config().root).child("t"), latest(lake.config())
    lists = read_value_counts(store, version.value_counts)
    schema = graph.rows_of("string", by_partition=True).schema
    one = pa.table([["group"], ["a"], ["part=1"], [1]], schema=schema)
    wrong = replace(lists, flow=lists.dataflow(store).step(lists.flow, {"partition_deltas.string": [Delta(one)]}))
    new = replace(version, number=2, value_counts=write_value_counts(store, wrong))
    VersionStore(ObjectStore(lake.config().root), "t").publish(new, version)
    (difference,) = verify(lake.config(), lake.table, lambda: spark).differences
    assert (difference.level, difference.difference.column, difference.difference.statistic) == (
        "table",
        "group",
        "by_partition",
    )
    assert difference.difference.stored.startswith("a in part=1: ")


def test_a_lost_race_and_a_purge_remove_value_counts(plain: Plain, monkeypatch: pytest.MonkeyPatch) -> None:
    for part in (1, 2, 3):
        plain.put(f"p={part}/one", pa.table({"a": [f"person {part}", "y"] * 5}))
    plain.refresh()
    before = plain.written()
    real = VersionStore.publish

    def losing(self: VersionStore, version: Any, base: Any = None, **options: Any) -> None:
        raise VersionConflictError("lost")

    plain.columns = {"a": ON}
    with monkeypatch.context() as patch:
        patch.setattr(VersionStore, "publish", losing)
        with pytest.raises(MetastoreError, match=r"'t'.*\b5 attempts\b"):
            plain.refresh()
    assert plain.written() == before
    assert VersionStore.publish is real
    plain.refresh()
    (plain.folder / "lake/p=2/one.parquet").unlink()
    plain.refresh()
    purge(Engine(no_spark), VersionStore(ObjectStore(plain.config.root), "t"), latest(plain.config).number)
    values = [value for path in plain.written() if path.suffix == ".parquet" for value in _values(path)]
    assert set(values) == {"person 1", "person 3", "y", "1", "3"}, "and those of the column p"
    assert [*map(tuple, Metastore(plain.config.root).table("t").locate("a", "y"))] == [("p=1", 5), ("p=3", 5)]


def _values(path: Path) -> list[str]:
    table = pq.read_table(path)
    return list(table["value"].to_pylist()) if "value" in table.column_names else []
