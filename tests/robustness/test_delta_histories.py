"""Random histories of Delta tables: after each commit the numbers are those of the live rows, and little is read.

Live rows are read by deltalake's query engine and counted in plain Python.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Field, QueryBuilder, write_deltalake

from metastore_assets.formats import decode_partition_key
from metastore_assets.lookup import Metastore, TableLookup
from metastore_assets.pipeline.refresh import RefreshResult, refresh
from tests.formats.delta_log_writer import add_file, commit, delete_rows, mapped, metadata, newest, protocol
from tests.pipeline.support import Lake, assert_same, everything
from tests.robustness.support import assert_equals_scratch, no_spark, refreshed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PARTITIONS = ["a", "b", "c/d", "é%", None]


@dataclass
class History:
    """A Delta table that is changed at random."""

    folder: Path
    seed: int
    configuration: dict[str, str | None] = field(default_factory=dict)
    draw: random.Random = field(init=False)
    next_id: int = 0
    columns: int = 0
    """Columns added so far."""
    oldest: int = 0
    """The oldest version whose files are all there."""

    def __post_init__(self) -> None:
        self.draw = random.Random(self.seed)
        write_deltalake(self.uri, self.rows(20), partition_by=["p"], configuration=self.configuration)

    @property
    def uri(self) -> str:
        return str(self.folder)

    @property
    def table(self) -> DeltaTable:
        return DeltaTable(self.uri)

    def rows(self, count: int, ids: Iterable[int] | None = None) -> pa.Table:
        """Rows with new ids, or those given; some without the columns added since."""
        if ids is None:
            ids = range(self.next_id, self.next_id + count)
            self.next_id += count
        chosen = list(ids)
        draw = self.draw
        columns: dict[str, Any] = {
            "id": pa.array(chosen, pa.int64()),
            "v": pa.array([draw.choice([None, 0.0, float("nan"), draw.gauss(0, 10)]) for _ in chosen], pa.float64()),
            "s": pa.array([draw.choice([None, "", "x", "y", "🦊"]) for _ in chosen], pa.string()),
            "p": pa.array([draw.choice(PARTITIONS) for _ in chosen], pa.string()),
        }
        for number in range(draw.randrange(self.columns + 1)):
            columns[f"new{number}"] = pa.array([draw.choice([None, number]) for _ in chosen], pa.int64())
        return pa.table(columns)

    def append(self) -> None:
        rows = self.rows(self.draw.randrange(1, 40))
        write_deltalake(self.uri, rows, partition_by=["p"], mode="append", schema_mode="merge")

    def delete(self) -> None:
        self.table.delete(f"id % {self.draw.randrange(2, 6)} = 0")

    def update(self) -> None:
        self.table.update(predicate=f"id % {self.draw.randrange(2, 6)} = 1", updates={"s": "'updated'"})

    def merge(self) -> None:
        ids = {self.draw.randrange(self.next_id) for _ in range(5)}
        parts = [self.rows(0, sorted(ids)), self.rows(3)]
        source = pa.concat_tables([part.select(["id", "v", "s", "p"]) for part in parts])
        every = {name: f"source.{name}" for name in source.column_names}
        merging = self.table.merge(source, "target.id = source.id", source_alias="source", target_alias="target")
        merging.when_matched_update({"s": "source.s", "v": "source.v"}).when_not_matched_insert(every).execute()

    def overwrite_partition(self) -> None:
        rows = self.rows(10)
        rows = rows.set_column(rows.column_names.index("p"), "p", pa.array(["a"] * 10))
        write_deltalake(self.uri, rows, mode="overwrite", predicate="p = 'a'", schema_mode="merge")

    def drop_partition(self) -> None:
        self.table.delete(self.draw.choice(["p = 'b'", "p is null"]))

    def add_column(self) -> None:
        self.table.alter.add_columns([Field(f"new{self.columns}", "long")])
        self.columns += 1

    def compact(self) -> None:
        self.table.optimize.compact()

    def vacuum(self) -> None:
        self.table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
        self.oldest = self.table.version()

    def restore(self) -> None:
        version = self.table.version()
        if version > self.oldest:
            self.table.restore(self.draw.randrange(self.oldest, version))
        self.columns = len(self.table.schema().fields) - 4

    def delete_by_vector(self) -> None:
        """Delete some rows of each of some files, and those deleted before."""
        live = {row["id"] for row in self.live()}
        for path in self.draw.sample(self.paths(), k=min(2, len(self.paths()))):
            stored = pq.ParquetFile(self.folder / newest(self.folder, "add", path)["path"].replace("%25", "%"))
            ids = stored.read(["id"])["id"].to_pylist()
            before = {position for position, own in enumerate(ids) if own not in live}
            gone = before | {position for position in range(len(ids)) if self.draw.random() < 0.3}
            if gone > before:  # a vector of the same rows under another name would be another fragment
                delete_rows(self.folder, path, sorted(gone), self.draw.choice("uip"))

    def paths(self) -> list[str]:
        return sorted(pa.table(self.table.get_add_actions())["path"].to_pylist())

    def live(self) -> list[dict[str, Any]]:
        read = QueryBuilder().register("t", self.table).execute("select * from t").read_all()
        return pa.table(read).to_pylist()

    def fragments(self) -> set[tuple[str, bytes]]:
        """What makes a fragment, as deltalake sees it: a file and which of its rows are live."""
        vectors = pa.table(self.table.deletion_vectors())
        masks = dict(zip(vectors["filepath"].to_pylist(), vectors["selection_vector"].to_pylist(), strict=True))
        return {
            (path, next((bytes(mask) for file, mask in masks.items() if file.endswith(path)), b""))
            for path in self.paths()
        }


COPY_ON_WRITE = [
    *[History.append, History.delete, History.update, History.merge],
    *[History.overwrite_partition, History.drop_partition, History.add_column],
    *[History.compact, History.vacuum, History.restore],
]
VECTORS = [History.append, History.delete_by_vector, History.delete_by_vector, History.add_column, History.restore]


@pytest.mark.parametrize(
    ("steps", "seed", "length"),
    [
        pytest.param(COPY_ON_WRITE, 1, 9, id="copy on write"),
        pytest.param(VECTORS, 2, 5, id="vectors"),
        *(pytest.param(COPY_ON_WRITE, seed, 16, marks=pytest.mark.long) for seed in range(10, 30)),
        *(pytest.param(VECTORS, seed, 12, marks=pytest.mark.long) for seed in range(30, 40)),
    ],
)
def test_any_history(
    spark: SparkSession, tmp_path: Path, steps: list[Callable[[History], None]], seed: int, length: int
) -> None:
    """Numbers are those of the live rows; a fragment that was ever profiled is not read again."""
    vectors = {"delta.enableDeletionVectors": "true"} if steps is VECTORS else {}
    history = History(tmp_path / "lake", seed, vectors)
    config = Lake(tmp_path).config()
    seen: set[tuple[str, bytes]] = set()
    shuffled = list(steps) if length < 10 else [history.draw.choice(steps) for _ in range(length)]
    history.draw.shuffle(shuffled)
    for step in [None, *shuffled[:length]]:
        if step is not None:
            step(history)
        now = history.fragments()
        result = refreshed(config, spark)
        name = step.__name__ if step else "create"
        assert_counts(Metastore(config.root).table("t"), history.live(), name)
        assert result.fragments_profiled == len(now - seen), name
        seen |= now
    assert_equals_scratch(config, spark, tmp_path)


def assert_counts(told: TableLookup, live: list[dict[str, Any]], step: str) -> None:
    """Rows, nulls, NaN, bounds, sums, distinct values and top values, of the table and of each partition."""
    groups: dict[str | None, list[dict[str, Any]]] = {None: live}
    for entry in told.partitions():
        ((_, value),) = decode_partition_key(entry.key)
        groups[entry.key] = [row for row in live if row["p"] == value]
    assert sum(map(len, groups.values())) == 2 * len(live), step
    for key, rows in groups.items():
        assert told.row_count(key) == len(rows), (step, key)
        for row in told.statistics(partition=key):
            place = (step, key, row.column)
            values = [one[row.column] for one in rows if one[row.column] is not None]
            numbers = [value for value in values if value == value]
            assert (row.value_count, row.null_count) == (len(values), len(rows) - len(values)), place
            distinct = len(set(numbers)) + (len(numbers) < len(values))
            assert (row.distinct_count, row.distinct_count_guarantee) == (distinct, "exact"), place
            bounds = [bound and bound.as_py() for bound in (row.minimum, row.maximum)]
            order = (lambda text: text.encode()) if row.column in "sp" else None
            assert bounds == ([min(numbers, key=order), max(numbers, key=order)] if numbers else [None, None]), place
            if row.column == "id" and values:
                assert int(row.sum or 0) == sum(values), place
            top = told.top(row.column, 3, key).values
            counts = Counter("nan" if value != value else value for value in values)
            assert [count for _, count in top] == [count for _, count in counts.most_common(3)], place
            for value, count in top:
                plain = value.as_py()
                assert counts["nan" if plain != plain else plain] == count, place


def test_a_compaction_leaves_other_files_alone(spark: SparkSession, tmp_path: Path) -> None:
    """Only the file that it wrote is read."""
    lake = Lake(tmp_path)
    for number in range(6):
        rows = pa.table({"n": [number] * 5, "p": ["x", "x", "y", "y", "y"]})
        write_deltalake(str(lake.uri), rows, partition_by=["p"], mode="append")
    refreshed(lake.config(), spark)
    before = everything(lake.config())
    DeltaTable(lake.uri).optimize.compact(partition_filters=[("p", "=", "x")])
    result = refreshed(lake.config(), spark)
    assert (result.fragments_added, result.fragments_removed, result.fragments_kept) == (1, 6, 6)
    assert (result.fragments_profiled, result.partitions_changed) == (1, ("p=x",))
    assert_same(everything(lake.config()), before)


def test_a_restore_reads_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """Whatever happened in between: all profiles of the older version are still known."""
    lake = Lake(tmp_path)
    write_deltalake(str(lake.uri), pa.table({"n": list(range(20)), "p": ["x", "y"] * 10}), partition_by=["p"])
    write_deltalake(str(lake.uri), pa.table({"n": [1, 2], "p": ["x", "z"]}), mode="append")
    refreshed(lake.config(), spark)
    before = everything(lake.config())
    changes: list[Callable[[DeltaTable], object]] = [
        lambda table: table.delete("p = 'y'"),
        lambda table: table.optimize.compact(),
        lambda table: table.update(predicate="n > 3", updates={"n": "n + 100"}),
        lambda table: write_deltalake(table, pa.table({"n": [7], "p": ["q"]}), mode="overwrite"),
    ]
    for change in changes:
        change(DeltaTable(lake.uri))
        refreshed(lake.config(), spark)
    DeltaTable(lake.uri).restore(1)
    result = refreshed(lake.config(), spark)
    assert (result.fragments_profiled, result.partitions_total) == (0, 3)
    assert_same(everything(lake.config()), before)


class Mapped:
    """A Delta table that maps columns: renames and drops are commits without files."""

    def __init__(self, folder: Path, mode: str) -> None:
        self.lake = Lake(folder)
        self._mode = mode
        self._commit(("id", 1), ("name", 2), ("kind", 3), first=True)

    def append(self, number: int, **columns: Any) -> None:
        data = pa.table(columns)
        ids = [pa.field(name, data[name].type, metadata={"PARQUET:field_id": name[1:]}) for name in columns]
        data = data.cast(pa.schema(ids))
        commit(self.lake.uri, add_file(self.lake.uri, data, f"{number}.parquet", p3=f"k{number}"))

    def alter(self, *columns: tuple[str, int]) -> RefreshResult:
        self._commit(*columns)
        return refresh(self.lake.config(), self.lake.table, self.spark)

    spark: Callable[[], SparkSession] = staticmethod(no_spark)

    def _commit(self, *columns: tuple[str, int], first: bool = False) -> None:
        kinds = {1: "long", 2: "string", 3: "string", 4: "long"}
        fields = [mapped(name, kinds[number], number) for name, number in columns]
        partition = next(name for name, number in columns if number == 3)
        configuration = {"delta.columnMapping.mode": self._mode, "delta.columnMapping.maxColumnId": "4"}
        actions = [protocol("columnMapping")] if first else []
        commit(self.lake.uri, *actions, metadata(fields, [partition], **configuration))


@pytest.mark.parametrize("mode", ["name", "id"])
def test_renamed_dropped_and_moved_columns_read_nothing(spark: SparkSession, tmp_path: Path, mode: str) -> None:
    """Profiles go by identity: names, order and columns that are gone are matters of the reduction only."""
    table = Mapped(tmp_path, mode)
    table.spark = lambda: spark
    config = table.lake.config()
    for number in range(2):
        table.append(number, p1=[number, 7, None], p2=["x", "y", f"{number}"])
    refreshed(config, spark)
    assert told(config) == {"id": (4, "0", "7"), "name": (6, "0", "y"), "kind": (6, "k0", "k1")}
    renamed = table.alter(("id", 1), ("label", 2), ("kind", 3))
    assert (renamed.published, renamed.fragments_profiled) == (True, 0)
    assert told(config) == {"id": (4, "0", "7"), "label": (6, "0", "y"), "kind": (6, "k0", "k1")}
    swapped = table.alter(("label", 1), ("id", 2), ("kind", 3))
    assert swapped.fragments_profiled == 0
    assert told(config) == {"label": (4, "0", "7"), "id": (6, "0", "y"), "kind": (6, "k0", "k1")}
    moved = table.alter(("kind", 3), ("id", 2), ("label", 1))
    assert moved.fragments_profiled == 0
    assert list(told(config)) == ["kind", "id", "label"]
    dropped = table.alter(("kind", 3), ("label", 1))
    assert dropped.fragments_profiled == 0
    assert told(config) == {"kind": (6, "k0", "k1"), "label": (4, "0", "7")}
    added = table.alter(("kind", 3), ("label", 1), ("id", 4))
    assert added.fragments_profiled == 0, "a new column of an old name: no file has it"
    assert told(config) == {"kind": (6, "k0", "k1"), "label": (4, "0", "7"), "id": (0, None, None)}
    table.append(2, p1=[1], p4=[5])
    assert refreshed(config, spark).fragments_profiled == 1
    assert told(config) == {"kind": (7, "k0", "k2"), "label": (5, "0", "7"), "id": (1, "5", "5")}
    partition = table.alter(("sort", 3), ("label", 1), ("id", 4))
    assert partition.fragments_profiled == 0
    assert set(partition.partitions_changed) == {"sort=k0", "sort=k1", "sort=k2"}
    assert_equals_scratch(config, spark, tmp_path)


def told(config: Any) -> dict[str, tuple[int, str | None, str | None]]:
    """Value count and bounds of each column."""
    return {
        row.column: (row.value_count, row.minimum and str(row.minimum), row.maximum and str(row.maximum))
        for row in Metastore(config.root).table("t").statistics()
    }
