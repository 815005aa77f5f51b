"""Delta tables: the log is replayed here, data files are plain Parquet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metastore_assets.formats.delta.log import LOG, holds_delta
from metastore_assets.formats.registration import Marks, Registration

if TYPE_CHECKING:
    from metastore_assets.config import TableConfig
    from metastore_assets.formats.base import TableFormat
    from metastore_assets.formats.metadata_cache import MetadataCache

__all__ = ["FORMAT"]


def _open(table: TableConfig, cache: MetadataCache) -> TableFormat:
    from metastore_assets.formats.delta.table import DeltaFormat

    return DeltaFormat(table, cache)


FORMAT = Registration("delta", "Delta", lambda location: location.has_any(LOG), _open, Marks(LOG, holds_delta))
