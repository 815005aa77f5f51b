"""The text of `at` in the configuration, which selects a state of a table in every format with a history."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from metastore_assets.errors import SnapshotNotFoundError


def parse_timestamp(at: str) -> datetime | None:
    """Parse an ISO 8601 date or time with dashes, in UTC when it has no zone; None for other texts.

    Digits alone are never a time: they are a version, a snapshot id or an instant.
    """
    if "-" not in at[1:]:
        return None
    try:
        moment = datetime.fromisoformat(at)
    except ValueError:
        return None
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)


def state_not_found(table: str, at: str, choices: str, examples: Iterable[object]) -> SnapshotNotFoundError:
    """Return the error for a state that a table does not have.

    Args:
        table: URI of the table.
        at: the requested state.
        choices: what can be requested, for the message.
        examples: states that the table has; of more than 20 the message has the first and the last ten.
    """
    texts = [str(example) for example in examples]
    shown = ", ".join(texts if len(texts) <= 20 else [*texts[:10], "…", *texts[-10:]]) or "none"
    return SnapshotNotFoundError(f"{table} has no state {at!r}; {choices}: {shown}")
