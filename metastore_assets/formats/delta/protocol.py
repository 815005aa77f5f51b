"""What a Delta table asks of its readers: protocol versions, table features, and how it maps columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, cast

from metastore_assets.errors import TableFormatError

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
    "variantType",
    "variantType-preview",
}
"""Those that this reader has."""
_FEATURES_VERSION = 3
"""The reader version since which a table lists the features that readers need."""


def check_readable(table: str, protocol: Mapping[str, Any], metadata: Mapping[str, Any]) -> None:
    """Raise TableFormatError that names what this reader does not have."""
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
    """How columns are found in data files. The setting counts only where the protocol has the feature."""
    version = protocol["minReaderVersion"]
    if version < _FEATURES_VERSION - 1 or (version == _FEATURES_VERSION and "columnMapping" not in _features(protocol)):
        return "none"
    mode = (metadata.get("configuration") or {}).get("delta.columnMapping.mode", "none").lower()
    if mode not in ("none", "name", "id"):
        raise TableFormatError(f"{table} maps columns by {mode!r}, which has no reader")
    return cast(MappingMode, mode)


def _features(protocol: Mapping[str, Any]) -> set[str]:
    return set(protocol.get("readerFeatures") or ()) if protocol["minReaderVersion"] == _FEATURES_VERSION else set()


def _unreadable(table: str, what: str) -> TableFormatError:
    return TableFormatError(f"{table} needs a reader of Delta's {what}, which there is not")
