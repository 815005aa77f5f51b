"""Checks that hold of a table now, and look as if they are meant to: a beginning for people who know what is."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from fractions import Fraction
from itertools import pairwise
from typing import Any, TypeAlias

import yaml

from metastore_assets.checks.evaluate import evaluate
from metastore_assets.checks.subject import Subject, Surroundings, column_named_then
from metastore_assets.config.check_entries import NamedCheck, parse_check
from metastore_assets.config.check_models import Check, Level, Matches
from metastore_assets.errors import NotKeptError, StoreError
from metastore_assets.lookup import Table
from metastore_assets.lookup.json import scalar_json
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.statistics.distances import aligned_bins, equal_shares, population_stability_index
from metastore_assets.values.physical import order_key
from metastore_assets.values.types import class_named

Entry: TypeAlias = Any
"""One entry of a list of checks in the configuration, as YAML holds it."""

_FEW = 20
"""Distinct values up to which a column looks like one of a set of values."""
_OFTEN = 20
"""Rows for each of them, at the least, before they look like a set."""
_ENOUGH = 20
"""Rows, or distinct values, below which nothing is taken for a rule."""
_VERSIONS = 20
"""Versions that are looked at for how a table changes."""
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
"""Forms that texts often have, the more particular ones first."""
_NEVER_SHIFTED = 0.1
_SHIFTED = 0.25


@dataclass(frozen=True)
class Suggestions:
    """Entries for the configuration."""

    table: Sequence[Entry] = ()
    columns: Mapping[str, Sequence[Entry]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As they stand in a table of the configuration."""
        columns = {column: {"checks": list(checks)} for column, checks in self.columns.items() if checks}
        return {"checks": list(self.table), "columns": columns}

    def to_yaml(self) -> str:
        """The same as text."""
        return yaml.dump(self.to_json(), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)


class _Dumper(yaml.SafeDumper):
    """A line for each check, and for each column; no anchors, which nobody writes by hand."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_mapping(self, tag: str, mapping: Any, flow_style: bool | None = None) -> Any:
        above = isinstance(mapping, dict) and (
            not {"checks", "columns"}.isdisjoint(mapping)
            or any(isinstance(own, dict) and "checks" in own for own in mapping.values())
        )
        return super().represent_mapping(tag, mapping, flow_style=not above)


def suggest(table: Table, around: Surroundings) -> Suggestions:
    """Checks that the version passes. What is only an estimate suggests nothing."""
    history = _history(table, around)
    whole = _passed(_of_table(table, history), "table", Subject(table, around))
    columns = {
        subject.column: _passed(_of_column(subject, history), "column", subject)
        for subject in (Subject(table, around, None, row.column) for row in table.statistics())
        if subject.row.type_class is not None
    }
    return Suggestions(whole, {column: entries for column, entries in columns.items() if entries})


def _passed(entries: Iterator[Entry], level: Level, subject: Subject) -> list[Entry]:
    """Those that the version passes as they stand."""
    return [entry for entry in entries if _holds(parse_check(entry, level), subject)]


def _holds(check: Check, subject: Subject) -> bool:
    return evaluate(NamedCheck("suggested", subject.of_column, check), subject).status == "passed"


def _history(table: Table, around: Surroundings) -> list[Table]:
    """The last versions up to this one, in their order, one of each snapshot."""
    found: dict[tuple[str, datetime | None], Table] = {}
    own = table.version
    numbers = [number for number in around.metastore.versions(own.table) if number < own.number]
    for number in numbers[-_VERSIONS:]:
        try:
            earlier = around.metastore.table(own.table, number)
        except StoreError:
            continue  # expired since it was listed
        found[earlier.version.snapshot, earlier.version.committed_at] = earlier
    found[own.snapshot, own.committed_at] = table
    return list(found.values())


def _of_table(table: Table, history: Sequence[Table]) -> Iterator[Entry]:
    yield "consistent"
    yield "complete"
    times = [one.version.committed_at for one in history if one.version.committed_at is not None]
    gaps = [(later - earlier).total_seconds() for earlier, later in pairwise(times)]
    if len(gaps) >= 3:
        yield {"fresh": _duration(2 * max(gaps)), "severity": "warn"}
    if table.row_count():
        yield {"row_count": 1}
    counts = [one.row_count() for one in history]
    changes = [Fraction(now - before, before) for before, now in pairwise(counts) if before]
    if len(changes) >= 3 and max(map(abs, changes)) <= Fraction(1, 2):
        most = _rounded_up(2 * max(map(abs, changes)))
        yield {"row_count_change": f"{max(1, most)}%", "severity": "warn"}


def _of_column(subject: Subject, history: Sequence[Table]) -> Iterator[Entry]:
    row = subject.row
    rows = row.value_count + row.null_count
    if rows < _ENOUGH:
        return
    if not row.null_count:
        yield "not_null"
    elif row.null_count * 2 < rows:
        most = min(100, _rounded_up(Fraction(3 * row.null_count, 2 * rows)))
        yield {"null_share": f"{most}%", "severity": "warn"}
    if not row.value_count:
        return
    is_unique = row.distinct_count == row.value_count and row.distinct_count_guarantee == "exact"
    if is_unique and row.value_count >= _ENOUGH and _may_be_key(row):
        yield "unique"
    # Of partitions there come more.
    accepted = None if row.column in subject.table.version.partition_columns else _accepted(row, subject.table)
    if accepted:
        yield {"accepted_values": accepted}
    else:
        yield from _of_values(subject, is_unique=is_unique, history=history)


def _of_values(subject: Subject, *, is_unique: bool, history: Sequence[Table]) -> Iterator[Entry]:
    row = subject.row
    cls = class_named(row.type_class or "null")
    if cls.is_numeric and row.minimum is not None and order_key(row.minimum) >= 0 and not row.nan_count:
        yield {"range": {"minimum": 0}}
    if row.type_class == "string":
        pattern = None if (row.distinct_count or 0) < _ENOUGH else _pattern(subject)
        if pattern is not None:
            yield {"matches": pattern}
        elif row.minimum_length is not None and row.minimum_length == row.maximum_length:
            yield {"lengths": {"minimum": row.minimum_length, "maximum": row.maximum_length}}
    # What only grows is distributed otherwise by its nature.
    if len(history) >= 3 and not is_unique and cls.is_numeric and _is_steady(row, history):
        yield {"drift": _SHIFTED, "severity": "warn"}


def _may_be_key(row: ColumnStatistics) -> bool:
    """Times and measures are distinct by chance."""
    return row.type_class in ("int64", "uint64", "string", "binary", "uuid")


def _accepted(row: ColumnStatistics, table: Table) -> list[Any] | None:
    """The values of a column that looks like one of a set of values, in their order."""
    distinct = row.distinct_count
    if row.type_class not in ("string", "int64") or distinct is None or row.distinct_count_guarantee != "exact":
        return None
    if distinct > _FEW or distinct * _OFTEN > row.value_count:
        return None
    try:
        values = [value for piece in table.values(row.column) for value in piece.values]
    except NotKeptError:
        return None
    if len(values) != distinct:
        return None
    told = [scalar_json(value) for value in values]
    # Of bytes that are no text another text is told.
    is_text = row.type_class != "string" or all(
        str(own).encode() == order_key(value) for own, value in zip(told, values, strict=True)
    )
    return told if is_text else None


def _pattern(subject: Subject) -> str | None:
    """The first of the known forms that all values have."""
    return next((own for own in _PATTERNS if _holds(Matches(pattern=own), subject)), None)


def _is_steady(row: ColumnStatistics, history: Sequence[Table]) -> bool:
    """Whether the distribution has hardly changed from version to version, under whatever names."""
    names = [column_named_then(one, row.field_id) for one in history]
    try:
        found = [None if name is None else one.dyadic_histogram(name) for one, name in zip(history, names, strict=True)]
    except (NotKeptError, StoreError):
        return False
    kept = [own for own in found if own is not None]
    if len(kept) != len(history) or len({own.type_class for own in kept}) > 1:
        return False
    for before, now in pairwise(kept):
        bins = aligned_bins(before, now)
        if population_stability_index(*equal_shares(bins.left, bins.right, 10)) > _NEVER_SHIFTED:
            return False
    return True


def _rounded_up(part: Fraction) -> int:
    """As whole percents."""
    return math.ceil(part * 100)


def _duration(seconds: float) -> str:
    """At least so long, in hours or days."""
    hours = max(1, math.ceil(timedelta(seconds=seconds) / timedelta(hours=1)))
    return f"{hours}h" if hours <= 48 else f"{math.ceil(hours / 24)}d"
