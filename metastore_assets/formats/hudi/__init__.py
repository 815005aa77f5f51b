"""The Hudi format.

This package reads the timeline; hudi-rs merges log files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from metastore_assets.formats.hudi.timeline import FOLDER, PARTITION_MARKER, is_hudi_table
from metastore_assets.formats.registration import FormatDetector, FormatRegistration, OpenContext

if TYPE_CHECKING:
    from metastore_assets.config import TableConfig
    from metastore_assets.formats.base import TableFormat

__all__ = ["FORMAT"]


def _open(table: TableConfig, context: OpenContext) -> TableFormat:
    from metastore_assets.formats.hudi.table import HudiFormat

    return HudiFormat(table, context.cache)


FORMAT = FormatRegistration(
    "hudi",
    "Hudi",
    _open,
    detect=lambda location: location.has_any(FOLDER),
    detector=FormatDetector(FOLDER, is_hudi_table, partition_file_prefix=PARTITION_MARKER),
    extra="hudi",
)
