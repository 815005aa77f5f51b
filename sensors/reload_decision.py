"""Whether the tables of a database are others than those that are loaded, and what to do then: a pure function."""

import json
from collections.abc import Set
from dataclasses import dataclass
from datetime import UTC, datetime

from metastore_assets.messages import join_names

CURSOR_FORMAT = 1
_PAUSE = 600.0
"""Seconds until the same is asked for again: a server that cannot reload, or a catalog that does not answer while it
does, must not keep the machine busy."""


@dataclass(frozen=True)
class ReloadRequest:
    """What a sensor remembers between ticks: for which tables it had the code location reloaded, and when."""

    tables: tuple[str, ...] = ()
    at: float = 0.0
    """Seconds; 0 when it never had."""

    def to_json(self) -> str:
        """The text that Dagster stores."""
        return json.dumps({"format": CURSOR_FORMAT, "tables": self.tables, "at": self.at})

    @classmethod
    def from_json(cls, text: str | None) -> "ReloadRequest":
        """The cursor stored; one that is missing, damaged, or of a newer release is as good as none."""
        try:
            fields = json.loads(text or "")
            if fields["format"] == CURSOR_FORMAT:
                return cls(tuple(map(str, fields["tables"])), float(fields["at"]))
        except (ValueError, KeyError, TypeError):
            pass
        return cls()


@dataclass(frozen=True)
class Decision:
    """Have the code location reloaded or not, and why. `request` is to be remembered."""

    request: ReloadRequest
    reloads: bool
    reason: str


def decide(request: ReloadRequest, loaded: Set[str], existing: Set[str], now: float) -> Decision:
    """Ask when the tables there are others than those that are loaded; for the same ones again only after a while."""
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
