"""What a version has that Dagster has not been told yet: a comparison of two published versions."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

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
    before = {entry.key: entry.files for entry in told.partitions} if told else {}
    partitions = []
    for entry in now.partitions:
        if told is not None and entry.version <= told.number and entry.key in before:
            continue
        kinds = changed_kinds(before.get(entry.key), entry.files)
        if kinds:
            partitions.append((entry, kinds))
    table = set(changed_kinds(told.files if told else None, now.files))
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


def changed_kinds(before: ProfileFiles | None, now: ProfileFiles) -> tuple[Kind, ...]:
    """Kinds whose files are others than before. A kind without a file has not changed; files never change in place."""
    return tuple(kind for kind in KINDS if paths_of(now, kind) and paths_of(before, kind) != paths_of(now, kind))


def paths_of(files: ProfileFiles | None, kind: Kind) -> tuple[str, ...]:
    """The files of one kind: none, one, or several parts."""
    if files is None:
        return ()
    paths = getattr(files, kind)
    return paths if isinstance(paths, tuple) else (paths,) if paths else ()
