"""Where a table lies, as a version may say it to everybody who reads the version."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from metastore_assets.config import TableConfig

_FIELDS = frozenset(
    {"uri", "at", "partitions", "path_mapping", "allow", "restrict_to_table_root", "options", "declared"}
)
"""What decides which rows a table has. Storage options and catalogs' properties may be secrets, and stay out."""
RECORDED_FIELDS = (_FIELDS - {"declared"}) | {"schema", "format"}
"""The same as versions have them."""


def table_location(table: TableConfig, format: str) -> Mapping[str, Any] | None:
    """The fields of a table's configuration that say where it is, and which of its rows are meant, but for defaults.

    None where a location holds a password or a signature.
    """
    found = table.model_dump(mode="json", include=set(_FIELDS), exclude_defaults=True, by_alias=True)
    found["uri"] = _absolute(table.uri)
    locations = [found["uri"], *table.path_mapping, *table.path_mapping.values(), *table.allow]
    return None if any(map(_has_secret, locations)) else {**found, "format": format}


def _absolute(uri: str) -> str:
    return uri if "://" in uri else os.path.abspath(os.path.expanduser(uri))


def _has_secret(uri: str) -> bool:
    if "://" not in uri:
        return False
    parts = urlsplit(uri)
    return bool(parts.query) or parts.password is not None
