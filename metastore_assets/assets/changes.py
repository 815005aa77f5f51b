"""Comparison of a version with the state that Dagster shows: which events a run has to report."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from metastore_assets.assets.names import KINDS, PARTITION_KINDS, Kind
from metastore_assets.assets.partition_mapping import PartitionKeyMap
from metastore_assets.store.manifest import PartitionEntry, ProfileFiles, Version

NO_CONTENT = "no rows"
"""The content id of a project's partition for which the table has no rows."""


@dataclass(frozen=True)
class ReportedState:
    """The state of a table that Dagster shows; empty by default."""

    version: Version | None = None
    """The last version that was reported completely; None if there is none or it no longer exists."""
    contents: Mapping[str, str] = field(default_factory=dict)
    """By partition key of the table, the content id of its last event."""
    since: Mapping[str, int] = field(default_factory=dict)
    """By partition key of the table, the version of its last event after that complete report. Runs that were killed,
    or that reported only some partitions, leave such events."""
    dropped: tuple[str, ...] = ()
    """Partition keys in Dagster that were reported with rows and that the table no longer has."""
    written: frozenset[str] = frozenset()
    """Partition keys of the table that its writer materialized since. Dagster shows what depends on them as outdated,
    whether their content changed or not."""


@dataclass(frozen=True)
class Changes:
    """The events to report of a version: partitions in its order, kinds in the order of reporting."""

    partitions: tuple[PartitionEntry, ...]
    """Partitions whose files changed, or that Dagster shows with other content."""
    table: tuple[Kind, ...]
    """Kinds of table-level files that changed. A new version always includes the statistics."""
    empty: tuple[str, ...] = ()
    """Dagster's keys of the project's partitions to report as without rows."""


def changes_between(
    state: ReportedState, now: Version, kinds: Collection[Kind] = KINDS, key_map: PartitionKeyMap | None = None
) -> Changes:
    """Return what a version has that Dagster does not show yet.

    Args:
        state: The state that Dagster shows.
        now: The version to report.
        kinds: The kinds of table-level files that have an asset.
        key_map: Partitions outside it are not reported; None reports all.
    """
    before = {entry.key: entry for entry in state.version.partitions} if state.version else {}
    entries = [
        entry
        for entry in (now.partitions if is_partitioned(now) else ())
        if key_map is None or entry.key in key_map.dagster_keys
    ]
    partitions = tuple(entry for entry in entries if not _is_reported(state, before.get(entry.key), now, entry))
    whole = shown_files(now)
    table: set[Kind] = set() if whole is None else set(changed_kinds(shown_files(state.version), whole))
    if state.version is None or state.version.number != now.number:
        table.add("statistics")
    return Changes(partitions, tuple(kind for kind in KINDS if kind in table and kind in kinds), state.dropped)


def is_partitioned(version: Version) -> bool:
    """Return whether the table had partition columns in the version. Otherwise the table is its only partition."""
    return bool(version.partition_columns)


def with_selected(
    changes: Changes,
    now: Version,
    partitions: Collection[str],
    table: Collection[Kind],
    key_map: PartitionKeyMap | None = None,
) -> Changes:
    """Return the changes together with everything that the run selected, changed or not.

    Args:
        changes: The changes of the version.
        now: The version to report.
        partitions: Dagster's keys of the selected partitions.
        table: The selected kinds of table-level files.
        key_map: Key map of a project's partitions: those that the table does not have are reported as empty.
    """
    empty = () if key_map is None else (key for key in partitions if key not in key_map.table_keys)
    selected = partitions if key_map is None else key_map.to_table_keys(partitions)
    reported = {entry.key for entry in changes.partitions}.union(selected)
    return Changes(
        tuple(entry for entry in now.partitions if entry.key in reported),
        tuple(kind for kind in KINDS if kind in changes.table or kind in table),
        tuple(dict.fromkeys((*changes.empty, *empty))),
    )


def changes_of_run(others: Collection[str], changes: Changes, key_map: PartitionKeyMap | None = None) -> Changes:
    """Return the changes without the partitions that other runs report. The last run also reports the table.

    A report ends with the table's statistics: Dagster marks table-level assets as outdated by any later partition
    event.

    Args:
        others: Dagster's keys of the partitions that other runs report.
        changes: All changes of the version.
        key_map: Dagster's keys by the table's; None if they are equal.
    """
    dagster_keys = {
        entry.key: key_map.dagster_keys[entry.key] if key_map else entry.key for entry in changes.partitions
    }
    partitions = tuple(entry for entry in changes.partitions if dagster_keys[entry.key] not in others)
    empty = tuple(key for key in changes.empty if key not in others)
    is_last = len(partitions) == len(changes.partitions) and len(empty) == len(changes.empty)
    return changes if is_last else Changes(partitions, (), empty)


def shown_files(version: Version | None, entry: PartitionEntry | None = None) -> ProfileFiles | None:
    """Return the files of a version's table or partition, with value counts as its frequencies.

    The table's value counts are stored outside its profile. The only partition of a table uses the same ones.
    """
    if version is None:
        return None
    files = version.files if entry is None else entry.files
    lists = () if version.value_counts is None else version.value_counts.files
    if entry is None or (not files.frequencies and len(version.partitions) == 1):
        return replace(files, frequencies=lists)
    return files


def changed_kinds(before: ProfileFiles | None, now: ProfileFiles) -> tuple[Kind, ...]:
    """Return the kinds whose paths differ. A kind without a file has not changed; files never change in place."""
    return tuple(kind for kind in KINDS if paths_of(now, kind) and paths_of(before, kind) != paths_of(now, kind))


def paths_of(files: ProfileFiles | None, kind: Kind) -> tuple[str, ...]:
    """Return the files of one kind: none, one, or several parts. Ranks read the files of frequencies."""
    if files is None:
        return ()
    paths = files.frequencies if kind == "ranks" else getattr(files, kind)
    return paths if isinstance(paths, tuple) else (paths,) if paths else ()


def _is_reported(state: ReportedState, before: PartitionEntry | None, version: Version, entry: PartitionEntry) -> bool:
    if state.contents.get(entry.key) != entry.content_id or entry.key in state.written:
        return False
    if state.since.get(entry.key, 0) >= entry.version:
        return True
    if state.version is None or before is None:
        return False  # Dagster deleted the partition's state when the partition was dropped.
    if entry.version <= state.version.number:
        return True
    files, shown = shown_files(version, entry), shown_files(state.version, before)
    return all(paths_of(files, kind) == paths_of(shown, kind) for kind in PARTITION_KINDS)
