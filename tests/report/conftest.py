"""Fixtures for tests of reports: an empty root on local disk."""

from __future__ import annotations

from tests.store.conftest import local_store

__all__ = ["local_store"]
