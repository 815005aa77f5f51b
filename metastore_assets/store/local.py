"""Objects as files of a local or mounted file system.

A file is written, synced and renamed atomically; then its folder is synced. obstore's local store does not sync: after
a power cut, a published version could be a file of zeros.
"""

from __future__ import annotations

import errno
import io
import os
import re
import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any

import pyarrow as pa

from metastore_assets.errors import ObjectExistsError, ObjectNotFoundError, StoreError
from metastore_assets.storage.io_counters import counting_input, record_read, record_write
from metastore_assets.storage.listing import local_modified
from metastore_assets.store.backend import Input, ObjectInfo, Output

_SMALL = 128 << 10
"""Size in bytes up to which files are read completely, because the kernel reads that far ahead anyway."""
_UNFINISHED = re.compile(r"\.[0-9a-f]{32}\.tmp")

_SHARED, _PRIVATE = 0o666, 0o600
"""Permissions of new files, which the umask of the process restricts further."""
_ADVICE = {
    errno.ENOENT: "the folder cannot be created there; set another root",
    errno.EACCES: "no permission; give this user access, or set another root",
    errno.EPERM: "not permitted; give this user access, or set another root",
    errno.EROFS: "the file system is read-only; set another root",
    errno.ENOSPC: "no space left on the device; free space and run again",
    errno.EDQUOT: "the disk quota is used up; free space and run again",
    errno.EFBIG: "the file would pass the largest size allowed here; raise the limit (ulimit -f) and run again",
    errno.ENOTDIR: "a part of the path is a file, not a folder; set another root",
    errno.EISDIR: "there is a folder in place of the file; set another root",
    errno.ENAMETOOLONG: "the path is too long for this file system",
    errno.EOPNOTSUPP: "the file system lacks hard links, which publishing needs; set another root",
}


class LocalFiles:
    """A backend for the folder `root`, an absolute path."""

    def __init__(self, root: str, depth: int = 0) -> None:
        """Create the backend for a folder.

        Args:
            root: Path of the folder. It lies `depth` folders below the path that the user configured.
            depth: For example, 1 if `root` is `/data/sales` and the user configured `/data`. Deletions raise StoreError
                if one of these lower folders (here `sales`) is a symbolic link.
        """
        self._root = root
        names = root.split(os.sep)
        self._user_root = os.sep.join(names[: len(names) - depth]) or os.sep
        self._names_below_user_root = names[len(names) - depth :]

    def read(self, path: str) -> bytes:
        full_path = self._full_path(path)
        with self._store_errors("read", full_path), open(full_path, "rb") as file:
            data = file.read()
        record_read(full_path, len(data))
        return data

    def read_range(self, path: str, start: int, end: int) -> bytes:
        full_path = self._full_path(path)
        with self._store_errors("read", full_path):
            file = os.open(full_path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                data = os.pread(file, end - start, start)
            finally:
                os.close(file)
        record_read(full_path, len(data))
        return data

    def write(self, path: str, data: bytes, *, create: bool, private: bool) -> None:
        """Write a file, completely or not at all.

        With `create`, raise ObjectExistsError if the file exists. With `private`, only this user may read the file.

        A file that is written with `create` may name files that `create_output` wrote, in any process. So before it
        appears, the folders of those files are synced.
        """
        with (
            self._temporary_file(path, _PRIVATE if private else _SHARED) as (temporary, file, full_path),
            self._store_errors("write", full_path),
        ):
            file.write(data)
            file.sync()
            if not create:
                os.replace(temporary, full_path)
                record_write(full_path, len(data))
                return
            self._sync_folders()
            try:
                os.link(temporary, full_path)
            except FileExistsError:
                raise ObjectExistsError(f"{full_path} exists already") from None
            except PermissionError as error:
                # Linux also reports file systems without hard links with this error. Writing the temporary file has
                # shown permission.
                raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP)) from error
            os.unlink(temporary)
            record_write(full_path, len(data))

    def scan(self, prefix: str) -> Iterator[ObjectInfo]:
        """Yield all files below a folder, at any depth, without unfinished files and links to folders."""
        for entry in self._walk(self._full_path(prefix)):
            if _UNFINISHED.fullmatch(entry.name):
                continue
            with self._store_errors("list", entry.path), suppress(FileNotFoundError):  # deleted since it was listed
                # A link to a folder is not an object; otherwise `expire` would delete it.
                if entry.is_dir():
                    continue
                status = entry.stat(follow_symlinks=False)
                path = entry.path[len(self._root) :].lstrip("/")
                yield ObjectInfo(path, status.st_size, local_modified(status))

    def info(self, path: str) -> ObjectInfo | None:
        full_path = self._full_path(path)
        with self._store_errors("read", full_path), suppress(FileNotFoundError):
            status = os.stat(full_path)
            return ObjectInfo(path, status.st_size, local_modified(status))
        return None

    def folders(self) -> tuple[str, ...]:
        with self._store_errors("list", self._root), suppress(FileNotFoundError):
            return tuple(entry.name for entry in os.scandir(self._root) if entry.is_dir())
        return ()

    def delete(self, paths: Sequence[str]) -> None:
        """Delete files.

        Missing files are ignored.

        Raises StoreError if a folder on the way from the configured folder to a file is a symbolic link.
        """
        for path in paths:
            full_path = self._full_path(path)
            with (
                self._store_errors("delete", full_path),
                suppress(FileNotFoundError),
                self._open_folder(path) as folder,
            ):
                os.unlink(path.rpartition("/")[2], dir_fd=folder)

    def delete_folder(self, prefix: str) -> None:
        full_path = self._full_path(prefix)
        with self._store_errors("delete", full_path), suppress(FileNotFoundError), self._open_folder(prefix) as folder:
            shutil.rmtree(prefix.rpartition("/")[2], dir_fd=folder)

    def refuse_links(self, prefix: str) -> None:
        full_path = self._full_path(prefix)
        with self._store_errors("write", full_path), suppress(FileNotFoundError), self._open_folder(prefix):
            links = (entry.path for entry in self._walk(full_path) if entry.is_symlink())
            link = full_path if os.path.islink(full_path) else next(links, None)
            if link is not None:
                raise StoreError(f"cannot write {full_path}: {link} is a symbolic link; remove it")

    def open_input(
        self, path: str, *, use_cached_tail: bool = False, tail_bytes: int = 0, data_bytes: int = 0
    ) -> Input:
        """Open a file for reads.

        The whole content of a small file is read by this call.

        `use_cached_tail`, `tail_bytes` and `data_bytes` have no effect on local files.
        """
        full_path = self._full_path(path)
        with self._store_errors("read", full_path):
            file = pa.OSFile(full_path, "r")
            if file.size() > _SMALL:
                return Input(counting_input(file, full_path))
            with file:
                data = file.read_buffer()
        record_read(full_path, data.size)
        return Input(pa.BufferReader(data))

    @contextmanager
    def create_output(self, path: str) -> Iterator[Output]:
        """Open a new file for writing, which becomes visible when the block ends without an error.

        From then on, the content of the file is durable. The name of the file may be lost in a power cut until the next
        `write` with `create` ends.
        """
        # That call syncs only the folders directly below the root.
        syncs_folder = path.count("/") != 1
        with self._temporary_file(path, syncs_folder=syncs_folder) as (temporary, file, full_path):
            yield file  # Errors of the caller's block pass unchanged: it may read other files.
            with self._store_errors("write", full_path):
                size = file.tell()
                file.sync()
                os.replace(temporary, full_path)
            record_write(full_path, size)

    def remove_unfinished(self, before: datetime) -> int:
        """Delete unfinished files last changed before `before`.

        Return the number of deleted files.
        """
        removed_count = 0
        for entry in self._walk(self._root):
            if not _UNFINISHED.fullmatch(entry.name):
                continue
            with self._store_errors("delete", entry.path), suppress(FileNotFoundError):
                if entry.stat(follow_symlinks=False).st_mtime < before.timestamp():
                    self.delete([entry.path[len(self._root) :].lstrip("/")])
                    removed_count += 1
        return removed_count

    @contextmanager
    def _open_folder(self, path: str) -> Iterator[int]:
        """Open the folder of a file, and yield its descriptor, for use as `dir_fd`.

        No symbolic link below the folder that the user named is followed. Otherwise, anyone who can write below the
        root could make this process delete files elsewhere.

        Raises:
            FileNotFoundError: There is no such folder.
            StoreError: A folder on the path is a link.
        """
        descriptor = os.open(self._user_root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            current = self._user_root
            for name in (*self._names_below_user_root, *path.split("/")[:-1]):
                current = os.path.join(current, name)
                try:
                    inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=descriptor)
                except OSError as error:
                    if error.errno in (errno.ELOOP, errno.ENOTDIR) and os.path.islink(current):
                        raise StoreError(
                            f"cannot write or delete {self._full_path(path)}: {current} is a symbolic link, which is "
                            "not followed here; remove the link, or put a folder in its place"
                        ) from error
                    raise
                os.close(descriptor)
                descriptor = inner
            yield descriptor
        finally:
            os.close(descriptor)

    def _full_path(self, path: str) -> str:
        return os.path.join(self._root, *path.split("/")) if path else self._root

    def _walk(self, folder: str) -> Iterator[os.DirEntry[str]]:
        """Yield all files and links below a folder, at any depth.

        Links are not followed.
        """
        folders = [folder]
        while folders:
            folder = folders.pop()
            with self._store_errors("list", folder), suppress(FileNotFoundError), os.scandir(folder) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    else:
                        yield entry

    def _sync_folders(self) -> None:
        """Sync each folder directly below the root, so that the names of its files survive a power cut.

        One sync covers all files of a folder. If each file were synced into its folder separately, writing a small file
        would take 1.5 times as long.
        """
        with os.scandir(self._root) as entries:
            for entry in entries:
                # A folder may be deleted meanwhile, and those of other users contain no file of this table.
                with suppress(FileNotFoundError, PermissionError):
                    if entry.is_dir():
                        _sync_folder(entry.path)

    @contextmanager
    def _temporary_file(
        self, path: str, mode: int = _SHARED, *, syncs_folder: bool = True
    ) -> Iterator[tuple[str, _LocalOutput, str]]:
        """Yield (path of a new temporary file, the open file, final path).

        If the block ends without an error, and `syncs_folder` is true, the folder of the file is synced. The file is
        deleted unless the block has renamed it.

        Raises ObjectNotFoundError if another process, such as a purge, deletes the file before the block renames it.
        """
        full_path = self._full_path(path)
        folder = os.path.dirname(full_path)
        temporary = os.path.join(folder, f".{uuid.uuid4().hex}.tmp")
        with self._store_errors("write", full_path):
            _make_folders(folder)
            file = _LocalOutput(temporary, full_path, mode)
        try:
            try:
                yield temporary, file, full_path
            except StoreError as error:
                if isinstance(error.__cause__, FileNotFoundError) and not os.path.exists(temporary):
                    raise ObjectNotFoundError(
                        f"cannot write {full_path}: another process, such as a purge, removed the unfinished file"
                    ) from error
                raise
            if syncs_folder:
                with self._store_errors("write", full_path):
                    _sync_folder(folder)
        finally:
            with suppress(OSError, StoreError):
                file.close()
            with suppress(OSError):
                os.unlink(temporary)

    @contextmanager
    def _store_errors(self, verb: str, full_path: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise store_error(verb, full_path, error) from error


class _LocalOutput(io.RawIOBase):
    """A file that is being written.

    Failures are StoreErrors.
    """

    def __init__(self, temporary: str, full_path: str, mode: int) -> None:
        self._full_path = full_path
        descriptor = io.FileIO(temporary, "x", opener=lambda name, flags: os.open(name, flags, mode))
        self._file = io.BufferedWriter(descriptor, 1 << 20)

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        try:
            return self._file.write(data)
        except OSError as error:
            raise store_error("write", self._full_path, error) from error

    def tell(self) -> int:
        return self._file.tell()

    def flush(self) -> None:
        """Do nothing: `sync` makes the bytes durable."""

    def sync(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def close(self) -> None:
        if not self._file.closed:
            # Close without a buffer: after a failed write, closing a buffer would write again.
            with suppress(OSError):
                self._file.close()
        super().close()


def store_error(verb: str, full_path: str, error: OSError) -> StoreError:
    """Return a StoreError for a failed system call, with the file, the reason, and what to do.

    The result is an ObjectNotFoundError if a file to read does not exist.

    Args:
        verb: What was tried, for the message, such as `read`.
        full_path: Path of the file.
        error: The error of the system call.
    """
    if error.errno == errno.ENOENT and verb == "read":
        return ObjectNotFoundError(f"{full_path} does not exist")
    cause = _ADVICE.get(error.errno or 0, error.strerror or str(error))
    return StoreError(f"cannot {verb} {full_path}: {cause}")


def _make_folders(folder: str) -> None:
    """Create a folder and its parents, and sync each parent, so that the folder survives a power cut."""
    if os.path.isdir(folder):
        return
    parent = os.path.dirname(folder)
    if parent != folder:
        _make_folders(parent)
    with suppress(FileExistsError):
        os.mkdir(folder)
        _sync_folder(parent)


def _sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
