"""A version records the location of its table, unless the location contains a secret.

A fragment is a data file together with the deletes that apply to it. A version has the statistics of one snapshot of
the table. An expired version is one whose files were deleted.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.errors import ConfigError, NotStoredError, ObjectNotFoundError
from metastore_assets.lookup import Table
from metastore_assets.metastore import open_table
from metastore_assets.pipeline.refresh import refresh
from metastore_assets.pipeline.table_location import table_location


def no_spark() -> Any:
    raise AssertionError("nothing here is worth a session")


def published(folder: Path, **options: Any) -> Table:
    for day in range(4):
        part = folder / "lake" / f"day=2024-01-0{day + 1}"
        part.mkdir(parents=True)
        pq.write_table(pa.table({"x": list(range(day * 10, day * 10 + 10))}), part / "0.parquet")
    table_config = TableConfig.model_validate({"name": "t", "uri": str(folder / "lake"), **options})
    config = MetastoreConfig(root=str(folder / "root"), tables=[table_config], engine="auto")
    refresh(config, table_config, no_spark)
    return open_table(config.root, "t", table_locations=str(folder / "lake"))


def test_a_table_is_read_at_its_recorded_location(tmp_path: Path) -> None:
    """Lookups read the table at the location that the version recorded.

    They read only the selected partitions, which the version recorded, too.
    """
    lookup = published(tmp_path, partitions={"day": ["2024-01-01", "2024-01-02"]})
    assert lookup.count("x > 4").value == 15
    assert lookup.filter("x > 4", read=True).count().value == 15
    assert lookup.filter("x > 4", read=True).quantile("x", 0.5).value.as_py() == 12
    assert lookup.count("x > 4", table=str(tmp_path / "lake")).value == 15


def test_options_are_not_shared_between_tables(tmp_path: Path) -> None:
    lookup = published(tmp_path, storage_options={"aws_secret_access_key": "hush"})
    (document,) = (tmp_path / "root" / "t" / "versions").glob("*.json")
    assert "hush" not in document.read_text()
    assert json.loads(document.read_text())["table_location"]["uri"] == str(tmp_path / "lake")
    location = lookup.table_config(storage_options={"aws_region": "eu-1"})
    assert (location.uri, location.format, location.storage_options) == (
        str(tmp_path / "lake"),
        "files",
        {"aws_region": "eu-1"},
    )


@pytest.mark.parametrize(
    "uri", ["https://somebody:hush@host/lake", "https://host/lake?sig=hush", "az://container/lake?sv=1&sig=hush"]
)
def test_a_location_with_a_secret_is_not_recorded(uri: str) -> None:
    assert table_location(TableConfig(name="t", uri=uri), "delta") is None
    assert table_location(TableConfig(name="t", uri="s3://b/t", path_mapping={"s3://a/": uri}), "delta") is None
    answer = table_location(TableConfig(name="t", uri="abfss://container@account.dfs.core.windows.net/t"), "delta")
    assert answer is not None


def test_a_location_that_is_not_recorded_is_an_error(tmp_path: Path) -> None:
    lookup = published(tmp_path)
    object.__setattr__(lookup.version, "table_location", None)
    with pytest.raises(ConfigError, match=r"'t'.*table=load_config"):
        lookup.count("x > 4")
    object.__setattr__(lookup.version, "table_location", {"uri": "catalog://prod/db.t", "format": "iceberg"})
    with pytest.raises(ConfigError, match=r"catalog://prod/db\.t.*table=load_config"):
        lookup.count("x > 4")
    with pytest.raises(NotStoredError, match="'day'"):
        lookup.filter("x > 4").count()
    object.__setattr__(lookup.version, "partition_columns", ("x_bucket", "day_month"))
    with pytest.raises(NotStoredError, match="read=True"):
        lookup.filter("x > 4").count()


def test_an_expired_version_is_reported(tmp_path: Path) -> None:
    """Calls that read fragments of an expired version raise the error about the version.

    They do not raise one about the table.
    """
    lookup = published(tmp_path)
    scope = lookup.filter("day = '2024-01-01' or x > 4", read=True)
    lookup = open_table(str(tmp_path / "root"), "t", table_locations=[str(tmp_path)])
    for path in (tmp_path / "root").rglob("*.parquet"):
        path.unlink()
    for ask in (
        lambda: lookup.filter("x > 4"),
        lambda: lookup.prune("x > 4"),
        lambda: lookup.count("x > 4"),
        scope.statistics,
        lambda: scope.histogram("x"),
        lambda: scope.top("x"),
    ):
        with pytest.raises(ObjectNotFoundError, match=r"version 1\b"):
            ask()
