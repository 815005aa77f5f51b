"""Errors of Produce functions name the stage, and mostly the key.

With `check`, functions must be deterministic.

Stages with a changed declaration are refused, and so are values that Arrow or Python would change. A stage computes its
rows by a Produce function from the rows of a root, which is an input.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from itertools import count
from typing import Any

import pyarrow as pa
import pytest

from metastore_assets.errors import ProduceError, StageChangedError
from metastore_assets.produce import Batch, Dataflow, Root, Rows, Settings, Stage
from metastore_assets.store.objects import ObjectStore
from tests.produce.base_stage import BASE_CONTENT, Base
from tests.produce.graph_model import changes_table, columns
from tests.produce.harness import SMALL, U, changes

KEY, VALUE = columns(k="int64"), columns(x="int64")
ROOT = Root("root", Rows(KEY, VALUE))


def flow_of(store: ObjectStore, *, check: bool = False, settings: Settings | None = None, **form: Any) -> Dataflow:
    """Return a dataflow of a root and one stage; `form` has further arguments of `Stage`.

    `check` has the meaning that it has in `Settings`.
    """
    stage = Stage("stage", ports=(("root",),), rows=form.pop("rows", Rows(KEY, VALUE)), **form)
    return Dataflow(store, [ROOT, stage], settings=replace(settings or Settings(), check=check))


def load(flow: Dataflow, *keys: int) -> int:
    return flow.advance({"root": changes_table(KEY, VALUE, changes(U(key, 10 * key) for key in keys))})


def raising(bad: Any) -> Any:
    def produce(key: Any, rows: Iterator[Any]) -> Iterator[Any]:
        yield key, next(rows)
        if key == bad:
            raise ZeroDivisionError("by hand")

    return produce


@pytest.mark.parametrize("settings", [Settings(), SMALL], ids=["default", "small"])
def test_the_error_names_stage_and_key(store: ObjectStore, settings: Settings) -> None:
    flow = flow_of(store, produce=raising(7), settings=settings)
    assert load(flow, *range(6)) == 1
    before = flow.version().content("stage")
    with pytest.raises(ProduceError, match=r"'stage'.*\b7\b.*by hand") as error_info:
        load(flow, *range(3, 12))
    assert (error_info.value.stage, error_info.value.key) == ("stage", 7)
    assert isinstance(error_info.value.__cause__, ZeroDivisionError)
    assert flow.version().number == 1
    assert flow.version().content("stage").equals(before)
    assert load(flow, 3, 4) == 2


def test_the_error_names_a_compound_key(store: ObjectStore) -> None:
    key = columns(c="string", n="int64")
    root = Root("root", Rows(key, VALUE))
    stage = Stage("stage", ports=(("root",),), rows=Rows(key, VALUE), produce=raising(("b", None)))
    table = changes_table(key, VALUE, changes([U(("a", 1), 1), U(("b", None), 2), U(("b", 2), 3)]))
    with pytest.raises(ProduceError) as error_info:
        Dataflow(store, [root, stage]).advance({"root": table})
    assert error_info.value.key == ("b", None)


def test_the_error_survives_a_process_boundary() -> None:
    original_error = ProduceError("message", stage="stage", key=("a", 1))
    original_error.add_note("what to do")
    error = pickle.loads(pickle.dumps(original_error))
    assert (str(error), error.stage, error.key) == ("message", "stage", ("a", 1))
    assert error.__notes__ == ["what to do"]


@pytest.mark.parametrize(
    ("wrong", "cause"),
    [
        ((1, "text"), pa.ArrowInvalid),
        (("text", 1), pa.ArrowInvalid),
        (5, TypeError),
        ((1,), ValueError),
        ((1, 2, 3), ValueError),
        (None, TypeError),
        ((1, 2**70), OverflowError),
    ],
)
def test_outputs_of_other_types_are_refused(store: ObjectStore, wrong: Any, cause: type[Exception]) -> None:
    def produce(key: int, rows: Iterator[int]) -> Iterator[Any]:
        yield wrong if key == 4 else (key, 1)

    flow = flow_of(store, produce=produce)
    with pytest.raises(ProduceError, match=rf"'stage'.*\b{cause.__name__}\b.*\bkey 4\b") as error_info:
        load(flow, 3, 4, 5)
    assert error_info.value.stage == "stage"
    assert error_info.value.key == 4, "the key whose output it was"
    assert flow.version().number == 0


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ((1, (1,)), r"\bx, y$"),
        ((1, (1, 2, 3)), r"\bx, y$"),
        ((1, 1), r"\bx, y$"),
        ((1, None), r"\bx, y$"),
        ((1, ("text", 2)), "'text'"),
    ],
)
def test_values_of_another_width_are_refused(store: ObjectStore, wrong: Any, message: str) -> None:
    def produce(key: int, rows: Iterator[int]) -> Iterator[Any]:
        yield wrong if key == 4 else (key, (1, 2))

    with pytest.raises(ProduceError, match=rf"'stage'.*\bkey 4\b.*{message}") as error_info:
        load(flow_of(store, produce=produce, rows=Rows(KEY, columns(x="int64", y="int64"))), 3, 4, 5)
    assert error_info.value.key == 4


def test_a_vectorised_function_that_raises(store: ObjectStore) -> None:
    def produce_batch(batch: Batch) -> pa.Table:
        raise ZeroDivisionError("by hand")

    with pytest.raises(ProduceError, match=r"'stage'.*by hand") as error_info:
        load(flow_of(store, produce_batch=produce_batch), 3, 4)
    assert error_info.value.stage == "stage"


def _table(source: list[Any], k: list[Any], x: list[Any], **more: list[Any]) -> pa.Table:
    return pa.table({"_source": pa.array(source, pa.int64()), "k": k, "x": x, **more})


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (_table([0], [1], [1]).drop_columns(["_source"]), "KeyError.*'_source'"),
        (_table([0], [1], [1]).drop_columns(["x"]), "KeyError.*'x'"),
        (_table([2], [1], [1]), r"IndexError.*\b_source\b.*\b0 to 1$"),
        (_table([-1], [1], [1]), r"IndexError.*\b_source\b.*\b0 to 1$"),
        (_table([None], [1], [1]), r"IndexError.*\b_source\b.*\b0 to 1$"),
        (_table([0], ["text"], [1]), "ArrowInvalid.*'text'.*int64"),
        ("not a table", "AttributeError.*'str'"),
        (None, "AttributeError.*'NoneType'"),
    ],
    ids=["no source", "no value", "source too large", "source below zero", "source null", "type", "text", "nothing"],
)
def test_tables_that_a_vectorised_function_must_not_return(store: ObjectStore, wrong: Any, message: str) -> None:
    flow = flow_of(store, produce_batch=lambda batch: wrong)
    with pytest.raises(ProduceError, match=f"'stage'.*{message}"):
        load(flow, 3, 4)
    assert flow.version().number == 0


def test_a_vectorised_function_may_return_rows_in_any_order_of_sources(store: ObjectStore) -> None:
    flow = flow_of(store, produce_batch=lambda batch: _table([1, 0, 1, 0], [9, 9, 9, 9], [1, 2, 3, 4], more=[0] * 4))
    load(flow, 3, 4)
    rows = flow.version().content("stage").to_pylist()
    assert [(row["_source_k"], row["x"]) for row in rows] == [(3, 2), (3, 4), (4, 1), (4, 3)]


def test_a_batch_holds_complete_groups(store: ObjectStore) -> None:
    batches: list[Batch] = []

    def produce_batch(batch: Batch) -> pa.Table:
        batches.append(batch)
        return _table([], pa.array([], pa.int64()), pa.array([], pa.int64()))  # type: ignore[arg-type]

    flow = flow_of(store, produce_batch=produce_batch, settings=Settings(batch_rows=3))
    edits = [U(key, *range(1 + key % 5)) for key in range(40)]
    flow.advance({"root": changes_table(KEY, VALUE, changes(edits))})
    keys = [key for batch in batches for key in batch.keys["k"].to_pylist()]
    assert sorted(keys) == list(range(40))
    assert len(batches) > 5
    for batch in batches:
        assert batch.keys["k"].to_pylist() == sorted(batch.keys["k"].to_pylist())
        (port,) = batch.ports
        assert port.column_names == ["_source", "x"]
        assert port.schema.field("_source").type == pa.int64()
        groups: dict[int, list[int]] = {}
        for row in port.to_pylist():
            groups.setdefault(batch.keys["k"][row["_source"]].as_py(), []).append(row["x"])
        assert groups == {key: list(range(1 + key % 5)) for key in batch.keys["k"].to_pylist()}


def test_random_outputs_are_detected_on_request(store: ObjectStore) -> None:
    numbers = count()

    def produce(key: int, rows: Iterator[int]) -> Iterator[Any]:
        yield key, next(numbers) if key == 4 else 0

    with pytest.raises(ProduceError, match=r"'stage'.* 1 .* 1 rows\b.*\bkey 4\b") as error_info:
        load(flow_of(store, produce=produce, check=True), 3, 4, 5)
    assert (error_info.value.stage, error_info.value.key) == ("stage", 4)
    load(flow_of(ObjectStore(store.uri("other")), produce=produce), 3, 4, 5)


def test_another_number_of_outputs_is_detected(store: ObjectStore) -> None:
    calls = count()

    def produce(key: int, rows: Iterator[int]) -> Iterator[Any]:
        yield key, 1
        if key == 5 and next(calls) % 2:
            yield key, 1

    with pytest.raises(ProduceError, match=r"'stage'.* 1 .* 2 rows\b.*\bkey 5\b") as error_info:
        load(flow_of(store, produce=produce, check=True), 3, 4, 5)
    assert error_info.value.key == 5


def test_another_order_of_outputs_is_detected(store: ObjectStore) -> None:
    calls = count()

    def produce(key: int, rows: Iterator[int]) -> Iterator[Any]:
        yield from ((key, value) for value in ((1, 2) if next(calls) % 2 else (2, 1)))

    with pytest.raises(ProduceError, match=r"'stage'.* 2 .* 2 rows\b.*\bkey 3\b"):
        load(flow_of(store, produce=produce, check=True), 3)


def test_a_vectorised_function_that_reads_other_groups_is_detected(store: ObjectStore) -> None:
    def produce_batch(batch: Batch) -> pa.Table:
        size = batch.keys.num_rows
        return _table(list(range(size)), batch.keys["k"].to_pylist(), [size] * size)

    with pytest.raises(ProduceError, match=r"'stage'.* 1 .* 1 rows\b.*\bkey 3\b"):
        load(flow_of(store, produce_batch=produce_batch, check=True), 3, 4, 5)


def test_checking_lets_deterministic_functions_pass(store: ObjectStore) -> None:
    base = Base(store)
    base.check = True
    base.reopen()
    base.edit(U(6, (105, "a"), (105, float("nan").hex()), (104, "b")))
    nan = flow_of(
        ObjectStore(store.uri("nan")),
        produce=lambda key, rows: ((float("nan"), None if row % 20 else float("nan")) for row in rows),
        rows=Rows(columns(t="float64"), columns(y="float64")),
        check=True,
    )
    load(nan, 1, 2, 3)


OTHER_SCHEMAS = {
    "value type": {"rows": Rows(KEY, columns(x="string"))},
    "value name": {"rows": Rows(KEY, columns(y="int64"))},
    "more values": {"rows": Rows(KEY, columns(x="int64", y="int64"))},
    "key type": {"rows": Rows(columns(k="string"), VALUE)},
    "order": {"rows": Rows(KEY, VALUE, descending=("k",))},
    "revision": {"revision": "2"},
    "ports": {"ports": (("root",), ("root",))},
}


@pytest.mark.parametrize("change", OTHER_SCHEMAS.values(), ids=OTHER_SCHEMAS.keys())
def test_a_changed_stage_is_refused_until_it_is_rebuilt(store: ObjectStore, change: dict[str, Any]) -> None:
    def produce(key: int, *ports: Iterator[int]) -> Iterator[Any]:
        names = declaration["rows"]
        for row in ports[0]:
            number = row + (1 if declaration["revision"] == "2" else 0)
            value: Any = str(number) if names.value[0].type == pa.string() else number
            target: Any = str(key) if names.key[0].type == pa.string() else key
            yield target, value if len(names.value) == 1 else (value, 0)

    def flow() -> Dataflow:
        return Dataflow(store, [ROOT, Stage("stage", produce=produce, **declaration)])

    declaration: dict[str, Any] = {"ports": (("root",),), "rows": Rows(KEY, VALUE), "revision": "1"}
    load(flow(), 1, 2, 3)
    before = flow().version().content("stage")
    declaration |= change
    with pytest.raises(StageChangedError, match="'stage'"):
        load(flow(), 2)
    assert flow().rebuild("stage") == 2
    fresh = Dataflow(ObjectStore(store.uri("fresh")), [ROOT, Stage("stage", produce=produce, **declaration)])
    load(fresh, 1, 2, 3)
    assert flow().version().content("stage").equals(fresh.version().content("stage"))
    assert flow().version().mappings("stage").equals(fresh.version().mappings("stage"))
    assert load(flow(), 2, 4) == 3
    load(fresh, 2, 4)
    assert flow().version().content("stage").equals(fresh.version().content("stage"))
    assert flow().version().update("stage").equals(fresh.version().update("stage"))
    assert before.num_rows == 3


def test_an_unchanged_stage_is_not_refused(store: ObjectStore) -> None:
    base = Base(store)
    base.reopen()
    base.edit(U(1, (1, "x")))
    base.expect(content=[(1, 1, "x"), *BASE_CONTENT])


_TOO_FINE_OR_FAR = {
    "time": pa.array([1_001], pa.time64("ns")),
    "timestamp": pa.array([10**18 + 1], pa.timestamp("ns", "UTC")),
    "duration": pa.array([1], pa.duration("ns")),
    "year 10,184": pa.array([3_000_000], pa.date32()),
    "list": pa.array([[1]], pa.list_(pa.time64("ns"))),
}


@pytest.mark.parametrize("value", _TOO_FINE_OR_FAR.values(), ids=_TOO_FINE_OR_FAR)
def test_values_out_of_range_of_python_are_never_truncated(store: ObjectStore, value: pa.Array) -> None:
    """A value that Python cannot represent is an error for `produce`, and is read by `produce_batch`.

    The error of `produce` suggests `produce_batch`, which can return the value unchanged.
    """
    rows = Rows(KEY, pa.schema([("x", value.type)]))
    root = Root("root", rows)
    change = pa.table({"_change": ["add"], "k": [1], "x": value})

    def produce(key: Any, values: Iterator[Any]) -> Iterator[Any]:
        yield key, next(values)

    def produce_batch(batch: Batch) -> pa.Table:
        (port,) = batch.ports
        keys = batch.keys["k"].take(port["_source"].combine_chunks())
        return pa.table([port["_source"], keys, port["x"]], names=["_source", "k", "x"])

    def flow(name: str, **form: Any) -> Dataflow:
        return Dataflow(store.child(name), [root, Stage("stage", ports=(("root",),), rows=rows, **form)])

    with pytest.raises(ProduceError, match=r"'x'.*`produce_batch`"):
        flow("keys", produce=produce).advance({"root": change})
    batch_flow = flow("batches", produce_batch=produce_batch)
    batch_flow.advance({"root": change})
    assert batch_flow.version().content("stage")["x"].combine_chunks().equals(value)


_SECONDS = pa.timestamp("s")
_BETWEEN = datetime(2026, 1, 1, microsecond=5)
_CUT_TIME = rf"{re.escape(repr(_BETWEEN))} .*{re.escape(repr(_BETWEEN.replace(microsecond=0)))} .*\btimestamp\[s\]"
_WOULD_CHANGE = {
    "integer in a list": (pa.list_(pa.int64()), [None, [1, None, 1.5]], r"\b1\.5 .*\b1 .*\bint64\b"),
    "time in a struct": (
        pa.struct([("a", pa.int64()), ("b", _SECONDS)]),
        [{"b": None}, {"a": 1, "b": _BETWEEN}],
        _CUT_TIME,
    ),
    "time in a tuple": (pa.struct([("a", pa.int64()), ("b", _SECONDS)]), [(1, _BETWEEN)], _CUT_TIME),
    "time in a map": (pa.map_(pa.string(), _SECONDS), [{"a": None}, {"a": _BETWEEN}], _CUT_TIME),
    "key of a map": (pa.map_(_SECONDS, pa.string()), [[(_BETWEEN, "a")]], _CUT_TIME),
    "number in lists of lists": (
        pa.large_list(pa.list_(pa.float32(), 1)),
        [[None, [1e300]]],
        r"\b1e\+300 .*\blarge\b.*\bfloat\b",
    ),
}


@pytest.mark.parametrize(("type_", "values", "message"), _WOULD_CHANGE.values(), ids=_WOULD_CHANGE)
def test_nested_values_that_would_change_are_refused(
    store: ObjectStore, type_: pa.DataType, values: list[Any], message: str
) -> None:
    """A nested value that Arrow would change without an error is refused.

    For example, Arrow converts 1.5 in a list to 1, and cuts times to seconds. The error names the key, the value and
    the type.
    """

    def produce(key: int, rows: Iterator[int]) -> Iterator[Any]:
        yield from ((key, value) for value in (values if key == 4 else [None]))

    flow = flow_of(store, produce=produce, rows=Rows(KEY, pa.schema([("x", type_)])))
    with pytest.raises(ProduceError, match=rf"ValueError.*\bkey 4\b.*{message}") as error_info:
        load(flow, 3, 4, 5)
    assert error_info.value.key == 4


@pytest.mark.parametrize("form", ["dict", "tuple", "pairs", "scalar"])
def test_nested_values_that_stay_the_same_are_stored(store: ObjectStore, form: str) -> None:
    """A struct is stored from a dictionary, a tuple, a list of pairs, or an Arrow scalar."""
    type_ = pa.struct([("a", pa.list_(pa.int64())), ("b", _SECONDS), ("c", pa.map_(pa.string(), pa.float32()))])
    whole = {"a": [1, None], "b": datetime(2026, 1, 1), "c": [("x", 0.5)]}
    forms = {
        "dict": [whole, dict.fromkeys(whole), {}],
        "tuple": [tuple(whole.values()), (None, None, None)],
        "pairs": [list(whole.items())],
        "scalar": [pa.scalar(whole, type_), pa.scalar(None, type_)],
    }
    values = [*forms[form], None]

    def produce(key: int, rows: Iterator[int]) -> Iterator[Any]:
        yield key, values[key]

    flow = flow_of(store, produce=produce, rows=Rows(KEY, pa.schema([("x", type_)])))
    load(flow, *range(len(values)))
    assert flow.version().content("stage")["x"].combine_chunks().equals(pa.array(values, type_))


def test_rows_that_only_together_are_invalid_name_no_key(store: ObjectStore) -> None:
    """The function returns a tuple for one key, and a mapping for the other.

    Arrow converts either to a struct, but not both in one column. The error has the range of both keys.
    """

    def produce(key: int, rows: Iterator[int]) -> Iterator[Any]:
        yield key, (1,) if key % 2 else {"a": 1}

    flow = flow_of(store, produce=produce, rows=Rows(KEY, pa.schema([("x", pa.struct([("a", pa.int64())]))])))
    with pytest.raises(ProduceError, match=r"\b3 to 4\b"):
        load(flow, 3, 4)
