"""An Iceberg table in an SQL catalog, with its Metastore, whose versions are exported to the catalog.

A version is the published statistics of a table at one snapshot.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from metastore_assets.config import MetastoreConfig
from metastore_assets.exports.configured_targets import read_export_entries
from metastore_assets.exports.iceberg import IcebergTarget
from metastore_assets.pipeline.outcome import RefreshResult
from metastore_assets.pipeline.refresh import refresh
from tests.robustness.refresh_assertions import no_spark


@dataclass
class IcebergLake:
    """The table `sales.orders` of an SQL catalog below a folder."""

    folder: Path
    catalog: SqlCatalog
    settings: dict[str, Any] = field(default_factory=lambda: {"exports": ["iceberg"]})
    catalog_settings: dict[str, str] | None = None
    """How the Metastore opens the catalog. By default as an SQL catalog."""

    @property
    def table(self) -> Table:
        return self.catalog.load_table("sales.orders")

    def create(self, rows: pa.Table, **options: Any) -> Table:
        table = self.catalog.create_table("sales.orders", rows.schema, **options)
        table.append(rows)
        return table

    @property
    def config(self) -> MetastoreConfig:
        sql = {"type": "sql", "uri": f"sqlite:///{self.folder}/lake.db", "warehouse": str(self.folder / "lake")}
        catalog = self.catalog_settings or sql
        table = {"name": "orders", "catalog": "lake", "table": "sales.orders", **self.settings}
        root = {"root": str(self.folder / "root"), "engine": "auto", "catalogs": {"lake": catalog}}
        return MetastoreConfig.model_validate({**root, "tables": [table]}).resolve()

    def refresh(self) -> RefreshResult:
        return refresh(self.config, self.config.tables[0], no_spark)

    @property
    def target(self) -> IcebergTarget:
        table = self.config.tables[0]
        target = read_export_entries(table)[0].open(table)
        assert isinstance(target, IcebergTarget)
        return target
