"""A Glue server with one database per test."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import boto3
import pytest

from metastore_assets.config import CatalogConfig, MetastoreConfig, TableConfig
from metastore_assets.formats import Snapshot, TableFormat, open_table_format
from tests.formats.catalogs.table_declarations import Declaration, register_in_glue

SECRET = "this-is-a-secret"


@dataclass(frozen=True)
class Glue:
    """One database of a Glue server."""

    endpoint: str
    database: str
    client: Any

    @property
    def properties(self) -> dict[str, str]:
        """Return the catalog's properties as in a configuration."""
        return {
            "type": "glue",
            "glue.endpoint": self.endpoint,
            "glue.region": "us-east-1",
            "glue.access-key-id": "key",
            "glue.secret-access-key": SECRET,
        }

    def register(self, *tables: Declaration) -> None:
        register_in_glue(self.client, self.database, tables)

    def table(self, name: str, **more: Any) -> TableConfig:
        """Return the configuration of a table by its name in this database.

        `more` are further settings.
        """
        catalog = CatalogConfig.model_validate({**self.properties, "name": "prod"})
        return TableConfig(name="t", catalog=catalog, table=f"{self.database}.{name}", **more)

    def open(self, table: Declaration, **more: Any) -> TableFormat:
        """Register a table and open it."""
        self.register(table)
        return open_table_format(self.table(table.name, **more))

    def snapshot(self, table: Declaration, **more: Any) -> Snapshot:
        return self.open(table, **more).snapshot()

    def config(self, root: str, tables: Iterable[Any] = (), databases: Iterable[Any] = ()) -> MetastoreConfig:
        """Return a configuration with the catalog `prod`, and with these tables and databases."""
        return MetastoreConfig.model_validate(
            {"root": root, "catalogs": {"prod": self.properties}, "tables": tables, "databases": databases}
        )


@pytest.fixture
def glue(s3_endpoint: str) -> Glue:
    """An empty database with a random name in the Glue server of the tests."""
    client = boto3.client(
        "glue",
        endpoint_url=s3_endpoint,
        region_name="us-east-1",
        aws_access_key_id="key",
        aws_secret_access_key=SECRET,
    )
    database = f"sales_{uuid.uuid4().hex}"
    client.create_database(DatabaseInput={"Name": database})
    return Glue(s3_endpoint, database, client)
