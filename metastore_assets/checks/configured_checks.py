"""The checks in a configuration: parsing, validation on loading, and naming.

An entry, which declares one check, has one of these forms:

- the name of a check: `not_null`;
- a mapping of the name to settings: `range: {minimum: 0}`;
- a mapping of the name to its main setting: `null_share: 5%`. Other settings may be keys beside the name, as in
  `{null_share: 5%, severity: warn}`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from metastore_assets.config.errors import expected_text, message_of, show_value
from metastore_assets.config.file import config_path
from metastore_assets.config.loading import load_config, read_config
from metastore_assets.errors import ConfigError
from metastore_assets.exports.configured_targets import read_export_entries
from metastore_assets.messages import close_names, join_names

if TYPE_CHECKING:
    from metastore_assets.checks.base import Check, Level
    from metastore_assets.config import MetastoreConfig, SharedTableConfig

_MAX_SHOWN = 60
"""The maximum characters of a setting's value in a message."""


@dataclass(frozen=True)
class NamedCheck:
    """A check with its name and, for a check of a column, the column."""

    name: str
    """The name: letters, digits and `_`. It is unique within the table, even if case is ignored."""
    column: str | None
    """The dotted path of the column, as in `address.city`; None for a check of the table."""
    check: Check


def load_checked_config(path: str | os.PathLike[str] | None = None) -> MetastoreConfig:
    """Read the configuration, validate its checks and exports, and resolve variables and paths.

    Args:
        path: The file. Default: `$METASTORE_CONFIG`, else `./metastore.yaml`. Relative paths in the configuration refer
            to its folder.

    Raises:
        ConfigError: The file is missing or invalid, or a variable is not set. The message names file, key and value.
    """
    return _read_validated(load_config, path)


def read_checked_config(path: str | os.PathLike[str] | None = None) -> MetastoreConfig:
    """Read the configuration and validate it, including its checks and exports.

    Relative paths stay relative. Variables in some fields stay until `MetastoreConfig.resolve` replaces them.

    Raises ConfigError if the file cannot be read, or if a key or value is invalid.
    """
    return _read_validated(read_config, path)


def _read_validated(
    read: Callable[[str | os.PathLike[str] | None], MetastoreConfig], path: str | os.PathLike[str] | None
) -> MetastoreConfig:
    """Call `read` with a path, and validate checks and exports of the result.

    Errors name the file.
    """
    config = read(path)
    try:
        validate_checks_and_exports(config)
    except ConfigError as error:
        raise ConfigError(f"{config_path(path)}: {error}") from None
    return config


def validate_checks_and_exports(config: MetastoreConfig) -> None:
    """Raise ConfigError if a table or database has an invalid check or export.

    The message has all problems, each with the table or database, the key and the value.
    """
    problems = []
    for read in (read_named_checks, read_export_entries):
        for entry in config.entries:
            try:
                read(entry)
            except ConfigError as error:
                problems.append(str(error))
    if problems:
        raise ConfigError("; ".join(problems))


def read_named_checks(table: SharedTableConfig, extra_checks: Sequence[Check] = ()) -> list[NamedCheck]:
    """Return the checks of a table with their names: those of the table first, then those of its columns.

    Args:
        table: The table's configuration.
        extra_checks: Checks of the table in addition to those of the configuration.

    Raises:
        ConfigError: An entry is invalid, or two checks have the same name.
    """
    checks, problems = _parse_all(table) if _has_checks(table) else ([], [])
    if problems:
        raise ConfigError(f"{table.label}: {'; '.join(problems)}")
    table_checks = [(column, check) for column, check in checks if column is None]
    column_checks = [(column, check) for column, check in checks if column is not None]
    all_checks: list[tuple[str | None, Check]] = [
        *table_checks,
        *((None, check) for check in extra_checks),
        *column_checks,
    ]
    try:
        return assign_check_names(all_checks)
    except ValueError as error:
        raise ConfigError(f"{table.label}: {error}") from None


def assign_check_names(checks: Sequence[tuple[str | None, Check]]) -> list[NamedCheck]:
    """Return checks with unique names.

    A check without a configured name is named after its column and kind, such as `amount_range`.

    Args:
        checks: Each check with its column, or None for a check of the table.

    Raises:
        ValueError: Two checks are configured with the same name.
    """
    used_names: set[str] = set()
    for _, check in checks:
        if check.name is not None and check.name.lower() in used_names:
            raise ValueError(f"two checks have the name {check.name!r}")
        used_names |= {check.name.lower()} if check.name is not None else set()
    named_checks = []
    for column, check in checks:
        name = check.name
        if name is None:
            base = check.kind if column is None else f"{re.sub(r'[^A-Za-z0-9_]', '_', column)[:60]}_{check.kind}"
            candidates = [base, *(f"{base}_{number}" for number in range(2, len(checks) + 2))]
            name = next(candidate for candidate in candidates if candidate.lower() not in used_names)
            used_names.add(name.lower())
        named_checks.append(NamedCheck(name, column, check))
    return named_checks


def parse_check(entry: Any, level: Level) -> Check:
    """Parse an entry of the configuration.

    Args:
        entry: The name of a check, a mapping as in the module's docstring, or a check object.
        level: Whether the entry is among the checks of a table or of a column.

    Raises:
        ValueError: The entry is invalid. The message says which setting is wrong and what is allowed.
    """
    from metastore_assets.checks.base import Check

    if isinstance(entry, Check):
        return _check_level(entry, level)
    kinds, common = check_kinds(), Check.model_fields
    if isinstance(entry, str):
        entry = {entry: None}
    if not isinstance(entry, Mapping) or not all(isinstance(key, str) for key in entry):
        raise ValueError("the name of a check, or a mapping of its name to its settings")
    names = [key for key in entry if key in kinds]
    if len(names) > 1:
        raise ValueError(f"names {join_names(names)}: one check for each entry of the list")
    if not names:
        available_kinds = [name for name, model in kinds.items() if model.level == level]
        unknown = next((key for key in entry if key not in common), None)
        what = "names no check" if unknown is None else f"no check {unknown!r}"
        near = "" if unknown is None else close_names(unknown, available_kinds, "")
        raise ValueError(f"{what}; there are: {join_names(available_kinds)}{near}")
    (kind,) = names
    model, settings = kinds[kind], entry[kind]
    if settings is None:
        settings = {}
    elif not isinstance(settings, Mapping):
        if model.main is None:
            keys = [name for name in model.model_fields if name not in common]
            raise ValueError(f"{kind} takes {f'a mapping of {join_names(keys)}' if keys else 'no setting'}")
        settings = {model.main: settings}
    beside = {key: value for key, value in entry.items() if key != kind}
    duplicates = sorted(set(beside) & set(settings))
    if duplicates:
        raise ValueError(f"{kind}: {duplicates[0]} has two values, inside and beside the check: remove one")
    try:
        return _check_level(model.model_validate({**settings, **beside}), level)
    except ValidationError as error:
        problems = (_explain(kind, model, problem) for problem in error.errors())
        raise ValueError("; ".join(dict.fromkeys(problems))) from None


def check_kinds() -> Mapping[str, type[Check]]:
    """Return the classes of all checks by their name in the configuration."""
    # Imported at first use: most configurations have no checks, and these modules import lookups and Arrow.
    from metastore_assets.checks import column_checks, table_checks  # noqa: F401 (they register their classes)
    from metastore_assets.checks.base import CHECKS

    return CHECKS


def _check_level(check: Check, level: Level) -> Check:
    """Return the check unchanged.

    Raises ValueError if the check's own level is not `level`. Also raises it if the setting `partitions` is used for a
    check that is evaluated for the whole table only.
    """
    if check.level != level:
        where = "the key `checks` of a column" if check.level == "column" else "the table's key `checks`"
        raise ValueError(f"{check.kind} is a check of a {check.level}: move it to {where}")
    if check.partitions and not check.by_partition:
        raise ValueError(f"{check.kind} is evaluated for the whole table only: remove `partitions`")
    return check


def _explain(kind: str, model: type[Check], problem: Mapping[str, Any]) -> str:
    """Format a validation error of pydantic: `range.minimum = -1: must be at least 0`."""
    from metastore_assets.checks.base import Check

    key = next((part for part in problem["loc"] if isinstance(part, str)), None)
    where = kind if key is None else f"{kind}.{key}"
    if problem["type"] == "missing":
        return f"{where} is missing"
    if problem["type"] == "extra_forbidden":
        # The main setting may stand for several fields: `within` sets `lower` and `upper`.
        names = dict.fromkeys([*([model.main] if model.main else []), *model.model_fields])
        settings = [name for name in names if name not in Check.model_fields]
        return f"{where}: no such key; there are: {join_names([*settings, *sorted(Check.model_fields)])}"
    value = repr(problem["input"])
    shown_value = f" = {value}" if key is not None and len(value) <= _MAX_SHOWN else ""
    if problem["type"] == "too_short":
        return f"{where}{shown_value}: must not be empty"
    expected = expected_text(problem)
    return f"{where}{shown_value}: {message_of(problem) if expected is None else f'must be {expected}'}"


def _has_checks(table: SharedTableConfig) -> bool:
    return bool(table.checks) or any(policy.checks for policy in table.columns.values())


def _parse_all(table: SharedTableConfig) -> tuple[list[tuple[str | None, Check]], list[str]]:
    """Parse all checks of a table and its columns.

    Returns:
        A list with (column, check) for each valid check, and a list of messages on invalid entries. The column is None
        for a check of the table.
    """
    checks: list[tuple[str | None, Check]] = []
    problems: list[str] = []
    lists: list[tuple[str | None, Sequence[Any]]] = [(None, table.checks)]
    lists += [(column, policy.checks) for column, policy in table.columns.items()]
    for column, entries in lists:
        path = "checks" if column is None else f"columns.{column}.checks"
        if column == "default" and entries:
            problems.append(f"{path}: `default` cannot have checks: move them to the name of a column")
            continue
        for index, entry in enumerate(entries):
            try:
                checks.append((column, parse_check(entry, "table" if column is None else "column")))
            except ValueError as error:
                value = show_value(entry)
                problems.append(f"{path}.{index}{f' = {value}' if value else ''}: {error}")
    return checks, problems
