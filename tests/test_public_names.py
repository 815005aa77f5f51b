"""Users can import, annotate and type-check with the public names, and the reference lists all."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
import typing
from pathlib import Path

import pytest

import metastore_assets
from metastore_assets import errors

NAMES = [name for name in metastore_assets.__all__ if name != "__version__"]
REPOSITORY = Path(__file__).parents[1]
SCRIPT = """\
from decimal import Decimal

import polars as pl
from typing_extensions import assert_type

from metastore_assets import ColumnStatistics, Count, MetastoreError, Quantile, ResultSet, Table, ValueFrequency
from metastore_assets import open_table


def report(orders: Table) -> pl.DataFrame:
    statistics: ResultSet[ColumnStatistics] = orders.statistics(["amount"], partition="day=2024-01-*")
    for row in statistics:
        assert_type(row.sum, int | Decimal | float | None)
    assert_type(orders.quantile("amount", 0.5), Quantile)
    assert_type(orders.quantile("amount", [0.5]), ResultSet[Quantile])
    assert_type(orders.top("shop", n=3)[0], ValueFrequency)
    assert_type(orders.count(), Count)
    count: int = orders.count().value + orders.frequency("shop", "Oslo", partition="day=2024-01-01").value
    print(count)
    return statistics.to_polars()


try:
    report(open_table("s3://bucket/metastore", "orders", version="snapshot:12"))
except MetastoreError as error:
    print(error)
"""


def test_all_names_can_be_imported_and_listed() -> None:
    assert sorted(NAMES) == NAMES == [*dict.fromkeys(NAMES)]
    assert set(metastore_assets.__all__) <= set(dir(metastore_assets))
    reference = (REPOSITORY / "docs" / "reference" / "python-api.md").read_text(encoding="utf-8")
    for name in NAMES:
        assert f".{name}\n" in reference or f"`{name}` is the public name" in reference, name


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse(Path(metastore_assets.__file__).read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    imported_names = {
        alias.asname or alias.name: (node.module, alias.name)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert sorted(imported_names) == NAMES
    for name, (module, attribute) in imported_names.items():
        assert module is not None
        __import__(module)
        assert getattr(sys.modules[module], attribute) is getattr(metastore_assets, name), name


@pytest.mark.parametrize(
    "name", ["open_table", "profile", "profile_query", "Metastore", "Table", "FilteredView", "ResultSet"]
)
def test_annotations_of_users_resolve(name: str) -> None:
    """Each class of this package in the return type of a public function is public or in `INTERNAL`.

    The functions include methods of public classes.
    """
    value = getattr(metastore_assets, name)
    members = [value] if inspect.isfunction(value) else [m for _, m in inspect.getmembers(value, inspect.isfunction)]
    sources = " ".join(
        str(inspect.signature(member).return_annotation) for member in members if not member.__name__.startswith("_")
    )
    assert sources
    words = {word for word in _words(sources) if _is_of_the_package(word)}
    assert words <= {*NAMES, *INTERNAL}, words - {*NAMES, *INTERNAL}


def test_annotations_of_a_users_function_resolve() -> None:
    annotated_function = (
        "def f(rows: ResultSet[ColumnStatistics], table: Table, version: VersionReference) -> Count: ..."
    )
    namespace: dict[str, typing.Any] = {}
    exec(f"from __future__ import annotations\nfrom metastore_assets import *\n{annotated_function}", namespace)
    hints = typing.get_type_hints(namespace["f"])
    assert hints["return"] is metastore_assets.Count
    assert typing.get_origin(hints["rows"]) is metastore_assets.ResultSet


INTERNAL = {
    "Built",
    "DataFrame",
    "Dataset",
    "LazyFrame",
    "Predicate",
    "RecordBatchReader",
    "RowSource",
    "Scalar",
    "VersionStore",
}
"""Types of other libraries, and those that methods for other parts of the package return."""


def _words(text: str) -> set[str]:
    return set("".join(character if character.isalnum() else " " for character in text).split())


def _is_of_the_package(word: str) -> bool:
    return word[:1].isupper() and word != "None" and not hasattr(typing, word)


def test_all_errors_of_users_are_public() -> None:
    public = {name for name in NAMES if name.endswith("Error")}
    defined_names = {name for name, value in vars(errors).items() if inspect.isclass(value) and name.endswith("Error")}
    internal = {
        *("FatalFileError", "GraphError", "InvalidPathError", "ObjectExistsError", "PartitionKeyError"),
        *("ProduceError", "StageChangedError", "UpdateError", "WorkerEndedError"),
    }
    assert public - {"MissingFileError"} == defined_names - internal


@pytest.mark.long
def test_a_script_of_a_user_is_type_checked(tmp_path: Path) -> None:
    def check(text: str) -> str:
        (tmp_path / "script.py").write_text(text, encoding="utf-8")
        command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "script.py"]
        process = subprocess.run(
            [*command, "--config-file=", f"--cache-dir={tmp_path / 'cache'}"],
            cwd=tmp_path,
            env={"MYPYPATH": str(REPOSITORY), "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            check=False,
        )
        return process.stdout + process.stderr

    assert "Success" in check(SCRIPT)
    assert "Too many positional" in check(SCRIPT.replace("version=", ""))
