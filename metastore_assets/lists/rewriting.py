"""Lists written anew: the same values, and no trace of others."""

from __future__ import annotations

from dataclasses import replace

from metastore_assets.lists.graph import FACTS, FREQUENCIES, VALUES, list_flow, stage_name
from metastore_assets.lists.state import Lists
from metastore_assets.produce import FlowState
from metastore_assets.store.objects import ObjectStore


def rewritten(store: ObjectStore, lists: Lists) -> Lists:
    """The same lists in new files, which hold no value that went, be it as a difference, a bound or an update."""
    classes = set(lists.columns.values())
    if not classes:
        return lists
    flow = list_flow(store, classes)
    view = flow.view(lists.flow)
    stages = [stage_name(kind, name) for name in classes for kind in (VALUES, FREQUENCIES, FACTS)]
    return replace(lists, flow=flow.load(FlowState(), {stage: view.content_batches(stage) for stage in stages}))
