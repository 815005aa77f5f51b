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
    from metastore_assets.statistics.user_defined.kinds import FrequencyStatistic, MergeableStatistic

__all__ = ["FrequencyStatistic", "MergeableStatistic", "Metastore", "__version__", "open_table"]

_ROOMS = {
    "FrequencyStatistic": "statistics.user_defined.kinds",
    "MergeableStatistic": "statistics.user_defined.kinds",
    "Metastore": "lookup",
    "open_table": "lookup",
}


def __getattr__(name: str) -> Any:
    # Loaded on first use: `import metastore_assets` alone must cost nothing.
    if name == "__version__":
        from importlib.metadata import version

        return version("metastore-assets")
    if name in _ROOMS:
        return getattr(import_module(f"metastore_assets.{_ROOMS[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
