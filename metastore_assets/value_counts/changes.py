"""Counts of the values that changed between two consecutive versions."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from metastore_assets.store.manifest import ValueCountFiles
from metastore_assets.store.objects import ObjectStore
from metastore_assets.value_counts.fingerprinted import fingerprint_dataflow
from metastore_assets.value_counts.graph import VALUES, stage_name
from metastore_assets.value_counts.state import read_value_counts


@dataclass(frozen=True)
class ValueCountChanges:
    """The number of distinct values that a version added, removed or counted differently, over all columns."""

    added: int = 0
    removed: int = 0
    changed: int = 0
    """Values that occur in both versions with different frequencies."""


def count_changes(
    store: ObjectStore, before: ValueCountFiles | None, after: ValueCountFiles | None
) -> ValueCountChanges | None:
    """Return how many values changed from one version to the next.

    Return None if existing value counts were rebuilt: a rebuild does not record which values changed.
    """
    if before == after:
        return ValueCountChanges()
    was, now = read_value_counts(store, before), read_value_counts(store, after)
    listed = now.dataflow(store).view(now.flow)
    fingerprinted = fingerprint_dataflow(store, now.fingerprinted.columns.values()).view(now.fingerprinted.flow)
    found: Counter[str] = Counter()
    for view, columns, former, is_taken_over in (
        (listed, now.columns, was.columns, was.flow.paths() == now.flow.paths()),
        (
            fingerprinted,
            now.fingerprinted.columns,
            was.fingerprinted.columns,
            was.fingerprinted.flow.paths() == now.fingerprinted.flow.paths(),
        ),
    ):
        if (
            is_taken_over
        ):  # for example under other limits of reported values: the last update belongs to an earlier version
            continue
        for name in {*columns.values()}:
            stage = stage_name(VALUES, name)
            if view.is_reset(stage) and name in former.values():
                return None
            if view.is_reset(stage):
                found["add"] += sum(run.rows for run in view.runs(stage))
            else:
                found.update(view.change_counts(stage))
    return ValueCountChanges(found["add"], found["delete"], found["update"])
