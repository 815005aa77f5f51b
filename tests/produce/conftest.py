"""Fixtures of an object store per test, on disk (`store`) and on S3 (`s3_store`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from metastore_assets.store.objects import ObjectStore
from tests.store.conftest import s3_store

__all__ = ["s3_store"]


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return ObjectStore(str(tmp_path / "flow"))
