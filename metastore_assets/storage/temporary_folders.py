"""Temporary folders with rows of tables in them: removed at the latest when the next one is made on this machine.

A process that is killed removes nothing. So each folder is locked by the process that uses it, and whoever makes one
removes those that no process has locked. What needs no name is an unnamed file instead (`tempfile.TemporaryFile`).
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import tempfile
from contextlib import suppress

_PREFIX = "metastore-"
_SUFFIX = ".scratch"
_UNLOCKED = ".unlocked"
"""What the name of an empty folder ends with until it is locked."""
_open: set[TemporaryFolder] = set()


class TemporaryFolder:
    """A temporary folder of this process. Use as a context manager, or call `remove`."""

    def __init__(self, purpose: str) -> None:
        remove_abandoned_folders()
        self._process = os.getpid()
        unlocked = tempfile.mkdtemp(prefix=f"{_PREFIX}{purpose}-", suffix=_UNLOCKED)
        self.path = unlocked.removesuffix(_UNLOCKED) + _SUFFIX
        try:
            self._lock = os.open(unlocked, os.O_RDONLY | os.O_DIRECTORY)
            with suppress(OSError):  # A file system without locks: then nobody can take one either.
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _open.add(self)
            os.rename(unlocked, self.path)
        except BaseException:  # Ctrl-C too.
            _open.discard(self)
            for path in (unlocked, self.path):
                shutil.rmtree(path, ignore_errors=True)
            raise

    def remove(self) -> None:
        """Remove it with all that is in it. Does nothing the second time, nor in a fork of the process that made it."""
        if self._process != os.getpid() or self not in _open:
            return
        _open.discard(self)
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)

    def __enter__(self) -> str:
        return self.path

    def __exit__(self, *ended: object) -> None:
        self.remove()


@atexit.register
def remove_own_folders() -> None:
    """Remove the folders of this process, which is about to end."""
    for folder in list(_open):
        folder.remove()


def remove_abandoned_folders() -> None:
    """Remove the folders of this user's processes that ended without doing so."""
    with suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            if entry.name.startswith(_PREFIX) and entry.name.endswith(_SUFFIX):
                _remove_if_abandoned(entry.path)


def _remove_if_abandoned(path: str) -> None:
    with suppress(OSError):
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            if os.fstat(lock).st_uid == os.getuid():
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # Raises while its process lives.
                shutil.rmtree(path, ignore_errors=True)
        finally:
            os.close(lock)
