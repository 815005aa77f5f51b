"""Detection of tables of other formats that overlap a folder of plain files: above it, at it, or below it.

The metadata of such a table say which files are live. If they were read as plain files, removed files would count.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import islice
from typing import TypeAlias

from metastore_assets.errors import TableFormatError
from metastore_assets.formats.files.unsupported_formats import table_of_file
from metastore_assets.formats.registration import FormatDetector
from metastore_assets.storage.io_counters import IoCountingThreadPool
from metastore_assets.storage.location import Location

Formats: TypeAlias = Mapping[str, FormatDetector]
"""Detectors of formats by title."""

_MAX_NAMED = 3
"""Tables that a message names."""
_WHY = "of which removed and superseded files would count if they were read as plain files"
_PROBES = 16
"""Concurrent requests."""


class OverlappingTables:
    """Evidence of overlapping tables, collected while a location is listed."""

    def __init__(self, location: Location, formats: Formats) -> None:
        self._location = location
        self._formats = formats
        self._suspects: dict[tuple[str, str], None] = {}
        """(folder, format), relative to the location."""
        self._partitions: list[tuple[str, str]] = []
        """(folder, format)."""
        self._table_file: tuple[str, str, str] | None = None
        """The first file whose name is that of a table's file: its path, the format, and what the user can do."""
        self._linked: dict[Location, None] = {}
        """Folders above the targets of links."""

    def add_folder(self, path: str) -> None:
        """Add a folder below the location, whether it is listed or not."""
        above, _, name = path.rpartition("/")
        for kind, detector in self._formats.items():
            if name == detector.metadata_folder and detector.is_metadata_file is None:
                self._suspects[above, kind] = None

    def add_file(self, path: str) -> None:
        """Add a file below the location, whether it is data or not."""
        above, _, name = path.rpartition("/")
        for kind, detector in self._formats.items():
            if detector.is_metadata_file is not None:
                parent, _, folder = above.rpartition("/")
                if folder == detector.metadata_folder and detector.is_metadata_file(name):
                    self._suspects[parent, kind] = None
            if detector.partition_file_prefix is not None and name.startswith(detector.partition_file_prefix):
                self._partitions.append((above, kind))

    def add_data_file(self, path: str) -> None:
        """Add a data file below the location; with an empty path, the file at the location."""
        self.add_link(path)
        if self._table_file is None:
            folder, _, name = self._location.full_path(path).rpartition("/")
            if owner := table_of_file(folder, name):
                self._table_file = path, *owner

    def add_link(self, path: str) -> None:
        """Add a folder with data or a data file, which may be a symbolic link."""
        if self._location.is_local and os.path.islink(self._location.full_path(path)):
            self._linked |= dict.fromkeys(_parents(self._location.below(path).resolved))

    def check(self, *, refresh_cache: bool) -> None:
        """Raise TableFormatError if there are overlapping tables.

        Args:
            refresh_cache: whether to look above a location in an object store again. Otherwise the process looks once.

        Raises:
            TableFormatError: tables overlap; the message names them.
            OSError: a folder cannot be read.
        """
        self._check_below()
        look_up = _table_above if refresh_cache or self._location.is_local else _cached_table_above
        formats = tuple(self._formats.items())
        above, linked = look_up(self._location, formats), _nearest(list(self._linked), formats)
        if overlap := above or linked:
            kind, table = overlap
            unsupported = self._formats[kind].unsupported
            raise TableFormatError(
                f"{self._location.uri} {'lies inside' if above else 'has links to files inside'} the {kind} table "
                f"{table.uri}, {_WHY}; "
                + (
                    f"{kind} tables are not supported: {unsupported}"
                    if unsupported
                    else f"name {table.uri}, and filter with `partitions` (`--partition`)"
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
                f"{self._formats[kind].partition_file_prefix} says, {_WHY}; name the table's "
                "own folder, or remove that marker if these are plain files by now"
            )

    def _check_below(self) -> None:
        suspects = sorted(self._suspects, key=lambda suspect: (suspect[0].count("/"), suspect))
        confirmed = (
            (folder, kind)
            for folder, kind in suspects
            if (folder or not self._formats[kind].is_plain) and self._is_table(folder, kind)
        )
        tables = list(islice(confirmed, _MAX_NAMED + 1))
        if not tables:
            return
        location = self._location
        first, kind = tables[0]
        unsupported = self._formats[kind].unsupported
        if not first and unsupported:
            raise TableFormatError(
                f"{location.uri} is the folder of a {kind} table; {kind} tables are not supported: {unsupported}"
            )
        if not first:
            raise TableFormatError(
                f"{location.uri} is the folder of a table of the format {kind}, {_WHY}; leave out `format: files`"
            )
        kinds = {kind for _, kind in tables}
        names = [location.full_path(folder) for folder, _ in tables]
        if len(kinds) > 1:
            names = [f"{name} ({kind})" for name, (_, kind) in zip(names, tables, strict=True)]
        shown = [*names[:_MAX_NAMED], *(["others"] if len(names) > _MAX_NAMED else [])]
        listed = " and ".join([", ".join(shown[:-1]), shown[-1]]) if len(shown) > 1 else shown[0]
        what = f"the {kind} " if len(kinds) == 1 else "the "
        advice = f"name {'one' if len(shown) > 1 else names[0]}"
        if refused := sorted({kind for kind in kinds if self._formats[kind].unsupported}):
            kind = refused[0]
            advice = f"{kind} tables are not supported: {self._formats[kind].unsupported}"
        raise TableFormatError(
            f"{location.uri} holds {what}{'tables' if len(shown) > 1 else 'table'} {listed}, {_WHY}; {advice}"
        )

    def _is_table(self, folder: str, kind: str) -> bool:
        try:
            return self._formats[kind].is_table(self._location.below(folder))
        except PermissionError:
            return True  # A folder without access may be a table.


def _table_above(location: Location, formats: tuple[tuple[str, FormatDetector], ...]) -> tuple[str, Location] | None:
    """Return format and location of the nearest table above a location, also above the target of a link.

    Folders without access count as no tables. Raises OSError.
    """
    return _nearest(list(dict.fromkeys([*_parents(location), *_parents(location.resolved)])), formats)


_cached_table_above = lru_cache(maxsize=1024)(_table_above)


def _parents(location: Location) -> Iterator[Location]:
    parent = location.parent
    while parent is not None:
        yield parent
        parent = parent.parent


def _nearest(folders: list[Location], formats: tuple[tuple[str, FormatDetector], ...]) -> tuple[str, Location] | None:
    candidates = [(kind, detector, folder) for folder in folders for kind, detector in formats]
    if all(folder.is_local for folder in folders):
        return next(((kind, folder) for kind, detector, folder in candidates if _may_hold(detector, folder)), None)
    with IoCountingThreadPool(_PROBES) as pool:
        answers = pool.map(lambda one: _may_hold(*one[1:]), candidates)
        return next(
            ((kind, folder) for (kind, _, folder), holds in zip(candidates, answers, strict=True) if holds), None
        )


def _may_hold(detector: FormatDetector, folder: Location) -> bool:
    try:
        return detector.is_table(folder)
    except (FileNotFoundError, PermissionError):
        return False
