"""Commit times of the versions of a Delta table, and the search for the newest version at a time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from metastore_assets.formats.delta.log import Log, commit_path, log_since
from metastore_assets.formats.metadata_cache import MetadataCache, cache_key
from metastore_assets.formats.metadata_json import as_object, parse_json_line
from metastore_assets.storage.location import Location

_END = 1 << 16
_TICK = timedelta(milliseconds=1)
_START = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class CommitTime(NamedTuple):
    """The commit time of a version, in UTC.

    It is the time that the commit file records, else the modification time of the file.
    """

    recorded: datetime | None
    """The time in the commit file; None if the file records none."""
    is_certain: bool
    """Whether `recorded` is an in-commit timestamp. These always increase from commit to commit."""
    modified: datetime | None
    """Modification time of the commit file; None if the file records a time."""


class CommitTimes:
    """A reader of the commit times of a table's versions, with a cache."""

    def __init__(self, location: Location, cache: MetadataCache) -> None:
        self._location = location
        self._cache = cache
        self._key = cache_key("delta commit times", location.uri)
        self._newest_key = cache_key("delta newest commit", location.uri)
        self._times: dict[int, CommitTime] = {}

    def recorded_time(self, version: int, newest_identity: Sequence[str] | None = None) -> datetime | None:
        """Return the time in a version's commit file, in UTC; None if the file has none or was removed.

        Args:
            version: the version.
            newest_identity: identity of the commit file (see `Location.identity`). Given only for the newest version,
                whose time is then cached.
        """
        if version in self._times:
            return self._times[version].recorded
        if newest_identity is not None:
            cached_entry = self._cache.get(self._newest_key, _decode_newest)
            if cached_entry is not None and cached_entry[:2] == (version, newest_identity):
                return cached_entry[2]
        try:
            recorded_time = _recorded_time(self._location, version)[0]
        except FileNotFoundError:
            return None
        if newest_identity is not None:
            entry = [version, newest_identity, _microseconds(recorded_time)]
            self._cache.put(self._newest_key, json.dumps(entry).encode())
        return recorded_time

    def log(self) -> Log | None:
        """List the log, beginning at the newest version for which `recorded_time` has cached the time.

        The result is None if there is no such version, or if its commit file was replaced or removed.
        """
        cached_entry = self._cache.get(self._newest_key, _decode_newest)
        if cached_entry is None:
            return None
        version, identity, _ = cached_entry
        log = log_since(self._location, version)
        return log if log.identity(version) == identity else None

    def version_at(self, log: Log, moment: datetime) -> int | None:
        """Return the newest version that was committed at or before a moment; None if all are later.

        Only versions with a commit file count. Times are adjusted so that they increase from version to version.
        """
        versions = [version for version in log.versions if version in log.commits]
        self._read(versions)
        newest = previous = None
        for version in versions:
            commit_time = self._times[version]
            time = commit_time.recorded or commit_time.modified
            assert time is not None
            # Writers' clocks differ. Delta's rule: such a time counts as one millisecond after the previous commit.
            if not commit_time.is_certain and previous is not None and time <= previous:
                time = previous + _TICK
            previous = time
            if time <= moment:
                newest = version
        return newest

    def _read(self, versions: list[int]) -> None:
        """Set `_times` to the commit times of these versions.

        Times that are not cached are read, and then cached.
        """
        cached_entry = self._cache.get(self._key, _decode)
        times: dict[int, CommitTime] = {}
        # If the newest cached commit file was replaced, the times may belong to a dropped table.
        if (
            cached_entry is not None
            and cached_entry[0] in versions
            and self._identity(cached_entry[0]) == cached_entry[1]
        ):
            times = {version: cached_entry[2][version] for version in versions if version in cached_entry[2]}
        new = [version for version in versions if version not in times]
        # The identity is read first. If the table is recreated meanwhile, the cached times will not match the new log.
        identity = self._identity(versions[-1]) if new else None
        for version in new:
            times[version] = self._read_one(version)
        self._times = times
        if identity is not None:
            self._cache.put(self._key, _encode(versions[-1], identity, times))

    def _read_one(self, version: int) -> CommitTime:
        recorded_time, is_certain = _recorded_time(self._location, version)
        modified_time = None if recorded_time is not None else self._location.modified(commit_path(version))
        return CommitTime(recorded_time, is_certain, modified_time)

    def _identity(self, version: int) -> Sequence[str]:
        return self._location.identity(commit_path(version))


def _recorded_time(location: Location, version: int) -> tuple[datetime | None, bool]:
    """Return the time in a commit file, and whether it is an in-commit timestamp.

    The result is (None, False) if the file has no time.
    """
    with location.open(commit_path(version)) as file:
        # Writers record the time in the first or the last line.
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


def _encode(newest: int, identity: Sequence[str], times: dict[int, CommitTime]) -> bytes:
    encoded_times = [
        [version, _microseconds(time.recorded), time.is_certain, _microseconds(time.modified)]
        for version, time in times.items()
    ]
    return json.dumps([newest, identity, encoded_times], separators=(",", ":")).encode()


def _decode(data: bytes) -> tuple[int, Sequence[str], dict[int, CommitTime]]:
    newest, identity, encoded_times = json.loads(data)
    times = {
        version: CommitTime(_time(recorded_time), is_certain, _time(modified_time))
        for version, recorded_time, is_certain, modified_time in encoded_times
    }
    return newest, identity, times


def _decode_newest(data: bytes) -> tuple[int, Sequence[str], datetime | None]:
    version, identity, recorded_time = json.loads(data)
    return version, identity, _time(recorded_time)


def _microseconds(time: datetime | None) -> int | None:
    return None if time is None else (time - _START) // _MICROSECOND


def _time(number: int | None) -> datetime | None:
    return None if number is None else _START + number * _MICROSECOND
