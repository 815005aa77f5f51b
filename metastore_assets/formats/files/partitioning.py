"""What folders' names say of partition values: `column=value`, or by a template such as `{year:int}/{month}`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote_to_bytes

import pyarrow as pa

from metastore_assets.errors import ConfigError, TableFormatError
from metastore_assets.expressions.partition_keys import NULL_VALUE
from metastore_assets.formats.values import Constant, constant
from metastore_assets.storage.location_policy import LocationPolicy, table_location

if TYPE_CHECKING:
    from metastore_assets.config import TableConfig
    from metastore_assets.formats.catalogs.base import Folders

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


_CATALOG_TYPES: Mapping[str, pa.DataType] = {
    **dict.fromkeys(("tinyint", "smallint", "int", "integer", "bigint", "byte", "short", "long"), pa.int64()),
    "date": pa.date32(),
}
"""Of partition columns by the catalog's names; others are text, as their values are spelt."""
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")


class Partitioning(Protocol):
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
class HivePartitioning:
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
class TemplatePartitioning:
    """Folders that say values by their place: `{year:int}/{month}/{day}`, also with fixed parts: `dt={day:date}`.

    A value is text as it stands there (but Hive's word for null is null), an integer, or a date. Every file lies
    exactly as deep as the template.
    """

    text: str

    @classmethod
    def of(cls, table: str, text: Any) -> TemplatePartitioning:
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


@dataclass(frozen=True)
class CatalogPartitioning:
    """What the folders of registered partitions say: their values, wherever below the table they lie."""

    columns: tuple[tuple[str, pa.DataType], ...]
    by_folder: Mapping[tuple[str, ...], Items] = field(repr=False)
    """By the folders that lead to it, of which none leads to another."""
    above: frozenset[tuple[str, ...]] = field(repr=False)
    """Folders on the way to them."""

    @classmethod
    def of(
        cls,
        table: str,
        columns: Iterable[tuple[str, str]],
        partitions: Iterable[tuple[str, Sequence[str | None]]],
    ) -> CatalogPartitioning:
        """From partition columns with the catalog's types, and the path below the table of each partition's folder with
        its values. Without columns the one folder is the table's own.

        Raises TableFormatError where two partitions share files, or a value is not of its column's type.
        """
        typed = tuple((name, _CATALOG_TYPES.get(type_.lower(), pa.string())) for name, type_ in columns)
        found: dict[tuple[str, ...], Items] = {}
        for path, values in partitions if typed else [("", ())]:
            folders = tuple(folder for folder in path.split("/") if folder)
            if folders in found:
                raise TableFormatError(f"{table} has two partitions in one folder, {path!r}: their rows are one set")
            found[folders] = tuple(
                (name, _catalog_value(table, path, name, type_, value))
                for (name, type_), value in zip(typed, values, strict=True)
            )
        above = frozenset(folders[:length] for folders in found for length in range(len(folders)))
        for folders in found.keys() & above:
            where = f"the folder {'/'.join(folders)!r}" if folders else "its own folder"
            raise TableFormatError(
                f"{table} has a partition in {where}, and another one inside of that, whose rows would be in both"
            )
        return cls(typed, found, above)

    @property
    def types(self) -> Mapping[str, pa.DataType]:
        return dict(self.columns)

    def leads(self, folders: Sequence[str]) -> bool:
        """Whether a folder is one of them, leads to one, or lies in one."""
        return tuple(folders) in self.above or self._items(folders) is not None

    def holds(self, folders: Sequence[str]) -> bool:
        """Whether files there are rows of the table."""
        return self._items(folders) is not None

    def items(self, folders: Sequence[str]) -> Items:
        return self._items(folders) or ()

    def check(self, folders: Sequence[str]) -> None:
        """Files lie at any depth of their partition's folder."""

    def _items(self, folders: Sequence[str]) -> Items | None:
        for length in range(len(folders) + 1):
            if (items := self.by_folder.get(tuple(folders[:length]))) is not None:
                return items
        return None


def _catalog_value(table: str, path: str, name: str, type_: pa.DataType, value: str | None) -> Value:
    if value is None:
        return None
    try:
        if pa.types.is_integer(type_):
            if not _INTEGER.fullmatch(value):
                raise ValueError
            return int(pa.scalar(int(value), type_).as_py())
        return date.fromisoformat(value) if pa.types.is_date(type_) else value
    except (ValueError, OverflowError, pa.ArrowInvalid):
        raise TableFormatError(
            f"{table} has a partition in the folder {path!r} with {name} = {value!r}, which is no {type_}"
        ) from None


def catalog_partitioning(table: TableConfig, registered: Folders) -> CatalogPartitioning:
    """Return the partitioning by the folders that a catalog registers.

    Raises TableFormatError for a partition outside of the table's folder, because its rows would be missing.
    """
    table_folder = table_location(table)
    location_policy = LocationPolicy.of(table, table_folder)
    partitions = []
    for partition in registered.partitions:
        location, path = location_policy.resolve(partition.location)
        if location != table_folder:
            values = "/".join(map(str, partition.values))
            raise TableFormatError(
                f"its partition {values} lies at {partition.location}, outside of the table's folder "
                f"{table_folder.uri}; tables with partitions elsewhere are not supported"
            )
        partitions.append((path, partition.values))
    return CatalogPartitioning.of(table_folder.uri, registered.columns, partitions)


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
