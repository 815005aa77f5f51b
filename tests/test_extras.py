"""Without the packages of extras, lookups and dataflows work, and other features name the extra."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from metastore_assets.extras import PACKAGES
from metastore_assets.store.objects import ObjectStore
from tests.conftest import REPOSITORY
from tests.formats.hudi.tables import HudiCopyOnWrite
from tests.formats.iceberg.tables import IcebergCopyOnWrite
from tests.formats.lance.tables import LanceTable
from tests.lookup.publishing import publish

_WITHOUT = """
import importlib.abc, sys

class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {missing!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
"""
_ALL = {name for packages in PACKAGES.values() for name in packages} | {"deltalake", "datasketches", "duckdb"}


def _run(program: str, folder: Path, missing: Collection[str] = _ALL, **names: Any) -> str:
    process = subprocess.run(
        [sys.executable, "-c", _WITHOUT.format(missing=set(missing)) + program.format(**names)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


def test_lookups_need_no_extra(tmp_path: Path) -> None:
    publish(ObjectStore(str(tmp_path)), pa.table({"a": [1, 1, 2]}))
    program = """
from metastore_assets import open_table
found = open_table(".", "orders")
print(found.statistics()[0].distinct_count, found.top("a", n=1)[0].frequency)
"""
    assert _run(program, tmp_path) == "2 2\n"


def test_lookup_commands_import_no_other_packages(tmp_path: Path) -> None:
    publish(ObjectStore(str(tmp_path / "root")), pa.table({"a": [1, 1, 2]}))
    (tmp_path / "metastore.yaml").write_text("root: root\ntables: [{name: orders, uri: nowhere, format: delta}]\n")
    program = """
import sys
from metastore_assets.cli import main
sys.argv[1:] = ["top", "orders", "a", "--json"]
main()
"""
    assert json.loads(_run(program, tmp_path))[0] == {"value": 1, "frequency": 2}


@pytest.mark.parametrize("name", ["build_metastore_definitions", "MetastoreTranslator", "fetch_column_statistics"])
def test_definitions_say_that_they_need_dagster(tmp_path: Path, name: str) -> None:
    program = """
try:
    from metastore_assets import {name}
except Exception as error:
    print(type(error).__name__, error)
"""
    answer = _run(program, tmp_path, name=name)
    assert answer.startswith(f"MissingPackageError `{name}` needs the package dagster")
    assert "pip install 'metastore-assets[dagster]'" in answer


def test_a_dataflow_needs_no_extra(tmp_path: Path) -> None:
    program = """
import pyarrow as pa
from metastore_assets.produce import Dataflow, Root, Rows, Stage
from metastore_assets.store.objects import ObjectStore
rows = Rows(pa.schema([("k", pa.int64())]), pa.schema([("x", pa.int64())]))
twice = Stage("twice", (("root",),), rows, produce=lambda key, values: [(key, 2 * value) for value in values])
flow = Dataflow(ObjectStore("flow"), [Root("root", rows), twice])
flow.advance({{"root": pa.table({{"_change": ["add"], "k": [1], "x": [21]}})}})
print(flow.version().content("twice")["x"].to_pylist())
"""
    assert _run(program, tmp_path) == "[42]\n"


def test_plain_files_need_no_extra(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    pq.write_table(pa.table({"a": [1, 1, 2]}), tmp_path / "t" / "x.parquet")
    program = """
from metastore_assets.config import TableConfig
from metastore_assets.formats import open_table_format
(fragment,) = open_table_format(TableConfig(name="t", uri="t")).snapshot().fragments
print(fragment.row_count)
"""
    assert _run(program, tmp_path) == "3\n"


def _delta(folder: Path) -> None:
    write_deltalake(str(folder), pa.table({"a": [1]}))


def _iceberg(folder: Path) -> None:
    IcebergCopyOnWrite(folder).append([(1, "x", "a")])


def _hudi(folder: Path) -> None:
    HudiCopyOnWrite(folder).append([(1, "x", "a")])


def _lance(folder: Path) -> None:
    LanceTable(folder).append([(1, "x", "a")])


@pytest.mark.parametrize(
    ("write", "what", "extra"),
    [
        (_delta, "Delta table", "delta"),
        (_iceberg, "Iceberg table", "iceberg"),
        (_hudi, "Hudi table", "hudi"),
        (_lance, "Lance table", "lance"),
    ],
)
def test_a_format_without_its_packages_says_which_extra(tmp_path: Path, write: Any, what: str, extra: str) -> None:
    write(tmp_path / "t")
    program = """
from metastore_assets.config import TableConfig
from metastore_assets.errors import MetastoreError
from metastore_assets.formats import open_table_format
try:
    open_table_format(TableConfig(name="t", uri="t")).snapshot()
except MetastoreError as error:
    print(error)
"""
    answer = _run(program, tmp_path)
    assert re.fullmatch(rf"{what}.* needs the package .*pip install 'metastore-assets\[{extra}\]'\n", answer)


def test_spark_says_which_extra(tmp_path: Path) -> None:
    program = """
from metastore_assets.errors import MetastoreError
from metastore_assets.spark.session import get_spark_session
try:
    get_spark_session()
except MetastoreError as error:
    print(error)
"""
    assert "pip install 'metastore-assets[spark]'" in _run(program, tmp_path)


def test_a_data_frame_of_pandas_needs_no_extra(tmp_path: Path) -> None:
    program = """
from metastore_assets import MissingPackageError
from metastore_assets.lookup.results import ResultSet
import pyarrow as pa
try:
    ResultSet([], None, pa.schema([])).to_pandas()
except MissingPackageError as error:
    print(error)
"""
    assert re.search(r"\bpackage pandas\b.*: pip install pandas$", _run(program, tmp_path).strip())


def test_extras_are_declared() -> None:
    """pyproject.toml declares the packages of each extra in `PACKAGES`.

    The extra `all` has those of all extras.
    """
    declared_extras = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["optional-dependencies"]

    def names(extra: str) -> set[str]:
        result: set[str] = set()
        for entry in declared_extras[extra]:
            if entry.startswith("metastore-assets["):
                for inner in entry.partition("[")[2].rstrip("]").split(","):
                    result |= names(inner)
            else:
                result.add(re.split(r"[\[<>=]", entry)[0].replace("pylance", "lance"))
        return result

    assert all(set(packages) <= names(extra) for extra, packages in PACKAGES.items())
    assert names("all") == {name for extra in declared_extras for name in names(extra)}
