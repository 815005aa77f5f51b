"""The checks of a table: its age, its files, its row count, and its consistency.

A version is the published statistics of a table at one snapshot.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import model_validator

from metastore_assets.checks.base import (
    BoundedCheck,
    Check,
    Finding,
    describe_baseline,
    describe_bounds,
    describe_duration,
    describe_share,
    status_of,
)
from metastore_assets.checks.settings import Baseline, Count, Duration, Share, parse_share
from metastore_assets.checks.subject import Subject
from metastore_assets.errors import MetastoreError, SnapshotNotFoundError, StoreError, TableNotFoundError
from metastore_assets.report.text import format_count, format_number
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.store.version import FragmentEntry, Version
from metastore_assets.values.columns import schema_columns
from metastore_assets.values.physical import order_key

if TYPE_CHECKING:
    from metastore_assets.formats.base import Fragment

T = TypeVar("T")

_MAX_PROBLEMS = 10
"""Maximum number of problems that a finding lists."""


class Fresh(Check):
    """The version's snapshot was committed at most `within` ago."""

    kind = "fresh"
    level = "table"
    main = "within"
    by_partition = False
    within: Duration

    def evaluate(self, subject: Subject) -> Finding:
        """Compare the age of the commit with `within`.

        If the format records no commit times, the age of the version is compared instead. The finding is then `failed`
        for an age above `within`, because the commit is even older. For a lower age, it is `unknown`.
        """
        version, now = subject.table.version, subject.context.now
        if version.committed_at is not None:
            age = now - version.committed_at
            observation = f"committed {_ago(age)}, at {version.committed_at.isoformat(timespec='seconds')}"
            measures = {"age_seconds": round(age.total_seconds())}
            return Finding(status_of(age <= self.within), observation, measures=measures)
        age = now - version.published_at
        observation = f"published {_ago(age)}; the format records no commit times"
        if age > self.within:
            # The commit is older than the version.
            return Finding("failed", observation, "bound")
        return Finding("unknown", observation, "bound", f"nothing: {version.format} tables do not record commit times")

    def describe(self) -> str:
        return f"committed in the last {describe_duration(self.within)}"


class Current(Check):
    """The newest version describes the table's current snapshot."""

    kind = "current"
    level = "table"
    by_partition = False

    def evaluate(self, subject: Subject) -> Finding:
        version = subject.table.version
        current = _read_metadata(subject.context.reference)
        if isinstance(current, Finding):
            return current
        if (current.id, current.committed_at) == (version.snapshot, version.committed_at):
            return Finding("passed", f"snapshot {current.id}")
        observation = f"the table's snapshot is {current.id}, and version {version.number} describes {version.snapshot}"
        return Finding("failed", observation)

    def describe(self) -> str:
        return "of the table's current snapshot"


class Complete(Check):
    """The newest version has all files of the table, with the row counts in the table's metadata."""

    kind = "complete"
    level = "table"
    by_partition = False

    def evaluate(self, subject: Subject) -> Finding:
        """Compare files and row counts with the table's metadata.

        The finding is unknown if the version does not describe the table's current snapshot. It is also unknown if the
        metadata lack the row count of a file.
        """
        version = subject.table.version
        snapshot = _read_metadata(subject.context.snapshot)
        if isinstance(snapshot, Finding):
            return snapshot
        if (snapshot.id, snapshot.committed_at) != (version.snapshot, version.committed_at):
            observation = (
                f"the table's snapshot is {snapshot.id}, and version {version.number} describes {version.snapshot}"
            )
            return Finding("unknown", observation, "absent", f"metastore refresh {version.table}")
        entries = {entry.id: entry for entry in version.fragments}
        problems = list(_file_differences(entries, snapshot.fragments))
        if problems:
            return Finding("failed", "; ".join(problems[:_MAX_PROBLEMS]))
        observation = f"{format_count(len(entries), 'file')}, {format_count(version.row_count, 'row')}"
        uncounted_fragments = sum(fragment.row_count is None for fragment in snapshot.fragments)
        if uncounted_fragments:
            observation += f"; the table's metadata have no row count for {format_count(uncounted_fragments, 'file')}"
            return Finding("unknown", observation, "absent", f"metastore verify {version.table}, which reads the files")
        return Finding("passed", observation, measures={"files": len(entries), "rows": version.row_count})

    def describe(self) -> str:
        return "all files of the table, with as many rows as its metadata say"


class Consistent(Check):
    """The statistics of the version do not contradict each other."""

    kind = "consistent"
    level = "table"
    by_partition = False

    def evaluate(self, subject: Subject) -> Finding:
        version, rows = subject.table.version, subject.table.statistics()
        problems = list(find_contradictions(version, rows))
        if problems:
            return Finding("failed", "; ".join(problems[:_MAX_PROBLEMS]))
        return Finding(
            "passed",
            f"{format_count(version.row_count, 'row')} in {format_count(len(version.partitions), 'partition')}, "
            f"{format_count(len(rows), 'column')}",
        )

    def describe(self) -> str:
        return "numbers that agree with each other"


class RowCount(BoundedCheck):
    """The number of rows is from `minimum` to `maximum`, both inclusive."""

    kind = "row_count"
    level = "table"
    main = "minimum"
    minimum: Count | None = None
    maximum: Count | None = None

    def evaluate(self, subject: Subject) -> Finding:
        rows = subject.row_count
        return Finding(status_of(self.is_within(rows)), format_count(rows, "row"), measures={"rows": rows})

    def describe(self) -> str:
        return f"{describe_bounds(self.minimum, self.maximum)} rows"

    def excess(self, measures: Mapping[str, float]) -> float:
        rows = measures.get("rows")
        return self.excess_of(rows, rows)


class RowCountChange(BoundedCheck):
    """The relative change of the row count since an earlier version is from `lower` to `upper`.

    Both are inclusive.
    """

    kind = "row_count_change"
    level = "table"
    main = "within"
    bounds = ("lower", "upper")
    lower: Share | None = None
    upper: Share | None = None
    against: Baseline = "previous"

    @model_validator(mode="before")
    @classmethod
    def _symmetric(cls, value: Any) -> Any:
        """Replace `within: 20%` by `lower: -20%, upper: 20%`."""
        if not isinstance(value, Mapping) or "within" not in value:
            return value
        if {"lower", "upper"} & set(value):
            raise ValueError("within sets both lower and upper: give within alone, or lower and upper")
        limit = parse_share(value["within"])
        if limit < 0:
            raise ValueError("within is 0 or more")
        return {**{key: item for key, item in value.items() if key != "within"}, "lower": -limit, "upper": limit}

    def evaluate(self, subject: Subject) -> Finding:
        """Compare the row count with that of the earlier version that `against` selects.

        A partition that the earlier version does not have passes.
        """
        earlier = subject.earlier(self.against)
        rows = subject.row_count
        if earlier is None:
            return Finding("passed", f"{format_count(rows, 'row')} in a new partition", measures={"rows": rows})
        before = earlier.row_count
        observation = (
            f"{format_number(before)} → {format_number(rows)} rows since version {earlier.table.version.number}"
        )
        if not before:
            # Relative to 0 rows, 0 rows are no change, and any rows exceed every upper bound.
            is_satisfied = self.upper is None if rows else self.is_within(0)
            return Finding(status_of(is_satisfied), observation, measures={"rows": rows})
        change = Fraction(rows - before, before)
        measures = {"rows": rows, "change": float(change)}
        return Finding(status_of(self.is_within(change)), f"{float(change):+.1%}: {observation}", measures=measures)

    def describe(self) -> str:
        bounds = describe_bounds(describe_share(self.lower), describe_share(self.upper))
        return f"{bounds} rows against {describe_baseline(self.against)}"

    def excess(self, measures: Mapping[str, float]) -> float:
        # Without a relative change, a partition with rows grew from none.
        change = measures.get("change", math.inf if measures.get("rows") else 0)
        return self.excess_of(change, change)


def missing_table_reason(error: TableNotFoundError) -> str:
    """Return a message that the table, or the snapshot that its option `at` selects, no longer exists."""
    what = "the snapshot that `at` selects" if isinstance(error, SnapshotNotFoundError) else "the table"
    return f"{what} no longer exists: {error}"


def _read_metadata(read: Callable[[], T]) -> T | Finding:
    """Return the result of `read` or, if it raises, a finding.

    The finding is `failed` if the table no longer exists, and otherwise `unknown`.
    """
    try:
        return read()
    except TableNotFoundError as error:
        return Finding("failed", missing_table_reason(error))
    except MetastoreError as error:
        problem = str(error)
    except Exception as error:  # noqa: BLE001 (clients of object stores raise any exception)
        problem = str(StoreError(f"{type(error).__name__}: {error}"))
    return Finding("unknown", f"the table's metadata cannot be read: {problem}", "absent", "check again")


def _file_differences(entries: dict[str, FragmentEntry], fragments: Sequence[Fragment]) -> Iterator[str]:
    """Yield a message for each difference between the files of a version and those of a snapshot.

    Args:
        entries: The files of the version by id.
        fragments: The files of the snapshot.
    """
    fragment_ids = {fragment.id for fragment in fragments}
    for entry in entries.values():
        if entry.id not in fragment_ids:
            yield f"{entry.path} is not a file of the table"
    for fragment in fragments:
        stored_entry = entries.get(fragment.id)
        if stored_entry is None:
            yield f"{fragment.path} has no statistics"
        elif fragment.row_count is not None and fragment.row_count != stored_entry.row_count:
            yield f"{fragment.path} has {fragment.row_count:,} rows, and statistics of {stored_entry.row_count:,}"


def find_contradictions(version: Version, rows: Sequence[ColumnStatistics]) -> Iterator[str]:
    """Yield a message for each place where the statistics of a version contradict each other.

    Examples are a minimum that is greater than the maximum, and partitions whose rows do not add up to the table's.

    Args:
        version: The version.
        rows: The statistics of the table in this version, one row per column.
    """
    partition_rows = sum(entry.row_count for entry in version.partitions)
    if partition_rows != version.row_count:
        yield f"the partitions have {partition_rows} rows and the table has {version.row_count}"
    row_by_column = {row.column: row for row in rows}
    for column in schema_columns(version.schema):
        row = row_by_column.get(column.path)
        if row is None:
            yield f"column {column.path!r} has no statistics"
            continue
        if not column.repeated and row.value_count + row.null_count != version.row_count:
            yield (
                f"column {column.path!r} has {row.value_count} values and {row.null_count} nulls in "
                f"{version.row_count} rows"
            )
        yield from (f"column {column.path!r} has {problem}" for problem in _column_contradictions(row))


def _column_contradictions(row: ColumnStatistics) -> Iterator[str]:
    """Yield a text for each contradiction between statistics of a column, such as `3 NaN among 2 values`."""
    for name, part, total, of in (
        ("NaN", row.nan_count, row.value_count, "values"),
        ("distinct values", row.distinct_count, row.value_count, "values"),
        ("values that occur more than once", row.duplicate_count, row.distinct_count, "distinct values"),
        ("values that are true", row.true_count, row.value_count, "values"),
    ):
        if part is not None and total is not None and part > total:
            yield f"{part} {name} among {total} {of}"
    if row.minimum is not None and row.maximum is not None and order_key(row.minimum) > order_key(row.maximum):
        yield "a minimum that is greater than its maximum"
    low, high = row.minimum_length, row.maximum_length
    if low is not None and high is not None and low > high:
        yield f"a minimum length of {low} and a maximum length of {high}"


def _ago(age: timedelta) -> str:
    """Return an age as text, in the largest unit that fits at least twice: `90 min ago`, `3 h ago`."""
    seconds = age.total_seconds()
    if seconds < 0:
        return "in the future"
    for unit, length in (("days", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"
