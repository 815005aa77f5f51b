"""The result of one check of `metastore doctor`."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from metastore_assets.cli.failures import explain_error, raise_interrupt
from metastore_assets.errors import MetastoreError
from metastore_assets.messages import remove_secrets
from metastore_assets.report.text import format_seconds, to_one_line

Status = Literal["ok", "warning", "failed", "skipped"]


@dataclass(frozen=True)
class DoctorFinding:
    """The result of one check: its subject, its status, and advice."""

    subject: str
    """What was checked: `Java`, or `table orders`."""
    status: Status
    """`warning`: something is missing or works less well. `failed`: a refresh or a lookup would fail. `skipped`: not
    checked."""
    message: str
    """The result of the check, in one line."""
    advice: str | None = None
    """What to do; None if nothing needs to be done, or if the message says it."""

    def to_json(self) -> dict[str, Any]:
        """Return the finding as a JSON object."""
        return asdict(self)


def check(subject: str, function: Callable[[], str], advice: str | None = None) -> DoctorFinding:
    """Run a check, and return its finding.

    The finding is `ok`, with a message and the elapsed time, or `failed`, with an error message.

    Args:
        subject: The subject of the check.
        function: Makes the check, and returns the message or raises an error.
        advice: What to do after an error; None for no advice.
    """
    start = time.perf_counter()
    try:
        message = function()
    except Exception as error:  # noqa: BLE001 (whatever is wrong becomes a finding)
        raise_interrupt(error)
        if isinstance(error, MetastoreError):
            return DoctorFinding(subject, "failed", explain_error(error), advice)
        return DoctorFinding(subject, "failed", remove_secrets(to_one_line(f"{type(error).__name__}: {error}")), advice)
    return DoctorFinding(subject, "ok", f"{message} ({format_seconds(time.perf_counter() - start)})")
