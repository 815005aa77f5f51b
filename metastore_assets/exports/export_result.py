"""The result of exporting a version to one target.

This module imports nothing large.

A version is the published statistics of a table at one snapshot.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

ExportState = Literal["written", "current", "behind", "absent", "removed", "failed"]
"""The state of a target.

- `written`: this call wrote the version.
- `current`: the target has the version, so nothing was written.
- `behind`: the target has another version, or other options applied.
- `absent`: the target has nothing that this package wrote.
- `removed`: this call removed what the target had.
- `failed`: the target cannot be read or written; `error` says why.
"""


@dataclass(frozen=True)
class ExportResult:
    """The state of one target after it was written, cleared or inspected."""

    target: str
    """The name under `exports`."""
    kind: str
    state: ExportState
    version: int | None = None
    """The version that the target has now; None if it has none, or if the version is unknown."""
    snapshot: str | None = None
    """The snapshot of that version."""
    bytes: int | None = None
    """Bytes that were written; None if nothing was written."""
    columns: int | None = None
    """Number of columns that were written; None if nothing was written."""
    notes: tuple[str, ...] = ()
    """What was left out of the export, and why."""
    error: str | None = None
    """Why the target failed, as a sentence for users."""
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Return the result as `export --json` and `refresh --json` print it."""
        return {
            "target": self.target,
            "kind": self.kind,
            "state": self.state,
            "version": self.version,
            "snapshot": self.snapshot,
            "bytes": self.bytes,
            "columns": self.columns,
            "notes": list(self.notes),
            "error": self.error,
            "seconds": round(self.seconds, 3),
        }
