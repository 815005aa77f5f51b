"""The Delta format.

This package replays the log; the data files are Parquet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from metastore_assets.formats.delta.log import LOG, is_delta_table
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
    from metastore_assets.formats.delta.table import DeltaFormat

    check_option_names(table)
    return DeltaFormat(table, context.cache)


FORMAT = FormatRegistration(
    "delta",
    "Delta",
    _open,
    detect=lambda location: location.has_any(LOG),
    detector=FormatDetector(LOG, is_delta_table),
    extra="delta",
)
