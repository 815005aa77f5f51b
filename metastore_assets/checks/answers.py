"""The JSON shapes that `metastore check` prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from metastore_assets.checks.result import CheckResult
from metastore_assets.checks.subject import Surroundings
from metastore_assets.checks.suggest import suggest
from metastore_assets.lookup import Table
from metastore_assets.lookup.json import Json
from metastore_assets.store.manifest import Version


def check_answer(version: Version, results: Sequence[CheckResult]) -> Json:
    """The shape of `check`. `status` is `failed` when a check of severity `error` has failed, else `passed`."""
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


def suggestion_answer(table: Table, around: Surroundings) -> Json:
    """The shape of `check --suggest`: the keys `checks` and `columns` of a table, and the same as YAML."""
    found = suggest(table, around)
    return {"table": table.version.table, "version": table.version.number, **found.to_json(), "yaml": found.to_yaml()}
