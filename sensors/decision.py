"""The decision of a commit sensor whether to launch a run: a pure function of state and cursor.

The state is what the sensor observed. A run publishes a version: the statistics of the table at one snapshot. Then the
run reports the version to Dagster.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from metastore_assets.formats import HistoryChange

CURSOR_FORMAT = 1
_MAX_RETRY_WAIT = 3600.0
"""The maximum seconds between a failed run and its retry."""
_MAX_PROBE_WAIT = 300.0
"""The maximum seconds between probes of a table that does not exist yet. It is short, because a probe costs only a few
requests, and a person who creates the table waits for it."""

_SUCCESSIONS = {
    None: "follows version {}",
    "recreated": "is of another table than version {}: the table was recreated",
    "rolled back": "does not follow that of version {}: the table was rolled back",
    "metadata changed": "is that of version {}, but the table's metadata changed: its schema, its properties or its "
    "earlier snapshots",
}


@dataclass(frozen=True)
class Cursor:
    """The data that Dagster stores for a sensor between ticks."""

    target: str = ""
    """The digest `SensorState.target` of the last requested run; empty before the first."""
    attempt: int = 0
    """The number of runs that were requested for that target."""
    is_dropped: bool = False
    """Whether the sensor has reported that the table no longer exists."""
    missing: "MissingTable | None" = None
    """The record of probes while the table does not exist yet; None for a table that exists."""

    def to_json(self) -> str:
        """Return the JSON text that Dagster stores."""
        fields = {"format": CURSOR_FORMAT, "target": self.target, "attempt": self.attempt}
        missing = {"missing": asdict(self.missing)} if self.missing else {}
        return json.dumps(fields | ({"dropped": True} if self.is_dropped else {}) | missing)

    @classmethod
    def from_json(cls, text: str | None) -> "Cursor":
        """Parse a stored cursor.

        Return an empty one if it is missing, invalid or of a newer format.
        """
        try:
            fields = json.loads(text or "")
            if fields["format"] == CURSOR_FORMAT:
                missing = MissingTable.from_fields(fields["missing"]) if fields.get("missing") else None
                return cls(str(fields["target"]), int(fields["attempt"]), bool(fields.get("dropped")), missing)
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            pass
        # An empty cursor is harmless, because decisions also use the Metastore's versions and Dagster's runs.
        return cls()


@dataclass(frozen=True)
class MissingTable:
    """A sensor's record of a table that does not exist yet: the reason, and the time of the next probe.

    A probe looks for the table. The waits between probes become longer.
    """

    configuration: str
    """A digest of the table's configuration. After a change of the configuration, the table is probed at once."""
    reason: str
    """The error message of the last probe, which says what does not exist."""
    probes: int
    """The number of probes since the configuration changed."""
    next_probe: float
    """The time of the next probe, in seconds since the epoch."""

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> "MissingTable":
        """Create the record from JSON fields.

        Raises KeyError, ValueError or TypeError if they are invalid.
        """
        return cls(
            str(fields["configuration"]), str(fields["reason"]), int(fields["probes"]), float(fields["next_probe"])
        )

    def is_too_early(self, configuration: str, interval: float, now: float) -> bool:
        """Return whether to skip the probe: `next_probe` is in the future, and the configuration unchanged.

        The longest wait between probes is five minutes, or one interval if that is longer. If `next_probe` is further
        in the future, the clock was set back, and the result is False.

        Args:
            configuration: The digest of the table's configuration.
            interval: The seconds between ticks of the sensor.
            now: The time in seconds since the epoch.
        """
        latest_probe = now + max(_MAX_PROBE_WAIT, interval)
        return configuration == self.configuration and now < self.next_probe <= latest_probe

    def describe(self, now: float) -> str:
        """Return the message of a tick that requests no run because the table does not exist yet.

        It contains the reason, and the seconds until the next probe.

        Args:
            now: The time in seconds since the epoch.
        """
        seconds = max(0.0, self.next_probe - now)
        return f"the table does not exist yet: {self.reason}; the sensor checks it again in {seconds:.0f} s"


def update_missing_table(
    previous_record: MissingTable | None, configuration: str, reason: str, interval: float, now: float
) -> MissingTable:
    """Return the new record of a table after another probe has not found it.

    The record has the time of the next probe. The waits between probes are 1, 2, 4 … intervals. The limit is five
    minutes, or one interval if that is longer. After a change of the configuration, the waits begin again with one
    interval.

    Args:
        previous_record: The record after the previous probe; None if this is the first probe.
        configuration: The digest of the table's configuration.
        reason: The error message of this probe.
        interval: The seconds between ticks of the sensor.
        now: The time in seconds since the epoch.
    """
    probes = (
        previous_record.probes + 1
        if previous_record is not None and previous_record.configuration == configuration
        else 1
    )
    # Subtract half an interval, because a tick may come a little early.
    wait = min(interval * 2 ** min(probes - 1, 30), max(_MAX_PROBE_WAIT, interval)) - interval / 2
    return MissingTable(configuration, reason, probes, now + wait)


@dataclass(frozen=True)
class SensorState:
    """The state of a table and of its runs, as a tick observes it."""

    snapshot: str
    """The table's current snapshot."""
    is_current: bool
    """Whether the newest version describes that snapshot, and has what the configured policies ask for."""
    published_number: int
    """The number of the newest version; 0 before the first."""
    reported_number: int
    """The number of the version that was last reported to Dagster; 0 before the first."""
    target: str
    """A digest of the snapshot, the newest version and the configuration. Runs with the same target are retries."""
    active_run_id: str | None
    """The id of an unfinished run of the table; None without one."""
    attempts: int
    """The number of finished runs with this target."""
    last_end_time: float
    """The end of the last finished run with this target, in seconds since the epoch; 0 without one."""
    history_change: HistoryChange = None
    """How the table got to the current snapshot, such as `recreated` or `rolled back`; None for ordinary commits."""


@dataclass(frozen=True)
class RunDecision:
    """A decision whether to request a run, with the reason and the cursor to store."""

    cursor: Cursor
    attempt: int | None
    """The number of the attempt to request, from 1; None to request no run."""
    reason: str


def decide_run(cursor: Cursor, state: SensorState, interval: float, now: float) -> RunDecision:
    """Return the decision whether to request a run of the table.

    A run is needed if the table or its policies (what to store of each column) changed, or if the newest version was
    not reported to Dagster. While another run of the table is active, none is requested. After the first failed run,
    the next tick requests another. After the second, third and fourth, the sensor waits 1, 3 and 7 intervals, and so
    on, at most an hour.

    Args:
        cursor: The cursor of the previous tick.
        state: The observed state.
        interval: The seconds between ticks of the sensor.
        now: The time in seconds since the epoch.
    """
    if state.active_run_id is not None:
        return RunDecision(
            cursor, None, f"run {state.active_run_id} is refreshing the table; the next tick checks again"
        )
    if state.is_current and state.reported_number == state.published_number:
        return RunDecision(cursor, None, f"version {state.published_number} is current: snapshot {state.snapshot}")
    requested_attempts = cursor.attempt if cursor.target == state.target else 0
    # The larger count is right, because the cursor may have been reset, or runs deleted.
    attempts = max(requested_attempts, state.attempts)
    wait = min(interval * (2 ** min(attempts - 1, 30) - 1), _MAX_RETRY_WAIT) if attempts else 0.0
    remaining_seconds = state.last_end_time + wait - now
    if state.last_end_time and remaining_seconds > 0:
        return RunDecision(
            cursor, None, f"attempt {attempts} failed; the next one follows in {remaining_seconds:.0f} s"
        )
    reason = (
        f"version {state.published_number} was not reported yet"
        if state.is_current
        else f"snapshot {state.snapshot} {_SUCCESSIONS[state.history_change].format(state.published_number)}"
        if state.published_number
        else f"snapshot {state.snapshot} is the first"
    )
    return RunDecision(
        Cursor(state.target, attempts + 1), attempts + 1, f"{reason}; attempt {attempts + 1}" if attempts else reason
    )
