"""Columns and order of the sorted files (runs) of a dataset.

A dataset has the rows of a root (an input of the dataflow), the content or the key-mappings of a stage, or the totals
of a sum stage. A stage computes content for target keys (the keys of its output) from source keys (the keys of its
input). Key-mappings are the pairs (source key, target key).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import polars as pl
import pyarrow as pa

from metastore_assets.produce.order import Order
from metastore_assets.produce.typed_rows import FEW_VALUES, Rows, empty_frame, source_columns

TOMBSTONE = "_gone"
"""Column that is true for a tombstone, a row that deletes all rows of its unit. Its values are null."""


@dataclass(frozen=True)
class RunSchema:
    """The columns of a dataset's runs, and how the rows of several runs are combined.

    A unit is a group of rows with equal values in the first `unit_columns` columns of `order`. There are three cases:

    - By default, units are replaced: the newest run with rows of a unit has its current rows. A tombstone is a row that
      deletes a unit.
    - With `amounts` (names of columns), each run has at most one row per unit. The amounts of all runs are added up.
    - With `plain`, each file is complete, and is not combined with other files.
    """

    schema: pa.Schema
    """Columns of the dataset. If units are replaced, its files also have the tombstone column."""
    order: Order
    """Order of the rows in files. Equal rows stay in the order in which they were produced."""
    group_columns: int
    """Number of first columns of the order that form the key of lookups. No frame or file ends within a key."""
    unit_columns: int
    """Number of first columns of the order that identify a unit."""
    amounts: tuple[str, ...] = ()
    unsigned: tuple[str, ...] = ()
    """Amounts whose totals are never negative."""
    plain: bool = False
    """Whether a file is complete, so that its rows neither replace other rows nor are added to them."""

    @cached_property
    def group(self) -> Order:
        """The order by the columns that lookups search: the first `group_columns` columns of `order`."""
        return self.order.first(self.group_columns)

    @cached_property
    def unit(self) -> Order:
        """The first `unit_columns` columns of `order`, which identify a unit.

        A unit is rows that are replaced together.
        """
        return self.order.first(self.unit_columns)

    @cached_property
    def file_schema(self) -> pa.Schema:
        """The columns of the files: those of the dataset, and a tombstone column if `replaces`.

        With `replaces`, newer rows replace older ones.
        """
        return self.schema.append(pa.field(TOMBSTONE, pa.bool_(), nullable=False)) if self.replaces else self.schema

    @property
    def replaces(self) -> bool:
        """Whether newer rows replace older rows with equal values in the columns of `unit`.

        Newer rows do not replace older ones if the amounts of all runs are added up (`amounts`), or if each file stands
        alone (`plain`).
        """
        return not self.amounts and not self.plain

    @cached_property
    def counted(self) -> tuple[str, ...]:
        """The int64 amounts whose sums per row group are stored in the file's footer."""
        return tuple(name for name in self.amounts if self.schema.field(name).type == pa.int64())

    @cached_property
    def encodings(self) -> dict[str, str]:
        """{key column: Parquet encoding}.

        Columns with the default encoding are omitted.

        The encodings make sorted values small and fast to read. Example: `DELTA_BINARY_PACKED` for integers and times.
        """
        types = {name: self.schema.field(name).type for name in self.order.columns}
        encodings = {name: "DELTA_BINARY_PACKED" for name, type_ in types.items() if _is_integral(type_)}
        for last in [name for name in types if self.schema.field(name).metadata != FEW_VALUES][-1:]:
            if pa.types.is_floating(types[last]):
                encodings[last] = "BYTE_STREAM_SPLIT"
            elif _is_byte_array(types[last]):
                encodings[last] = "DELTA_BYTE_ARRAY"
        return encodings

    @cached_property
    def empty(self) -> pl.DataFrame:
        """A frame with the columns of a file and no rows."""
        return empty_frame(self.file_schema)

    @cached_property
    def empty_keys(self) -> pl.DataFrame:
        """A frame with the key columns and no rows."""
        return self.empty[:, list(self.group.columns)]


def root_schema(rows: Rows) -> RunSchema:
    """Return the schema of the content of a root: its columns, sorted by its key.

    The rows of a root are from an external source.
    """
    return RunSchema(rows.schema, rows.order, len(rows.key), len(rows.key))


def content_schema(rows: Rows, source: pa.Schema) -> RunSchema:
    """Return the schema of a stage's content: target key, source key and value, sorted by both keys."""
    fields = source_fields(source)
    order = rows.order + Order.of([field.name for field in fields])
    schema = pa.schema([*rows.key, *fields, *rows.value])
    return RunSchema(schema, order, len(rows.key), len(order.columns))


def mapping_schema(rows: Rows, source: pa.Schema) -> RunSchema:
    """Return the schema of key-mappings: source key and target key, sorted by both.

    All target keys of a source key are one unit: they are replaced together.
    """
    fields = source_fields(source)
    order = Order.of([field.name for field in fields]) + rows.order
    return RunSchema(pa.schema([*fields, *rows.key]), order, len(fields), len(fields))


def sum_schema(rows: Rows, unsigned: tuple[str, ...]) -> RunSchema:
    """Return the schema of totals by key.

    Totals in `unsigned` are never negative.
    """
    return RunSchema(rows.schema, rows.order, len(rows.key), len(rows.key), tuple(rows.value.names), unsigned)


def source_fields(source: pa.Schema) -> list[pa.Field]:
    """Return the fields of a source key, renamed as in the content of a stage: `id` becomes `_source_id`."""
    names = source_columns(source.names)
    return [field.with_name(name) for field, name in zip(source, names, strict=True)]


def _is_byte_array(type_: pa.DataType) -> bool:
    """Return whether Parquet stores a type as byte arrays."""
    types = pa.types
    return any(
        matches(type_) for matches in (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
    )


def _is_integral(type_: pa.DataType) -> bool:
    """Return whether Parquet stores a type as integers."""
    return (
        pa.types.is_integer(type_) or pa.types.is_date(type_) or pa.types.is_time(type_) or pa.types.is_timestamp(type_)
    )
