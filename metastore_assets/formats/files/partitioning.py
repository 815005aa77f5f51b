"""Partition values of plain files.

They come from folders `column=value`, from a template such as `{year:int}/{month}`, or from a catalog's entries.
"""

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
    from metastore_assets.formats.catalogs.base import RegisteredFolders

Value = str | int | date | None
Items = tuple[tuple[str, Value], ...]
"""(column, value) pairs of the folders of a path, outermost first."""

_PLACEHOLDER = re.compile(r"\{([^{}:]*)(?::([^{}]*))?\}")
_TYPES: Mapping[str, tuple[str, pa.DataType]] = {
    "text": (r"[^/]+?", pa.string()),
    "int": (r"-?[0-9]{1,19}", pa.int64()),
    "date": (r"[0-9]{4}-[0-9]{2}-[0-9]{2}", pa.date32()),
}
"""Pattern and Arrow type of a value, by the name of the type in a template."""


_CATALOG_TYPES: Mapping[str, pa.DataType] = {
    **dict.fromkeys(("tinyint", "smallint", "int", "integer", "bigint", "byte", "short", "long"), pa.int64()),
    "date": pa.date32(),
}
"""Arrow types of partition columns, by the name of the type in a catalog. Columns of other types are text."""
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_DATE = re.compile(_TYPES["date"][0])


class Partitioning(Protocol):
    """The rules that derive partition values from folders.

    The argument `folders` of the methods is a path: the names of folders below the table's folder, outermost first.
    """

    @property
    def types(self) -> Mapping[str, pa.DataType]:
        """The types of the partition columns that a template or a catalog declares, by name.

        Other partition columns are text, and are found only when files are listed.
        """

    def items(self, folders: Sequence[str]) -> Items:
        """Return (column, value) for each partition value that the folders of a path determine.

        If the path does not lead all the way to a folder of files, some partition columns may be missing. For example,
        `year=2024` determines no month. Raises ValueError if the name of a folder contradicts the partitioning.
        """

    def check(self, folders: Sequence[str]) -> None:
        """Raise ValueError if the partitioning forbids files directly in the last folder of this path."""

    def may_contain_files(self, folders: Sequence[str]) -> bool:
        """Return whether files of the table may lie in the last folder of this path, or below it."""

    def contains_files(self, folders: Sequence[str]) -> bool:
        """Return whether files directly in the last folder of this path belong to the table."""

    def is_registered(self, folders: Sequence[str]) -> bool:
        """Return whether a catalog registers a partition in the last folder of this path, or below it.

        If so, the folder is listed even if its name would hide it, as `_tmp` does.
        """


@dataclass(frozen=True)
class HivePartitioning:
    """Partitions in folders `column=value`, percent-encoded, as Hive and Spark write them.

    Values are text, or null for the folder name that Hive writes for null.
    """

    @property
    def types(self) -> Mapping[str, pa.DataType]:
        return {}

    def items(self, folders: Sequence[str]) -> Items:
        """Return the values of the folders `column=value`.

        Other folders have no value.

        Raises ValueError if a column occurs twice, or if a folder is not percent-encoded UTF-8.
        """
        items: dict[str, Value] = {}
        for folder in folders:
            name, equals, value = folder.partition("=")
            if not equals or not name:
                continue
            decoded_name = _unquote(name)
            if decoded_name in items:
                raise ValueError(f"two values of the partition column {decoded_name!r}")
            items[decoded_name] = None if value == NULL_VALUE else _unquote(value)
        return tuple(items.items())

    def check(self, folders: Sequence[str]) -> None:
        """Accept every path, because files may lie at any depth."""

    def may_contain_files(self, folders: Sequence[str]) -> bool:
        return True

    def contains_files(self, folders: Sequence[str]) -> bool:
        return True

    def is_registered(self, folders: Sequence[str]) -> bool:
        return False


@dataclass(frozen=True)
class TemplatePartitioning:
    """Partitions in folders that follow a template, such as `{year:int}/{month}` or `dt={day:date}`.

    A value is an integer, a date, or the text itself. The text that Hive writes for null becomes null.
    """

    text: str

    @classmethod
    def of(cls, table: str, text: Any) -> TemplatePartitioning:
        """Parse a template.

        Args:
            table: name of the table, for messages.
            text: the option in the configuration, which may be of any type.

        Raises:
            ConfigError: the option is no valid template.
        """
        where = f"table {table!r}: options.template = {text!r}"
        if not isinstance(text, str) or not text.strip("/"):
            raise ConfigError(f"{where}: folders such as {{year:int}}/{{month}}/{{day}}")
        names: list[str] = []
        for name, type_ in _PLACEHOLDER.findall(text):
            if not name or name in names or "/" in name:
                raise ConfigError(f"{where}: each placeholder has a name of its own, without a slash")
            if type_ and type_ not in _TYPES:
                raise ConfigError(f"{where}: {type_!r} is no type of a placeholder: {', '.join(_TYPES)}")
            names.append(name)
        fixed_text = _PLACEHOLDER.sub("\0", text)
        if not names or "\0\0" in fixed_text or "{" in fixed_text or "}" in fixed_text or "//" in text.strip("/"):
            raise ConfigError(f"{where}: placeholders are {{name}} or {{name:type}}, with something fixed between two")
        return cls(text.strip("/"))

    @property
    def types(self) -> Mapping[str, pa.DataType]:
        return {name: _TYPES[type_ or "text"][1] for name, type_ in _PLACEHOLDER.findall(self.text)}

    def items(self, folders: Sequence[str]) -> Items:
        """Return the values of the placeholders in the template, fewer for a path shorter than the template.

        Raises ValueError if a folder does not match, or if the path is longer than the template.
        """
        segments = self.text.split("/")
        if len(folders) > len(segments):
            raise ValueError(f"folders that are deeper than the template {self.text!r}")
        types = self.types
        items: list[tuple[str, Value]] = []
        for segment, folder in zip(segments, folders, strict=False):
            match = _pattern(segment).fullmatch(folder)
            if match is None:
                raise ValueError(f"the folder {folder!r} where the template {self.text!r} has {segment!r}")
            names = [name for name, _ in _PLACEHOLDER.findall(segment)]
            items += [(name, self._value(text, types[name])) for name, text in zip(names, match.groups(), strict=True)]
        return tuple(items)

    def check(self, folders: Sequence[str]) -> None:
        if len(folders) != self.text.count("/") + 1:
            raise ValueError(f"folders that are not as deep as the template {self.text!r}")

    def may_contain_files(self, folders: Sequence[str]) -> bool:
        return True

    def contains_files(self, folders: Sequence[str]) -> bool:
        return True

    def is_registered(self, folders: Sequence[str]) -> bool:
        return False

    def _value(self, text: str, type_: pa.DataType) -> Value:
        """Parse the text of a folder as a value of a type.

        Raises ValueError if the text is no value of the type.
        """
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
    """Partitions that a catalog registers.

    Only files in their folders belong to the table.
    """

    columns: tuple[tuple[str, pa.DataType], ...]
    by_folder: Mapping[tuple[str, ...], Items] = field(repr=False)
    """Partition values by the path of the partition's folder. No folder lies in another one."""
    above: frozenset[tuple[str, ...]] = field(repr=False)
    """Paths of all folders above the folders of partitions."""

    @classmethod
    def of(
        cls,
        table: str,
        columns: Iterable[tuple[str, str]],
        partitions: Iterable[tuple[str, Sequence[str | None]]],
    ) -> CatalogPartitioning:
        """Return the partitioning of the partitions that a catalog registers.

        Args:
            table: URI of the table, for messages.
            columns: names of the partition columns, with the types that the catalog names. Without columns, all files
                in the table's folder belong to the table.
            partitions: path of each partition's folder, relative to the table, and its values.

        Raises:
            TableFormatError: two partitions share files, or a value is not of the type of its column.
        """
        typed_columns = tuple((name, _CATALOG_TYPES.get(type_.lower(), pa.string())) for name, type_ in columns)
        by_folder: dict[tuple[str, ...], Items] = {}
        for path, values in partitions if typed_columns else [("", ())]:
            folders = tuple(folder for folder in path.split("/") if folder)
            if folders in by_folder:
                raise TableFormatError(f"{table} has two partitions in one folder, {path!r}: their rows are one set")
            by_folder[folders] = tuple(
                (name, _catalog_value(table, path, name, type_, value))
                for (name, type_), value in zip(typed_columns, values, strict=True)
            )
        above = frozenset(folders[:length] for folders in by_folder for length in range(len(folders)))
        for folders in by_folder.keys() & above:
            where = f"the folder {'/'.join(folders)!r}" if folders else "its own folder"
            raise TableFormatError(
                f"{table} has a partition in {where}, and another one inside of that, whose rows would be in both"
            )
        return cls(typed_columns, by_folder, above)

    @property
    def types(self) -> Mapping[str, pa.DataType]:
        return dict(self.columns)

    def may_contain_files(self, folders: Sequence[str]) -> bool:
        """Return whether a path is the folder of a registered partition, or lies above or below one."""
        return tuple(folders) in self.above or self._items(folders) is not None

    def contains_files(self, folders: Sequence[str]) -> bool:
        """Return whether the path `folders` is the folder of a registered partition, or lies below one."""
        return self._items(folders) is not None

    def is_registered(self, folders: Sequence[str]) -> bool:
        """Return whether a path is the folder of a registered partition, or lies above one."""
        return tuple(folders) in self.above or tuple(folders) in self.by_folder

    def items(self, folders: Sequence[str]) -> Items:
        return self._items(folders) or ()

    def check(self, folders: Sequence[str]) -> None:
        """Accept every path, because files may lie at any depth below the folder of a partition."""

    def _items(self, folders: Sequence[str]) -> Items | None:
        for length in range(len(folders) + 1):
            if (items := self.by_folder.get(tuple(folders[:length]))) is not None:
                return items
        return None


def _catalog_value(table: str, path: str, name: str, type_: pa.DataType, value: str | None) -> Value:
    """Return a partition value that a catalog records as text, converted to the column's type.

    None stays None.

    Only integers and dates are converted; other values are returned as text.

    Args:
        table: The table's name, for messages.
        path: The partition's folder, for messages.
        name: The column's name, for messages.
        type_: The type of the column.
        value: The recorded text; None for null.

    Raises:
        TableFormatError: The text is no value of the type.
    """
    if value is None:
        return None
    try:
        if pa.types.is_integer(type_):
            if not _INTEGER.fullmatch(value):
                raise ValueError
            return int(pa.scalar(int(value), type_).as_py())
        if pa.types.is_date(type_):
            # Python would take 20240105 and 2024-W01-5 as dates too.
            if not _DATE.fullmatch(value):
                raise ValueError
            return date.fromisoformat(value)
        return value
    except (ValueError, OverflowError, pa.ArrowInvalid):
        raise TableFormatError(
            f"{table} has a partition in the folder {path!r} with {name} = {value!r}, which is no {type_}"
        ) from None


def catalog_partitioning(table: TableConfig, registered_folders: RegisteredFolders) -> CatalogPartitioning:
    """Return the partitioning by the folders that a catalog registers for the table.

    Raises:
        TableFormatError: a partition lies outside of the table's folder, so that its rows would be missing.
    """
    table_folder = table_location(table)
    location_policy = LocationPolicy.of(table, table_folder)
    partitions = []
    for partition in registered_folders.partitions:
        location, path = location_policy.resolve(partition.location)
        if location != table_folder:
            values = "/".join(map(str, partition.values))
            raise TableFormatError(
                f"its partition {values} lies at {partition.location}, outside of the table's folder "
                f"{table_folder.uri}; tables with partitions elsewhere are not supported"
            )
        partitions.append((path, partition.values))
    return CatalogPartitioning.of(table_folder.uri, registered_folders.columns, partitions)


def key_items(items: Items) -> tuple[tuple[str, str | None], ...]:
    """Return the (column, value) pairs with values as text, as partition keys have them."""
    return tuple((name, None if value is None else str(value)) for name, value in items)


def typed_constant(value: Value) -> Constant:
    """Return a partition value as a constant of Arrow, whose type follows from the Python type.

    A null becomes a constant of the type string.
    """
    return constant(value, pa.string() if value is None else None)


def _pattern(segment: str) -> re.Pattern[str]:
    """Return a regular expression for one folder of a template.

    It has a group for each placeholder.
    """
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
