"""Counting of many fingerprints on Spark, with one shuffle.

Each reducer sums one range of fingerprints.

A fingerprint is a short hash of a value. Sorted fingerprints are sent as differences between neighbours, of about four
bytes each. The values themselves would take more bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from metastore_assets.spark.runner import count_slots
from metastore_assets.spark.shuffle import ShuffledRow, shuffle
from metastore_assets.statistics.fingerprints import FingerprintCounts, Numbers, sum_fingerprints

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
R = TypeVar("R")
WriteRange: TypeAlias = "Callable[[int, FingerprintCounts], R]"
"""Receives (number of a range, fingerprints in this range with their numbers of rows)."""
_ROWS_PER_RANGE = 4_000_000
"""The number of values whose fingerprints one reducer sums."""
_MAX_RANGES = 4096


@dataclass(frozen=True)
class FingerprintRanges:
    """Ranges of about equal size, which together contain all fingerprints of one width."""

    count: int
    """The number of ranges."""
    bits: int
    """Width of the fingerprints in bits."""

    @classmethod
    def of_values(cls, spark: SparkSession, values: int, bits: int) -> FingerprintRanges:
        """Return ranges for the fingerprints of many values.

        Args:
            spark: The session. There are at least as many ranges as the session runs tasks at a time, up to a limit.
            values: The approximate number of values.
            bits: Width of the fingerprints in bits.
        """
        return cls(min(_MAX_RANGES, max(count_slots(spark), values // _ROWS_PER_RANGE + 1)), bits)

    def starts(self) -> Numbers:
        """Return the first fingerprint of each range except the first, ascending."""
        return np.array([(number << self.bits) // self.count for number in range(1, self.count)], np.int64)


def shuffle_fingerprints(
    spark: SparkSession,
    read: Callable[[T], FingerprintCounts],
    tasks: Sequence[T],
    ranges: FingerprintRanges,
    write: WriteRange[R],
) -> list[R]:
    """Add up the counts of each fingerprint over all tasks.

    Call `write` for each range that has fingerprints.

    Args:
        spark: The session.
        read: Returns the fingerprints of one task with their counts. Runs in a Spark task.
        tasks: The arguments of `read`.
        ranges: The ranges of fingerprints. Each is summed by one reducer.
        write: Receives the number of a range, and its fingerprints with their summed counts. Runs in a Spark task.

    Returns:
        The results of `write`, in no particular order.
    """
    return shuffle(spark, partial(_split, read, ranges), tasks, ranges.count, partial(_sum_range, write))


def _split(read: Callable[[T], FingerprintCounts], ranges: FingerprintRanges, task: T) -> Iterator[ShuffledRow]:
    """Yield the fingerprints of one task as a shuffle row for each nonempty range."""
    fingerprint_counts = read(task)
    ends = [0, *np.searchsorted(fingerprint_counts.fingerprints, ranges.starts()).tolist(), len(fingerprint_counts)]
    for number, (start, stop) in enumerate(pairwise(ends)):
        if start < stop:
            part = fingerprint_counts.part(np.s_[start:stop])
            yield ShuffledRow(number, number, 0, encode_fingerprints(part))


def _sum_range(write: WriteRange[R], number: int, rows: Iterator[ShuffledRow]) -> R:
    return write(number, sum_fingerprints([decode_fingerprints(pa.py_buffer(row.blob)) for row in rows]))


_SCHEMA = pa.schema({"fingerprint": pa.int64(), "count": pa.int64(), "location": pa.int64()})


def encode_fingerprints(fingerprints: FingerprintCounts) -> bytes:
    """Encode fingerprints as a Parquet file, with their counts and, if present, their locations.

    The location of a row is a short hash of its partition key. A fingerprint has the sum of its rows' locations.
    """
    sink = pa.BufferOutputStream()
    numbers = [fingerprints.fingerprints, fingerprints.counts]
    numbers += [] if fingerprints.locations is None else [fingerprints.locations]
    schema = pa.schema(list(_SCHEMA)[: len(numbers)])
    encodings = dict.fromkeys(schema.names, "DELTA_BINARY_PACKED")
    with pq.ParquetWriter(
        sink, schema, use_dictionary=False, compression="none", column_encoding=encodings, write_statistics=False
    ) as writer:
        columns = [pa.array(column) for column in numbers]
        writer.write_table(pa.Table.from_arrays(columns, schema=schema), row_group_size=max(1, len(fingerprints)))
    return sink.getvalue().to_pybytes()


def decode_fingerprints(data: pa.Buffer) -> FingerprintCounts:
    """Decode the result of `encode_fingerprints`."""
    table = pq.read_table(pa.BufferReader(data))
    return FingerprintCounts(*(table[name].to_numpy() for name in table.column_names))
