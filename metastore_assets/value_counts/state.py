"""The state of a version's value counts, stored as a JSON file that the version references."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from metastore_assets.errors import CorruptionError, ObjectNotFoundError
from metastore_assets.produce import Dataflow, FlowState
from metastore_assets.store.json_fields import parse_json
from metastore_assets.store.manifest import ValueCountFiles
from metastore_assets.store.objects import ObjectStore
from metastore_assets.value_counts.fingerprinted import FINGERPRINT_DELTAS, FINGERPRINTS, FingerprintedValueCounts
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
"""In the process that refreshed, or in Spark tasks."""
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
"""Files that users query most come first."""


@dataclass(frozen=True)
class Cut:
    """Limits of the values reported as the most frequent ones of a column. All values are stored regardless."""

    most: int | None = None
    """Maximum number of values; None for no limit."""
    least_frequency: int = 1
    """Minimum frequency, inclusive."""


@dataclass(frozen=True)
class Built:
    """How the value counts of a column were built from scratch, with the inputs of that decision."""

    algorithm: Literal["counts", "ranges"]
    """`counts`: partial counts that are summed in one task; `ranges`: one task for each range of values."""
    where: Where
    distinct: int | None
    """The estimated number of distinct values; None if it was not estimated."""
    profiles: int
    """The number of profiles that were summed."""


@dataclass(frozen=True)
class TableValueCounts:
    """The value counts of a table at one version."""

    columns: Mapping[str, str] = field(default_factory=dict)
    """The class of the values of each enumerated column, by field id."""
    flow: FlowState = field(default_factory=FlowState)
    cuts: Mapping[str, Cut] = field(default_factory=dict)
    """Limits of reported values by field id; only of columns that have limits."""
    by_partition: Mapping[str, str] = field(default_factory=dict)
    """The entries of `columns` that are also counted by partition."""
    fingerprinted: FingerprintedValueCounts = field(default_factory=FingerprintedValueCounts)
    """The fingerprinted columns, whose values are stored if their fingerprint occurs at least twice."""
    built: Mapping[str, Built] = field(default_factory=dict, compare=False)
    """How value counts were built from scratch, by field id; columns that an update added are not included."""

    def is_same(self, other: TableValueCounts) -> bool:
        """Return whether both have the same files, columns and limits."""
        own, theirs = ((each.columns, each.cuts, each.by_partition) for each in (self, other))
        same = own == theirs and self.fingerprinted.is_same(other.fingerprinted)
        return same and self.flow.paths() == other.flow.paths()

    def paths(self) -> set[str]:
        """Return the paths of all files."""
        return {*self.flow.paths(), *self.fingerprinted.flow.paths()}

    def dataflow(self, store: ObjectStore) -> Dataflow:
        """Return the dataflow of the enumerated columns."""
        return value_count_dataflow(store, set(self.columns.values()), set(self.by_partition.values()))


def read_value_counts(store: ObjectStore, files: ValueCountFiles | None) -> TableValueCounts:
    """Read the value counts that a version references; they are empty if `files` is None.

    Raises:
        CorruptionError: The file is missing or damaged.
    """
    if files is None:
        return TableValueCounts()
    try:
        fields = parse_json(store.read(files.state))
        cuts = {field_id: Cut(*own) for field_id, own in fields["cuts"].items()}
        by_partition = dict(fields.get("by_partition", {}))
        fingerprinted = (
            FingerprintedValueCounts.from_json(fields["printed"]) if "printed" in fields else FingerprintedValueCounts()
        )
        built = {field_id: Built(**own) for field_id, own in fields.get("built", {}).items()}
        return TableValueCounts(
            dict(fields["columns"]), FlowState.from_json(fields["flow"]), cuts, by_partition, fingerprinted, built
        )
    except (ObjectNotFoundError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptionError(
            f"{store.uri(files.state)} is missing or damaged ({error}); rebuild with `metastore refresh NAME --full`"
        ) from error


def write_value_counts(store: ObjectStore, lists: TableValueCounts) -> ValueCountFiles | None:
    """Write the state file. Return the files for the version to reference, or None if no column has value counts."""
    if not lists.columns and not lists.fingerprinted.columns:
        return None
    path = f"{FOLDER}/{uuid.uuid4().hex}.json"
    cuts = {field_id: [own.most, own.least_frequency] for field_id, own in lists.cuts.items()}
    fields = {"columns": dict(lists.columns), "cuts": cuts, "flow": lists.flow.to_json()}
    if lists.by_partition:
        fields["by_partition"] = dict(lists.by_partition)
    if lists.fingerprinted.columns:
        fields["printed"] = lists.fingerprinted.to_json()
    if lists.built:
        fields["built"] = {field_id: vars(own) for field_id, own in lists.built.items()}
    store.write(path, json.dumps(fields).encode())
    both = [*lists.flow.stages.items(), *lists.fingerprinted.flow.stages.items()]
    stages = sorted(both, key=lambda stage: _ORDER.index(stage[0].partition(".")[0]))
    return ValueCountFiles(path, tuple(dict.fromkeys(own for _, stage in stages for own in stage.paths())))
