"""Checks of a table: its age, its files, its rows, and whether its numbers agree."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from fractions import Fraction
from typing import TYPE_CHECKING, TypeVar

from metastore_assets.checks.result import Finding, verdict
from metastore_assets.checks.subject import Subject
from metastore_assets.config.check_models import Complete, Consistent, Current, Fresh, RowCount, RowCountChange
from metastore_assets.errors import MetastoreError, SnapshotNotFoundError, StoreError, TableNotFoundError
from metastore_assets.report.text import number, plural
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.store.manifest import FragmentEntry, Version
from metastore_assets.values.leaf_columns import schema_leaves
from metastore_assets.values.physical import order_key

if TYPE_CHECKING:
    from metastore_assets.formats.base import Fragment

T = TypeVar("T")

_MOST_PROBLEMS = 10


def fresh(check: Fresh, subject: Subject) -> Finding:
    """Whether the snapshot that is described was committed lately enough."""
    version, now = subject.table.version, subject.around.now
    if version.committed_at is not None:
        age = now - version.committed_at
        measures = {"age_seconds": round(age.total_seconds())}
        found = f"committed {ago(age)}, at {version.committed_at.isoformat(timespec='seconds')}"
        return Finding(verdict(age <= check.within), found, measures=measures)
    age = now - version.published_at
    found = f"seen {ago(age)}; the format records no time of commits"
    if age > check.within:
        # What was seen had been committed before.
        return Finding("failed", found, "bound")
    return Finding("unknown", found, "bound", f"nothing: {version.format} tables do not say when they changed")


def current(check: Current, subject: Subject) -> Finding:
    """Whether the version describes what the table holds now."""
    version = subject.table.version
    now = _asked(subject.around.reference)
    if isinstance(now, Finding):
        return now
    if (now.id, now.committed_at) == (version.snapshot, version.committed_at):
        return Finding("passed", f"snapshot {now.id}")
    found = f"the table is in snapshot {now.id}, and version {version.number} is of {version.snapshot}"
    return Finding("failed", found)


def _asked(ask: Callable[[], T]) -> T | Finding:
    """What a table's metadata say; where they cannot be read, that the table has gone, or that nothing is known."""
    try:
        return ask()
    except TableNotFoundError as error:
        return Finding("failed", absence(error))
    except MetastoreError as error:
        problem = str(error)
    except Exception as error:  # noqa: BLE001 (the clients of object stores raise whatever they like)
        problem = str(StoreError(f"{type(error).__name__}: {error}"))
    return Finding("unknown", f"the table's metadata cannot be read: {problem}", "absent", "check again")


def absence(error: TableNotFoundError) -> str:
    """What is not there any more of a table: itself, or the state that its configuration's `at` names."""
    what = "the state that is meant" if isinstance(error, SnapshotNotFoundError) else "the table"
    return f"{what} is not there any more: {error}"


def complete(check: Complete, subject: Subject) -> Finding:
    """Whether the version has the files of the table, and as many rows of each as the format's metadata say."""
    version = subject.table.version
    snapshot = _asked(subject.around.snapshot)
    if isinstance(snapshot, Finding):
        return snapshot
    if (snapshot.id, snapshot.committed_at) != (version.snapshot, version.committed_at):
        found = f"the table is in snapshot {snapshot.id} now, and version {version.number} is of {version.snapshot}"
        return Finding("unknown", found, "absent", f"metastore refresh {version.table}")
    live = {entry.id: entry for entry in version.fragments if entry.retired is None}
    problems = list(_differences(live, snapshot.fragments))
    if problems:
        return Finding("failed", "; ".join(problems[:_MOST_PROBLEMS]))
    untold = sum(fragment.row_count is None for fragment in snapshot.fragments)
    told = f"{plural(len(live), 'file')}, {plural(version.row_count, 'row')}"
    if untold:
        found = f"{told}; the table's metadata do not tell the rows of {plural(untold, 'file')}"
        return Finding("unknown", found, "absent", f"metastore verify {version.table}, which reads the files")
    return Finding("passed", told, measures={"files": len(live), "rows": version.row_count})


def _differences(live: dict[str, FragmentEntry], fragments: Sequence[Fragment]) -> Iterator[str]:
    there = {fragment.id: fragment for fragment in fragments}
    for own in live.values():
        if own.id not in there:
            yield f"{own.path} is no file of the table"
    for fragment in fragments:
        entry = live.get(fragment.id)
        if entry is None:
            yield f"{fragment.path} is not described"
        elif fragment.row_count is not None and fragment.row_count != entry.row_count:
            yield f"{fragment.path} has {fragment.row_count:,} rows, of which {entry.row_count:,} are described"


def consistent(check: Consistent, subject: Subject) -> Finding:
    """Whether the numbers of the version agree with each other."""
    version, rows = subject.table.version, subject.table.statistics()
    problems = list(contradictions(version, rows))
    if problems:
        return Finding("failed", "; ".join(problems[:_MOST_PROBLEMS]))
    return Finding(
        "passed",
        f"{plural(version.row_count, 'row')} in {plural(len(version.partitions), 'partition')}, "
        f"{plural(len(rows), 'column')}",
    )


def contradictions(version: Version, rows: Sequence[ColumnStatistics]) -> Iterator[str]:
    """What does not add up. `rows` are the statistics of the table."""
    partitions = sum(entry.row_count for entry in version.partitions)
    if partitions != version.row_count:
        yield f"the partitions have {partitions} rows and the table has {version.row_count}"
    known = {row.column: row for row in rows}
    for leaf in (leaf for leaves in schema_leaves(version.schema) for leaf in leaves):
        row = known.get(leaf.path)
        if row is None:
            yield f"column {leaf.path!r} has no statistics"
            continue
        if not leaf.repeated and row.value_count + row.null_count != version.row_count:
            yield (
                f"column {leaf.path!r} has {row.value_count} values and {row.null_count} nulls in "
                f"{version.row_count} rows"
            )
        yield from (f"column {leaf.path!r} has {problem}" for problem in _contradictions(row))


def _contradictions(row: ColumnStatistics) -> Iterator[str]:
    for name, part, whole, of in (
        ("NaN", row.nan_count, row.value_count, "values"),
        ("distinct values", row.distinct_count, row.value_count, "values"),
        ("values that occur more than once", row.duplicate_count, row.distinct_count, "distinct values"),
        ("values that are true", row.true_count, row.value_count, "values"),
    ):
        if part is not None and whole is not None and part > whole:
            yield f"{part} {name} among {whole} {of}"
    if row.minimum is not None and row.maximum is not None and order_key(row.minimum) > order_key(row.maximum):
        yield "a least value that is greater than its greatest"
    lengths = row.minimum_length, row.maximum_length
    if lengths[0] is not None and lengths[1] is not None and lengths[0] > lengths[1]:
        yield f"a least length of {lengths[0]} and a greatest of {lengths[1]}"


def row_count(check: RowCount, subject: Subject) -> Finding:
    """Whether there are so many rows."""
    rows = subject.rows
    low, high = check.minimum or 0, check.maximum
    is_within = low <= rows and (high is None or rows <= high)
    return Finding(verdict(is_within), plural(rows, "row"), measures={"rows": rows})


def row_count_change(check: RowCountChange, subject: Subject) -> Finding:
    """How much the number of rows is another than it was."""
    earlier = subject.earlier(check.against)
    rows = subject.rows
    if earlier is None:
        return Finding("passed", f"{plural(rows, 'row')} in a partition that there was not", measures={"rows": rows})
    before = earlier.rows
    told = f"{number(before)} → {number(rows)} rows since version {earlier.table.version.number}"
    if not before:
        # Of nothing no part is known: no rows are no change, and any row is beyond every bound.
        status = verdict(not rows or check.upper is None)
        return Finding(status, told, measures={"rows": rows})
    change = Fraction(rows - before, before)
    is_within = (check.lower is None or change >= Fraction(check.lower)) and (
        check.upper is None or change <= Fraction(check.upper)
    )
    measures = {"rows": rows, "change": float(change)}
    return Finding(verdict(is_within), f"{float(change):+.1%}: {told}", measures=measures)


def ago(age: timedelta) -> str:
    """`3 h ago`: in the largest unit that there is more than one of."""
    seconds = age.total_seconds()
    if seconds < 0:
        return "in the future"
    for unit, length in (("days", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"
