"""Typed rows: the key and value columns of a dataflow's root (an input), or of a stage's output.

Columns of a frame are selected as `frame[:, names]`, because `frame[names]` first tries the names as row numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import polars as pl
import pyarrow as pa

from metastore_assets.errors import GraphError
from metastore_assets.produce.order import Order

SOURCE = "_source"
"""Column with the number of a source key in its batch. In content, `_source_<name>` is a source key column."""
CHANGE = "_change"
"""Column of an update: `add`, `update` or `delete`."""


FEW_VALUES = {b"metastore.values": b"few"}
"""Field metadata of a key column with few distinct values, which is stored with a dictionary."""


@dataclass(frozen=True)
class Rows:
    """The types of rows: Arrow schemas of keys and values.

    Column names are distinct and do not begin with `_`.
    """

    key: pa.Schema
    value: pa.Schema
    descending: tuple[str, ...] = ()
    """Key columns with descending order, in which nulls come last."""

    @cached_property
    def schema(self) -> pa.Schema:
        """Key columns, followed by value columns."""
        return pa.schema([*self.key, *self.value])

    @cached_property
    def order(self) -> Order:
        """The order of the keys."""
        return Order.of(self.key.names, self.descending)

    def check(self, name: str) -> None:
        """Raise GraphError if the columns break a rule.

        `name` is the name of the root or stage, for the message.

        The rules: There is at least one key column and one value column. All columns are nullable. The names of columns
        are distinct, do not begin with `_`, and are no patterns of Polars, such as `*`. Values survive the conversion
        to Polars and back. Keys are not nested. `descending` names only key columns.
        """
        names = self.schema.names
        if not self.key.names or not self.value.names:
            raise GraphError(f"{name!r} needs at least one key column and one value column")
        twice = sorted({column for column in names if names.count(column) > 1})
        if twice:
            raise GraphError(f"{name!r} has the column {twice[0]!r} twice; keys and values share one row")
        reserved_names = [column for column in names if column.startswith("_")]
        if reserved_names:
            raise GraphError(f"{name!r}: the column name {reserved_names[0]!r} begins with `_`, which is reserved")
        patterns = [column for column in names if column in {"", "*"} or (column[0], column[-1]) == ("^", "$")]
        if patterns:
            raise GraphError(f"{name!r}: the column name {patterns[0]!r} stands for others in queries; rename it")
        required_names = [field.name for field in self.schema if not field.nullable]
        if required_names:
            raise GraphError(
                f"{name!r}: the column {required_names[0]!r} is declared not nullable; a key that is deleted has no "
                "values, so declare it nullable"
            )
        unknown = sorted(set(self.descending) - set(self.key.names))
        if unknown:
            raise GraphError(f"{name!r}: descending names {unknown[0]!r}, which is no key column")
        for field in self.schema:
            if not _is_storable(field.type) or (field.name in self.key.names and pa.types.is_nested(field.type)):
                raise GraphError(
                    f"{name!r}: the column {field.name!r} has the type {field.type}, which has no order here"
                )


def source_columns(names: list[str]) -> list[str]:
    """Return the names under which a stage's content stores key columns of its input.

    Example: `_source_id` for `id`.
    """
    return [f"{SOURCE}_{name}" for name in names]


def frame_of(table: pa.Table) -> pl.DataFrame:
    """Convert a table to a Polars frame."""
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame


def empty_frame(schema: pa.Schema) -> pl.DataFrame:
    """Return a frame with these columns and no rows."""
    return frame_of(schema.empty_table())


def with_nulls(frame: pl.DataFrame, empty: pl.DataFrame) -> pl.DataFrame:
    """Return the frame with all columns of `empty`.

    Columns that the frame lacks are null.
    """
    missing = [pl.lit(None, empty.schema[name]).alias(name) for name in empty.columns if name not in frame.columns]
    return frame.with_columns(missing)[:, empty.columns]


def table_of(frame: pl.DataFrame, schema: pa.Schema) -> pa.Table:
    """Convert a frame to a table with the columns, order and types of a schema."""
    return frame[:, schema.names].to_arrow().cast(schema)


def _is_storable(type_: pa.DataType) -> bool:
    """Return whether values of a type survive the conversion to Polars and back."""
    if pa.types.is_decimal256(type_) or pa.types.is_interval(type_) or pa.types.is_union(type_):
        return False
    if pa.types.is_dictionary(type_) or pa.types.is_run_end_encoded(type_) or pa.types.is_date64(type_):
        return False
    if pa.types.is_decimal(type_) and type_.scale < 0:
        return False
    if pa.types.is_list_view(type_) or pa.types.is_large_list_view(type_):
        return False
    if isinstance(type_, pa.BaseExtensionType):
        return bool(type_ == pa.uuid())
    if pa.types.is_struct(type_) and not type_.num_fields:
        return False
    if pa.types.is_nested(type_):
        return all(_is_storable(type_.field(index).type) for index in range(type_.num_fields))
    return True
