"""Columns that are kept by fingerprints: the dataflow of their lists, which have the values that may occur twice.

    fingerprints of the fragments that came (+) and went (−)
      → prints       sum, by (column, print): frequency        of every value; two values may share one
    values that were read for the fingerprints that occur at least twice
      → values       sum, by (column, print, value): frequency  and so on, as of listed columns

By fingerprint first, for what goes is known by that alone.

`values` has exactly the values whose fingerprint occurs at least twice in the table: so every value that does, and now
and then one that shares its fingerprint with another. All others occur once, and are counted by what is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from metastore_assets.produce import Dataflow, DeltaRoot, FlowState, Rows, SumStage, TaskRunner, Typed, typed_graph
from metastore_assets.statistics.fingerprints import FINGERPRINT_BITS, fingerprint_values
from metastore_assets.statistics.frequencies import Frequencies
from metastore_assets.store.objects import ObjectStore
from metastore_assets.value_counts import graph
from metastore_assets.value_counts.graph import FOLDER, rows_of, value_count_stages

FINGERPRINTS, FINGERPRINT_DELTAS = "prints", "print_deltas"
FINGERPRINT_ROWS = Rows(pa.schema({"column": pa.string(), "print": pa.int64()}), pa.schema({"frequency": pa.int64()}))


@dataclass(frozen=True)
class FingerprintedValueCounts:
    """The columns of a table that are kept by fingerprints, at one moment."""

    columns: Mapping[str, str] = field(default_factory=dict)
    """By field id, the class of their values."""
    value_counts: Mapping[str, int] = field(default_factory=dict)
    """By field id, how many values they have, each as often as it occurs."""
    flow: FlowState = field(default_factory=FlowState)
    bits: int = FINGERPRINT_BITS
    """Width of the fingerprints."""

    def is_same(self, other: FingerprintedValueCounts) -> bool:
        """Whether these are the same files, of the same columns."""
        return (self.columns, self.bits) == (other.columns, other.bits) and self.flow.paths() == other.flow.paths()

    def to_json(self) -> dict[str, Any]:
        """As it is stored."""
        counts = dict(self.value_counts)
        return {"columns": dict(self.columns), "value_counts": counts, "flow": self.flow.to_json(), "bits": self.bits}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> FingerprintedValueCounts:
        """The inverse."""
        return cls(
            dict(fields["columns"]), dict(fields["value_counts"]), FlowState.from_json(fields["flow"]), fields["bits"]
        )


def fingerprinted_rows(type_class: str) -> Rows:
    """The rows of values that come and go: `column`, `print`, `value`; `frequency`."""
    own = rows_of(type_class)
    return Rows(pa.schema([*FINGERPRINT_ROWS.key, own.key.field("value")]), own.value)


def fingerprinted_table(column: str, values: Frequencies, bits: int, type_class: str) -> pa.Table:
    """Values of a column, with their frequencies, as such rows: in the order of their keys."""
    fingerprints = fingerprint_values(values, bits)
    order = pa.array(np.argsort(fingerprints, kind="stable"))
    columns = [pa.repeat(pa.scalar(column), len(values)), pa.array(fingerprints), values.values, values.counts]
    return pa.Table.from_arrays(columns, schema=fingerprinted_rows(type_class).schema).take(order)


def fingerprint_dataflow(store: ObjectStore, classes: Iterable[str], *, runner: TaskRunner | None = None) -> Dataflow:
    """The dataflow of the columns of some classes, by name, whose files lie beside those of listed columns."""
    declared = _graph(tuple(sorted(set(classes))))
    return Dataflow(store, declared, runner=runner, settings=graph.SETTINGS, folder=FOLDER)


@lru_cache(maxsize=64)
def _graph(classes: tuple[str, ...]) -> Mapping[str, Typed]:
    nodes = [
        DeltaRoot(FINGERPRINT_DELTAS, FINGERPRINT_ROWS),
        SumStage(FINGERPRINTS, (FINGERPRINT_DELTAS,), ("column", "print"), ("frequency",), is_followed=False),
        *(node for name in classes for node in value_count_stages(name, fingerprinted_rows(name))),
    ]
    return typed_graph(nodes)


def with_singletons(counts: list[tuple[int, int]], values: int) -> list[tuple[int, int]]:
    """(Frequency, number of values that occur so often) of a column of so many values in all, of which `counts` are of
    those that are in its list."""
    repeated = [(frequency, number) for frequency, number in counts if frequency > 1]
    singletons = values - sum(frequency * number for frequency, number in repeated)
    return [(1, singletons), *repeated] if singletons else repeated
