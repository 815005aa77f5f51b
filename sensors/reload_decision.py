"""The decision to reload a code location when the tables of a database changed, as a pure function."""

import json
from collections.abc import Set
from dataclasses import dataclass
from datetime import UTC, datetime

from metastore_assets.messages import join_names

CURSOR_FORMAT = 1
_PAUSE = 600.0
"""Seconds between requests for the same tables: a server that cannot reload, or a catalog that fails during the reload,
must not keep the machine busy."""


@dataclass(frozen=True)
class ReloadRequest:
    """The last reload that a sensor requested: the tables it was for, and when."""

    tables: tuple[str, ...] = ()
    at: float = 0.0
    """Seconds since the epoch; 0 before the first request."""

    def to_json(self) -> str:
        """Return the text that Dagster stores."""
        return json.dumps({"format": CURSOR_FORMAT, "tables": self.tables, "at": self.at})

    @classmethod
    def from_json(cls, text: str | None) -> "ReloadRequest":
        """Return the stored request. A missing, damaged or newer one counts as none."""
        try:
            fields = json.loads(text or "")
            if fields["format"] == CURSOR_FORMAT:
                return cls(tuple(map(str, fields["tables"])), float(fields["at"]))
        except (ValueError, KeyError, TypeError):
            pass
        return cls()


@dataclass(frozen=True)
class Decision:
    """Whether to reload the code location, the reason, and the request to store."""

    request: ReloadRequest
    reloads: bool
    reason: str


def decide(request: ReloadRequest, loaded: Set[str], existing: Set[str], now: float) -> Decision:
    """Request a reload if the existing tables differ from the loaded ones; repeat it only after a pause."""
    if loaded == existing:
        return Decision(request, False, f"the tables are those that are loaded: {len(existing):,}")
    changes = ((sorted(existing - loaded), "came"), (sorted(loaded - existing), "went"))
    what = " and ".join(
        f"{len(names):,} {'table' if len(names) == 1 else 'tables'} {verb} ({join_names(names)})"
        for names, verb in changes
        if names
    )
    wanted = tuple(sorted(existing))
    if request.tables == wanted and 0 <= now - request.at < _PAUSE:
        moment = datetime.fromtimestamp(request.at, UTC).strftime("%H:%M:%S")
        reason = (
            f"{what}; the code location was to be reloaded at {moment} UTC, and is not yet: if it stays so, reload it "
            "by hand, or start its server by `dagster code-server start`"
        )
        return Decision(request, False, reason)
    return Decision(ReloadRequest(wanted, now), True, what)
