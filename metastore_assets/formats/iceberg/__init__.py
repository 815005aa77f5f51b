"""Iceberg tables: metadata and manifests are read here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metastore_assets.formats.iceberg.metadata_files import (
    METADATA,
    holds_iceberg,
    holds_iceberg_metadata,
    is_metadata_file,
)
from metastore_assets.formats.registration import Marks, Registration

if TYPE_CHECKING:
    from metastore_assets.config import TableConfig
    from metastore_assets.formats.base import TableFormat
    from metastore_assets.formats.metadata_cache import MetadataCache

__all__ = ["FORMAT"]


def _open(table: TableConfig, cache: MetadataCache) -> TableFormat:
    from metastore_assets.formats.iceberg.table import IcebergFormat

    return IcebergFormat(table, cache)


FORMAT = Registration(
    "iceberg", "Iceberg", holds_iceberg, _open, Marks(METADATA, holds_iceberg_metadata, metadata_file=is_metadata_file)
)
