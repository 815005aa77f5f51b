"""Every instant of every real Hudi table has its recorded rows, in immutable and disjoint fragments.

A fragment is a file slice: a base file and its log files.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from metastore_assets.config import TableConfig
from metastore_assets.formats import Snapshot, open_table_format
from tests.formats.hudi.realtables import completed, plain, rows_by_replay, unpacked
from tests.formats.oracle import read_rows

_ARCHIVES = sorted((Path(__file__).parents[4] / "shared" / "realtables" / "hudi").glob("*.zip"))
_NAMES = [archive.stem for archive in _ARCHIVES] or [
    pytest.param("", marks=pytest.mark.skip(reason="the real tables are not there: ../shared/realtables"))
]


def _open(table: Path, at: str | None = None, **options: Any) -> Snapshot:
    return open_table_format(TableConfig(name="t", uri=str(table), at=at, **options)).snapshot()


def _rows(snapshot: Snapshot, rows: Iterable[tuple[Any, ...]] | None = None) -> list[str]:
    """Return the rows of a snapshot as sorted texts.

    If `rows` is None, the rows are read from the snapshot.
    """
    rows = read_rows(snapshot) if rows is None else rows
    names = snapshot.schema.names
    return sorted(repr([plain(row[names.index(name)]) for name in sorted(names)]) for row in rows)


@pytest.mark.parametrize("name", _NAMES)
def test_every_instant_has_its_rows(name: str, realtables: Path) -> None:
    """At every instant, the row count is the recorded one, and the rows equal a replay in Python.

    Equal fragment ids mean equal rows.
    """
    table = unpacked(realtables, name)
    truth = json.loads((realtables / "truth" / f"hudi__{name}.json").read_text())
    row_counts = {version.split()[0]: entry["rows"] for version, entry in (truth.get("versions") or {}).items()}
    contents: dict[str, list[str]] = {}
    for instant in completed(table):
        snapshot = _open(table, instant)
        assert snapshot.id == instant
        parts = {fragment.id: read_rows(snapshot, [fragment]) for fragment in snapshot.fragments}
        assert len(parts) == len(snapshot.fragments)
        rows = _rows(snapshot, chain.from_iterable(parts.values()))
        if instant in row_counts:
            assert len(rows) == row_counts[instant]
        replayed_rows = rows_by_replay(table, instant)
        if replayed_rows is not None:
            for row in replayed_rows:
                if "ts_epoch" in row:
                    # An update wrote the integers of this column as texts.
                    row["ts_epoch"] = int(row["ts_epoch"])
            assert rows == sorted(repr([plain(row[key]) for key in sorted(row)]) for row in replayed_rows)
        for fragment_id, part in parts.items():
            rows_read = sorted(map(repr, part))
            assert contents.setdefault(fragment_id, rows_read) == rows_read


def test_lance_files_without_log_files_are_read_with_unsupported_merge_rules(realtables: Path, tmp_path: Path) -> None:
    """A table of Lance files with an unsupported payload class is read if it has no log files.

    Hudi needs the payload class only to merge log files.
    """
    table = shutil.copytree(unpacked(realtables, "cow_v9_trips_lance"), tmp_path / "t")
    expected = _rows(_open(table))
    properties = table / ".hoodie/hoodie.properties"
    lines = [line for line in properties.read_text().splitlines() if "merge" not in line and "payload" not in line]
    properties.write_text("\n".join([*lines, "hoodie.compaction.payload.class=org.example.Custom", ""]))
    assert _rows(_open(table)) == expected
