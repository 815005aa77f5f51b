"""Reading, validating and resolving the configuration file."""

from __future__ import annotations

import os

from pydantic import ValidationError

from metastore_assets.config.errors import explain
from metastore_assets.config.file import config_path, read_mapping
from metastore_assets.config.models import MetastoreConfig
from metastore_assets.errors import ConfigError


def read_config(path: str | os.PathLike[str] | None = None) -> MetastoreConfig:
    """Read the configuration without resolving variables and paths. Raises ConfigError.

    Checks stay as written: `metastore_assets.checks.entries.validate_checks` validates them.
    """
    file = config_path(path)
    raw = read_mapping(file)
    try:
        config = MetastoreConfig.validate_raw(raw)
    except ValidationError as error:
        raise ConfigError(f"{file}: {explain(raw, error, MetastoreConfig)}") from None
    return config.in_folder(file.parent)


def load_config(path: str | os.PathLike[str] | None = None) -> MetastoreConfig:
    """Read the configuration and resolve it. Relative paths refer to the folder of the file. Raises ConfigError.

    Checks stay as written, as in `read_config`.
    """
    file = config_path(path)
    config = read_config(file)
    try:
        return config.resolve()
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from None
