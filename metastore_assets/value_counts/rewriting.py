"""Value counts rewritten without any trace of removed values."""

from __future__ import annotations

from dataclasses import replace

from metastore_assets.produce import Dataflow, FlowState
from metastore_assets.store.objects import ObjectStore
from metastore_assets.value_counts.fingerprinted import FINGERPRINTS, fingerprint_dataflow
from metastore_assets.value_counts.graph import BY_PARTITION, FREQUENCIES, FREQUENCY_COUNTS, VALUES
from metastore_assets.value_counts.state import TableValueCounts


def rewrite_value_counts(store: ObjectStore, lists: TableValueCounts) -> TableValueCounts:
    """Rewrite value counts to new files without removed values: not in deltas, bounds or updates."""
    fingerprinted = lists.fingerprinted
    flow = _rewritten(lists.dataflow(store), lists.flow)
    fingerprints = _rewritten(fingerprint_dataflow(store, set(fingerprinted.columns.values())), fingerprinted.flow)
    return replace(lists, flow=flow, fingerprinted=replace(fingerprinted, flow=fingerprints))


def _rewritten(flow: Dataflow, state: FlowState) -> FlowState:
    view = flow.view(state)
    kinds = (VALUES, FREQUENCIES, FREQUENCY_COUNTS, BY_PARTITION, FINGERPRINTS)
    # A state that removed the last column of a class still has its stages: without values, with the update that removed
    # them.
    stages = [name for name in state.stages if name.partition(".")[0] in kinds and name in flow.names]
    return flow.load(FlowState(), {stage: view.content_batches(stage) for stage in stages}) if stages else state
