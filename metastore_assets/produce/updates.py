"""The schema of updates, which are changes by key, and the validation of updates of roots.

Roots are the inputs of a dataflow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

import polars as pl
import pyarrow as pa

from metastore_assets.errors import UpdateError
from metastore_assets.produce.order import normalize_zeros
from metastore_assets.produce.run_schema import RunSchema
from metastore_assets.produce.typed_rows import CHANGE, Rows, frame_of

CHANGES = ADD, UPDATE, DELETE = "add", "update", "delete"
BEFORE = "_before"
"""Prefix of an update column of a sum stage, `_before_<amount>`: the previous total, null if there was none."""

External: TypeAlias = "pa.Table | pa.RecordBatch | Iterable[pa.RecordBatch]"
"""An update from a source: the column `_change`, key columns and value columns."""


def update_schema(rows: Rows, *, sums: bool = False) -> RunSchema:
    """Return the schema of update files, which are sorted by key.

    With `sums`, the update is that of a sum stage, which has totals by key. Its rows include the previous totals.
    """
    before = [field.with_name(f"{BEFORE}_{field.name}") for field in rows.value] if sums else []
    schema = pa.schema([pa.field(CHANGE, pa.string(), nullable=False), *rows.schema, *before])
    # Plain files of rows: no amounts to add up, and no tombstones.
    return RunSchema(schema, rows.order, len(rows.key), len(rows.key), plain=True)


def validate_update(root: str, rows: Rows, update: External, *, sort: bool) -> Iterator[pl.DataFrame]:
    """Yield the frames of a root's update.

    The values of `delete` rows become null. Raises UpdateError if a row breaks the rules.

    Keys must not decrease. A key has one `delete` row, or any number of `add` and `update` rows, which mean the same.

    Args:
        root: Name of the root, for messages.
        rows: Types of the root's keys and values.
        update: The update.
        sort: Whether to sort the update in memory first.
    """
    schema = pa.schema([pa.field(CHANGE, pa.string()), *rows.schema])
    frames: Iterator[pl.DataFrame] = (
        normalize_zeros(frame_of(table), rows.key.names) for table in typed_tables(root, schema, update)
    )
    if sort:
        unsorted_frames = list(frames)
        frames = iter([rows.order.sort(pl.concat(unsorted_frames))] if unsorted_frames else [])
    last: pl.DataFrame | None = None
    for frame in frames:
        if frame.height:
            _check(root, rows, frame if last is None else pl.concat([last, frame]))
            yield frame.with_columns(
                pl.when(pl.col(CHANGE) != DELETE).then(pl.col(name)).alias(name) for name in rows.value.names
            )
            last = frame.tail(1)


def typed_tables(root: str, schema: pa.Schema, update: External) -> Iterator[pa.Table]:
    """Yield the rows of an update as tables with the columns and types of a schema.

    Args:
        root: Name of the root, for messages.
        schema: The columns to return.
        update: The rows from the source.

    Raises:
        UpdateError: A column, or a field in a column, is missing, occurs twice, or has values of another type.
    """
    if isinstance(update, pa.RecordBatch):
        update = pa.Table.from_batches([update])
    if isinstance(update, pa.Table):
        # Columns are validated even if there are no rows.
        update = update.to_batches(max_chunksize=1 << 20) or [pa.RecordBatch.from_pylist([], schema=update.schema)]
    for batch in update:
        table = pa.Table.from_batches([batch])
        twice = [name for name in schema.names if table.schema.names.count(name) > 1]
        if twice:
            raise UpdateError(f"the update of {root!r} has the column {twice[0]!r} twice")
        missing = list(_missing_fields(pa.struct(table.schema), pa.struct(schema)))
        if missing:
            raise UpdateError(
                f"the update of {root!r} has no column {missing[0]!r}; it needs {', '.join(schema.names)}"
            )
        try:
            yield table.select(schema.names).cast(schema)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise UpdateError(f"the update of {root!r} does not have the declared types: {error}") from error


def _missing_fields(actual: pa.DataType, declared_type: pa.DataType) -> Iterator[str]:
    """Yield the dotted paths of struct fields that a declared type has and the type of the data lacks.

    Arrow's casts would make them null.
    """
    if pa.types.is_struct(declared_type) and pa.types.is_struct(actual):
        for field in declared_type:
            index = actual.get_field_index(field.name)
            if index < 0:
                yield field.name
            else:
                yield from (f"{field.name}.{path}" for path in _missing_fields(actual.field(index).type, field.type))
    elif pa.types.is_nested(declared_type) and actual.num_fields == declared_type.num_fields:
        for index in range(declared_type.num_fields):
            name, child = declared_type.field(index).name, declared_type.field(index).type
            yield from (f"{name}.{path}" for path in _missing_fields(actual.field(index).type, child))


def _check(root: str, rows: Rows, frame: pl.DataFrame) -> None:
    """Raise UpdateError if rows of an update break the rules of `validate_update`.

    Args:
        root: Name of the root, for messages.
        rows: Types of the root's keys and values.
        frame: The last row of the previous frame if there is one, then the rows of one frame. So the rules are also
            checked from one frame to the next.
    """
    unknown = frame.filter(~pl.col(CHANGE).is_in([ADD, UPDATE, DELETE]).fill_null(False))
    if unknown.height:
        raise UpdateError(
            f"the update of {root!r}: {CHANGE} is {unknown[CHANGE][0]!r}; it is one of add, update, delete"
        )
    if not rows.order.is_sorted(frame):
        keys = frame.select(rows.key.names)
        row = next(row for row in range(1, keys.height) if not rows.order.is_sorted(keys[row - 1 : row + 1]))
        raise UpdateError(
            f"the update of {root!r} is not sorted: the key {key_text(keys[row])} follows "
            f"{key_text(keys[row - 1])}; sort it, or pass sort=True"
        )
    deletes = (pl.col(CHANGE) == DELETE) | (pl.col(CHANGE).shift(1) == DELETE)
    mixed_rows = frame.filter(~rows.order.changes() & deletes)
    if mixed_rows.height:
        key = key_text(mixed_rows.select(rows.key.names)[0])
        raise UpdateError(
            f"the update of {root!r}: the key {key} has a delete and another row; a key has one delete, or upserts"
        )


def key_text(key: pl.DataFrame) -> str:
    """Return a key (a frame with one row) as text for messages."""
    values: tuple[Any, ...]
    try:
        values = key.row(0)
    except (OverflowError, ValueError):  # Python cannot represent the time
        values = key.select(pl.all().cast(pl.String)).row(0)
    return repr(values[0]) if len(values) == 1 else repr(values)
