"""The files of a Delta log: commits, compacted files (several commits in one file) and checkpoints.

`Log` selects the files that make up a version.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from metastore_assets.errors import TableFormatError
from metastore_assets.formats.metadata_json import as_integer, as_object, parse_json
from metastore_assets.storage.location import Location

LOG = "_delta_log"
_COMMIT = re.compile(r"(\d{20})\.json")
_COMPACTED = re.compile(r"(\d{20})\.(\d{20})\.compacted\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10})|\.[0-9A-Za-z-]+)?\.(parquet|json)")
NUMBERED = ("0", ":")
"""Exclusive bounds of the names of log files in alphabetical order. These names start with digits."""


@dataclass(frozen=True)
class Log:
    """The listed files of a log folder.

    A listing may omit the oldest versions.
    """

    commits: frozenset[int]
    compactions: tuple[tuple[int, int], ...]
    """First and last version, both inclusive, of each compacted file."""
    checkpoints: dict[int, tuple[str, ...]]
    """File names of one complete checkpoint per version, by version."""
    identities: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Identity of each file by name, see `Location.identity`. Empty for a log that was created from names."""

    @classmethod
    def of(cls, names: Iterable[str]) -> Log:
        """Return the log that has files with these names.

        A checkpoint with missing parts is ignored.
        """
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
                # The checkpoint in the fewest files is processed last, and wins.
                checkpoints[version] = tuple(sorted(files))
        return cls(frozenset(commits), tuple(sorted(compactions)), checkpoints)

    @property
    def newest(self) -> int | None:
        """The newest version; None for an empty log."""
        ends = [end for _, end in self.compactions]
        return max([*self.commits, *self.checkpoints, *ends], default=None)

    @cached_property
    def versions(self) -> tuple[int, ...]:
        """The versions that can be replayed from the files of this log, in ascending order."""
        complete: set[int] = set()
        starts = {end: [first for first, last in self.compactions if last == end] for _, end in self.compactions}
        for version in sorted({*self.commits, *self.checkpoints, *starts}):
            firsts = [version] if version in self.commits else []
            if version in self.checkpoints or any(
                first == 0 or first - 1 in complete for first in [*firsts, *starts.get(version, [])]
            ):
                complete.add(version)
        return tuple(sorted(complete))

    def identity(self, version: int) -> Sequence[str] | None:
        """Return texts that identify the content of a version's commit file, such as its size and time.

        The result is None if the log has no such file, or was created from names alone.
        """
        return self.identities.get(commit_name(version))

    def commits_between(self, since: int, version: int) -> list[str] | None:
        """Return the names of the commit files from version `since` + 1 to `version`, newest first.

        In place of a missing commit, the result has a compacted file that covers it. The result is None if there is no
        such file.

        Args:
            since: the older version, exclusive.
            version: the newer version, inclusive.
        """
        names, number = self._json_files(version, since, ())
        return names if number == since else None

    def files(self, table: str, version: int) -> tuple[list[str], tuple[str, ...]]:
        """Return the names of the files that make up a version, as (JSON files, parts of a checkpoint).

        The JSON files are the commits after the checkpoint, newest first, or compacted files in their place.

        Args:
            table: URI of the table, for messages.
            version: the version to replay.

        Raises:
            TableFormatError: commits are missing, and no checkpoint or compacted file replaces them.
        """
        names, number = self._json_files(version, -1, self.checkpoints)
        if number >= 0 and number not in self.checkpoints:
            raise TableFormatError(f"{table}: the log has no commit {number}, nor a checkpoint behind it")
        return names, self.checkpoints[number] if number >= 0 else ()

    def _json_files(self, version: int, since: int, checkpoints: Collection[int]) -> tuple[list[str], int]:
        """Return (names of the JSON files to replay, version to which they are applied).

        For example, with a checkpoint of version 10, the result for version 12 is ([name of commit 12, name of commit
        11], 10).

        The search goes back from `version`. It ends at a version that is in `checkpoints` or equals `since`. It also
        ends at a version that has neither a commit nor a compacted file. The second result is the version at which it
        ends.

        Args:
            version: the version to replay.
            since: the version at which the search ends, even without a checkpoint; -1 for the beginning of the log.
            checkpoints: versions at which the search ends, because a checkpoint has them.
        """
        names = []
        number = version
        while number > since and number not in checkpoints:
            if number in self.commits:
                names.append(commit_name(number))
                number -= 1
                continue
            # No commit file: use the compacted file that covers this version and begins first. It may overlap other
            # files, because newer actions take precedence.
            covering_pairs = [pair for pair in self.compactions if since < pair[0] <= number <= pair[1] <= version]
            if not covering_pairs:
                break
            first, last = min(covering_pairs)
            names.append(f"{first:020}.{last:020}.compacted.json")
            number = max([first - 1, *(end for end in checkpoints if first <= end < number)])
        return names, number


def commit_name(version: int) -> str:
    """Return the name of the commit file of a version."""
    return f"{version:020}.json"


def is_commit_name(name: str) -> bool:
    """Return whether a name is that of a commit, not of a compacted file or a checkpoint."""
    return _COMMIT.fullmatch(name) is not None


def commit_path(version: int) -> str:
    """Return the path of the commit file of a version, relative to the table's folder."""
    return f"{LOG}/{commit_name(version)}"


def read_log(location: Location, complete: bool = False) -> Log:
    """List the log, beginning at the checkpoint that the file `_last_checkpoint` names.

    The whole log is listed in three cases:

    - `complete` is true.
    - There is no valid file `_last_checkpoint`.
    - The log has neither the named checkpoint nor a newer one.
    """
    hint = "" if complete else _checkpoint_hint(location)
    log = _list_log(location, hint or NUMBERED[0])
    # The hint may be from a dropped table with a longer log, or its checkpoint may have been removed.
    return log if log.checkpoints or not hint else _list_log(location, NUMBERED[0])


def log_since(location: Location, version: int) -> Log:
    """List the log from a version on."""
    return _list_log(location, f"{version:020}")


def _list_log(location: Location, first: str) -> Log:
    """List the files of the log with names after `first`.

    The result has the identity of each listed file.

    Checkpoints and compacted files of zero bytes, which interrupted writers leave behind, are ignored.
    """
    identities = {
        name: identity
        for name, identity in location.identities(LOG, first, NUMBERED[1])
        if identity[0] != "0" or _COMMIT.fullmatch(name)
    }
    return replace(Log.of(identities), identities=identities)


def is_delta_table(location: Location) -> bool:
    """Return True if a folder has a Delta log with a commit, a compacted file or a checkpoint.

    Raises OSError if the log cannot be listed.
    """
    entries = (_COMMIT, _COMPACTED, _CHECKPOINT)
    return any(entry.fullmatch(name) for name in location.names(LOG, *NUMBERED) for entry in entries)


def _checkpoint_hint(location: Location) -> str:
    """Return the version in the file `_last_checkpoint` as 20 digits; empty without a valid file."""
    try:
        hint = as_object(parse_json(location.read(f"{LOG}/_last_checkpoint")), "the hint")
        return f"{as_integer(hint.get('version'), 'version', minimum=0):020}"
    except (OSError, ValueError, RecursionError):
        return ""
