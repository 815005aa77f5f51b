"""Bounds, histograms and distinct counts, which cannot be subtracted, are correct after deletes."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.pipeline.refresh import refresh
from tests.pipeline.file_lake import assert_same, everything
from tests.pipeline.test_refresh import no_spark

FILES = 18


def put(folder: Path, number: int, draw: random.Random, count: int) -> None:
    """Write a file of `count` rows.

    The greater `number`, the number of the file, the narrower is the range of its values.
    """
    reach = 10 ** max(1, 12 - number // 2)
    numbers = [draw.choice([None, draw.randint(-reach, reach)]) for _ in range(count)]
    floats = [
        None if drawn_number is None else draw.choice([drawn_number / 7, float("nan"), float("inf")])
        for drawn_number in numbers
    ]
    columns = {"n": pa.array(numbers, pa.int64()), "x": pa.array(floats, pa.float64()), "s": list(map(str, numbers))}
    pq.write_table(pa.table(columns), folder / f"{number}.parquet")


@pytest.mark.parametrize("lists", ["all", "off"])
@pytest.mark.parametrize("seed", [3, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(4, 14))])
def test_deletes_of_extremes_equal_a_refresh_from_scratch(tmp_path: Path, lists: str, seed: int) -> None:
    """After files with the most extreme values are deleted, statistics equal those from scratch.

    Most rows of another file are deleted, too. Bounds and numbers of rows and values also equal DuckDB's. The bins of
    histograms become finer.
    """
    draw = random.Random(seed)
    lake = tmp_path / "lake"
    lake.mkdir()
    fields = {"name": "t", "uri": str(lake), "columns": {"default": {"frequencies": lists}}}
    table = TableConfig.model_validate(fields)

    def published(root: str) -> dict[str, Any]:
        config = MetastoreConfig(root=str(tmp_path / root), tables=[table], engine="auto")
        refresh(config, table, no_spark)
        return everything(config)

    for number in range(FILES):
        put(lake, number, draw, 60)
    widths = [published("root")["table"]["columns"]["n"]["bins"][0]]
    for number, step in enumerate(range(0, FILES - 6, 6)):
        for file_number in range(step, step + 5):
            (lake / f"{file_number}.parquet").unlink()
        rows = pq.read_table(lake / f"{step + 5}.parquet")
        pq.write_table(rows.slice(50), lake / f"{step + 5}.parquet")
        result = published("root")
        assert_same(result, published(f"scratch{number}"))
        widths.append(result["table"]["columns"]["n"]["bins"][0])
        query = f"SELECT min(n), max(n), min(s), max(s), count(n), count(*) FROM read_parquet('{lake}/*.parquet')"
        statistics = result["table"]["columns"]
        bounds = [statistics[name][bound].as_py() for name in "ns" for bound in ("minimum", "maximum")]
        assert duckdb.execute(query).fetchall() == [(*bounds, statistics["n"]["value_count"], result["row_count"])]
    assert widths[1] < widths[0], "the bins of a smaller range of values are narrower"
