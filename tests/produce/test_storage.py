"""Storage is correct after interrupted commits, and in any key order.

This holds with small buffers and merged runs (sorted files), too. A root is an input of a graph, and a stage computes
its rows by a function.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from metastore_assets.produce import Dataflow, Settings
from metastore_assets.store.documents import Documents
from metastore_assets.store.objects import ObjectStore
from tests.produce.base_stage import BASE_CONTENT, BASE_LOAD, A, Base, V, X, skipping
from tests.produce.graph_model import Graph, RootNode, StageNode, arrow, columns
from tests.produce.harness import SMALL, D, Edit, Pair, U
from tests.produce.killable_store import KillableStore, KilledError

NAN = float("nan")


@pytest.mark.parametrize("after", [False, True], ids=["before_the_manifest", "after_the_manifest"])
def test_idempotent_commit(store: ObjectStore, after: bool) -> None:
    base = Base(store)
    update = base.table("source", [("delete", 6, None), ("update", 7, (105, "grape"))])
    dying = Dataflow(KillableStore(store.uri(), 0, after=after, only="versions/"), base.graph.declaration())
    with pytest.raises(KilledError):
        dying.advance({"source": update}, versions={"source": 2})
    base.reopen()
    assert base.plain_version().number == (2 if after else 1)
    if not after:
        base.expect(content=BASE_CONTENT)
    base.reopen()
    assert base.flow.advance({"source": update}, versions={"source": 2}) == 2
    base.expect(
        update=[V(105, "grape"), V(105, "banana")],
        content=[(105, 7, "grape"), (105, 9, "banana"), (108, 4, "mango")],
        mappings=[(4, 108), (7, 105), (9, 105)],
    )
    assert Documents(store).numbers() == [1, 2]


@pytest.mark.parametrize(
    "small",
    [
        Settings(single_run_rows=0, buffer_rows=3),
        Settings(single_run_rows=0, buffer_rows=3, batch_rows=10),
        pytest.param(
            Settings(
                single_run_rows=0,
                buffer_rows=3,
                batch_rows=20,
                row_group_rows=20,
                target_rows=100,
                bulk_share=1e9,
                small_rows=0,
            ),
            marks=pytest.mark.long,
        ),
    ],
)
def test_spill_and_merge(tmp_path: Any, small: Settings) -> None:
    def spread(key: int, rows: Iterator[int]) -> Iterator[Any]:
        return ((value * 7919 % 101, (key, value)) for value in rows)

    def graph() -> Graph:
        return Graph(
            (
                RootNode("source", columns(k="int64"), columns(x="int64")),
                StageNode("stage", (("source",),), columns(t="int64"), columns(k="int64", x="int64"), spread),
            )
        )

    first = [U(key, *range(key, key + 5)) for key in range(200)]
    second = [D(key) if key % 3 == 0 else U(key, *range(key, key + 4)) for key in range(0, 200, 2)]
    views = []
    for name, settings in (("small", small), ("unbounded", Settings(single_run_rows=0, buffer_rows=10**9))):
        pair = Pair(ObjectStore(str(tmp_path / name)), graph(), settings=settings)
        table_bytes = []
        for edits in (first, second):
            step = pair.advance({"source": edits})
            view = pair.flow.version()
            tables = (view.content("stage"), view.mappings("stage"), view.update("stage"), view.groups("stage", None))
            table_bytes.append([_bytes(table) for table in tables])
        assert len(step.updates["stage"]) > 400
        views.append(table_bytes)
    assert views[0] == views[1]


def _bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    return sink.getvalue().to_pybytes()


def _keyed(key: pa.Schema, descending: tuple[str, ...] = ()) -> Graph:
    """Return a graph of a root and two stages that have the rows of the root.

    The stage `same` has the root's order of keys, and the stage `other` has the opposite order. Fields of the key that
    are in `descending` are in descending order in the root.
    """
    value = columns(x="string")
    other = tuple(name for name in key.names if name not in descending)
    return Graph(
        (
            RootNode("source", key, value, descending),
            StageNode("same", (("source",),), key, value, lambda k, rows: ((k, row) for row in rows), descending),
            StageNode("other", (("same",),), key, value, lambda k, rows: ((k, row) for row in rows), other),
        )
    )


TEXTS = [None, "", "B", "a", "a\0", "aa", "z", "ä", "\u20ac", "\ufffd", "\U0001f34e"]
FLOATS = [None, float("-inf"), -1.5, 0.0, 5e-324, 2.0, float("inf"), NAN]


@pytest.mark.parametrize("settings", [Settings(), SMALL], ids=["default", "small"])
@pytest.mark.parametrize("descending", [(), ("k",)], ids=["ascending", "descending"])
@pytest.mark.parametrize("keys", [TEXTS, FLOATS], ids=["texts", "floats"])
def test_key_order(store: ObjectStore, keys: list[Any], descending: tuple[str, ...], settings: Settings) -> None:
    kind = "string" if keys is TEXTS else "float64"
    pair = Pair(store, _keyed(columns(k=kind), descending), settings=settings)
    declared_keys = keys[::-1] if descending else keys
    pair.advance({"source": [U(key, f"{number}") for number, key in enumerate(declared_keys)]})
    for stage, order in (("source", declared_keys), ("same", declared_keys), ("other", declared_keys[::-1])):
        table = pair.flow.version().content(stage)
        assert str(table["k"].to_pylist()) == str(order)
    half = declared_keys[::2]
    pair.advance({"source": [D(key) if number % 3 else U(key, "new") for number, key in enumerate(half)]})
    pair.compact(full=True)
    pair.advance({"source": [U(key, "again") for key in declared_keys]})


@pytest.mark.parametrize(
    "key", ["string", "large_string", "binary", "bool", "int8", "uint64", "date32", "timestamp[ns]"]
)
def test_types_of_keys(store: ObjectStore, key: str) -> None:
    from datetime import date, datetime

    values: dict[str, list[Any]] = {
        "binary": [b"", b"\x00", b"a", b"\xff"],
        "bool": [False, True],
        "int8": [-128, -1, 0, 127],
        "uint64": [0, 2**63, 2**64 - 1],
        "date32": [date(1, 1, 1), date(1970, 1, 1), date(9999, 12, 31)],
        "timestamp[ns]": [datetime(1700, 1, 1), datetime(1970, 1, 1), datetime(2200, 1, 1)],
    }
    keys = [None, *values.get(key, ["", "a", "ä"])]
    pair = Pair(store, _keyed(columns(k=key)), settings=SMALL)
    pair.advance({"source": [U(one, "x") for one in keys]})
    pair.advance({"source": [U(keys[0], "y"), D(keys[1])]})
    pair.advance({"source": [U(one, "z") for one in keys[1:]]})


def test_negative_zero_is_zero(store: ObjectStore) -> None:
    pair = Pair(store, _keyed(columns(k="float64")))
    update = pair.table("source", [("add", -0.0, "a"), ("add", 0.0, "b"), ("add", NAN, "c"), ("add", -NAN, "d")])
    pair.publish({"source": update}, {"source": {0.0: ["a", "b"], NAN: ["c", "d"]}})
    assert pair.plain_version().update("same") == [A(0.0, "a"), V(0.0, "b"), *_nan_rows(pair, A("", "c"), V("", "d"))]
    assert str(pair.flow.version().content("same")["k"].to_pylist()) == "[0.0, 0.0, nan, nan]"
    pair.publish({"source": pair.table("source", [("delete", -0.0, None)])}, {"source": {0.0: None}})
    assert pair.plain_version().update("same") == [X(0.0)]
    assert pair.plain_version().groups("same", [NAN, 0.0][::-1]) == {
        key: ["c", "d"] for key in pair.state.groups["same"]
    }


def _nan_rows(pair: Pair, *rows: Any) -> list[Any]:
    (nan,) = (key for key in pair.state.groups["same"] if key != key)
    return [(change, nan, value) for change, _, value in rows]


def test_negative_zero_of_a_produce_function(store: ObjectStore) -> None:
    graph = Graph(
        (
            RootNode("source", columns(k="int64"), columns(x="string")),
            StageNode(
                "stage",
                (("source",),),
                columns(t="float64"),
                columns(x="string"),
                lambda key, rows: ((-0.0 if key % 2 else 0.0, row) for row in rows),
            ),
        )
    )
    pair = Pair(store, graph, settings=SMALL)
    pair.advance({"source": [U(1, "odd"), U(2, "even")]})
    assert pair.plain_version().update("stage") == [A(0.0, "odd"), V(0.0, "even")]
    pair.advance({"source": [D(1)]})
    assert pair.plain_version().update("stage") == [V(0.0, "even")]


def test_compound_keys_with_one_part_descending(store: ObjectStore) -> None:
    key = columns(c="string", n="int64")
    pair = Pair(store, _keyed(key, ("n",)), settings=SMALL)
    order = [(None, 2), (None, None), ("a", 3), ("a", -1), ("a", None), ("b", 7)]
    pair.advance({"source": [U(one, "x") for one in order]})
    assert list(pair.plain_version().groups("same")) == order
    other = [("b", 7), ("a", None), ("a", -1), ("a", 3), (None, None), (None, 2)]
    assert list(pair.plain_version().groups("other")) == other
    assert pair.plain_version().mappings("other") == [(one, one) for one in sorted(order, key=_null_first)]
    pair.advance({"source": [D(order[1]), U(order[4], "y")]})


def _null_first(key: tuple[Any, ...]) -> list[tuple[bool, Any]]:
    return [(part is not None, part or 0 if part is None or isinstance(part, int) else part) for part in key]


SCRIPT: list[list[Edit]] = [
    BASE_LOAD,
    [U(6, (105, "apricot"))],
    [D(7)],
    [D(6)],
    [D(9)],
    [U(6, (105, "apple")), U(9, (105, "banana"))],
    [D(6), D(9)],
    [U(4, (105, "mango"))],
    [U(4, (108, "skip"))],
    [U(6, (105, "a"), (105, "b"), (107, "c"))],
    [U(6, (105, "b"))],
    [U(1, (200, "x")), U(2, (200, "y"))],
    [D(4), U(5, (108, "kiwi"))],
    [U(5, (105, "fig")), D(6), D(9)],
    [U(5, (105, "fig"))],
    [D(5)],
    [D(5)],
    [U(4, (108, "mango"))],
    [U(4, (108, "mango"))],
    [D(4)],
    [U(4, (108, "mango"))],
]
"""The updates of the tests in test_one_stage.py, one after another."""


@pytest.mark.parametrize(
    ("full", "fan_in", "base_share", "suppress"),
    [
        (None, 2, 0.5, True),
        pytest.param(None, 2, 100.0, False, marks=pytest.mark.long),
        pytest.param(False, 2, 0.5, False, marks=pytest.mark.long),
        (True, 3, 0.5, False),
    ],
)
def test_runs_equal_plain_files(
    tmp_path: Any, suppress: bool, fan_in: int, base_share: float, full: bool | None
) -> None:
    """A storage with many runs, which are merged now and then, equals one that is rewritten each time."""
    plain_files = Settings(single_run_rows=0, bulk_share=0.0)
    runs = Settings(
        single_run_rows=0,
        target_rows=4,
        row_group_rows=2,
        buffer_rows=3,
        batch_rows=2,
        bulk_share=1e9,
        base_share=base_share,
        fan_in=fan_in,
        max_runs=6,
    )
    plain = Base(ObjectStore(str(tmp_path / "plain")), skipping, settings=plain_files, load=False, suppress=suppress)
    tiered_base = Base(ObjectStore(str(tmp_path / "runs")), skipping, settings=runs, load=False, suppress=suppress)
    most = 0
    for edits in SCRIPT:
        plain.edit(*edits)
        tiered_base.edit(*edits)
        most = max(most, len(tiered_base.files()))
        _same(plain, tiered_base)
        if full is not None:
            tiered_base.compact(full=full)
            _same(plain, tiered_base)
    assert most > 2, "there was nothing to merge"


def _same(plain: Base, tiered_base: Base) -> None:
    one, other = plain.flow.version(), tiered_base.flow.version()
    assert one.content("stage").equals(other.content("stage"))
    assert one.mappings("stage").equals(other.mappings("stage"))
    assert one.update("stage").equals(other.update("stage"))


def test_arrow_of_no_rows() -> None:
    assert arrow(columns(k="int64"), []).num_rows == 0
