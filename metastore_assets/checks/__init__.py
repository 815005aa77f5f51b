"""Checks of a table, answered from what a version keeps of it: passed, failed, or not known and why."""

from metastore_assets.checks.evaluate import evaluate, evaluate_checks
from metastore_assets.checks.result import CheckResult, Finding, Status

__all__ = ["CheckResult", "Finding", "Status", "evaluate", "evaluate_checks"]
