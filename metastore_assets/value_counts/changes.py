"""What changed between the lists of two versions that follow each other."""

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
    """How many values a version's lists have otherwise than the version before, over all columns."""

    added: int = 0
    removed: int = 0
    changed: int = 0
    """Listed before and now, with another frequency."""


def count_changes(
    store: ObjectStore, before: ValueCountFiles | None, after: ValueCountFiles | None
) -> ValueCountChanges | None:
    """What changed between the lists that a version names and those of the next one.

    None where lists that there were are made from scratch: that does not tell which of their values are other ones.
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
        if is_taken_over:  # as with another cut of what is told: its update is the one that led to it earlier
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
