"""When the versions of a Delta table were committed, and which one was the newest at a moment."""

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
    """What is known of when a version was committed, in UTC."""

    told: datetime | None
    """As its commit file says."""
    is_certain: bool
    """Whether that is an in-commit timestamp."""
    written: datetime | None
    """When its file was, where it does not say."""


class CommitTimes:
    """The times in the commit files of a log. Those that are known are not read again."""

    def __init__(self, location: Location, cache: MetadataCache) -> None:
        self._location = location
        self._cache = cache
        self._key = cache_key("delta commit times", location.uri)
        self._newest_key = cache_key("delta newest commit", location.uri)
        self._known: dict[int, CommitTime] = {}

    def of(self, version: int, *, keep: bool = False) -> datetime | None:
        """When a version was committed, in UTC, as its commit file says; None when it does not, or is cleaned up.

        `keep`, it is the newest one, and `newest` is to know it.
        """
        if version in self._known:
            return self._known[version].told
        try:
            # Asked for before it is read: if the table is made again meanwhile, what is kept is not of the new one.
            identity = self._identity(version) if keep else []
            told = _told_time(self._location, version)[0]
        except FileNotFoundError:
            return None
        if keep:
            self._cache.put(self._newest_key, json.dumps([version, identity, _number(told)]).encode())
        return told

    def newest(self) -> tuple[int, datetime | None] | None:
        """The version that was the newest, with its time, if it still is; None where that is not known.

        Costs one listing of the end of the log where one is known, and nothing where none is.
        """
        known = self._cache.get(self._newest_key, _decoded_newest)
        if known is None:
            return None
        version, identity, told = known
        listed = dict(self._location.identities(LOG, f"{version:020}", NUMBERED[1]))
        if Log.of(listed).newest == version and listed.get(commit_name(version)) == identity:
            return version, told
        return None

    def version_at(self, log: Log, moment: datetime) -> int | None:
        """The newest version that was committed up to a moment; None when all that are still told are younger.

        A commit's time is its in-commit timestamp, else that in its provenance information, else when its file was
        written. As in Delta itself, a commit that would be no younger than the one before it, but for clocks that
        differ, counts as a millisecond younger; in-commit timestamps are never moved.
        """
        versions = [version for version in log.versions if version in log.commits]
        self._read(versions)
        found = previous = None
        for version in versions:
            known = self._known[version]
            time = known.told or known.written
            assert time is not None
            if not known.is_certain and previous is not None and time <= previous:
                time = previous + _TICK
            previous = time
            if time <= moment:
                found = version
        return found

    def _read(self, versions: list[int]) -> None:
        """Make the times of all known. Of those from before, the file of the newest tells that all are of this log."""
        kept = self._cache.get(self._key, _decoded)
        known: dict[int, CommitTime] = {}
        if kept is not None and kept[0] in versions and self._identity(kept[0]) == kept[1]:
            known = {version: kept[2][version] for version in versions if version in kept[2]}
        new = [version for version in versions if version not in known]
        # Asked for before anything is read: if the table is made again meanwhile, what is kept is not of the new one.
        identity = self._identity(versions[-1]) if new else None
        for version in new:
            known[version] = self._read_one(version)
        self._known = known
        if identity is not None:
            self._cache.put(self._key, _encoded(versions[-1], identity, known))

    def _read_one(self, version: int) -> CommitTime:
        told, is_certain = _told_time(self._location, version)
        written = None if told is not None else self._location.modified(commit_path(version))
        return CommitTime(told, is_certain, written)

    def _identity(self, version: int) -> Sequence[str]:
        return self._location.identity(commit_path(version))


def _told_time(location: Location, version: int) -> tuple[datetime | None, bool]:
    """The time in a commit file, and whether it is an in-commit timestamp.

    Writers put that information first or last: of a long file only both ends are read.
    """
    with location.open(f"{LOG}/{version:020}.json") as file:
        size = file.size()
        text = file.read(_END)
        file.seek(max(len(text), size - _END))
        text += file.read()
    for line in text.splitlines():
        if b'"commitInfo"' in line[:32]:
            # Cut off, where the two ends do not meet; or nonsense, which tells no time.
            with suppress(ValueError, OverflowError, RecursionError):
                commit = as_object(as_object(parse_json_line(line), "a line").get("commitInfo"), "commitInfo")
                for name in ("inCommitTimestamp", "timestamp"):
                    if isinstance(commit.get(name), int):
                        return datetime.fromtimestamp(commit[name] / 1000, UTC), name == "inCommitTimestamp"
    return None, False


def _encoded(newest: int, identity: Sequence[str], known: dict[int, CommitTime]) -> bytes:
    times = [[version, _number(one.told), one.is_certain, _number(one.written)] for version, one in known.items()]
    return json.dumps([newest, identity, times], separators=(",", ":")).encode()


def _decoded(data: bytes) -> tuple[int, Sequence[str], dict[int, CommitTime]]:
    newest, identity, times = json.loads(data)
    known = {version: CommitTime(_time(told), certain, _time(written)) for version, told, certain, written in times}
    return newest, identity, known


def _decoded_newest(data: bytes) -> tuple[int, Sequence[str], datetime | None]:
    version, identity, told = json.loads(data)
    return version, identity, _time(told)


def _number(time: datetime | None) -> int | None:
    return None if time is None else (time - _START) // _MICROSECOND


def _time(number: int | None) -> datetime | None:
    return None if number is None else _START + number * _MICROSECOND
