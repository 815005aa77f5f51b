"""Commit a file of 200 orders to the table `orders`: `python commit.py SHOP FIRST_DAY`."""

import sys
from datetime import date, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

shop, first = sys.argv[1], date.fromisoformat(sys.argv[2])
rows = range(200)
orders = pa.table(
    {
        "ordered": [first + timedelta(days=row % 10) for row in rows],
        "amount": [round(1.07**row, 2) for row in rows],
        "number": [f"ORD-{shop}-{row:05d}" for row in rows],
    }
)
folder = Path("lake/orders") / f"shop={shop}"
folder.mkdir(parents=True, exist_ok=True)
pq.write_table(orders, folder / f"{first}.parquet")
