"""Folders of partitions as a catalog has them registered: those hold the table's rows, and no others do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date

import pyarrow as pa

from metastore_assets.errors import TableFormatError
from metastore_assets.formats.files.templates import Items, Value

_TYPES: Mapping[str, pa.DataType] = {
    **dict.fromkeys(("tinyint", "smallint", "int", "integer", "bigint", "byte", "short", "long"), pa.int64()),
    "date": pa.date32(),
}
"""Of partition columns by the catalog's names; others are text, as their values are spelt."""
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")


@dataclass(frozen=True)
class RegisteredFolders:
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
    ) -> RegisteredFolders:
        """From partition columns with the catalog's types, and the path below the table of each partition's folder with
        its values. Without columns the one folder is the table's own.

        Raises TableFormatError where two partitions share files, or a value is not of its column's type.
        """
        typed = tuple((name, _TYPES.get(type_.lower(), pa.string())) for name, type_ in columns)
        found: dict[tuple[str, ...], Items] = {}
        for path, values in partitions if typed else [("", ())]:
            folders = tuple(folder for folder in path.split("/") if folder)
            if folders in found:
                raise TableFormatError(f"{table} has two partitions in one folder, {path!r}: their rows are one set")
            found[folders] = tuple(
                (name, _value(table, path, name, type_, value))
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


def _value(table: str, path: str, name: str, type_: pa.DataType, value: str | None) -> Value:
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
