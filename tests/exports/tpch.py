"""Three TPC-H tables as Parquet files in folders, and 50 filters of one of them."""

from __future__ import annotations

import subprocess
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

TABLES = {"customer": None, "orders": "o_orderdate", "lineitem": "l_shipdate"}
"""The tables, and the column by which their rows are split into two commits."""
_SPLIT = pa.scalar(9131, pa.int32()).cast(pa.date32())
"""1995-01-01."""


def generate_tables(folder: Path, scale: float) -> dict[str, pa.Table]:
    """Write TPC-H's tables as files into a folder, and return their rows.

    Scale 1 has 6 million rows of `lineitem`.
    """
    program = Path(sysconfig.get_path("scripts")) / "tpchgen-cli"
    names = ",".join(TABLES)
    arguments = ["parquet", "--quiet", "-s", str(scale), "-T", names, "-o", str(folder)]
    subprocess.run([program, *arguments], check=True, stdin=subprocess.DEVNULL)
    return {name: _plain(pq.read_table(folder / f"{name}.parquet")) for name in TABLES}


def write_commit(table: pa.Table, name: str, folder: Path, commit: int) -> None:
    """Write the rows of the first (0) or the second (1) commit of a table as a file.

    The column that `TABLES` has for the table, a date, divides the rows into the two commits. A table without such a
    column has all rows in the first commit, and no file is written for the second.
    """
    column = TABLES[name]
    if column is not None:
        is_early = pc.less(table[column], _SPLIT)
        table = table.filter(is_early if commit == 0 else pc.invert(is_early))
    elif commit:
        return
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, folder / f"part-{commit}.parquet")


def lineitem_filters(rows: pa.Table, number: int) -> Iterator[str]:
    """Yield `number` predicates on one or two columns of `lineitem`, with values that occur."""
    random = np.random.default_rng(5)
    for index in range(number):
        keys, quantities, prices, dates, parts = (
            rows[name].take(random.integers(0, len(rows), 2)).to_pylist()
            for name in ("l_orderkey", "l_quantity", "l_extendedprice", "l_shipdate", "l_partkey")
        )
        yield (
            f"l_orderkey between {min(keys)} and {max(keys)}",
            f"l_quantity = {quantities[0]}",
            f"l_extendedprice < {prices[0]}",
            f"l_shipdate between date'{min(dates)}' and date'{max(dates)}'",
            f"l_partkey = {parts[0]}",
            f"l_shipdate >= date'{dates[0]}' and l_quantity < {quantities[0]}",
            f"l_extendedprice between {min(prices)} and {max(prices)}",
            f"l_linenumber = {index % 7 + 1}",
        )[index % 8]


def _plain(table: pa.Table) -> pa.Table:
    """Return the table with strings in place of string views, and without metadata."""
    fields = [
        pa.field(field.name, pa.string() if field.type == pa.string_view() else field.type) for field in table.schema
    ]
    return table.cast(pa.schema(fields))
