"""Invalid declarations, updates and outputs raise errors that name the stage, root or column.

Nothing is truncated silently. Further tests in this file are about replayed source versions, resets and rebuilds. A
root is an input of a dataflow. A stage computes its rows by a Produce function.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from metastore_assets.errors import GraphError, ProduceError, StageChangedError, UpdateError
from metastore_assets.produce import Dataflow, Root, Rows, Settings, Stage, SumStage, SurrogateKey
from metastore_assets.store.objects import ObjectStore
from tests.produce.graph_model import columns

_ROOT = Root("r", Rows(columns(k="int64"), columns(x="string")))
_EXACT = pa.decimal128(38, 0)


def _same(key: Any, values: Iterable[Any]) -> Iterable[tuple[Any, Any]]:
    return ((key, value) for value in values)


def _by_value(key: Any, values: Iterable[Any]) -> Iterable[tuple[Any, Any]]:
    return ((value, None) for value in values)


def _update(*rows: tuple[Any, ...], names: tuple[str, ...] = ("k", "x")) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(("_change", *names), row, strict=True)) for row in rows])


def _numbers(count: int) -> pa.Table:
    return _update(*[("add", number, "a") for number in range(1, count + 1)])


def _rows(type_: pa.DataType) -> Rows:
    return Rows(columns(k="int64"), pa.schema([("x", type_)]))


@pytest.mark.parametrize("full", [False, True])
def test_a_changed_declaration_is_not_compacted_with(store: ObjectStore, full: bool) -> None:
    """`compact` refuses a stage whose sort order changed.

    Otherwise, it would merge sorted files by an order that they do not have.
    """

    def declared(descending: tuple[str, ...]) -> Dataflow:
        rows = Rows(columns(t="int64"), columns(x="string"), descending)
        return Dataflow(store, [_ROOT, Stage("s", (("r",),), rows, produce=_same)])

    flow = declared(())
    for count in (12, 2):
        flow.advance({"r": _numbers(count)})
    before = flow.version().content("s")
    with pytest.raises(StageChangedError, match="'s'"):
        declared(("t",)).compact(full=full)
    assert flow.version().content("s").equals(before)


def test_older_versions_are_read_only_as_they_were_declared(store: ObjectStore) -> None:
    def declared(name: str, revision: str = "1") -> Dataflow:
        rows = Rows(columns(x="string"), columns(**{name: "int64"}))
        return Dataflow(store, [_ROOT, Stage("s", (("r",),), rows, produce=_by_value, revision=revision)])

    first = declared("n")
    first.advance({"r": _numbers(1)})
    other = declared("m")
    other.rebuild("s")
    for read in (other.version(1).content, other.version(1).update, other.version(1).mappings, other.version(1).groups):
        with pytest.raises(StageChangedError, match=r"'s'.*version 1\b"):
            read("s")
    # Another function alone leaves them readable.
    again = declared("m", revision="2")
    again.rebuild("s")
    assert again.version(2).content("s").num_rows == 1


def test_decimal_totals_of_more_than_38_digits_are_refused(store: ObjectStore) -> None:
    flow = Dataflow(store, [Root("r", _rows(_EXACT)), SumStage("s", ("r",), ("k",), ("x",))])

    def amounts_table(*amounts: int) -> pa.Table:
        numbers = pa.array([Decimal(amount) for amount in amounts], _EXACT)
        return pa.table({"_change": ["add"] * len(amounts), "k": [1] * len(amounts), "x": numbers})

    for count in (2, 4, 7):  # 128-bit sums overflow to other numbers, of either sign
        with pytest.raises(UpdateError, match=r"'s'.*x: decimal"):
            flow.advance({"r": amounts_table(*[9 * 10**37] * count)})
    largest = 10**38 - 1
    flow.advance({"r": amounts_table(largest - 1, 1)})
    assert flow.version().content("s")["x"].to_pylist() == [Decimal(largest)]


def test_amounts_that_do_not_fit_are_refused(store: ObjectStore) -> None:
    flow = Dataflow(store, [Root("r", _rows(pa.uint64())), SumStage("s", ("r",), ("k",), ("x",))])
    amount = pa.array([2**63], pa.uint64())
    with pytest.raises(UpdateError, match=r"'s'.*x: int64"):
        flow.advance({"r": pa.table({"_change": ["add"], "k": [1], "x": amount})})


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (pa.int64(), 1.9),
        (pa.int64(), Decimal("1.5")),
        (pa.date32(), datetime(2020, 1, 1, 12)),
        (pa.timestamp("s"), datetime(2020, 1, 1, 0, 0, 0, 5)),
        (pa.float32(), 1e300),
    ],
    ids=str,
)
def test_output_of_produce_is_not_truncated(type_: pa.DataType, value: Any, store: ObjectStore) -> None:
    """A value that a Produce function emits is refused if its column's type would truncate it.

    The error names the key, the value and the type. No version is published.
    """
    stage = Stage("s", (("r",),), _rows(type_), produce=lambda key, values: [(key, None), (key, value)])
    flow = Dataflow(store, [_ROOT, stage])
    message = rf"'s'.*\bValueError\b.*\bkey 1\b.*{re.escape(repr(value))} .* {re.escape(str(type_))}$"
    with pytest.raises(ProduceError, match=message):
        flow.advance({"r": _numbers(1)})
    assert flow.version().number == 0


def test_a_text_is_not_a_tuple(store: ObjectStore) -> None:
    rows = Rows(columns(k="int64"), columns(x="string", y="string"))
    flow = Dataflow(store, [_ROOT, Stage("s", (("r",),), rows, produce=lambda key, values: [(key, "ab")])])
    with pytest.raises(ProduceError, match=r"'s'.*\btuple\b.*\bx, y$"):
        flow.advance({"r": _numbers(1)})


def test_a_time_that_python_does_not_have_is_named_as_text(store: ObjectStore) -> None:
    type_ = pa.timestamp("s")
    root = Root("r", Rows(pa.schema([("k", type_)]), columns(x="int64")))
    flow = Dataflow(store, [root, Stage("s", (("r",),), root.rows, produce=_same)])
    with pytest.raises(ProduceError, match=r"'s'.*33658"):
        flow.advance({"r": pa.table({"_change": ["add"], "k": pa.array([10**12], type_), "x": [1]})})


@pytest.mark.parametrize(
    "type_",
    [pa.date64(), pa.list_(pa.date64()), pa.decimal128(10, -2), pa.list_view(pa.int64()), pa.struct([]), pa.json_()],
    ids=str,
)
def test_types_that_do_not_survive_a_round_trip_are_refused(type_: pa.DataType, store: ObjectStore) -> None:
    with pytest.raises(GraphError, match=rf"'r'.*'x'.* {re.escape(str(type_))}, "):
        Dataflow(store, [Root("r", _rows(type_))])


@pytest.mark.parametrize("name", ["*", "", "^x.*$"])
def test_names_that_stand_for_others_are_refused(name: str, store: ObjectStore) -> None:
    with pytest.raises(GraphError, match=f"'r'.*'{re.escape(name)}'"):
        Dataflow(store, [Root("r", Rows(columns(k="int64"), columns(**{name: "int64"})))])


def test_required_columns_are_refused(store: ObjectStore) -> None:
    required_columns = pa.schema([pa.field("x", pa.string(), nullable=False)])
    with pytest.raises(GraphError, match=r"'x'.*nullable"):
        Dataflow(store, [Root("r", Rows(columns(k="int64"), required_columns))])


@pytest.mark.parametrize("wrong", [{"max_runs": 1}, {"fan_in": 1}, {"task_rows": 0}, {"row_group_rows": 0}], ids=str)
def test_settings_that_cannot_work_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Settings(**wrong)  # type: ignore[arg-type]


def test_an_update_has_several_forms(store: ObjectStore) -> None:
    flow = Dataflow(store, [_ROOT])
    flow.advance({"r": _numbers(2).to_batches()[0]})
    assert flow.version().content("r").num_rows == 2
    with pytest.raises(UpdateError, match="'x'"):
        flow.advance({"r": _numbers(2).drop_columns(["x"])[:0]})
    twice = _numbers(2)
    with pytest.raises(UpdateError, match="'x' twice"):
        flow.advance({"r": twice.append_column("x", twice["x"])})


def test_an_omitted_root_is_updated_later(store: ObjectStore) -> None:
    other = Root("o", _ROOT.rows)
    both = Dataflow(store, [_ROOT, other])
    both.advance({"r": _numbers(3)}, {"r": 5})
    Dataflow(store, [other]).advance({"o": _numbers(1)})
    assert both.version().sources == {}
    both.advance({"r": _numbers(2)}, {"r": 5})
    assert both.version().content("r").num_rows == 2
    assert both.version().is_reset("r"), "downstream stages would miss the deleted third row"
    assert not both.version().is_reset("o")


def test_a_rebuilt_root_is_reset_once(store: ObjectStore) -> None:
    flow = Dataflow(store, [_ROOT])
    flow.advance({"r": _numbers(1)})
    flow.rebuild("r")
    assert flow.version().is_reset("r")
    flow.advance({"r": _numbers(1)})
    assert not flow.version().is_reset("r")


def test_ids_are_not_reused_after_a_rebuild(store: ObjectStore) -> None:
    rows = Rows(columns(x="string"), columns(id="int64"))
    flow = Dataflow(store, [_ROOT, Stage("s", (("r",),), rows, produce=_by_value, preserve=SurrogateKey("id"))])
    flow.advance({"r": _update(("add", 1, "a"), ("add", 2, "b"))})
    flow.rebuild("s")
    assert flow.version().groups("s").to_pylist() == [{"x": "a", "id": 3}, {"x": "b", "id": 4}]


def test_pieces_of_content_do_not_split_a_key(store: ObjectStore) -> None:
    flow = Dataflow(store, [_ROOT], settings=Settings(single_run_rows=0, row_group_rows=10))
    flow.advance({"r": _update(*[("add", key, str(row)) for key in (1, 2) for row in range(35)])})
    pieces = [batch["k"].to_pylist() for batch in flow.version().content_batches("r")]
    assert sorted(key for piece in pieces for key in set(piece)) == [1, 2]


def test_source_versions_of_replays(store: ObjectStore) -> None:
    flow = Dataflow(store, [_ROOT, Root("o", _ROOT.rows)])
    flow.advance({"r": _numbers(1)}, {"r": 1})
    assert flow.advance({"r": _numbers(1)}, {"r": 1, "o": 7}) == 2
    assert flow.version().sources == {"r": 1, "o": 7}
    assert flow.advance({}, {"r": 1}) == 2


def test_a_failed_version_leaves_no_files(store: ObjectStore) -> None:
    def fails(key: int, values: Any) -> list[Any]:
        raise RuntimeError("no")

    stages = [Stage("s", (("r",),), _ROOT.rows, produce=_same), Stage("t", (("s",),), _ROOT.rows, produce=fails)]
    flow = Dataflow(store, [_ROOT, *stages], settings=Settings(single_run_rows=0, small_rows=0))
    with pytest.raises(ProduceError, match=r"'t'.*\bRuntimeError\b.*: no$"):
        flow.advance({"r": _numbers(3)})
    assert not store.list()
