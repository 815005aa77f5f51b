"""The partitions in which a failed check fails, the worst first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from metastore_assets.checks.result import CheckResult, Finding, PartitionFinding
from metastore_assets.config.check_models import Check, Lengths, NullShare, Range, RowCount
from metastore_assets.errors import MetastoreError
from metastore_assets.report.text import plural

if TYPE_CHECKING:
    from collections.abc import Callable

_MOST_NAMED = 5
_OF_STATISTICS = ("not_null", "null_share", "unique", "lengths")
"""Checks that the statistics of a partition answer, which are read of all partitions at once."""
_OF_VALUES = ("range", "accepted_values", "matches")
"""Checks that may read the value counts of each partition."""
_MOST_READ = 200
"""Partitions up to which value counts are read: each takes some 10 ms, and more in an object store."""


def with_failed_partitions(
    check: Check, result: CheckResult, keys: Sequence[str], evaluate: Callable[[str], Finding]
) -> CheckResult:
    """Return the result of a check of the table as a whole, with the partitions that fail it by themselves.

    Args:
        check: The check.
        result: Its result. Returned as it is, unless it failed and is of the table as a whole.
        keys: The partitions of the table.
        evaluate: Evaluates the check on the partition with that key. May raise MetastoreError, which leaves out all
            partitions: the result of the table does not depend on them.
    """
    is_known = check.kind in _OF_STATISTICS or (check.kind in _OF_VALUES and len(keys) <= _MOST_READ)
    if result.status != "failed" or result.partitions is not None or len(keys) < 2 or not is_known:
        return result
    try:
        findings = [PartitionFinding(key, evaluate(key)) for key in keys]
    except MetastoreError:
        return result
    failed = worst_first(check, (each for each in findings if each.finding.status == "failed"))
    if failed:
        where = f"in {len(failed):,} of {plural(len(keys), 'partition')}: {named(failed)}"
    elif all(each.finding.status == "passed" for each in findings):
        where = f"in none of {plural(len(keys), 'partition')} by itself"
    else:
        return result
    finding = replace(result.finding, found=f"{result.finding.found}; {where}")
    return replace(result, finding=finding, partitions=failed)


def worst_first(check: Check, findings: Iterable[PartitionFinding]) -> list[PartitionFinding]:
    """Return the findings by decreasing distance from what is expected; equally bad ones in the order given."""
    return sorted(findings, key=lambda each: -_distance(check, each.finding))


def named(findings: Sequence[PartitionFinding]) -> str:
    """Return the first partitions with what was found of each, and the number of the others."""
    first = "; ".join(f"{each.partition}: {each.finding.found}" for each in findings[:_MOST_NAMED])
    return first + (f" and {len(findings) - _MOST_NAMED:,} more" if len(findings) > _MOST_NAMED else "")


def _distance(check: Check, finding: Finding) -> float:
    """Return how far a finding is from what is expected; 0 if no number says it."""
    measures = finding.measures
    if check.kind == "not_null":
        return measures.get("nulls", 0)
    if check.kind == "unique":
        return measures.get("values", 0) - measures.get("distinct", 0)
    if check.kind == "matches":
        return 1 - measures.get("matching_share", 1)
    if check.kind == "row_count_change":
        return abs(measures.get("change", 0))
    if isinstance(check, NullShare):
        return _beyond(check.least, measures.get("null_share"), measures.get("null_share"), check.most)
    if isinstance(check, RowCount):
        return _beyond(check.minimum, measures.get("rows"), measures.get("rows"), check.maximum)
    if isinstance(check, Lengths):
        return _beyond(check.minimum, measures.get("minimum_length"), measures.get("maximum_length"), check.maximum)
    if isinstance(check, Range):
        return _beyond(check.minimum, measures.get("minimum"), measures.get("maximum"), check.maximum)
    return 0


def _beyond(low: object, least: float | None, greatest: float | None, high: object) -> float:
    """Return by how much values from `least` to `greatest` exceed two limits, where both are numbers."""
    distances = [0.0]
    for limit, value, sign in ((low, least, 1), (high, greatest, -1)):
        if value is not None and limit is not None:
            try:
                distances.append(sign * (float(str(limit)) - value))
            except ValueError:
                continue  # a time, or text
    return max(distances)
