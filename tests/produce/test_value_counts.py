"""A dataflow of value counts is updated by deltas that are not stored.

Its counts and ranks are exact, also after content is loaded or compacted. A delta has rows to add or to remove. A state
is what the caller stores of a dataflow at one time. A step applies deltas to a state and returns a new state. A type
class is a group of Arrow types whose values are converted to one type, such as int8 and int64. A sum stage adds up
numbers by key. Its input is a root with stored rows, or a delta root, whose rows are not stored.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from random import Random

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from metastore_assets.errors import (
    CorruptionError,
    GraphError,
    StageChangedError,
    StoreError,
    UpdateError,
    VersionNotFoundError,
)
from metastore_assets.produce import Dataflow, Delta, DeltaRoot, FlowState, Root, Rows, Settings, Stage, SumStage
from metastore_assets.produce.typed_rows import frame_of
from metastore_assets.store.objects import ObjectStore
from tests.produce.harness import SMALL
from tests.produce.value_counts import ORDERED, TableValueCounts, nodes, random_change, table

RUNS = Settings(
    single_run_rows=0, bulk_share=1e9, base_share=1e9, fan_in=3, max_runs=9, row_group_rows=3, small_rows=0, task_rows=2
)
CHOICES = {"default": Settings(), "small": SMALL, "runs": RUNS}


@pytest.mark.parametrize("kind", ORDERED)
def test_value_counts_of_every_type_class_are_exact(store: ObjectStore, kind: str) -> None:
    """Counts, updates and ranks of values of each type class equal those of a model in plain Python.

    They are compared after two random steps.
    """
    random, lists = Random(kind), TableValueCounts(store, kind, RUNS)
    for _ in range(2):
        lists.step(*random_change(kind, lists.counts, random), random)
    lists.check()
    lists.check_ranks(random)


@pytest.mark.long
@given(st.sampled_from(sorted(ORDERED)), st.sampled_from(sorted(CHOICES)), st.integers(0, 2**32))
@examples(max_examples=100)
@pytest.mark.timeout(3600)
def test_any_history_of_value_counts_is_exact(
    tmp_path_factory: pytest.TempPathFactory, kind: str, choice: str, seed: int
) -> None:
    _history(tmp_path_factory.mktemp("lists"), kind, choice, seed, 12)


@given(st.sampled_from(sorted(ORDERED)), st.sampled_from(sorted(CHOICES)), st.integers(0, 2**32))
@examples(max_examples=4)
def test_many_histories_of_value_counts_are_exact(
    tmp_path_factory: pytest.TempPathFactory, kind: str, choice: str, seed: int
) -> None:
    _history(tmp_path_factory.mktemp("lists"), kind, choice, seed, 4)


def _history(folder: Path, kind: str, choice: str, seed: int, steps: int) -> None:
    """Take random steps of a dataflow for values of the type class `kind`, and check each of them.

    The settings are `CHOICES[choice]`. All stages, updates and ranks are checked. Before some steps, the state is
    compacted, or its content is loaded again.
    """
    random, lists = Random(seed), TableValueCounts(ObjectStore(str(folder)), kind, CHOICES[choice])
    for _ in range(steps):
        if random.random() < 0.3:
            lists.state = lists.flow.compact_state(lists.state, full=random.random() < 0.5)
            lists.check()
        if random.random() < 0.3:
            _load(lists, random)
            lists.check()
        lists.step(*random_change(kind, lists.counts, random), random)
        lists.check()
        lists.check_ranks(random)


def _load(lists: TableValueCounts, random: Random) -> None:
    """Load the content of the stage `values`, and perhaps of `frequencies`, again in several pieces.

    Assert that all stages are marked as rebuilt or loaded (`View.is_reset`). The update of the stage `values` must have
    all its rows, and the update of the stage `facts` only additions.
    """
    rows = sorted((column, value, count) for (column, value), count in lists.counts.items())
    split_position = random.randint(0, len(rows))
    loader = lists.flow.loader("values")
    runs = [
        run for part in (rows[:split_position], rows[split_position:]) for run in loader.write(table(lists.kind, part))
    ]
    content: dict[str, object] = {"values": [loader.adopt(run.path) for run in runs]}
    if random.random() < 0.5:
        groups = lists.flow.view(lists.state).groups("frequencies")
        content["frequencies"] = iter(groups.to_batches(max_chunksize=2))
    lists.state = lists.flow.load(lists.state, content)  # type: ignore[arg-type]
    view = lists.flow.view(lists.state)
    assert all(view.is_reset(name) for name in ("values", "frequencies", "facts"))
    value_update = view.update("values").drop(["_change", "_before_frequency"])
    assert frame_of(value_update).equals(frame_of(view.groups("values")))  # for Arrow, NaN is not equal to itself
    assert set(view.update("facts")["_change"].to_pylist()) <= {"add"}


def _steps(store: ObjectStore, settings: Settings, count: int = 6) -> TableValueCounts:
    random, lists = Random(1), TableValueCounts(store, "string", settings)
    for _ in range(count):
        lists.step(*random_change("string", lists.counts, random), random)
    return lists


def test_any_tool_can_sum_the_runs(store: ObjectStore) -> None:
    lists = _steps(store, RUNS)
    files = [store.uri(run.path) for run in lists.flow.view(lists.state).runs("values")]
    assert len(files) > 1
    query = f"""
        select * from (
            select "column", value, sum(frequency) from read_parquet({files}) group by all having sum(frequency) > 0
        ) order by 1, encode(value)
    """
    expected_rows = sorted((column, ORDERED["string"][value], n) for (column, value), n in lists.counts.items())
    assert duckdb.sql(query).fetchall() == sorted(expected_rows, key=lambda row: (row[0], row[1].encode()))


def test_small_value_counts_are_one_plain_file(store: ObjectStore) -> None:
    lists = _steps(store, Settings())
    (run,) = lists.flow.view(lists.state).runs("frequencies")
    file_rows = duckdb.sql(f"select \"column\", frequency, value from read_parquet('{store.uri(run.path)}')").fetchall()
    rows = lists.flow.view(lists.state).groups("frequencies").select(["column", "frequency", "value"]).to_pylist()
    assert file_rows == [tuple(row.values()) for row in rows]
    over = _steps(ObjectStore(store.uri("over")), Settings(single_run_rows=4, bulk_share=1e9, base_share=1e9))
    assert len(over.flow.view(over.state).runs("values")) > 1


def test_a_state_exists_once_a_version_references_it(store: ObjectStore) -> None:
    """A state that no version references can be discarded, and a failed step leaves no files.

    Files of the previous state stay.
    """
    lists = _steps(store, RUNS)
    base, random = lists.state, Random(2)

    def files() -> set[str]:
        return {info.path for info in store.list()}

    earlier_files = files()
    lists.step(Counter({(0, 0): 5}), Counter(), random)
    assert files() - earlier_files >= lists.state.paths() - base.paths() != set()
    lists.flow.discard(lists.state, base)
    assert base.paths() <= files() <= earlier_files
    assert all(path.startswith("lists/") for path in files())
    with pytest.raises(CorruptionError, match="'values'"):
        lists.flow.step(base, {"lists": [Delta(table("string", [(0, 0, 10**6)]), removed=True)]})
    assert files() <= earlier_files
    with pytest.raises(VersionNotFoundError):
        lists.flow.view(lists.state).update("values")
    state = lists.flow.step(base, {})
    assert lists.flow.view(state).groups("facts").equals(lists.flow.view(base).groups("facts"))
    assert lists.flow.view(state).update("values").num_rows == 0


def test_equal_steps_give_states_of_one_form(store: ObjectStore) -> None:
    first, second = (_steps(ObjectStore(store.uri(name)), RUNS, 3) for name in ("first", "second"))

    def shape(lists: TableValueCounts) -> str:
        text = json.dumps(lists.state.to_json())
        for number, path in enumerate(_in_order(lists.state)):
            text = text.replace(path, str(number))
        return text

    assert shape(first) == shape(second)


def _in_order(state: FlowState) -> list[str]:
    return [path for stage in state.stages.values() for path in stage.paths()]


def test_a_version_of_the_lists_is_applied_once(store: ObjectStore) -> None:
    flow = Dataflow(store, nodes("int64"))
    added_lists = {"lists": [Delta(table("int64", [(1, 2, 3)]))]}
    once = flow.step(FlowState(), added_lists, {"lists": 7})
    assert flow.step(once, added_lists, {"lists": 7}) is once
    assert flow.view(once).sources == {"lists": 7}
    number = flow.advance(added_lists, {"lists": 7})
    assert flow.advance(added_lists, {"lists": 7}) == number
    assert flow.version().groups("values").equals(flow.view(once).groups("values"))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([(0, 1, 1), (0, 0, 1)], r"\bcolumn, value\b"),
        ([(0, 1, 1), (0, 1, 1)], r"\(0, -1\)"),
        ([(0, 1, 0)], r"\(0, -1\).*frequency = 0\b"),
        ([(0, 1, -2)], r"\(0, -1\).*frequency = -2\b"),
        ([(0, 1, None)], r"\(0, -1\).*frequency = None"),
    ],
)
def test_loaded_content_is_validated(store: ObjectStore, rows: list[tuple[int, int, int]], message: str) -> None:
    flow = Dataflow(store, nodes("int64"))
    with pytest.raises(UpdateError, match=message):
        flow.load(FlowState(), {"values": table("int64", rows)})
    assert store.list() == []


def test_loaded_runs_must_be_in_order(store: ObjectStore) -> None:
    flow = Dataflow(store, nodes("int64"))
    runs = [run for number in (1, 0) for run in flow.loader("values").write(table("int64", [(0, number, 1)]))]
    with pytest.raises(UpdateError, match=r"\(0, -9223372036854775808\)"):
        flow.load(FlowState(), {"values": runs})
    assert flow.view(flow.load(FlowState(), {"values": runs[::-1]})).groups("values").num_rows == 2
    with pytest.raises(CorruptionError, match=r"column, value, frequency.*'facts'"):
        flow.loader("facts").adopt(runs[0].path)
    store.write_parquet("other.parquet", table("int64", [(0, 0, 1)]))
    with pytest.raises(GraphError, match=r"'facts'.*\bstage\b"):
        flow.load(FlowState(), {}, {"facts": 1})
    with pytest.raises(CorruptionError, match=r"other\.parquet"):
        flow.loader("values").adopt("other.parquet")


def test_a_stage_cannot_be_built_from_an_unstored_one(store: ObjectStore) -> None:
    flow = Dataflow(store, nodes("int64"))
    state = flow.step(FlowState(), {"lists": [Delta(table("int64", [(1, 2, 3), (1, 3, 1)]))]})
    with pytest.raises(StageChangedError, match=r"'values'.*'lists'"):
        flow.rebuild_state(state, "values")
    assert flow.view(flow.rebuild_state(state, "lists")).groups("facts").num_rows == 0
    assert flow.view(flow.rebuild_state(state, "facts")).groups("facts").equals(flow.view(state).groups("facts"))
    with pytest.raises(GraphError, match="DeltaRoot"):
        flow.view(state).content("lists")
    with pytest.raises(UpdateError, match="`Delta`"):
        flow.step(state, {"lists": table("int64", [])})
    with pytest.raises(ValueError, match="`count`"):
        Delta(list)
    with pytest.raises(UpdateError, match="'value'"):
        flow.step(state, {"lists": [Delta(pa.table({"column": pa.array([1], pa.int32())}))]})
    rows = Rows(pa.schema([("k", pa.int64())]), pa.schema([("n", pa.int64())]))
    with pytest.raises(GraphError, match="DeltaRoot"):
        Dataflow(store, [DeltaRoot("r", rows), Stage("s", (("r",),), rows, produce=lambda key, values: [])])


def test_sums_of_deltas_and_of_rows(store: ObjectStore) -> None:
    """A sum stage adds up rows of a root and of a delta root.

    The rows of the root are stored, those of the delta root are not.
    """
    rows = Rows(pa.schema([("k", pa.int64())]), pa.schema([("n", pa.int64())]))
    graph = [DeltaRoot("d", rows), Root("r", rows), SumStage("s", ("r", "d"), ("k",), ("n",), count="rows")]
    flow = Dataflow(store, graph, settings=SMALL)
    deltas = {"d": [Delta(pa.table({"k": [1, 2], "n": [5, 5]}))]}
    state = flow.step(FlowState(), {**deltas, "r": pa.table({"_change": ["add"], "k": [1], "n": [1]})})
    assert flow.view(state).groups("s").to_pylist() == [{"k": 1, "n": 6, "rows": 2}, {"k": 2, "n": 5, "rows": 1}]
    removed_counts = {"d": [Delta(pa.table({"k": [2, 1], "n": [5, 5]}), removed=True)]}
    state = flow.step(state, {**removed_counts, "r": pa.table({"_change": ["update"], "k": [1], "n": [3]})})
    assert flow.view(state).groups("s").to_pylist() == [{"k": 1, "n": 3, "rows": 1}]


def test_states_of_other_releases_and_damaged_ones_are_refused(store: ObjectStore) -> None:
    state = _steps(store, RUNS, 1).state.to_json()
    with pytest.raises(StoreError, match=r"\bformat 9\b"):
        FlowState.from_json({**state, "format": 9})
    with pytest.raises(StoreError, match=r"\bformat 2\b"):
        FlowState.from_json({**state, "format": 2})
    for wrong in ({}, {**state, "stages": {"values": {}}}, {**state, "stages": 3}):
        with pytest.raises(CorruptionError, match=r"state.*(Key|Type|Attribute)Error"):
            FlowState.from_json(wrong)


def test_missing_ranks_are_an_error(store: ObjectStore) -> None:
    lists = _steps(store, RUNS)
    view = lists.flow.view(lists.state)
    column = pa.table({"column": pa.array([1], pa.int32())})
    total = view.ranks("values", "frequency").total(column)
    for rank in (-1, total):
        with pytest.raises(IndexError, match=rf"\b0\b.*\b{total}\b"):
            view.ranks("values", "frequency").at_rank(column, rank)
    with pytest.raises(GraphError, match=r"'value'.*\bfrequency\b"):
        view.ranks("values", "value")
    with pytest.raises(ValueError, match="'value'"):
        view.ranks("values", "frequency").rank(column)
    empty = lists.flow.view(FlowState()).ranks("values", "frequency")
    assert empty.total(column) == 0
