"""Only public interfaces of other packages are used.

Each exception is an adapter, listed here with its reason.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]

IMPORTS = {
    (
        "metastore_assets/assets/events.py",
        "dagster._core.events",
    ): "storing events in batches; the public way where it is missing",
    ("metastore_assets/assets/events.py", "dagster._core.storage.event_log"): "as above: recognises SQLite",
    (
        "metastore_assets/assets/events.py",
        "dagster._core.storage.event_log.sqlite.sqlite_event_log",
    ): "as above: the file of the index",
}
"""By module and private module of another package: why it is imported."""
ATTRIBUTES = {
    ("metastore_assets/formats/catalogs/hive.py", "_client"): "the Thrift client with pyiceberg's authentication",
    ("metastore_assets/spark/jvm.py", "_gateway"): "the JVM that runs already, and its process",
    ("metastore_assets/spark/local_channel.py", "_secure_channel"): "a channel with the options of Spark Connect",
    ("metastore_assets/spark/session.py", "_active_spark_context"): "whether another thread has started a session",
    ("resources/emr.py", "_requires_typed_event_stream"): "results are reported by the run, not by the Pipes client",
}
"""By module and private attribute of an object of another package: why it is used."""


@cache
def modules() -> dict[str, ast.Module]:
    """Return the syntax tree of each shipped module by its path."""
    paths = [
        path for name in ("metastore_assets", "resources", "sensors") for path in (REPOSITORY / name).rglob("*.py")
    ]
    return {path.relative_to(REPOSITORY).as_posix(): ast.parse(path.read_text(encoding="utf-8")) for path in paths}


def is_private(name: str) -> bool:
    return name.startswith("_") and not (name.startswith("__") and name.endswith("__"))


def private_imports(tree: ast.Module) -> Iterator[str]:
    """Yield imported private modules of other packages, and modules with imported private names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            interfaces = [(alias.name, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            interfaces = [(node.module or "", f"{node.module}.{alias.name}") for alias in node.names]
        else:
            continue
        for module, name in interfaces:
            top = name.partition(".")[0]
            if top not in ("metastore_assets", "__future__") and any(map(is_private, name.split("."))):
                yield module


def defined_names(tree: ast.Module) -> Iterator[str]:
    """Yield the private names that a module defines: functions, classes, variables, fields, attributes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _is_self(node.value):
            yield node.attr


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


# Of named tuples, in which these names are public.
NAMED_TUPLE = {"_replace", "_fields", "_asdict", "_make"}
# Documented in the standard library: ends a process without cleanup.
DOCUMENTED = {"_exit"}


def foreign_attributes(tree: ast.Module, package_names: set[str]) -> Iterator[str]:
    """Yield the private attributes that a module uses and that no module of the package defines."""
    imported_names = _foreign_names(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            foreign = node.attr not in package_names or _is_one_of(node.value, imported_names)
            if foreign and node.attr not in NAMED_TUPLE | DOCUMENTED:
                yield node.attr


def _is_one_of(node: ast.expr, names: set[str]) -> bool:
    """Return whether an expression is one of `names`, or a call of one."""
    value = node.func if isinstance(node, ast.Call) else node
    return isinstance(value, ast.Name) and value.id in names


def _foreign_names(tree: ast.Module) -> set[str]:
    """Return the names that a module imports from other packages."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and not (node.module or "").startswith("metastore_assets"):
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
    return names - {"metastore_assets"}


def test_private_imports_are_listed() -> None:
    """A private module of another package is imported by its adapter only."""
    interfaces = {(path, name) for path, tree in modules().items() for name in private_imports(tree)}
    assert interfaces == set(IMPORTS)


def test_private_attributes_are_listed() -> None:
    """A private attribute of an object of another package is used by its adapter only."""
    trees = modules()
    package_names = {name for tree in trees.values() for name in defined_names(tree)}
    interfaces = {(path, name) for path, tree in trees.items() for name in foreign_attributes(tree, package_names)}
    assert interfaces == set(ATTRIBUTES)


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("from dagster._core import x", ["dagster._core"]),
        ("import dagster._cli.job", ["dagster._cli.job"]),
        ("from pyspark.sql import _x", ["pyspark.sql"]),
        ("from metastore_assets.a import _x", []),
        ("from __future__ import annotations", []),
        ("from dagster import x", []),
    ],
)
def test_a_private_import_is_detected(source: str, names: list[str]) -> None:
    assert list(private_imports(ast.parse(source))) == names


def test_a_foreign_attribute_is_detected() -> None:
    """A private attribute is foreign if the package does not define its name.

    It is also foreign if its object is imported from another package. Methods of named tuples, such as `_replace`, are
    not foreign.
    """
    tree = ast.parse("from pyspark import SparkContext\nSparkContext._own\nself._own\nx._other\nt._replace(a=1)")
    assert sorted(foreign_attributes(tree, {"_own"})) == ["_other", "_own"]
