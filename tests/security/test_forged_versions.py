"""Versions that somebody forged who can write the root, and nothing else: what they name is not believed."""

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
    raise AssertionError("nothing here is worth a session")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with one version of a table `t` at `lake`, beside a file of somebody else."""
    (tmp_path / "lake").mkdir()
    pq.write_table(pa.table({"x": list(range(10))}), tmp_path / "lake" / "0.parquet")
    (tmp_path / "secret.csv").write_text(f"x\n{SECRET}\n")
    table = TableConfig(name="t", uri=str(tmp_path / "lake"))
    config = MetastoreConfig(root=str(tmp_path / "root"), tables=[table], engine="auto")
    refresh(config, table, no_spark)
    return tmp_path / "root"


def forge(root: Path, **place: Any) -> None:
    (document,) = (root / "t" / "versions").glob("*.json")
    fields = json.loads(document.read_text())
    document.write_text(json.dumps({**fields, "table_location": {**fields["table_location"], **place}}))


WAYS: list[Callable[[Table], Any]] = [
    lambda lookup: lookup.count(WHERE).count,
    lambda lookup: lookup.filter(WHERE, read=True).row_count(),
    lambda lookup: lookup.filter(WHERE, storage_options={}).statistics(),
    lambda lookup: lookup.at(1).count(WHERE).count,
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("place", [{}, {"uri": "{}/secret.csv", "format": "files"}, {"uri": "s3://any-bucket/at/all"}])
def test_who_names_nothing_but_a_root_reads_nothing_else(root: Path, way: Any, place: dict[str, str]) -> None:
    forge(root, **{key: value.format(root.parent) for key, value in place.items()})
    with pytest.raises(ConfigError, match=r"confirm it, with `open_table\(…, table_locations=") as raised:
        way(open_table(str(root), "t"))
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "place",
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
def test_other_places_than_the_confirmed_ones_are_refused(root: Path, way: Any, place: Any) -> None:
    forge(root, **json.loads(json.dumps(place).replace("{}", str(root.parent))))
    with pytest.raises(ConfigError, match="confirm it") as raised:
        way(open_table(str(root), "t", table_locations=[str(root.parent / "lake")]))
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize("way", WAYS)
def test_confirmed_places_are_read(root: Path, way: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root.parent)
    expected = way(open_table(str(root), "t", table_locations=str(root.parent / "lake")))
    for confirmed in ("lake", "./lake/", str(root.parent), f"file://{root.parent}/lake", ["elsewhere", "lake"]):
        found = way(open_table(str(root), "t", table_locations=confirmed))
        assert str(found) == str(expected)
    assert open_table(str(root), "t").count(WHERE, "lake").count == 5
    assert open_table(str(root), "t").count(WHERE, TableConfig(name="t", uri="lake")).count == 5
    assert profile("lake").count(WHERE).count == 5


@pytest.mark.parametrize(
    "place",
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
def test_a_version_names_no_code_and_no_options(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: dict[str, Any]
) -> None:
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "evil_module.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    monkeypatch.syspath_prepend(str(tmp_path / "modules"))
    forge(root, **place)
    lookup = open_table(str(root), "t", table_locations=str(tmp_path / "lake"))
    for ask in (*WAYS, lambda lookup: lookup.count(WHERE, str(tmp_path / "lake"))):
        with pytest.raises(CorruptionError, match="version 1 of table 't' is damaged or forged: it records the"):
            ask(lookup)
    assert not (tmp_path / "ran").exists()
    assert "evil_module" not in sys.modules
    assert lookup.count(WHERE, TableConfig(name="t", uri=str(tmp_path / "lake"))).count == 5


@pytest.mark.parametrize(
    "place",
    [
        {"format": "evil"},
        {"partitions": 5},
        {"options": "x"},
        {"path_mapping": []},
        {"at": {"x": SECRET}},
        {"allow": 7},
    ],
)
def test_settings_that_are_none_are_corruption(root: Path, tmp_path: Path, place: dict[str, Any]) -> None:
    forge(root, **place)
    with pytest.raises(MetastoreError, match="version 1 of table 't' records no valid location of its table") as raised:
        open_table(str(root), "t", table_locations=str(tmp_path / "lake")).count(WHERE)
    assert SECRET not in str(raised.value)
