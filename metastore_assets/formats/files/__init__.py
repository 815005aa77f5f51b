"""Plain files in folders: Parquet, ORC, Avro, CSV and JSON lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metastore_assets.formats.registration import FormatRegistration, OpenContext

if TYPE_CHECKING:
    from metastore_assets.config import TableConfig
    from metastore_assets.formats.base import TableFormat

__all__ = ["FORMAT"]


def _open(table: TableConfig, context: OpenContext) -> TableFormat:
    from metastore_assets.formats.files.table import FilesFormat

    return FilesFormat(table, context)


FORMAT = FormatRegistration("files", "plain files", _open, has_schema=False)
"""The format of tables in which no other format is detected."""
