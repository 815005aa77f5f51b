"""Storage in memory-backed or local folders: what these tests write need not survive a power cut."""

from __future__ import annotations

import os
from pathlib import Path

os.environ.setdefault("POLARS_MAX_THREADS", "1")  # frames of a few rows gain nothing from threads, but wait for them

import pytest

from metastore_assets.store.objects import ObjectStore
from tests.store.conftest import s3_store

__all__ = ["s3_store"]


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return ObjectStore(str(tmp_path / "flow"))
