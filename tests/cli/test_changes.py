"""`metastore changes`: values that were added, removed, or have another frequency.

A version is the published statistics of a table at one snapshot.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.run_command import error_of, run, run_json


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """The configuration of a refreshed table with two versions.

    The only file of the table was replaced between them.
    """
    (tmp_path / "lake").mkdir()
    config = tmp_path / "metastore.yaml"
    config.write_text(
        "root: ./root\nengine: auto\ntables:\n- {name: t, uri: ./lake, columns: {hush: {values: hidden}}}\n"
    )
    for shops in (["a", "b", "b\x1b[31m"], ["b", "b", "c"]):
        rows = pa.table({"shop": shops, "kept": [1, 1, 1], "hush": shops})
        pq.write_table(rows, tmp_path / "lake" / "0.parquet")
        assert run("refresh", "t", config=config).exit_code == 0
    return config


def test_changes(lake: Path) -> None:
    changes = run_json("changes", "t", "--since", "1", config=lake)
    assert (changes["before"]["version"], changes["after"]["version"]) == (1, 2)
    columns = {entry["column"]: entry for entry in changes["columns"]}
    assert columns["shop"]["changes"] == [
        {"change": "delete", "value": "a", "before": 1, "after": None},
        {"change": "update", "value": "b", "before": 1, "after": 2},
        {"change": "delete", "value": "b\x1b[31m", "before": 1, "after": None},
        {"change": "add", "value": "c", "before": None, "after": 1},
    ]
    assert columns["kept"]["changes"] == []
    assert columns["hush"]["changes"] is None
    assert "hidden" in columns["hush"]["reason"]
    (few,) = run_json("changes", "t", "--since", "1", "--columns", "shop", "-n", "2", config=lake)["columns"]
    assert few["counts"] == {"add": 1, "update": 1, "delete": 2}
    assert [entry["value"] for entry in few["changes"]] == ["a", "b"]
    output = run("changes", "t", "--since", "1", "-n", "3", config=lake).stdout
    assert "t version 1 → 2" in output
    assert "shop  4 values: 1 added, 1 changed, 2 deleted" in output
    assert "and 1 more" in output
    assert "1 column the same, 1 column without value counts" in output
    assert "\x1b" not in output
    assert "hidden" in run("changes", "t", "--since", "1", "--columns", "hush", config=lake).stdout


def test_invalid_requests(lake: Path) -> None:
    assert "version 7" in error_of(run("changes", "t", "--since", "7", config=lake))
    assert "'shop'" in error_of(run("changes", "t", "--since", "1", "--columns", "shp", config=lake))
    assert "--columns" in error_of(run("changes", "t", "--since", "1", "--columns", ",", config=lake), 2)
