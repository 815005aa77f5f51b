"""The log of a Delta table: which files it has, and which of them make up a version."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from metastore_assets.errors import TableFormatError
from metastore_assets.formats.metadata_json import as_integer, as_object, parse_json
from metastore_assets.storage.location import Location

LOG = "_delta_log"
_COMMIT = re.compile(r"(\d{20})\.json")
_COMPACTED = re.compile(r"(\d{20})\.(\d{20})\.compacted\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10})|\.[0-9A-Za-z-]+)?\.(parquet|json)")
NUMBERED = ("0", ":")
"""Between these sort the names that start with digits, as those of all entries of a log do."""


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
                names.append(commit_name(number))
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


def commit_name(version: int) -> str:
    """Of the file with the actions of a version."""
    return f"{version:020}.json"


def commit_path(version: int) -> str:
    """Of the same file, below the table's folder."""
    return f"{LOG}/{commit_name(version)}"


def read_log(location: Location, whole: bool = False) -> Log:
    """The log's files: those since the newest checkpoint that is known without listing, or `whole`."""
    first, end = NUMBERED
    hint = "" if whole else _hint(location)
    log = Log.of(location.names(LOG, hint or first, end))
    # The hint may be left from a longer log that lay here before, or its checkpoint be gone.
    if hint and (log.newest is None or not log.checkpoints):
        log = Log.of(location.names(LOG, first, end))
    return log


def log_since(location: Location, version: int) -> Log:
    """The log's files that sort behind the number of a version: its own, and those of later ones."""
    return Log.of(location.names(LOG, f"{version:020}", NUMBERED[1]))


def holds_delta(location: Location) -> bool:
    """Whether a folder is a table: whether it has a log with entries."""
    entries = (_COMMIT, _COMPACTED, _CHECKPOINT)
    return any(entry.fullmatch(name) for name in location.names(LOG, *NUMBERED) for entry in entries)


def _hint(location: Location) -> str:
    """A name in the log that sorts before the newest known checkpoint and all commits since; else empty."""
    try:
        hint = as_object(parse_json(location.read(f"{LOG}/_last_checkpoint")), "the hint")
        return f"{as_integer(hint.get('version'), 'version', minimum=0):020}"
    except (OSError, ValueError, RecursionError):
        return ""
