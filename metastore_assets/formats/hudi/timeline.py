"""The timeline of a Hudi table: its properties, its instants, and the instants that form a state."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from metastore_assets.errors import TableFormatError, TableNotFoundError
from metastore_assets.formats.base import state_not_found
from metastore_assets.iso8601 import parse_moment
from metastore_assets.storage.corrupt_input import metadata_errors
from metastore_assets.storage.location import Location, StoredFile

FOLDER = ".hoodie"
NO_INSTANT = "00000000000000"
"""The id of the state of a table without commits."""

_PROPERTIES = f"{FOLDER}/hoodie.properties"
_NAME = "hoodie.table.name"
"""The property that every table has."""
_VERSIONS = (0, 1, 2, 3, 4, 5, 6, 8, 9)
_WRITES = ("commit", "deltacommit", "replacecommit")
"""Actions that change which files, or blocks of log files, hold the rows."""
_PENDING_PLANS = ("compaction", "logcompaction", "clustering")
_FILE = re.compile(r"(\d+)(?:_(\d+))?\.(?:(?:([a-z]+)\.)?(requested|inflight)|([a-z]+))")
"""Matches the names of timeline files. `<instant>.inflight` names no action: it is a commit."""
_STATE = re.compile(r"(\d+)(?:~(\d+(?:,\d+)*))?")
INSTANTS = ("0", ":")
"""Exclusive bounds of the names of timeline files in alphabetical order. These names start with digits."""
PARTITION_MARKER = ".hoodie_partition_metadata"
"""Start of the name of a file that is in the folder of every partition."""
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
"""Characters that properties files of Java write as a backslash and a letter."""


@dataclass(frozen=True, order=True)
class Instant:
    """A completed write to the table, or a completed clean, as the timeline records it."""

    requested: str
    """Start time as digits, which identifies the instant."""
    completed: str | None
    """Completion time; None in the first layout, which does not record it."""
    action: str
    stored: StoredFile
    """The metadata file, as listed."""

    @property
    def path(self) -> str:
        """Path of the instant's metadata file, relative to the table's folder."""
        return self.stored.path

    @property
    def became_visible(self) -> str:
        """The time from which readers see the write, as digits: its completion time, or else its start time."""
        return self.completed or self.requested


@dataclass(frozen=True)
class Timeline:
    """The listed timeline of a table, with the table's properties."""

    location: Location
    properties: Mapping[str, str]
    completed: tuple[Instant, ...]
    """Completed writes, ordered by requested time."""
    pending: frozenset[str]
    """Start times of incomplete writes."""
    planned: frozenset[str]
    """Start times of compactions and clusterings that are planned, but incomplete."""
    cleans: tuple[Instant, ...]
    """Completed cleans, which removed files, ordered by requested time."""
    start: str
    """The first instant of the active timeline. Earlier instants were completed and are archived, except those that
    savepoints retain. It is the first retained instant if there are no others."""

    @property
    def version(self) -> int:
        """The version of Hudi's storage format that the table uses, 0 to 9: its `hoodie.table.version`."""
        return _version(self.location, self.properties)

    @property
    def layout(self) -> int:
        """The layout of the timeline, 1 or 2.

        A completed instant has the file name `<requested>.<action>` in layout 1, and `<requested>_<completed>.<action>`
        in layout 2.
        """
        return _layout(self.location, self.properties)

    def state(self, at: str | None) -> HudiState:
        """Return the state that `at` names: an instant, the id of a state, or a time.

        Without `at`, return the newest state. Raises SnapshotNotFoundError if there is no such state. Also raises it if
        the state at a time may include archived writes that the timeline no longer shows.
        """
        if at is None:
            return self._state(self.completed[-1].requested if self.completed else NO_INSTANT, self.pending)
        if at == NO_INSTANT and not self.completed:
            return self._state(NO_INSTANT, frozenset())
        moment = parse_moment(at)
        match = _STATE.fullmatch(at)
        if moment is not None:
            visible = [
                instant
                for instant in self.completed
                if (visible_at := instant_time(instant.became_visible)) and visible_at <= moment
            ]
            last_instant = max(visible, default=None)
            until = last_instant.requested if last_instant else ""
            if (
                last_instant
                and until < self.start
                and instant_time(last_instant.became_visible) != moment
                and self._has_archive()
            ):
                raise state_not_found(
                    self.location.uri,
                    at,
                    f"a savepoint retains {until}, and archived writes may have followed it: name an instant, or a "
                    f"time since {self.start}; its instants are",
                    [instant.requested for instant in self.completed],
                )
            later = frozenset(instant.requested for instant in self.completed if instant not in visible)
        else:
            until = match[1] if match else ""
            later = frozenset((match[2] or "").split(",")) - {""} if match else frozenset()
        state = self._state(until, self.pending | later)
        newest = max(state.requested, default="")
        if not newest or newest < until < self.start:
            instants = [instant.requested for instant in self.completed]
            raise state_not_found(
                self.location.uri, at, "name an instant, or a time since the first instant; its instants are", instants
            )
        return state

    def _has_archive(self) -> bool:
        """Return whether there are files of archived instants."""
        if self.layout == 1:
            folder = self.properties.get("hoodie.archivelog.folder") or "archived"
        else:
            folder = archive_folder(self.properties)
        return any(self.location.names(f"{FOLDER}/{folder}"))

    def _state(self, until: str, without: frozenset[str]) -> HudiState:
        """Return the state that consists of some completed instants.

        These are the instants that were requested up to the time `until`, inclusive, except those that were requested
        at one of the times in `without`.
        """
        excluded_instants = frozenset(instant for instant in without if instant <= until)
        instants = tuple(
            instant
            for instant in self.completed
            if instant.requested <= until and instant.requested not in excluded_instants
        )
        newest = instants[-1].requested if instants else NO_INSTANT
        missing_instants = sorted(instant for instant in excluded_instants if instant < newest)
        return HudiState(
            id="~".join([newest, ",".join(missing_instants)]) if missing_instants else newest,
            committed_at=instant_time(max((instant.became_visible for instant in instants), default="")),
            instants=instants,
            requested=frozenset(instant.requested for instant in instants),
            until=until,
            start=self.start,
        )


@dataclass(frozen=True)
class HudiState:
    """The completed writes whose rows a reader sees at one point in time."""

    id: str
    """The newest instant. In the rare case that earlier instants were incomplete then, `~` and these instants follow.
    """
    committed_at: datetime | None
    instants: tuple[Instant, ...]
    """Instants on the active timeline, ordered by start time."""
    requested: frozenset[str]
    """Start times of `instants`."""
    until: str
    """Start time of the last instant that may belong to the state."""
    start: str
    """The first instant of the active timeline; see `Timeline.start`."""

    def includes(self, instant: str) -> bool:
        """Return True if the write of an instant belongs to this state.

        Instants before `start` are archived. These instants belong to the state:

        - the instants in `requested`;
        - the archived instants up to `until`, inclusive;
        - all archived instants, if `instants` is empty.

        `until` may be before `start`. For example, a savepoint keeps the instant `until` on the active timeline, while
        later instants were archived.
        """
        is_archived = instant < self.start
        return instant in self.requested or (is_archived and (instant <= self.until or not self.instants))


def load_timeline(location: Location) -> Timeline:
    """Read the table's properties and list its timeline.

    Raises the errors of `load_properties`, OSError, and TableFormatError if the table's version or timeline layout is
    not supported.
    """
    properties = load_properties(location)
    layout = _layout(location, properties)
    _version(location, properties)
    folder = FOLDER if layout == 1 else f"{FOLDER}/{_timeline_folder(properties)}"
    completed_instants: dict[str, Instant] = {}
    pending_actions: dict[str, str] = {}
    cleans = []
    savepoints = set()
    for stored_file in location.files(folder, *INSTANTS):
        match = _FILE.fullmatch(stored_file.path.rpartition("/")[2])
        if match is None:
            continue
        requested_time, completion_time, pending_state, action = match[1], match[2], match[4], match[5]
        if pending_state:
            pending_actions[requested_time] = match[3] or "commit"
        elif action == "savepoint":
            savepoints.add(requested_time)
        elif (layout == 1) == (completion_time is None):
            instant = Instant(requested_time, completion_time, action, stored_file)
            if action in _WRITES:
                completed_instants[requested_time] = instant
            elif action == "clean":
                cleans.append(instant)
    unfinished_writes = {
        requested_time: action
        for requested_time, action in pending_actions.items()
        if requested_time not in completed_instants and action in (*_WRITES, *_PENDING_PLANS)
    }
    write_times = {*completed_instants, *unfinished_writes}
    return Timeline(
        location,
        properties,
        tuple(sorted(completed_instants.values())),
        frozenset(requested_time for requested_time, action in unfinished_writes.items() if action in _WRITES),
        frozenset(requested_time for requested_time, action in unfinished_writes.items() if action in _PENDING_PLANS),
        tuple(sorted(cleans)),
        # A savepoint retains its instant, and later instants may be archived.
        start=min(write_times - savepoints or write_times, default=""),
    )


def _timeline_folder(properties: Mapping[str, str]) -> str:
    return properties.get("hoodie.timeline.path", "timeline")


def archive_folder(properties: Mapping[str, str]) -> str:
    """Return the path of the folder of archived instants in layout 2, relative to the folder `.hoodie`."""
    return f"{_timeline_folder(properties)}/{properties.get('hoodie.timeline.history.path', 'history')}"


def is_hudi_table(location: Location) -> bool:
    """Return True if a folder has Hudi's file of table properties, or its backup.

    While a writer changes the properties, only the backup may exist.
    """
    name = _PROPERTIES.rpartition("/")[2]
    return name in (entry.removesuffix(".backup") for entry in location.names(FOLDER, name[:-1], f"{name}0"))


def load_properties(location: Location) -> dict[str, str]:
    """Return the properties in `hoodie.properties`, or in its backup while a writer replaces the file.

    Raises TableNotFoundError if there is neither, or TableFormatError if neither is complete.
    """
    incomplete = ""
    # While a writer changes the properties, only a copy exists. The new file may be empty at first.
    for path in (_PROPERTIES, f"{_PROPERTIES}.backup"):
        try:
            properties = _parse_properties(_read_text(location, path))
        except FileNotFoundError:
            continue
        if properties.get(_NAME):
            return properties
        incomplete = incomplete or path
    if not incomplete:
        raise TableNotFoundError(f"{location.uri} is no Hudi table: there is no {_PROPERTIES}")
    raise TableFormatError(
        f"{location.full_path(incomplete)} lacks the property {_NAME}, as for a moment while a writer replaces the "
        "file: try again, and if the error stays, add the property with the name of the table"
    )


def _parse_properties(text: str) -> dict[str, str]:
    properties = {}
    for line in text.splitlines():
        if not line.lstrip().startswith(("#", "!")) and "=" in line:
            key, _, value = line.partition("=")
            properties[_unescape(key.strip())] = _unescape(value.strip())
    return properties


def _read_text(location: Location, path: str) -> str:
    with metadata_errors(location.full_path(path)):
        return location.read(path).decode()


def instant_time(digits: str) -> datetime | None:
    """Return the time of an instant in UTC; None if the digits are not a time."""
    text = digits if len(digits) == 17 else f"{digits}000"
    try:
        return datetime.strptime(f"{text[:14]}.{text[14:]}000", "%Y%m%d%H%M%S.%f").replace(tzinfo=UTC)
    except ValueError:
        return None


def boolean_property(properties: Mapping[str, str], key: str, default: bool) -> bool:
    """Return a boolean property, or the default if it is not set."""
    return properties.get(key, str(default)).lower() == "true"


def names_property(properties: Mapping[str, str], keys: Sequence[str]) -> tuple[str, ...]:
    """Return the comma-separated names in the first property of `keys` that is not empty."""
    text = next((properties[key] for key in keys if properties.get(key)), "")
    return tuple(filter(None, map(str.strip, text.split(","))))


def _version(location: Location, properties: Mapping[str, str]) -> int:
    text = properties.get("hoodie.table.version", "0")
    if text not in map(str, _VERSIONS):
        raise TableFormatError(f"{location.uri} is a Hudi table of version {text[:20]}, which has no reader")
    return int(text)


def _layout(location: Location, properties: Mapping[str, str]) -> int:
    """Return the layout of the timeline: 2 from table version 8 on, otherwise 1.

    Raises TableFormatError if the properties record a different layout. A recorded 0 counts as 1.
    """
    expected = 2 if _version(location, properties) >= 8 else 1
    # Layout 0 differs only in how pending instants are written.
    layout = properties.get("hoodie.timeline.layout.version", str(expected)).replace("0", "1")
    if layout != str(expected):
        raise TableFormatError(f"{location.uri} has a Hudi timeline of layout {layout[:20]}, which has no reader")
    return expected


def _unescape(text: str) -> str:
    def character(match: re.Match[str]) -> str:
        return chr(int(match[1], 16)) if match[1] else _CONTROLS.get(match[2], match[2])

    return re.sub(r"\\u([0-9a-fA-F]{4})|\\(.)", character, text)
