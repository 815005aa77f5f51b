"""The decision of a database sensor whether to reload the code location: a pure function."""

import json
from collections.abc import Set
from dataclasses import dataclass
from datetime import UTC, datetime

from metastore_assets.messages import join_names

CURSOR_FORMAT = 1
_RETRY_WAIT = 600.0
"""Seconds between two requests for the same tables. Without this wait, a server that cannot reload, or a catalog that
does not answer during the reload, would keep the machine busy."""


@dataclass(frozen=True)
class ReloadRequest:
    """The last reload that a sensor requested.

    Dagster stores it as the sensor's cursor.
    """

    tables: tuple[str, ...] = ()
    """The names of the tables that the code location should have after the reload."""
    at: float = 0.0
    """The time of the request in seconds since the epoch; 0 before the first."""

    def to_json(self) -> str:
        """Return the JSON text that Dagster stores."""
        return json.dumps({"format": CURSOR_FORMAT, "tables": self.tables, "at": self.at})

    @classmethod
    def from_json(cls, text: str | None) -> "ReloadRequest":
        """Parse a stored request.

        Return an empty one if it is missing, invalid or of a newer format.
        """
        try:
            fields = json.loads(text or "")
            if fields["format"] == CURSOR_FORMAT:
                return cls(tuple(map(str, fields["tables"])), float(fields["at"]))
        except (ValueError, KeyError, TypeError, RecursionError):
            pass
        return cls()


@dataclass(frozen=True)
class ReloadDecision:
    """A decision whether to reload the code location, with the reason.

    `request` is the last request for a reload: a new one if `reloads`, else the earlier one. The sensor stores it.
    """

    request: ReloadRequest
    reloads: bool
    reason: str


def decide_reload(
    request: ReloadRequest, loaded_names: Set[str], existing_names: Set[str], now: float
) -> ReloadDecision:
    """Return the decision: to reload if the existing tables differ from the loaded ones.

    If the last request was for the tables that exist now, the next reload is requested only ten minutes after it.

    Args:
        request: The last request.
        loaded_names: The names of the tables in the code location.
        existing_names: The names of the tables in the database.
        now: The time in seconds since the epoch.
    """
    if loaded_names == existing_names:
        return ReloadDecision(request, False, f"all tables are loaded: {len(existing_names):,}")
    changes = ((sorted(existing_names - loaded_names), "added"), (sorted(loaded_names - existing_names), "removed"))
    reason = " and ".join(
        f"{len(names):,} {'table' if len(names) == 1 else 'tables'} {change} ({join_names(names)})"
        for names, change in changes
        if names
    )
    tables = tuple(sorted(existing_names))
    if request.tables == tables and 0 <= now - request.at < _RETRY_WAIT:
        moment = datetime.fromtimestamp(request.at, UTC).strftime("%H:%M:%S")
        reason = (
            f"{reason}; the code location has not been reloaded since the request at {moment} UTC: reload it by hand, "
            "or start its server with `dagster code-server start`"
        )
        return ReloadDecision(request, False, reason)
    return ReloadDecision(ReloadRequest(tables, now), True, reason)
