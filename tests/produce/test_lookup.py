"""Lookups of the stored rows of keys: in pieces of limited size, and each row once.

Damaged files raise errors. Each file has an index of the first and last keys of its row groups.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metastore_assets.errors import CorruptionError
from metastore_assets.produce import Dataflow, Settings
from metastore_assets.produce import lookup as module
from metastore_assets.produce.dataset import Dataset
from metastore_assets.store.objects import ObjectStore
from tests.produce.graph_model import Graph, RootNode, StageNode, SumNode, columns
from tests.produce.harness import D, Pair, U

RUNS = Settings(single_run_rows=0, bulk_share=1e9, row_group_rows=50)
KEYS, GROUPS = 600, 40


@pytest.fixture
def looked_up(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list to which each call of `Dataset.lookup` adds the number of rows that it returned."""
    rows: list[int] = []
    lookup = Dataset.lookup

    def counted(self: Dataset, *arguments: Any) -> pl.DataFrame:
        rows_read = lookup(self, *arguments)
        rows.append(rows_read.height)
        return rows_read

    monkeypatch.setattr(Dataset, "lookup", counted)
    return rows


def grouped_pair(store: ObjectStore, settings: Settings) -> Pair:
    """Return a dataflow with a stage that maps keys to groups, and a sum with the sizes of the groups.

    Version 1 has `KEYS` keys in `GROUPS` groups of equal size.
    """
    key, value = columns(k="int64"), columns(x="int64")
    stage = StageNode("grouped", (("keys",),), key, value, lambda k, rows: ((k % GROUPS, row) for row in rows))
    sizes = SumNode("sizes", ("grouped",), ("k",), (), "rows")
    pair = Pair(store, Graph((RootNode("keys", key, value), stage, sizes)), settings=settings)
    pair.advance({"keys": [U(k, k) for k in range(KEYS)]})
    return pair


@pytest.mark.parametrize("buffer_rows", [4, 60, 1_000_000])
def test_groups_are_looked_up_in_pieces(store: ObjectStore, looked_up: list[int], buffer_rows: int) -> None:
    pair = grouped_pair(store, replace(RUNS, buffer_rows=buffer_rows, batch_rows=buffer_rows))
    size = KEYS // GROUPS
    looked_up.clear()
    pair.flow.advance({"keys": pair.table("keys", [("update", k, -k) for k in range(GROUPS)])})
    # The size of the first piece is in keys, as their number of rows is unknown.
    assert max(looked_up) <= min(buffer_rows, GROUPS) * size
    assert looked_up.count(size) >= (GROUPS - buffer_rows if buffer_rows < GROUPS else 0)
    assert pair.plain_version().groups("grouped", [1, 41]) == {1: [-1, *range(41, KEYS, GROUPS)]}


def test_previous_rows_are_read_once(store: ObjectStore, looked_up: list[int]) -> None:
    pair = grouped_pair(store, RUNS)
    looked_up.clear()
    pair.advance({"keys": [U(1, 7), D(2)]})
    root, mappings, content, sizes = looked_up
    assert (root, mappings, content) == (2, 2, 2 * KEYS // GROUPS)
    assert sizes == 1, "one group has as many rows as before"


@pytest.mark.parametrize("some", [lambda k: k == 7, lambda k: k % 3 == 0, lambda k: True, lambda k: k > KEYS])
@pytest.mark.parametrize("value", ["int64", "string"])
@pytest.mark.parametrize("lead", ["int64", "string"])
def test_a_view_reads_few_or_many_keys(
    store: ObjectStore, some: Callable[[int], bool], lead: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`View.groups` returns the rows of exactly those requested keys that exist.

    One key, a third of the keys, all keys, or only unknown keys are requested. Keys have two columns. The first has the
    same value in 130 successive keys, which are more than a row group.
    """
    monkeypatch.setattr(module, "_MAX_ROWS_TOGETHER", 100)
    key = columns(a=lead, b=value)
    pair = Pair(store, Graph((RootNode("keys", key, columns(x="int64")),)), settings=RUNS)

    def name(k: int) -> tuple[int | str, int | str]:
        first, second = divmod(k, 130)  # each second part occurs beside several first parts
        return (first if lead == "int64" else f"of {first}", second if value == "int64" else f"{second:05}")

    names = {k: name(k) for k in range(KEYS + 5)}
    pair.advance({"keys": [U(names[k], k) for k in range(KEYS)]})
    pair.advance({"keys": [D(names[k]) for k in range(0, KEYS, 9)]})
    requested_keys = [names[k] for k in names if some(k)]
    rows_read = pair.plain_version().groups("keys", requested_keys)
    assert rows_read == {names[k]: [k] for k in range(KEYS) if some(k) and k % 9}


def test_row_groups_have_at_most_the_rows_that_a_file_allows(tmp_path: Path) -> None:
    """Lookups find keys although `row_group_rows` is greater than 131,072, the most rows of a row group.

    In larger row groups, the index of the keys would not match the row groups, and lookups would miss keys.
    """
    rows = 300_000
    graph = Graph((RootNode("keys", columns(k="int64"), columns(x="int64")),))
    flow = Dataflow(ObjectStore(str(tmp_path)), graph.declaration(), settings=Settings(row_group_rows=rows))
    flow.advance({"keys": pa.table({"_change": pa.repeat("add", rows), "k": range(rows), "x": range(rows)})})
    for key in (0, 131_071, 131_072, 200_000, rows - 1):
        assert flow.version().groups("keys", pa.table({"k": [key]}))["x"].to_pylist() == [key]


def test_an_index_of_keys_that_does_not_fit_the_row_groups_is_named(tmp_path: Path) -> None:
    """A lookup raises an error if the index of keys does not fit the row groups of the file.

    Without the error, it would not find keys. Earlier releases wrote such files if row groups were large.
    """
    graph = Graph((RootNode("keys", columns(k="int64"), columns(x="int64")),))
    store = ObjectStore(str(tmp_path))
    flow = Dataflow(store, graph.declaration(), settings=RUNS)
    flow.advance({"keys": pa.table({"_change": pa.repeat("add", KEYS), "k": range(KEYS), "x": range(KEYS)})})
    for info in store.list("data"):
        file = pq.read_table(store.uri(info.path))
        metadata = pq.read_metadata(store.uri(info.path)).metadata
        pq.write_table(file.replace_schema_metadata(metadata), store.uri(info.path), row_group_size=30)
    with pytest.raises(CorruptionError, match="row groups"):
        flow.version().groups("keys", pa.table({"k": [7]}))


def test_a_damaged_row_group_is_named(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lookup in a damaged row group raises an error with the file's path.

    Another thread reads the row group in advance.
    """
    pair = grouped_pair(store, RUNS)
    run = next(run for run in pair.flow.version().runs("grouped") if run.dataset == "content")
    path = store.uri(run.path)
    with open(path, "r+b") as file:
        file.seek(2000)
        file.write(bytes(60))
    monkeypatch.setattr(module, "_MAX_ROWS_TOGETHER", 1)
    with pytest.raises(CorruptionError, match=run.path):
        pair.plain_version().groups("grouped", list(range(GROUPS)))
