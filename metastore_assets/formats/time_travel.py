"""Which state of a table is meant: the text of `at`, read alike by every format that has a history."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from metastore_assets.errors import SnapshotNotFoundError


def parse_timestamp(at: str) -> datetime | None:
    """The moment that an ISO 8601 date or time with dashes names, in UTC when it says no zone; None for other texts.

    Digits alone are never a moment: they are a version, a snapshot id or an instant.
    """
    if "-" not in at[1:]:
        return None
    try:
        moment = datetime.fromisoformat(at)
    except ValueError:
        return None
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)


def state_not_found(table: str, at: str, what: str, known: Iterable[object]) -> SnapshotNotFoundError:
    """The error of a state that a table does not have. `what` says what may be named; `known` names some of it."""
    texts = [str(one) for one in known]
    shown = ", ".join(texts if len(texts) <= 20 else [*texts[:10], "…", *texts[-10:]]) or "none"
    return SnapshotNotFoundError(f"{table} has no state {at!r}; {what}: {shown}")
