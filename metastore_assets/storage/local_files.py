"""Files on local disk. Pipes and devices are refused: they may have no end, or wait for another process."""

from __future__ import annotations

import os
from stat import S_ISBLK, S_ISCHR, S_ISFIFO, S_ISSOCK

import pyarrow as pa

from metastore_assets.storage.io_counters import counting_input, record_read
from metastore_assets.storage.limits import METADATA_BYTES


def read_local(path: str) -> bytes:
    """Return the content of a metadata file. Raises OSError for more than METADATA_BYTES, and for a pipe or device."""
    _check_file(path)
    with open(path, "rb") as file:
        check_size(path, os.fstat(file.fileno()).st_size)
        data = file.read()
    record_read(path, len(data))
    return data


def open_local(path: str) -> pa.NativeFile:
    """Open a file for random access. Raises OSError for a pipe or device."""
    _check_file(path)
    return counting_input(pa.OSFile(path, "rb"), path)


def check_size(path: str, size: int) -> None:
    """Raise OSError if a metadata file is too large to be read into memory."""
    if size > METADATA_BYTES:
        raise OSError(f"{path} has {size:,} bytes; of a file of metadata at most {METADATA_BYTES:,} are read")


def _check_file(path: str) -> None:
    if "\0" in path:
        # Arrow would open the path that ends before the NUL.
        raise OSError(f"{path!r} is not the path of a file: it contains a NUL character")
    mode = os.stat(path).st_mode
    if S_ISFIFO(mode) or S_ISCHR(mode) or S_ISBLK(mode) or S_ISSOCK(mode):
        raise OSError(f"{path} is a device or a pipe, no file")
