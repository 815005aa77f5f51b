"""The roots of the store's tests, for tests of lookups."""

from __future__ import annotations

from tests.store.conftest import local_store, s3_store, store, travelled

__all__ = ["local_store", "s3_store", "store", "travelled"]
