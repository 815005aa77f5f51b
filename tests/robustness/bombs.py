"""All decompression bombs and forged sizes of the tests, with patterns of their errors.

Each error names the file, and usually the limit. Most bombs have some hundred kilobytes and would take gigabytes of
memory, or endless time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from tests.robustness.avro_bombs import AVRO_BOMBS
from tests.robustness.file_bombs import FILE_BOMBS
from tests.robustness.metadata_bombs import METADATA_BOMBS

BOMBS: Mapping[str, tuple[Callable[[Path], None], str]] = {**AVRO_BOMBS, **METADATA_BOMBS, **FILE_BOMBS}
"""Bombs by name: a function that writes the table, and a pattern of the error."""
SLOW = frozenset(
    [
        *(f"{kind} {codec}" for kind in ("avro", "manifest list") for codec in ("deflate", "xz", "bzip2")),
        *("metadata values", "metadata lists", "schema wide"),
        *("delta line", "delta values", "delta schema wide", "delta vector", "delta vector, fewer"),
        *("json line", "json packed line", "json packed blanks", "csv packed", "csv row"),
    ]
)
"""Names of the bombs that take a second to write or to read."""
