"""What checks find."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from metastore_assets.lookup.json import float_json, integer_json
from metastore_assets.statistics.column import Guarantee

Status: TypeAlias = Literal["passed", "failed", "unknown"]
"""`unknown`: what is kept does not tell. Never a guess: such a check has neither passed nor failed."""

_MOST_PARTITIONS = 20


def verdict(is_so: bool) -> Status:
    """Of what is known."""
    return "passed" if is_so else "failed"


@dataclass(frozen=True)
class Finding:
    """What a check finds of a table, or of one of its partitions."""

    status: Status
    found: str
    """For people, on one line."""
    guarantee: Guarantee = "exact"
    """What the number is worth that decided it, or that does not suffice to decide it."""
    advice: str | None = None
    """What would answer a check that is `unknown`."""
    measures: Mapping[str, int | float] = field(default_factory=dict)
    """The numbers in `found`, by name, to be followed from version to version."""


@dataclass(frozen=True)
class PartitionFinding:
    """What a check finds of one partition."""

    partition: str
    finding: Finding


@dataclass(frozen=True)
class CheckResult:
    """What one check finds of a version."""

    name: str
    kind: str
    column: str | None
    severity: Literal["error", "warn"]
    blocking: bool
    expected: str
    """For people, on one line."""
    version: int
    snapshot: str
    finding: Finding
    """Of the table; of a check of partitions, of all of them together."""
    partitions: Sequence[PartitionFinding] | None = None
    """Of a check of partitions, what is found of each, in the order of the version; None for one of the table."""

    @property
    def status(self) -> Status:
        """Of partitions: failed if one has, else unknown if one is."""
        return self.finding.status

    @property
    def is_violated(self) -> bool:
        """Whether it has failed, and that is an error."""
        return self.status == "failed" and self.severity == "error"

    def to_json(self) -> dict[str, Any]:
        """As `metastore check --json` prints it. Of partitions those that have not passed are listed, the first 20."""
        told = {
            "check": self.name,
            "kind": self.kind,
            "column": self.column,
            "severity": self.severity,
            "status": self.status,
            "expected": self.expected,
            "found": self.finding.found,
            "guarantee": self.finding.guarantee,
            "advice": self.finding.advice,
            "measures": {name: _number(value) for name, value in self.finding.measures.items()},
        }
        if self.partitions is None:
            return told
        listed = [own for own in self.partitions if own.finding.status != "passed"]
        counts = dict.fromkeys(("passed", "failed", "unknown"), 0)
        for own in self.partitions:
            counts[own.finding.status] += 1
        return {
            **told,
            "partitions": {
                **counts,
                "first": [
                    {"partition": own.partition, "status": own.finding.status, "found": own.finding.found}
                    for own in sorted(listed, key=lambda own: own.finding.status != "failed")[:_MOST_PARTITIONS]
                ],
            },
        }


def _number(value: int | float) -> int | float | str | None:
    return integer_json(value) if isinstance(value, int) else float_json(value)
