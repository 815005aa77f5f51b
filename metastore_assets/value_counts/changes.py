"""What changed between the lists of two versions that follow each other."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from metastore_assets.store.manifest import ValueCountFiles
from metastore_assets.store.objects import ObjectStore
from metastore_assets.value_counts.graph import VALUES, stage_name
from metastore_assets.value_counts.printed import printed_flow
from metastore_assets.value_counts.state import read_lists


@dataclass(frozen=True)
class ListChanges:
    """How many values a version's lists have otherwise than the version before, over all columns."""

    added: int = 0
    removed: int = 0
    changed: int = 0
    """Listed before and now, with another frequency."""


def list_changes(
    store: ObjectStore, before: ValueCountFiles | None, after: ValueCountFiles | None
) -> ListChanges | None:
    """What changed between the lists that a version names and those of the next one.

    None where lists that there were are made from scratch: that does not tell which of their values are other ones.
    """
    if before == after:
        return ListChanges()
    was, now = read_lists(store, before), read_lists(store, after)
    listed = now.dataflow(store).view(now.flow)
    printed = printed_flow(store, now.printed.columns.values()).view(now.printed.flow)
    found: Counter[str] = Counter()
    for view, columns, former, is_taken_over in (
        (listed, now.columns, was.columns, was.flow.paths() == now.flow.paths()),
        (printed, now.printed.columns, was.printed.columns, was.printed.flow.paths() == now.printed.flow.paths()),
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
    return ListChanges(found["add"], found["delete"], found["update"])
