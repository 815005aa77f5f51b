"""The key `exports` of a table: parsing, validation, and the targets that it names.

The key is a mapping of names to settings, `exports: {iceberg: {columns: [id]}}`, or a list of names, `exports:
[iceberg]`. The name is also the kind of the target, unless the settings contain `kind`. With `kind`, a table can have
several targets of the same kind.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from metastore_assets.config.errors import expected_text, message_of, show_value
from metastore_assets.errors import ConfigError
from metastore_assets.messages import close_names, join_names
from metastore_assets.plugins import EXPORT_TARGETS

if TYPE_CHECKING:
    import pyarrow as pa

    from metastore_assets.config import SharedTableConfig, TableConfig
    from metastore_assets.exports.base import ExportOptions, ExportTarget

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,49}")


@dataclass(frozen=True)
class ExportEntry:
    """One entry of the key `exports`: a named target with its settings."""

    name: str
    """The key in the mapping: a letter, then letters, digits and `_`."""
    target: type[ExportTarget]
    options: ExportOptions

    def open(self, table: TableConfig) -> ExportTarget:
        """Create the target for a table.

        No request is sent.
        """
        return self.target(table, self.options)

    def statistics_for(self, column: str, type: pa.DataType) -> tuple[str, ...]:
        """Return the extra statistics that a refresh computes for this target, as `module:Class`.

        The result is empty if the column is not exported.

        Args:
            column: Dotted path of the column.
            type: The type of the column.
        """
        return self.target.statistics_for(type) if self.options.includes(column) else ()


def read_export_entries(table: SharedTableConfig) -> list[ExportEntry]:
    """Parse the key `exports` of a table or database.

    The result has the same order as the key.

    Raises:
        ConfigError: An entry is invalid. The message names the table, the key and the value.
    """
    raw = table.exports
    if not raw:
        return []
    entries, problems = [], []
    for name, settings in _named_settings(table, raw).items():
        try:
            entries.append(_parse_entry(name, settings))
        except ValueError as error:
            problems.append(str(error))
    problems += _conflicts(table, entries)
    if problems:
        raise ConfigError(f"{table.label}: {'; '.join(problems)}")
    return entries


def _conflicts(table: SharedTableConfig, entries: Sequence[ExportEntry]) -> Iterator[str]:
    """Yield an error message for each conflict of entries or of keys.

    Entries conflict if their exports would replace each other. The key `exports` conflicts with the key `partitions`,
    which limits the statistics to some partitions: engines would read them as statistics of the whole table.
    """
    kinds = Counter(entry.target.kind for entry in entries if entry.target.is_single)
    for kind in (kind for kind, number in kinds.items() if number > 1):
        names = [entry.name for entry in entries if entry.target.kind == kind]
        yield f"exports: {join_names(names)} are all of kind {kind!r} and would replace each other: keep one"
    if getattr(table, "partitions", None):  # a database has no such key
        yield (
            "exports: engines would take the numbers of the selected `partitions` for those of the whole table: remove "
            "one of the two keys"
        )


def select_export_entries(table: SharedTableConfig, names: Sequence[str] = ()) -> list[ExportEntry]:
    """Return the entries of the key `exports` with the given names; all entries if `names` is empty.

    Raises:
        ConfigError: An entry is invalid, or a name is unknown.
    """
    entries = read_export_entries(table)
    existing = [entry.name for entry in entries]
    for name in names:
        if name not in existing:
            near = close_names(name, existing, "; there are: {}") or ", which has no exports"
            raise ConfigError(f"no export {name!r} of {table.label}{near}")
    return [entry for entry in entries if not names or entry.name in names]


@lru_cache(maxsize=32)
def load_target(kind: str) -> type[ExportTarget]:
    """Load the target class of a kind, such as `hive`.

    Raises ConfigError if no installed package registers the kind, or if the registered object is no subclass of
    ExportTarget with this kind.
    """
    from metastore_assets.exports.base import ExportTarget

    if kind not in EXPORT_TARGETS:
        names = EXPORT_TARGETS.names()
        raise ConfigError(
            f"no installed package has the kind {kind!r}; there are: {', '.join(names)}{close_names(kind, names, '')}"
        )
    target = EXPORT_TARGETS.load(kind)
    if not isinstance(target, type) or not issubclass(target, ExportTarget) or target.kind != kind:
        raise ConfigError(
            f"the entry point {kind!r} in {EXPORT_TARGETS.group} is {target!r:.200}, not a subclass of ExportTarget "
            f"with the kind {kind!r}"
        )
    return target


def _named_settings(table: SharedTableConfig, raw: Any) -> dict[str, Any]:
    """Convert the value of the key `exports` to settings by name.

    A name in a list has the settings None.

    Raises ConfigError if the value is neither a mapping nor a list of names.
    """
    if isinstance(raw, Mapping):
        return dict(raw)
    if isinstance(raw, list | tuple) and all(isinstance(name, str) for name in raw):
        return dict.fromkeys(raw)
    raise ConfigError(
        f"{table.label}: exports: must be a mapping of names to settings, or a list of names, such as [iceberg]"
    )


def _parse_entry(name: Any, settings: Any) -> ExportEntry:
    """Parse one name and its settings.

    Raises ValueError, whose message has the key, the value and what is allowed.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(f"exports: the name {name!r} must be a letter, then up to 49 letters, digits or `_`")
    settings = {} if settings is None else settings
    if not isinstance(settings, Mapping):
        raise ValueError(f"exports.{name} = {show_value(settings)}: must be a mapping of settings")
    kind = settings.get("kind", name)
    try:
        target = load_target(str(kind))
    except ConfigError as error:
        raise ValueError(f"exports.{name}: {error}") from None
    try:
        options = target.options_model.model_validate({key: item for key, item in settings.items() if key != "kind"})
    except ValidationError as error:
        problems = (_explain(name, target, problem) for problem in error.errors())
        raise ValueError("; ".join(dict.fromkeys(problems))) from None
    return ExportEntry(name, target, options)


def _explain(name: str, target: type[ExportTarget], problem: Mapping[str, Any]) -> str:
    """Format a validation error of pydantic: `exports.spark.bins = -1: must be at least 0`."""
    where = ".".join(["exports", name, *(str(part) for part in problem["loc"] if isinstance(part, str))])
    if problem["type"] == "missing":
        return f"{where} is missing"
    if problem["type"] == "extra_forbidden":
        keys = ["kind", *target.options_model.model_fields]
        return f"{where}: no such key; there are: {join_names(keys)}{close_names(str(problem['loc'][-1]), keys, '')}"
    value, expected = show_value(problem["input"]), expected_text(problem)
    reason = message_of(problem) if expected is None else f"must be {expected}"
    return f"{where}{f' = {value}' if value else ''}: {reason}"
