"""Which fragments of a table have to be read for a predicate, and of which the version says it all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import pyarrow.compute as pc

from metastore_assets.config import TableConfig
from metastore_assets.errors import MetastoreError
from metastore_assets.formats import Memory, Runner, Snapshot, SnapshotReference, open_table_format
from metastore_assets.formats.apart.running import run_in_children
from metastore_assets.formats.base import Fragment
from metastore_assets.lookup import TableLookup
from metastore_assets.lookup.predicates import parse_predicate
from metastore_assets.lookup.predicates.rows import RowFilter
from metastore_assets.statistics.leaves import schema_leaves
from metastore_assets.statistics.types import signature

Which: TypeAlias = Literal["now", "version"]


@dataclass(frozen=True)
class Choice:
    """The fragments of one snapshot, by what is known of them."""

    snapshot: Snapshot
    filter: RowFilter
    whole: tuple[Fragment, ...]
    """The predicate is true of all of their rows."""
    undecided: tuple[Fragment, ...]
    """It may be true of some, or nothing is known of them: they came since the version."""
    decided_rows: int
    """Rows that it is true of in fragments whose statistics say exactly how many, those of `whole` included."""
    unread: frozenset[str]
    """Ids of the fragments among `undecided` of which that is so: to count, they need not be read."""


def choose(
    lookup: TableLookup,
    table: TableConfig,
    where: str | pc.Expression,
    which: Which,
    run: Runner = run_in_children,
) -> Choice:
    """What has to be read of the table's snapshot now, or of the version's.

    Raises PredicateError, ColumnNotFoundError, LiteralError; MetastoreError where the version's snapshot is not kept.
    """
    snapshot = _snapshot(lookup, table, which, run)
    leaves = [leaf for own in schema_leaves(snapshot.schema) for leaf in own]
    predicate = parse_predicate(where, table.name, leaves)
    former = {leaf.field_id: signature(leaf.type) for own in schema_leaves(lookup.version.schema) for leaf in own}
    # Of a column that is new since, or of another type, the version knows nothing.
    unknown = {leaf.field_id for leaf in leaves if former.get(leaf.field_id) != signature(leaf.type)}
    known = lookup.pruned(predicate, unknown).known()
    whole: list[Fragment] = []
    undecided: list[Fragment] = []
    unread: set[str] = set()
    decided = 0
    for fragment in snapshot.fragments:
        if fragment.id not in known:
            undecided.append(fragment)
            continue
        rows, least, most = known[fragment.id]
        if least == most:
            decided += least
        if least == rows:
            whole.append(fragment)
        elif most > 0:
            undecided.append(fragment)
            unread.update([fragment.id] if least == most else [])
    own = RowFilter(predicate, snapshot.schema)
    return Choice(snapshot, own, tuple(whole), tuple(undecided), decided, frozenset(unread))


def _snapshot(lookup: TableLookup, table: TableConfig, which: Which, run: Runner) -> Snapshot:
    version = lookup.version
    table_format = open_table_format(table, Memory(lambda: version.memory), run)
    meant = SnapshotReference(version.snapshot, version.committed_at)
    if which == "version" and table_format.current() != meant:
        if version.format == "files":
            raise MetastoreError(
                f"table {table.name!r} has changed since version {version.number}, and plain files have no former "
                f"states: count it as it is now, or `metastore refresh {table.name}` first"
            )
        table_format = open_table_format(table.model_copy(update={"at": version.snapshot}), run=run)
    return table_format.snapshot()
