"""Decoders for fields of JSON documents, which may be corrupt or forged.

Wrong types raise ValueError.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields as dataclass_fields
from datetime import datetime
from typing import Any, TypeVar

Record = TypeVar("Record")
MAX_COUNT = 2**63 - 1
"""Maximum value of an integer field."""


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
    """Return the value of a field if it is a text.

    Raises ValueError otherwise.
    """
    if not isinstance(value, str):
        raise ValueError(f"{name} is {_format_value(value)}, no text")
    return value


def texts(value: object, name: str) -> tuple[str, ...]:
    """Return the value of a field as a tuple if it is a list of texts.

    Raises ValueError otherwise.
    """
    return tuple(text(item, name) for item in items(value, name))


def items(value: object, name: str) -> list[Any]:
    """Return the value of a field if it is a list.

    Raises ValueError otherwise.
    """
    if not isinstance(value, list):
        raise ValueError(f"{name} is {_format_value(value)}, no list")
    return value


def mapping(value: object, name: str) -> Mapping[str, Any]:
    """Return the value of a field if it is a JSON object.

    Raises ValueError otherwise.
    """
    if not isinstance(value, dict):
        raise ValueError(f"{name} is {_format_value(value)}, no object")
    return value


def count(value: object, name: str) -> int:
    """Return the value of a field if it is an integer from 0 to 2**63 - 1.

    Raises ValueError otherwise.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_COUNT:
        raise ValueError(f"{name} is {_format_value(value)}, no whole number from 0 to 2**63 - 1")
    return value


def path(value: object, name: str) -> str:
    """Return the value of a field: an empty text, or a relative path inside the document's folder.

    Raises ValueError for other values.
    """
    path_ = text(value, name)
    parts = path_.split("/")  # Without a generator: a version document of a large table has a thousand paths.
    if path_ and ("" in parts or "." in parts or ".." in parts or "\0" in path_):
        raise ValueError(f"{name} is {_format_value(path_)}, which is not below the folder of the document")
    return path_


def paths(value: object, name: str) -> tuple[str, ...]:
    """Return the value of a field as a tuple if it is a list of non-empty paths.

    Raises ValueError otherwise.
    """
    paths_ = tuple(path(item, name) for item in items(value, name))
    if "" in paths_:
        raise ValueError(f"{name} has an empty path")
    return paths_


def moment(value: object, name: str) -> datetime:
    """Return the time in a field if it is in ISO 8601 with a zone.

    Raises ValueError otherwise.
    """
    time = datetime.fromisoformat(text(value, name))
    if time.tzinfo is None:
        raise ValueError(f"{name} is {_format_value(value)}, a time without a zone")
    return time


def record(kind: type[Record], value: object, name: str) -> Record:
    """Decode a JSON object as a dataclass whose fields are str, int or float.

    Integers must be from 0 to 2**63 - 1. Raises ValueError if `value` is not an object, or if a field is missing or
    invalid.
    """
    stored_fields = mapping(value, name)
    decoded_fields: dict[str, Any] = {}
    for field in dataclass_fields(kind):  # type: ignore[arg-type]
        stored_value, label = stored_fields.get(field.name), f"{name}.{field.name}"
        if field.type == "int":
            decoded_fields[field.name] = count(stored_value, label)
        elif field.type == "float":
            if isinstance(stored_value, bool) or not isinstance(stored_value, int | float):
                raise ValueError(f"{label} is {_format_value(stored_value)}, no number")
            decoded_fields[field.name] = stored_value
        else:
            decoded_fields[field.name] = text(stored_value, label)
    return kind(**decoded_fields)


def _format_value(value: object) -> str:
    formatted_value = repr(value) if isinstance(value, str | int | float | None) else f"a {type(value).__name__}"
    return formatted_value if len(formatted_value) <= 100 else f"{formatted_value[:100]}…"
