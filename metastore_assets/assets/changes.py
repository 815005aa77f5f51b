"""What a version has that Dagster has not been told yet: a comparison of it with what Dagster knows."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from metastore_assets.assets.names import KINDS, PARTITION_KINDS, Kind
from metastore_assets.assets.partition_mapping import PartitionKeyMap
from metastore_assets.store.manifest import PartitionEntry, ProfileFiles, Version

NO_CONTENT = "no rows"
"""The content of a partition of the project that the table has none for."""


@dataclass(frozen=True)
class ReportedState:
    """What Dagster was told of a table. Nothing, as it is made without arguments."""

    version: Version | None = None
    """The version that was reported last as a whole; None as well where that is not there any more."""
    contents: Mapping[str, str] = field(default_factory=dict)
    """By partition, the content id that it was reported with last."""
    since: Mapping[str, int] = field(default_factory=dict)
    """By partition, the number of the version that it was reported of last: of those that were reported since that
    version, by runs that were killed or that told of no more."""
    dropped: tuple[str, ...] = ()
    """Partitions, as Dagster calls them, that were told with rows and that the table does not have."""
    written: frozenset[str] = frozenset()
    """Partitions that the asset which writes the table told of since: Dagster takes what follows from them for
    outdated, whether they hold something else or not."""


@dataclass(frozen=True)
class Changes:
    """What to report of a version. Partitions in its order, kinds in the order of reporting."""

    partitions: tuple[PartitionEntry, ...]
    """Partitions of which files changed, or which Dagster shows as something else."""
    table: tuple[Kind, ...]
    """Kinds of table-level files that changed. Statistics always, when the version is new."""
    empty: tuple[str, ...] = ()
    """Partitions of the project, as Dagster calls them, to be told as without rows."""


def changes_between(
    state: ReportedState, now: Version, kinds: Collection[Kind] = KINDS, key_map: PartitionKeyMap | None = None
) -> Changes:
    """What `now` has that Dagster was not told: of the partitions that it has, if any, and of these kinds."""
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
    """Whether the table had partition columns when the version was published; else it is a partition of its own."""
    return bool(version.partition_columns)


def with_selected(
    changes: Changes,
    now: Version,
    partitions: Collection[str],
    table: Collection[Kind],
    key_map: PartitionKeyMap | None = None,
) -> Changes:
    """The changes, and what was selected to be materialized: reported whether it changed or not.

    Partitions are as Dagster calls them. Of a project's own those that the table does not have are told as well.
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
    """What is left when other runs tell of these partitions, as Dagster calls them. The last run tells of the table.

    A report ends with the table's statistics, and Dagster takes the table's assets for outdated by partitions that were
    told of after them.
    """
    dagster_keys = {
        entry.key: key_map.dagster_keys[entry.key] if key_map else entry.key for entry in changes.partitions
    }
    partitions = tuple(entry for entry in changes.partitions if dagster_keys[entry.key] not in others)
    empty = tuple(key for key in changes.empty if key not in others)
    is_last = len(partitions) == len(changes.partitions) and len(empty) == len(changes.empty)
    return changes if is_last else Changes(partitions, (), empty)


def shown_files(version: Version | None, entry: PartitionEntry | None = None) -> ProfileFiles | None:
    """The files of a version's table, or of one of its partitions, with the lists that go for it as its frequencies.

    The table's lists are kept apart from its profile; its only partition may have none but these.
    """
    if version is None:
        return None
    files = version.files if entry is None else entry.files
    lists = () if version.value_counts is None else version.value_counts.files
    if entry is None or (not files.frequencies and len(version.partitions) == 1):
        return replace(files, frequencies=lists)
    return files


def changed_kinds(before: ProfileFiles | None, now: ProfileFiles) -> tuple[Kind, ...]:
    """Kinds whose files are others than before. A kind without a file has not changed; files never change in place."""
    return tuple(kind for kind in KINDS if paths_of(now, kind) and paths_of(before, kind) != paths_of(now, kind))


def paths_of(files: ProfileFiles | None, kind: Kind) -> tuple[str, ...]:
    """The files of one kind: none, one, or several parts. Ranks are looked up in the lists of values."""
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
        return False  # Dagster forgot the partition when it had gone.
    if entry.version <= state.version.number:
        return True
    files, shown = shown_files(version, entry), shown_files(state.version, before)
    return all(paths_of(files, kind) == paths_of(shown, kind) for kind in PARTITION_KINDS)
