"""Packages import only allowed packages and declared dependencies, and imports are cheap."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from importlib.util import find_spec
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
PACKAGE = REPOSITORY / "metastore_assets"
PACKAGES = ("metastore_assets", "resources", "sensors")
"""The package, and the folders that are its subpackages by symbolic links."""
HEAVY = (
    "boto3",
    "dagster",
    "deltalake",
    "duckdb",
    "hudi",
    "lance",
    "numpy",
    "obstore",
    "pandas",
    "polars",
    "pyarrow",
    "pydantic",
    "pyiceberg",
    "pyspark",
    "rich",
    "sqlglot",
)


def _lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    # The interpreter's own folder of scripts need not be on PATH, and the rules are those of `folder`'s copy.
    program = (
        "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True, no_logo=True))"
    )
    return subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=False)


def test_packages_import_only_allowed_packages() -> None:
    """The rules of `[tool.importlinter]` hold."""
    process = _lint_imports(REPOSITORY)
    assert process.returncode == 0, process.stdout + process.stderr


FORBIDDEN = [
    ("metastore_assets.statistics", "metastore_assets.store"),
    ("metastore_assets.store", "metastore_assets.formats"),
    ("metastore_assets.store", "metastore_assets.index"),
    ("metastore_assets.produce", "metastore_assets.statistics"),
    ("metastore_assets.spark", "metastore_assets.produce"),
    ("metastore_assets.pipeline", "metastore_assets.lookup"),
    ("metastore_assets.lookup", "metastore_assets.pipeline"),
    ("metastore_assets.lookup", "metastore_assets.report"),
    ("metastore_assets.report", "metastore_assets.cli"),
    ("metastore_assets.formats", "pyspark"),
    ("metastore_assets.formats.delta", "metastore_assets.formats.iceberg.schema"),
    ("metastore_assets.formats.readers", "metastore_assets.formats.hudi.log"),
    ("metastore_assets.cli", "dagster"),
    ("metastore_assets.lookup", "metastore_assets.checks"),
    ("metastore_assets.lookup", "metastore_assets.sensors"),
    ("metastore_assets.databases", "metastore_assets.pipeline"),
    ("metastore_assets.index", "metastore_assets.value_counts"),
    ("metastore_assets.history", "metastore_assets.lookup"),
    ("metastore_assets.scan", "metastore_assets.report"),
    ("metastore_assets.sql", "metastore_assets.pipeline"),
    ("metastore_assets.expressions", "metastore_assets.store"),
    ("metastore_assets.lookup", "metastore_assets.formats"),
    ("metastore_assets.values", "metastore_assets.expressions"),
    ("metastore_assets.storage", "metastore_assets.config"),
    ("metastore_assets.expressions", "metastore_assets.formats"),
    ("metastore_assets.formats.catalogs", "metastore_assets.formats.iceberg.table"),
]
"""Packages, and what a module in them may not import."""


@pytest.fixture(scope="module")
def linter_output(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The linter's output for a copy of the packages with forbidden imports.

    Each import is in an additional module, or appended to a module that a contract of the linter names.
    """
    folder = tmp_path_factory.mktemp("linter_output")
    for package in PACKAGES:
        ignore_names = shutil.ignore_patterns("__pycache__")
        shutil.copytree(REPOSITORY / package, folder / package, symlinks=True, ignore=ignore_names)
    shutil.copy(REPOSITORY / "pyproject.toml", folder)
    for number, (package, imported_module) in enumerate(FORBIDDEN):
        module = folder.joinpath(*package.split("."), f"extra_{number}.py")
        module.write_text(f"import {imported_module}\n", encoding="utf-8")
    # Contracts about modules: no other module can be added to them.
    for module, imported_module in (("profiling.py", "cli"), ("expressions/unbound.py", "store")):
        with (folder / "metastore_assets" / module).open("a", encoding="utf-8") as file:
            file.write(f"import metastore_assets.{imported_module}\n")
    process = _lint_imports(folder)
    assert process.returncode == 1
    return " ".join(process.stdout.split())


@pytest.mark.parametrize("number", range(len(FORBIDDEN)), ids=[" imports ".join(pair) for pair in FORBIDDEN])
def test_a_forbidden_import_is_caught(linter_output: str, number: int) -> None:
    """The linter reports each import in `FORBIDDEN`, with the importing and the imported module."""
    package, imported_module = FORBIDDEN[number]
    assert f"{package}.extra_{number} -> {imported_module} (l.1)" in linter_output


def test_each_broken_import_violates_a_contract(linter_output: str) -> None:
    """Each contract of import-linter is broken by an import that `linter_output` adds.

    So each contract has an effect.
    """
    assert " KEPT" not in linter_output
    assert "Contracts: 0 kept" in linter_output


@pytest.mark.parametrize(
    ("module", "may"),
    [
        ("metastore_assets", set()),
        ("metastore_assets.cli", set()),
        # Arrow itself imports pandas when it creates its first array.
        ("metastore_assets.lookup", {"numpy", "pandas", "polars", "pyarrow"}),
        # What a child process that reads footers must load before it reads the first.
        ("metastore_assets.tasks.child_program", {"numpy", "obstore", "pyarrow"}),
        ("metastore_assets.formats.files.schemas", {"numpy", "obstore", "pyarrow"}),
        # What each run of Dagster loads at its start: no Spark, no boto3, no format's library.
        (
            "metastore_assets.assets.project",
            {"dagster", "numpy", "obstore", "pandas", "polars", "pyarrow", "pydantic", "rich"},
        ),
    ],
)
def test_an_import_is_light(module: str, may: set[str]) -> None:
    """Importing the module in a new process loads none of the `HEAVY` libraries except those in `may`."""
    program = f"import sys, {module}; print(*sorted({{name.partition('.')[0] for name in sys.modules}}))"
    process = subprocess.run(
        [sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    assert (set(HEAVY) - may).isdisjoint(process.stdout.split())


def test_reading_statistics_imports_no_predicate_parser() -> None:
    """Importing `lookup` does not import what only some lookups need, such as the predicate parser."""
    program = "import sys, metastore_assets.lookup; print(*sys.modules)"
    process = subprocess.run(
        [sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    parser_modules = (
        "expressions.arrow_parser",
        "expressions.binding",
        "expressions.predicates",
        "expressions.sql_parser",
    )
    packages = (
        *parser_modules,
        "lookup.pruning",
        "lookup.selectivity",
        "index",
        "value_counts.reading",
        "produce",
        "history",
        "scan",
    )
    module_names = tuple(f"metastore_assets.{name_}" for name_ in packages)
    assert all(map(find_spec, module_names))
    assert [name for name in process.stdout.split() if name.startswith(module_names)] == []


@pytest.mark.parametrize(
    ("folders", "groups"), [(PACKAGES, ()), (("scripts", "benchmarks", "tests"), ("dev",))], ids=["package", "tools"]
)
def test_every_import_is_a_declared_dependency(folders: tuple[str, ...], groups: tuple[str, ...]) -> None:
    """Each imported package is named in pyproject.toml.

    To be a dependency of a dependency is not sufficient.
    """
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    entries = [*project["project"]["dependencies"]]
    for extra in project["project"]["optional-dependencies"].values():
        entries += extra
    for group in groups:
        entries += project["dependency-groups"][group]
    declared_packages = {_normal(re.split(r"[\[<>=!~; ]", entry)[0]) for entry in entries}
    existing = {*sys.stdlib_module_names, *PACKAGES, "scripts", "benchmarks", "tests"}
    providers = packages_distributions()
    missing = {
        f"{path.relative_to(REPOSITORY)}: {name}"
        for folder in folders
        for path in (REPOSITORY / folder).rglob("*.py")
        for name in _imported(path)
        if name not in existing and not declared_packages & {_normal(provider) for provider in providers.get(name, [])}
    }
    assert missing == set()


def _imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
