"""The Iceberg format.

This package reads metadata files and manifests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from metastore_assets.formats.iceberg.metadata_files import (
    METADATA,
    has_iceberg_metadata,
    is_iceberg_table,
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
    detect=is_iceberg_table,
    detector=FormatDetector(METADATA, has_iceberg_metadata, is_metadata_file=is_metadata_file),
    extra="iceberg",
)
