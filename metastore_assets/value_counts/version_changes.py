"""Changes of value counts between versions: the changed values, or their number.

Value counts are the frequencies of all distinct values. A type class is a group of column types whose values are stored
as one type. A version has the value counts of one snapshot of the table. It may also store an update: the values whose
frequencies changed since the previous version.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import polars as pl
import pyarrow as pa

from metastore_assets.errors import CorruptionError, VersionNotFoundError
from metastore_assets.produce import FlowState, View
from metastore_assets.produce.order import normalize_zeros
from metastore_assets.produce.typed_rows import frame_of, table_of
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.version import ValueCountFiles
from metastore_assets.value_counts.fingerprinted import fingerprint_dataflow
from metastore_assets.value_counts.graph import FREQUENCY_COUNTS, VALUES, rows_of, stage_name
from metastore_assets.value_counts.reading import ValueCountReader
from metastore_assets.value_counts.state import TableValueCounts, read_value_counts


def changes_between(
    store: ObjectStore,
    first: TableValueCounts,
    last: TableValueCounts,
    steps: Sequence[tuple[TableValueCounts, TableValueCounts]] | None,
    columns: Mapping[str, str],
) -> dict[str, pa.Table]:
    """Return the values whose frequency differs between two versions, by field id of the column.

    Args:
        store: The folder of the table.
        first: The value counts of the first version.
        last: The value counts of the last version.
        steps: (value counts before, after) of each version that may have changed value counts, the oldest first. The
            changes are read from the updates that these versions stored. If one of these versions added, removed or
            rebuilt the value counts of a type class, all values of its columns in `first` and `last` are read and
            compared instead. If `steps` is None, this applies to all type classes.
        columns: The name of the type class of each requested column, by field id.

    Returns:
        For each column, by field id, a table of `change`, `value`, `before` and `after`, sorted by value. `change` is
        `add`, `update` or `delete`. `before` and `after` are frequencies; null means that the value does not occur.
    """
    changes_by_column: dict[str, pa.Table] = {}
    for type_class in sorted(set(columns.values())):
        updates = None if steps is None else _updates(store, steps, type_class)
        for column in (column for column, name in columns.items() if name == type_class):
            if updates is None:
                frames = [_read_column(store, value_counts, column, type_class) for value_counts in (first, last)]
                changes_by_column[column] = _to_change_table(_pair_frequencies(*frames), type_class)
            else:
                changes_by_column[column] = _to_change_table(updates.filter(pl.col("column") == column), type_class)
    return changes_by_column


def _updates(
    store: ObjectStore, steps: Sequence[tuple[TableValueCounts, TableValueCounts]], type_class: str
) -> pl.DataFrame | None:
    """Return the values that one or more versions updated, with their frequencies before and after.

    The columns of the frame are `column`, `value`, `before` and `after`. `before` and `after` are the frequencies
    before the first and after the last version; null if the value does not occur. The result is None if a version
    added, removed or rebuilt the value counts of the type class, because such a version stored no updates.

    Args:
        store: The folder of the table.
        steps: (value counts before, value counts after) of each version, the oldest first.
        type_class: The name of the type class.
    """
    stage = stage_name(VALUES, type_class)
    empty = frame_of(rows_of(type_class).schema.empty_table())
    frames = [empty.with_columns(_before_frequency="frequency")]
    for before, after in steps:
        classes = [set(value_counts.columns.values()) for value_counts in (before, after)]
        # If only settings changed, such as limits of reported values, the files have the updates of an earlier version.
        if before.flow.paths() == after.flow.paths() or not any(type_class in names for names in classes):
            continue
        if not all(type_class in names for names in classes):
            return None
        view = after.dataflow(store).view(after.flow)
        if view.is_reset(stage):
            return None
        frames += [frame_of(pa.Table.from_batches([batch])) for batch in view.update_batches(stage)]
    names = ["column", "value", "_before_frequency", "frequency"]
    updates = pl.concat([frame.select(names) for frame in frames])
    # Rows stay in the order of versions: the first row of a value has its earliest frequency, the last row its latest.
    return updates.group_by("column", "value", maintain_order=True).agg(
        pl.col("_before_frequency").first().alias("before"), pl.col("frequency").last().alias("after")
    )


def _pair_frequencies(first: pl.DataFrame, last: pl.DataFrame) -> pl.DataFrame:
    """Return a frame with the frequency of each value in `first` (`before`) and in `last` (`after`).

    `before` is null if `first` does not have the value, and `after` is null if `last` does not have it.
    """
    # Not joined: Polars joins sorted floats by merging, which treats NaN as unequal to NaN.
    no = pl.lit(None, pl.Int64)
    pairs = pl.concat(
        [
            first.select("value", pl.col("frequency").alias("before"), no.alias("after")),
            last.select("value", no.alias("before"), pl.col("frequency").alias("after")),
        ]
    )
    return pairs.group_by("value").agg(pl.col("before").max(), pl.col("after").max())


def _read_column(store: ObjectStore, value_counts: TableValueCounts, column: str, type_class: str) -> pl.DataFrame:
    batches: Iterator[pa.RecordBatch] = ValueCountReader(store, value_counts).batches(column, type_class)
    table = pa.Table.from_batches(list(batches), schema=rows_of(type_class).schema)
    return normalize_zeros(frame_of(table), ["column", "value"]).select("value", "frequency")


def _to_change_table(pairs: pl.DataFrame, type_class: str) -> pa.Table:
    """Return a table of `change`, `value`, `before` and `after`, sorted by value.

    Args:
        pairs: `value`, `before` and `after` of one column. The result omits values whose frequency did not change.
        type_class: The name of the column's type class.
    """
    order = rows_of(type_class)
    frame = pairs.filter(pl.col("before").ne_missing(pl.col("after")))
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


@dataclass(frozen=True)
class ValueCountChanges:
    """The numbers of added, removed and changed distinct values, over all columns."""

    added: int = 0
    removed: int = 0
    changed: int = 0
    """The number of values that occur in both versions with different frequencies."""


def count_changes(
    store: ObjectStore, before: ValueCountFiles | None, after: ValueCountFiles | None
) -> ValueCountChanges | None:
    """Return how many values changed from one version to the next.

    The result is None if the value counts of a type class were rebuilt, because the files then lack the changes.

    If the new version has no column of a type class any more, all old values of the class count as removed. They are
    counted in the files of the previous version. If these files cannot be read, the result is None, too.

    Args:
        store: The folder of the table.
        before: The files of the previous version; None if it has no value counts.
        after: The files of the next version; None if it has no value counts.
    """
    if before == after:
        return ValueCountChanges()
    old, new = read_value_counts(store, before), read_value_counts(store, after)
    counts: Counter[str] = Counter()
    for (old_flow, old_view, old_classes), (new_flow, view, classes) in zip(
        _flows(store, old), _flows(store, new), strict=True
    ):
        if old_flow.paths() == new_flow.paths():
            # Only settings changed, such as the limits of reported values. The updates are those of an earlier version.
            continue
        for name in classes:
            stage = stage_name(VALUES, name)
            if view.is_reset(stage) and name in old_classes:
                return None
            if view.is_reset(stage):
                counts["add"] += sum(run.rows for run in view.runs(stage))
            else:
                counts.update(view.change_counts(stage))
        # The new version has no stages of the classes of which the last column left.
        for name in old_classes - classes:
            try:
                for batch in old_view.content_batches(stage_name(FREQUENCY_COUNTS, name)):
                    counts["delete"] += sum(batch["values"].to_pylist())
            except (CorruptionError, VersionNotFoundError):
                return None
    return ValueCountChanges(counts["add"], counts["delete"], counts["update"])


def _flows(store: ObjectStore, value_counts: TableValueCounts) -> Iterator[tuple[FlowState, View, set[str]]]:
    """Yield (state, view, names of the type classes) for two dataflows.

    A dataflow computes value counts in stages. Its state names the files of the stages, and its view reads these files.
    The first dataflow has the columns of which all values are stored. The second one has the fingerprinted columns, of
    which only the values with a repeated fingerprint (a hash) are stored.
    """
    yield value_counts.flow, value_counts.dataflow(store).view(value_counts.flow), {*value_counts.columns.values()}
    fingerprinted_counts = value_counts.fingerprinted
    classes = {*fingerprinted_counts.columns.values()}
    yield fingerprinted_counts.flow, fingerprint_dataflow(store, classes).view(fingerprinted_counts.flow), classes
