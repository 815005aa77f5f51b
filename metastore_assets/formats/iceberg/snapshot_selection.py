"""The state of an Iceberg table to read: the newest, or that of a branch, tag, snapshot id or time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from metastore_assets.errors import TableFormatError, TableNotFoundError
from metastore_assets.formats.base import HistoryChange, SnapshotReference, state_not_found
from metastore_assets.formats.iceberg.metadata import IcebergSnapshot, TableMetadata
from metastore_assets.iso8601 import parse_moment


@dataclass(frozen=True)
class IcebergState:
    """A state of a table: a snapshot and the schema to read it with."""

    snapshot: IcebergSnapshot | None
    """None if the table has no snapshot."""
    schema: Mapping[str, Any]
    committed_at: datetime

    @property
    def id(self) -> str:
        """The snapshot id as text; empty without a snapshot."""
        return "" if self.snapshot is None else str(self.snapshot.id)


def resolve_state(name: str, metadata: TableMetadata, at: str | None) -> IcebergState:
    """Return the state that `at` names; without `at`, the current state.

    Args:
        name: the table's name, for messages.
        metadata: the table's metadata.
        at: a snapshot id, a branch, a tag, or a time in the history of the branch `main`. The id takes precedence over
            a branch or tag of this name, as in Spark.

    Raises:
        SnapshotNotFoundError: the table does not have that state.
        TableFormatError: the metadata lack the schema of the state.
    """
    if at is None:
        return _current_state(name, metadata)
    if at in metadata.refs and not (at.isdecimal() and int(at) in metadata.snapshots):
        kind, snapshot_id = metadata.refs[at]
        return _state(name, metadata, snapshot_id, at, current_schema=kind == "branch")
    if at.isdecimal():
        return _state(name, metadata, int(at), at)
    moment = parse_moment(at)
    if moment is None:
        raise _state_not_found(name, metadata, at)
    before = [entry for entry in _history(metadata) if _time(entry[0]) <= moment]
    if not before:
        raise state_not_found(
            name, at, "its first snapshots are of", [_time(ms).isoformat() for ms, _ in _history(metadata)]
        )
    # Times need not be distinct, or ascend: clocks of writers differ. Spark and pyiceberg take the last change, too.
    return _state(name, metadata, before[-1][1], at)


def history_change_since(metadata: TableMetadata, state: IcebergState, previous: SnapshotReference) -> HistoryChange:
    """Return how the table changed from a previous state to `state`.

    Returns:
        "metadata changed" if both states have the same snapshot. "rolled back" if the previous snapshot is no ancestor
        of the snapshot of `state`. None if the previous snapshot is an ancestor, or if this is unknown.
    """
    if state.id == previous.id:
        return "metadata changed"
    if previous.committed_at is None or not previous.id.isdecimal():
        return None  # the table had no snapshot, or another format
    lineage = list(_ancestors(metadata, None if state.snapshot is None else state.snapshot.id))
    if any(str(snapshot.id) == previous.id for snapshot in lineage):
        return None
    # The previous snapshot may have expired. Its time then shows whether it was an ancestor.
    current_is_older = bool(lineage) and _time(lineage[0].timestamp_ms) <= previous.committed_at
    return "rolled back" if current_is_older or int(previous.id) in metadata.snapshots or not lineage else None


def _current_state(name: str, metadata: TableMetadata) -> IcebergState:
    current = metadata.current_snapshot_id
    snapshot = None if current is None else _snapshot(name, metadata, current, "the current one")
    # Adding, renaming or dropping a column is a commit without a snapshot.
    return IcebergState(snapshot, _schema(name, metadata, None), _time(metadata.last_updated_ms))


def _state(
    name: str, metadata: TableMetadata, snapshot_id: int, at: str, *, current_schema: bool = False
) -> IcebergState:
    snapshot = _snapshot(name, metadata, snapshot_id, at)
    schema = _schema(name, metadata, None if current_schema else snapshot.schema_id)
    return IcebergState(snapshot, schema, _time(snapshot.timestamp_ms))


def _snapshot(name: str, metadata: TableMetadata, snapshot_id: int, at: str) -> IcebergSnapshot:
    if snapshot_id not in metadata.snapshots:
        raise _state_not_found(name, metadata, at)
    return metadata.snapshots[snapshot_id]


def _state_not_found(name: str, metadata: TableMetadata, at: str) -> TableNotFoundError:
    names = [*metadata.refs, *metadata.snapshots]
    return state_not_found(name, at, "a branch, a tag, a snapshot id or a time may be named, of which there are", names)


def _schema(name: str, metadata: TableMetadata, schema_id: int | None) -> Mapping[str, Any]:
    wanted_id = metadata.current_schema_id if schema_id is None else schema_id
    if wanted_id not in metadata.schemas:
        raise TableFormatError(f"{name}: the metadata file lacks the schema {wanted_id} that it refers to")
    return metadata.schemas[wanted_id]


def _history(metadata: TableMetadata) -> Sequence[tuple[int, int]]:
    """Return (milliseconds, snapshot id) for each change of the current snapshot, oldest first."""
    if metadata.snapshot_log:
        return metadata.snapshot_log
    # The snapshot log is optional. The ancestors of the current snapshot are the same.
    ancestors = list(_ancestors(metadata, metadata.current_snapshot_id))
    return [(snapshot.timestamp_ms, snapshot.id) for snapshot in reversed(ancestors)]


def _ancestors(metadata: TableMetadata, current: int | None) -> Iterator[IcebergSnapshot]:
    """Yield the snapshot with the id `current` and its recorded ancestors, newest first.

    Yields nothing if `current` is None. Raises ValueError if a snapshot is its own ancestor.
    """
    visited_ids = set()
    while current is not None and current in metadata.snapshots:
        if current in visited_ids:
            raise ValueError(f"the snapshot {current} is its own ancestor")
        visited_ids.add(current)
        yield metadata.snapshots[current]
        current = metadata.snapshots[current].parent_id


def _time(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds // 1000, UTC).replace(microsecond=milliseconds % 1000 * 1000)
