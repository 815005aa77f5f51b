"""Python modules in the working folder, which may be a folder of foreign data, are not executed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog

METASTORE = [str(Path(sys.executable).with_name("metastore"))]
INSTALLED = (
    *(
        "boto3",
        "click",
        "deltalake",
        "duckdb",
        "fastavro",
        "google",
        "grpc",
        "hudi",
        "lance",
        "metastore_assets",
        "numpy",
    ),
    *("obstore", "pandas", "polars", "py4j", "pyarrow", "pydantic", "pyspark", "rich", "sqlglot", "typing_extensions"),
    *("yaml", "zstandard"),
)
NOT_INSTALLED = ("cramjam", "lz4", "readline_helper", "sitecustomize", "snappy", "usercustomize")
ALL = (*sys.stdlib_module_names, *INSTALLED, *NOT_INSTALLED)
AFTER_RUNPY = ("click", "json", "numpy", "pickle", "pyarrow", "pydantic", "rich", "yaml")
"""Modules that `python -m` does not import before the program begins."""


class HostileFolder:
    """A folder with a table, and with modules that record their import and end the process.

    The record is a line in a file.
    """

    def __init__(self, folder: Path, modules: Sequence[str] = ALL) -> None:
        self.path = folder / "sales"
        self._trace = folder / "imported"
        (self.path / "table").mkdir(parents=True)
        pq.write_table(pa.table({"id": [1, 2, 3], "name": ["a", "b", None]}), self.path / "table" / "1.parquet")
        for name in modules:
            (self.path / f"{name}.py").write_text(
                f"import sys\nopen({str(self._trace)!r}, 'a').write({name + chr(10)!r})\nraise SystemExit(99)\n"
            )

    def run(self, command: Sequence[str], **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a program in the folder, and return the completed process.

        `environment` has further environment variables. Inherited ones whose names begin with `PYTHON` are left out.
        """
        inherited_variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        variables: Mapping[str, str] = {**inherited_variables, **environment}
        return subprocess.run(
            command, cwd=self.path, env=variables, capture_output=True, text=True, timeout=250, check=False
        )

    def imported(self) -> list[str]:
        """Return the names of the folder's modules that were imported."""
        return self._trace.read_text().split() if self._trace.exists() else []


def assert_succeeded(done: subprocess.CompletedProcess[str], folder: HostileFolder) -> None:
    assert folder.imported() == []
    assert done.returncode == 0, done.stderr


def test_the_folder_is_hostile(tmp_path: Path) -> None:
    folder = HostileFolder(tmp_path)
    assert folder.run([sys.executable, "-c", "import json"]).returncode == 99
    assert folder.imported() == ["json"]


def test_profiling_imports_nothing_from_the_working_folder(tmp_path: Path) -> None:
    folder = HostileFolder(tmp_path)
    assert_succeeded(folder.run([*METASTORE, "profile", "table", "--json"]), folder)


def test_the_command_as_a_module_imports_nothing_from_the_working_folder(tmp_path: Path) -> None:
    folder = HostileFolder(tmp_path, AFTER_RUNPY)
    assert_succeeded(folder.run([sys.executable, "-m", "metastore_assets", "profile", "table", "--json"]), folder)


def test_the_command_as_a_module_runs_where_the_working_folder_was_deleted(tmp_path: Path) -> None:
    program = f"rmdir '{tmp_path}/gone' && exec '{sys.executable}' -m metastore_assets --version"
    (tmp_path / "gone").mkdir()
    done = subprocess.run(
        ["sh", "-c", f"cd '{tmp_path}/gone' && {program}"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


STATISTIC = """
import pyarrow as pa
from metastore_assets import MergeableStatistic

class Rows(MergeableStatistic):
    name = "rows"
    revision = "1"
    types = ("any",)
    state = result = pa.int64()

    def initial(self):
        return 0

    def update(self, state, values, counts):
        return state + sum(counts.to_pylist())

    def merge(self, one, other):
        return one + other

    def finalize(self, state):
        return state
"""


def configured(folder: HostileFolder, engine: str) -> None:
    (folder.path / "metastore.yaml").write_text(
        f"root: ./root\nengine: {engine}\nspark: {{spark.master: 'local[1]', spark.driver.memory: 512m}}\n"
        "statistics: ['my_stats:Rows']\ntables: [{name: sales, uri: ./table}]\n"
    )


@pytest.mark.parametrize("engine", ["auto", pytest.param("spark", marks=pytest.mark.spark)])
def test_statistics_are_imported_only_from_pythonpath(tmp_path: Path, engine: str) -> None:
    """A module of statistics is imported from PYTHONPATH, and never from the working folder.

    This holds for child processes and for Spark's workers, too.
    """
    folder = HostileFolder(tmp_path, (*ALL, "my_stats"))
    configured(folder, engine)
    refusal = folder.run([*METASTORE, "refresh", "sales"])
    assert folder.imported() == []
    assert "No module named 'my_stats'" in refusal.stderr
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "my_stats.py").write_text(STATISTIC)
    modules = {"PYTHONPATH": str(tmp_path / "modules")}
    assert_succeeded(folder.run([*METASTORE, "refresh", "sales"], **modules), folder)
    result = folder.run([*METASTORE, "show", "sales", "--json"], **modules)
    assert '"rows": {"value": 3' in result.stdout, result.stdout


@pytest.mark.spark
def test_the_spark_server_imports_nothing_from_the_working_folder(tmp_path: Path) -> None:
    folder = HostileFolder(tmp_path)
    configured(folder, "spark")
    text = (folder.path / "metastore.yaml").read_text().replace("spark.master", "spark.remote")
    (folder.path / "metastore.yaml").write_text(text.replace("statistics: ['my_stats:Rows']\n", ""))
    variables = {"SPARK_LOCAL_CONNECT_DISCOVERY": str(tmp_path / "server" / "connect-local.json")}
    try:
        assert_succeeded(folder.run([*METASTORE, "refresh", "sales"], **variables), folder)
    finally:
        folder.run([*METASTORE, "spark-server", "stop"], **variables)


@pytest.mark.spark
@pytest.mark.long
def test_the_archive_of_classes_is_built_without_the_working_folder(tmp_path: Path) -> None:
    folder = HostileFolder(tmp_path)
    configured(folder, "spark")
    text = (folder.path / "metastore.yaml").read_text()
    (folder.path / "metastore.yaml").write_text(text.replace("statistics: ['my_stats:Rows']\n", ""))
    variables = {"METASTORE_CACHE": str(tmp_path / "cache")}
    assert_succeeded(folder.run([*METASTORE, "refresh", "sales"], **variables), folder)
    [archive] = (tmp_path / "cache").glob("*.jsa")
    assert archive.stat().st_size


def test_settings_of_catalogs_in_the_working_folder_are_refused(tmp_path: Path) -> None:
    """`.pyiceberg.yaml` in the working folder is an error, unless the home folder has one, too.

    The file could send credentials to another host. If both folders have one, pyiceberg reads only that of the home
    folder.
    """
    folder = HostileFolder(tmp_path, ())
    with SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/lake.db", warehouse=f"{tmp_path}/lake") as catalog:
        catalog.create_namespace("sales")
        catalog.create_table("sales.orders", pa.schema([("id", pa.int64())])).append(pa.table({"id": [1, 2]}))
    config = tmp_path / "metastore.yaml"
    config.write_text(
        f"root: ./root\nengine: auto\ncatalogs: {{lake: {{type: sql, uri: 'sqlite:///{tmp_path}/lake.db'}}}}\n"
        "tables: [{catalog: lake, table: sales.orders}]\n"
    )
    (folder.path / ".pyiceberg.yaml").write_text("catalog:\n  lake:\n    uri: sqlite:///elsewhere.db\n")
    home = tmp_path / "home"
    home.mkdir()
    command = [*METASTORE, "--config", str(config), "refresh", "--all"]
    refusal = folder.run(command, HOME=str(home))
    assert refusal.returncode == 3
    assert "catalog 'lake'" in refusal.stderr
    assert str(folder.path / ".pyiceberg.yaml") in refusal.stderr
    (home / ".pyiceberg.yaml").write_text("catalog:\n  other:\n    uri: sqlite:///other.db\n")
    assert_succeeded(folder.run(command, HOME=str(home)), folder)


def test_a_foreign_package_of_the_same_name_is_refused(tmp_path: Path) -> None:
    """If PYTHONPATH has another package `metastore_assets`, a command ends with an error.

    The error names the folder of the other package.
    """
    package = tmp_path / "metastore_assets"
    package.mkdir()
    (package / "__init__.py").touch()
    done = HostileFolder(tmp_path, ()).run([*METASTORE, "tables"], PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: {package} ")
    assert len(done.stderr.splitlines()) == 1
