"""`fetch_column_statistics` attaches the newest statistics to the asset that writes a table."""

from pathlib import Path
from typing import Any

import pytest
from dagster import AssetMaterialization, MaterializeResult, TableSchema

from metastore_assets import fetch_column_statistics
from metastore_assets.errors import ConfigError
from tests.assets.user_project import attached, config, write


def test_the_writing_asset_shows_the_newest_statistics(tmp_path: Path) -> None:
    """Statistics of the table's current snapshot are attached to the asset that writes the table.

    Without statistics of this snapshot or of the requested partition, only the reason is attached. Metadata that the
    asset already has are not replaced. An unknown table is an error.
    """
    loaded_config = config(tmp_path)
    write(tmp_path, "2024-01-01", 3)
    write(tmp_path, "2024-01-02", 5)
    result = attached(
        fetch_column_statistics(MaterializeResult(metadata={"mine": 1}), "sales", loaded_config, refresh=True)
    )
    assert (result["mine"], result["dagster/row_count"], result["metastore/version"]) == (1, 8, 1)
    schema = result["dagster/column_schema"]
    assert isinstance(schema, TableSchema)
    assert {column.name: column.type for column in schema.columns} == {"day": "date32[day]", "amount": "int64"}
    descriptions = {column.name: column.description or "" for column in schema.columns}
    assert "5 distinct" in descriptions["amount"]

    part = attached(fetch_column_statistics(MaterializeResult(), "sales", loaded_config, partition="day=2024-01-02"))
    assert (part["dagster/partition_row_count"], "dagster/row_count" in part) == (5, False)
    event = fetch_column_statistics(
        AssetMaterialization("x", metadata={"dagster/row_count": 9}), "sales", loaded_config
    )
    assert event.metadata["dagster/row_count"].value == 9, "the asset's own metadata win"

    # Without statistics, only the reason is attached.
    missing_metadata = attached(
        fetch_column_statistics(MaterializeResult(), "sales", loaded_config, partition="day=2024-01-09")
    )
    assert "dagster/partition_row_count" not in missing_metadata
    assert "2024-01-09" in str(missing_metadata["metastore/statistics"])
    write(tmp_path, "2024-01-03", 1)
    late = attached(fetch_column_statistics(MaterializeResult(), "sales", loaded_config))
    assert list(late) == ["metastore/statistics"]
    assert "version 1 describes snapshot 1" in str(late["metastore/statistics"])
    for file in (tmp_path / "sales").rglob("*.parquet"):
        file.write_bytes(b"PAR1 no more")
    error_metadata = attached(fetch_column_statistics(MaterializeResult(), "sales", loaded_config, refresh=True))
    assert list(error_metadata) == ["metastore/statistics"]
    assert str(error_metadata["metastore/statistics"]).startswith("not available: ")
    with pytest.raises(ConfigError, match="'sails'"):
        fetch_column_statistics(MaterializeResult(), "sails", loaded_config)


def test_an_error_of_spark_does_not_fail_the_asset(tmp_path: Path) -> None:
    """If Spark fails during the refresh, the error is attached to the asset in place of statistics.

    It is not raised, because the data of the asset are written already.
    """

    class Cluster:
        def process_config_and_initialize_cm(self) -> None:
            raise RuntimeError("the cluster is gone")

    write(tmp_path, "2024-01-01", 3)
    on_spark = config(tmp_path).model_copy(update={"engine": "spark"})
    spark: Any = Cluster()
    result = fetch_column_statistics(MaterializeResult(), "sales", on_spark, refresh=True, spark=spark)
    assert attached(result) == {"metastore/statistics": "not available: RuntimeError: the cluster is gone"}


def test_a_failed_export_is_named(tmp_path: Path) -> None:
    """The error of a failed export is attached beside the statistics of the published version."""
    write(tmp_path, "2024-01-01", 3)
    loaded_config = config(tmp_path)
    exporting = loaded_config.tables[0].model_copy(update={"exports": ("iceberg",)})
    result = fetch_column_statistics(
        MaterializeResult(), "sales", loaded_config.model_copy(update={"tables": (exporting,)}), refresh=True
    )
    assert str(attached(result)["metastore/exports"]).startswith("failed: iceberg: table 'sales'")
    assert attached(result)["dagster/row_count"] == 3
