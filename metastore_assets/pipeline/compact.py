"""A version of the same content whose lists are compacted: a file for each range of keys, of rows that are there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime

from metastore_assets.errors import VersionConflictError, VersionNotFoundError
from metastore_assets.lists import Lists, read_lists, write_lists
from metastore_assets.lists.printed import printed_flow
from metastore_assets.pipeline.lists import discard_lists
from metastore_assets.store.manifest import Version
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.versions import VersionStore

_ATTEMPTS = 5


@dataclass(frozen=True)
class Compacted:
    """What became of the files of a table's lists."""

    version: int
    """The newest version: the one that was published, or that there was."""
    published: bool
    """False where there was nothing to do."""
    files_before: int
    files: int


def compact(versions: VersionStore) -> Compacted:
    """Publish a version of the same content whose lists are compacted, unless they are.

    Raises VersionNotFoundError before the first version, VersionConflictError when others publish all the time.
    """
    for _ in range(_ATTEMPTS):
        latest = versions.latest()
        if latest is None:
            raise VersionNotFoundError(f"table {versions.table!r} has no published version; run `refresh`")
        before = read_lists(versions.objects, latest.lists)
        after = _compacted(versions.objects, before)
        files_before, files = len(before.paths()), len(after.paths())
        if after.is_same(before):
            return Compacted(latest.number, False, files_before, files)
        new = _with(versions.objects, latest, after)
        try:
            versions.publish(new, latest)
        except VersionConflictError:
            discard_lists(versions.objects, new.lists, latest.lists)
            continue
        return Compacted(new.number, True, files_before, files)
    raise VersionConflictError(
        f"table {versions.table!r}: other processes published {_ATTEMPTS} versions meanwhile; try again"
    )


def _compacted(store: ObjectStore, lists: Lists) -> Lists:
    printed, flow, prints = lists.printed, lists.flow, lists.printed.flow
    if lists.columns:
        flow = lists.dataflow(store).compacted(flow, full=True)
    if printed.columns:
        prints = printed_flow(store, set(printed.columns.values())).compacted(prints, full=True)
    return replace(lists, flow=flow, printed=replace(printed, flow=prints))


def _with(store: ObjectStore, latest: Version, lists: Lists) -> Version:
    return replace(
        latest,
        lists=write_lists(store, lists),
        number=latest.number + 1,
        published_at=datetime.now(UTC),
        released=None,
        effort=None,
    )
