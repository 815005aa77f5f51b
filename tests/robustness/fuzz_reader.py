"""A program that reads tables for the fuzz tests.

A mutated table may crash the process that reads it, so the tests start this program as a separate process:
`python -m tests.robustness.fuzz_reader`.

A fragment is a data file with the deletes that apply to it, and its profile is the statistics of its rows. Each line on
stdin is a JSON document with a table's configuration and whether the table's fragments are profiled. Each line on
stdout is the outcome as JSON: a digest of the table's rows, or the message with which the table was refused, or an
unexpected exception, and the peak memory in bytes.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from metastore_assets.config import TableConfig
from metastore_assets.errors import MetastoreError
from metastore_assets.formats import Fragment, open_table_format
from metastore_assets.formats.lance import native
from metastore_assets.pipeline.fragments import FragmentFailure, ProfilingContext, profile_bundle
from metastore_assets.pipeline.profile_spec import table_profile_spec
from metastore_assets.store.objects import ObjectStore
from metastore_assets.tasks.isolation import IsolatedRunner
from metastore_assets.tasks.runner import with_arguments


def read(table: TableConfig, root: Path, *, profile: bool) -> dict[str, Any]:
    """Plan the table, read its rows, and return the outcome.

    With `profile`, first profile each fragment.

    A child process reads the fragments, because they may crash it. Profiles are written into the folder `root`.
    """
    try:
        snapshot = open_table_format(table).snapshot()
        spec = table_profile_spec(snapshot.schema, table)
        context = ProfilingContext(ObjectStore(str(root), {}), table, snapshot.schema, spec)
        tasks = [(context if profile else None, snapshot.schema, fragment) for fragment in snapshot.fragments]
        outcomes = IsolatedRunner().outcomes(
            with_arguments(_fragment), tasks, paths=[fragment.path for fragment in snapshot.fragments]
        )
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome
            if isinstance(outcome, FragmentFailure):
                return {"refused": outcome.message}
        digests = sorted(digest for outcome in outcomes for digest in outcome)
        return {"rows": _hash([*snapshot.schema.names, *digests])}
    except MetastoreError as error:
        return {"refused": str(error)}
    except BaseException:  # noqa: BLE001 (whatever it is, it is told)
        return {"raised": traceback.format_exc()}


def _fragment(context: ProfilingContext | None, schema: pa.Schema, fragment: Fragment) -> FragmentFailure | list[str]:
    """Return a digest of each row of the fragment.

    With `context`, first profile the fragment. If this fails, return the failure instead.
    """
    native._open_dataset.cache_clear()  # pylance would not read a mutated file again.
    native.STALL_SECONDS = 15
    if context is not None:
        (outcome,) = profile_bundle(context, [fragment])
        if isinstance(outcome, FragmentFailure):
            return outcome
    with fragment.source.open() as reader:
        columns = [[repr(value) for chunk in reader.read(field) for value in _values(chunk)] for field in schema]
        rows = zip(*columns, strict=True) if columns else [()] * reader.row_count
        return [_hash([fragment.partition_key, *row]) for row in rows]


def _hash(parts: Sequence[str]) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _values(chunk: pa.Array) -> list[Any]:
    try:
        return chunk.to_pylist()
    except (ValueError, OverflowError):
        # Values that Python cannot represent: by their bytes.
        rows = (pa.record_batch([chunk.slice(at, 1)], ["value"]) for at in range(len(chunk)))
        return [row.serialize().to_pybytes() for row in rows]


def _processes() -> list[Path]:
    """Return this process and those that it started to read files."""
    children = Path("/proc/self/task").glob("*/children")
    return [Path("/proc/self"), *(Path("/proc", number) for path in children for number in path.read_text().split())]


def _peak() -> int:
    """Return the sum of the peak memory of all processes, in bytes, since `_forget_peak` was called."""
    return sum(map(_peak_of_process, _processes()))


def _peak_of_process(process: Path) -> int:
    match = re.search(r"VmHWM:\s+(\d+) kB", (process / "status").read_text(encoding="ascii"))
    return int(match[1]) << 10 if match else 0


def _forget_peak() -> None:
    for process in _processes():
        (process / "clear_refs").write_text("5", encoding="ascii")


def main() -> None:
    """Write a line to stdout for each line of stdin, until stdin ends."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        for number, line in enumerate(sys.stdin):
            _forget_peak()
            request = json.loads(line)
            table = TableConfig.model_validate(request["table"])
            outcome = read(table, Path(folder) / str(number % 8), profile=request["profile"])
            print(json.dumps(outcome | {"peak": _peak()}), flush=True)  # noqa: T201


if __name__ == "__main__":
    from tests.robustness import fuzz_reader

    fuzz_reader.main()  # from the module: classes in `__main__` have that name in this process only
