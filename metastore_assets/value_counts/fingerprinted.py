"""The dataflow of fingerprinted columns: it counts fingerprints, and stores repeated values.

Every value has a fingerprint, which is a hash. Two sum stages, which add up frequencies by key, receive the changes.
`value_counts.graph` describes the further stages, which read the stage `values`. A fragment is the smallest unit of
rows that a table format adds or removes. A type class is a group of column types whose values are stored as one type.

    stage           key                             input
    fingerprints    (column, fingerprint)           fingerprints of all values in added (+) and removed (−) fragments,
                                                    with the locations of their rows
    values          (column, fingerprint, value)    values that were read for fingerprints that occur at least twice

In the key of `values`, the fingerprint precedes the value, because removed values are found by fingerprint alone.

The location of a row is a short hash of its partition key. The stage `fingerprints` adds up the locations of the rows
with a fingerprint. So if a fingerprint occurs once, the sum is the location of its only row. When the fingerprint
occurs again, this row is looked for in the partitions with this location, to read its value. The sums depend only on
the rows of each partition, so they stay as they are when files of a partition are compacted.

The stage `values` has exactly the values whose fingerprint occurs at least twice in the table. These are all repeated
values, and occasionally values that occur once but share a fingerprint. All values that are not stored occur once.
Their number is the number of non-null rows minus the sum of the frequencies in `values`.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from metastore_assets.produce import Dataflow, DeltaRoot, FlowState, Rows, SumStage, TaskRunner, TypedNode, typed_graph
from metastore_assets.statistics.fingerprints import FINGERPRINT_BITS, fingerprint_values
from metastore_assets.statistics.frequencies import Frequencies
from metastore_assets.store.objects import ObjectStore
from metastore_assets.value_counts import graph
from metastore_assets.value_counts.graph import FOLDER, rows_of, value_count_stages

FINGERPRINTS, FINGERPRINT_DELTAS = "fingerprints", "fingerprint_deltas"
FINGERPRINT_ROWS = Rows(
    pa.schema({"column": pa.string(), "fingerprint": pa.int64()}),
    pa.schema({"frequency": pa.int64(), "location": pa.int64()}),
)
_LOCATION_BITS = 24
"""Width of locations in bits. Of 100,000 partitions, less than 1 % share their location. The sum for a fingerprint
overflows after 2**39 rows."""


@dataclass(frozen=True)
class FingerprintedValueCounts:
    """The stored counts of the fingerprints (short hashes) of values, for columns of one table."""

    columns: Mapping[str, str] = field(default_factory=dict)
    """The name of the type class of each column, by field id."""
    value_counts: Mapping[str, int] = field(default_factory=dict)
    """The number of rows of each column that are not null, by field id."""
    flow: FlowState = field(default_factory=FlowState)
    """The stored stages and their files."""
    bits: int = FINGERPRINT_BITS
    """Width of the fingerprints in bits."""

    def is_same(self, other: FingerprintedValueCounts) -> bool:
        """Return whether files, columns and the width of fingerprints are the same."""
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


def partition_location(partition_key: str) -> int:
    """Return the location of the rows of a partition, a short hash of its key."""
    return zlib.crc32(partition_key.encode("utf-8", "surrogatepass")) >> (32 - _LOCATION_BITS)


def fingerprinted_rows(type_class: str) -> Rows:
    """Return the columns of the rows that store the values of fingerprinted columns with their counts.

    The key columns are `column`, `fingerprint` and `value`. The only other column is `frequency`, which is summed.

    Args:
        type_class: The type class of the values, which sets the type of `value`.
    """
    rows = rows_of(type_class)
    return Rows(pa.schema([*FINGERPRINT_ROWS.key, rows.key.field("value")]), rows.value)


def fingerprinted_table(column: str, values: Frequencies, bits: int, type_class: str) -> pa.Table:
    """Return a row per distinct value of a column, sorted by fingerprint, then value.

    The columns are `column`, `fingerprint`, `value` and `frequency`.

    Args:
        column: The field id of the column.
        values: The distinct values of the column, sorted, with their frequencies.
        bits: Width of the fingerprints in bits.
        type_class: The name of the type class of the values.
    """
    fingerprints = fingerprint_values(values, bits)
    order = pa.array(np.argsort(fingerprints, kind="stable"))
    columns = [pa.repeat(pa.scalar(column), len(values)), pa.array(fingerprints), values.values, values.counts]
    return pa.Table.from_arrays(columns, schema=fingerprinted_rows(type_class).schema).take(order)


def fingerprint_dataflow(store: ObjectStore, classes: Iterable[str], *, runner: TaskRunner | None = None) -> Dataflow:
    """Return the dataflow of fingerprinted columns.

    Its files are in `value_counts` below the table's folder.

    Args:
        store: The folder of the table.
        classes: The names of the type classes of fingerprinted columns. A type class is a group of column types whose
            values are stored as one type.
        runner: Runs the tasks; None runs them in this process.
    """
    declared_graph = _graph(tuple(sorted(set(classes))))
    return Dataflow(store, declared_graph, runner=runner, settings=graph.SETTINGS, folder=FOLDER)


@lru_cache(maxsize=64)
def _graph(classes: tuple[str, ...]) -> Mapping[str, TypedNode]:
    nodes = [
        DeltaRoot(FINGERPRINT_DELTAS, FINGERPRINT_ROWS),
        SumStage(
            FINGERPRINTS, (FINGERPRINT_DELTAS,), ("column", "fingerprint"), ("frequency", "location"), is_followed=False
        ),
        *(node for name in classes for node in value_count_stages(name, fingerprinted_rows(name))),
    ]
    return typed_graph(nodes)


def add_singletons(counts: list[tuple[int, int]], values: int) -> list[tuple[int, int]]:
    """Return how many distinct values of a fingerprinted column have each frequency.

    Values that occur once are included. For 100 rows, [(1, 2), (3, 10)] becomes [(1, 70), (3, 10)]. The ten values with
    frequency 3 have 30 rows together. So 70 values occur once, of which only two are stored.

    Args:
        counts: (frequency, number of stored distinct values with this frequency).
        values: The number of rows of the column that are not null.

    Returns:
        (frequency, number of distinct values with this frequency), stored or not.
    """
    repeated_counts = [(frequency, number) for frequency, number in counts if frequency > 1]
    singletons = values - sum(frequency * number for frequency, number in repeated_counts)
    return [(1, singletons), *repeated_counts] if singletons else repeated_counts
