"""Removing old versions and what only they hold at once, so that values that were deleted are not told any more.

`expire` is careful: what is younger than its grace stays, for readers and running publishers, and profiles of
fragments that left the table stay in the newest version, for restores. Here they go, readers or not, and so does all
that no version names, however young. A publisher that runs meanwhile loses the race, for a version is published first,
and begins again from that, without anything that it wrote before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from metastore_assets.errors import VersionConflictError, VersionNotFoundError
from metastore_assets.history import remove_values
from metastore_assets.pipeline.column_spec import parse_column_spec
from metastore_assets.pipeline.engine import Engine
from metastore_assets.pipeline.index import table_index
from metastore_assets.pipeline.membership import table_membership
from metastore_assets.pipeline.merging.compaction import COMPACT_ALL, SegmentEntries, compact_segments
from metastore_assets.pipeline.partition_files import table_partition_files
from metastore_assets.store.backfills import FOLDER as BACKFILLS
from metastore_assets.store.document import stored_entries
from metastore_assets.store.manifest import Version
from metastore_assets.store.objects import ObjectInfo
from metastore_assets.store.pending import PendingFiles, list_pending
from metastore_assets.store.versions import HISTORY, VersionStore
from metastore_assets.value_counts import read_lists, rewritten, write_lists
from metastore_assets.values.leaf_columns import schema_leaves

_ATTEMPTS = 5
BEYOND = (
    "the event logs of Dagster and of other schedulers",
    "reports and answers that were saved or sent",
    "copies, backups and earlier versions of objects that the store keeps",
)
"""What may hold values of rows, and no purge reaches."""


@dataclass(frozen=True)
class Purged:
    """What was removed, and what could not be."""

    versions: int
    files: int
    """Files of all kinds but version documents."""
    bytes: int
    """Of those files."""
    published: int
    """The version, of the same content as the one before, that was published without what was kept of former fragments.
    """
    unfinished: int
    """Files among them that no version named: of refreshes that did not publish, or have not yet, and begin again."""
    outdated: int
    """Profiles of the version that tell of columns, or parts of columns, that the table has no more: they were made
    before these went, and only reading the table again makes others."""
    not_reached: tuple[str, ...] = BEYOND
    """What may hold values and lies outside of the root."""


def purge(engine: Engine, versions: VersionStore, before: int) -> Purged:
    """Remove all versions below the number `before`, and every file that nothing told from there on needs.

    The newest version is published once more, from files that hold nothing but what it tells; where it is `before`
    itself, it goes too. Of others from there on stays what they tell of partitions and the table, lists with all that
    came and went since they were written; of profiles of fragments only what the newest one needs to be planned from.
    Profiles stay whole, with columns that the table had when they were made (`Purged.outdated`).
    What planning learnt goes too, what unfinished backfills have done, and out of the history what it tells of values.

    Files that no version names go whatever their age. Nobody is waited for: a refresh that runs meanwhile cannot
    publish any more after the version that is published here, finds in it that there was a purge (`Version.purged`),
    and begins again. What it writes after that version stays; should it be killed before it begins again, the next
    purge takes that.

    Raises VersionNotFoundError when there is no version from `before` on, VersionConflictError when others publish
    all the time; StoreError when a version cannot be read, and then nothing has been removed.
    """
    objects, documents = versions.objects, versions.documents
    published, found, begun = _publish_without_former(engine, versions, before)
    pending = PendingFiles.of(ObjectInfo(path, size, begun) for path, size in found.items())
    numbers = versions.numbers()
    all_ = [versions.read(number) for number in numbers]
    if before == published - 1:
        before = published
    remove_values(versions, before)
    named = {path for version in all_ for path in _all_paths(version)}
    named |= {path for path in pending.all() if path not in pending.current()}  # their profiles were published
    needed = {path for version in all_ if version.number >= before for path in _told_paths(version)}
    needed.update(path for version in all_ if version.number >= published for path in _all_paths(version))
    removable = {path for path in found if not documents.owns(path)} - needed
    # Versions go before the first of their files does: who reads one finds it gone, not damaged.
    outdated = [number for number in numbers if number < before]
    objects.delete([documents.path(number) for number in outdated])
    objects.delete(sorted(removable))
    # Keys of partitions are values, too; without its record an unfinished backfill does all again.
    objects.delete([info.path for info in objects.list(BACKFILLS)])
    unfinished = objects.remove_unfinished(begun)
    return Purged(
        len(outdated),
        len(removable) + unfinished,
        sum(found[path] for path in removable),
        published,
        len(removable - named) + unfinished,
        _outdated(versions.read(published)),
    )


def _outdated(version: Version) -> int:
    """How many of its profiles have columns that its schema has not."""
    leaves = {leaf.field_id for own in schema_leaves(version.schema) for leaf in own}
    wide = set()
    for id_, columns in version.specs.items():
        column_specs = [parse_column_spec(text) for text in columns.values()]
        if any(own is None or not leaves.issuperset(own.values) for own in column_specs):
            wide.add(id_)
    profiles = {(own.files.name, own.spec_id) for own in version.fragments}
    profiles |= {(own.files.name, own.spec_id) for own in version.partitions}
    profiles |= {(own.files.name, own.spec_id) for own in version.nodes}
    return len({name for name, spec in profiles if spec in wide})


def _publish_without_former(
    engine: Engine, versions: VersionStore, before: int
) -> tuple[int, dict[str, int], datetime]:
    """Publish what the newest version says, but for former fragments and what planning learnt.

    Returns:
        Its number; the size of each file that was there just before, by path, but for the history's; and when that was.
    """
    for _ in range(_ATTEMPTS):
        latest = versions.latest()
        if latest is None or not 1 <= before <= latest.number:
            there = "none is published" if latest is None else f"the newest is {latest.number}"
            raise VersionNotFoundError(
                f"table {versions.table!r} has no version {before} or later that could stay: {there}"
            )
        live = [entry for entry in latest.fragments if entry.retired is None]
        entries = SegmentEntries(live, list(latest.nodes))
        entries = compact_segments(engine, versions.objects, len(latest.schema), entries, COMPACT_ALL)
        fragments, nodes = entries.fragments, entries.nodes
        lists = write_lists(versions.objects, rewritten(versions.objects, read_lists(versions.objects, latest.lists)))
        index = table_index(engine, versions.objects, len(latest.schema), None, fragments)
        by_column = table_partition_files(engine, versions.objects, len(latest.schema), None, list(latest.partitions))
        columns = latest.membership.columns if latest.membership else ()
        membership = table_membership(engine, versions.objects, columns, None, fragments)
        new = replace(
            latest,
            lists=lists,
            index=index,
            partition_files=by_column,
            membership=membership,
            number=latest.number + 1,
            published_at=datetime.now(UTC),
            fragments=fragments,
            nodes=nodes,
            memory={},
            released=None,
            effort=None,
            purged=latest.number + 1,
        )
        begun = datetime.now(UTC)
        found = {info.path: info.size for info in versions.objects.list() if not info.path.startswith(f"{HISTORY}/")}
        # Saved profiles go first: whoever reads them from now on reads none, and who has read them cannot publish.
        versions.objects.delete(list_pending(versions.objects).all())
        try:
            # Without a base all entries are written whole: files of the version before would tell of what went.
            versions.publish(new)
        except VersionConflictError:
            # Profiles too, unlike what others discard: nobody needs them, and they may tell of what goes meanwhile.
            versions.objects.delete(sorted(set(new.paths()) - set(latest.paths())))
            continue
        return new.number, found, begun
    raise VersionConflictError(
        f"table {versions.table!r}: other processes published {_ATTEMPTS} versions meanwhile; try again"
    )


def _told_paths(version: Version) -> Iterator[str]:
    """What a version needs to answer."""
    yield from version.files.paths()
    yield from (path for entry in version.partitions for path in entry.files.paths())
    yield from (path for own in stored_entries(version) for path in own.files.paths())
    yield from version.own_files()


def _all_paths(version: Version) -> Sequence[str]:
    return [*version.paths(), *_told_paths(version)]
