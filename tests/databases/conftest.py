"""A fixture: a new Iceberg catalog for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from tests.databases.iceberg_lake import Lake


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    """A catalog without tables."""
    with SqlCatalog("lake", uri=f"sqlite:///{tmp_path / 'lake.db'}", warehouse=str(tmp_path / "warehouse")) as catalog:
        catalog.create_namespace("sales")
        yield Lake(tmp_path, catalog)
