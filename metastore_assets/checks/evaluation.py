"""Evaluation of a table's checks on a version: the published statistics of the table at one snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from metastore_assets.checks.base import Check, Finding, nothing_to_check
from metastore_assets.checks.check_results import CheckResult, PartitionFinding
from metastore_assets.checks.configured_checks import NamedCheck, read_named_checks
from metastore_assets.checks.subject import CheckContext, Subject
from metastore_assets.config import TableConfig
from metastore_assets.errors import (
    ColumnNotFoundError,
    ConfigError,
    LiteralError,
    MetastoreError,
    NotStoredError,
    ObjectNotFoundError,
    PartitionNotFoundError,
    VersionNotFoundError,
)
from metastore_assets.expressions.partition_patterns import match_partitions
from metastore_assets.lookup import Table
from metastore_assets.messages import close_names
from metastore_assets.report.text import format_count

_MAX_NAMED = 5
"""The maximum number of partitions that a finding names."""
_MAX_VALUE_COUNT_READS = 200
"""The maximum number of partitions whose value counts are read to find failures. One takes about 10 ms on local disk.
"""


def evaluate_checks(checks: Sequence[NamedCheck], table: Table, context: CheckContext) -> list[CheckResult]:
    """Evaluate checks on a version, without reading the table's data files.

    Return the results in the same order.

    A check fails if it does not fit the table: for example, its column does not exist, or its value is of another type
    than the column. The finding says why.

    Args:
        checks: The checks.
        table: The table, opened at the version.
        context: Gives access to earlier versions and to the table's metadata.
    """
    by_partition = _evaluate_by_partition([check for check in checks if check.check.partitions], table, context)
    return [by_partition.get(check.name) or _evaluate_table(check, table, context) for check in checks]


def _evaluate_table(check: NamedCheck, table: Table, context: CheckContext) -> CheckResult:
    misfits: dict[str, Finding] = {}
    with _recording_misfit(check, misfits):
        return _result(check, table, evaluate(check, Subject(table, context, None, check.column)))
    return _result(check, table, misfits[check.name])


def _evaluate_by_partition(checks: Sequence[NamedCheck], table: Table, context: CheckContext) -> dict[str, CheckResult]:
    """Evaluate checks that have the setting `partitions`, in one pass over the partitions.

    Return the results by name.
    """
    selections = {check.name: _PartitionSelection.of(check, table) for check in checks}
    findings: dict[str, list[PartitionFinding]] = {check.name: [] for check in checks}
    misfits: dict[str, Finding] = {}
    shared_findings: dict[str, Finding | None] = {}
    applicable = [check for check in checks if selections[check.name].keys]
    for check in checks:
        with _recording_misfit(check, misfits):
            if selections[check.name].keys:
                shared_findings[check.name] = _finding_of_all_partitions(check, table, context)
            else:
                # Without partitions, too, a check that does not fit the table fails.
                evaluate(check, Subject(table, context, None, check.column))
    for entry in table.partitions() if applicable else ():
        for check in applicable:
            if entry.key in selections[check.name].keys and check.name not in misfits:
                with _recording_misfit(check, misfits):
                    shared_finding = shared_findings[check.name]
                    finding = shared_finding or evaluate(check, Subject(table, context, entry.key, check.column))
                    findings[check.name].append(PartitionFinding(entry.key, finding))
    results = {}
    for check in checks:
        if check.name in misfits:
            results[check.name] = _result(check, table, misfits[check.name])
        else:
            partitions = findings[check.name]
            finding = combine_findings(partitions, selections[check.name].missing, check.check)
            results[check.name] = _result(check, table, finding, partitions)
    return results


def evaluate(check: NamedCheck, subject: Subject) -> Finding:
    """Evaluate one check.

    The finding is `unknown` if the version does not store a number that the check needs, or if a version that the
    check needs expired meanwhile.

    Raises:
        ColumnNotFoundError, LiteralError, ConfigError: The check does not fit the table.
    """
    try:
        return check.check.evaluate(subject)
    except NotStoredError as error:
        return Finding("unknown", str(error), "absent", None)
    except (ObjectNotFoundError, VersionNotFoundError) as error:
        # A version expired meanwhile. That says nothing about the table.
        return Finding("unknown", str(error), "absent", "check again")


def select_checks(table: TableConfig, names: Sequence[str] = ()) -> list[NamedCheck]:
    """Return the configured checks of a table with these names; all checks if `names` is empty.

    Raises ConfigError for an unknown name.
    """
    checks = read_named_checks(table)
    existing_names = [check.name for check in checks]
    for name in names:
        if name not in existing_names:
            suffix = close_names(name, existing_names, "; there are: {}") or ", which has none"
            raise ConfigError(f"no check {name!r} of table {table.name!r}{suffix}")
    return [check for check in checks if not names or check.name in names]


@contextmanager
def _recording_misfit(check: NamedCheck, misfits: dict[str, Finding]) -> Iterator[None]:
    """Record a `failed` finding if the block raises an error because a check does not fit the table.

    For example, the column of the check does not exist. The error is not raised further.

    Args:
        check: The check.
        misfits: Receives the finding, by the check's name.
    """
    try:
        yield
    except (ColumnNotFoundError, LiteralError, ConfigError) as error:
        misfits[check.name] = Finding("failed", f"the check does not fit the table: {error}", "absent")


def _finding_of_all_partitions(check: NamedCheck, table: Table, context: CheckContext) -> Finding | None:
    """Return the finding for the whole table, if it shows that the check passes for each partition, too.

    The result is None if the check does not pass for the table. It is also None for a check that can fail for a
    partition although it passes for the table.
    """
    if not check.check.holds_for_subsets:
        return None
    finding = evaluate(check, Subject(table, context, None, check.column))
    return finding if finding.status == "passed" else None


@dataclass(frozen=True)
class _PartitionSelection:
    """The partitions that a check is evaluated for."""

    keys: frozenset[str]
    missing: str | None
    """A message about a pattern that matches no partition; None if each pattern matches some."""

    @classmethod
    def of(cls, check: NamedCheck, table: Table) -> _PartitionSelection:
        """Return the partitions of a version that match a pattern in the check's setting `partitions`."""
        all_keys = [entry.key for entry in table.partitions()]
        selected_keys: set[str] = set()
        missing = None
        for pattern in check.check.partitions:
            try:
                selected_keys |= match_partitions(table.version.table, [pattern], all_keys)
            except PartitionNotFoundError as error:
                missing = str(error)
        return cls(frozenset(selected_keys), missing)


def combine_findings(
    findings: Sequence[PartitionFinding], missing: str | None = None, check: Check | None = None
) -> Finding:
    """Combine the findings of partitions into one.

    It is `failed` if any failed, else `unknown` if any is unknown, else `passed`.

    Args:
        findings: The findings of the partitions.
        missing: A message about partitions that do not exist. If no partition failed, it makes the finding `unknown`.
        check: The check. The finding names the partitions that violate it most. Without it, the finding names the
            first partitions in `findings` that did not pass.
    """
    if missing is not None and not any(each.finding.status == "failed" for each in findings):
        return Finding("unknown", missing, "absent")
    if not findings:
        return nothing_to_check("partitions")
    by_status = {
        status: [each for each in findings if each.finding.status == status] for status in ("failed", "unknown")
    }
    status = next((status for status in ("failed", "unknown") if by_status[status]), "passed")
    if status == "passed":
        return Finding("passed", f"passed in {format_count(len(findings), 'partition')}")
    relevant = by_status[status]
    relevant = relevant if check is None else sort_by_violation(check, relevant)
    observation = (
        f"{status} in {len(relevant):,} of {format_count(len(findings), 'partition')}: {_name_partitions(relevant)}"
    )
    measures = {"partitions": len(findings), status: len(relevant)}
    return replace(relevant[0].finding, observed=observation, measures=measures)


def add_failed_partitions(check: NamedCheck, result: CheckResult, table: Table, context: CheckContext) -> CheckResult:
    """Add to the result of a failed table check the partitions that cause the failure, worst first.

    If every single partition passes, the result says so. The result is unchanged if the check did not fail, or if the
    search is impossible or too expensive.

    Args:
        check: The check.
        result: Its result for the whole table.
        table: The table, opened at the version.
        context: Gives access to earlier versions and to the table's metadata.
    """
    keys = [entry.key for entry in table.partitions()] if table.version.partition_columns else []
    reads = check.check.drill_down
    is_cheap = reads == "statistics" or (reads == "values" and len(keys) <= _MAX_VALUE_COUNT_READS)
    if result.status != "failed" or result.partitions is not None or len(keys) < 2 or not is_cheap:
        return result
    try:
        findings = [PartitionFinding(key, evaluate(check, Subject(table, context, key, check.column))) for key in keys]
    except MetastoreError:
        return result
    failures = sort_by_violation(check.check, (each for each in findings if each.finding.status == "failed"))
    if failures:
        where = f"in {len(failures):,} of {format_count(len(keys), 'partition')}: {_name_partitions(failures)}"
    elif all(each.finding.status == "passed" for each in findings):
        where = f"in none of {format_count(len(keys), 'partition')} by itself"
    else:
        return result
    finding = replace(result.finding, observed=f"{result.finding.observed}; {where}")
    return replace(result, finding=finding, partitions=failures)


def sort_by_violation(check: Check, findings: Iterable[PartitionFinding]) -> list[PartitionFinding]:
    """Sort findings by how much they violate the check, greatest first."""
    return sorted(findings, key=lambda each: -check.excess(each.finding.measures))


def _name_partitions(findings: Sequence[PartitionFinding]) -> str:
    """Return a text with the first five partitions and what was observed, and the number of the others."""
    first = "; ".join(f"{each.partition}: {each.finding.observed}" for each in findings[:_MAX_NAMED])
    return first + (f" and {len(findings) - _MAX_NAMED:,} more" if len(findings) > _MAX_NAMED else "")


def _result(
    check: NamedCheck, table: Table, finding: Finding, partitions: Sequence[PartitionFinding] | None = None
) -> CheckResult:
    return CheckResult(
        name=check.name,
        kind=check.check.kind,
        column=check.column,
        severity=check.check.severity,
        blocking=check.check.blocking,
        expected=check.check.expectation,
        version=table.version.number,
        snapshot=table.version.snapshot,
        finding=finding,
        partitions=partitions,
    )
