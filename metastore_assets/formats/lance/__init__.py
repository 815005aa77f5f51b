"""The Lance format.

This package lists versions; pylance reads manifests and data files, in child processes.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from metastore_assets.formats.lance.versions import FOLDER, is_lance_table, is_manifest
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
    from metastore_assets.formats.lance.table import LanceFormat

    check_option_names(table)
    if find_spec("lance") is None:  # Only child processes import it.
        raise ModuleNotFoundError("No module named 'lance'", name="lance")
    return LanceFormat(table, context.cache)


FORMAT = FormatRegistration(
    "lance",
    "Lance",
    _open,
    detect=is_lance_table,
    detector=FormatDetector(FOLDER, is_lance_table, is_metadata_file=is_manifest, has_partitions=False),
    extra="lance",
)
