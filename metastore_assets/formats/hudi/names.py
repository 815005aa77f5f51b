"""The names of Hudi's data files, parsed."""

from __future__ import annotations

import re
from dataclasses import dataclass

_BASE = re.compile(r"(?P<id>[^_.][^_]*)_(?P<token>[^_]*)_(?P<instant>\d+)\.(?P<kind>parquet|orc|hfile|lance)")
_LOG = re.compile(
    r"\.(?P<id>.+)_(?P<instant>\d+)\.log\.(?P<version>\d+)(?:_(?P<token>\d+-\d+-\d+))?(?P<changes>\.cdc)?"
)
_DATA = (".parquet", ".orc", ".hfile", ".lance", "_hudiext")


@dataclass(frozen=True, slots=True)
class BaseName:
    """The name of a base file: the rows of a file group after one instant."""

    file_id: str
    instant: str
    kind: str
    """`parquet`, `orc`, `hfile` or `lance`."""


@dataclass(frozen=True, slots=True)
class LogName:
    """The name of a log file: changes to the rows of a base file."""

    file_id: str
    instant: str
    """Up to table version 6 the instant of the base file; since version 8 the instant that wrote the log file."""
    version: int
    token: str


def data_file_name(name: str) -> BaseName | LogName | None:
    """Parse a file name; None for a file without rows of the table. Raises ValueError for a foreign data file."""
    if match := _BASE.fullmatch(name):
        return BaseName(match["id"], match["instant"], match["kind"])
    if match := _LOG.fullmatch(name):
        # Change logs repeat the content of other files for incremental readers.
        return (
            None if match["changes"] else LogName(match["id"], match["instant"], int(match["version"]), _token(match))
        )
    if name.endswith(_DATA) and not name.startswith((".", "_")):
        raise ValueError(f"{name!r} is not named as Hudi names data files")
    return None


def _token(match: re.Match[str]) -> str:
    return match["token"] or ""
