"""Locations in versions that an attacker with write access to the root forged are not trusted.

A root is the folder with all stored state. A version is the published statistics of a table at one snapshot. A JSON
document of each version lists its files.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metastore_assets import profile
from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.errors import ConfigError, CorruptionError, MetastoreError
from metastore_assets.lookup import Table
from metastore_assets.metastore import open_table
from metastore_assets.pipeline.refresh import refresh

SECRET = "a-line-of-another-file"
WHERE = "x > 4"


def no_spark() -> Any:
    raise AssertionError("Spark was started for small work")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with a version of the table `t`.

    The table is in the folder `lake` beside the root. A file of someone else is beside both folders.
    """
    (tmp_path / "lake").mkdir()
    pq.write_table(pa.table({"x": list(range(10))}), tmp_path / "lake" / "0.parquet")
    (tmp_path / "secret.csv").write_text(f"x\n{SECRET}\n")
    table = TableConfig(name="t", uri=str(tmp_path / "lake"))
    config = MetastoreConfig(root=str(tmp_path / "root"), tables=[table], engine="auto")
    refresh(config, table, no_spark)
    return tmp_path / "root"


def forge(root: Path, **location: Any) -> None:
    (document,) = (root / "t" / "versions").glob("*.json")
    fields = json.loads(document.read_text())
    document.write_text(json.dumps({**fields, "table_location": {**fields["table_location"], **location}}))


WAYS: list[Callable[[Table], Any]] = [
    lambda lookup: lookup.count(WHERE).value,
    lambda lookup: lookup.filter(WHERE, read=True).count().value,
    lambda lookup: lookup.filter(WHERE, storage_options={}).statistics(),
    lambda lookup: lookup.at(1).count(WHERE).value,
]


@pytest.mark.parametrize("read_table", WAYS)
@pytest.mark.parametrize(
    "location", [{}, {"uri": "{}/secret.csv", "format": "files"}, {"uri": "s3://any-bucket/at/all"}]
)
def test_forged_location_is_not_read(root: Path, read_table: Any, location: dict[str, str]) -> None:
    forge(root, **{key: value.format(root.parent) for key, value in location.items()})
    with pytest.raises(ConfigError, match="table_locations=") as error_info:
        read_table(open_table(str(root), "t"))
    assert SECRET not in str(error_info.value)


@pytest.mark.parametrize("read_table", WAYS)
@pytest.mark.parametrize(
    "location",
    [
        {"uri": "{}/secret.csv"},
        {"uri": "{}/lake/../secret.csv"},
        {"uri": "{}/lakeside"},
        {"uri": "file://{}/secret.csv"},
        {"uri": "relative"},
        {"uri": "https://127.0.0.1:9/x.parquet"},
        {"path_mapping": {"/old": "{}"}},
        {"allow": ["{}/"]},
        {"allow": ["s3://any/"]},
    ],
)
def test_unconfirmed_location_is_refused(root: Path, read_table: Any, location: Any) -> None:
    forge(root, **json.loads(json.dumps(location).replace("{}", str(root.parent))))
    with pytest.raises(ConfigError, match=r"version 1\b.*'t'.*table_locations") as error_info:
        read_table(open_table(str(root), "t", table_locations=[str(root.parent / "lake")]))
    assert SECRET not in str(error_info.value)


@pytest.mark.parametrize("read_table", WAYS)
def test_confirmed_location_is_read(root: Path, read_table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root.parent)
    expected = read_table(open_table(str(root), "t", table_locations=str(root.parent / "lake")))
    for confirmed_locations in (
        "lake",
        "./lake/",
        str(root.parent),
        f"file://{root.parent}/lake",
        ["elsewhere", "lake"],
    ):
        table_rows = read_table(open_table(str(root), "t", table_locations=confirmed_locations))
        assert str(table_rows) == str(expected)
    assert open_table(str(root), "t").count(WHERE, table="lake").value == 5
    assert open_table(str(root), "t").count(WHERE, table=TableConfig(name="t", uri="lake")).value == 5
    assert profile("lake").count(WHERE).value == 5


@pytest.mark.parametrize(
    "location",
    [
        {"statistics": ["evil_module:Evil"]},
        {"columns": {"x": {"statistics": ["evil_module:Evil"]}}},
        {"columns": {"default": {"statistics": {"evil": "evil_module:Evil"}}}},
        {"storage_options": {"aws_endpoint": "http://127.0.0.1:9"}},
        {"catalog": {"type": "evil_module"}},
        {"table": "db.t"},
        {"name": "other"},
        {"unknown": 1},
        {"declared": {"x": "string"}},
    ],
)
def test_forged_options_are_ignored(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, location: dict[str, Any]
) -> None:
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "evil_module.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    monkeypatch.syspath_prepend(str(tmp_path / "modules"))
    forge(root, **location)
    lookup = open_table(str(root), "t", table_locations=str(tmp_path / "lake"))
    for ask in (*WAYS, lambda lookup: lookup.count(WHERE, table=str(tmp_path / "lake"))):
        with pytest.raises(CorruptionError, match=r"version 1\b.*'t'.*forged"):
            ask(lookup)
    assert not (tmp_path / "ran").exists()
    assert "evil_module" not in sys.modules
    assert lookup.count(WHERE, table=TableConfig(name="t", uri=str(tmp_path / "lake"))).value == 5


@pytest.mark.parametrize(
    "location",
    [
        {"format": "evil"},
        {"partitions": 5},
        {"options": "x"},
        {"path_mapping": []},
        {"at": {"x": SECRET}},
        {"allow": 7},
    ],
)
def test_invalid_location_settings_are_corruption(root: Path, tmp_path: Path, location: dict[str, Any]) -> None:
    forge(root, **location)
    with pytest.raises(MetastoreError, match=r"version 1\b.*'t'.*location") as error_info:
        open_table(str(root), "t", table_locations=str(tmp_path / "lake")).count(WHERE)
    assert SECRET not in str(error_info.value)
