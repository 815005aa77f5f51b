"""The location of a table, as a version records it for scans of the table's rows.

A version is the published statistics of a table at one snapshot. This is a separate module, because scans import it
without the modules that plan and execute a refresh.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from metastore_assets.config import TableConfig
from metastore_assets.messages import absolute_location

_FIELDS = frozenset(
    {"uri", "at", "partitions", "path_mapping", "allow", "restrict_to_table_root", "options", "declared"}
)
"""Configuration keys that decide where a table is and which rows it has. Other keys may contain secrets."""
RECORDED_FIELDS = (_FIELDS - {"declared"}) | {"schema", "format"}
"""The keys of a recorded location."""


def table_location(table: TableConfig, format: str) -> Mapping[str, Any] | None:
    """Return the part of a table's configuration that determines the table's location and rows.

    Args:
        table: The configuration.
        format: The table's format, which is added to the result.

    Returns:
        Keys and values as JSON, without default values. None if a URI may contain a secret, such as a password.
    """
    location = table.model_dump(mode="json", include=set(_FIELDS), exclude_defaults=True, by_alias=True)
    location["uri"] = absolute_location(table.uri)
    locations = [location["uri"], *table.path_mapping, *table.path_mapping.values(), *table.allow]
    return None if any(map(_has_secret, locations)) else {**location, "format": format}


def _has_secret(uri: str) -> bool:
    if "://" not in uri:
        return False
    parts = urlsplit(uri)
    return bool(parts.query) or parts.password is not None
