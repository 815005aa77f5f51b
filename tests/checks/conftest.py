"""The fixtures of the store's tests that create roots, for tests of checks."""

from __future__ import annotations

from tests.store.conftest import local_store, s3_store, store, travelled

__all__ = ["local_store", "s3_store", "store", "travelled"]
