"""The events that a run has to report: the differences between a version and the state that Dagster shows.

A version is the published statistics of a table at one snapshot. Its table-level files have the profile of the whole
table: statistics, value frequencies, histograms and ranks.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from metastore_assets.assets.names import KINDS, PARTITION_KINDS, Kind
from metastore_assets.assets.partition_mapping import PartitionKeyMap
from metastore_assets.assets.reported_state import ReportedState
from metastore_assets.errors import ObjectNotFoundError
from metastore_assets.store.entries import PARTITIONS, diff_entries, partition_contents
from metastore_assets.store.entry_changes import entries_of
from metastore_assets.store.manifest import PartitionEntry, ProfileFiles, Version


@dataclass(frozen=True)
class PendingEvents:
    """The parts of a version that need an event in Dagster."""

    partitions: tuple[PartitionEntry, ...]
    """The partitions that Dagster shows with other files or other content, by ascending key."""
    table: tuple[Kind, ...]
    """The kinds of table-level files that changed, in the order of `KINDS`. The statistics of a new version are always
    among them."""
    empty: tuple[str, ...] = ()
    """Dagster's keys of partitions that need an event with zero rows: the table does not have these partitions."""


def find_pending_events(
    state: ReportedState,
    version: Version,
    kinds: Collection[Kind] = KINDS,
    key_map: PartitionKeyMap | None = None,
    contents: Mapping[str, str] | None = None,
) -> PendingEvents:
    """Return the parts of a version that Dagster does not show yet.

    Entries are read of the partitions that changed since the last complete report, or that Dagster shows with other
    content. All entries are read if there is no such report, or if its version's entries have expired.

    Args:
        state: The state that Dagster shows.
        version: The version to report.
        kinds: The kinds of table-level files that have an asset.
        key_map: The partitions that have a key in Dagster; None if all have.
        contents: The result of `reportable_contents` for the version; None to read it.
    """
    contents = reportable_contents(version) if contents is None else contents
    partitions = tuple(
        entry
        for entry in _unreported_partitions(state, version, contents)
        if key_map is None or entry.key in key_map.dagster_keys
    )
    files = profile_files(version)
    table: set[Kind] = set() if files is None else set(changed_kinds(profile_files(state.version), files))
    if state.version is None or state.version.number != version.number:
        table.add("statistics")
    return PendingEvents(partitions, tuple(kind for kind in KINDS if kind in table and kind in kinds), state.dropped)


def reportable_contents(version: Version) -> Mapping[str, str]:
    """Return the content id of each partition, by key in ascending order; empty for a table without partitions."""
    return partition_contents(version) if is_partitioned(version) else {}


def is_partitioned(version: Version) -> bool:
    """Return whether the table has partition columns in the version.

    Otherwise the table is its only partition.
    """
    return bool(version.partition_columns)


def add_selected_events(
    events: PendingEvents,
    version: Version,
    partitions: Collection[str],
    table: Collection[Kind],
    key_map: PartitionKeyMap | None = None,
) -> PendingEvents:
    """Return the events together with events for everything that the run was launched for, changed or not.

    Args:
        events: The events of the version.
        version: The version to report.
        partitions: Dagster's keys of the selected partitions.
        table: The selected kinds of table-level files.
        key_map: The key map for partitions of a project: a partition that the table does not have gets an event with
            zero rows. None for dynamic partitions, whose keys are those of the table.
    """
    empty = () if key_map is None else (key for key in partitions if key not in key_map.table_keys)
    selected = partitions if key_map is None else key_map.to_table_keys(partitions)
    entries = {entry.key: entry for entry in events.partitions}
    entries.update(entries_of(version, PARTITIONS).find_all(set(selected) - entries.keys()))
    return PendingEvents(
        tuple(entries[key] for key in sorted(entries)),
        tuple(kind for kind in KINDS if kind in events.table or kind in table),
        tuple(dict.fromkeys((*events.empty, *empty))),
    )


def remove_events_of_other_runs(
    others: Collection[str], events: PendingEvents, key_map: PartitionKeyMap | None = None
) -> PendingEvents:
    """Return the events of one run of a backfill: without the partitions that the other runs report.

    If any partition is removed, the table-level events are removed too. The last run reports them, because Dagster
    marks table-level assets as outdated by any later event of a partition.

    Args:
        others: Dagster's keys of the partitions that other runs report.
        events: All events of the version.
        key_map: The partition keys in Dagster; None if they equal the table's keys.
    """
    dagster_keys = {entry.key: key_map.dagster_keys[entry.key] if key_map else entry.key for entry in events.partitions}
    partitions = tuple(entry for entry in events.partitions if dagster_keys[entry.key] not in others)
    empty = tuple(key for key in events.empty if key not in others)
    is_last = len(partitions) == len(events.partitions) and len(empty) == len(events.empty)
    return events if is_last else PendingEvents(partitions, (), empty)


def profile_files(version: Version | None, entry: PartitionEntry | None = None) -> ProfileFiles | None:
    """Return the profile files of the whole table, or of one partition, including the files with value counts.

    The table's value counts are stored outside its profile. They are also used for a table's only partition if the
    partition's profile has none. Return None without a version.

    Args:
        version: The version; None without one.
        entry: The partition; None for the whole table.
    """
    if version is None:
        return None
    files = version.files if entry is None else entry.files
    value_counts = () if version.value_counts is None else version.value_counts.files
    if entry is None or (not files.frequencies and len(version.partitions) == 1):
        return replace(files, frequencies=value_counts)
    return files


def changed_kinds(before: ProfileFiles | None, after: ProfileFiles) -> tuple[Kind, ...]:
    """Return the kinds of files in `after` whose paths differ from those in `before`.

    Files never change in place.
    """
    return tuple(kind for kind in KINDS if paths_of(after, kind) and paths_of(before, kind) != paths_of(after, kind))


def paths_of(files: ProfileFiles | None, kind: Kind) -> tuple[str, ...]:
    """Return the paths of the files of one kind. Ranks are read from the files of frequencies."""
    if files is None:
        return ()
    paths = files.frequencies if kind == "ranks" else getattr(files, kind)
    return paths if isinstance(paths, tuple) else (paths,) if paths else ()


def _unreported_partitions(state: ReportedState, version: Version, contents: Mapping[str, str]) -> list[PartitionEntry]:
    """Return the partitions that Dagster shows with other content or other files, by ascending key.

    Args:
        state: The state that Dagster shows.
        version: The version to report.
        contents: The content id of each partition to consider, by key.
    """
    if not contents:
        return []
    unreported = {
        entry.key: entry
        for entry in _recomputed_partitions(state, version)
        if state.since.get(entry.key, 0) < entry.version
    }
    # Sets of pairs are compared without a step of Python per partition.
    stale = {key for key, _ in contents.items() - state.contents.items()} | (contents.keys() & state.written)
    unreported.update(entries_of(version, PARTITIONS).find_all(stale - unreported.keys()))
    return [unreported[key] for key in sorted(unreported)]


def _recomputed_partitions(state: ReportedState, version: Version) -> Sequence[PartitionEntry]:
    """Return the partitions with other files than in the last complete report; all partitions without a report."""
    reported = state.version
    if reported is None:
        return version.partitions
    try:
        differences = diff_entries(PARTITIONS, reported.partitions, version.partitions)
    except ObjectNotFoundError:  # The entries of the reported version have expired.
        return version.partitions
    return [
        entry
        for before, entry in differences.values()
        if entry is not None and _has_other_files(reported, before, version, entry)
    ]


def _has_other_files(reported: Version, before: PartitionEntry | None, version: Version, entry: PartitionEntry) -> bool:
    """Return whether a partition has other files than in the version that was reported before.

    Args:
        reported: The version that was reported before.
        before: The partition in it; None if it does not have the partition.
        version: The version to report.
        entry: The partition in that version.
    """
    if before is None:
        return True  # Dagster deleted the partition's state when the partition was dropped.
    if entry.version <= reported.number:
        return False
    after_files, before_files = profile_files(version, entry), profile_files(reported, before)
    return any(paths_of(after_files, kind) != paths_of(before_files, kind) for kind in PARTITION_KINDS)
