"""Iceberg tables, with our own reader of metadata files and manifests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metastore_assets.formats.iceberg.metadata_files import (
    METADATA,
    holds_iceberg,
    holds_iceberg_metadata,
    is_metadata_file,
)
from metastore_assets.formats.registration import (
    FormatDetector,
    FormatRegistration,
    OpenContext,
    check_option_names,
)

if TYPE_CHECKING:
    from metastore_assets.config import TableConfig
    from metastore_assets.formats.base import TableFormat

__all__ = ["FORMAT"]


def _open(table: TableConfig, context: OpenContext) -> TableFormat:
    from metastore_assets.formats.iceberg.table import IcebergFormat

    check_option_names(table)
    return IcebergFormat(table, context.cache)


FORMAT = FormatRegistration(
    "iceberg",
    "Iceberg",
    _open,
    detect=holds_iceberg,
    detector=FormatDetector(METADATA, holds_iceberg_metadata, is_metadata_file=is_metadata_file),
    extra="iceberg",
)
