"""Scan plans: which fragments must be read for a predicate, and what is known of the others.

A fragment is a data file of the table, together with the deletes that apply to it. A version has the statistics of one
snapshot of the table. A type class is a group of column types whose values are stored as one Arrow type.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metastore_assets.config import TableConfig
from metastore_assets.errors import (
    ColumnNotFoundError,
    MetastoreError,
    SnapshotNotFoundError,
    UnsupportedTypeError,
)
from metastore_assets.expressions.binding import parse_predicate
from metastore_assets.expressions.predicates import Predicate, referenced_columns
from metastore_assets.expressions.row_bounds import ColumnBounds, RowBounds
from metastore_assets.expressions.row_filter import RowFilter
from metastore_assets.formats import MetadataCache, Snapshot, SnapshotReference, TableFormat, open_table_format
from metastore_assets.formats.base import CONVERSION, Fragment
from metastore_assets.lookup import Table
from metastore_assets.lookup.arguments import text_tuple
from metastore_assets.lookup.pruning import bounds_without_statistics, select_fragments_for_limit
from metastore_assets.lookup.table import SnapshotChoice
from metastore_assets.messages import close_names
from metastore_assets.tasks.runner import TaskRunner
from metastore_assets.values.columns import columns_by_field, schema_columns
from metastore_assets.values.physical import canonical
from metastore_assets.values.types import TypeClass, type_fingerprint


@dataclass(frozen=True)
class ScanPlan:
    """The fragments of one snapshot that may have rows that match a predicate.

    The plan also has what is known of the number of these rows, so that a count reads fewer fragments.
    """

    snapshot: Snapshot
    filter: RowFilter
    full_fragments: tuple[Fragment, ...]
    """Fragments whose rows all match."""
    partial_fragments: tuple[Fragment, ...]
    """All other fragments that may have matching rows."""
    counted_rows: int
    """Number of matching rows in `full_fragments` and in the fragments `counted_ids`."""
    least_rows: Mapping[str, int]
    """A lower bound of the number of matching rows of each fragment, by id. Fragments without statistics are missing.
    """
    counted_ids: frozenset[str]
    """Ids of the `partial_fragments` whose number of matching rows is known, so that a count does not read them."""

    @property
    def uncounted_fragments(self) -> list[Fragment]:
        """The fragments whose number of matching rows is unknown, so that a count must read them."""
        return [fragment for fragment in self.partial_fragments if fragment.id not in self.counted_ids]


class ScanTask(NamedTuple):
    """A fragment to read, and the filter of its rows."""

    filter: RowFilter | None
    """The filter; None if all rows match."""
    fragment: Fragment


def plan_scan(
    lookup: Table,
    table: TableConfig,
    where: str | pc.Expression,
    choice: SnapshotChoice,
    runner: TaskRunner | None = None,
) -> ScanPlan:
    """Return a plan with the fragments of a table that have to be read for a predicate.

    Args:
        lookup: The version with the statistics.
        table: The location of the table.
        where: The predicate, as SQL text or an Arrow expression.
        choice: The snapshot to read.
        runner: Reads the table's metadata; None for child processes.

    Raises:
        PredicateError: The predicate does not parse, or compares a column whose values cannot be compared.
        ColumnNotFoundError: The predicate names a column that the snapshot does not have.
        LiteralError: A literal is not a value of its column.
        MetastoreError: The snapshot of the version no longer exists.
    """
    return plan_snapshot_scan(lookup, table, load_snapshot(lookup, table, choice, runner), where)


def load_snapshot(
    lookup: Table, table: TableConfig, choice: SnapshotChoice, runner: TaskRunner | None = None
) -> tuple[TableFormat, Snapshot]:
    """Open a table at a snapshot.

    Args:
        lookup: The version with the statistics.
        table: The location of the table.
        choice: `now` for the current snapshot, `version` for the snapshot of the version.
        runner: Reads the table's metadata; None for child processes.

    Returns:
        (opened table, snapshot).

    Raises:
        MetastoreError: The snapshot of the version no longer exists.
    """
    try:
        table_format = _open_format(lookup, table, choice, runner)
        return table_format, table_format.snapshot()
    except SnapshotNotFoundError as error:
        if choice == "now":
            raise
        version = lookup.version
        raise SnapshotNotFoundError(
            f"table {table.name!r} no longer has the snapshot {version.snapshot}, which version {version.number} "
            "describes: read a later version, or the current rows"
        ) from error


def plan_snapshot_scan(
    lookup: Table, table: TableConfig, loaded_snapshot: tuple[TableFormat, Snapshot], where: str | pc.Expression
) -> ScanPlan:
    """Return the plan of `plan_scan` for a snapshot that `load_snapshot` returned.

    Errors are those of `plan_scan`.
    """
    table_format, snapshot = loaded_snapshot
    columns = schema_columns(snapshot.schema)
    predicate = parse_predicate(where, table.name, columns)
    row_bounds = lookup.pruner.prune(predicate, _changed_columns(lookup, snapshot.schema)).rows_by_id()
    added_fragments = [fragment for fragment in snapshot.fragments if fragment.id not in row_bounds]
    row_bounds |= bound_by_format(table_format, snapshot, added_fragments, predicate)
    full: list[Fragment] = []
    partial: list[Fragment] = []
    counted_ids: set[str] = set()
    counted_rows = 0
    least_rows: dict[str, int] = {}
    for fragment in snapshot.fragments:
        if fragment.id not in row_bounds:
            partial.append(fragment)
            continue
        rows, least, most = row_bounds[fragment.id]
        least_rows[fragment.id] = least
        if least == most:
            counted_rows += least
        if least == rows:
            full.append(fragment)
        elif most > 0:
            partial.append(fragment)
            if least == most:
                counted_ids.add(fragment.id)
    row_filter = RowFilter(predicate, snapshot.schema)
    return ScanPlan(snapshot, row_filter, tuple(full), tuple(partial), counted_rows, least_rows, frozenset(counted_ids))


def plan_tasks(plan: ScanPlan, limit: int | None) -> list[ScanTask]:
    """Return the fragments to read, each with the filter of its rows.

    Args:
        plan: The plan.
        limit: The number of matching rows that are needed; None for all. With a limit, the result has the fewest
            fragments that together certainly have this number. If even all fragments together might have fewer, the
            result has all fragments of the plan.
    """
    tasks = [ScanTask(None, fragment) for fragment in plan.full_fragments]
    tasks += [ScanTask(plan.filter, fragment) for fragment in plan.partial_fragments]
    if limit is None:
        return tasks
    # Sorted like the fragment index. Among fragments of equal size, `Table.prune` then selects the same ones.
    tasks.sort(key=lambda task: (task.fragment.partition_key, task.fragment.path))
    least = np.array([plan.least_rows.get(task.fragment.id, 0) for task in tasks], np.int64)
    sizes = np.array([task.fragment.bytes for task in tasks], np.int64)
    is_needed = select_fragments_for_limit(RowBounds(least, np.maximum(least, 1)), sizes, limit)
    return [tasks[position] for position in np.flatnonzero(is_needed)]


def find_column_positions(table: TableConfig, schema: pa.Schema, columns: Sequence[str] | None) -> list[int]:
    """Return the positions of top-level columns in a schema.

    Args:
        table: The table, for messages.
        schema: The schema.
        columns: The names of the columns. A text is the name of one column. None means all columns.

    Raises:
        ColumnNotFoundError: The schema has no such column.
    """
    if columns is None:
        return list(range(len(schema)))
    positions = []
    position_of = {name: position for position, name in enumerate(schema.names)}
    for name in text_tuple("columns", columns, "names of columns"):
        position = position_of.get(name)
        if position is None:
            raise ColumnNotFoundError(
                f"table {table.name!r} has no top-level column {name!r}"
                + close_names(name, schema.names, "; they are: {}")
            )
        positions.append(position)
    return positions


def _changed_columns(lookup: Table, schema: pa.Schema) -> set[str]:
    """Return the field ids of the columns in `schema` to which stored statistics do not apply.

    The version of `lookup` lacks these columns, or has them with another type, or with another conversion of the values
    stored in files.
    """
    version_types = _column_types(lookup.version.schema)
    return {field_id for field_id, type_ in _column_types(schema).items() if version_types.get(field_id) != type_}


def _column_types(schema: pa.Schema) -> dict[str, tuple[str, bytes | None]]:
    """Return {field id: (text that identifies the type, conversion)} of all columns.

    The conversion says how values stored in files are converted; None if no conversion is recorded.
    """
    return {
        column.field_id: (type_fingerprint(column.type), (field.metadata or {}).get(CONVERSION))
        for field, columns in zip(schema, columns_by_field(schema), strict=True)
        for column in columns
    }


def resolve_fragments(
    lookup: Table, table: TableConfig, ids: Collection[str], runner: TaskRunner | None = None
) -> tuple[list[Fragment], pa.Schema]:
    """Return the fragments of a version that have the given ids, all from one snapshot.

    They are taken from the table's current snapshot if it has all of them, and otherwise from the version's snapshot.

    Args:
        lookup: The version.
        table: The location of the table.
        ids: Ids of fragments of the version.
        runner: Reads the table's metadata; None for child processes.

    Returns:
        (fragments, schema of the snapshot that has them).

    Raises:
        MetastoreError: Neither snapshot has all fragments with the ids, or the version's snapshot no longer exists.
    """
    for choice in get_args(SnapshotChoice):
        snapshot = _open_format(lookup, table, choice, runner).snapshot()
        fragments = [fragment for fragment in snapshot.fragments if fragment.id in ids]
        if len(fragments) == len(ids):
            return fragments, snapshot.schema
    raise MetastoreError(
        f"table {table.name!r}: its snapshot {lookup.version.snapshot} does not have the files that version "
        f"{lookup.version.number} describes: run `metastore refresh {table.name}`, and try again"
    )


def bound_by_format(
    table_format: TableFormat, snapshot: Snapshot, fragments: Sequence[Fragment], predicate: Predicate
) -> dict[str, tuple[int, int, int]]:
    """Return bounds on the matching rows of fragments, from the metadata of the table's format.

    Args:
        table_format: The table.
        snapshot: The snapshot that has the fragments.
        fragments: Fragments of the snapshot for which the Metastore has no statistics. Fragments without a row count
            are ignored.
        predicate: A predicate that is bound to the snapshot's columns.

    Returns:
        (row count, least number of matching rows, greatest number of matching rows) of each fragment, by its id.
    """
    counted_fragments = [fragment for fragment in fragments if fragment.row_count is not None]
    if not counted_fragments:
        return {}
    row_counts = np.array([fragment.row_count for fragment in counted_fragments], np.int64)
    columns = {}
    for column in referenced_columns(predicate):
        bounds = bounds_without_statistics(column, row_counts)
        if column.cls is not None and "`" not in column.path:
            metadata = table_format.bounds(replace(snapshot, fragments=tuple(counted_fragments)), column.path)
            bounds = _narrow_by_metadata(bounds, metadata, column.cls)
        columns[column.field_id] = bounds
    matching = predicate.bound_rows(row_counts, columns)
    entries = zip(*(counts.tolist() for counts in (row_counts, matching.least, matching.most)), strict=True)
    return dict(zip((fragment.id for fragment in counted_fragments), entries, strict=True))


def _narrow_by_metadata(bounds: ColumnBounds, metadata: pa.Table, cls: TypeClass) -> ColumnBounds:
    """Return the bounds of a column with minimum, maximum and null counts from a format's metadata.

    If the metadata's values do not fit the type class, `bounds` is returned unchanged. A null count that is not exact
    is used as an upper bound only.

    Args:
        bounds: The bounds without statistics: only row counts are known.
        metadata: The result of `TableFormat.bounds`, with one row per fragment.
        cls: The type class of the column.
    """
    try:
        minimum, maximum = (canonical(metadata[name].combine_chunks(), cls) for name in ("minimum", "maximum"))
    except UnsupportedTypeError:
        return bounds
    has_count = metadata["null_count"].is_valid().to_numpy()
    is_exact = pc.equal(metadata["null_count_guarantee"], "exact").to_numpy()
    counts = metadata["null_count"].fill_null(0).to_numpy()
    nulls = RowBounds(
        np.where(has_count & is_exact, counts, 0), np.where(has_count, np.minimum(counts, bounds.rows), bounds.rows)
    )
    return ColumnBounds(bounds.rows, nulls, bounds.nans, minimum, maximum)


def _open_format(lookup: Table, table: TableConfig, choice: SnapshotChoice, runner: TaskRunner | None) -> TableFormat:
    """Open the table at the chosen snapshot.

    Raises MetastoreError if the choice is `version`, and a table of plain files has changed since the version: it has
    no earlier snapshots.
    """
    version = lookup.version
    table_format = open_table_format(table, MetadataCache(lambda: version.metadata_cache), runner)
    if choice == "now" or table_format.current() == SnapshotReference(version.snapshot, version.committed_at):
        return table_format
    if version.format == "files":
        raise MetastoreError(
            f"table {table.name!r} has changed since version {version.number}, and plain files have no earlier "
            f"snapshots: query the current snapshot, or run `metastore refresh {table.name}` first"
        )
    return open_table_format(table.model_copy(update={"at": version.snapshot}), runner=runner)
