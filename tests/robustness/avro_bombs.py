"""Avro files that claim or decompress to far more than they contain, or have extreme schemas.

Such schemas are too deep or too wide.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.robustness.bomb_encoders import PACKED, avro, long, record


def _avro_file(content: Callable[[], bytes]) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        folder.mkdir()
        (folder / "a.avro").write_bytes(content())

    return write


def _deep(levels: int) -> Any:
    schema: Any = "long"
    for level in range(levels):
        schema = {"type": "record", "name": f"r{level}", "fields": [{"name": "f", "type": schema}]}
    return schema


def _doubled(levels: int) -> Any:
    """Return a schema in which each type occurs twice in the next one."""
    schema: Any = {"type": "record", "name": "r0", "fields": [{"name": "f", "type": "null"}]}
    for level in range(levels):
        fields = [{"name": "a", "type": schema}, {"name": "b", "type": f"r{level}"}]
        schema = {"type": "record", "name": f"r{level + 1}", "fields": fields}
    return schema


_NULLS = {"type": "array", "items": "null"}
_ITSELF = {"type": "record", "name": "n", "fields": [{"name": "next", "type": ["null", "n"]}]}
_FLAGS = {"type": "array", "items": {"type": "record", "name": "i", "fields": [{"name": "b", "type": "boolean"}]}}

AVRO_BOMBS: Mapping[str, tuple[Callable[[Path], None], str]] = {
    **{
        f"avro {codec}": (
            _avro_file(lambda codec=codec: avro(record("long"), 9, PACKED[codec](), codec)),
            r"a\.avro.*(decompress to more than|declare a size)",
        )
        for codec in PACKED
    },
    "avro rows": (
        _avro_file(lambda: avro(record("null"), 1 << 60, b"")),
        r"a\.avro.*1,152,921,504,606,846,976 rows without any bytes; at most",
    ),
    "avro items": (
        _avro_file(lambda: avro(record(_NULLS), 1, long(1 << 60) + b"\0")),
        r"a\.avro.*items in one Avro record; at most",
    ),
    "avro flags": (
        _avro_file(lambda: avro(record(_FLAGS), 1, long(6_000_000) + bytes(6_000_001))),
        r"a\.avro.*6,000,000 items in one",
    ),
    "avro bytes": (_avro_file(lambda: avro(record("bytes"), 1, long(1 << 60))), r"a\.avro.*ends early"),
    "avro block": (
        _avro_file(lambda: avro(record("long"), 1, b"\2", size=1 << 60)),
        r"a\.avro.*bytes in one part of the Avro file; at most",
    ),
    "avro block of a gigabyte": (
        _avro_file(lambda: avro(record("long"), 1, b"\2", size=1 << 30)),
        r"a\.avro.*ends early",
    ),
    "avro negative": (_avro_file(lambda: avro(record("long"), 1, b"\2", size=-5)), r"a\.avro.*negative"),
    "avro deep": (_avro_file(lambda: avro(_deep(150), 0, b"")), r"a\.avro.*inside of each other"),
    "avro deeper": (_avro_file(lambda: avro({}, 0, b"").replace(b"{}", b"[" * 50_000, 1)), r"a\.avro"),
    "avro doubled": (_avro_file(lambda: avro(_doubled(40), 1, b"")), r"a\.avro.*fields in an Avro schema; at most"),
    "avro of itself": (
        _avro_file(lambda: avro(record(_ITSELF), 1, b"\2" * 100_000 + b"\0")),
        r"a\.avro.*contains itself",
    ),
    "avro fixed": (
        _avro_file(lambda: avro(record({"type": "fixed", "name": "x", "size": 1 << 31}), 0, b"")),
        r"a\.avro.*fixed width",
    ),
}
"""Bombs by name: a function that writes the table, and a pattern of the error."""
