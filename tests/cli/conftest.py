"""A root with published versions, written without Spark, and its configuration.

A root is the folder with all stored state.

A version is the published statistics of a table at one snapshot.
"""

from __future__ import annotations

import shutil
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metastore_assets.store.objects import ObjectStore
from tests.lookup.publishing import publish

COUNT = 400


def _rows() -> pa.Table:
    numbers = range(COUNT)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "price": pa.array([Decimal(n % 90) / 10 for n in numbers], pa.decimal128(9, 2)),
            "ratio": pa.array([float("nan") if n % 50 == 0 else n / 7 for n in numbers]),
            "state": pa.array([None if n % 10 == 0 else "new" if n % 3 else "done\n\x1b[31m" for n in numbers]),
            "day": pa.array([date(2024, 1, 1 + n % 28) for n in numbers]),
            "at": pa.array([datetime(2024, 1, 1, 0, 0, n % 60, tzinfo=UTC) for n in numbers]),
            "big": pa.array([2**62 + n for n in numbers], pa.int64()),
            "blob": pa.array([bytes([n % 4]) for n in numbers]),
            "tags": pa.array([[] if n % 2 else ["a", "b"] for n in numbers], pa.list_(pa.string())),
        }
    )


@pytest.fixture(scope="session")
def _published_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("published")
    store = ObjectStore(str(folder / "root"))
    rows = _rows()
    publish(store, rows.slice(0, 100))
    halves = {"half=1": rows.slice(0, 200), "half=2": rows.slice(200)}
    publish(store, rows, columns={"id": {"frequencies": "off"}}, partitions=halves)
    publish(store, rows, name="gone")
    (folder / "orders").mkdir()
    pq.write_table(pa.table({"id": [1]}), folder / "orders" / "file.parquet")
    (folder / "metastore.yaml").write_text(
        "root: ./root\n"
        "tables:\n"
        "  - {name: orders, uri: ./orders}\n"
        "  - {name: gone, uri: ./gone}\n"
        "  - {name: fresh, uri: ./orders, format: files}\n"
    )
    return folder


@pytest.fixture
def config_file(_published_folder: Path, tmp_path: Path) -> Path:
    """The file of a configuration with three tables.

    `orders` has two versions and two partitions, `gone` has a version but no data files, and `fresh` has no version.
    """
    return Path(shutil.copytree(_published_folder, tmp_path / "copy")) / "metastore.yaml"
