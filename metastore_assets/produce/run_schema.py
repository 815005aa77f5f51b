"""The columns and the order of the files of one dataset: content, key-mappings, or sums."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import polars as pl
import pyarrow as pa

from metastore_assets.produce.order import Order
from metastore_assets.produce.rows import FEW, Rows, empty_frame, source_columns

GONE = "_gone"
"""Column of a run: the unit has no rows any more. Such a row has null values."""


@dataclass(frozen=True)
class RunSchema:
    """How rows of a dataset are stored in sorted runs.

    Of several runs, the newest one that has a unit says all rows of that unit; or, where `amounts` are given, units
    have one row in each run, and what they hold is added up.
    """

    schema: pa.Schema
    """Columns of the dataset. Files of replaced units have the column GONE too."""
    order: Order
    """Of the rows in files. Rows that are equal in it stay in the order in which they were produced."""
    group_columns: int
    """How many columns of the order make up the key by which rows are looked up; a group is never split."""
    unit_columns: int
    """How many make up a unit."""
    amounts: tuple[str, ...] = ()
    unsigned: tuple[str, ...] = ()
    """Amounts whose totals are never below zero."""
    plain: bool = False
    """Whether the file is all there is: nothing in it replaces anything, or is added to it."""

    @cached_property
    def group(self) -> Order:
        """The order of the keys by which rows are looked up."""
        return self.order.first(self.group_columns)

    @cached_property
    def unit(self) -> Order:
        """The order of the units."""
        return self.order.first(self.unit_columns)

    @cached_property
    def file_schema(self) -> pa.Schema:
        """Columns of the files."""
        return self.schema.append(pa.field(GONE, pa.bool_(), nullable=False)) if self.replaces else self.schema

    @property
    def replaces(self) -> bool:
        """Whether newer rows of a unit replace older ones."""
        return not self.amounts and not self.plain

    @cached_property
    def counted(self) -> tuple[str, ...]:
        """The amounts of type int64: those whose sums over many keys are kept beside the rows."""
        return tuple(name for name in self.amounts if self.schema.field(name).type == pa.int64())

    @cached_property
    def encodings(self) -> dict[str, str]:
        """How columns of keys are stored that are small, and quick to read, because rows are sorted by them.

        Of the last one that has not few values hardly two rows beside each other have the same, so that it needs no
        dictionary: texts share how they begin, and floats their first bytes.
        """
        types = {name: self.schema.field(name).type for name in self.order.columns}
        found = {name: "DELTA_BINARY_PACKED" for name, type_ in types.items() if _is_integral(type_)}
        for last in [name for name in types if self.schema.field(name).metadata != FEW][-1:]:
            if pa.types.is_floating(types[last]):
                found[last] = "BYTE_STREAM_SPLIT"
            elif _is_text(types[last]):
                found[last] = "DELTA_BYTE_ARRAY"
        return found

    @cached_property
    def empty(self) -> pl.DataFrame:
        """No rows of a file."""
        return empty_frame(self.file_schema)

    @cached_property
    def empty_keys(self) -> pl.DataFrame:
        """No keys."""
        return self.empty[:, list(self.group.columns)]


def root_schema(rows: Rows) -> RunSchema:
    """Content of a root: its key is source and target key in one."""
    return RunSchema(rows.schema, rows.order, len(rows.key), len(rows.key))


def content_schema(rows: Rows, source: pa.Schema) -> RunSchema:
    """Content of a stage: (target key, source key, value), by target key, source key, and position."""
    fields = source_fields(source)
    order = rows.order + Order.of([field.name for field in fields])
    schema = pa.schema([*rows.key, *fields, *rows.value])
    return RunSchema(schema, order, len(rows.key), len(order.columns))


def mapping_schema(rows: Rows, source: pa.Schema) -> RunSchema:
    """Key-mappings of a stage: the set of (source key, target key), by both. All target keys of a source are a unit."""
    fields = source_fields(source)
    order = Order.of([field.name for field in fields]) + rows.order
    return RunSchema(pa.schema([*fields, *rows.key]), order, len(fields), len(fields))


def sum_schema(rows: Rows, unsigned: tuple[str, ...]) -> RunSchema:
    """Totals by key, some of which are never below zero."""
    return RunSchema(rows.schema, rows.order, len(rows.key), len(rows.key), tuple(rows.value.names), unsigned)


def source_fields(source: pa.Schema) -> list[pa.Field]:
    """Source key columns under the names that they have beside target keys."""
    names = source_columns(source.names)
    return [field.with_name(name) for field, name in zip(source, names, strict=True)]


def _is_text(type_: pa.DataType) -> bool:
    """Whether Parquet stores a type as byte arrays."""
    own = pa.types
    return any(matches(type_) for matches in (own.is_string, own.is_large_string, own.is_binary, own.is_large_binary))


def _is_integral(type_: pa.DataType) -> bool:
    """Whether Parquet stores a type as integers."""
    return (
        pa.types.is_integer(type_) or pa.types.is_date(type_) or pa.types.is_time(type_) or pa.types.is_timestamp(type_)
    )
