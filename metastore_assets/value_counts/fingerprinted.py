"""The dataflow of fingerprinted columns. It counts a fingerprint (a hash) of every value, and stores repeated values.

    fingerprints of the fragments that were added (+) and removed (−)
      → fingerprints  sum, by (column, fingerprint): frequency         of every value; values may share a fingerprint
    values that were read for the fingerprints that occur at least twice
      → values        sum, by (column, fingerprint, value): frequency  and so on, as for enumerated columns

Keys start with the fingerprint, because removed values are identified by their fingerprint alone.

`values` has exactly the values whose fingerprint occurs at least twice in the table: every repeated value, and
occasionally a value that shares its fingerprint with another value. Values that are not in `values` occur once. Their
number is the number of all non-null rows minus the frequencies in `values`.
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

FINGERPRINTS, FINGERPRINT_DELTAS = "fingerprints", "fingerprint_deltas"
FINGERPRINT_ROWS = Rows(
    pa.schema({"column": pa.string(), "fingerprint": pa.int64()}), pa.schema({"frequency": pa.int64()})
)


@dataclass(frozen=True)
class FingerprintedValueCounts:
    """The value counts of all fingerprinted columns of a table."""

    columns: Mapping[str, str] = field(default_factory=dict)
    """The class of the values of each column, by field id."""
    value_counts: Mapping[str, int] = field(default_factory=dict)
    """The number of non-null values of each column, repeated ones included, by field id."""
    flow: FlowState = field(default_factory=FlowState)
    bits: int = FINGERPRINT_BITS
    """Width of the fingerprints in bits."""

    def is_same(self, other: FingerprintedValueCounts) -> bool:
        """Return whether both objects have the same files, columns and width of fingerprints."""
        return (self.columns, self.bits) == (other.columns, other.bits) and self.flow.paths() == other.flow.paths()

    def to_json(self) -> dict[str, Any]:
        """Return the value counts as a JSON object."""
        counts = dict(self.value_counts)
        return {"columns": dict(self.columns), "value_counts": counts, "flow": self.flow.to_json(), "bits": self.bits}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> FingerprintedValueCounts:
        """Parse the JSON object that `to_json` returns."""
        return cls(
            dict(fields["columns"]), dict(fields["value_counts"]), FlowState.from_json(fields["flow"]), fields["bits"]
        )


def fingerprinted_rows(type_class: str) -> Rows:
    """Return the schema of rows that add or remove values: `column`, `fingerprint`, `value`, and `frequency`."""
    rows = rows_of(type_class)
    return Rows(pa.schema([*FINGERPRINT_ROWS.key, rows.key.field("value")]), rows.value)


def fingerprinted_table(column: str, values: Frequencies, bits: int, type_class: str) -> pa.Table:
    """Return a table with the fingerprint and the frequency of each value of a column, sorted by fingerprint and value.

    Args:
        column: The field id of the column.
        values: The values of the column with their frequencies.
        bits: Width of the fingerprints in bits.
        type_class: The class of the values.
    """
    fingerprints = fingerprint_values(values, bits)
    order = pa.array(np.argsort(fingerprints, kind="stable"))
    columns = [pa.repeat(pa.scalar(column), len(values)), pa.array(fingerprints), values.values, values.counts]
    return pa.Table.from_arrays(columns, schema=fingerprinted_rows(type_class).schema).take(order)


def fingerprint_dataflow(store: ObjectStore, classes: Iterable[str], *, runner: TaskRunner | None = None) -> Dataflow:
    """Return the dataflow of fingerprinted columns. Its files share a folder with those of enumerated columns.

    Args:
        store: The folder of the table.
        classes: The names of the type classes of fingerprinted columns.
        runner: Runs the tasks; in this process if None.
    """
    declared = _graph(tuple(sorted(set(classes))))
    return Dataflow(store, declared, runner=runner, settings=graph.SETTINGS, folder=FOLDER)


@lru_cache(maxsize=64)
def _graph(classes: tuple[str, ...]) -> Mapping[str, Typed]:
    """Return the roots and stages of fingerprinted columns, by name, with the types of their rows.

    Args:
        classes: The type classes of the columns.
    """
    nodes = [
        DeltaRoot(FINGERPRINT_DELTAS, FINGERPRINT_ROWS),
        SumStage(FINGERPRINTS, (FINGERPRINT_DELTAS,), ("column", "fingerprint"), ("frequency",), is_followed=False),
        *(node for name in classes for node in value_count_stages(name, fingerprinted_rows(name))),
    ]
    return typed_graph(nodes)


def add_singletons(counts: list[tuple[int, int]], values: int) -> list[tuple[int, int]]:
    """Return the frequency counts of a fingerprinted column, completed by the values that occur once.

    Args:
        counts: Pairs (frequency, number of stored distinct values with this frequency). Pairs with frequency 1 are
            replaced.
        values: The number of non-null values of the column, repeated ones included.

    Returns:
        Such pairs for all distinct values of the column, stored or not.
    """
    repeated = [(frequency, number) for frequency, number in counts if frequency > 1]
    singletons = values - sum(frequency * number for frequency, number in repeated)
    return [(1, singletons), *repeated] if singletons else repeated
