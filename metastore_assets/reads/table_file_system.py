"""The data files of a table as a pyarrow file system with the table's options and location policy.

The location policy of a table decides which locations in its metadata may be read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import pyarrow as pa
from pyarrow import fs

from metastore_assets.formats.base import ArrowFile


class TableFileSystem(fs.FileSystemHandler):  # type: ignore[misc]
    """A read-only file system of data files of a table.

    It cannot list files.

    Files are opened with the options of the table. Each time a file is opened, its path is checked against the location
    policy of the table, because a link may have replaced the file.
    """

    def __init__(self, files: Mapping[str, ArrowFile]) -> None:
        """Create the file system of the given files, by their full paths."""
        self._files = files

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TableFileSystem) and self._files == other._files

    __hash__ = None  # type: ignore[assignment]

    def get_type_name(self) -> str:
        """Return the name of this kind of file system."""
        return "metastore"

    def normalize_path(self, path: str) -> str:
        """Return the path unchanged."""
        return path

    def get_file_info(self, paths: Sequence[str]) -> list[fs.FileInfo]:
        """Return type and size of files.

        The type is `NotFound` for a path that is no file of the table.
        """
        return [self._info(path) for path in paths]

    def get_file_info_selector(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        """Return nothing, because there are no folders."""
        return []

    def open_input_file(self, path: str) -> pa.NativeFile:
        """Open a file for random access."""
        file = self._file(path)
        return file.location.open(file.path)

    def open_input_stream(self, path: str) -> pa.NativeFile:
        """Open a file."""
        return self.open_input_file(path)

    def _file(self, path: str) -> ArrowFile:
        if path not in self._files:
            raise FileNotFoundError(f"{path} is no file of the dataset")
        return self._files[path]

    def _info(self, path: str) -> fs.FileInfo:
        if path not in self._files:
            return fs.FileInfo(path, fs.FileType.NotFound)
        file = self._files[path]
        return fs.FileInfo(path, fs.FileType.File, size=file.location.stat(file.path).size)

    def _refuse(self, *arguments: Any, **options: Any) -> NoReturn:
        raise PermissionError("the files of a table are only read")

    create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = _refuse
    delete_file = move = copy_file = open_output_stream = open_append_stream = _refuse
