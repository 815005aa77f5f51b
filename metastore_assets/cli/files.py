"""Writing of files that users name.

A file is written completely or not at all.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from metastore_assets.errors import MetastoreError


def write_atomically(path: Path, content: str, *, replace: bool = True, advice: str) -> None:
    """Write a file completely or not at all, by way of a temporary file in the same folder.

    If the path is a symbolic link, its target is replaced. A pipe or a device, such as /dev/stdout, is written
    directly.

    Args:
        path: The path of the file.
        content: The text.
        replace: Whether to replace an existing file. If false, an existing file is an error.
        advice: Advice for the message if the file cannot be written.

    Raises:
        MetastoreError: The file cannot be written, or exists and must not be replaced.
    """
    try:
        if replace and path.exists():
            is_stream = str(path.absolute().parent) in ("/dev", "/dev/fd", "/proc/self/fd")
            if is_stream or not (path.is_file() or path.is_dir()):
                with path.open("a", encoding="utf-8") as file:  # /dev/stdout may be a file with other lines.
                    file.write(content)
                return
            path = Path(os.path.realpath(path))
        handle, temporary = tempfile.mkstemp(dir=path.absolute().parent, prefix=f".{path.name}-", suffix=".tmp")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(content)
            Path(temporary).chmod(0o666 & ~_umask())
            if replace:
                os.replace(temporary, path)
            else:
                os.link(temporary, path)  # Unlike a rename, a link never replaces a file.
                os.unlink(temporary)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise MetastoreError(f"cannot write {path}: {error.strerror or error}; {advice}") from error


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
