"""Table formats are registered by entry points, both built-in ones and those of other packages.

A fragment is the smallest unit of rows that a format adds or removes: a data file and the deletes on it.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import NoReturn

import pytest

from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.errors import ConfigError, TableFormatError
from metastore_assets.formats import open_table_format
from metastore_assets.pipeline.refresh import refresh
from metastore_assets.plugins import TABLE_FORMATS
from metastore_assets.store.versions import versions_of
from tests.formats.external import installed
from tests.formats.table_writers import DAYS, Table

_ROWS = [(number, f"text {number}", DAYS[number % 3]) for number in range(12)]


def _no_spark() -> NoReturn:
    raise AssertionError("a small table is read without Spark")


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Table]:
    """A table of 12 rows in the format of `external_package`, which is importable during the test."""
    with installed():
        table: Table = import_module("ledger_tables").LedgerTable(tmp_path / "t")
        table.append(_ROWS)
        yield table


def test_built_in_formats_are_entry_points() -> None:
    """`TABLE_FORMATS.built_in` equals the entry points in pyproject.toml."""
    pyproject = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    assert pyproject["project"]["entry-points"][TABLE_FORMATS.group] == TABLE_FORMATS.built_in


def test_built_in_formats_need_no_package_metadata() -> None:
    """Built-in formats are loaded in a process in which looking for entry points of formats fails."""
    script = """
import importlib.metadata
scan = importlib.metadata.entry_points
def entry_points(group):
    assert group != "metastore_assets.formats"
    return scan(group=group)
importlib.metadata.entry_points = entry_points
from metastore_assets.config import TableConfig
from metastore_assets.formats.registration import load_format
for name in ("delta", "files", "hudi", "iceberg"):
    assert load_format(TableConfig(name="t", uri="/t", format=name).format).name == name
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_formats_are_not_imported_before_they_are_opened() -> None:
    script = """
import sys
from metastore_assets.config import TableConfig
import metastore_assets.formats
TableConfig(name="t", uri="/t", format="iceberg")
formats = ("delta", "files", "hudi", "iceberg")
assert not [name for name in sys.modules if name.startswith(tuple(f"metastore_assets.formats.{f}" for f in formats))]
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_refresh_of_a_table_in_a_format_of_another_package(ledger: Table, tmp_path: Path) -> None:
    """A refresh detects a format of another package, and reads the table without Spark.

    A second refresh reads only the added fragment.
    """
    config = MetastoreConfig(
        root=str(tmp_path / "m"), engine="auto", tables=[TableConfig(name="t", uri=str(ledger.folder))]
    ).resolve()
    refresh(config, config.table("t"), _no_spark)
    version = versions_of(config, "t").latest()
    assert (version.format, version.row_count) == ("ledger", 12)
    ledger.append([(50, "new", DAYS[0])])
    result = refresh(config, config.table("t"), _no_spark)
    assert (result.fragments_added, result.fragments_profiled) == (1, 1)
    assert versions_of(config, "t").latest().row_count == 13


def test_a_format_of_another_package_is_configured_by_name(ledger: Table) -> None:
    table = TableConfig(name="t", uri=str(ledger.folder), format="ledger", options={"max_commits": 3})
    assert open_table_format(table).snapshot().format == "ledger"
    with pytest.raises(ConfigError, match=r"'t'.*options\.colour.*'red'.*max_commits"):
        open_table_format(table.model_copy(update={"options": {"colour": "red"}}))


def test_files_of_a_format_of_another_package_are_not_read_as_plain_files(ledger: Table) -> None:
    for folder in (ledger.folder, ledger.folder.parent):
        with pytest.raises(TableFormatError, match="Ledger"):
            open_table_format(TableConfig(name="t", uri=str(folder), format="files")).snapshot()


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'t'.*'ledger'.*'delta'.*'files'.*'hudi'.*'iceberg'"):
        TableConfig(name="t", uri="/t", format="ledger")


def test_errors_name_broken_packages(tmp_path: Path) -> None:
    """An error names the broken registration of a package.

    The registration names a missing module or an object that is no format, or two packages register one name.
    """
    entries = {"one": "broken = nowhere:FORMAT\nother = os:sep\nx = a:F", "two": "x = b:F"}
    for package, lines in entries.items():
        folder = tmp_path / f"{package}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (folder / "entry_points.txt").write_text(f"[{TABLE_FORMATS.group}]\n{lines}\n")
    with installed(tmp_path):
        for name, words in {
            "broken": "nowhere.*'one'",
            "other": "'other'.*FormatRegistration",
            "x": "a:F and b:F",
        }.items():
            with pytest.raises(ConfigError, match=words):
                open_table_format(TableConfig(name="t", uri="/t", format=name))


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_options_that_a_format_does_not_have_are_refused(kind: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'t'.*options\.header"):
        open_table_format(TableConfig(name="t", uri=str(tmp_path), format=kind, options={"header": True}))
