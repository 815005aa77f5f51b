"""Invalid updates of roots are refused completely and leave no trace.

The option `sort` corrects the order of unsorted updates. Roots are the inputs of a dataflow. A stage computes its rows
from them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from metastore_assets.errors import GraphError, UpdateError
from metastore_assets.produce import Dataflow, Root, Rows
from metastore_assets.store.objects import ObjectStore
from tests.produce.base_stage import BASE_LOAD, A, Base, V
from tests.produce.graph_model import Graph, RootNode, StageNode, columns
from tests.produce.harness import Pair, PlainVersion, U, changes


@pytest.fixture
def pair(store: ObjectStore) -> Pair:
    """A dataflow of two roots and a stage that merges them, with one version."""
    key, value = columns(k="int64"), columns(x="string")
    stage = StageNode("both", (("good", "bad"),), key, value, lambda k, rows: ((k, row) for row in rows))
    pair_ = Pair(store, Graph((RootNode("good", key, value), RootNode("bad", key, value), stage)))
    pair_.advance({"good": [U(1, "a"), U(2, "b")], "bad": [U(2, "c")]})
    return pair_


def refused(pair: Pair, update: Any, match: str, *, error: type[Exception] = UpdateError, **options: Any) -> None:
    """Assert that an update of the root `bad` raises an error that matches `match`.

    The update must leave nothing visible and not affect the next one.
    """
    objects = {info.path for info in pair.store.list()}
    good = pair.table("good", [("update", 1, "never"), ("delete", 2, None)])
    with pytest.raises(error, match=match):
        pair.flow.advance({"good": good, "bad": update}, versions={"good": 9, "bad": 9}, **options)
    assert {info.path for info in pair.store.list("versions")} == {
        path for path in objects if path.startswith("versions")
    }
    for _ in range(2):
        assert pair.plain_version().number == 1
        pair.verify_state()
        pair.reopen()
    pair.advance({"good": [U(1, "new")], "bad": [U(3, "d")]}, versions={"good": 9, "bad": 9})


ROWS = {
    "decreasing": [("update", 9, "x"), ("update", 6, "x")],
    "apart": [("update", 6, "x"), ("update", 9, "x"), ("update", 6, "y")],
    "null_last": [("update", 6, "x"), ("update", None, "x")],
    "late": [("update", key, "x") for key in range(50)] + [("delete", 48, None)],
    "upsert_and_delete": [("update", 6, "x"), ("delete", 6, None)],
    "delete_and_upsert": [("delete", 6, None), ("update", 6, "x")],
    "two_deletes": [("delete", 6, None), ("delete", 6, None)],
    "delete_between": [("add", 6, "x"), ("update", 6, "x"), ("delete", 6, None), ("update", 7, "x")],
    "unknown_change": [("update", 6, "x"), ("remove", 7, None)],
    "no_change": [("update", 6, "x"), (None, 7, "x")],
    "capitals": [("Update", 6, "x")],
}
MESSAGES = {
    "decreasing": r"\bkey 6\b.* 9\b",
    "apart": r"\bkey 6\b.* 9\b",
    "null_last": r"\bkey None\b.* 6\b",
    "late": r"\bkey 48\b.* 49\b",
    "upsert_and_delete": r"\bkey 6\b.*\bdelete\b",
    "delete_and_upsert": r"\bkey 6\b.*\bdelete\b",
    "two_deletes": r"\bkey 6\b.*\bdelete\b",
    "delete_between": r"\bkey 6\b.*\bdelete\b",
    "unknown_change": r"\b_change\b.*'remove'",
    "no_change": r"\b_change\b.* None\b",
    "capitals": r"\b_change\b.*'Update'",
}


@pytest.mark.parametrize("in_batches", [False, True], ids=["table", "batches"])
@pytest.mark.parametrize("name", ROWS)
def test_malformed_updates_are_refused(pair: Pair, name: str, in_batches: bool) -> None:
    table = pair.table("bad", ROWS[name])
    update = iter(table.to_batches(max_chunksize=1)) if in_batches else table
    refused(pair, update, f"'bad'.*{MESSAGES[name]}")


@pytest.mark.parametrize(
    "name", ["upsert_and_delete", "delete_and_upsert", "two_deletes", "unknown_change", "no_change"]
)
def test_sorting_does_not_correct_malformed_updates(pair: Pair, name: str) -> None:
    refused(pair, pair.table("bad", ROWS[name]), f"'bad'.*{MESSAGES[name]}", sort=True)


def test_a_delete_and_an_upsert_of_a_key_are_refused_in_different_batches(pair: Pair) -> None:
    rows = [("update", 6, "x"), ("update", 9, "x"), ("delete", 6, None)]
    refused(pair, pair.table("bad", rows), rf"'bad'.*{MESSAGES['two_deletes']}", sort=True)


@pytest.mark.parametrize("name", ["decreasing", "apart", "null_last"])
def test_sorting_corrects_the_order_of_updates(pair: Pair, name: str) -> None:
    edits: dict[Any, list[Any]] = {}
    for _, key, value in ROWS[name]:
        edits.setdefault(key, []).append(value)
    pair.publish({"bad": pair.table("bad", ROWS[name])}, {"bad": edits}, sort=True)


def test_the_message_names_root_and_keys(pair: Pair) -> None:
    for rows, keys in (
        (ROWS["decreasing"], ("9", "6")),
        (ROWS["two_deletes"], ("6",)),
        ([("update", 6, "x"), ("delete", 6, None), ("update", 7, "x")], ("6",)),
    ):
        with pytest.raises(UpdateError) as error_info:
            pair.flow.advance({"bad": pair.table("bad", rows)})
        assert "'bad'" in str(error_info.value)
        assert all(key in str(error_info.value) for key in keys)


def test_columns_and_types_are_checked(pair: Pair) -> None:
    table = pair.table("bad", [("update", 6, "x")])
    refused(pair, table.drop_columns(["x"]), "'bad'.*'x'")
    pair.plain_version()


@pytest.mark.parametrize("column", ["_change", "k"])
def test_missing_columns_are_refused(pair: Pair, column: str) -> None:
    refused(pair, pair.table("bad", [("update", 6, "x")]).drop_columns([column]), f"'bad'.*'{column}'")


def test_other_types_are_refused(pair: Pair) -> None:
    table = pa.table({"_change": ["update"], "k": ["six"], "x": ["x"]})
    refused(pair, table, "'bad'.*'six'.*int64")


def test_equivalent_types_are_accepted(pair: Pair) -> None:
    table = pa.table(
        {
            "x": pa.array(["x"]).dictionary_encode(),
            "k": pa.array([6], pa.int8()),
            "_change": pa.array(["add"], pa.large_string()),
            "more": [1],
        }
    )
    pair.publish({"bad": table}, {"bad": {6: ["x"]}})
    assert pair.plain_version().update("both") == [A(6, "x")]


def test_an_update_of_a_stage_is_refused(pair: Pair) -> None:
    table = pair.table("bad", [("update", 6, "x")])
    for name in ("unknown", "both"):
        with pytest.raises((UpdateError, GraphError), match=name):
            pair.flow.advance({name: table})
    assert pair.plain_version().number == 1


@pytest.mark.parametrize(
    ("value", "path"),
    [({"a": {"B": 1}}, "value.a.b"), ({"a": {}, "list": [{}]}, "value.a.b"), ({"list": [{}]}, "value.a")],
)
def test_a_missing_field_of_a_struct_is_refused(store: ObjectStore, value: dict[str, Any], path: str) -> None:
    """An update whose structs lack a declared field is refused, and the error has the path of the field.

    This is so even if only the case of a name differs. Arrow's cast would fill the field with nulls.
    """
    inner = pa.struct([("b", pa.int64())])
    declared_columns = pa.schema([("value", pa.struct([("a", inner), ("list", pa.list_(inner))]))])
    flow = Dataflow(store, [Root("root", Rows(pa.schema([("key", pa.int64())]), declared_columns))])
    for rows in ([value], []):
        values = pa.array(rows, pa.array([value]).type)
        update = pa.table(
            {"_change": ["add"] * len(rows), "key": pa.array([1] * len(rows), pa.int64()), "value": values}
        )
        with pytest.raises(UpdateError, match=f"'{re.escape(path)}'"):
            flow.advance({"root": update})


def test_an_update_may_be_split_into_any_batches(pair: Pair) -> None:
    rows = changes([U(3, "a", "b", "c"), U(4, "d"), U(5, "e", "f")])
    table = pair.table("good", rows)
    empty = pair.table("good", []).to_batches() or [pa.RecordBatch.from_pylist([], table.schema)]

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in table.to_batches(max_chunksize=2):
            yield from (*empty, batch, *empty)

    pair.publish({"good": batches()}, {"good": {3: ["a", "b", "c"], 4: ["d"], 5: ["e", "f"]}})
    assert pair.plain_version().update("good") == [A(3, "a"), V(3, "b"), V(3, "c"), A(4, "d"), A(5, "e"), V(5, "f")]


@pytest.mark.parametrize("form", ["table", "iterator"])
def test_an_update_may_have_no_rows(pair: Pair, form: str) -> None:
    table = pair.table("good", [])
    pair.publish({"good": table if form == "table" else iter(())}, {"good": {}})
    assert pair.plain_version().update("both") == []


def test_a_version_may_have_no_update(pair: Pair) -> None:
    pair.publish({}, {})
    assert pair.plain_version().number == 2


def test_the_value_of_a_delete_is_ignored(store: ObjectStore) -> None:
    base = Base(store)
    schema = base.table("source", []).schema
    table = pa.table([["delete", "delete"], [4, 6], [999, None], ["ignored", None]], schema=schema)
    base.publish({"source": table}, {"source": {4: None, 6: None}})
    assert base.plain_version().update("stage") == [V(105, "banana"), ("delete", 108, None)]


def test_an_update_that_fails_while_it_is_read_is_refused(pair: Pair) -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield from pair.table("bad", [("update", 6, "x")]).to_batches()
        raise ConnectionError("the source went away")

    refused(pair, broken(), "went away", error=ConnectionError)


def test_an_update_may_be_large(store: ObjectStore) -> None:
    base = Base(store)
    keys = range(10, 10_000)
    base.edit(*BASE_LOAD, *(U(key, (key % 1000, str(key))) for key in keys), exact_work=False)
    assert PlainVersion(base.graph, base.flow).view.content("stage").num_rows == len(keys) + 3
