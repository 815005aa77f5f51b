"""Rich column statistics of lakehouse tables, true after every commit, answered in milliseconds.

>>> from metastore_assets import open_table
>>> orders = open_table("s3://bucket/metastore", "orders")      # doctest: +SKIP
>>> orders.top("o_orderstatus", n=3).values                     # doctest: +SKIP
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from metastore_assets.lookup import Metastore, open_table

__all__ = ["Metastore", "__version__", "open_table"]


def __getattr__(name: str) -> Any:
    # Loaded on first use: `import metastore_assets` alone must cost nothing.
    if name == "__version__":
        from importlib.metadata import version

        return version("metastore-assets")
    if name in __all__:
        return getattr(import_module("metastore_assets.lookup"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
