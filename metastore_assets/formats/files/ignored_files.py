"""Names of files and folders that are no data: hidden, unfinished, backups, checksums, or of an editor."""

from __future__ import annotations

import re

_ENDINGS = frozenset(
    [
        *("tmp", "temp", "part", "partial", "filepart", "inprogress", "_copying_", "crdownload", "download", "gstmp"),
        *("swp", "swo", "bak", "backup", "old", "orig", "crc", "md5", "sha1", "sha256", "sha512", "lock"),
    ]
)
_NUMBERED = frozenset(["bak", "backup", "old", "orig", "tmp", "temp"])
_WITH_NUMBER = re.compile(r"([a-z]+)-?[0-9]+")
_COMPRESSIONS = frozenset(["gz", "bz2", "zst", "zstd", "lz4", "xz", "snappy", "zip"])
_OF_SYSTEMS = frozenset(
    ["lost+found", "$recycle.bin", "system volume information", "@eadir", "+tmp", "thumbs.db", "desktop.ini"]
)


def is_ignored(name: str) -> bool:
    """Return whether a file of this name is no data."""
    lower = name.lower()
    return (
        _is_hidden(name)
        or lower.endswith(("~", "_$folder$"))
        or lower.startswith("~$")
        or (lower.startswith("#") and lower.endswith("#"))
        or lower in _OF_SYSTEMS
        or _has_ending(lower)
    )


def is_ignored_folder(name: str) -> bool:
    """Return whether a folder of this name contains no data. Names `column=value` are partitions."""
    return _is_hidden(name) or ("=" not in name and is_ignored(name))


def _is_hidden(name: str) -> bool:
    """Return whether Spark ignores the name: `_SUCCESS`, `.x.crc`, `_tmp/`, not `_a=1`."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def _has_ending(name: str) -> bool:
    rest, dot, last = name.rpartition(".")
    if last in _COMPRESSIONS:
        rest, dot, last = rest.rpartition(".")
    if not dot:
        return False
    if last in _ENDINGS or ".inprogress." in name:
        return True
    if last.isdecimal():
        return "." in rest and rest.rpartition(".")[2] in _NUMBERED
    match = _WITH_NUMBER.fullmatch(last)
    return match is not None and match[1] in _NUMBERED
