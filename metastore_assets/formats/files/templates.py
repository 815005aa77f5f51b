"""What folders' names say of partition values: `column=value`, or by a template such as `{year:int}/{month}`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Protocol
from urllib.parse import unquote_to_bytes

import pyarrow as pa

from metastore_assets.errors import ConfigError
from metastore_assets.expressions.partition_keys import NULL_VALUE
from metastore_assets.formats.values import Constant, constant

Value = str | int | date | None
Items = tuple[tuple[str, Value], ...]
"""(column, value) pairs, outermost first."""

_PLACEHOLDER = re.compile(r"\{([^{}:]*)(?::([^{}]*))?\}")
_TYPES: Mapping[str, tuple[str, pa.DataType]] = {
    "text": (r"[^/]+?", pa.string()),
    "int": (r"-?[0-9]{1,19}", pa.int64()),
    "date": (r"[0-9]{4}-[0-9]{2}-[0-9]{2}", pa.date32()),
}
"""By the word in a template: what a value looks like, and its Arrow type."""


class Folders(Protocol):
    """How the names of folders say the partition values of the files below."""

    @property
    def types(self) -> Mapping[str, pa.DataType]:
        """Of the columns that are there whatever the files; others are text."""

    def items(self, folders: Sequence[str]) -> Items:
        """The values that a path of folders says, also one that does not go down to the files.

        Raises ValueError for folders that say none.
        """

    def check(self, folders: Sequence[str]) -> None:
        """Raise ValueError when no file may lie in that path of folders."""

    def leads(self, folders: Sequence[str]) -> bool:
        """Whether there may be files of the table in that path of folders or below."""

    def holds(self, folders: Sequence[str]) -> bool:
        """Whether files in that path of folders are the table's, if there are any."""


@dataclass(frozen=True)
class HiveFolders:
    """`column=value`, as Hive and Spark write them, percent-encoded; other folders say nothing. Values are text."""

    @property
    def types(self) -> Mapping[str, pa.DataType]:
        return {}

    def items(self, folders: Sequence[str]) -> Items:
        items: dict[str, Value] = {}
        for folder in folders:
            name, equals, value = folder.partition("=")
            if not equals or not name:
                continue
            decoded = _unquote(name)
            if decoded in items:
                raise ValueError(f"two values of the partition column {decoded!r}")
            items[decoded] = None if value == NULL_VALUE else _unquote(value)
        return tuple(items.items())

    def check(self, folders: Sequence[str]) -> None:
        """Files lie at any depth."""

    def leads(self, folders: Sequence[str]) -> bool:
        return True

    def holds(self, folders: Sequence[str]) -> bool:
        return True


@dataclass(frozen=True)
class Template:
    """Folders that say values by their place: `{year:int}/{month}/{day}`, also with fixed parts: `dt={day:date}`.

    A value is text as it stands there (but Hive's word for null is null), an integer, or a date. Every file lies
    exactly as deep as the template.
    """

    text: str

    @classmethod
    def of(cls, table: str, text: Any) -> Template:
        """From a table's configuration. Raises ConfigError naming the key, the value and what is allowed."""
        where = f"table {table!r}: options.template = {text!r}"
        if not isinstance(text, str) or not text.strip("/"):
            raise ConfigError(f"{where}: folders such as {{year:int}}/{{month}}/{{day}}")
        names: list[str] = []
        for name, type_ in _PLACEHOLDER.findall(text):
            if not name or name in names:
                raise ConfigError(f"{where}: each placeholder has a name of its own")
            if type_ and type_ not in _TYPES:
                raise ConfigError(f"{where}: {type_!r} is no type of a placeholder: {', '.join(_TYPES)}")
            names.append(name)
        rest = _PLACEHOLDER.sub("\0", text)
        if not names or "\0\0" in rest or "{" in rest or "}" in rest or "//" in text.strip("/"):
            raise ConfigError(f"{where}: placeholders are {{name}} or {{name:type}}, with something fixed between two")
        return cls(text.strip("/"))

    @property
    def types(self) -> Mapping[str, pa.DataType]:
        return {name: _TYPES[type_ or "text"][1] for name, type_ in _PLACEHOLDER.findall(self.text)}

    def items(self, folders: Sequence[str]) -> Items:
        wanted = self.text.split("/")
        if len(folders) > len(wanted):
            raise ValueError(f"folders that are deeper than the template {self.text!r}")
        types = self.types
        items: list[tuple[str, Value]] = []
        for segment, folder in zip(wanted, folders, strict=False):
            match = _pattern(segment).fullmatch(folder)
            if match is None:
                raise ValueError(f"the folder {folder!r} where the template {self.text!r} has {segment!r}")
            names = [name for name, _ in _PLACEHOLDER.findall(segment)]
            items += [(name, self._value(text, types[name])) for name, text in zip(names, match.groups(), strict=True)]
        return tuple(items)

    def check(self, folders: Sequence[str]) -> None:
        if len(folders) != self.text.count("/") + 1:
            raise ValueError(f"folders that are not as deep as the template {self.text!r}")

    def leads(self, folders: Sequence[str]) -> bool:
        return True

    def holds(self, folders: Sequence[str]) -> bool:
        return True

    def _value(self, text: str, type_: pa.DataType) -> Value:
        try:
            if pa.types.is_integer(type_):
                return int(pa.scalar(int(text), type_).as_py())
            if pa.types.is_date(type_):
                return date.fromisoformat(text)
            return None if text == NULL_VALUE else text
        except (ValueError, OverflowError):
            raise ValueError(f"{text!r} where the template {self.text!r} has a value of the type {type_}") from None


def texts(items: Items) -> tuple[tuple[str, str | None], ...]:
    """The same pairs with the values as partition keys spell them."""
    return tuple((name, None if value is None else str(value)) for name, value in items)


def typed(value: Value) -> Constant:
    """The value in its column's Arrow type."""
    return constant(value, pa.string() if value is None else None)


def _pattern(segment: str) -> re.Pattern[str]:
    parts = []
    end = 0
    for match in _PLACEHOLDER.finditer(segment):
        parts += [re.escape(segment[end : match.start()]), f"({_TYPES[match[2] or 'text'][0]})"]
        end = match.end()
    return re.compile("".join([*parts, re.escape(segment[end:])]), re.DOTALL)


def _unquote(text: str) -> str:
    try:
        return unquote_to_bytes(text).decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"the folder {text!r}, which is not percent-encoded UTF-8") from None
