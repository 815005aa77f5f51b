"""Fixtures for tests of lookups: the roots of the store's tests."""

from __future__ import annotations

from tests.store.conftest import local_store, s3_store, store, travelled

__all__ = ["local_store", "s3_store", "store", "travelled"]
