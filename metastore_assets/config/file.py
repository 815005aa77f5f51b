"""The configuration file before validation: finding it, and parsing its YAML.

This module imports neither pydantic nor the models, so that completion in a shell is fast.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import yaml

from metastore_assets.errors import ConfigError

CONFIG_VARIABLE = "METASTORE_CONFIG"
CONFIG_FILE = "metastore.yaml"


def config_path(path: str | os.PathLike[str] | None = None) -> Path:
    """Return the path of the configuration file.

    It is `path`, else `$METASTORE_CONFIG`, else `./metastore.yaml`. The result is absolute. In `path` and in the
    variable, a leading `~` stands for the user's home.
    """
    # No shell replaces `~` in `--config=~/metastore.yaml`, or in a variable that a Dockerfile sets.
    return Path(os.path.expanduser(path or os.environ.get(CONFIG_VARIABLE) or CONFIG_FILE)).absolute()


def read_mapping(path: Path) -> dict[Any, Any]:
    """Parse a YAML file, and normalize the result with `normalize_mapping`.

    Keys and values are not validated.

    Raises:
        ConfigError: The file cannot be read, is not valid YAML, or is not a mapping.
    """
    try:
        raw = yaml.load(path.read_text(encoding="utf-8"), _UniqueKeyLoader)
    except FileNotFoundError:
        raise ConfigError(
            f"no configuration at {path}: write one with `metastore init URI...`, pass --config FILE, or set "
            f"{CONFIG_VARIABLE}"
        ) from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise ConfigError(f"{path} cannot be read as YAML: {where}{error.problem or error.context}") from error
    except RecursionError:
        raise ConfigError(f"{path} cannot be read as YAML: it is nested too deeply") from None
    except (ValueError, yaml.YAMLError) as error:
        raise ConfigError(f"{path} cannot be read as YAML: {' '.join(str(error).split())}") from error
    if not isinstance(raw, dict):
        content = "empty" if raw is None else f"{raw!r:.60}"
        raise ConfigError(f"{path} must be a mapping with the keys root and tables; it is {content}")
    return normalize_mapping(raw)


def normalize_mapping(raw: dict[Any, Any]) -> dict[Any, Any]:
    """Drop keys without a value, and move databases from `tables` to `databases`.

    Keys are dropped at the top, and in the entries of `tables` and `databases`, but not below. An entry of `tables` is
    a database if it has a key `database`.
    """
    entries = {key: _without_null_keys(raw.get(key)) for key in ("tables", "databases")}
    return separate_databases(_without_nulls({**raw, **entries}))


def separate_databases(raw: dict[Any, Any]) -> dict[Any, Any]:
    """Return a configuration in which databases are moved from `tables` to the end of `databases`.

    An entry of `tables` is a database if it has a key `database`. The argument is not changed.
    """
    entries, database_entries = raw.get("tables"), raw.get("databases") or ()
    if not isinstance(entries, list | tuple) or not isinstance(database_entries, list | tuple):
        return raw
    databases = [entry for entry in entries if _is_database(entry)]
    if not databases:
        return raw
    tables = [entry for entry in entries if not _is_database(entry)]
    return {**raw, "tables": tables, "databases": [*database_entries, *databases]}


def _is_database(entry: object) -> bool:
    return isinstance(entry, dict) and "database" in entry


def table_name_for(identifier: str) -> str:
    """Convert a table's identifier in a catalog to a valid table name: `db.sales` becomes `db_sales`."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", identifier)


def _without_null_keys(entries: Any) -> Any:
    """Return a copy of a list whose mappings lack the keys with the value null.

    Anything but a list is returned as it is.
    """
    if not isinstance(entries, list):
        return entries
    return [_without_nulls(entry) if isinstance(entry, dict) else entry for entry in entries]


def _without_nulls(keys: dict[Any, Any]) -> dict[Any, Any]:
    return {key: value for key, value in keys.items() if value is not None}


class _UniqueKeyLoader(yaml.SafeLoader):
    """A YAML loader that rejects mappings with duplicate keys.

    PyYAML would silently use the last of them. A value that looks like a date but is none, such as 2024-02-30, is an
    error with its line, and so is a list or mapping that contains itself.
    """

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ValueError, LookupError, AttributeError) as error:  # The last two for `!!bool x` and `!!timestamp x`.
            reason = error if isinstance(error, ValueError) else f"it is no {node.tag.rpartition(':')[2]}"
            problem = f"{node.value!r} is invalid: {reason}; write a text in quotes"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark) from error

    def compose_node(self, parent: Any, index: Any) -> Any:
        node: Any = super().compose_node(parent, index)
        if node.end_mark is None:  # Its composition has not ended.
            raise yaml.MarkedYAMLError(problem="an alias is inside of what it stands for", problem_mark=node.start_mark)
        return node

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        keys: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in keys:
                    problem = f"the key {key.value!r} occurs twice"
                    raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
                keys.add(key.value)
        return node
