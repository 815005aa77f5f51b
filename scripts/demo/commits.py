"""The commits of the demo in their order, each with the partitions that it changes."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake

from scripts.demo.deletion_vector import delete_rows
from scripts.demo.lakehouse import APPENDED_MONTH, LATE_MONTH, LATE_YEAR, URGENT, Lakehouse

_DELETED_FROM = ("1992-07", "1997-11")
_CORRECTED_MONTH = "1996-02"
_DROPPED_MONTH = "1992-01"


@dataclass(frozen=True)
class Commit:
    """One commit to one table."""

    table: str
    title: str
    changed: tuple[str, ...]
    """Keys of the partitions whose rows the commit changes."""
    apply: Callable[[Lakehouse], object]
    removed: tuple[str, ...] = ()
    """Keys of the partitions that the commit removes."""


def _month(month: str) -> str:
    return f"l_shipmonth={month}"


def _append(lakehouse: Lakehouse) -> None:
    write_deltalake(lakehouse.lineitem, lakehouse.late_items(), mode="append")


def _delete(lakehouse: Lakehouse) -> None:
    delete_rows(lakehouse.lineitem, [{"l_shipmonth": month} for month in _DELETED_FROM], pc.field("l_linenumber") == 1)


def _overwrite(lakehouse: Lakehouse) -> None:
    items = lakehouse.items()
    rows = items.filter(pc.equal(items["l_shipmonth"], _CORRECTED_MONTH))
    corrected_rows = rows.set_column(
        rows.schema.get_field_index("l_tax"),
        rows.schema.field("l_tax"),
        pc.multiply(rows["l_tax"], 0).cast(rows.schema.field("l_tax").type),
    )
    write_deltalake(
        lakehouse.lineitem, corrected_rows, mode="overwrite", predicate=f"l_shipmonth = '{_CORRECTED_MONTH}'"
    )


def _add_month(lakehouse: Lakehouse) -> None:
    write_deltalake(lakehouse.lineitem, lakehouse.late_month(), mode="append")


def _drop_month(lakehouse: Lakehouse) -> None:
    DeltaTable(lakehouse.lineitem).delete(f"l_shipmonth = '{_DROPPED_MONTH}'")


def _compact(lakehouse: Lakehouse) -> None:
    DeltaTable(lakehouse.lineitem).optimize.compact()


def _restore(lakehouse: Lakehouse) -> None:
    DeltaTable(lakehouse.lineitem).restore(0)


def _urgent_orders(lakehouse: Lakehouse) -> None:
    orders = lakehouse.order_rows()
    late = pc.and_(pc.equal(orders["o_orderyear"], LATE_YEAR), pc.equal(orders["o_orderpriority"], URGENT))
    lakehouse.write_orders(orders.filter(late), "part")


def _double_prices(lakehouse: Lakehouse) -> None:
    orders = lakehouse.order_rows()
    is_chosen = pc.and_(pc.equal(orders["o_orderyear"], 1995), pc.equal(orders["o_orderpriority"], "5-LOW"))
    rows = orders.filter(is_chosen)
    price = rows.schema.field("o_totalprice")
    doubled_prices = pc.add(rows["o_totalprice"], rows["o_totalprice"]).cast(price.type)
    lakehouse.write_orders(rows.set_column(rows.schema.get_field_index("o_totalprice"), price, doubled_prices), "part")


def _drop_folder(lakehouse: Lakehouse) -> None:
    shutil.rmtree(lakehouse.orders_folder(1992, "4-NOT SPECIFIED"))


COMMITS = (
    Commit("lineitem", "append rows to one month", (_month(APPENDED_MONTH),), _append),
    Commit("lineitem", "delete from two months", tuple(map(_month, _DELETED_FROM)), _delete),
    Commit("lineitem", "overwrite a month", (_month(_CORRECTED_MONTH),), _overwrite),
    Commit("lineitem", "add a month", (_month(LATE_MONTH),), _add_month),
    Commit("lineitem", "drop a month", (), _drop_month, (_month(_DROPPED_MONTH),)),
    Commit("lineitem", "compact", (), _compact),
    Commit(
        "lineitem",
        "restore the first state",
        tuple(sorted(map(_month, (APPENDED_MONTH, *_DELETED_FROM, _CORRECTED_MONTH, _DROPPED_MONTH)))),
        _restore,
        (_month(LATE_MONTH),),
    ),
    Commit("orders", "add a folder", (f"o_orderyear={LATE_YEAR}/o_orderpriority={URGENT}",), _urgent_orders),
    Commit("orders", "replace a file", ("o_orderyear=1995/o_orderpriority=5-LOW",), _double_prices),
    Commit("orders", "delete a folder", (), _drop_folder, ("o_orderyear=1992/o_orderpriority=4-NOT SPECIFIED",)),
)
