"""Values of JSON metadata that have to be of a kind: anything may stand there, and nothing of it is believed unseen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

_MOST = 60
_LEAST, _GREATEST = -(1 << 63), (1 << 63) - 1


def record(value: Any, what: str) -> Mapping[str, Any]:
    """An object. Raises ValueError for anything else, as all of these do."""
    if not isinstance(value, Mapping):
        raise _wrong(what, value, "an object")
    return value


def records(value: Any, what: str) -> list[Mapping[str, Any]]:
    """A list of objects."""
    return [record(item, what) for item in items(value, what)]


def items(value: Any, what: str) -> list[Any]:
    """A list."""
    if not isinstance(value, list):
        raise _wrong(what, value, "a list")
    return value


def number(value: Any, what: str, least: int = _LEAST, *, unsigned: bool = False) -> int:
    """A whole number of 64 bits, no less than `least`; those of numbers that are `unsigned` have no sign."""
    greatest = _GREATEST * 2 + 1 if unsigned else _GREATEST
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= greatest:
        raise _wrong(what, value, "a whole number" if least == _LEAST else f"a whole number of at least {least}")
    return value


def text(value: Any, what: str) -> str:
    """A text that is not empty and that files may be named by: without NUL characters and halves of characters."""
    if not isinstance(value, str) or not value or "\0" in value:
        raise _wrong(what, value, "a text")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _wrong(what, value, "a text of whole characters") from None
    return value


def distinct(values: Iterable[Any], what: str) -> None:
    """Raise ValueError when two of the values are equal: which of the two is meant, nobody could tell."""
    seen = set()
    for value in values:
        if value in seen:
            raise ValueError(f"{what} {shown(value)} is there twice")
        seen.add(value)


def shown(value: Any) -> str:
    """A value as it stands in a message: never long, and nothing that cannot be printed."""
    if isinstance(value, dict | list):
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value):,}"
    if isinstance(value, int) and value.bit_length() > _MOST * 3:
        return "a number of hundreds of digits"
    told = ascii(value) if isinstance(value, str) and not value.isprintable() else repr(value)
    return told if len(told) <= _MOST else f"{told[:_MOST]}…"


def _wrong(what: str, value: Any, wanted: str) -> ValueError:
    return ValueError(f"{what} is missing" if value is None else f"{what} is {shown(value)}, not {wanted}")
