"""Which tables a database had when it was last looked at: a small document in the root, which may be lost."""

from __future__ import annotations

import json
from collections.abc import Iterable
from urllib.parse import quote

from metastore_assets.errors import ObjectNotFoundError
from metastore_assets.store.json_fields import parse_json
from metastore_assets.store.objects import ObjectStore

_FOLDER = "_databases"
"""No name of a table begins with `_`."""
_FORMAT = 1


def read_record(root: ObjectStore, key: str) -> frozenset[str]:
    """Names of tables; none where there is no record, or one that makes no sense. Raises StoreError."""
    try:
        document = parse_json(root.read(_path(key)))
        if document["format"] == _FORMAT:
            return frozenset(name for name in document["tables"] if isinstance(name, str))
    except (ObjectNotFoundError, ValueError, KeyError, TypeError):
        pass
    return frozenset()


def write_record(root: ObjectStore, key: str, names: Iterable[str]) -> None:
    """Record the names in place of those before. Raises StoreError."""
    document = {"format": _FORMAT, "tables": sorted(names)}
    root.write(_path(key), json.dumps(document, ensure_ascii=False).encode())


def _path(key: str) -> str:
    return f"{_FOLDER}/{quote(key, safe='')}.json"
