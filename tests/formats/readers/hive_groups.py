"""Parquet files as Hive and old Java libraries write them.

The files have a logical type on the inner group of a map.
"""

from __future__ import annotations

from pathlib import Path

_GROUP = b"\x18\x09key_value\x15\x04\x00"
_GROUP_OF_HIVE = b"\x18\x09key_value\x15\x04\x5c\xbc\x00\x00\x00"


def with_groups_of_hive(path: Path) -> int:
    """Give the inner groups of all maps in a file the logical type UNKNOWN.

    Return the number of groups.
    """
    data = path.read_bytes()
    length = int.from_bytes(data[-8:-4], "little")
    footer = data[-8 - length : -8]
    count = footer.count(_GROUP)
    footer = footer.replace(_GROUP, _GROUP_OF_HIVE)
    path.write_bytes(data[: -8 - length] + footer + len(footer).to_bytes(4, "little") + b"PAR1")
    return count
