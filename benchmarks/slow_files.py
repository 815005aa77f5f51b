"""An fsspec file system that reads local files with 5 ms of delay per request, as in object stores."""

from __future__ import annotations

import time
from typing import Any

from fsspec.implementations.local import LocalFileSystem

SECONDS = 0.005
"""The delay of one request."""


class SlowFileSystem(LocalFileSystem):  # type: ignore[misc]
    """Local files with URIs such as `slow:///tmp/a.parquet`.

    Opening a file, each read of it, and listing a folder are delayed by 5 ms, like requests to an object store.
    """

    protocol = "slow"

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return LocalFileSystem._strip_protocol(path.removeprefix("slow://") if isinstance(path, str) else path)

    def ls(self, path: str, detail: bool = False, **options: Any) -> Any:
        time.sleep(SECONDS)
        return super().ls(path, detail, **options)

    def _open(self, path: str, mode: str = "rb", block_size: Any = None, **options: Any) -> Any:
        time.sleep(SECONDS)
        return SlowFile(super()._open(path, mode, block_size, **options))


class SlowFile:
    """A file with a delay in each read."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def read(self, size: int = -1) -> bytes:
        time.sleep(SECONDS)
        data: bytes = self._file.read(size)
        return data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> SlowFile:
        return self

    def __exit__(self, *exception: object) -> None:
        self._file.close()
