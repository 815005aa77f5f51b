"""The log of a Delta table: which files it has, which of them make up a version, and when versions were committed."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property

from metastore_assets.errors import TableFormatError
from metastore_assets.formats.checked import number, record
from metastore_assets.formats.metadata_json import parsed, parsed_line
from metastore_assets.formats.places.location import Location

LOG = "_delta_log"
_COMMIT = re.compile(r"(\d{20})\.json")
_COMPACTED = re.compile(r"(\d{20})\.(\d{20})\.compacted\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10})|\.[0-9A-Za-z-]+)?\.(parquet|json)")
_NUMBERED = ("0", ":")
"""Between these sort the names that start with digits, as those of all entries of a log do."""
_END = 1 << 16
_TICK = timedelta(milliseconds=1)


@dataclass(frozen=True)
class Log:
    """The files of a log by what they are for."""

    commits: frozenset[int]
    compactions: tuple[tuple[int, int], ...]
    """First and last version (both inclusive) of the commits that a file sums up."""
    checkpoints: dict[int, tuple[str, ...]]
    """By version, the file names of one complete checkpoint."""

    @classmethod
    def of(cls, names: Iterable[str]) -> Log:
        """From the names of the files in the log's folder. A checkpoint with missing parts does not count."""
        commits, compactions = set(), []
        parts: dict[tuple[int, int, str], list[str]] = {}
        for name in names:
            if match := _COMMIT.fullmatch(name):
                commits.add(int(match[1]))
            elif match := _COMPACTED.fullmatch(name):
                compactions.append((int(match[1]), int(match[2])))
            elif match := _CHECKPOINT.fullmatch(name):
                count = int(match[3] or 1)
                parts.setdefault((int(match[1]), count, "" if match[3] else name), []).append(name)
        checkpoints = {}
        for (version, count, _), files in sorted(parts.items(), reverse=True):
            if len(files) == count:
                # Of several, the one in fewest files stays.
                checkpoints[version] = tuple(sorted(files))
        return cls(frozenset(commits), tuple(sorted(compactions)), checkpoints)

    @property
    def newest(self) -> int | None:
        """The newest version; None when there is none."""
        ends = [end for _, end in self.compactions]
        return max([*self.commits, *self.checkpoints, *ends], default=None)

    @cached_property
    def versions(self) -> tuple[int, ...]:
        """Versions that the log still tells completely, ascending."""
        told: set[int] = set()
        starts = {end: [first for first, last in self.compactions if last == end] for _, end in self.compactions}
        for version in sorted({*self.commits, *self.checkpoints, *starts}):
            firsts = [version] if version in self.commits else []
            if version in self.checkpoints or any(
                first == 0 or first - 1 in told for first in [*firsts, *starts.get(version, [])]
            ):
                told.add(version)
        return tuple(sorted(told))

    def files(self, table: str, version: int) -> tuple[list[str], tuple[str, ...]]:
        """What a version is told by: names of JSON files with actions, newest first, then those of a checkpoint.

        A compaction is read only where commits are missing. Raises TableFormatError when that leaves a gap.
        """
        names = []
        number = version
        while number >= 0 and number not in self.checkpoints:
            if number in self.commits:
                names.append(f"{number:020}.json")
                number -= 1
                continue
            # One that reaches further back than needed, or overlaps what was read, does no harm: newer actions win.
            covering = [pair for pair in self.compactions if pair[0] <= number <= pair[1] <= version]
            if not covering:
                raise TableFormatError(f"{table}: the log has no commit {number}, nor a checkpoint behind it")
            first, last = min(covering)
            names.append(f"{first:020}.{last:020}.compacted.json")
            number = first - 1
        return names, self.checkpoints[number] if number >= 0 else ()


def read_log(location: Location, whole: bool = False) -> Log:
    """The log's files: those since the newest checkpoint that is known without listing, or `whole`."""
    first, end = _NUMBERED
    hint = "" if whole else _hint(location)
    log = Log.of(location.names(LOG, hint or first, end))
    # The hint may be left from a longer log that lay here before, or its checkpoint be gone.
    if hint and (log.newest is None or not log.checkpoints):
        log = Log.of(location.names(LOG, first, end))
    return log


def holds_delta(location: Location) -> bool:
    """Whether a folder is a table: whether it has a log with entries."""
    entries = (_COMMIT, _COMPACTED, _CHECKPOINT)
    return any(entry.fullmatch(name) for name in location.names(LOG, *_NUMBERED) for entry in entries)


def _hint(location: Location) -> str:
    """A name in the log that sorts before the newest known checkpoint and all commits since; else empty."""
    try:
        hint = record(parsed(location.read(f"{LOG}/_last_checkpoint")), "the hint")
        return f"{number(hint.get('version'), 'version', least=0):020}"
    except (OSError, ValueError, RecursionError):
        return ""


def commit_time(location: Location, version: int) -> datetime | None:
    """When a version was committed, in UTC, as its commit file says; None when it does not, or is cleaned up."""
    try:
        return _told_time(location, version)[0]
    except FileNotFoundError:
        return None


def version_at(location: Location, log: Log, moment: datetime) -> int | None:
    """The newest version that was committed up to a moment; None when all that are still told are younger.

    A commit's time is its in-commit timestamp, else that in its provenance information, else when its file was
    written. As in Delta itself, a commit that would be no younger than the one before it, but for clocks that differ,
    counts as a millisecond younger; in-commit timestamps are never moved.
    """
    found = previous = None
    for version in log.versions:
        if version not in log.commits:
            continue
        time, is_certain = _told_time(location, version)
        if time is None:
            time = location.modified(f"{LOG}/{version:020}.json")
        if not is_certain and previous is not None and time <= previous:
            time = previous + _TICK
        previous = time
        if time <= moment:
            found = version
    return found


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
                commit = record(record(parsed_line(line), "a line").get("commitInfo"), "commitInfo")
                for name in ("inCommitTimestamp", "timestamp"):
                    if isinstance(commit.get(name), int):
                        return datetime.fromtimestamp(commit[name] / 1000, UTC), name == "inCommitTimestamp"
    return None, False
