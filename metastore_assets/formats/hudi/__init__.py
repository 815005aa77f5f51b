"""Hudi tables: the timeline is read here, log files are merged by hudi-rs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metastore_assets.formats.hudi.timeline import FOLDER, PARTITION_MARKER, holds_hudi
from metastore_assets.formats.registration import Marks, Registration

if TYPE_CHECKING:
    from metastore_assets.config import TableConfig
    from metastore_assets.formats.base import TableFormat
    from metastore_assets.formats.metadata_cache import MetadataCache

__all__ = ["FORMAT"]


def _open(table: TableConfig, cache: MetadataCache) -> TableFormat:
    from metastore_assets.formats.hudi.table import HudiFormat

    return HudiFormat(table, cache)


FORMAT = Registration(
    "hudi",
    "Hudi",
    lambda location: location.has_any(FOLDER),
    _open,
    Marks(FOLDER, holds_hudi, partition_file=PARTITION_MARKER),
)
