"""Rich column statistics of lakehouse tables, true after every commit, answered in milliseconds.

>>> from metastore_assets import open_table
>>> orders = open_table("s3://bucket/metastore", "orders")      # doctest: +SKIP
>>> orders.top("o_orderstatus", n=3).values                     # doctest: +SKIP

In a Dagster project:

>>> from metastore_assets import build_metastore_definitions
>>> defs = build_metastore_definitions("metastore.yaml")        # doctest: +SKIP
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from metastore_assets.assets.component import MetastoreComponent
    from metastore_assets.assets.fetch import fetch_column_statistics
    from metastore_assets.assets.partition_mapping import TablePartitions
    from metastore_assets.assets.project import (
        build_commit_sensor,
        build_metastore_assets,
        build_metastore_definitions,
    )
    from metastore_assets.assets.translator import MetastoreAsset, MetastoreTranslator
    from metastore_assets.checks.entries import load_checked_config as load_config
    from metastore_assets.config import DatabaseConfig, MetastoreConfig, TableConfig
    from metastore_assets.metastore import Metastore, open_table
    from metastore_assets.profiling import profile
    from metastore_assets.statistics.user_defined.interface import FrequencyStatistic, MergeableStatistic

__all__ = [
    "DatabaseConfig",
    "FrequencyStatistic",
    "MergeableStatistic",
    "Metastore",
    "MetastoreAsset",
    "MetastoreComponent",
    "MetastoreConfig",
    "MetastoreTranslator",
    "TableConfig",
    "TablePartitions",
    "__version__",
    "build_commit_sensor",
    "build_metastore_assets",
    "build_metastore_definitions",
    "fetch_column_statistics",
    "load_config",
    "open_table",
    "profile",
]

_PUBLIC_NAMES = {
    "DatabaseConfig": "config",
    "FrequencyStatistic": "statistics.user_defined.interface",
    "MergeableStatistic": "statistics.user_defined.interface",
    "Metastore": "metastore",
    "MetastoreAsset": "assets.translator",
    "MetastoreComponent": "assets.component",
    "MetastoreConfig": "config",
    "MetastoreTranslator": "assets.translator",
    "TableConfig": "config",
    "TablePartitions": "assets.partition_mapping",
    "build_commit_sensor": "assets.project",
    "build_metastore_assets": "assets.project",
    "build_metastore_definitions": "assets.project",
    "fetch_column_statistics": "assets.fetch",
    "load_config": "checks.entries:load_checked_config",
    "open_table": "metastore",
    "profile": "profiling",
}
"""The module that defines each public name, or `module:attribute` if the name in that module differs."""


def __getattr__(name: str) -> Any:
    # Loaded at first use: `import metastore_assets` imports nothing else.
    if name == "__version__":
        from importlib.metadata import version

        return version("metastore-assets")
    if name in _PUBLIC_NAMES:
        module, _, attribute = _PUBLIC_NAMES[name].partition(":")
        if module.startswith("assets."):
            from metastore_assets.extras import extra

            with extra("dagster", f"`{name}`"):
                import_module("dagster")
        return getattr(import_module(f"metastore_assets.{module}"), attribute or name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
