"""Checks of the arguments of public methods, whose errors name the argument and say what it may be."""

from __future__ import annotations

import operator
import reprlib
from collections.abc import Iterable, Mapping
from typing import Any


def check_text(name: str, value: object, description: str) -> None:
    """Raise TypeError if an argument is no text.

    Args:
        name: The name of the argument.
        value: The argument.
        description: What the argument may be, for the message.
    """
    if not isinstance(value, str):
        raise TypeError(f"{name} must be {description}, not {reprlib.repr(value)}")


def check_partition(partition: object) -> None:
    """Raise TypeError if an argument that selects a partition is no text."""
    check_text("partition", partition, "a text, a key such as 'day=2024-01-01' or a pattern")


def partition_texts(partitions: Any) -> tuple[str, ...]:
    """Return the texts in an argument that selects partitions.

    Raises TypeError if the argument is neither one text nor several.
    """
    return text_tuple("partition", partitions, "one or several texts, each a key or a pattern")


def text_tuple(name: str, value: Any, description: str) -> tuple[str, ...]:
    """Return the texts in an argument that is one text or several.

    Raises TypeError if the argument is neither one text nor several. `name` and `description` are for the message, as
    in `check_text`.
    """
    if isinstance(value, str):
        return (value,)
    if isinstance(value, bytes) or not isinstance(value, Iterable):
        raise TypeError(f"{name} must be {description}, not {reprlib.repr(value)}")
    values = tuple(value)
    for each in values:
        check_text(name, each, description)
    return values


def check_mapping(name: str, value: object) -> None:
    """Raise TypeError if an argument is neither None nor a mapping of texts."""
    if value is None:
        return
    if not isinstance(value, Mapping) or not all(isinstance(text, str) for pair in value.items() for text in pair):
        raise TypeError(f"{name} must be a mapping of texts, such as {{'aws_region': 'eu-west-1'}}")


def integer_argument(name: str, value: Any, least: int) -> int:
    """Return an argument that is a whole number.

    Raises ValueError if it is no whole number, or less than `least`.
    """
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if number < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, not {reprlib.repr(value)}")
    return number
