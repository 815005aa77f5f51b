"""Rich column statistics of lakehouse tables, true after every commit, answered in milliseconds.

>>> from metastore_assets import open_table
>>> orders = open_table("s3://bucket/metastore", "orders")      # doctest: +SKIP
>>> orders.top("o_orderstatus", n=3)                            # doctest: +SKIP

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
    from metastore_assets.assets.project import build_commit_sensor, build_metastore_assets, build_metastore_definitions
    from metastore_assets.assets.translator import MetastoreAsset, MetastoreTranslator
    from metastore_assets.checks.configured_checks import load_checked_config as load_config
    from metastore_assets.config import DatabaseConfig, MetastoreConfig, TableConfig
    from metastore_assets.errors import (
        ColumnNotFoundError,
        ConfigError,
        CorruptionError,
        ExportError,
        FragmentError,
        LiteralError,
        MetastoreError,
        MissingPackageError,
        NotStoredError,
        ObjectNotFoundError,
        PartitionNotFoundError,
        PredicateError,
        ProfileError,
        QueryError,
        SnapshotNotFoundError,
        StoreError,
        TableFormatError,
        TableNotFoundError,
        UnsupportedTypeError,
        VersionConflictError,
        VersionNotFoundError,
    )
    from metastore_assets.history.history_row import HistoryRow
    from metastore_assets.history.points import HistoryPoint
    from metastore_assets.lookup.clustering import ColumnClustering
    from metastore_assets.lookup.column_values import TextValue
    from metastore_assets.lookup.diff import ColumnDiff, PartitionsDiff, TableDiff
    from metastore_assets.lookup.distances import Distances
    from metastore_assets.lookup.filtered_view import FilteredView
    from metastore_assets.lookup.histograms import Bin
    from metastore_assets.lookup.pruning import EliminatedFragment, Elimination, PrunedFragment, Pruning, PruningCost
    from metastore_assets.lookup.relation import MissingFileError, Relation
    from metastore_assets.lookup.results import (
        AsOf,
        Count,
        Mode,
        PartitionFrequency,
        Quantile,
        ReadCost,
        ResultSet,
        Spread,
        ValueFrequency,
    )
    from metastore_assets.lookup.selectivity import Estimate
    from metastore_assets.lookup.summaries import VersionSummary
    from metastore_assets.lookup.table import ScanRequest, Table
    from metastore_assets.lookup.value_count_changes import ColumnChanges, TableChanges, ValueChange
    from metastore_assets.lookup.version_references import VersionReference
    from metastore_assets.metastore import Metastore, open_table
    from metastore_assets.profiling import profile, profile_query
    from metastore_assets.statistics.column import ColumnStatistics, Guarantee
    from metastore_assets.statistics.frequencies import Frequencies
    from metastore_assets.statistics.histogram import Histogram
    from metastore_assets.statistics.user_defined.interface import FrequencyStatistic, MergeableStatistic
    from metastore_assets.statistics.user_defined.results import UserResult
    from metastore_assets.store.version import PartitionEntry, Version

__all__ = [
    "AsOf",
    "Bin",
    "ColumnChanges",
    "ColumnClustering",
    "ColumnDiff",
    "ColumnNotFoundError",
    "ColumnStatistics",
    "ConfigError",
    "CorruptionError",
    "Count",
    "DatabaseConfig",
    "Distances",
    "EliminatedFragment",
    "Elimination",
    "Estimate",
    "ExportError",
    "FilteredView",
    "FragmentError",
    "Frequencies",
    "FrequencyStatistic",
    "Guarantee",
    "Histogram",
    "HistoryPoint",
    "HistoryRow",
    "LiteralError",
    "MergeableStatistic",
    "Metastore",
    "MetastoreAsset",
    "MetastoreComponent",
    "MetastoreConfig",
    "MetastoreError",
    "MetastoreTranslator",
    "MissingFileError",
    "MissingPackageError",
    "Mode",
    "NotStoredError",
    "ObjectNotFoundError",
    "PartitionEntry",
    "PartitionFrequency",
    "PartitionNotFoundError",
    "PartitionsDiff",
    "PredicateError",
    "ProfileError",
    "PrunedFragment",
    "Pruning",
    "PruningCost",
    "Quantile",
    "QueryError",
    "ReadCost",
    "Relation",
    "ResultSet",
    "ScanRequest",
    "SnapshotNotFoundError",
    "Spread",
    "StoreError",
    "Table",
    "TableChanges",
    "TableConfig",
    "TableDiff",
    "TableFormatError",
    "TableNotFoundError",
    "TablePartitions",
    "TextValue",
    "UnsupportedTypeError",
    "UserResult",
    "ValueChange",
    "ValueFrequency",
    "Version",
    "VersionConflictError",
    "VersionNotFoundError",
    "VersionReference",
    "VersionSummary",
    "__version__",
    "build_commit_sensor",
    "build_metastore_assets",
    "build_metastore_definitions",
    "fetch_column_statistics",
    "load_config",
    "open_table",
    "profile",
    "profile_query",
]

_PUBLIC_NAMES = {
    "AsOf": "lookup.results",
    "Bin": "lookup.histograms",
    "ColumnChanges": "lookup.value_count_changes",
    "ColumnClustering": "lookup.clustering",
    "ColumnDiff": "lookup.diff",
    "ColumnNotFoundError": "errors",
    "ColumnStatistics": "statistics.column",
    "ConfigError": "errors",
    "CorruptionError": "errors",
    "Count": "lookup.results",
    "DatabaseConfig": "config",
    "Distances": "lookup.distances",
    "EliminatedFragment": "lookup.pruning",
    "Elimination": "lookup.pruning",
    "Estimate": "lookup.selectivity",
    "ExportError": "errors",
    "FilteredView": "lookup.filtered_view",
    "FragmentError": "errors",
    "Frequencies": "statistics.frequencies",
    "FrequencyStatistic": "statistics.user_defined.interface",
    "Guarantee": "statistics.column",
    "Histogram": "statistics.histogram",
    "HistoryPoint": "history.points",
    "HistoryRow": "history.history_row",
    "LiteralError": "errors",
    "MergeableStatistic": "statistics.user_defined.interface",
    "Metastore": "metastore",
    "MetastoreAsset": "assets.translator",
    "MetastoreComponent": "assets.component",
    "MetastoreConfig": "config",
    "MetastoreError": "errors",
    "MetastoreTranslator": "assets.translator",
    "MissingFileError": "lookup.relation",
    "MissingPackageError": "errors",
    "Mode": "lookup.results",
    "NotStoredError": "errors",
    "ObjectNotFoundError": "errors",
    "PartitionEntry": "store.version",
    "PartitionFrequency": "lookup.results",
    "PartitionNotFoundError": "errors",
    "PartitionsDiff": "lookup.diff",
    "PredicateError": "errors",
    "ProfileError": "errors",
    "PrunedFragment": "lookup.pruning",
    "Pruning": "lookup.pruning",
    "PruningCost": "lookup.pruning",
    "Quantile": "lookup.results",
    "QueryError": "errors",
    "ReadCost": "lookup.results",
    "Relation": "lookup.relation",
    "ResultSet": "lookup.results",
    "ScanRequest": "lookup.table",
    "SnapshotNotFoundError": "errors",
    "Spread": "lookup.results",
    "StoreError": "errors",
    "Table": "lookup.table",
    "TableChanges": "lookup.value_count_changes",
    "TableConfig": "config",
    "TableDiff": "lookup.diff",
    "TableFormatError": "errors",
    "TableNotFoundError": "errors",
    "TablePartitions": "assets.partition_mapping",
    "TextValue": "lookup.column_values",
    "UnsupportedTypeError": "errors",
    "UserResult": "statistics.user_defined.results",
    "ValueChange": "lookup.value_count_changes",
    "ValueFrequency": "lookup.results",
    "Version": "store.version",
    "VersionConflictError": "errors",
    "VersionNotFoundError": "errors",
    "VersionReference": "lookup.version_references",
    "VersionSummary": "lookup.summaries",
    "build_commit_sensor": "assets.project",
    "build_metastore_assets": "assets.project",
    "build_metastore_definitions": "assets.project",
    "fetch_column_statistics": "assets.fetch",
    "load_config": "checks.configured_checks:load_checked_config",
    "open_table": "metastore",
    "profile": "profiling",
    "profile_query": "profiling",
}
"""The module that defines each public name, or `module:attribute` if the name in that module differs."""


def defining_module(name: str) -> str:
    """Return the name, within this package, of the module that defines a public name.

    For `Table`, that is `lookup.table`.
    """
    return _PUBLIC_NAMES[name].partition(":")[0]


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
