"""Reads tables for the fuzz tests, one after the other, because a table may end the process that reads it. A program:

    python -m tests.robustness.fuzz_reader

Each line on stdin is a table's configuration as JSON, each line on stdout what came of it: the table's rows by a
digest, or how it was refused, or what it raised that it should not have.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

import pyarrow as pa

from metastore_assets.config import TableConfig
from metastore_assets.errors import MetastoreError
from metastore_assets.formats import Fragment, Snapshot, open_table_format
from metastore_assets.pipeline.plan import table_layout
from metastore_assets.pipeline.profile import FragmentFailure, ProfileContext, profile_fragment
from metastore_assets.store.objects import ObjectStore


def read(table: TableConfig, root: Path) -> dict[str, Any]:
    """Plan the table, profile each fragment as a task does, and read its rows."""
    try:
        snapshot = open_table_format(table).snapshot()
        context = ProfileContext(
            ObjectStore(str(root), {}), table, snapshot.schema, table_layout(snapshot.schema, table)
        )
        outcomes = [profile_fragment(context, fragment) for fragment in snapshot.fragments]
        failures = [outcome.message for outcome in outcomes if isinstance(outcome, FragmentFailure)]
        if failures:
            return {"refused": failures[0]}
        return {"rows": _digest(snapshot), "fragments": len(snapshot.fragments)}
    except MetastoreError as error:
        return {"refused": str(error)}
    except BaseException:  # noqa: BLE001 (whatever it is, it is told)
        return {"raised": traceback.format_exc()}


def _digest(snapshot: Snapshot) -> str:
    """Of the schema and the rows, in no order."""
    digests = sorted(digest for fragment in snapshot.fragments for digest in _row_digests(snapshot.schema, fragment))
    return hashlib.sha256(f"{snapshot.schema.names} {digests}".encode()).hexdigest()


def _row_digests(schema: pa.Schema, fragment: Fragment) -> list[str]:
    with fragment.source.open() as reader:
        columns = [[repr(value) for chunk in reader.read(field) for value in _values(chunk)] for field in schema]
        rows = zip(*columns, strict=True) if columns else [()] * reader.row_count
        return [hashlib.sha256(f"{fragment.partition_key} {row}".encode()).hexdigest() for row in rows]


def _values(chunk: pa.Array) -> list[Any]:
    try:
        return chunk.to_pylist()
    except (ValueError, OverflowError):
        # What Python has no value for: by its bytes.
        rows = (pa.record_batch([chunk.slice(at, 1)], ["value"]) for at in range(len(chunk)))
        return [row.serialize().to_pybytes() for row in rows]


def _processes() -> list[Path]:
    """This process and those that it started to read files for it."""
    children = Path("/proc/self/task").glob("*/children")
    return [Path("/proc/self"), *(Path("/proc", number) for path in children for number in path.read_text().split())]


def _peak() -> int:
    """Bytes of memory that the processes had at most since `_forget_peak`, together."""
    return sum(map(_own_peak, _processes()))


def _own_peak(process: Path) -> int:
    found = re.search(r"VmHWM:\s+(\d+) kB", (process / "status").read_text(encoding="ascii"))
    return int(found[1]) << 10 if found else 0


def _forget_peak() -> None:
    for process in _processes():
        (process / "clear_refs").write_text("5", encoding="ascii")


def main() -> None:
    """Answer until stdin ends."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        for number, line in enumerate(sys.stdin):
            _forget_peak()
            outcome = read(TableConfig.model_validate_json(line), Path(folder) / str(number % 8))
            print(json.dumps(outcome | {"peak": _peak()}), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
