"""What a commit sensor does next: a pure function of what it sees and what it remembers."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from metastore_assets.formats import HistoryChange

CURSOR_FORMAT = 1
_LONGEST_WAIT = 3600.0
_LONGEST_ABSENCE = 300.0
"""The longest wait in seconds between looks for a table that was never there: a look costs a request or a few, and
somebody who creates the table waits for it."""

_TURNS = {
    None: "follows version {}",
    "recreated": "is of another table than version {}: the table was made anew",
    "rolled back": "does not follow that of version {}: the table was rolled back",
    "metadata changed": "is that of version {}, and the table's metadata changed: its schema, its properties, or which "
    "former snapshots it has",
}


@dataclass(frozen=True)
class Cursor:
    """What a sensor remembers between ticks."""

    target: str = ""
    """What the last run was asked to bring the table up to; empty before the first."""
    attempt: int = 0
    """How many runs have been asked for with that target."""
    dropped: bool = False
    """Whether it has been told that the table is not there."""
    missing: "Missing | None" = None
    """That the table does not exist yet, as it was found last."""

    def to_json(self) -> str:
        """The text that Dagster stores."""
        fields = {"format": CURSOR_FORMAT, "target": self.target, "attempt": self.attempt}
        missing = {"missing": asdict(self.missing)} if self.missing else {}
        return json.dumps(fields | ({"gone": True} if self.dropped else {}) | missing)

    @classmethod
    def from_json(cls, text: str | None) -> "Cursor":
        """The cursor stored. One that is missing, damaged, or of a newer release is as good as none: the truth is in
        the Metastore's versions and Dagster's runs."""
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
    """A table that does not exist yet: the environment is new, or nobody has written it so far."""

    configuration: str
    """Digest of what the configuration says of the table: another one is looked for at once."""
    reason: str
    """What is not there."""
    looks: int
    """How many ticks have looked for the table."""
    next_look: float
    """When to look again, in seconds."""

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> "Missing":
        """The state stored in a cursor. Raises KeyError, ValueError or TypeError."""
        return cls(
            str(fields["configuration"]), str(fields["reason"]), int(fields["looks"]), float(fields["next_look"])
        )

    def waits(self, configuration: str, now: float) -> bool:
        """Whether it is too early to look again, for a table that is still configured as it was."""
        return configuration == self.configuration and now < self.next_look

    def describe(self, now: float) -> str:
        """Return the reason that a tick shows for skipping."""
        left = max(0.0, self.next_look - now)
        return f"the table does not exist yet: {self.reason}; the next look follows in {left:.0f} s"


def still_missing(before: Missing | None, configuration: str, reason: str, interval: float, now: float) -> Missing:
    """A table that was looked for in vain: again after 1, 2, 4 … intervals, at most five minutes or one interval."""
    looks = before.looks + 1 if before is not None and before.configuration == configuration else 1
    # A tick follows after an interval in any case, and may come a little early.
    wait = min(interval * 2 ** min(looks - 1, 30), max(_LONGEST_ABSENCE, interval)) - interval / 2
    return Missing(configuration, reason, looks, now + wait)


@dataclass(frozen=True)
class SensorState:
    """What a tick sees."""

    snapshot: str
    """Of the table, now."""
    current: bool
    """Whether the newest version describes that snapshot under the configured policies."""
    published: int
    """Number of the newest version; 0 before the first."""
    reported: int
    """Number of the version that Dagster was told last; 0 before the first."""
    target: str
    """Digest of what a run would bring the table up to, and from where."""
    active: str | None
    """Id of an unfinished run that works on the table."""
    attempts: int
    """Runs with this target that the instance knows of."""
    last_ended: float
    """When the last of them ended, in seconds; 0 without any."""
    history_change: HistoryChange = None
    """How the table came to be in that snapshot, where it was not by another commit."""


@dataclass(frozen=True)
class Decision:
    """Ask for a run or not, and why. `cursor` is to be remembered."""

    cursor: Cursor
    attempt: int | None
    """The number of the run to ask for, starting at 1; None: no run."""
    reason: str


def decide(cursor: Cursor, state: SensorState, interval: float, now: float) -> Decision:
    """Ask for a run when the table has moved on, or a version was published that Dagster has not been told of.

    Never while a run works on the table. A run that failed is asked for again on the next tick, then after 1, 3, 7 …
    intervals, at most an hour: a table that cannot be read must not keep the machine busy.
    """
    if state.active is not None:
        return Decision(cursor, None, f"run {state.active} works on the table; the next tick looks again")
    if state.current and state.reported == state.published:
        return Decision(cursor, None, f"version {state.published} is current: snapshot {state.snapshot}")
    known = cursor.attempt if cursor.target == state.target else 0
    # The cursor may have been reset, and runs deleted: whichever remembers more is right.
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
