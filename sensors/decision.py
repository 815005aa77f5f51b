"""The next step of a commit sensor, as a pure function of the observed state and the cursor."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from metastore_assets.formats import HistoryChange

CURSOR_FORMAT = 1
_LONGEST_WAIT = 3600.0
_LONGEST_ABSENCE = 300.0
"""The longest wait in seconds between probes of a table that never existed. A probe costs a few requests, and a person
who creates the table waits for it."""

_TURNS = {
    None: "follows version {}",
    "recreated": "is of another table than version {}: the table was made anew",
    "rolled back": "does not follow that of version {}: the table was rolled back",
    "metadata changed": "is that of version {}, and the table's metadata changed: its schema, its properties, or which "
    "former snapshots it has",
}


@dataclass(frozen=True)
class Cursor:
    """The state that a sensor stores between ticks."""

    target: str = ""
    """The target of the last requested run; empty before the first."""
    attempt: int = 0
    """The number of runs requested for that target."""
    dropped: bool = False
    """Whether the sensor has reported that the table no longer exists."""
    missing: "Missing | None" = None
    """The last probe of a table that does not exist yet."""

    def to_json(self) -> str:
        """Return the text that Dagster stores."""
        fields = {"format": CURSOR_FORMAT, "target": self.target, "attempt": self.attempt}
        missing = {"missing": asdict(self.missing)} if self.missing else {}
        return json.dumps(fields | ({"gone": True} if self.dropped else {}) | missing)

    @classmethod
    def from_json(cls, text: str | None) -> "Cursor":
        """Return the stored cursor. A missing, damaged or newer one counts as empty: the Metastore's versions and
        Dagster's runs hold the truth.
        """
        try:
            fields = json.loads(text or "")
            if fields["format"] == CURSOR_FORMAT:
                missing = Missing.from_fields(fields["missing"]) if fields.get("missing") else None
                return cls(str(fields["target"]), int(fields["attempt"]), bool(fields.get("gone")), missing)
        except (ValueError, KeyError, TypeError):
            pass
        return cls()


@dataclass(frozen=True)
class Missing:
    """A table that does not exist yet: the environment is new, or nothing has written it."""

    configuration: str
    """Digest of the table's configuration. A changed configuration is probed at once."""
    reason: str
    """The object that does not exist."""
    looks: int
    """The number of ticks that probed the table."""
    next_look: float
    """When to probe again, in seconds since the epoch."""

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> "Missing":
        """Return the state stored in a cursor. Raise KeyError, ValueError or TypeError if it is damaged."""
        return cls(
            str(fields["configuration"]), str(fields["reason"]), int(fields["looks"]), float(fields["next_look"])
        )

    def waits(self, configuration: str, now: float) -> bool:
        """Return whether it is too early to probe a table whose configuration did not change."""
        return configuration == self.configuration and now < self.next_look

    def describe(self, now: float) -> str:
        """Return the reason that a tick shows for skipping."""
        left = max(0.0, self.next_look - now)
        return f"the table does not exist yet: {self.reason}; the next look follows in {left:.0f} s"


def still_missing(before: Missing | None, configuration: str, reason: str, interval: float, now: float) -> Missing:
    """Return the state after a probe that did not find the table.

    The waits are 1, 2, 4 … intervals, at most five minutes or one interval, whichever is longer.
    """
    looks = before.looks + 1 if before is not None and before.configuration == configuration else 1
    # Half an interval less, because a tick may come a little early.
    wait = min(interval * 2 ** min(looks - 1, 30), max(_LONGEST_ABSENCE, interval)) - interval / 2
    return Missing(configuration, reason, looks, now + wait)


@dataclass(frozen=True)
class SensorState:
    """The state that a tick observes."""

    snapshot: str
    """The table's current snapshot."""
    current: bool
    """Whether the newest version describes that snapshot under the configured policies."""
    published: int
    """Number of the newest version; 0 before the first."""
    reported: int
    """Number of the version that was last reported to Dagster; 0 before the first."""
    target: str
    """Digest of the state that a run would reach, and of the state it starts from."""
    active: str | None
    """Id of an unfinished run of the table."""
    attempts: int
    """Finished runs in the instance with this target."""
    last_ended: float
    """When the last of these runs ended, in seconds since the epoch; 0 without any."""
    history_change: HistoryChange = None
    """The change of history that led to the snapshot; None after an ordinary commit."""


@dataclass(frozen=True)
class Decision:
    """Whether to request a run, the reason, and the cursor to store."""

    cursor: Cursor
    attempt: int | None
    """The number of the attempt to request, starting at 1; None for no run."""
    reason: str


def decide(cursor: Cursor, state: SensorState, interval: float, now: float) -> Decision:
    """Request a run if the table has changed or a version was not reported to Dagster.

    There is no request while a run of the table is active. After a failed run the next attempts follow on the next
    tick, then after 1, 3, 7 … intervals, at most an hour: a table that cannot be read must not keep the machine busy.
    """
    if state.active is not None:
        return Decision(cursor, None, f"run {state.active} works on the table; the next tick looks again")
    if state.current and state.reported == state.published:
        return Decision(cursor, None, f"version {state.published} is current: snapshot {state.snapshot}")
    known = cursor.attempt if cursor.target == state.target else 0
    # The cursor may have been reset, or runs deleted: the larger count is right.
    done = max(known, state.attempts)
    wait = min(interval * (2 ** min(done - 1, 30) - 1), _LONGEST_WAIT) if done else 0.0
    left = state.last_ended + wait - now
    if state.last_ended and left > 0:
        return Decision(cursor, None, f"attempt {done} did not get there; the next one follows in {left:.0f} s")
    what = (
        f"version {state.published} is to be shown"
        if state.current
        else f"snapshot {state.snapshot} {_TURNS[state.history_change].format(state.published)}"
        if state.published
        else f"snapshot {state.snapshot} is the first"
    )
    return Decision(Cursor(state.target, done + 1), done + 1, what if not done else f"{what}; attempt {done + 1}")
