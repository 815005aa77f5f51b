"""The `protocol` and `metaData` actions of a Delta log: checks, reader features and column mapping."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, cast

from metastore_assets.errors import TableFormatError
from metastore_assets.formats.metadata_json import as_integer, as_list, as_object, as_text, check_distinct

MappingMode = Literal["none", "name", "id"]

_FEATURES = {
    "columnMapping",
    "deletionVectors",
    "timestampNanos",
    "timestampNtz",
    "typeWidening",
    "typeWidening-preview",
    "v2Checkpoint",
    "vacuumProtocolCheck",
    "variantShredding",
    "variantShredding-preview",
    "variantType",
    "variantType-preview",
}
"""Reader features that are supported."""
_FEATURES_VERSION = 3
"""First reader version whose protocol action lists the features that a reader needs."""


def check_protocol(action: Mapping[str, Any]) -> dict[str, Any]:
    """Return a `protocol` action as a dict.

    Raises ValueError if a value in it is invalid.
    """
    as_integer(action.get("minReaderVersion"), "minReaderVersion", minimum=1)
    for feature in as_list(action.get("readerFeatures") or [], "readerFeatures"):
        as_text(feature, "a reader feature")
    return dict(action)


def check_metadata(action: Mapping[str, Any]) -> dict[str, Any]:
    """Check the types in a `metaData` action, and return it as a dict.

    Raises ValueError for a wrong type, or for a partition column that is listed twice.
    """
    as_text(action.get("schemaString"), "schemaString")
    columns = as_list(action.get("partitionColumns") or [], "partitionColumns")
    check_distinct((as_text(name, "a partition column") for name in columns), "the partition column")
    as_object(action.get("format") or {}, "format")
    for key, value in as_object(action.get("configuration") or {}, "configuration").items():
        if value is not None and not isinstance(value, str):
            as_text(value, f"the setting {key[:100]!r}")
    return dict(action)


def check_readable(table: str, protocol: Mapping[str, Any], metadata: Mapping[str, Any]) -> None:
    """Raise TableFormatError if this package cannot read the table.

    The table may need a newer protocol version, a feature, a file format or a commit coordinator that is not supported.

    Args:
        table: URI of the table, for messages.
        protocol: a valid `protocol` action.
        metadata: a valid `metaData` action.
    """
    version = protocol["minReaderVersion"]
    if version > _FEATURES_VERSION:
        raise _unreadable(table, f"protocol version {version}")
    unknown = sorted(_features(protocol) - _FEATURES)
    if unknown:
        raise _unreadable(table, f"features {', '.join(unknown)}")
    provider = (metadata.get("format") or {}).get("provider", "parquet")
    if provider != "parquet":
        raise _unreadable(table, f"data files of the format {provider}")
    coordinator = (metadata.get("configuration") or {}).get("delta.coordinatedCommits.commitCoordinator-preview")
    if coordinator:
        raise _unreadable(table, f"commits coordinated by {coordinator}, the newest of which may not be in the log,")


def mapping_mode(table: str, protocol: Mapping[str, Any], metadata: Mapping[str, Any]) -> MappingMode:
    """Return the rule by which the columns of data files are matched with the schema.

    `none` means by logical name, `name` by physical name, and `id` by column mapping id.

    Args:
        table: URI of the table, for messages.
        protocol: a valid `protocol` action. The mode is `none` unless it allows column mapping.
        metadata: a valid `metaData` action, whose configuration names the mode.

    Raises:
        TableFormatError: the mode is not supported.
    """
    version = protocol["minReaderVersion"]
    if version < _FEATURES_VERSION - 1 or (version == _FEATURES_VERSION and "columnMapping" not in _features(protocol)):
        return "none"
    mode = ((metadata.get("configuration") or {}).get("delta.columnMapping.mode") or "none").lower()
    if mode not in ("none", "name", "id"):
        raise TableFormatError(f"{table} has the column mapping mode {mode!r}, which is not supported")
    return cast(MappingMode, mode)


def _features(protocol: Mapping[str, Any]) -> set[str]:
    return set(protocol.get("readerFeatures") or ()) if protocol["minReaderVersion"] == _FEATURES_VERSION else set()


def _unreadable(table: str, what: str) -> TableFormatError:
    return TableFormatError(f"{table} uses {what} of Delta, which this reader does not support")
