"""An SQL catalog of Iceberg tables in a folder, with a configuration of its databases."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

from metastore_assets.config import MetastoreConfig
from metastore_assets.pipeline.refresh import refresh


def _no_spark() -> Any:
    raise AssertionError("small tables are read without Spark")


@dataclass(frozen=True)
class Lake:
    """An SQL catalog `lake` with the database `sales`."""

    folder: Path
    catalog: SqlCatalog

    @property
    def database(self) -> Path:
        """Return the catalog's SQLite file."""
        return self.folder / "lake.db"

    def add(self, name: str, *numbers: int) -> None:
        """Create a table and append rows with the numbers as ids, by default 1 and 2."""
        rows = pa.table({"id": pa.array(numbers or (1, 2), pa.int64())})
        self.catalog.create_table(f"sales.{name}", rows.schema).append(rows)

    def drop(self, name: str) -> None:
        self.catalog.drop_table(f"sales.{name}")

    def config(self, database: str = "sales", databases: tuple[str, ...] = (), **more: Any) -> MetastoreConfig:
        """Return a configuration of whole databases.

        Args:
            database: The only database, if `databases` is empty.
            databases: The names of the databases.
            more: Further settings of each database.
        """
        entries = [{"catalog": "lake", "database": name, **more} for name in databases or (database,)]
        catalog = {"type": "sql", "uri": f"sqlite:///{self.database}"}
        root = {"root": str(self.folder / "root"), "engine": "auto"}
        return MetastoreConfig.model_validate({**root, "catalogs": {"lake": catalog}, "databases": entries}).resolve()

    def publish(self, name: str) -> None:
        """Refresh a table, named as in the configuration: `sales_orders` for the table `orders`."""
        from metastore_assets.databases import expand_databases, list_databases

        config = self.config()
        refresh(config, expand_databases(config, list_databases(config))[0].table(name), _no_spark)
