"""Fixtures: empty object stores (roots) on disk and on an S3 server, and sizes of read requests."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.remote import RemoteObjects


@pytest.fixture
def s3_store(s3_options: dict[str, str]) -> ObjectStore:
    """An empty root in a bucket."""
    return ObjectStore(f"s3://metastore/{uuid.uuid4().hex}", s3_options)


@pytest.fixture
def local_store(tmp_path: Path) -> ObjectStore:
    """An empty local root, whose folder does not exist yet."""
    return ObjectStore(str(tmp_path / "a root"))


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.s3)])
def store(request: pytest.FixtureRequest) -> ObjectStore:
    """An empty root: tests run with one in a local folder and with one on an S3 server."""
    return request.getfixturevalue(f"{request.param}_store")


@pytest.fixture
def read_sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list to which each ranged request adds the number of bytes that it returned."""
    sizes: list[int] = []
    original_tail, original_range = RemoteObjects.read_tail, RemoteObjects.read_range

    def counted_tail(self: RemoteObjects, path: str, tail_bytes: int = 0) -> tuple[int, bytes]:
        size, data = original_tail(self, path, tail_bytes)
        sizes.append(len(data))
        return size, data

    def counted_range(self: RemoteObjects, path: str, start: int, end: int) -> bytes:
        data = original_range(self, path, start, end)
        sizes.append(len(data))
        return data

    monkeypatch.setattr(RemoteObjects, "read_tail", counted_tail)
    monkeypatch.setattr(RemoteObjects, "read_range", counted_range)
    return sizes
