"""Differences between the value counts of two versions, from the updates between them or from both in full."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import polars as pl
import pyarrow as pa

from metastore_assets.produce.order import canonical
from metastore_assets.produce.rows import frame_of, table_of
from metastore_assets.store.objects import ObjectStore
from metastore_assets.value_counts.graph import VALUES, rows_of, stage_name
from metastore_assets.value_counts.reading import ValueCountReader
from metastore_assets.value_counts.state import TableValueCounts

CHANGES = ("add", "update", "delete")


def changes_between(
    store: ObjectStore,
    first: TableValueCounts,
    last: TableValueCounts,
    steps: Sequence[tuple[TableValueCounts, TableValueCounts]] | None,
    columns: Mapping[str, str],
) -> dict[str, pa.Table]:
    """Return the differences between the first and the last value counts, by field id.

    Args:
        store: The folder of the table.
        first: The value counts of the first version.
        last: The value counts of the last version.
        steps: The value counts before and after each version in between whose content changed. Their updates are read.
            If
            it is None, or if value counts were rebuilt on the way, the first and the last are read in full.
        columns: The requested columns by field id, with the class of their values.

    Returns:
        Tables of `change`, `value`, `before` and `after`, by increasing value. `change` is one of `CHANGES`. `before`
            and
        `after` are frequencies, null where the value does not occur.
    """
    found: dict[str, pa.Table] = {}
    for type_class in sorted(set(columns.values())):
        updates = None if steps is None else _updates(store, steps, type_class)
        for column in (column for column, name in columns.items() if name == type_class):
            if updates is None:
                sides = [_listed(store, lists, column, type_class) for lists in (first, last)]
                found[column] = _typed(_side_by_side(*sides), type_class)
            else:
                found[column] = _typed(updates.filter(pl.col("column") == column), type_class)
    return found


def _updates(
    store: ObjectStore, steps: Sequence[tuple[TableValueCounts, TableValueCounts]], type_class: str
) -> pl.DataFrame | None:
    """Return `column`, `value`, `before`, `after` of all updated values, or None if value counts were rebuilt."""
    stage = stage_name(VALUES, type_class)
    empty = frame_of(rows_of(type_class).schema.empty_table())
    frames = [empty.with_columns(_before_frequency="frequency")]
    for before, after in steps:
        classes = [set(lists.columns.values()) for lists in (before, after)]
        # A state that was taken over, for example under other limits of reported values, has the update of an earlier
        # version.
        if before.flow.paths() == after.flow.paths() or not any(type_class in own for own in classes):
            continue
        if not all(type_class in own for own in classes):
            return None
        view = after.dataflow(store).view(after.flow)
        if view.is_reset(stage):
            return None
        frames += [frame_of(pa.Table.from_batches([batch])) for batch in view.update_batches(stage)]
    names = ["column", "value", "_before_frequency", "frequency"]
    whole = pl.concat([frame.select(names) for frame in frames])
    # Rows stay in the order of versions: the first row of a value has its earliest frequency, the last row its latest.
    return whole.group_by("column", "value", maintain_order=True).agg(
        pl.col("_before_frequency").first().alias("before"), pl.col("frequency").last().alias("after")
    )


def _side_by_side(first: pl.DataFrame, last: pl.DataFrame) -> pl.DataFrame:
    """Return both frequencies of each value.

    Rows are grouped, not joined: Polars joins sorted floats by merging, which treats NaN as unequal to NaN.
    """
    no = pl.lit(None, pl.Int64)
    both = pl.concat(
        [
            first.select("value", pl.col("frequency").alias("before"), no.alias("after")),
            last.select("value", no.alias("before"), pl.col("frequency").alias("after")),
        ]
    )
    return both.group_by("value").agg(pl.col("before").max(), pl.col("after").max())


def _listed(store: ObjectStore, lists: TableValueCounts, column: str, type_class: str) -> pl.DataFrame:
    batches: Iterator[pa.RecordBatch] = ValueCountReader(store, lists).batches(column, type_class)
    table = pa.Table.from_batches(list(batches), schema=rows_of(type_class).schema)
    return canonical(frame_of(table), ["column", "value"]).select("value", "frequency")


def _typed(both: pl.DataFrame, type_class: str) -> pa.Table:
    """Return the values whose frequency differs, with the kind of change."""
    order = rows_of(type_class)
    frame = both.filter(pl.col("before").ne_missing(pl.col("after")))
    change = (
        pl.when(pl.col("before").is_null())
        .then(pl.lit("add"))
        .when(pl.col("after").is_null())
        .then(pl.lit("delete"))
        .otherwise(pl.lit("update"))
    )
    frame = frame.sort("value").with_columns(change.alias("change")).select("change", "value", "before", "after")
    value = order.key.field("value")
    schema = pa.schema([("change", pa.string()), value, ("before", pa.int64()), ("after", pa.int64())])
    return table_of(frame, schema)
