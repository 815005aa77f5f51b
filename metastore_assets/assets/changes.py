"""What a version has that Dagster has not been told yet: a comparison of two published versions."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from metastore_assets.assets.names import KINDS, Kind
from metastore_assets.store.manifest import PartitionEntry, ProfileFiles, Version


@dataclass(frozen=True)
class Changes:
    """What to report of a version. Keys in the order of the version, kinds in the order of reporting."""

    partitions: tuple[tuple[PartitionEntry, tuple[Kind, ...]], ...]
    """Partitions of which files changed, with the kinds of those files."""
    table: tuple[Kind, ...]
    """Kinds of table-level files that changed. Statistics always, when the version is new."""


def changes_between(told: Version | None, now: Version) -> Changes:
    """What `now` has that `told`, the version that was reported last, had not. Everything when there is none."""
    before = {entry.key: shown_files(told, entry) for entry in told.partitions} if told else {}
    partitions = []
    for entry in now.partitions:
        if told is not None and entry.version <= told.number and entry.key in before:
            continue
        files = shown_files(now, entry)
        kinds = () if files is None else changed_kinds(before.get(entry.key), files)
        if kinds:
            partitions.append((entry, kinds))
    whole = shown_files(now)
    table: set[Kind] = set() if whole is None else set(changed_kinds(shown_files(told), whole))
    if told is None or told.number != now.number:
        table.add("statistics")
    return Changes(tuple(partitions), tuple(kind for kind in KINDS if kind in table))


def with_selected(
    changes: Changes, now: Version, partitions: Mapping[Kind, Collection[str]], table: Collection[Kind]
) -> Changes:
    """The changes, and what was selected to be materialized: reported whether it changed or not."""
    own = {entry.key: set(kinds) for entry, kinds in changes.partitions}
    for kind, keys in partitions.items():
        for key in keys:
            own.setdefault(key, set()).add(kind)
    return Changes(
        tuple(
            (entry, tuple(kind for kind in KINDS if kind in own[entry.key]))
            for entry in now.partitions
            if entry.key in own
        ),
        tuple(kind for kind in KINDS if kind in changes.table or kind in table),
    )


def shown_files(version: Version | None, entry: PartitionEntry | None = None) -> ProfileFiles | None:
    """The files of a version's table, or of one of its partitions, with the lists that go for it as its frequencies.

    The table's lists are kept apart from its profile; its only partition may have none but these.
    """
    if version is None:
        return None
    files = version.files if entry is None else entry.files
    lists = () if version.lists is None else version.lists.files
    if entry is None or (not files.frequencies and len(version.partitions) == 1):
        return replace(files, frequencies=lists)
    return files


def changed_kinds(before: ProfileFiles | None, now: ProfileFiles) -> tuple[Kind, ...]:
    """Kinds whose files are others than before. A kind without a file has not changed; files never change in place."""
    return tuple(kind for kind in KINDS if paths_of(now, kind) and paths_of(before, kind) != paths_of(now, kind))


def paths_of(files: ProfileFiles | None, kind: Kind) -> tuple[str, ...]:
    """The files of one kind: none, one, or several parts."""
    if files is None:
        return ()
    paths = getattr(files, kind)
    return paths if isinstance(paths, tuple) else (paths,) if paths else ()
