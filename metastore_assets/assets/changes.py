"""What a version has that Dagster has not been told yet: a comparison of it with what Dagster knows."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from metastore_assets.assets.names import KINDS, PARTITION_KINDS, Kind
from metastore_assets.assets.partition_mapping import Correspondence
from metastore_assets.store.manifest import PartitionEntry, ProfileFiles, Version

NO_CONTENT = "no rows"
"""The content of a partition of the project that the table has none for."""


@dataclass(frozen=True)
class Told:
    """What Dagster was told of a table. Nothing, as it is made without arguments."""

    version: Version | None = None
    """The version that was reported last as a whole; None as well where that is not there any more."""
    contents: Mapping[str, str] = field(default_factory=dict)
    """By partition, the content id that it was reported with last."""
    since: Mapping[str, int] = field(default_factory=dict)
    """By partition, the number of the version that it was reported of last: of those that were reported since that
    version, by runs that were killed or that told of no more."""
    gone: tuple[str, ...] = ()
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
    told: Told, now: Version, kinds: Collection[Kind] = KINDS, there: Correspondence | None = None
) -> Changes:
    """What `now` has that Dagster was not told: of the partitions that it has, if any, and of these kinds."""
    before = {entry.key: entry for entry in told.version.partitions} if told.version else {}
    entries = [
        entry for entry in (now.partitions if is_partitioned(now) else ()) if there is None or entry.key in there.told
    ]
    partitions = tuple(entry for entry in entries if not _is_told(told, before.get(entry.key), now, entry))
    whole = shown_files(now)
    table: set[Kind] = set() if whole is None else set(changed_kinds(shown_files(told.version), whole))
    if told.version is None or told.version.number != now.number:
        table.add("statistics")
    return Changes(partitions, tuple(kind for kind in KINDS if kind in table and kind in kinds), told.gone)


def is_partitioned(version: Version) -> bool:
    """Whether the table had partition columns when the version was published; else it is a partition of its own."""
    return bool(version.partition_columns)


def with_selected(
    changes: Changes,
    now: Version,
    partitions: Collection[str],
    table: Collection[Kind],
    there: Correspondence | None = None,
) -> Changes:
    """The changes, and what was selected to be materialized: reported whether it changed or not.

    Partitions are as Dagster calls them. Of a project's own those that the table does not have are told as well.
    """
    empty = () if there is None else (key for key in partitions if key not in there.key)
    wanted = partitions if there is None else {there.key[key] for key in partitions if key in there.key}
    wanted = {entry.key for entry in changes.partitions}.union(wanted)
    return Changes(
        tuple(entry for entry in now.partitions if entry.key in wanted),
        tuple(kind for kind in KINDS if kind in changes.table or kind in table),
        tuple(dict.fromkeys((*changes.empty, *empty))),
    )


def changes_left_by(others: Collection[str], changes: Changes, there: Correspondence | None = None) -> Changes:
    """What is left when other runs tell of these partitions, as Dagster calls them. The last run tells of the table.

    A report ends with the table's statistics, and Dagster takes the table's assets for outdated by partitions that were
    told of after them.
    """
    told = {entry.key: there.told[entry.key] if there else entry.key for entry in changes.partitions}
    left = tuple(entry for entry in changes.partitions if told[entry.key] not in others)
    empty = tuple(key for key in changes.empty if key not in others)
    done = len(left) == len(changes.partitions) and len(empty) == len(changes.empty)
    return changes if done else Changes(left, (), empty)


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


def _is_told(told: Told, before: PartitionEntry | None, version: Version, entry: PartitionEntry) -> bool:
    if told.contents.get(entry.key) != entry.content_id or entry.key in told.written:
        return False
    if told.since.get(entry.key, 0) >= entry.version:
        return True
    if told.version is None or before is None:
        return False  # Dagster forgot the partition when it had gone.
    if entry.version <= told.version.number:
        return True
    files, shown = shown_files(version, entry), shown_files(told.version, before)
    return all(paths_of(files, kind) == paths_of(shown, kind) for kind in PARTITION_KINDS)
