"""What is known of the columns of some partitions: their `statistics`, a row per partition and column."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from metastore_assets.caching import lock_free_cached_property
from metastore_assets.index.files import one_chunk
from metastore_assets.statistics.union import cast_to_union, merge_unions

PARTITIONS = pa.schema([("_key", pa.string()), ("_row_count", pa.int64())])
PLACE = pa.field("_partition", pa.int32())
"""First column of the rows: the place of the partition among those that are told of. No statistic has such a name."""
OF_UNION = ("minimum", "maximum", "percentiles")
"""The columns of `statistics` that hold values of the typed union."""


@dataclass(frozen=True)
class PartitionRows:
    """What is known of some partitions."""

    partitions: pa.Table
    """One row each: PARTITIONS."""
    rows: pa.Table
    """PLACE, then the columns of `statistics`: a row for each column that the partition was profiled with."""

    @property
    def schema(self) -> pa.Schema:
        """Of the rows."""
        return self.rows.schema

    @property
    def row_count(self) -> int:
        """Number of rows."""
        return len(self.rows)

    @lock_free_cached_property
    def columns(self) -> list[str]:
        """The field ids of the columns that there are rows of."""
        return list(self._places)

    def count(self, field_id: str) -> int:
        """How many rows a column has."""
        return self._places[field_id][1]

    def column(self, field_id: str) -> pa.Table:
        """The rows of one column."""
        return self.ordered.slice(*self._places[field_id])

    @lock_free_cached_property
    def _ids(self) -> pa.DictionaryArray:
        ids = self.rows["field_id"].combine_chunks() if len(self.rows) else pa.array([], pa.string())
        return ids.dictionary_encode()

    @lock_free_cached_property
    def ordered(self) -> pa.Table:
        """The rows, column by column."""
        numbers = self._ids.indices.to_numpy()
        if bool((numbers[1:] >= numbers[:-1]).all()):
            return self.rows
        return self.rows.take(pa.array(np.argsort(numbers, kind="stable")))

    @lock_free_cached_property
    def _places(self) -> dict[str, tuple[int, int]]:
        """By field id, first row in `ordered` and number of rows."""
        names = self._ids.dictionary.to_pylist()
        counts = np.bincount(self._ids.indices.to_numpy(), minlength=len(names))
        firsts = np.cumsum(counts) - counts
        return dict(zip(names, zip(firsts.tolist(), counts.tolist(), strict=True), strict=True))


def stacked(partitions: Sequence[tuple[str, int]], tables: Sequence[pa.Table]) -> PartitionRows:
    """Partitions, by key and number of rows, and of each its `statistics`, in the same order."""
    keys, counts = zip(*partitions, strict=True) if partitions else ((), ())
    told = pa.table([pa.array(keys, pa.string()), pa.array(counts, pa.int64())], schema=PARTITIONS)
    schema = rows_schema(table.schema for table in tables)
    parts = [
        in_schema(table.add_column(0, PLACE, pa.array(np.full(len(table), at, np.int32))), schema)
        for at, table in enumerate(tables)
    ]
    return PartitionRows(told, pa.concat_tables(parts) if parts else no_rows(schema))


class Part(Protocol):
    """What is known of some partitions, wherever it is."""

    @property
    def partitions(self) -> pa.Table: ...

    @property
    def schema(self) -> pa.Schema: ...

    @property
    def rows(self) -> pa.Table: ...


def joined(parts: Sequence[Part]) -> PartitionRows:
    """What is known of the partitions of all of them."""
    if len(parts) == 1 and isinstance(parts[0], PartitionRows):
        return parts[0]
    schema = rows_schema(part.schema for part in parts)
    rows, first = [no_rows(schema)], 0
    for part in parts:
        own = part.rows
        rows.append(in_schema(placed(own, own[PLACE.name].to_numpy() + first), schema))
        first += len(part.partitions)
    partitions = pa.concat_tables([PARTITIONS.empty_table(), *(part.partitions for part in parts)])
    return PartitionRows(partitions, pa.concat_tables(rows))


def placed(rows: pa.Table, places: npt.NDArray[np.integer]) -> pa.Table:
    """The same rows of partitions in other places."""
    return rows.set_column(0, PLACE, pa.array(places.astype(np.int32, copy=False)))


def rows_schema(schemas: Iterable[pa.Schema]) -> pa.Schema:
    """The columns of rows of all these schemas: values are of the union of their classes."""
    held = list(schemas)
    union = merge_unions(schema.field("minimum").type for schema in held if "minimum" in schema.names)
    fields = {PLACE.name: PLACE} | {field.name: pa.field(field.name, field.type) for own in held for field in own}
    for name in set(OF_UNION) & set(fields):
        type_ = union
        if name == "percentiles":
            type_ = pa.list_(pa.struct([("fraction", pa.float64()), ("value", union)]))
        fields[name] = pa.field(name, type_)
    return pa.schema(fields.values())


def in_schema(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The same rows with the columns of a schema that has all of theirs. Raises ArrowInvalid."""
    if rows.schema.equals(schema):
        return rows
    union = merge_unions([schema.field("minimum").type]) if "minimum" in schema.names else None
    arrays = []
    for field in schema:
        if field.name not in rows.column_names:
            arrays.append(pa.nulls(len(rows), field.type))
        elif field.name in OF_UNION:
            arrays.append(cast_to_union(one_chunk(rows[field.name]), union))
        else:
            own = rows[field.name]
            arrays.append(own if own.type == field.type else _cast(own, field.type))
    return pa.Table.from_arrays(arrays, schema=schema)


def no_rows(schema: pa.Schema) -> pa.Table:
    """A table without rows. Arrow makes none of itself where a column has a part of an extension type."""
    return pa.Table.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


def _cast(column: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    """A statistic of users that had another type once may be left in rows that nobody asks for: without a value."""
    if column.null_count == len(column):
        return pa.nulls(len(column), type_)
    return pc.cast(column, type_)
