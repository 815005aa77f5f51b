"""The results of checks of a version, and their JSON form.

A version is the published statistics of a table at one snapshot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from metastore_assets.checks.base import Finding, Status
from metastore_assets.lookup.json import Json, float_json, integer_json
from metastore_assets.store.version import Version

_MAX_PARTITIONS = 20
"""The maximum number of partitions in the JSON of a result."""


@dataclass(frozen=True)
class PartitionFinding:
    """The outcome of a check for one partition."""

    partition: str
    """Key of the partition."""
    finding: Finding


@dataclass(frozen=True)
class CheckResult:
    """The result of one check of a version."""

    name: str
    kind: str
    column: str | None
    severity: Literal["error", "warn"]
    blocking: bool
    expected: str
    """What the check expects, as one line of text."""
    version: int
    snapshot: str
    finding: Finding
    """The outcome for the table, or the combined outcome of all partitions for a check that has `partitions`."""
    partitions: Sequence[PartitionFinding] | None = None
    """The outcomes of single partitions. A check that has `partitions` has all of them, in ascending order of keys. A
    failed check of the table has only the failing partitions, if these were searched. None for other results, and for a
    check that does not fit the table."""

    @property
    def status(self) -> Status:
        """The status of the finding."""
        return self.finding.status

    @property
    def is_violated(self) -> bool:
        """Whether the check failed with severity `error`."""
        return self.status == "failed" and self.severity == "error"

    def to_json(self) -> Json:
        """Return the JSON of `metastore check --json`, with the first 20 partitions that did not pass."""
        document: dict[str, Any] = {
            "check": self.name,
            "kind": self.kind,
            "column": self.column,
            "severity": self.severity,
            "status": self.status,
            "expected": self.expected,
            "observed": self.finding.observed,
            "guarantee": self.finding.guarantee,
            "advice": self.finding.advice,
            "measures": {name: _number_json(value) for name, value in self.finding.measures.items()},
        }
        if self.partitions is None:
            return document
        not_passed = [each for each in self.partitions if each.finding.status != "passed"]
        counts = dict.fromkeys(("passed", "failed", "unknown"), 0)
        for each in self.partitions:
            counts[each.finding.status] += 1
        return {
            **document,
            "partitions": {
                **counts,
                "first": [
                    {"partition": each.partition, "status": each.finding.status, "observed": each.finding.observed}
                    for each in sorted(not_passed, key=lambda each: each.finding.status != "failed")[:_MAX_PARTITIONS]
                ],
            },
        }


def results_json(version: Version, results: Sequence[CheckResult]) -> Json:
    """Return the JSON of all results of a version.

    Its `status` is `failed` if a check of severity `error` failed.
    """
    counts = Counter(result.status for result in results)
    return {
        "table": version.table,
        "version": version.number,
        "snapshot": version.snapshot,
        "status": "failed" if any(result.is_violated for result in results) else "passed",
        "passed": counts["passed"],
        "failed": counts["failed"],
        "unknown": counts["unknown"],
        "checks": [result.to_json() for result in results],
    }


def _number_json(value: int | float) -> int | float | str | None:
    return integer_json(value) if isinstance(value, int) else float_json(value)
