"""The value counts of one version, and the JSON file with their description and their files' paths.

Value counts are the distinct values of a column with their frequencies. An enumerated column stores all of them. A
fingerprinted column stores only repeated values, and counts of the fingerprints (hashes) of all values.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from metastore_assets.errors import CorruptionError, ObjectNotFoundError
from metastore_assets.produce import Dataflow, FlowState
from metastore_assets.store.json_fields import parse_json
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.version import ValueCountFiles
from metastore_assets.value_counts.fingerprinted import (
    FINGERPRINT_DELTAS,
    FINGERPRINTS,
    FingerprintedValueCounts,
    fingerprint_dataflow,
)
from metastore_assets.value_counts.graph import (
    BY_PARTITION,
    DELTAS,
    FOLDER,
    FREQUENCIES,
    FREQUENCY_COUNTS,
    PARTITION_DELTAS,
    VALUES,
    value_count_dataflow,
)

Where: TypeAlias = Literal["here", "spark"]
"""Where value counts were summed: `here` is the process that refreshed, and `spark` means Spark tasks."""
_ORDER = (
    FREQUENCIES,
    VALUES,
    FREQUENCY_COUNTS,
    BY_PARTITION,
    DELTAS,
    PARTITION_DELTAS,
    FINGERPRINTS,
    FINGERPRINT_DELTAS,
)
"""Order of a version's files by the kind of their stage. The kinds that users query most come first."""


@dataclass(frozen=True)
class TopLimits:
    """Limits on the values that are reported as the most frequent values of a column.

    They do not limit which values are stored.
    """

    max_values: int | None = None
    """Maximum number of reported values; None for no limit."""
    min_frequency: int = 1
    """Minimum frequency of a reported value."""


@dataclass(frozen=True)
class Built:
    """The algorithm that built a column's value counts from scratch, and the numbers that led to it."""

    algorithm: Literal["counts", "ranges"]
    """`counts`: one task sums partial counts; `ranges`: one task for each range of values."""
    where: Where
    distinct: int | None
    """The estimated number of distinct values; None if it was not estimated."""
    profiles: int
    """The number of profiles (statistics of sets of rows) whose frequencies were summed."""


@dataclass(frozen=True)
class TableValueCounts:
    """The value counts of a table at one version."""

    columns: Mapping[str, str] = field(default_factory=dict)
    """The name of the type class of each enumerated column, by field id."""
    flow: FlowState = field(default_factory=FlowState)
    """The stored stages of enumerated columns and their files."""
    top_limits: Mapping[str, TopLimits] = field(default_factory=dict)
    """The limits of columns that have limits, by field id, also of columns that only some partitions enumerate."""
    by_partition: Mapping[str, str] = field(default_factory=dict)
    """The items of `columns` that are also counted by partition."""
    fingerprinted: FingerprintedValueCounts = field(default_factory=FingerprintedValueCounts)
    """The value counts of fingerprinted columns, which store a value if its fingerprint (a hash) occurs at least twice.
    """
    built: Mapping[str, Built] = field(default_factory=dict, compare=False)
    """How value counts were built from scratch, by field id. Columns that an update added are missing."""

    def is_same(self, other: TableValueCounts) -> bool:
        """Return whether files, columns and limits are the same."""
        settings, other_settings = (
            (counts.columns, counts.top_limits, counts.by_partition) for counts in (self, other)
        )
        same = settings == other_settings and self.fingerprinted.is_same(other.fingerprinted)
        return same and self.flow.paths() == other.flow.paths()

    def paths(self) -> set[str]:
        """Return the paths of all files."""
        return {*self.flow.paths(), *self.fingerprinted.flow.paths()}

    def dataflow(self, store: ObjectStore) -> Dataflow:
        """Return a dataflow that reads and updates the value counts of enumerated columns.

        Fingerprinted columns have another dataflow. A dataflow is a graph of stages, which compute rows by key.
        """
        return value_count_dataflow(store, set(self.columns.values()), set(self.by_partition.values()))


def read_value_counts(store: ObjectStore, files: ValueCountFiles | None) -> TableValueCounts:
    """Read the description of a version's value counts.

    Args:
        store: The folder of the table.
        files: The files of the value counts; None if the version has none. The result is then empty.

    Raises:
        CorruptionError: The file `files.state` is missing or damaged.
    """
    if files is None:
        return TableValueCounts()
    try:
        fields = parse_json(store.read(files.state))
        top_limits = {field_id: TopLimits(*limits) for field_id, limits in fields["top_limits"].items()}
        by_partition = dict(fields.get("by_partition", {}))
        fingerprinted_counts = (
            FingerprintedValueCounts.from_json(fields["fingerprinted"])
            if "fingerprinted" in fields
            else FingerprintedValueCounts()
        )
        builds = {field_id: Built(**build) for field_id, build in fields.get("built", {}).items()}
        return TableValueCounts(
            dict(fields["columns"]),
            FlowState.from_json(fields["flow"]),
            top_limits,
            by_partition,
            fingerprinted_counts,
            builds,
        )
    except (ObjectNotFoundError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptionError(
            f"{store.uri(files.state)} is missing or damaged ({error}); rebuild with `metastore refresh NAME --full`",
            missing=isinstance(error, ObjectNotFoundError),
        ) from error


def write_value_counts(store: ObjectStore, value_counts: TableValueCounts) -> ValueCountFiles | None:
    """Write the JSON file of value counts.

    Args:
        store: The folder of the table.
        value_counts: The value counts.

    Returns:
        The files for the version to reference. None if no column has value counts or `top_limits`; nothing is written
            then.
    """
    if not value_counts.columns and not value_counts.fingerprinted.columns and not value_counts.top_limits:
        return None
    path = f"{FOLDER}/{uuid.uuid4().hex}.json"
    top_limits = {
        field_id: [limits.max_values, limits.min_frequency] for field_id, limits in value_counts.top_limits.items()
    }
    fields = {"columns": dict(value_counts.columns), "top_limits": top_limits, "flow": value_counts.flow.to_json()}
    if value_counts.by_partition:
        fields["by_partition"] = dict(value_counts.by_partition)
    if value_counts.fingerprinted.columns:
        fields["fingerprinted"] = value_counts.fingerprinted.to_json()
    if value_counts.built:
        fields["built"] = {field_id: vars(build) for field_id, build in value_counts.built.items()}
    store.write(path, json.dumps(fields).encode())
    stages = [*value_counts.flow.stages.items(), *value_counts.fingerprinted.flow.stages.items()]
    ordered_stages = sorted(stages, key=lambda stage: _ORDER.index(stage[0].partition(".")[0]))
    return ValueCountFiles(path, tuple(dict.fromkeys(path for _, stage in ordered_stages for path in stage.paths())))


def rewrite_value_counts(store: ObjectStore, value_counts: TableValueCounts) -> TableValueCounts:
    """Write value counts to new files, which contain no values that the table no longer has.

    The old files may contain such values: as bounds of key ranges, and in updates, which list the latest changes.

    Args:
        store: The folder of the table.
        value_counts: The value counts.

    Returns:
        The same value counts in the new files.
    """
    fingerprinted_counts = value_counts.fingerprinted
    flow = _rewrite_state(value_counts.dataflow(store), value_counts.flow)
    fingerprints = _rewrite_state(
        fingerprint_dataflow(store, set(fingerprinted_counts.columns.values())), fingerprinted_counts.flow
    )
    return replace(value_counts, flow=flow, fingerprinted=replace(fingerprinted_counts, flow=fingerprints))


def _rewrite_state(flow: Dataflow, state: FlowState) -> FlowState:
    view = flow.view(state)
    kinds = (VALUES, FREQUENCIES, FREQUENCY_COUNTS, BY_PARTITION, FINGERPRINTS)
    # After the last column of a class was removed, its stages still exist: without values, but with the update that
    # removed them. `flow` does not have these stages.
    stages = [name for name in state.stages if name.partition(".")[0] in kinds and name in flow.names]
    return flow.load(FlowState(), {stage: view.content_batches(stage) for stage in stages})
