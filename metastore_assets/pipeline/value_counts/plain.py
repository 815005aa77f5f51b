"""Plain files of value counts: one row per column and value, by decreasing frequency, or by value with ranks."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, zip_longest

import numpy as np
import pyarrow as pa

from metastore_assets.errors import CorruptionError, ObjectNotFoundError
from metastore_assets.pipeline.profiles.states_writer import value_encodings
from metastore_assets.statistics.tables import build_value_counts_table
from metastore_assets.statistics.union import union_type
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.parquet import parquet_errors
from metastore_assets.store.sections import SectionReader, SectionWriter
from metastore_assets.value_counts import TableValueCounts, ValueCountReader
from metastore_assets.values.leaf_columns import LeafColumn
from metastore_assets.values.types import class_named

_FOLDER = "table"
_NO_ROWS = pa.table({"value": pa.nulls(0), "frequency": pa.array([], pa.int64()), "rank": pa.array([], pa.int64())})


def write_frequencies(store: ObjectStore, lists: TableValueCounts, leaves: Sequence[LeafColumn]) -> str:
    """Write `column`, `value`, `frequency` of columns, by decreasing frequency, then value; return the path.

    Of a fingerprinted column, only values that occur at least twice are written.
    """
    reader = ValueCountReader(store, lists)

    def rows(leaf: LeafColumn) -> Iterable[pa.Table]:
        least = 2 if leaf.field_id in lists.fingerprinted.columns else 1
        return reader.by_frequency(leaf.field_id, reader.columns[leaf.field_id], least)

    return _write(store, "frequencies", reader, leaves, rows)


def write_ranks(store: ObjectStore, lists: TableValueCounts, leaves: Sequence[LeafColumn]) -> str:
    """Write `column`, `value`, `frequency`, `rank` of enumerated columns, by increasing value; return the path.

    The rank of a value is the number of smaller non-null values in the table.
    """
    reader = ValueCountReader(store, lists)

    def rows(leaf: LeafColumn) -> Iterable[pa.Table]:
        before = 0
        for batch in reader.batches(leaf.field_id, reader.columns[leaf.field_id]):
            counts = batch["frequency"].to_numpy()
            ends = before + np.cumsum(counts)
            yield pa.Table.from_batches([batch]).append_column("rank", pa.array(ends - counts))
            before = int(ends[-1])

    return _write(store, "ranks", reader, leaves, rows)


def columns_of(store: ObjectStore, path: str) -> set[str]:
    """Return the field ids of the columns in a plain file; none if the file does not exist or is damaged."""
    if not path:
        return set()
    try:
        with SectionReader(store, path) as reader:
            return set(reader.sections)
    except (ObjectNotFoundError, CorruptionError):
        return set()


def differing_columns(
    store: ObjectStore,
    path: str,
    scratch: ObjectStore,
    lists: TableValueCounts,
    leaves: Sequence[LeafColumn],
    *,
    ranked: bool,
) -> Iterator[tuple[str, str, str]]:
    """Yield (column, stored row, expected row) where a plain file differs from one written from the value counts.

    Args:
        store: The folder of the table.
        path: The path of the plain file.
        scratch: Where the expected file is written.
        lists: The value counts of the same rows.
        leaves: The columns that the file should have.
        ranked: Whether it is a file of ranks.

    Raises:
        CorruptionError: A file is damaged.
    """
    write = write_ranks if ranked else write_frequencies
    with parquet_errors(store.uri(path)), SectionReader(store, path) as own:
        again = write(scratch, lists, leaves)
        with SectionReader(scratch, again) as other:
            paths = {leaf.field_id: leaf.path for leaf in leaves}
            for field_id in sorted(own.sections.keys() ^ other.sections.keys()):
                has, lacks = "a list", "none"
                texts = (has, lacks) if field_id in own.sections else (lacks, has)
                yield (paths.get(field_id, field_id), *texts)
            for field_id in own.sections.keys() & other.sections.keys():
                left, right = own.read_section(field_id), other.read_section(field_id)
                if not left.equals(right):
                    yield from _first_difference(paths[field_id], left, right)


def _first_difference(column: str, own: pa.Table, other: pa.Table) -> Iterator[tuple[str, str, str]]:
    """Yield the first differing row. Rows are compared as text, because NaN is not equal to itself."""
    for left, right in zip_longest(_texts(own), _texts(other), fillvalue="nothing"):
        if left != right:
            yield column, left, right
            return


def _texts(table: pa.Table) -> Iterator[str]:
    for column, value, *numbers in zip(*table.columns, strict=True):
        own = [str(each) for each in value.values() if each.is_valid] if value.is_valid else ["null"]
        yield ", ".join([str(column), *own, *map(str, numbers)])


def _write(
    store: ObjectStore,
    kind: str,
    reader: ValueCountReader,
    leaves: Sequence[LeafColumn],
    rows: Callable[[LeafColumn], Iterable[pa.Table]],
) -> str:
    """Write a plain file with one section per column. Holds one row group."""
    union = union_type(class_named(reader.columns[leaf.field_id]) for leaf in leaves)
    ranked = kind == "ranks"
    numbers = ["frequency", "rank"] if ranked else ["frequency"]
    schema = pa.schema([("column", pa.string()), ("value", union), *((name, pa.int64()) for name in numbers)])
    encodings = {**value_encodings("value", union), **dict.fromkeys(numbers, "DELTA_BINARY_PACKED")}
    path = f"{_FOLDER}/{uuid.uuid4().hex}.{kind}.parquet"
    # Bounds let readers of one column, or of a range of its order, skip the other row groups.
    with SectionWriter(store, path, schema, encodings, bounded=["column", numbers[-1]]) as writer:
        for leaf in leaves:
            # A column without values gets an empty section, which records that it is enumerated.
            for own in chain([_NO_ROWS], rows(leaf)):
                table = build_value_counts_table(
                    leaf.path, own["value"].combine_chunks(), own["frequency"].combine_chunks(), union
                )
                writer.write_section(leaf.field_id, table.append_column("rank", own["rank"]) if ranked else table)
    return path
