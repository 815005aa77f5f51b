"""The events that a run has to report: how a version differs from what Dagster shows of the table.

A version is the published statistics of a table at one snapshot. Its table-level files contain the profile of the whole
table: statistics, value frequencies, histograms and ranks. Equal content ids of a partition mean equal statistics. A
report of a version is complete when all of its events are in Dagster.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from metastore_assets.assets.names import KINDS, PARTITION_KINDS, Kind
from metastore_assets.assets.partition_groups import UNGROUPED, PartitionGrouping
from metastore_assets.assets.partition_mapping import PartitionKeyMap
from metastore_assets.assets.reported_state import ReportedState
from metastore_assets.errors import ObjectNotFoundError
from metastore_assets.store.entries import PARTITIONS, diff_entries
from metastore_assets.store.version import PartitionEntry, ProfileFiles, Version


@dataclass(frozen=True)
class PendingEvents:
    """The partitions and the kinds of table-level files for which a run has to send an event to Dagster."""

    partitions: tuple[PartitionEntry, ...]
    """The partitions, or groups of them, whose files or content differ from what Dagster shows, by ascending key."""
    table: tuple[Kind, ...]
    """The kinds of table-level files that changed, in the order of `KINDS`. The statistics of a new version are always
    among them."""
    empty: tuple[str, ...] = ()
    """Dagster's keys of partitions that need an event with zero rows: the table does not have these partitions."""
    changed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """For groups of partitions: the keys of the partitions that were added, removed or changed since the last complete
    report, by the group's key. A group is missing if that is unknown."""


def find_pending_events(
    state: ReportedState,
    version: Version,
    kinds: Collection[Kind] = KINDS,
    key_map: PartitionKeyMap | None = None,
    contents: Mapping[str, str] | None = None,
) -> PendingEvents:
    """Return the partitions and kinds of table-level files of a version that need an event in Dagster.

    Args:
        state: What the events in Dagster show of the table.
        version: The version to report.
        kinds: The kinds of table-level files that have an asset in Dagster. Other kinds are omitted.
        key_map: Dagster's keys of the table's partitions, or of groups of them. Partitions and groups without a key
            have no event. None if Dagster uses the table's keys.
        contents: The result of `reportable_contents` for the version; None to compute it.
    """
    grouping = UNGROUPED if key_map is None else key_map.grouping
    contents = reportable_contents(version, grouping) if contents is None else contents
    differences = _differences(state.version, version) if contents else {}
    recomputed_keys = _recomputed_keys(state, version, grouping, differences)
    partitions = tuple(
        entry
        for entry in _unreported_partitions(state, version, contents, grouping, recomputed_keys)
        if key_map is None or entry.key in key_map.dagster_keys
    )
    changed_members = _changed_members(grouping, differences, [entry.key for entry in partitions])
    files = profile_files(version)
    table: set[Kind] = set() if files is None else set(changed_kinds(profile_files(state.version), files))
    if state.version is None or state.version.number != version.number:
        table.add("statistics")
    table_kinds = tuple(kind for kind in KINDS if kind in table and kind in kinds)
    return PendingEvents(partitions, table_kinds, state.dropped, changed_members)


def reportable_contents(version: Version, grouping: PartitionGrouping) -> Mapping[str, str]:
    """Return the content id of each group of partitions, by ascending group key.

    The result is empty without partition columns. If the grouping has no columns, each partition is a group.

    Raises ConfigError if the grouping's columns are not the first partition columns of the version.
    """
    return grouping.contents(version) if is_partitioned(version) else {}


def is_partitioned(version: Version) -> bool:
    """Return whether the table has partition columns in the version."""
    return bool(version.partition_columns)


def add_selected_events(
    events: PendingEvents,
    version: Version,
    partitions: Collection[str],
    table: Collection[Kind],
    key_map: PartitionKeyMap | None = None,
) -> PendingEvents:
    """Return `events`, and an event for everything that the run was launched for, changed or not.

    With `key_map`, a partition that the table does not have gets an event with zero rows.

    Args:
        events: The events for changes.
        version: The version to report.
        partitions: Dagster's keys of the partitions that the run was launched for.
        table: The kinds of table-level files that the run was launched for.
        key_map: The keys in Dagster of the version's partitions; None if Dagster uses the table's keys.
    """
    # A selected partition that the table does not have gets an event with zero rows.
    empty = () if key_map is None else (key for key in partitions if key not in key_map.table_keys)
    selected_keys = partitions if key_map is None else key_map.to_table_keys(partitions)
    entries = {entry.key: entry for entry in events.partitions}
    grouping = UNGROUPED if key_map is None else key_map.grouping
    entries.update(grouping.find(version, set(selected_keys) - entries.keys()))
    return PendingEvents(
        tuple(entries[key] for key in sorted(entries)),
        tuple(kind for kind in KINDS if kind in events.table or kind in table),
        tuple(dict.fromkeys((*events.empty, *empty))),
        events.changed,
    )


def remove_events_of_other_runs(
    others: Collection[str], events: PendingEvents, key_map: PartitionKeyMap | None = None
) -> PendingEvents:
    """Return the events without those of partitions that other runs of the same backfill report.

    If the event of a partition is left out, all table-level events are left out, too. The last run of the backfill
    reports the table-level events: an event of a partition after them would make Dagster mark table-level assets as
    outdated.

    Args:
        others: Dagster's keys of the partitions that other runs report.
        events: All events of the version. They are not changed.
        key_map: Dagster's keys of the table's partitions; None if Dagster uses the table's keys.
    """
    dagster_keys = {entry.key: key_map.dagster_keys[entry.key] if key_map else entry.key for entry in events.partitions}
    partitions = tuple(entry for entry in events.partitions if dagster_keys[entry.key] not in others)
    empty = tuple(key for key in events.empty if key not in others)
    # Dagster would mark table-level assets as outdated after any later event of a partition.
    is_last = len(partitions) == len(events.partitions) and len(empty) == len(events.empty)
    return events if is_last else PendingEvents(partitions, (), empty, events.changed)


def profile_files(version: Version | None, entry: PartitionEntry | None = None) -> ProfileFiles | None:
    """Return the profile files of the table or a partition, with the files of its value counts.

    Returns None if `version` is None.

    Args:
        version: The version; None if there is none.
        entry: The partition; None for the whole table.
    """
    if version is None:
        return None
    files = version.files if entry is None else entry.files
    value_counts = () if version.value_counts is None else version.value_counts.files
    # The profile of a table's only partition has no value counts: they are those of the table.
    if entry is None or (not files.frequencies and len(version.partitions) == 1):
        return replace(files, frequencies=value_counts)
    return files


def changed_kinds(before: ProfileFiles | None, after: ProfileFiles) -> tuple[Kind, ...]:
    """Return the kinds of files whose paths changed, in the order of `KINDS`.

    A kind without files in `after` is left out. If `before` is None, all kinds with files in `after` are returned.
    """
    return tuple(kind for kind in KINDS if paths_of(after, kind) and paths_of(before, kind) != paths_of(after, kind))


def paths_of(files: ProfileFiles | None, kind: Kind) -> tuple[str, ...]:
    """Return the paths of the files of one kind; none if `files` is None.

    The kind `ranks` has the same files as `frequencies`.
    """
    if files is None:
        return ()
    paths = files.frequencies if kind == "ranks" else getattr(files, kind)
    return paths if isinstance(paths, tuple) else (paths,) if paths else ()


_Differences = Mapping[str, tuple[PartitionEntry | None, PartitionEntry | None]]
"""The earlier and the later entry of each partition that differs between two versions, by key."""


def _unreported_partitions(
    state: ReportedState,
    version: Version,
    contents: Mapping[str, str],
    grouping: PartitionGrouping,
    recomputed_keys: Collection[str] | None,
) -> list[PartitionEntry]:
    """Return the partitions or groups whose files or content differ from what Dagster shows.

    They are sorted by ascending key.

    Args:
        state: What the events in Dagster show of the table.
        version: The version to report.
        contents: The content id of each partition or group to consider, by key.
        grouping: The rule by which partitions are grouped.
        recomputed_keys: The keys of the partitions or groups whose files may differ from those in the last complete
            report. None means that all may differ.
    """
    # Sets of pairs are compared without a step of Python per partition.
    stale = {key for key, _ in contents.items() - state.contents.items()} | (contents.keys() & state.written)
    candidates = contents.keys() if recomputed_keys is None else stale | (contents.keys() & recomputed_keys)
    entries = grouping.find(version, candidates)
    return [entry for key, entry in entries.items() if key in stale or state.since.get(key, 0) < entry.version]


def _differences(reported_version: Version | None, version: Version) -> _Differences | None:
    """Return the two entries of each partition that differs between two versions, by partition key.

    The entries are those in the reported and in the new version. The result is None if the differences are unknown:
    `reported_version` is None, or its entries have expired.

    Args:
        reported_version: The version that was last reported completely; None if there is none or it cannot be read.
        version: The version to report.
    """
    if reported_version is None:
        return None
    try:
        return diff_entries(PARTITIONS, reported_version.partitions, version.partitions)
    except ObjectNotFoundError:  # The entries of the reported version have expired.
        return None


def _recomputed_keys(
    state: ReportedState, version: Version, grouping: PartitionGrouping, differences: _Differences | None
) -> set[str] | None:
    """Return the keys of partitions with new profile files since the last complete report.

    New partitions are included. If partitions are grouped, the keys are those of their groups. Returns None if the
    differences are unknown.
    """
    if state.version is None or differences is None:
        return None
    return {
        grouping.key_of(key)
        for key, (before, entry) in differences.items()
        if entry is not None and _has_other_files(state.version, before, version, entry)
    }


def _changed_members(
    grouping: PartitionGrouping, differences: _Differences | None, groups: Collection[str]
) -> Mapping[str, tuple[str, ...]]:
    """Return, for each group, the keys of its partitions that were added, removed or changed.

    A partition is changed if its content differs from the last complete report. The result is an empty mapping if
    partitions are not grouped, or if `differences` is None.

    Args:
        grouping: The rule by which partitions are grouped.
        differences: The partitions that differ; None if there is no report to compare with.
        groups: The keys of the groups, which become the keys of the result.
    """
    if not grouping.columns or differences is None:
        return {}
    keys = [
        key
        for key, (before, entry) in differences.items()
        if before is None or entry is None or before.content_id != entry.content_id
    ]
    members = grouping.members(keys)
    return {group: tuple(members.get(group, ())) for group in groups}


def _has_other_files(
    reported_version: Version, before: PartitionEntry | None, version: Version, entry: PartitionEntry
) -> bool:
    """Return whether a partition's files of statistics differ from those in the last complete report.

    Args:
        reported_version: The version of the last complete report.
        before: The partition in that version; None if it did not exist.
        version: The version to report.
        entry: The partition in the version to report.
    """
    if before is None:
        return True  # Dagster deleted the partition's state when the partition was dropped.
    if entry.version <= reported_version.number:
        return False
    after_files, before_files = profile_files(version, entry), profile_files(reported_version, before)
    return any(paths_of(after_files, kind) != paths_of(before_files, kind) for kind in PARTITION_KINDS)
