"""Fixtures for tests of the history: the roots of the store's tests."""

from __future__ import annotations

from tests.store.conftest import local_store, s3_store, store

__all__ = ["local_store", "s3_store", "store"]
