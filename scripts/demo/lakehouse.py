"""Two TPC-H tables as a lakehouse: `lineitem` in Delta, `orders` as Parquet files in Hive folders."""

from __future__ import annotations

import subprocess
import sysconfig
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake import write_deltalake

LATE_MONTH = "1998-11"
"""The month of `lineitem` that a later commit adds."""
LATE_YEAR = 1998
"""The year of `orders` whose urgent orders a later commit adds."""
URGENT = "1-URGENT"
APPENDED_MONTH = "1995-03"
"""The month of `lineitem` to which a later commit adds the items of each tenth order."""


class Lakehouse:
    """A folder with the source files of TPC-H, and two tables with their rows."""

    def __init__(self, folder: Path) -> None:
        self.lineitem = folder / "lake" / "lineitem"
        self.orders = folder / "lake" / "orders"
        self._source = folder / "tpch"

    def generate(self, scale: float) -> None:
        """Write the source files; scale 1 is 6 million rows of `lineitem`."""
        program = Path(sysconfig.get_path("scripts")) / "tpchgen-cli"
        arguments = ["parquet", "--quiet", "-s", str(scale), "-T", "lineitem,orders", "-o", str(self._source)]
        subprocess.run([program, *arguments], check=True, stdin=subprocess.DEVNULL)

    def build(self) -> None:
        """Write both tables, without the rows that later commits add."""
        items = self.items()
        late = pc.or_(pc.equal(items["l_shipmonth"], LATE_MONTH), _is_tenth_order_of_appended_month(items))
        write_deltalake(
            self.lineitem,
            items.filter(pc.invert(late)),
            partition_by=["l_shipmonth"],
            configuration={"delta.enableDeletionVectors": "true"},
        )
        orders = self.order_rows()
        late = pc.and_(pc.equal(orders["o_orderyear"], LATE_YEAR), pc.equal(orders["o_orderpriority"], URGENT))
        self.write_orders(orders.filter(pc.invert(late)), "part")

    def items(self) -> pa.Table:
        """Return all source rows of `lineitem`, with the month of shipment as `l_shipmonth` (`1995-03`)."""
        rows = _without_views(pq.read_table(self._source / "lineitem.parquet"))
        return rows.append_column("l_shipmonth", pc.strftime(rows["l_shipdate"], format="%Y-%m"))

    def late_month(self) -> pa.Table:
        """Return the rows of LATE_MONTH."""
        items = self.items()
        return items.filter(pc.equal(items["l_shipmonth"], LATE_MONTH))

    def late_items(self) -> pa.Table:
        """Return the rows of APPENDED_MONTH that `build` omits."""
        items = self.items()
        return items.filter(_is_tenth_order_of_appended_month(items))

    def order_rows(self) -> pa.Table:
        """Return all source rows of `orders`, with the year of order as `o_orderyear` (an integer)."""
        rows = _without_views(pq.read_table(self._source / "orders.parquet"))
        return rows.append_column("o_orderyear", pc.year(rows["o_orderdate"]).cast(pa.int32()))

    def write_orders(self, rows: pa.Table, name: str) -> None:
        """Write or replace the file `<name>-0.parquet` in the folder of each partition of `rows`."""
        partitioning = ds.partitioning(
            pa.schema([rows.schema.field(column) for column in ("o_orderyear", "o_orderpriority")]), flavor="hive"
        )
        ds.write_dataset(
            rows,
            self.orders,
            format="parquet",
            partitioning=partitioning,
            basename_template=f"{name}-{{i}}.parquet",
            existing_data_behavior="overwrite_or_ignore",
        )

    def orders_folder(self, year: int, priority: str) -> Path:
        """Return the folder of one partition of `orders`."""
        return self.orders / f"o_orderyear={year}" / f"o_orderpriority={quote(priority)}"


def _is_tenth_order_of_appended_month(items: pa.Table) -> pa.ChunkedArray:
    last_digit = pc.subtract(items["l_orderkey"], pc.multiply(pc.divide(items["l_orderkey"], 10), 10))
    return pc.and_(pc.equal(items["l_shipmonth"], APPENDED_MONTH), pc.equal(last_digit, 7))


def _without_views(rows: pa.Table) -> pa.Table:
    """Return the rows with `string` instead of `string_view`, which Arrow cannot filter."""
    plain = [f.with_type(pa.string()) if f.type == pa.string_view() else f for f in rows.schema]
    return rows.cast(pa.schema(plain))
