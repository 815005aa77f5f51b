"""Loading of the configuration file: validation, and replacement of variables and relative paths."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from metastore_assets.config.errors import explain
from metastore_assets.config.file import config_path, read_mapping
from metastore_assets.config.models import MetastoreConfig
from metastore_assets.errors import ConfigError


def read_config(path: str | os.PathLike[str] | None = None) -> MetastoreConfig:
    """Read the configuration and validate it, except its checks and exports.

    `metastore_assets.checks.configured_checks.validate_checks_and_exports` validates checks and exports. Relative paths
    stay relative. Variables in some fields stay until `MetastoreConfig.resolve` replaces them.

    Args:
        path: The file. Default: `$METASTORE_CONFIG`, else `./metastore.yaml`.

    Raises:
        ConfigError: The file cannot be read, or a key or value is invalid.
    """
    file = config_path(path)
    return parse_config(read_mapping(file), file)


def parse_config(raw: dict[Any, Any], file: Path) -> MetastoreConfig:
    """Return the configuration that is in the mapping of a configuration file.

    Checks and exports are not validated.

    Relative paths stay relative. Variables in some fields stay until `MetastoreConfig.resolve` replaces them.

    Args:
        raw: The mapping, as `read_mapping` returns it.
        file: The file that has the mapping. Errors name it. Relative paths in the mapping refer to its folder.

    Raises:
        ConfigError: A key or value is invalid.
    """
    try:
        config = MetastoreConfig.validate_raw(raw)
    except ValidationError as error:
        raise ConfigError(f"{file}: {explain(raw, error, MetastoreConfig)}") from None
    return config.in_folder(file.parent)


def load_config(path: str | os.PathLike[str] | None = None) -> MetastoreConfig:
    """Read the configuration, and replace variables by their values and relative paths by absolute ones.

    Relative paths refer to the folder of the file. The entries `checks` and `exports` of tables are not validated.

    Args:
        path: The file. Default: `$METASTORE_CONFIG`, else `./metastore.yaml`.

    Raises:
        ConfigError: The file cannot be read, a key or value is invalid, or a variable is not set.
    """
    file = config_path(path)
    config = read_config(file)
    try:
        return config.resolve()
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from None
