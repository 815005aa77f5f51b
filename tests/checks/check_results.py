"""Functions that run checks, written as in YAML, on a published table and return their results."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from metastore_assets.checks.base import Finding
from metastore_assets.checks.check_results import CheckResult
from metastore_assets.checks.configured_checks import read_named_checks
from metastore_assets.checks.evaluation import evaluate_checks
from metastore_assets.checks.subject import CheckContext
from metastore_assets.config import TableConfig
from metastore_assets.formats.base import Snapshot
from metastore_assets.lookup import Table
from metastore_assets.metastore import Metastore
from metastore_assets.store.objects import ObjectStore


def no_table() -> Snapshot:
    """Fail the test: a check has read the table's metadata.

    Tests pass this function in place of one that returns the snapshot.
    """
    raise AssertionError("the table's metadata were read")


def around(
    store: ObjectStore, snapshot: Callable[[], Snapshot] = no_table, now: datetime | None = None
) -> CheckContext:
    return CheckContext(Metastore(store.uri()), snapshot, lambda: snapshot().reference, now or datetime.now(UTC))


def results(store: ObjectStore, table: Table, *checks: Any, **columns: Any) -> list[CheckResult]:
    """Return the results of checks of the table and of its columns, written as in YAML."""
    config = TableConfig.model_validate(
        {
            "name": table.version.table,
            "uri": "nowhere",
            "checks": list(checks),
            "columns": {column: {"checks": entries} for column, entries in columns.items()},
        }
    )
    return evaluate_checks(read_named_checks(config), table, around(store))


def finding(store: ObjectStore, table: Table, *checks: Any, **columns: Any) -> Finding:
    """Return the finding of the only check: its status, what was observed, and the measured numbers."""
    (result,) = results(store, table, *checks, **columns)
    return result.finding
