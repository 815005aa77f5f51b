"""Whether a column's values are distributed as they were in an earlier version."""

from __future__ import annotations

from metastore_assets.checks.expectations import MEASURES
from metastore_assets.checks.result import Finding, verdict
from metastore_assets.checks.subject import Subject
from metastore_assets.config.check_models import Drift
from metastore_assets.lookup.distances import distances
from metastore_assets.report.text import number


def drift(check: Drift, subject: Subject) -> Finding:
    """How far the distributions are apart: of numbers and times over bins, of others over values."""
    earlier = subject.earlier(check.against)
    if earlier is None:
        return Finding("passed", "a partition that there was not")
    row, before = subject.row, earlier.row
    since = f"since version {earlier.table.version.number}"
    if not row.value_count and not before.value_count:
        return Finding("passed", f"no values, as {since}")
    found = distances(earlier.table, before, subject.table, row, partition=subject.partition, groups=check.groups)
    if isinstance(found, str):
        return Finding("unknown", f"{found}, {since}", "absent")
    distance: float = getattr(found, check.measure)
    is_grouped = check.measure == "stability_index"
    return Finding(
        verdict(distance <= float(check.most)),
        f"{MEASURES[check.measure]} {number(distance)} {since}, over {found.over}",
        # The index is of the groups themselves; the others would be no less with finer bins.
        "exact" if is_grouped else found.guarantee,
        measures={"distance": distance},
    )
