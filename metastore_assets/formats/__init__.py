"""What a table holds now. One module per table format behind the protocols of `base`, found through one registry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from metastore_assets.errors import ConfigError, TableFormatError, TableNotFoundError
from metastore_assets.formats.base import (
    Fragment,
    FragmentReader,
    FragmentSource,
    Snapshot,
    SnapshotReference,
    TableFormat,
)
from metastore_assets.formats.iceberg_metadata import holds_iceberg
from metastore_assets.formats.location import Location
from metastore_assets.formats.partition_keys import UNPARTITIONED, decode_partition_key, encode_partition_key
from metastore_assets.formats.reach import own_location

if TYPE_CHECKING:
    from metastore_assets.config import TableConfig

__all__ = [
    "UNPARTITIONED",
    "Fragment",
    "FragmentReader",
    "FragmentSource",
    "Snapshot",
    "SnapshotReference",
    "TableFormat",
    "decode_partition_key",
    "encode_partition_key",
    "open_table_format",
]


@dataclass(frozen=True)
class _Registration:
    detect: Callable[[Location], bool]
    open: Callable[[TableConfig], TableFormat]


def open_table_format(table: TableConfig) -> TableFormat:
    """The table at `table.uri` in its format, detected from what lies there when `table.format` is None.

    Nothing but detection is read yet. Raises TableFormatError for a format that is not built.
    """
    name = table.format or _detect(own_location(table))
    if table.declared and name != "files":
        raise ConfigError(
            f"table {table.name!r}: schema is for plain files; this is a table of the format {name}, which has one"
        )
    return _REGISTRY[name].open(table)


def _detect(location: Location) -> str:
    # Delta first: a Delta table may carry metadata of the others for their readers (UniForm, XTable).
    try:
        return next(name for name, registration in _REGISTRY.items() if registration.detect(location))
    except FileNotFoundError as error:
        raise TableNotFoundError(f"{location.uri} holds no table: {error}") from error
    except OSError as error:
        raise TableFormatError(f"{location.uri} cannot be read: {error}") from error


def _open_delta(table: TableConfig) -> TableFormat:
    from metastore_assets.formats.delta import DeltaFormat

    return DeltaFormat(table)


def _open_hudi(table: TableConfig) -> TableFormat:
    from metastore_assets.formats.hudi import HudiFormat

    return HudiFormat(table)


def _open_iceberg(table: TableConfig) -> TableFormat:
    from metastore_assets.formats.iceberg import IcebergFormat

    return IcebergFormat(table)


def _open_files(table: TableConfig) -> TableFormat:
    from metastore_assets.formats.files import FilesFormat

    return FilesFormat(table)


_REGISTRY: dict[str, _Registration] = {
    "delta": _Registration(lambda location: location.has_any("_delta_log"), _open_delta),
    "iceberg": _Registration(holds_iceberg, _open_iceberg),
    "hudi": _Registration(lambda location: location.has_any(".hoodie"), _open_hudi),
    "files": _Registration(lambda location: True, _open_files),
}
"""Formats in the order in which they are looked for."""
