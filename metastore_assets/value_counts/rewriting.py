"""Lists written anew: the same values, and no trace of others."""

from __future__ import annotations

from dataclasses import replace

from metastore_assets.produce import Dataflow, FlowState
from metastore_assets.store.objects import ObjectStore
from metastore_assets.value_counts.fingerprinted import FINGERPRINTS, fingerprint_dataflow
from metastore_assets.value_counts.graph import BY_PARTITION, FACTS, FREQUENCIES, VALUES
from metastore_assets.value_counts.state import TableValueCounts


def rewrite_value_counts(store: ObjectStore, lists: TableValueCounts) -> TableValueCounts:
    """The same lists in new files, which hold no value that went, be it as a difference, a bound or an update."""
    fingerprinted = lists.fingerprinted
    flow = _rewritten(lists.dataflow(store), lists.flow)
    fingerprints = _rewritten(fingerprint_dataflow(store, set(fingerprinted.columns.values())), fingerprinted.flow)
    return replace(lists, flow=flow, fingerprinted=replace(fingerprinted, flow=fingerprints))


def _rewritten(flow: Dataflow, state: FlowState) -> FlowState:
    view = flow.view(state)
    kinds = (VALUES, FREQUENCIES, FACTS, BY_PARTITION, FINGERPRINTS)
    # The state that took the last column of a class away has its stages, without values, and how they went.
    stages = [name for name in state.stages if name.partition(".")[0] in kinds and name in flow.names]
    return flow.load(FlowState(), {stage: view.content_batches(stage) for stage in stages}) if stages else state
