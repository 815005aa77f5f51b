"""Removing old versions and what only they hold at once, so that values that were deleted are not told any more.

`expire` is careful: what is younger than its grace stays, for readers and running publishers, and profiles of
fragments that left the table stay in the newest version, for restores. Here they go, readers or not. A publisher that
runs meanwhile loses the race, for a version is published first, and plans again from that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from metastore_assets.errors import VersionConflictError, VersionNotFoundError
from metastore_assets.pipeline.rewriting import moved_from_mixed
from metastore_assets.store.document import stored_entries
from metastore_assets.store.manifest import Version
from metastore_assets.store.pending import clear_pending, list_pending, read_pending, remove_cleared
from metastore_assets.store.versions import VersionStore

_RUNNING = timedelta(days=1)
"""Longer than any refresh: what an attempt kept that long ago is not in use any more."""
_ATTEMPTS = 5


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
    """Profiles that refreshes of the last day have not published, and that stay for them."""


def purge(versions: VersionStore, before: int, now: datetime | None = None) -> Purged:
    """Remove all versions below the number `before`, and every file that no live part of those from there on needs.

    Also what only the profiles of fragments that left the table need, in whatever version, and what planning learnt.

    Raises VersionNotFoundError when there is no version from `before` on, VersionConflictError when others publish
    all the time; StoreError when a version that stays cannot be read, and then nothing has been removed.
    """
    now = now or datetime.now(UTC)
    published = _publish_without_former(versions, before)
    objects, documents = versions.objects, versions.documents
    numbers = versions.numbers()
    kept = [versions.read(number) for number in numbers if number >= before]
    pending = list_pending(objects)
    # Who has read one that was cleared since began before the version just published, and has to begin anew.
    stale = [info.path for info in pending.files if info.path in pending.marks or info.modified < now - _RUNNING]
    young = [info.path for info in pending.files if info.path not in stale]
    *earlier, newest = kept
    # Those before it need no more than it takes to answer: nothing is planned from them.
    needed = {path for version in earlier for path in _live_paths(version)} - {*_shared_paths(kept)}
    needed.update(_live_paths(newest))
    unfinished = {path for file in young for entry in read_pending(objects, file) for path in entry.files.paths()}
    removable = {path for version in kept for path in _former_paths(version)} | {*_shared_paths(kept)}
    removable |= {path for file in stale for entry in read_pending(objects, file) for path in entry.files.paths()}
    outdated = [number for number in numbers if number < before]
    for number in outdated:
        removable.update(_all_paths(versions.read(number)))
    removable -= needed | unfinished
    sizes = {info.path: info.size for info in objects.list()}
    # Versions go before the first of their files does: who reads one finds it gone, not damaged.
    objects.delete([documents.path(number) for number in outdated])
    gone = sorted(removable & sizes.keys())
    objects.delete(gone)
    clear_pending(objects, stale)
    remove_cleared(objects, list_pending(objects), stale)
    left = versions.expire(len(kept), _RUNNING, now)
    return Purged(
        len(outdated),
        len(gone) + len(stale) + left.files,
        sum(sizes[path] for path in gone) + left.bytes,
        published,
        len(unfinished - needed),
    )


def _publish_without_former(versions: VersionStore, before: int) -> int:
    """Publish what the newest version says, but for former fragments and what planning learnt; the number."""
    for _ in range(_ATTEMPTS):
        latest = versions.latest()
        if latest is None or not 1 <= before <= latest.number:
            there = "none is published" if latest is None else f"the newest is {latest.number}"
            raise VersionNotFoundError(
                f"table {versions.table!r} has no version {before} or later that could stay: {there}"
            )
        live = [entry for entry in latest.fragments if entry.retired is None]
        # Files that they share with what went hold its values too.
        live, nodes = moved_from_mixed(versions.objects, live, latest.nodes)
        new = replace(
            latest,
            number=latest.number + 1,
            published_at=datetime.now(UTC),
            fragments=live,
            nodes=nodes,
            memory={},
            released=None,
        )
        try:
            # Without a base all entries are written whole: files of the version before would tell of what went.
            versions.publish(new)
        except VersionConflictError:
            continue
        return new.number
    raise VersionConflictError(
        f"table {versions.table!r}: other processes published {_ATTEMPTS} versions meanwhile; try again"
    )


def _live_paths(version: Version) -> Iterator[str]:
    """What a version needs to answer and to be planned from."""
    former = set(_former_paths(version))
    live = {path for entry in version.fragments if entry.retired is None for path in entry.files.paths()}
    yield from (path for path in _all_paths(version) if path not in former or path in live)


def _shared_paths(kept: Sequence[Version]) -> Iterator[str]:
    """Files of several profiles that nobody but merges reads."""
    for version in kept:
        profiles = [entry.files for entries in (version.fragments, version.nodes) for entry in entries]
        yield from (files.states for files in profiles if files.sections > 1)


def _former_paths(version: Version) -> Iterator[str]:
    """Profiles of fragments that are not in the version's snapshot."""
    others = [entry.files for entries in (version.partitions, version.nodes) for entry in entries]
    named = {path for files in (version.files, *others) for path in files.paths()}
    yield from (
        path
        for entry in version.fragments
        if entry.retired is not None
        for path in entry.files.paths()
        if path not in named
    )


def _all_paths(version: Version) -> Sequence[str]:
    entries = [path for own in stored_entries(version) for path in own.files.paths()]
    return [*version.paths(), *version.own_files(), *entries]
