"""The roots of the store's tests, for tests of the history."""

from __future__ import annotations

from tests.store.conftest import local_store, s3_store, store

__all__ = ["local_store", "s3_store", "store"]
