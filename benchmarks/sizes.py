"""Bytes stored in the root for a table, against the bytes of the table."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.data import FOLDER, lineitem
from benchmarks.measure import metastore, stop
from benchmarks.report import Row
from metastore_assets.pipeline.refresh import refresh
from metastore_assets.spark.session import get_spark_session

MB = 1 << 20


def run() -> list[Row]:
    """Refresh each table once, and compare megabytes.

    The ratio is the table's size / the stored size.
    """
    spark = get_spark_session({"spark.master": "local[2]"})
    ranked_columns = {"l_orderkey": {"ranks": "on"}, "l_shipdate": {"ranks": "on"}}
    tables: list[tuple[str, Path, float, Mapping[str, Any]]] = [
        ("lineitem at scale 1, 16 files", lineitem(1, 16), 0.03, {}),
        ("the same with ranks of l_orderkey and l_shipdate", lineitem(1, 16), 0.05, ranked_columns),
        ("8 files of 100,000 near-unique rows", _near_unique(), 0.03, {}),
        ("88 fragments of 1,000 rows", _small_fragments(), 0.9, {}),
        ("100 partitions of 300 rows", _small_partitions(), 2.0, {}),
    ]
    rows = []
    for name, lake, most, columns in tables:
        with metastore(lake, columns=columns) as (config, table):
            refresh(config, table, lambda: spark)
            sizes = _bytes(Path(config.root))
        stored_size, data_size = sum(sizes.values()) / MB, sum(_bytes(lake).values()) / MB
        shares = ", ".join(f"{kind} {size / MB:.2f}" for kind, size in sorted(sizes.items()))
        print(f"{name}: {stored_size / data_size:.1%} of {data_size:.1f} MB, at most {most:.0%}; in MB: {shares}")
        rows.append(Row(f"bytes stored of {name} (MB)", [stored_size], [data_size], data_size / stored_size, 1 / most))
    stop(spark)
    return rows


def _bytes(folder: Path) -> dict[str, int]:
    """Return the total bytes of files by the name of their folder and the kind in their name.

    A key is a text such as `partitions statistics`.
    """
    sizes: dict[str, int] = {}
    for path in folder.rglob("*"):
        if path.is_file():
            kind = f"{path.parent.name} {path.suffixes[-2][1:]}" if len(path.suffixes) > 1 else path.parent.name
            sizes[kind] = sizes.get(kind, 0) + path.stat().st_size
    return sizes


def _near_unique() -> Path:
    draw = np.random.default_rng(0)
    return _written("near-unique", [_wide(draw, 100_000, 10**12) for _ in range(8)])


def _small_fragments() -> Path:
    draw = np.random.default_rng(1)
    return _written("small-fragments", [_wide(draw, 1000, 10**9) for _ in range(88)])


def _small_partitions() -> Path:
    draw = np.random.default_rng(2)
    lots = [pa.table({f"c{at}": _numbers(draw, at, 300) for at in range(20)}) for _ in range(100)]
    return _written("small-partitions", lots, is_partitioned=True)


def _wide(draw: np.random.Generator, count: int, most: int) -> pa.Table:
    """Return `count` rows with five columns of nearly unique values, and `group` with 20 values.

    The values of `id`, and the numbers in the texts of `comment`, are random integers below `most`.
    """
    return pa.table(
        {
            "id": draw.integers(0, most, count),
            "amount": draw.normal(size=count),
            "code": pa.array([f"{value:012x}" for value in draw.integers(0, 2**48, count).tolist()]),
            "comment": pa.array([f"row {a} of {b}" for a, b in draw.integers(0, most, (count, 2)).tolist()]),
            "at": pa.array(draw.integers(0, 10**15, count)).cast(pa.timestamp("us")),
            "group": pa.array([f"group {value}" for value in draw.integers(0, 20, count).tolist()]),
        }
    )


def _numbers(draw: np.random.Generator, at: int, count: int) -> pa.Array:
    if at % 2:
        return pa.array(draw.normal(size=count) * 10**at)
    return pa.array(draw.integers(0, 10 ** (at // 2 + 4), count))


def _written(name: str, lots: list[pa.Table], *, is_partitioned: bool = False) -> Path:
    lake = FOLDER / name
    shutil.rmtree(lake, ignore_errors=True)
    for number, rows in enumerate(lots):
        folder = lake / f"part={number}" if is_partitioned else lake
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows, folder / f"{number}.parquet", compression="zstd")
    return lake
