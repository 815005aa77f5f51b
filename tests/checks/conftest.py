"""Roots with published versions, and what checks find of them."""

from __future__ import annotations

from tests.store.conftest import local_store, s3_store, store, travelled

__all__ = ["local_store", "s3_store", "store", "travelled"]
