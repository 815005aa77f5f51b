"""What the lists of a version are, as a file that the version names."""

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
    FACTS,
    FOLDER,
    FREQUENCIES,
    PARTITION_DELTAS,
    VALUES,
    value_count_dataflow,
)

Where: TypeAlias = Literal["here", "spark"]
"""In the process that refreshed, or in Spark's tasks."""
_ORDER = (FREQUENCIES, VALUES, FACTS, BY_PARTITION, DELTAS, PARTITION_DELTAS, FINGERPRINTS, FINGERPRINT_DELTAS)
"""The files that people ask for come first."""


@dataclass(frozen=True)
class Cut:
    """Which of a column's values are told as its most frequent ones. All are kept, whatever else is asked of them."""

    most: int | None = None
    """So many at most; None for no limit."""
    least_frequency: int = 1
    """Those that occur so often at least."""


@dataclass(frozen=True)
class Built:
    """How the list of a column was built from scratch, and what that was decided by."""

    algorithm: Literal["counts", "ranges"]
    """`counts`: partial counts, added in one place; `ranges`: a task for each range of values."""
    where: Where
    distinct: int | None
    """About how many distinct values there were; None where that was not asked for."""
    profiles: int
    """How many lists were summed."""


@dataclass(frozen=True)
class TableValueCounts:
    """The lists of a table at one moment."""

    columns: Mapping[str, str] = field(default_factory=dict)
    """By field id of the columns listed, the class of their values."""
    flow: FlowState = field(default_factory=FlowState)
    cuts: Mapping[str, Cut] = field(default_factory=dict)
    """By field id, of those columns of which not all is told."""
    by_partition: Mapping[str, str] = field(default_factory=dict)
    """Of `columns`, those whose values are kept by partition as well."""
    fingerprinted: FingerprintedValueCounts = field(default_factory=FingerprintedValueCounts)
    """The columns of which fingerprints are kept, and lists of what occurs at least twice."""
    built: Mapping[str, Built] = field(default_factory=dict, compare=False)
    """By field id, of lists that were built from scratch; those that grew from what there was are not among them."""

    def is_same(self, other: TableValueCounts) -> bool:
        """Whether these are the same files, of the same columns."""
        own, theirs = ((each.columns, each.cuts, each.by_partition) for each in (self, other))
        same = own == theirs and self.fingerprinted.is_same(other.fingerprinted)
        return same and self.flow.paths() == other.flow.paths()

    def paths(self) -> set[str]:
        """The files of all lists."""
        return {*self.flow.paths(), *self.fingerprinted.flow.paths()}

    def dataflow(self, store: ObjectStore) -> Dataflow:
        """The dataflow whose state the lists of whole columns are."""
        return value_count_dataflow(store, set(self.columns.values()), set(self.by_partition.values()))


def read_value_counts(store: ObjectStore, files: ValueCountFiles | None) -> TableValueCounts:
    """The lists that a version names; none where it names none. Raises CorruptionError."""
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
    """Write what the lists are, for a version to name; None where no column is listed."""
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
