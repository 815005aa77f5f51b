"""Suggestions of checks: rules that a table satisfies now, and that its owner probably wants.

A version is the published statistics of a table at one snapshot.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from fractions import Fraction
from itertools import pairwise
from typing import Any, TypeAlias

import yaml

from metastore_assets.checks.base import Check, Level
from metastore_assets.checks.column_checks import Matches
from metastore_assets.checks.configured_checks import NamedCheck, parse_check
from metastore_assets.checks.evaluation import evaluate
from metastore_assets.checks.subject import CheckContext, Subject, find_column_name
from metastore_assets.errors import NotStoredError, StoreError
from metastore_assets.lookup import Table
from metastore_assets.lookup.json import Json, scalar_json
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.statistics.distances import align_bins, group_bins, population_stability_index
from metastore_assets.values.physical import order_key
from metastore_assets.values.types import class_named

Entry: TypeAlias = Any
"""One entry of a list of checks, as parsed from YAML: `not_null` or `{"range": {"minimum": 0}}`."""

_MAX_SET_SIZE = 20
"""Maximum number of distinct values of a column that looks like a set of accepted values."""
_MIN_ROWS_PER_VALUE = 20
"""Minimum average number of rows per value of a column that looks like a set of accepted values."""
_MIN_ROWS = 20
"""Minimum number of rows for suggestions about a column. For a pattern, also the minimum number of distinct texts."""
_MAX_VERSIONS = 20
"""The maximum number of earlier versions whose changes are considered."""
_PATTERNS = (
    r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}",
    r"\d{4}-\d{2}-\d{2}",
    r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]\d{2}:?\d{2})?",
    r"\d{1,3}(\.\d{1,3}){3}",
    r"https?://\S+",
    r"[^@\s]+@[^@\s]+\.[^@\s]+",
    r"[0-9a-f]{32}|[0-9a-f]{40}|[0-9a-f]{64}",
    r"\+?\d+",
    r"[A-Z]{2,3}",
)
"""Common forms of texts, the more specific ones first."""
_STABLE_INDEX = 0.1
"""Stability index up to which a distribution counts as stable."""
_SHIFTED_INDEX = 0.25
"""Stability index from which a distribution counts as shifted."""


@dataclass(frozen=True)
class Suggestions:
    """Suggested checks of a table and, by name, of its columns, as entries for the configuration."""

    table: Sequence[Entry] = ()
    columns: Mapping[str, Sequence[Entry]] = field(default_factory=dict)

    def to_json(self) -> Json:
        """Return the entries as the keys `checks` and `columns` of a table in the configuration."""
        columns = {column: {"checks": list(checks)} for column, checks in self.columns.items() if checks}
        return {"checks": list(self.table), "columns": columns}

    def to_yaml(self) -> str:
        """Return the entries as YAML."""
        return yaml.dump(self.to_json(), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)


class _Dumper(yaml.SafeDumper):
    """A YAML dumper that writes one line per check and per column, without anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_mapping(self, tag: str, mapping: Any, flow_style: bool | None = None) -> Any:
        """Write a mapping on one line, or on several if it has the key `checks` or `columns`.

        A mapping is also written on several lines if one of its values has the key `checks`.
        """
        is_block = isinstance(mapping, dict) and (
            not {"checks", "columns"}.isdisjoint(mapping)
            or any(isinstance(item, dict) and "checks" in item for item in mapping.values())
        )
        return super().represent_mapping(tag, mapping, flow_style=not is_block)


def suggest(table: Table, context: CheckContext) -> Suggestions:
    """Return suggested checks, all of which the version passes.

    Args:
        table: The table, opened at the version.
        context: Gives access to earlier versions and the table's metadata.
    """
    history = _history(table, context)
    table_entries = _select_passing(_table_entries(table, history), "table", Subject(table, context))
    columns = {
        subject.column: _select_passing(_column_entries(subject, history), "column", subject)
        for subject in (Subject(table, context, None, row.column) for row in table.statistics())
        # Under `columns`, the name `default` stands for all other columns and cannot have checks.
        if subject.row.type_class is not None and subject.column != "default"
    }
    return Suggestions(table_entries, {column: entries for column, entries in columns.items() if entries})


def suggestions_json(table: Table, context: CheckContext) -> Json:
    """Return the JSON of `metastore check --suggest`.

    It has the table, the version and the suggestions. The suggestions are in it twice: as objects, and as YAML.
    """
    suggestions = suggest(table, context)
    version = table.version
    return {
        "table": version.table,
        "version": version.number,
        **suggestions.to_json(),
        "yaml": suggestions.to_yaml(),
    }


def _select_passing(entries: Iterator[Entry], level: Level, subject: Subject) -> list[Entry]:
    return [entry for entry in entries if _passes(parse_check(entry, level), subject)]


def _passes(check: Check, subject: Subject) -> bool:
    return evaluate(NamedCheck("suggested", subject.column_name, check), subject).status == "passed"


def _history(table: Table, context: CheckContext) -> list[Table]:
    """Return the table at up to 20 earlier versions and at this one, with one version per snapshot.

    They are sorted by ascending number. If the table returned to a snapshot, only the latest of the snapshot's versions
    is in the result.
    """
    by_snapshot: dict[tuple[str, datetime | None], Table] = {}
    version = table.version
    numbers = [number for number in context.metastore.version_numbers(version.table) if number < version.number]
    for number in numbers[-_MAX_VERSIONS:]:
        try:
            earlier = context.metastore.table(version.table, version=number)
        except StoreError:
            continue  # expired after it was listed
        by_snapshot[earlier.version.snapshot, earlier.version.committed_at] = earlier
    by_snapshot[version.snapshot, version.committed_at] = table
    return sorted(by_snapshot.values(), key=lambda each: each.version.number)


def _table_entries(table: Table, history: Sequence[Table]) -> Iterator[Entry]:
    """Yield candidates for checks of a table, whether the table passes them or not."""
    yield "consistent"
    yield "complete"
    times = [table.version.committed_at for table in history if table.version.committed_at is not None]
    gaps = [(later - earlier).total_seconds() for earlier, later in pairwise(times)]
    if len(gaps) >= 3:
        yield {"fresh": _duration(2 * max(gaps)), "severity": "warn"}
    if table.count().value:
        yield {"row_count": 1}
    counts = [table.count().value for table in history]
    changes = [
        Fraction(later_count - earlier_count, earlier_count)
        for earlier_count, later_count in pairwise(counts)
        if earlier_count
    ]
    if len(changes) >= 3 and max(map(abs, changes)) <= Fraction(1, 2):
        limit = _ceil_percent(2 * max(map(abs, changes)))
        yield {"row_count_change": f"{max(1, limit)}%", "severity": "warn"}


def _column_entries(subject: Subject, history: Sequence[Table]) -> Iterator[Entry]:
    """Yield candidates for checks of a column, whether the column passes them or not."""
    row = subject.row
    rows = row.value_count + row.null_count
    if rows < _MIN_ROWS:
        return
    if not row.null_count:
        yield "not_null"
    elif row.null_count * 2 < rows:
        limit = min(100, _ceil_percent(Fraction(3 * row.null_count, 2 * rows)))
        yield {"null_share": f"{limit}%", "severity": "warn"}
    if not row.value_count:
        return
    is_unique = row.distinct_count == row.value_count and row.distinct_count_guarantee == "exact"
    if is_unique and row.value_count >= _MIN_ROWS and _may_be_key(row):
        yield "unique"
    # A partition column gets new values with every new partition.
    accepted_values = (
        None if row.column in subject.table.version.partition_columns else _accepted_values(row, subject.table)
    )
    if accepted_values:
        yield {"accepted_values": accepted_values}
    else:
        yield from _value_entries(subject, is_unique=is_unique, history=history)


def _value_entries(subject: Subject, *, is_unique: bool, history: Sequence[Table]) -> Iterator[Entry]:
    """Yield candidates for the checks `range`, `matches`, `lengths` and `drift` of a column.

    A column with a candidate for `accepted_values` needs none of them, so it is not passed to this function.

    Args:
        subject: The column.
        is_unique: Whether all values differ. Then `drift` is no candidate.
        history: The table at several versions, ascending.
    """
    row = subject.row
    cls = class_named(row.type_class or "null")
    if cls.is_numeric and row.minimum is not None and order_key(row.minimum) >= 0 and not row.nan_count:
        yield {"range": {"minimum": 0}}
    if row.type_class == "string":
        pattern = None if (row.distinct_count or 0) < _MIN_ROWS else _pattern(subject)
        if pattern is not None:
            yield {"matches": pattern}
        elif row.minimum_length is not None and row.minimum_length == row.maximum_length:
            yield {"lengths": {"minimum": row.minimum_length, "maximum": row.maximum_length}}
    # The distribution of unique values, such as growing ids, always changes.
    if len(history) >= 3 and not is_unique and cls.is_numeric and _is_stable(row, history):
        yield {"drift": _SHIFTED_INDEX, "severity": "warn"}


def _may_be_key(row: ColumnStatistics) -> bool:
    """Return whether a column has a type that is common for keys."""
    return row.type_class in ("int64", "uint64", "string", "binary", "uuid")


def _accepted_values(row: ColumnStatistics, table: Table) -> list[Any] | None:
    """Return all values of a column, ascending, if they look like a fixed set of codes; otherwise None."""
    distinct = row.distinct_count
    if row.type_class not in ("string", "int64") or distinct is None or row.distinct_count_guarantee != "exact":
        return None
    if distinct > _MAX_SET_SIZE or distinct * _MIN_ROWS_PER_VALUE > row.value_count:
        return None
    try:
        values = [value for block in table.value_batches(row.column) for value in block.values]
    except NotStoredError:
        return None
    if len(values) != distinct:
        return None
    documents = [scalar_json(value) for value in values]
    # JSON replaces invalid UTF-8, and the suggestion would then name other values.
    is_text = row.type_class != "string" or all(
        str(document).encode() == order_key(value) for document, value in zip(documents, values, strict=True)
    )
    return documents if is_text else None


def _pattern(subject: Subject) -> str | None:
    """Return the first of the `_PATTERNS` that all values match; None if there is none."""
    return next((pattern for pattern in _PATTERNS if _passes(Matches(pattern=pattern), subject)), None)


def _is_stable(row: ColumnStatistics, history: Sequence[Table]) -> bool:
    """Return whether a column's distribution hardly changed from each version of `history` to the next.

    The measure is the population stability index. If a histogram is missing or has another type, the result is False.
    """
    names = [find_column_name(version, row.field_id) for version in history]
    try:
        versions = zip(history, names, strict=True)
        all_bins = [None if name is None else version.dyadic_histogram(name) for version, name in versions]
    except (NotStoredError, StoreError):
        return False
    stored_bins = [bins for bins in all_bins if bins is not None]
    if len(stored_bins) != len(history) or len({bins.type_class for bins in stored_bins}) > 1:
        return False
    for earlier, later in pairwise(stored_bins):
        bins = align_bins(earlier, later)
        if population_stability_index(*group_bins(bins.left, bins.right, 10)) > _STABLE_INDEX:
            return False
    return True


def _ceil_percent(part: Fraction) -> int:
    """Return a share in percent, rounded up."""
    return math.ceil(part * 100)


def _duration(seconds: float) -> str:
    """Format a duration, rounded up: `5h` up to 48 hours, then `3d`."""
    hours = max(1, math.ceil(timedelta(seconds=seconds) / timedelta(hours=1)))
    return f"{hours}h" if hours <= 48 else f"{math.ceil(hours / 24)}d"
