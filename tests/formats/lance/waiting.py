"""A task that never returns, in a module that a child process can import."""

from __future__ import annotations

from threading import Event

from metastore_assets.formats.lance import native


def wait_without_end() -> None:
    native.STALL_SECONDS = 0.1  # type: ignore[assignment]
    native.call_or_end(Event().wait)
