"""Replaying a Delta log gives the live files that deltalake finds."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets.config import TableConfig
from metastore_assets.formats import open_table_format
from tests.formats.delta.log_writer import commit, field, metadata, protocol, write_vector

_TABLES = sorted((Path(__file__).parents[4] / "shared" / "realtables" / "delta").glob("*"))


def _replayed(table: Path, at: int | None) -> dict[str, tuple[int, int | None]]:
    """Return (size, number of live rows) of each file at version `at`, by the file's name."""
    snapshot = open_table_format(TableConfig(name="t", uri=str(table), at=at)).snapshot()
    return {fragment.path.rpartition("/")[2]: (fragment.bytes, fragment.row_count) for fragment in snapshot.fragments}


def _deltalake(table: Path) -> dict[str, int]:
    """Return the size of each live file according to deltalake, by the file's name."""
    actions = pa.table(DeltaTable(str(table)).get_add_actions()).select(["path", "size_bytes"]).to_pylist()
    return {unquote(row["path"]).rpartition("/")[2]: row["size_bytes"] for row in actions}


def _sizes(files_: dict[str, tuple[int, int | None]]) -> dict[str, int]:
    return {name: size for name, (size, _) in files_.items()}


@pytest.mark.parametrize("table", _TABLES or [None], ids=lambda table: table.name if table else "none")
def test_files_of_real_tables_are_those_of_deltalake(table: Path, realtables: Path) -> None:
    """In the newest version of each table, the names and sizes of files equal deltalake's."""
    assert table.parent == realtables / "delta"
    assert _sizes(_replayed(table, None)) == _deltalake(table)


_FILES = st.integers(0, 4)
_STEP = st.fixed_dictionaries(
    {
        "add": st.sets(_FILES),
        "vector": st.sets(_FILES),
        "remove": st.sets(_FILES),
        "checkpoint": st.booleans(),
        "forget": st.booleans(),
    }
)


@given(st.lists(_STEP, min_size=1, max_size=8))
def test_any_log_is_replayed_as_deltalake_replays_it(steps: list[dict[str, Any]]) -> None:
    """The live files of a random log are the expected ones, and those that deltalake finds.

    Commits add and remove files, and give them deletion vectors. The commits before a checkpoint may be removed.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        features = protocol("deletionVectors")
        commit(folder, features, metadata([field("a", "long")], **{"delta.enableDeletionVectors": "true"}))
        live: dict[int, dict[str, Any]] = {}
        for number, step in enumerate(steps):
            actions = []
            for file in sorted(step["remove"] & live.keys()):
                actions.append(_remove(live.pop(file)))
            for file in sorted(step["vector"] & live.keys()):
                actions.append(_remove(live[file]))
                live[file] = live[file] | {"deletionVector": write_vector(folder, [number % 9], "i")}
                actions.append({"add": live[file]})
            for file in sorted(step["add"] - live.keys() - step["remove"]):
                live[file] = {
                    "path": f"f%20{file}",
                    "partitionValues": {},
                    "size": number,
                    "modificationTime": 1,
                    "dataChange": True,
                    "stats": '{"numRecords":9}',
                }
                actions.append({"add": live[file]})
            version = commit(folder, *actions)
            if step["checkpoint"]:
                DeltaTable(name).create_checkpoint()
                for old in range(version) if step["forget"] else ():
                    (folder / "_delta_log" / f"{old:020}.json").unlink(missing_ok=True)
            expected = {f"f {file}": (add["size"], 9 - ("deletionVector" in add)) for file, add in sorted(live.items())}
            assert _replayed(folder, None) == _replayed(folder, version) == expected
            assert _deltalake(folder) == _sizes(expected)


def _remove(add: dict[str, Any]) -> dict[str, Any]:
    copied_keys = ("path", "partitionValues", "size", "deletionVector")
    files_ = {key: add[key] for key in copied_keys if key in add}
    return {"remove": files_ | {"dataChange": True, "extendedFileMetadata": True, "deletionTimestamp": 1}}
