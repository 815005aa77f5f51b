"""Decode fields of JSON documents that may be corrupt or forged: a field of the wrong type raises ValueError."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields as dataclass_fields
from datetime import datetime
from typing import Any, TypeVar

Record = TypeVar("Record")
_MOST = 2**63 - 1


def parse_json(data: bytes | str) -> Any:
    """Parse a JSON document.

    Raises:
        ValueError: If it is not JSON, or is nested too deeply.
    """
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def text(value: object, name: str) -> str:
    """Return a text. Raises ValueError."""
    if not isinstance(value, str):
        raise ValueError(f"{name} is {_shown(value)}, no text")
    return value


def texts(value: object, name: str) -> tuple[str, ...]:
    """Return a list of texts as a tuple. Raises ValueError."""
    return tuple(text(one, name) for one in items(value, name))


def items(value: object, name: str) -> list[Any]:
    """Return a list. Raises ValueError."""
    if not isinstance(value, list):
        raise ValueError(f"{name} is {_shown(value)}, no list")
    return value


def mapping(value: object, name: str) -> Mapping[str, Any]:
    """Return an object of JSON. Raises ValueError."""
    if not isinstance(value, dict):
        raise ValueError(f"{name} is {_shown(value)}, no object")
    return value


def count(value: object, name: str) -> int:
    """Return a whole number from 0 to 2**63 - 1. Raises ValueError."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MOST:
        raise ValueError(f"{name} is {_shown(value)}, no whole number from 0 to 2**63 - 1")
    return value


def path(value: object, name: str) -> str:
    """Return the path of an object below the folder of its document; empty where there is none. Raises ValueError."""
    found = text(value, name)
    if found and (any(part in ("", ".", "..") for part in found.split("/")) or "\0" in found):
        raise ValueError(f"{name} is {_shown(found)}, which is not below the folder of the document")
    return found


def paths(value: object, name: str) -> tuple[str, ...]:
    """Return a list of such paths, none of them empty. Raises ValueError."""
    found = tuple(path(one, name) for one in items(value, name))
    if "" in found:
        raise ValueError(f"{name} has an empty path")
    return found


def moment(value: object, name: str) -> datetime:
    """Return a time with its zone. Raises ValueError."""
    found = datetime.fromisoformat(text(value, name))
    if found.tzinfo is None:
        raise ValueError(f"{name} is {_shown(value)}, a time without a zone")
    return found


def record(kind: type[Record], value: object, name: str) -> Record:
    """Return a dataclass of texts, counts and seconds. Raises ValueError."""
    given = mapping(value, name)
    found: dict[str, Any] = {}
    for field in dataclass_fields(kind):  # type: ignore[arg-type]
        own, label = given.get(field.name), f"{name}.{field.name}"
        if field.type == "int":
            found[field.name] = count(own, label)
        elif field.type == "float":
            if isinstance(own, bool) or not isinstance(own, int | float):
                raise ValueError(f"{label} is {_shown(own)}, no number")
            found[field.name] = own
        else:
            found[field.name] = text(own, label)
    return kind(**found)


def _shown(value: object) -> str:
    shown = repr(value) if isinstance(value, str | int | float | None) else f"a {type(value).__name__}"
    return shown if len(shown) <= 100 else f"{shown[:100]}…"
