"""Detection of tables of other formats at a folder of plain files, above it, or below it.

The metadata of a table of another format say which of its files are live. If all files were read as plain files, rows
of removed files would be counted, too. The location is the folder of the plain files, or the only file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import TypeAlias

from metastore_assets.errors import TableFormatError
from metastore_assets.formats.files.unsupported_formats import table_of_file
from metastore_assets.formats.registration import FormatDetector
from metastore_assets.storage.io_counters import IoCountingThreadPool
from metastore_assets.storage.location import Location

Formats: TypeAlias = Mapping[str, FormatDetector]
"""Detectors of table formats, by the name of the format."""

_MAX_NAMED = 3
"""Maximum number of tables that a message names."""
_REASON = "of which removed and superseded files would count if they were read as plain files"
_PROBES = 16
"""Maximum number of concurrent requests."""


class OverlappingTables:
    """A detector of tables of other formats that share files with a table of plain files.

    While the location is listed, the `add_` methods record signs of other tables, such as a folder `_delta_log`.
    Afterwards, `check` examines the signs.
    """

    def __init__(self, location: Location, formats: Formats) -> None:
        self._location = location
        self._formats = formats
        self._suspects: dict[tuple[str, str], None] = {}
        """Folders that may be tables, because they contain the metadata folder of a format: path below the location,
        and format. The values are unused."""
        self._partitions: list[tuple[str, str]] = []
        """Folders with a file that only partitions of tables of a format have: path below the location, and format."""
        self._table_file: tuple[str, str, str] | None = None
        """The first data file whose name only tables of an unsupported format use: path, format, and what the user can
        do."""
        self._linked: dict[Location, None] = {}
        """Folders above the targets of symbolic links. The values are unused."""

    def add_folder(self, path: str) -> None:
        """Record a folder below the location if it has the name of a metadata folder, such as `_delta_log`.

        Call this for every folder, even if its files are not listed: the names of most metadata folders begin with `_`
        or `.`, and listings skip such folders.
        """
        above, _, name = path.rpartition("/")
        for kind, detector in self._formats.items():
            if name == detector.metadata_folder and detector.is_metadata_file is None:
                self._suspects[above, kind] = None

    def add_file(self, path: str) -> None:
        """Record a folder above a file if the file's name shows that the folder may belong to another table.

        For example, `a/metadata/v1.metadata.json` shows that `a` may be an Iceberg table. Marker files of Hudi show
        that their folder is a partition of a Hudi table. Call this for every listed file, and not only for data files.

        Args:
            path: the path of the file below the location.
        """
        above, _, name = path.rpartition("/")
        for kind, detector in self._formats.items():
            if detector.is_metadata_file is not None:
                parent, _, folder = above.rpartition("/")
                if folder == detector.metadata_folder and detector.is_metadata_file(name):
                    self._suspects[parent, kind] = None
            if detector.partition_file_prefix is not None and name.startswith(detector.partition_file_prefix):
                self._partitions.append((above, kind))

    def add_data_file(self, path: str) -> None:
        """Record a data file below the location, if it may belong to another table.

        If the file is a symbolic link, the folders above the link's target are recorded. The first file whose path
        shows an unsupported format is recorded. For metadata files, call `add_file`. An empty path means that the
        location itself is the data file.
        """
        self.add_link(path)
        if self._table_file is None:
            folder, _, name = self._location.full_path(path).rpartition("/")
            if owner := table_of_file(folder, name):
                self._table_file = path, *owner

    def add_link(self, path: str) -> None:
        """If a path is a local symbolic link, record all folders above the link's target.

        Ignore any other path.

        Args:
            path: The path of a data file, or of a folder with data, below the location.
        """
        if self._location.is_local and os.path.islink(self._location.full_path(path)):
            self._linked |= dict.fromkeys(_parents(self._location.below(path).resolved))

    def check(self, *, refresh_cache: bool) -> None:
        """Raise TableFormatError if the location overlaps a table of another format.

        Args:
            refresh_cache: whether to search the folders above a remote location, even if a result is cached. The
                folders above a local one are always searched.

        Raises:
            TableFormatError: there is an overlapping table. The message names it.
            OSError: a folder cannot be read, for another reason than missing permission.
        """
        self._check_below()
        look_up = _table_above if refresh_cache or self._location.is_local else _cached_table_above
        formats = tuple(self._formats.items())
        above, linked_table = look_up(self._location, formats), _nearest_table(list(self._linked), formats)
        if overlap := above or linked_table:
            kind, table = overlap
            unsupported_reason = self._formats[kind].unsupported
            selection = ", and filter with `partitions` (`--partition`)" if self._formats[kind].has_partitions else ""
            raise TableFormatError(
                f"{self._location.uri} {'lies inside' if above else 'has links to files inside'} the {kind} table "
                f"{table.uri}, {_REASON}; "
                + (
                    f"{kind} tables are not supported: {unsupported_reason}"
                    if unsupported_reason
                    else f"name {table.uri}{selection}"
                )
            )
        if self._table_file:
            path, kind, advice = self._table_file
            raise TableFormatError(
                f"{self._location.full_path(path)} belongs to a {kind} table by its name: files of such a table may "
                f"hold deletes, or rows that were removed and superseded. {kind} tables are not supported: {advice}"
            )
        if self._partitions:
            folder, kind = min(self._partitions)
            raise TableFormatError(
                f"{self._location.full_path(folder)} is a partition of a {kind} table, as its "
                f"{self._formats[kind].partition_file_prefix} says, {_REASON}; name the table's "
                "own folder, or remove that marker if these are plain files by now"
            )

    def _check_below(self) -> None:
        """Raise TableFormatError if the location is a table of another format, or contains one."""
        suspects = sorted(self._suspects, key=lambda suspect: (suspect[0].count("/"), suspect))
        confirmed_tables = (
            (folder, kind)
            for folder, kind in suspects
            if (folder or not self._formats[kind].is_plain) and self._is_table(folder, kind)
        )
        tables = list(islice(confirmed_tables, _MAX_NAMED + 1))
        if not tables:
            return
        location = self._location
        folder, kind = tables[0]
        if folder:
            raise TableFormatError(self._tables_below_message(tables))
        if unsupported_reason := self._formats[kind].unsupported:
            raise TableFormatError(
                f"{location.uri} is the folder of a {kind} table; {kind} tables are not supported: {unsupported_reason}"
            )
        raise TableFormatError(
            f"{location.uri} is the folder of a table of the format {kind}, {_REASON}; leave out `format: files`"
        )

    def _tables_below_message(self, tables: Sequence[tuple[str, str]]) -> str:
        """Return the message that names tables below the location.

        Each table is given as (path below the location, format).
        """
        location = self._location
        kinds = {kind for _, kind in tables}
        names = [location.full_path(folder) for folder, _ in tables]
        if len(kinds) > 1:
            names = [f"{name} ({kind})" for name, (_, kind) in zip(names, tables, strict=True)]
        shown_names = [*names[:_MAX_NAMED], *(["others"] if len(names) > _MAX_NAMED else [])]
        name_list = (
            " and ".join([", ".join(shown_names[:-1]), shown_names[-1]]) if len(shown_names) > 1 else shown_names[0]
        )
        subject = f"the {min(kinds)} " if len(kinds) == 1 else "the "
        advice = f"name {'one' if len(shown_names) > 1 else names[0]}"
        if refused_kinds := sorted({kind for kind in kinds if self._formats[kind].unsupported}):
            kind = refused_kinds[0]
            advice = f"{kind} tables are not supported: {self._formats[kind].unsupported}"
        noun = "tables" if len(shown_names) > 1 else "table"
        return f"{location.uri} holds {subject}{noun} {name_list}, {_REASON}; {advice}"

    def _is_table(self, folder: str, kind: str) -> bool:
        """Return whether a folder below the location is a table of a format.

        A folder that the user has no permission to read counts as a table.
        """
        try:
            return self._formats[kind].is_table(self._location.below(folder))
        except PermissionError:
            return True  # The user may lack access to the folder of a table.


def _table_above(location: Location, formats: tuple[tuple[str, FormatDetector], ...]) -> tuple[str, Location] | None:
    """Return format and location of the nearest table above a location; None without one.

    The folders above the target of a symbolic link are searched too. Raises OSError if a folder cannot be read, for
    another reason than missing permission.
    """
    return _nearest_table(list(dict.fromkeys([*_parents(location), *_parents(location.resolved)])), formats)


_cached_table_above = lru_cache(maxsize=1024)(_table_above)


def _parents(location: Location) -> Iterator[Location]:
    parent = location.parent
    while parent is not None:
        yield parent
        parent = parent.parent


def _nearest_table(
    folders: list[Location], formats: tuple[tuple[str, FormatDetector], ...]
) -> tuple[str, Location] | None:
    """Return format and folder of the first table among folders; None without one.

    Folders that are missing, or that the user has no permission to read, are skipped. Raises any other OSError.
    """
    candidates = [(kind, detector, folder) for folder in folders for kind, detector in formats]
    if all(folder.is_local for folder in folders):
        return next(
            ((kind, folder) for kind, detector, folder in candidates if _is_accessible_table(detector, folder)), None
        )
    with IoCountingThreadPool(_PROBES) as pool:
        answers = pool.map(lambda candidate: _is_accessible_table(*candidate[1:]), candidates)
        return next(
            ((kind, folder) for (kind, _, folder), holds in zip(candidates, answers, strict=True) if holds), None
        )


def _is_accessible_table(detector: FormatDetector, folder: Location) -> bool:
    try:
        return detector.is_table(folder)
    except (FileNotFoundError, PermissionError):
        return False
