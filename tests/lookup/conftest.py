"""Fixtures for tests of lookups: the object stores that the tests of `store` define."""

from __future__ import annotations

from tests.store.conftest import local_store, read_sizes, s3_store, store

__all__ = ["local_store", "read_sizes", "s3_store", "store"]
