"""Commit times of the versions of a Delta table, and the newest version at a time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from metastore_assets.formats.delta.log import LOG, NUMBERED, Log, commit_name, commit_path
from metastore_assets.formats.metadata_cache import MetadataCache, cache_key
from metastore_assets.formats.metadata_json import as_object, parse_json_line
from metastore_assets.storage.location import Location

_END = 1 << 16
_TICK = timedelta(milliseconds=1)
_START = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class CommitTime(NamedTuple):
    """The commit time of a version, in UTC."""

    recorded: datetime | None
    """The time in the commit file."""
    is_certain: bool
    """Whether it is an in-commit timestamp."""
    modified: datetime | None
    """Modification time of the commit file, if the file has no time."""


class CommitTimes:
    """The commit times of a log. Cached times are not read again."""

    def __init__(self, location: Location, cache: MetadataCache) -> None:
        self._location = location
        self._cache = cache
        self._key = cache_key("delta commit times", location.uri)
        self._newest_key = cache_key("delta newest commit", location.uri)
        self._known: dict[int, CommitTime] = {}

    def of(self, version: int, *, is_newest: bool = False) -> datetime | None:
        """Return the time in a version's commit file, in UTC; None if it has none, or was removed.

        Args:
            version: the version.
            is_newest: whether it is the newest version, so that it is cached for `newest()`.
        """
        if version in self._known:
            return self._known[version].recorded
        try:
            # Asked for before it is read: if the table is made again meanwhile, what is kept is not of the new one.
            identity = self._identity(version) if is_newest else []
            recorded = _recorded_time(self._location, version)[0]
        except FileNotFoundError:
            return None
        if is_newest:
            self._cache.put(self._newest_key, json.dumps([version, identity, _number(recorded)]).encode())
        return recorded

    def newest(self) -> tuple[int, datetime | None] | None:
        """Return the cached newest version and its time; None if there is none, or it is no longer the newest.

        It lists the end of the log once, and only when there is a cached version.
        """
        known = self._cache.get(self._newest_key, _decoded_newest)
        if known is None:
            return None
        version, identity, recorded = known
        listed = dict(self._location.identities(LOG, f"{version:020}", NUMBERED[1]))
        if Log.of(listed).newest == version and listed.get(commit_name(version)) == identity:
            return version, recorded
        return None

    def version_at(self, log: Log, moment: datetime) -> int | None:
        """Return the newest version that was committed up to a moment, inclusive; None if all versions are later.

        The time of a commit is its in-commit timestamp, else the one in its provenance information, else the
        modification time of its file. As in Delta, a time that is not later than that of the previous commit is moved
        to one millisecond after it, because clocks differ. In-commit timestamps are never moved.
        """
        versions = [version for version in log.versions if version in log.commits]
        self._read(versions)
        newest = previous = None
        for version in versions:
            known = self._known[version]
            time = known.recorded or known.modified
            assert time is not None
            if not known.is_certain and previous is not None and time <= previous:
                time = previous + _TICK
            previous = time
            if time <= moment:
                newest = version
        return newest

    def _read(self, versions: list[int]) -> None:
        """Read the times that are not cached. The newest cached commit file shows whether the cache is of this log."""
        cached = self._cache.get(self._key, _decoded)
        known: dict[int, CommitTime] = {}
        if cached is not None and cached[0] in versions and self._identity(cached[0]) == cached[1]:
            known = {version: cached[2][version] for version in versions if version in cached[2]}
        new = [version for version in versions if version not in known]
        # Asked for before anything is read: if the table is made again meanwhile, what is kept is not of the new one.
        identity = self._identity(versions[-1]) if new else None
        for version in new:
            known[version] = self._read_one(version)
        self._known = known
        if identity is not None:
            self._cache.put(self._key, _encoded(versions[-1], identity, known))

    def _read_one(self, version: int) -> CommitTime:
        recorded, is_certain = _recorded_time(self._location, version)
        modified = None if recorded is not None else self._location.modified(commit_path(version))
        return CommitTime(recorded, is_certain, modified)

    def _identity(self, version: int) -> Sequence[str]:
        return self._location.identity(commit_path(version))


def _recorded_time(location: Location, version: int) -> tuple[datetime | None, bool]:
    """Return the time in a commit file, and whether it is an in-commit timestamp.

    Writers put it into the first or the last line, so that only both ends of a long file are read.
    """
    with location.open(f"{LOG}/{version:020}.json") as file:
        size = file.size()
        text = file.read(_END)
        file.seek(max(len(text), size - _END))
        text += file.read()
    for line in text.splitlines():
        if b'"commitInfo"' in line[:32]:
            # A line that is cut off between the two ends, or invalid, gives no time.
            with suppress(ValueError, OverflowError, RecursionError):
                commit = as_object(as_object(parse_json_line(line), "a line").get("commitInfo"), "commitInfo")
                for name in ("inCommitTimestamp", "timestamp"):
                    if isinstance(commit.get(name), int):
                        return datetime.fromtimestamp(commit[name] / 1000, UTC), name == "inCommitTimestamp"
    return None, False


def _encoded(newest: int, identity: Sequence[str], known: dict[int, CommitTime]) -> bytes:
    times = [[version, _number(one.recorded), one.is_certain, _number(one.modified)] for version, one in known.items()]
    return json.dumps([newest, identity, times], separators=(",", ":")).encode()


def _decoded(data: bytes) -> tuple[int, Sequence[str], dict[int, CommitTime]]:
    newest, identity, times = json.loads(data)
    known = {
        version: CommitTime(_time(recorded), certain, _time(modified)) for version, recorded, certain, modified in times
    }
    return newest, identity, known


def _decoded_newest(data: bytes) -> tuple[int, Sequence[str], datetime | None]:
    version, identity, recorded = json.loads(data)
    return version, identity, _time(recorded)


def _number(time: datetime | None) -> int | None:
    return None if time is None else (time - _START) // _MICROSECOND


def _time(number: int | None) -> datetime | None:
    return None if number is None else _START + number * _MICROSECOND
