"""Packages that are installed with an extra: what lacks one says which."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from metastore_assets.errors import MissingPackageError

PACKAGES = {
    "avro": ("fastavro",),
    "dagster": ("dagster",),
    "delta": ("pyroaring",),
    "history": ("deltalake",),
    "hudi": ("fastavro", "hudi"),
    "iceberg": ("fastavro", "pyiceberg", "pyroaring"),
    "spark": ("pandas", "py4j", "pyspark"),
}
"""What is imported of each extra."""


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
