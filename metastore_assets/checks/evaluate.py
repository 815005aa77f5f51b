"""Evaluates the checks of a table on one of its versions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from metastore_assets.checks import of_columns, of_tables, of_values
from metastore_assets.checks.drift import drift
from metastore_assets.checks.expectations import expectation
from metastore_assets.checks.result import CheckResult, Finding, PartitionFinding
from metastore_assets.checks.subject import Subject, Surroundings
from metastore_assets.checks.worst import named, with_failed_partitions, worst_first
from metastore_assets.config.check_entries import NamedCheck
from metastore_assets.config.check_models import Check
from metastore_assets.config.tables import TableConfig
from metastore_assets.errors import (
    ColumnNotFoundError,
    ConfigError,
    LiteralError,
    NotKeptError,
    ObjectNotFoundError,
    VersionNotFoundError,
)
from metastore_assets.expressions.wildcards import matches_wildcards
from metastore_assets.lookup import Table
from metastore_assets.messages import close_names, near_names
from metastore_assets.report.text import plural

Evaluation: TypeAlias = Callable[[Any, Subject], Finding]

EVALUATIONS: Mapping[str, Evaluation] = {
    "fresh": of_tables.fresh,
    "current": of_tables.current,
    "complete": of_tables.complete,
    "consistent": of_tables.consistent,
    "row_count": of_tables.row_count,
    "row_count_change": of_tables.row_count_change,
    "not_null": of_columns.not_null,
    "null_share": of_columns.null_share,
    "unique": of_columns.unique,
    "accepted_values": of_values.accepted_values,
    "range": of_columns.value_range,
    "matches": of_values.matches,
    "lengths": of_columns.lengths,
    "drift": drift,
}
"""How each check is answered, by its name in the configuration."""


def evaluate_checks(checks: Sequence[NamedCheck], table: Table, around: Surroundings) -> list[CheckResult]:
    """Return the results of checks of a table, in their order. Never reads the table's files.

    Partitions are gone through once, whatever the number of checks of them. A check that does not fit the table has
    failed, and says why: it names a column that the table does not have, or a value of another type.
    """
    chosen = {own.name: _Partitions.of(own, table) for own in checks if own.check.partitions}
    found: dict[str, list[PartitionFinding]] = {name: [] for name in chosen}
    misfits: dict[str, Finding] = {}
    each = [own for own in checks if own.name in chosen and chosen[own.name].keys]
    whole: dict[str, Finding | None] = {}
    for own in each:
        with _recording_misfit(own, misfits):
            whole[own.name] = _of_every_partition(own, table, around)
    for entry in table.partitions() if each else ():
        for own in each:
            if entry.key in chosen[own.name].keys and own.name not in misfits:
                with _recording_misfit(own, misfits):
                    finding = whole[own.name] or evaluate(own, Subject(table, around, entry.key, own.column))
                    found[own.name].append(PartitionFinding(entry.key, finding))
    results = []
    for own in checks:
        if own.name in chosen and own.name not in misfits:
            finding = of_all(found[own.name], chosen[own.name].missing, own.check)
            results.append(_result(own, table, finding, found[own.name]))
            continue
        if own.name not in misfits:
            with _recording_misfit(own, misfits):
                results.append(_result(own, table, evaluate(own, Subject(table, around, None, own.column))))
        if own.name in misfits:
            results.append(_result(own, table, misfits[own.name]))
    return results


@contextmanager
def _recording_misfit(own: NamedCheck, misfits: dict[str, Finding]) -> Iterator[None]:
    """Record, by the check's name, that it does not fit the table."""
    try:
        yield
    except (ColumnNotFoundError, LiteralError, ConfigError) as error:
        misfits[own.name] = Finding("failed", f"the check does not fit the table: {error}", "absent")


def _of_every_partition(own: NamedCheck, table: Table, around: Surroundings) -> Finding | None:
    """What is found of each partition without looking at it: what holds of every row of the table holds of theirs."""
    if not own.check.is_of_each_row:
        return None
    finding = evaluate(own, Subject(table, around, None, own.column))
    return finding if finding.status == "passed" else None


@dataclass(frozen=True)
class _Partitions:
    """The partitions that a check is to look at."""

    keys: frozenset[str]
    missing: str | None
    """What there is none of, for people."""

    @classmethod
    def of(cls, own: NamedCheck, table: Table) -> _Partitions:
        every = [entry.key for entry in table.partitions()]
        known, found, missing = set(every), set(), None
        for pattern in own.check.partitions:
            fitting = {pattern} & known or {key for key in every if matches_wildcards(key, pattern)}
            if not fitting and pattern != "*":
                missing = f"no partition fits {pattern!r} in version {table.version.number}{near_names(pattern, every)}"
            found |= fitting
        return cls(frozenset(found), missing)


def chosen_checks(table: TableConfig, names: Sequence[str] = ()) -> list[NamedCheck]:
    """The checks of a table, or those of them that are named. Raises ConfigError for a name that none has."""
    checks = table.named_checks()
    known = [own.name for own in checks]
    for name in names:
        if name not in known:
            there = close_names(name, known, "; there are: {}") or ", which has none"
            raise ConfigError(f"no check {name!r} of table {table.name!r}{there}")
    return [own for own in checks if not names or own.name in names]


def evaluate(own: NamedCheck, subject: Subject) -> Finding:
    """What one check finds. What is not kept makes it unknown. Raises what a check does that does not fit the table."""
    try:
        return EVALUATIONS[own.check.kind](own.check, subject)
    except NotKeptError as error:
        return Finding("unknown", str(error), "absent", None)
    except (ObjectNotFoundError, VersionNotFoundError) as error:
        # Of an earlier version, or of this one while a newer one is published: nothing that says what is true.
        return Finding("unknown", str(error), "absent", "check again")


def of_all(found: Sequence[PartitionFinding], missing: str | None = None, check: Check | None = None) -> Finding:
    """What is found of all partitions together: failed if one has, else unknown if one is, or is `missing`.

    Names the first, or those where `check` is violated most.
    """
    if missing is not None and not any(own.finding.status == "failed" for own in found):
        return Finding("unknown", missing, "absent")
    if not found:
        return Finding("passed", "no partitions")
    counts = {status: [own for own in found if own.finding.status == status] for status in ("failed", "unknown")}
    decided = next((status for status in ("failed", "unknown") if counts[status]), "passed")
    if decided == "passed":
        return Finding("passed", f"passed in {plural(len(found), 'partition')}")
    those = counts[decided]
    those = those if check is None else worst_first(check, those)
    told = f"{decided} in {len(those):,} of {plural(len(found), 'partition')}: {named(those)}"
    first = those[0].finding
    return replace(first, found=told, measures={"partitions": len(found), decided: len(those)})


def with_partitions(own: NamedCheck, result: CheckResult, table: Table, around: Surroundings) -> CheckResult:
    """Return the result with the partitions that fail, worst first, where the table as a whole fails a check."""
    keys = [entry.key for entry in table.partitions()] if table.version.partition_columns else []
    return with_failed_partitions(
        own.check, result, keys, lambda key: evaluate(own, Subject(table, around, key, own.column))
    )


def _result(
    own: NamedCheck, table: Table, finding: Finding, partitions: Sequence[PartitionFinding] | None = None
) -> CheckResult:
    check: Check = own.check
    return CheckResult(
        own.name,
        check.kind,
        own.column,
        check.severity,
        check.blocking,
        expectation(check),
        table.version.number,
        table.version.snapshot,
        finding,
        partitions,
    )
