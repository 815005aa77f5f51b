"""Where the configuration is, and reading its YAML, with errors for what YAML itself would let pass without a word."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import yaml

from metastore_assets.errors import ConfigError

CONFIG_VARIABLE = "METASTORE_CONFIG"
CONFIG_FILE = "metastore.yaml"


def config_path(explicit: str | os.PathLike[str] | None = None) -> Path:
    """The configuration file: the one given, else `$METASTORE_CONFIG`, else `./metastore.yaml`."""
    chosen = explicit or os.environ.get(CONFIG_VARIABLE) or CONFIG_FILE
    return Path(chosen).absolute()


def read_mapping(path: Path) -> dict[Any, Any]:
    """The mapping that a file holds. A key without a value counts as absent, at the top and in a table; entries of
    `tables` that are whole databases stand under `databases`.

    Raises ConfigError.
    """
    try:
        raw = yaml.load(path.read_text(encoding="utf-8"), _Loader)
    except FileNotFoundError:
        raise ConfigError(
            f"no configuration at {path}; write one, pass --config FILE, or set {CONFIG_VARIABLE}"
        ) from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise ConfigError(f"{path} cannot be read as YAML: {where}{error.problem or error.context}") from error
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{path} cannot be read as YAML: {' '.join(str(error).split())}") from error
    if not isinstance(raw, dict):
        held = "empty" if raw is None else f"{raw!r:.60}"
        raise ConfigError(f"{path} must be a mapping with the keys root and tables; it is {held}")
    tables = raw.get("tables")
    if isinstance(tables, list):
        entries = [_present(entry) if isinstance(entry, dict) else entry for entry in tables]
        raw["tables"] = entries
    return databases_apart(_present(raw))


def databases_apart(raw: dict[Any, Any]) -> dict[Any, Any]:
    """The same with entries of `tables` that have the key `database` under `databases`."""
    tables = raw.get("tables")
    if not isinstance(tables, list | tuple):
        return raw
    is_database = [isinstance(one, dict) and "database" in one for one in tables]
    databases = [one for one, whole in zip(tables, is_database, strict=True) if whole]
    if not databases:
        return raw
    own = [one for one, whole in zip(tables, is_database, strict=True) if not whole]
    return {**raw, "tables": own, "databases": [*(raw.get("databases") or ()), *databases]}


def name_of(identifier: str) -> str:
    """The name here of a table that a catalog has under that name: `_` for whatever no name may have in it."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", identifier)


def _present(keys: dict[Any, Any]) -> dict[Any, Any]:
    return {key: value for key, value in keys.items() if value is not None}


class _Loader(yaml.SafeLoader):
    """Refuses a key that stands twice in one mapping, of which YAML would keep the last without a word."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    problem = f"the key {key.value!r} is there twice"
                    raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
                seen.add(key.value)
        return node
