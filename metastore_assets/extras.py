"""Packages that are installed with an extra: what lacks one says which."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from metastore_assets.errors import MissingPackageError

PACKAGES = {
    "avro": ("fastavro",),
    "dagster": ("dagster",),
    "delta": ("pyroaring",),
    "history": ("deltalake",),
    "hive": ("pyiceberg", "thrift"),
    "hudi": ("fastavro", "hudi"),
    "iceberg": ("fastavro", "pyiceberg", "pyroaring"),
    "sql": ("duckdb",),
    "spark": ("pandas", "py4j", "pyspark"),
}
"""What is imported of each extra."""


def is_installed(name: str) -> bool:
    """Whether all packages of an extra are there."""
    try:
        return all(find_spec(package) is not None for package in PACKAGES[name])
    except ModuleNotFoundError:
        return False


@contextmanager
def extra(name: str, what: str) -> Iterator[None]:
    """For what cannot be done without the packages of an extra.

    Raises MissingPackageError, which tells how to install them, when one is imported inside that is not there.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in PACKAGES[name]:
            raise
        raise MissingPackageError(
            f"{what} needs the package {package}, which is not installed: pip install 'metastore-assets[{name}]'"
        ) from error
