"""Removing old versions, and files that no version names."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from metastore_assets.errors import VersionNotFoundError
from metastore_assets.produce.manifest import DATA, Manifests, manifest_path
from metastore_assets.produce.storage import Storage


@dataclass(frozen=True)
class Expired:
    """What was removed."""

    versions: int
    files: int


def expire(storage: Storage, keep: int, grace: timedelta) -> Expired:
    """Remove all but the newest `keep` versions, then files that no manifest that is left names.

    Nothing younger than `grace` is removed, nor what a manifest names that was the newest less than `grace` ago: a
    running publisher may have begun from it. So `grace` has to be longer than the longest run.
    """
    if keep < 1:
        raise ValueError(f"keep = {keep}: at least one version stays")
    before = datetime.now(UTC) - grace
    # Listed before the manifests are read: a file that is published in between is in one of them.
    files = storage.list(DATA)
    listed = sorted((place, info) for info in storage.list("versions") if (place := manifest_path(info.path)))
    newest = sorted({number for (number, _), _ in listed})[-keep:]
    last = {number: revision for (number, revision), _ in listed}
    stay: list[tuple[tuple[int, int], str]] = []
    go: list[tuple[tuple[int, int], str]] = []
    for index, ((number, revision), info) in enumerate(listed):
        replaced = listed[index + 1][1].modified if index + 1 < len(listed) else None
        recent = replaced is None or replaced > before
        wanted = number in newest and revision == last[number]
        (stay if recent or wanted else go).append(((number, revision), info.path))
    manifests = Manifests(storage)
    named: set[str] = set()
    for place, _ in stay:
        # One that another `expire` has just removed names nothing any more.
        with suppress(VersionNotFoundError):
            named |= manifests.read_revision(*place).paths()
    storage.delete([path for _, path in go])
    garbage = [info.path for info in files if info.path not in named and info.modified <= before]
    storage.delete(garbage)
    kept = {number for (number, _), _ in stay}
    return Expired(len({number for (number, _), _ in go} - kept), len(garbage))
