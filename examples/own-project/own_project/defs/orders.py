"""The asset that writes the table, one day per partition, and a check of the table."""

import os
import random
from datetime import date
from pathlib import Path

import pyarrow as pa
from dagster import (
    AssetCheckResult,
    AssetExecutionContext,
    AssetKey,
    DailyPartitionsDefinition,
    MaterializeResult,
    asset,
    asset_check,
)
from deltalake import write_deltalake

from metastore_assets import fetch_column_statistics, load_config, open_table

CONFIG = Path(__file__).parent / "statistics" / "metastore.yaml"
LAKE = Path(os.environ.get("LAKE") or Path(__file__).parents[2] / "lake")
DAYS = DailyPartitionsDefinition("2024-01-01", end_date="2024-02-01")


@asset(key_prefix="shop", partitions_def=DAYS, group_name="shop", kinds={"delta"})
def orders(context: AssetExecutionContext) -> MaterializeResult:
    """Write the orders of one day.

    They replace the orders of that day in the table.
    """
    day = date.fromisoformat(context.partition_key)
    draw = random.Random(context.partition_key)
    count = 200 + draw.randrange(100)
    rows = pa.table(
        {
            "day": pa.array([day] * count, pa.date32()),
            "number": [f"{day:%y%m%d}-{number:04}" for number in range(count)],
            "shop": [draw.choice(["Bari", "Lyon", "Oslo"]) for _ in range(count)],
            "amount": [round(draw.lognormvariate(3, 1), 2) for _ in range(count)],
        }
    )
    LAKE.mkdir(parents=True, exist_ok=True)
    write_deltalake(LAKE / "orders", rows, mode="overwrite", partition_by=["day"], predicate=f"day = '{day}'")
    return fetch_column_statistics(MaterializeResult(), "orders", CONFIG, partition=f"day={day}", refresh=True)


@asset_check(asset=AssetKey(["metastore", "orders", "orders_statistics"]))
def no_shop_has_most() -> AssetCheckResult:
    """Check that no shop has more than half of the orders.

    Reads only statistics, not the table.
    """
    orders = open_table(load_config(CONFIG).root, "orders")
    ((shop, frequency),) = orders.top("shop", n=1)
    share = frequency / orders.version.row_count
    return AssetCheckResult(passed=share <= 0.5, metadata={"shop": shop.as_py(), "share": share})
