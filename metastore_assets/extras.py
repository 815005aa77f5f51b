"""The requirements of each extra, and errors that name the extra to install."""

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
    "lance": ("lance",),
    "sql": ("duckdb",),
    "spark": ("pandas", "py4j", "pyspark"),
}
"""The packages that each extra installs and this package imports."""


def is_installed(name: str) -> bool:
    """Return whether all packages of an extra in `PACKAGES` are installed."""
    try:
        return all(find_spec(package) is not None for package in PACKAGES[name])
    except ModuleNotFoundError:
        return False


@contextmanager
def extra(name: str, what: str) -> Iterator[None]:
    """Convert the error of a failed import to an error with the command that installs the extra.

    Args:
        name: The extra, a key of `PACKAGES`. Failed imports of other packages are not converted.
        what: What needs the package, for the message.

    Raises:
        MissingPackageError: A package of the extra is not installed.
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
