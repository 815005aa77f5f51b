"""Conversion of a table's checks to asset checks of Dagster.

A version is the published statistics of a table at one snapshot. A run that refreshes the table evaluates the
checks on the newest version, even if nothing has changed.
"""

import itertools
import math
from collections.abc import Collection, Iterator, Sequence

from dagster import (
    AssetCheckKey,
    AssetCheckResult,
    AssetCheckSeverity,
    AssetCheckSpec,
    AssetKey,
    MetadataValue,
    TableRecord,
)

from metastore_assets.assets.metadata import rounded_metadata
from metastore_assets.checks.check_results import CheckResult
from metastore_assets.checks.configured_checks import NamedCheck, read_named_checks
from metastore_assets.checks.evaluation import add_failed_partitions, evaluate_checks, sort_by_violation
from metastore_assets.checks.subject import CheckContext
from metastore_assets.checks.table_checks import Consistent, Current
from metastore_assets.config.models import TableConfig
from metastore_assets.exports.configured_targets import read_export_entries
from metastore_assets.exports.export_result import ExportResult
from metastore_assets.lookup import Table
from metastore_assets.report.markdown import code_markdown, literal_markdown
from metastore_assets.report.text import shorten

_DEFAULT_CHECKS = (Current(severity="warn"), Consistent())
_MAX_PARTITIONS = 20
_MAX_CELLS = 1000
"""The maximum length of a text in terminal cells."""


def table_checks(table: TableConfig) -> list[NamedCheck]:
    """Return the configured checks of a table, plus `current` and `consistent`.

    If one of these two is configured, it is not added again.
    """
    configured_types = {type(check.check) for check in read_named_checks(table)}
    return read_named_checks(table, [check for check in _DEFAULT_CHECKS if type(check) not in configured_types])


def current_check_name(table: TableConfig) -> str:
    """Return the name of the table's check of the kind `current`.

    The check passes if the newest version describes the table's current snapshot.
    """
    return next(named_check.name for named_check in table_checks(table) if isinstance(named_check.check, Current))


def check_specs(table: TableConfig, asset: AssetKey) -> list[AssetCheckSpec]:
    """Return the specs of the table's checks, attached to `asset`."""
    return [
        AssetCheckSpec(
            named_check.name,
            asset=asset,
            description=_description(named_check),
            blocking=named_check.check.blocking,
            metadata={"kind": named_check.check.kind, "severity": named_check.check.severity}
            | ({} if named_check.column is None else {"column": named_check.column}),
        )
        for named_check in table_checks(table)
    ]


def export_check_specs(table: TableConfig, asset: AssetKey) -> list[AssetCheckSpec]:
    """Return one check spec for each target under the key `exports`, attached to `asset`."""
    names = export_check_names(table)
    return [
        AssetCheckSpec(
            names[entry.name],
            asset=asset,
            description=f"{escape_markdown(entry.target.title)} has the statistics of the newest version.",
            metadata={"kind": "export", "target": entry.name},
        )
        for entry in read_export_entries(table)
    ]


def export_check_results(
    selected_check_keys: Collection[AssetCheckKey], table: TableConfig, lookup: Table, results: Sequence[ExportResult]
) -> Iterator[AssetCheckResult]:
    """Yield the results of the asset checks of the targets under `exports`.

    A check passes if its target is up to date.

    Args:
        selected_check_keys: The keys of the checks to evaluate.
        table: The resolved configuration of the table.
        lookup: The table, opened at the newest version.
        results: The results of this run's exports. A target without a result here is queried for its state.
    """
    keys = {key.name: key for key in selected_check_keys}
    check_names = export_check_names(table)
    names = [target for target, name in check_names.items() if name in keys]
    results_by_target = {result.target: result for result in results}
    if missing := [name for name in names if name not in results_by_target]:
        from metastore_assets.exports.writing import read_export_states

        results_by_target |= {
            result.target: result for result in read_export_states(table, lookup.objects, lookup.version, missing)
        }
    for name in names:
        yield _export_check_result(keys[check_names[name]], results_by_target[name])


def export_check_names(table: TableConfig) -> dict[str, str]:
    """Return the name of the check of each target under `exports`, such as `export_hive` for `hive`.

    If another check has this name, such as a configured one, a number is added: `export_hive_2`.
    """
    used_names = {named_check.name.lower() for named_check in table_checks(table)}
    names: dict[str, str] = {}
    for target in (entry.name for entry in read_export_entries(table)):
        numbered_names = (f"export_{target}_{number}" for number in itertools.count(2))
        name = next(
            name
            for name in (f"export_{target}", *itertools.islice(numbered_names, len(used_names) + 1))
            if name.lower() not in used_names
        )
        used_names.add(name.lower())
        names[target] = name
    return names


def _export_check_result(key: AssetCheckKey, result: ExportResult) -> AssetCheckResult:
    is_current = result.state in ("written", "current")
    description = f"version {result.version} is exported"
    if not is_current:
        had = "no export" if result.version is None else f"version {result.version}"
        description = result.error or f"the target has {had}"
    numbers = {"bytes": result.bytes, "columns": result.columns}
    metadata: dict[str, MetadataValue] = {  # type: ignore[type-arg]
        "state": MetadataValue.text(result.state),
        **{name: MetadataValue.int(number) for name, number in numbers.items() if number is not None},
        **({"notes": MetadataValue.text("; ".join(result.notes))} if result.notes else {}),
    }
    return AssetCheckResult(
        asset_key=key.asset_key,
        check_name=key.name,
        passed=is_current,
        severity=AssetCheckSeverity.ERROR,
        description=escape_markdown(description),
        metadata=metadata,
    )


def check_results(
    selected_check_keys: Collection[AssetCheckKey], table: TableConfig, lookup: Table, check_context: CheckContext
) -> Iterator[AssetCheckResult]:
    """Evaluate the selected checks on a version and yield their results for Dagster.

    A check that cannot be evaluated, for example because its column is missing, fails with the reason.

    Args:
        selected_check_keys: The keys of the checks to evaluate.
        table: The configuration of the table.
        lookup: The table, opened at the version.
        check_context: What checks compare the version with: earlier versions, the current snapshot and the time.
    """
    keys = {key.name: key for key in selected_check_keys}
    checks = [named_check for named_check in table_checks(table) if named_check.name in keys]
    for named_check, result in zip(checks, evaluate_checks(checks, lookup, check_context), strict=True):
        yield _check_result(
            keys[named_check.name], named_check, add_failed_partitions(named_check, result, lookup, check_context)
        )


def _check_result(key: AssetCheckKey, named_check: NamedCheck, result: CheckResult) -> AssetCheckResult:
    """Convert a check result to Dagster's `AssetCheckResult`.

    The status `unknown` becomes a warning, which does not block other assets.
    """
    finding = result.finding
    unknown = result.status == "unknown"
    advice = f"; it would be answered by {finding.advice}" if unknown and finding.advice else ""
    metadata: dict[str, MetadataValue] = {  # type: ignore[type-arg]
        "status": MetadataValue.text(result.status),
        "expected": MetadataValue.text(result.expected),
        "observed": MetadataValue.text(shorten(finding.observed, _MAX_CELLS)),
        "guarantee": MetadataValue.text(finding.guarantee),
        # As text, because Dagster would plot a number.
        "version": MetadataValue.text(str(result.version)),
        # GraphQL has no infinities.
        **{name: rounded_metadata(value) for name, value in finding.measures.items() if math.isfinite(value)},
    }
    not_passed = [part for part in result.partitions or () if part.finding.status != "passed"]
    if not_passed:
        metadata["partitions"] = MetadataValue.table(
            [
                TableRecord(
                    {
                        "partition": part.partition,
                        "status": part.finding.status,
                        "observed": shorten(part.finding.observed, _MAX_CELLS),
                    }
                )
                for part in sorted(
                    sort_by_violation(named_check.check, not_passed), key=lambda part: part.finding.status != "failed"
                )[:_MAX_PARTITIONS]
            ]
        )
    return AssetCheckResult(
        asset_key=key.asset_key,
        check_name=key.name,
        passed=result.status == "passed",
        severity=AssetCheckSeverity.WARN if unknown else _SEVERITIES[result.severity],
        # The advice is Markdown written by this package.
        description=f"{escape_markdown(f'unknown: {finding.observed}' if unknown else finding.observed)}{advice}",
        metadata=metadata,
    )


def escape_markdown(text: str) -> str:
    """Return Markdown that shows a text literally.

    A text wider than 1,000 terminal cells is truncated.
    """
    return literal_markdown(text, _MAX_CELLS)


def _description(named_check: NamedCheck) -> str:
    column = "" if named_check.column is None else f"{code_markdown(named_check.column)}: "
    return f"{column}{escape_markdown(named_check.check.expectation)}."


_SEVERITIES = {"error": AssetCheckSeverity.ERROR, "warn": AssetCheckSeverity.WARN}
