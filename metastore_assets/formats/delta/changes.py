"""The net effect of some commits of a Delta log, read from these commits alone, without older ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from metastore_assets.formats.delta.actions import Action, AddedFile, Replay, action_key
from metastore_assets.formats.delta.log import is_commit_name
from metastore_assets.storage.location import Location


@dataclass(frozen=True, slots=True)
class RemovedFile:
    """A data file that commits remove from the table."""

    path: str
    """A percent-encoded URI, absolute or relative to the table."""
    partition_values: Mapping[str, Any]
    """Partition values by physical column name. Values that the commits do not record are missing."""
    was_live: bool
    """Whether the file was live before these commits. If not, they may have added it themselves."""


@dataclass(frozen=True)
class LogChanges:
    """The net effect of consecutive commits."""

    protocol: dict[str, Any]
    """The newest protocol of these commits; empty if they do not change it."""
    metadata: dict[str, Any]
    """The newest metadata of these commits; empty if they do not change them."""
    adds: list[AddedFile]
    """Files that these commits add, and that are live after them."""
    removed: list[RemovedFile]
    """Files that these commits remove. If `adds` has the path, too, the file is live again."""


def read_changes(location: Location, names: Sequence[str]) -> LogChanges:
    """Return the net effect of consecutive commits.

    Args:
        location: the table's folder.
        names: names of the commits in the log, and of compacted files in place of commits, newest first.

    Raises:
        OSError: a file cannot be read.
        TableFormatError: a file violates the protocol.
    """
    replay = _ChangesReplay(location)
    replay.read_commits(names)
    return replay.changes()


@dataclass(slots=True)
class _FileHistory:
    """A summary of the actions on one data file in the commits that were read."""

    path: str
    oldest: str = ""
    """Name of the oldest file of the log with an action on the data file."""
    is_removed_first: bool = False
    """Whether `oldest` removes the data file, with one of its deletion vectors or without."""
    is_removed: bool = False
    """Whether any action removes the data file, with one of its deletion vectors or without."""
    partition_values: Mapping[str, Any] | None = None
    """Partition values in the oldest action that records them; None if none does."""


class _ChangesReplay(Replay):
    """A replay that reads only some commits, such as those of versions 5 to 9.

    Unlike a full replay, it also records the files that these commits remove.
    """

    def __init__(self, location: Location) -> None:
        super().__init__(location)
        self._histories: dict[str, _FileHistory] = {}

    def changes(self) -> LogChanges:
        """Return the net effect of the commits that were read."""
        removed_files = [
            # A compacted file lists what it removes, whether or not an older version has the file.
            RemovedFile(
                history.path,
                history.partition_values or {},
                history.is_removed_first and is_commit_name(history.oldest),
            )
            for history in self._histories.values()
            if history.is_removed
        ]
        return LogChanges(self.protocol, self.metadata, list(self._live.values()), removed_files)

    def _add(self, name: str, actions: Iterator[Action]) -> None:
        super()._add(name, self._record_histories(name, actions))

    def _record_histories(self, name: str, actions: Iterator[Action]) -> Iterator[Action]:
        """Yield all actions of one file of the log.

        Its actions on data files are also recorded in `_histories`.
        """
        for kind, action in actions:
            if kind in ("add", "remove"):
                history = self._histories.setdefault(action_key(action)[0], _FileHistory(action["path"]))
                if history.oldest != name:
                    history.oldest, history.is_removed_first = name, False
                values = action.get("partitionValues")
                # Not all writers record the values where they remove a file.
                if isinstance(values, Mapping) and values:
                    history.partition_values = values
                if kind == "remove":
                    history.is_removed = history.is_removed_first = True
            yield kind, action
