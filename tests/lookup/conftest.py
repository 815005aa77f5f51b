"""The roots that the store is tested against serve here as well."""

from __future__ import annotations

from tests.store.conftest import local_store, s3_store, store, travelled

__all__ = ["local_store", "s3_store", "store", "travelled"]
