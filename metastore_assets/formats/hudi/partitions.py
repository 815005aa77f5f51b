"""Partition paths of Hudi tables: the columns and values in a path, for all key generators."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import unquote

import pyarrow as pa

from metastore_assets.errors import TableFormatError
from metastore_assets.expressions.partition_keys import NULL_VALUE

PATH_COLUMN = "_hoodie_partition_path"
"""Name of the partition column of old tables that do not record their partition columns."""

_FIELDS = ("hoodie.table.partition.fields", "hoodie.table.partition.columns")
"""Names of the property with the partition columns. Hudi 0.8 used the second one."""


@dataclass(frozen=True)
class PartitionPaths:
    """The layout of a table's partition paths: which folders of a path belong to each partition column."""

    table: str
    columns: tuple[str, ...]
    depths: tuple[int | None, ...]
    """Number of folders for each column; None if it varies."""
    hive_style: bool | None
    """Whether folder names start with `column=`; None if the table does not record it."""
    dated: tuple[str, ...]
    """Columns whose values are formatted as dates in folder names."""
    encoded: bool | None
    """Whether values are percent-encoded; None if the table does not record it."""

    @classmethod
    def of(cls, table: str, properties: Mapping[str, str]) -> PartitionPaths:
        """Return the layout of partition paths that the table's properties record.

        Older tables lack some of these properties. Then `columns` may be empty, and `hive_style` or `encoded` None.
        """
        recorded_fields = next((properties[key] for key in _FIELDS if properties.get(key)), "")
        fields = [part.strip().partition(":") for part in recorded_fields.split(",") if part.strip()]
        style = properties.get("hoodie.datasource.write.hive_style_partitioning")
        encoded_flag = properties.get("hoodie.datasource.write.partitionpath.urlencode")
        generator = properties.get("hoodie.table.keygenerator.type", "") + properties.get(
            "hoodie.table.keygenerator.class", ""
        )
        dates = "TIMESTAMP" in generator.upper()
        dated_columns = tuple(name.strip() for name, _, kind in fields if dates or kind.strip().upper() == "TIMESTAMP")
        columns = tuple(name.strip() for name, _, _ in fields)
        return cls(
            table,
            columns,
            (None,)
            if len(fields) == 1
            else tuple(_depth(properties) if name in dated_columns else 1 for name in columns),
            None if style is None else style.lower() == "true",
            dated_columns,
            None if encoded_flag is None else encoded_flag.lower() == "true",
        )

    def with_folder_columns(self, partitions: Collection[str]) -> PartitionPaths:
        """Return the layout with columns from folder names, for a table that records no columns.

        For example, `year=2020/month=01` names two columns, and `ts=2020/01/31` names one. The result has no columns if
        the paths do not all name the same columns.

        The layout is returned unchanged in three cases: it has columns, its `hive_style` is False, or all paths
        name the same columns and one of these columns twice.
        """
        if self.columns or self.hive_style is False:
            return self
        named_columns = {_named_columns(path) for path in partitions}
        columns = named_columns.pop() if len(named_columns) == 1 else ()
        if len(set(columns)) < len(columns):
            return self
        return replace(self, columns=columns, hive_style=True, encoded=self.encoded is not False)

    def names(self, partitions: Collection[str]) -> tuple[str, ...]:
        """Return the names of the partition columns.

        If the layout has no columns, the result is the one name `PATH_COLUMN`, for the whole path. If every path in
        `partitions` is empty as well, the result is empty.

        Args:
            partitions: The paths of all partitions below the table's folder. The path of this folder itself is empty.
        """
        return self.columns or ((PATH_COLUMN,) if any(partitions) else ())

    def items(self, path: str) -> tuple[tuple[str, str | None], ...]:
        """Return the (column, value) pairs of a partition path.

        Raises TableFormatError if the path does not fit the layout.
        """
        if not self.columns:
            return ((PATH_COLUMN, path),) if path else ()
        texts = None if self.hive_style is False else self._hive_values(path)
        if texts is None:
            texts = self._plain_values(path)
        if texts is None:
            raise TableFormatError(
                f"{self.table}: the partition {path!r} does not fit the partition columns {', '.join(self.columns)}"
            )
        return tuple((column, self._value(text)) for column, text in zip(self.columns, texts, strict=True))

    def _hive_values(self, path: str) -> tuple[str, ...] | None:
        """Return each column's value in a path of `column=value` folders; None for another path."""
        match = re.fullmatch("/".join(f"{re.escape(column)}=(.*)" for column in self.columns), path, re.DOTALL)
        return match.groups() if match else None

    def _plain_values(self, path: str) -> tuple[str, ...] | None:
        """Return each column's value in a path without column names.

        The result is None if the path does not determine the values.
        """
        folders = path.split("/")
        fixed_depth = sum(depth for depth in self.depths if depth is not None)
        if (
            len(folders) < fixed_depth
            or self.depths.count(None) > 1
            or (None not in self.depths and len(folders) != fixed_depth)
        ):
            return None
        texts = []
        for depth in self.depths:
            length = len(folders) - fixed_depth if depth is None else depth
            texts.append("/".join(folders[:length]))
            folders = folders[length:]
            fixed_depth -= depth or 0
        return tuple(texts)

    def _value(self, text: str) -> str | None:
        if text in (NULL_VALUE, ""):
            return None
        return unquote(text) if self.encoded else text


def value_type(paths: PartitionPaths, column: str, schema: pa.Schema) -> pa.DataType:
    """Return the type that the schema gives to a partition column's values.

    The type is text if the folder names are formatted dates, or if the column has a nested type or is not in the
    schema.
    """
    fields = {} if column in paths.dated else {field.name.lower(): field for field in schema}
    field: pa.Field | None = fields.get(column.lower())
    if field is None and column not in paths.dated:
        first_name, *nested_names = column.lower().split(".")
        field = fields.get(first_name)
        for part in nested_names:
            inner = {child.name.lower(): child for child in field.type} if field and _is_struct(field) else {}
            field = inner.get(part)
    return field.type if field is not None and not pa.types.is_nested(field.type) else pa.string()


def partition_types(
    paths: PartitionPaths, columns: Sequence[str], partitions: Collection[str], schema: pa.Schema
) -> dict[str, pa.DataType]:
    """Return the type of each partition column: the schema's type if all values can be parsed as it.

    Otherwise, the type is text. For example, a key generator may write the values of a date column as numbers of days.

    Args:
        paths: the layout of partition paths.
        columns: names of the partition columns.
        partitions: the paths of all partitions.
        schema: the table's schema.
    """
    types = {column: value_type(paths, column, schema) for column in columns}
    typed_columns = {column for column, type_ in types.items() if not pa.types.is_string(type_)}
    if typed_columns:
        from metastore_assets.expressions.partition_condition import is_partition_value  # most columns are texts

        for path in partitions:
            texts = dict(paths.items(path))
            typed_columns -= {
                column for column in typed_columns if not is_partition_value(texts.get(column), types[column])
            }
    return {column: type_ if column in typed_columns else pa.string() for column, type_ in types.items()}


def unparsed_columns(paths: PartitionPaths, types: Mapping[str, pa.DataType], schema: pa.Schema) -> tuple[str, ...]:
    """Return the partition columns that are text because a value cannot be parsed as the schema's type.

    Args:
        paths: the layout of partition paths.
        types: the result of `partition_types`.
        schema: the table's schema.
    """
    return tuple(column for column, type_ in types.items() if type_ != value_type(paths, column, schema))


def _is_struct(field: pa.Field) -> bool:
    return bool(pa.types.is_struct(field.type))


def _named_columns(path: str) -> tuple[str, ...]:
    """Return the columns that a partition path names: `("day", "hour")` for `day=1/hour=2`.

    The result is empty if the first folder has no `=`, or if any folder has no name before its `=`.
    """
    folder_columns = [folder.partition("=")[0] if "=" in folder else None for folder in path.split("/")]
    return tuple(name for name in folder_columns if name) if folder_columns[0] and "" not in folder_columns else ()


def _depth(properties: Mapping[str, str]) -> int | None:
    """Return the number of nested folders of a formatted date, such as 3 for `yyyy/MM/dd`.

    The result is None if the properties record no format.
    """
    prefixes = ("hoodie.keygen.timebased", "hoodie.deltastreamer.keygen.timebased", "hoodie.streamer.keygen.timebased")
    for prefix in prefixes:
        output = properties.get(f"{prefix}.output.dateformat")
        if output:
            return output.count("/") + 1
    return None
