"""A task has one column of its fragment in memory, however large the fragment is."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

pytestmark = [pytest.mark.spark, pytest.mark.long]

ROWS = 5_000_000
COLUMNS = 52


def wide_fragment(path: Path) -> int:
    """Write a file of 52 columns of five million 8-byte numbers, some near-unique.

    Returns its bytes in memory.
    """
    draw = np.random.default_rng(0)
    schema = pa.schema([(f"c{number}", pa.int64() if number % 2 else pa.float64()) for number in range(COLUMNS)])
    total = 0
    with pq.ParquetWriter(path, schema) as writer:
        for _ in range(5):
            distinct = [10**12 if number < 6 else 1000 for number in range(COLUMNS)]
            numbers = [draw.integers(0, count, ROWS // 5) for count in distinct]
            table = pa.table(
                [
                    pa.array(column.astype(kind.to_pandas_dtype()))
                    for column, kind in zip(numbers, schema.types, strict=True)
                ],
                schema=schema,
            )
            total += table.nbytes
            writer.write_table(table)
    return total


def refresh(folder: Path, limit: str) -> subprocess.CompletedProcess[str]:
    config = {
        "root": f"./root-{limit}",
        "spark": {"spark.master": "local[1]", "spark.executor.pyspark.memory": limit},
        "tables": [{"name": "wide", "uri": "./lake"}],
    }
    (folder / "metastore.yaml").write_text(yaml.safe_dump(config))
    command = [sys.executable, "-m", "metastore_assets", "refresh", "wide", "--json"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_two_gigabytes_are_profiled_with_a_limit_of_one_and_a_half(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    assert wide_fragment(tmp_path / "lake" / "0.parquet") > 2_000_000_000
    process = refresh(tmp_path, "1500m")
    assert process.returncode == 0, process.stderr
    assert json.loads(process.stdout)["fragments"]["profiled"] == 1
    too_little = refresh(tmp_path, "500m")
    assert too_little.returncode in (1, 3), "the limit has no effect, so the test above proves nothing"
