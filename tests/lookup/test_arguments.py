"""Errors for arguments of wrong types name the argument and say what it may be."""

from __future__ import annotations

import decimal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from metastore_assets.errors import ColumnNotFoundError, MetastoreError
from metastore_assets.lookup import Table
from metastore_assets.metastore import Metastore, open_table
from metastore_assets.store.objects import ObjectStore
from tests.lookup.publishing import publish


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("root")
    rows = pa.table({"i": [1, 2, None, 3]})
    publish(ObjectStore(str(folder)), rows, name="t", partitions={"p=1": rows.slice(0, 3), "p=2": rows.slice(3)})
    return folder


@pytest.fixture(scope="module")
def table(root: Path) -> Table:
    return Metastore(str(root)).table("t")


NO_TEXTS = [None, 5, 1.5, b"x", [], {}, int, np.int64(1)]
WITH_PARTITION: list[Callable[[Table, Any], Any]] = [
    lambda table, value: table.resolve_partition(value),
    lambda table, value: table.find_partition(value),
    lambda table, value: table.filter("i > 100").resolve_partition(value),
    *(
        lambda table, value, name=name: value is None or getattr(table, name)("i", partition=value)
        for name in ("top", "mode", "values", "value_batches", "spread", "histogram", "dyadic_histogram")
    ),
]


@pytest.mark.parametrize("value", NO_TEXTS, ids=repr)
@pytest.mark.parametrize("call", WITH_PARTITION)
def test_a_partition_is_a_text(table: Table, call: Callable[[Table, Any], Any], value: Any) -> None:
    if value is None and call not in WITH_PARTITION[:3]:
        return
    with pytest.raises(TypeError, match=r"^partition"):
        call(table, value)


@pytest.mark.parametrize("value", [5, 1.5, b"x", {5: "x"}, [5], [None]], ids=repr)
def test_columns_and_partitions_are_texts(table: Table, value: Any) -> None:
    for relation in (table, table.filter("i > 100")):
        with pytest.raises(TypeError, match=r"^partition"):
            relation.statistics(partition=value)
    for call in (table.statistics, table.clustering):
        with pytest.raises(TypeError, match=r"^columns"):
            call(value)


@pytest.mark.parametrize("value", ["", "a", 1.5, -1, [], {}, int, decimal.Decimal("NaN"), np.array([1, 2])], ids=repr)
def test_limits_are_integers(table: Table, value: Any) -> None:
    for call, least in (
        (lambda: table.histogram("i", bins=value), 1),
        (lambda: table.prune("i > 0", limit=value), 0),
        (lambda: table.top("i", value), 0),
    ):
        with pytest.raises(ValueError, match=f"at least {least}, not "):
            call()


@pytest.mark.parametrize("value", [None, 5, b"x", [], {}, Path("x")], ids=repr)
def test_names_are_texts(root: Path, table: Table, value: Any) -> None:
    metastore = Metastore(str(root))
    for call in (
        metastore.table,
        metastore.versions,
        metastore.version_numbers,
        lambda name: open_table(str(root), name),
    ):
        with pytest.raises(TypeError, match=r"^name"):
            call(value)
    with pytest.raises(TypeError, match=r"^statistic"):
        table.history("i", value) if value is not None else table.past.points("i", value)
    if value is not None:
        with pytest.raises(TypeError, match=r"^table"):
            table.table_config(value)


def test_the_root_is_a_text_or_a_path_object(root: Path) -> None:
    assert open_table(root, "t").as_of == open_table(str(root), "t").as_of
    for value in (None, 5, b"x", [], {}):
        with pytest.raises(TypeError, match=r"^root"):
            open_table(value, "t")  # type: ignore[arg-type]


def test_options_are_mappings(root: Path) -> None:
    for value in (5, "x", {1: "x"}, {"x": None}, [("a", "b")]):
        with pytest.raises(TypeError, match=r"^storage_options"):
            open_table(str(root), "t", storage_options=value)  # type: ignore[arg-type]
    for name in ("statistic_classes", "table_locations"):
        for value in (None, 5, [5]):
            with pytest.raises(TypeError, match=f"^{name}"):
                open_table(str(root), "t", **{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["a\0b", "\ud800"], ids=repr)
def test_texts_that_are_no_paths(root: Path, table: Table, text: str) -> None:
    with pytest.raises(MetastoreError, match="path"):
        Metastore(text)
    metastore = Metastore(str(root))
    with pytest.raises(MetastoreError, match="published"):
        metastore.table(text)
    assert not metastore.version_numbers(text)
    with pytest.raises(MetastoreError, match="path"):
        table.table_config(text)
    with pytest.raises(ColumnNotFoundError):
        table.top(text)
