"""The configuration `metastore.yaml`: models, loading, and explanations of errors."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from metastore_assets.config.base import ConfigModel as ConfigModel
    from metastore_assets.config.emr import EmrServerlessConfig as EmrServerlessConfig
    from metastore_assets.config.file import CONFIG_VARIABLE as CONFIG_VARIABLE
    from metastore_assets.config.file import config_path as config_path
    from metastore_assets.config.loading import load_config as load_config
    from metastore_assets.config.loading import read_config as read_config
    from metastore_assets.config.models import EMBEDDED_CATALOG as EMBEDDED_CATALOG
    from metastore_assets.config.models import CatalogConfig as CatalogConfig
    from metastore_assets.config.models import DagsterConfig as DagsterConfig
    from metastore_assets.config.models import DatabaseConfig as DatabaseConfig
    from metastore_assets.config.models import MetastoreConfig as MetastoreConfig
    from metastore_assets.config.models import SensorConfig as SensorConfig
    from metastore_assets.config.models import SensorStatus as SensorStatus
    from metastore_assets.config.models import SharedTableConfig as SharedTableConfig
    from metastore_assets.config.models import SharedTableConfigT as SharedTableConfigT
    from metastore_assets.config.models import TableConfig as TableConfig
    from metastore_assets.config.policy import FREQUENCY_LIMIT as FREQUENCY_LIMIT
    from metastore_assets.config.policy import HIDDEN_KEY_MIN_LENGTH as HIDDEN_KEY_MIN_LENGTH
    from metastore_assets.config.policy import NEAR_UNIQUE_ABOVE as NEAR_UNIQUE_ABOVE
    from metastore_assets.config.policy import CardinalityMode as CardinalityMode
    from metastore_assets.config.policy import ClassReferences as ClassReferences
    from metastore_assets.config.policy import ColumnPolicy as ColumnPolicy
    from metastore_assets.config.policy import ResolvedPolicy as ResolvedPolicy

_MODULES = {
    "CONFIG_VARIABLE": "file",
    "CardinalityMode": "policy",
    "CatalogConfig": "models",
    "ClassReferences": "policy",
    "ColumnPolicy": "policy",
    "ConfigModel": "base",
    "DatabaseConfig": "models",
    "EMBEDDED_CATALOG": "models",
    "EmrServerlessConfig": "emr",
    "FREQUENCY_LIMIT": "policy",
    "HIDDEN_KEY_MIN_LENGTH": "policy",
    "MetastoreConfig": "models",
    "NEAR_UNIQUE_ABOVE": "policy",
    "ResolvedPolicy": "policy",
    "DagsterConfig": "models",
    "SensorConfig": "models",
    "SensorStatus": "models",
    "SharedTableConfig": "models",
    "SharedTableConfigT": "models",
    "TableConfig": "models",
    "config_path": "file",
    "load_config": "loading",
    "read_config": "loading",
}
"""The module that defines each name."""


def __getattr__(name: str) -> Any:
    # Loaded at first use: completion in a shell reads `file` and need not wait for pydantic.
    if name in _MODULES:
        value = getattr(import_module(f"metastore_assets.config.{_MODULES[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
