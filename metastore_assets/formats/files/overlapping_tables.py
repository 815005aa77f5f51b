"""Tables of other formats that a folder of plain files lies in, is, or holds: files there that are no rows any more.

Their own metadata say which files are live; read as plain files, removed and superseded ones would count as well.
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
"""Marks of the formats by what people call them."""

_NAMED = 3
"""Tables that a message names."""
_WHY = "of which removed and superseded files would count if they were read as plain files"
_PROBES = 16
"""Requests at a time."""


class OverlappingTables:
    """What a listing of a location comes across that belongs to tables."""

    def __init__(self, location: Location, formats: Formats) -> None:
        self._location = location
        self._formats = formats
        self._suspects: dict[tuple[str, str], None] = {}
        """(folder, format), relative to the location."""
        self._partitions: list[tuple[str, str]] = []
        """(folder, format)."""
        self._owned: tuple[str, str, str] | None = None
        """The first file that belongs to a table by its name: its path, the table's format, and what to do."""
        self._linked: dict[Location, None] = {}
        """Folders above what links lead to."""

    def see_folder(self, path: str) -> None:
        """Note a folder below, also one that is not gone into."""
        above, _, name = path.rpartition("/")
        for kind, detector in self._formats.items():
            if name == detector.metadata_folder and detector.is_metadata_file is None:
                self._suspects[above, kind] = None

    def see_file(self, path: str) -> None:
        """Note a file below, also one that is no data."""
        above, _, name = path.rpartition("/")
        for kind, detector in self._formats.items():
            if detector.is_metadata_file is not None:
                parent, _, folder = above.rpartition("/")
                if folder == detector.metadata_folder and detector.is_metadata_file(name):
                    self._suspects[parent, kind] = None
            if detector.partition_file_prefix is not None and name.startswith(detector.partition_file_prefix):
                self._partitions.append((above, kind))

    def see_data(self, path: str) -> None:
        """Note a file that is data: one below, or with an empty path the one that the location is."""
        self.follow(path)
        if self._owned is None:
            folder, _, name = self._location.full_path(path).rpartition("/")
            if found := table_of_file(folder, name):
                self._owned = path, *found

    def follow(self, path: str) -> None:
        """Note a folder or file that is data, which may be a link to somewhere else."""
        if self._location.is_local and os.path.islink(self._location.full_path(path)):
            self._linked |= dict.fromkeys(_parents(self._location.below(path).resolved))

    def check(self, *, anew: bool) -> None:
        """Raise TableFormatError that names the tables, if there are any. Raises OSError.

        Unless `anew`, an object store is asked only once in a process for what is above.
        """
        self._check_below()
        look_up = _table_above if anew or self._location.is_local else _remembered_table_above
        formats = tuple(self._formats.items())
        above, linked = look_up(self._location, formats), _nearest(list(self._linked), formats)
        if found := above or linked:
            kind, table = found
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
        if self._owned:
            path, kind, advice = self._owned
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
        found = list(islice(confirmed, _NAMED + 1))
        if not found:
            return
        location = self._location
        first, kind = found[0]
        unsupported = self._formats[kind].unsupported
        if not first and unsupported:
            raise TableFormatError(
                f"{location.uri} is the folder of a {kind} table; {kind} tables are not supported: {unsupported}"
            )
        if not first:
            raise TableFormatError(
                f"{location.uri} is the folder of a table of the format {kind}, {_WHY}; leave out `format: files`"
            )
        kinds = {kind for _, kind in found}
        names = [location.full_path(folder) for folder, _ in found]
        if len(kinds) > 1:
            names = [f"{name} ({kind})" for name, (_, kind) in zip(names, found, strict=True)]
        told = [*names[:_NAMED], *(["others"] if len(names) > _NAMED else [])]
        listed = " and ".join([", ".join(told[:-1]), told[-1]]) if len(told) > 1 else told[0]
        what = f"the {kind} " if len(kinds) == 1 else "the "
        advice = f"name {'one' if len(told) > 1 else names[0]}"
        if refused := sorted({kind for kind in kinds if self._formats[kind].unsupported}):
            kind = refused[0]
            advice = f"{kind} tables are not supported: {self._formats[kind].unsupported}"
        raise TableFormatError(
            f"{location.uri} holds {what}{'tables' if len(told) > 1 else 'table'} {listed}, {_WHY}; {advice}"
        )

    def _is_table(self, folder: str, kind: str) -> bool:
        try:
            return self._formats[kind].is_table(self._location.below(folder))
        except PermissionError:
            return True  # What must not be looked into cannot be taken for nothing.


def _table_above(location: Location, formats: tuple[tuple[str, FormatDetector], ...]) -> tuple[str, Location] | None:
    """Format and place of the nearest table in whose folder a location lies, by its name or by where its links lead.

    What may not be looked into holds none. Raises OSError.
    """
    return _nearest(list(dict.fromkeys([*_parents(location), *_parents(location.resolved)])), formats)


_remembered_table_above = lru_cache(maxsize=1024)(_table_above)


def _parents(location: Location) -> Iterator[Location]:
    parent = location.parent
    while parent is not None:
        yield parent
        parent = parent.parent


def _nearest(folders: list[Location], formats: tuple[tuple[str, FormatDetector], ...]) -> tuple[str, Location] | None:
    asked = [(kind, detector, folder) for folder in folders for kind, detector in formats]
    if all(folder.is_local for folder in folders):
        return next(((kind, folder) for kind, detector, folder in asked if _may_hold(detector, folder)), None)
    with IoCountingThreadPool(_PROBES) as pool:
        answers = pool.map(lambda one: _may_hold(*one[1:]), asked)
        return next(((kind, folder) for (kind, _, folder), holds in zip(asked, answers, strict=True) if holds), None)


def _may_hold(detector: FormatDetector, folder: Location) -> bool:
    try:
        return detector.is_table(folder)
    except (FileNotFoundError, PermissionError):
        return False
