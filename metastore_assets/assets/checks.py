"""The checks of a table as Dagster asset checks, evaluated by the run that publishes a version."""

from collections.abc import Collection, Iterator

from dagster import (
    AssetCheckKey,
    AssetCheckResult,
    AssetCheckSeverity,
    AssetCheckSpec,
    AssetKey,
    MetadataValue,
    TableRecord,
)

from metastore_assets.assets.metadata import rounded
from metastore_assets.checks.entries import NamedCheck, read_named_checks
from metastore_assets.checks.evaluation import add_failed_partitions, evaluate_checks, sort_by_violation
from metastore_assets.checks.results import CheckResult
from metastore_assets.checks.subject import CheckContext
from metastore_assets.checks.table_checks import Consistent, Current
from metastore_assets.config.models import TableConfig
from metastore_assets.lookup import Table
from metastore_assets.report.markdown import code_markdown, literal_markdown
from metastore_assets.report.text import shorten

_IMPLIED = (Current(severity="warn"), Consistent())
_MOST_PARTITIONS = 20
_TEXT = 1000


def table_checks(table: TableConfig) -> list[NamedCheck]:
    """Return the configured checks and the checks that every table has."""
    configured = {type(check.check) for check in read_named_checks(table)}
    return read_named_checks(table, [check for check in _IMPLIED if type(check) not in configured])


def name_of_current(table: TableConfig) -> str:
    """Return the name of the table's `current` check, which compares the newest version with the snapshot."""
    return next(own.name for own in table_checks(table) if isinstance(own.check, Current))


def specs_of_checks(table: TableConfig, asset: AssetKey) -> list[AssetCheckSpec]:
    """Return the specs of the table's checks, attached to `asset`."""
    return [
        AssetCheckSpec(
            own.name,
            asset=asset,
            description=_sentence(own),
            blocking=own.check.blocking,
            metadata={"kind": own.check.kind, "severity": own.check.severity}
            | ({} if own.column is None else {"column": own.column}),
        )
        for own in table_checks(table)
    ]


def check_results(
    selected: Collection[AssetCheckKey], table: TableConfig, lookup: Table, check_context: CheckContext
) -> Iterator[AssetCheckResult]:
    """Yield the results of the selected checks. A check that does not fit the table fails with the reason."""
    keys = {key.name: key for key in selected}
    checks = [own for own in table_checks(table) if own.name in keys]
    for own, result in zip(checks, evaluate_checks(checks, lookup, check_context), strict=True):
        yield _check_result(keys[own.name], own, add_failed_partitions(own, result, lookup, check_context))


def _check_result(key: AssetCheckKey, own: NamedCheck, result: CheckResult) -> AssetCheckResult:
    """Return a check result for Dagster. An unknown result does not pass, and is a warning that never blocks."""
    finding = result.finding
    unknown = result.status == "unknown"
    advice = f"; it would be answered by {finding.advice}" if unknown and finding.advice else ""
    metadata: dict[str, MetadataValue] = {  # type: ignore[type-arg]
        "status": MetadataValue.text(result.status),
        "expected": MetadataValue.text(result.expected),
        "observed": MetadataValue.text(shorten(finding.observed, _TEXT)),
        "guarantee": MetadataValue.text(finding.guarantee),
        # As text, because Dagster would plot a number.
        "version": MetadataValue.text(str(result.version)),
        **{name: rounded(value) for name, value in finding.measures.items()},
    }
    others = sort_by_violation(own.check, [each for each in result.partitions or () if each.finding.status != "passed"])
    if others:
        metadata["partitions"] = MetadataValue.table(
            [
                TableRecord(
                    {
                        "partition": each.partition,
                        "status": each.finding.status,
                        "observed": shorten(each.finding.observed, _TEXT),
                    }
                )
                for each in sorted(others, key=lambda each: each.finding.status != "failed")[:_MOST_PARTITIONS]
            ]
        )
    return AssetCheckResult(
        asset_key=key.asset_key,
        check_name=key.name,
        passed=result.status == "passed",
        severity=AssetCheckSeverity.WARN if unknown else _SEVERITIES[result.severity],
        # The advice is Markdown written by this package.
        description=f"{literally(f'unknown: {finding.observed}' if unknown else finding.observed)}{advice}",
        metadata=metadata,
    )


def literally(text: str) -> str:
    """Return text escaped for Dagster's Markdown, because values of a table can contain anything."""
    return literal_markdown(text, _TEXT)


def _sentence(own: NamedCheck) -> str:
    where = "" if own.column is None else f"{code_markdown(own.column)}: "
    return f"{where}{literally(own.check.expectation)}."


_SEVERITIES = {"error": AssetCheckSeverity.ERROR, "warn": AssetCheckSeverity.WARN}
