"""Temporary folders for data that may contain rows of tables, and must not remain after a crash.

A process locks each folder that it uses. If the process is killed, the operating system releases the locks. The next
process that creates a folder removes the unlocked folders. Data that needs no file name goes to
`tempfile.TemporaryFile` instead.
"""

from __future__ import annotations

import atexit
import errno
import fcntl
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from metastore_assets.errors import StoreError

_PREFIX = "metastore-"
_SUFFIX = ".scratch"
_UNLOCKED = ".unlocked"
"""Suffix of a new, empty folder that is not locked yet."""
_open: set[TemporaryFolder] = set()


class TemporaryFolder:
    """A locked temporary folder of this process.

    Use it as a context manager, or call `remove`.
    """

    def __init__(self, purpose: str) -> None:
        """Create and lock a folder whose name contains `purpose`.

        The folders of ended processes are removed before.
        """
        remove_abandoned_folders()
        self._process = os.getpid()
        name = os.path.join(tempfile.gettempdir(), f"{_PREFIX}{purpose}-{secrets.token_hex(8)}")
        unlocked_path, self.path = name + _UNLOCKED, name + _SUFFIX
        try:  # The names are known before, so that an interrupt while the folder is created leaves nothing.
            os.mkdir(unlocked_path, 0o700)
            self._lock = os.open(unlocked_path, os.O_RDONLY | os.O_DIRECTORY)
            with suppress(OSError):  # A file system without locks: no other process can lock the folder either.
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _open.add(self)
            os.rename(unlocked_path, self.path)
        except BaseException:  # Also an interrupt.
            _open.discard(self)
            for path in (unlocked_path, self.path):
                shutil.rmtree(path, ignore_errors=True)
            raise

    def remove(self) -> None:
        """Remove the folder and its content.

        Does nothing in a second call, and in a fork of the creating process.
        """
        if self._process != os.getpid() or self not in _open:
            return
        _open.discard(self)
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)

    def __enter__(self) -> str:
        return self.path

    def __exit__(self, *exception: object) -> None:
        self.remove()


@contextmanager
def full_folder_errors() -> Iterator[None]:
    """Replace an OSError in the `with` block by a StoreError if the disk is full or a quota is reached.

    Other errors are not changed. Callers report a table's file as corrupt if an OSError occurs while they read it. A
    full disk must not lead to such a report.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise StoreError(
            f"the folder of temporary files {tempfile.gettempdir()} is full: free space there, or set TMPDIR to a "
            "folder with more"
        ) from error


@atexit.register
def remove_process_folders() -> None:
    """Remove the folders of this process before it exits."""
    for folder in list(_open):
        folder.remove()


def remove_abandoned_folders() -> None:
    """Remove the folders that ended processes of this user have left behind."""
    with suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            if entry.name.startswith(_PREFIX) and entry.name.endswith(_SUFFIX):
                _remove_if_abandoned(entry.path)


def _remove_if_abandoned(path: str) -> None:
    """Remove a folder of this user unless a process still locks it.

    Errors are ignored.
    """
    with suppress(OSError):
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            if os.fstat(lock).st_uid == os.getuid():
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # Raises while its process lives.
                shutil.rmtree(path, ignore_errors=True)
        finally:
            os.close(lock)
