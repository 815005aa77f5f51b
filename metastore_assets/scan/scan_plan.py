"""Which fragments of a table have to be read for a predicate, and of which the version says it all."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metastore_assets.config import TableConfig
from metastore_assets.errors import MetastoreError, UnsupportedTypeError
from metastore_assets.expressions.binding import parse_predicate
from metastore_assets.expressions.predicates import Predicate, referenced_columns
from metastore_assets.expressions.row_bounds import ColumnBounds, RowBounds
from metastore_assets.expressions.row_filter import RowFilter
from metastore_assets.formats import MetadataCache, Snapshot, SnapshotReference, TableFormat, open_table_format
from metastore_assets.formats.base import Fragment
from metastore_assets.lookup import Table
from metastore_assets.lookup.pruning import unknown_bounds
from metastore_assets.tasks.runner import TaskRunner
from metastore_assets.values.leaf_columns import schema_leaves
from metastore_assets.values.physical import canonical
from metastore_assets.values.types import TypeClass, type_fingerprint

Which: TypeAlias = Literal["now", "version"]


@dataclass(frozen=True)
class ScanPlan:
    """The fragments of one snapshot, by what is known of them."""

    snapshot: Snapshot
    filter: RowFilter
    whole: tuple[Fragment, ...]
    """The predicate is true of all of their rows."""
    undecided: tuple[Fragment, ...]
    """It may be true of some. Of what came since the version, the format's own metadata say what they do."""
    decided_rows: int
    """Rows that it is true of in fragments whose statistics say exactly how many, those of `whole` included."""
    sure: Mapping[str, int]
    """By id, of fragments of which that is known: at least so many rows it is true of."""
    unread: frozenset[str]
    """Ids of the fragments among `undecided` of which that is so: to count, they need not be read."""


def plan_scan(
    lookup: Table,
    table: TableConfig,
    where: str | pc.Expression,
    which: Which,
    runner: TaskRunner | None = None,
) -> ScanPlan:
    """What has to be read of the table's snapshot now, or of the version's.

    Raises PredicateError, ColumnNotFoundError, LiteralError; MetastoreError where the version's snapshot is not kept.
    """
    return plan_scan_of(lookup, table, plan_table(lookup, table, which, runner), where)


def plan_table(
    lookup: Table, table: TableConfig, which: Which, runner: TaskRunner | None = None
) -> tuple[TableFormat, Snapshot]:
    """The table and its snapshot now, or the version's. Raises MetastoreError where that is not kept."""
    table_format = _format(lookup, table, which, runner)
    return table_format, table_format.snapshot()


def plan_scan_of(
    lookup: Table, table: TableConfig, planned: tuple[TableFormat, Snapshot], where: str | pc.Expression
) -> ScanPlan:
    """As `plan_scan`, of a snapshot that is there."""
    table_format, snapshot = planned
    leaves = [leaf for own in schema_leaves(snapshot.schema) for leaf in own]
    predicate = parse_predicate(where, table.name, leaves)
    former = {
        leaf.field_id: type_fingerprint(leaf.type) for own in schema_leaves(lookup.version.schema) for leaf in own
    }
    # Of a column that is new since, or of another type, the version knows nothing.
    unknown = {leaf.field_id for leaf in leaves if former.get(leaf.field_id) != type_fingerprint(leaf.type)}
    known = lookup.pruner.prune(predicate, unknown).rows_by_id()
    whole: list[Fragment] = []
    undecided: list[Fragment] = []
    unread: set[str] = set()
    decided = 0
    sure: dict[str, int] = {}
    new = [fragment for fragment in snapshot.fragments if fragment.id not in known]
    known |= bound_by_format(table_format, snapshot, new, predicate)
    for fragment in snapshot.fragments:
        if fragment.id not in known:
            undecided.append(fragment)
            continue
        rows, least, most = known[fragment.id]
        sure[fragment.id] = least
        if least == most:
            decided += least
        if least == rows:
            whole.append(fragment)
        elif most > 0:
            undecided.append(fragment)
            unread.update([fragment.id] if least == most else [])
    own = RowFilter(predicate, snapshot.schema)
    return ScanPlan(snapshot, own, tuple(whole), tuple(undecided), decided, sure, frozenset(unread))


def resolve_fragments(
    lookup: Table, table: TableConfig, ids: Collection[str], runner: TaskRunner | None = None
) -> tuple[list[Fragment], pa.Schema]:
    """The fragments of the version with those ids: of the table now, which may have them still, or of its snapshot.

    Beside them the schema of the table, of the same snapshot. Raises MetastoreError where that is not kept.
    """
    for which in get_args(Which):
        snapshot = _format(lookup, table, which, runner).snapshot()
        found = [own for own in snapshot.fragments if own.id in ids]
        if len(found) == len(ids):
            return found, snapshot.schema
    raise MetastoreError(
        f"table {table.name!r}: its snapshot {lookup.version.snapshot} has other files than version "
        f"{lookup.version.number} has it: `metastore refresh {table.name}`, and ask again"
    )


def bound_by_format(
    table_format: TableFormat, snapshot: Snapshot, fragments: Sequence[Fragment], predicate: Predicate
) -> dict[str, tuple[int, int, int]]:
    """Return, as `Pruning.rows_by_id`, what the format's metadata says of fragments whose rows it counts."""
    counted = [fragment for fragment in fragments if fragment.row_count is not None]
    if not counted:
        return {}
    rows = np.array([fragment.row_count for fragment in counted], np.int64)
    columns = {}
    for column in referenced_columns(predicate):
        own = unknown_bounds(column, rows)
        if column.cls is not None and "`" not in column.path:
            told = table_format.bounds(replace(snapshot, fragments=tuple(counted)), column.path)
            own = _format_bounds(own, told, column.cls)
        columns[column.field_id] = own
    found = predicate.bound_rows(rows, columns)
    bounds = zip(*(own.tolist() for own in (rows, found.least, found.most)), strict=True)
    return dict(zip((fragment.id for fragment in counted), bounds, strict=True))


def _format_bounds(own: ColumnBounds, told: pa.Table, cls: TypeClass) -> ColumnBounds:
    """What a format says as bounds. It says nothing of NaN, and its counts may be of rows that are deleted now."""
    try:
        low, high = (canonical(told[name].combine_chunks(), cls) for name in ("minimum", "maximum"))
    except UnsupportedTypeError:
        return own
    known = told["null_count"].is_valid().to_numpy()
    exact = pc.equal(told["null_count_guarantee"], "exact").to_numpy()
    counts = told["null_count"].fill_null(0).to_numpy()
    nulls = RowBounds(np.where(known & exact, counts, 0), np.where(known, np.minimum(counts, own.rows), own.rows))
    return ColumnBounds(own.rows, nulls, own.nans, low, high)


def _format(lookup: Table, table: TableConfig, which: Which, runner: TaskRunner | None) -> TableFormat:
    version = lookup.version
    table_format = open_table_format(table, MetadataCache(lambda: version.memory), runner)
    meant = SnapshotReference(version.snapshot, version.committed_at)
    if which == "version" and table_format.current() != meant:
        if version.format == "files":
            raise MetastoreError(
                f"table {table.name!r} has changed since version {version.number}, and plain files have no former "
                f"states: ask about it as it is now, or `metastore refresh {table.name}` first"
            )
        table_format = open_table_format(table.model_copy(update={"at": version.snapshot}), runner=runner)
    return table_format
