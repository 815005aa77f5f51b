"""Lists written anew: the same values, and no trace of others."""

from __future__ import annotations

from dataclasses import replace

from metastore_assets.lists.graph import BY_PARTITION, FACTS, FREQUENCIES, VALUES, stage_name
from metastore_assets.lists.state import Lists
from metastore_assets.produce import FlowState
from metastore_assets.store.objects import ObjectStore


def rewritten(store: ObjectStore, lists: Lists) -> Lists:
    """The same lists in new files, which hold no value that went, be it as a difference, a bound or an update."""
    if not lists.columns:
        return lists
    flow = lists.dataflow(store)
    view = flow.view(lists.flow)
    stages = [stage_name(kind, name) for name in set(lists.columns.values()) for kind in (VALUES, FREQUENCIES, FACTS)]
    stages += [stage_name(BY_PARTITION, name) for name in set(lists.by_partition.values())]
    return replace(lists, flow=flow.load(FlowState(), {stage: view.content_batches(stage) for stage in stages}))
