"""Spark tasks sum the fingerprints (parts of hashes) of many values, and read the repeated values.

A repeated value is one that occurs at least twice.
"""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets.errors import CorruptionError
from metastore_assets.pipeline.plan import RefreshRequest
from metastore_assets.pipeline.refresh import refresh
from metastore_assets.pipeline.value_counts import fingerprints
from metastore_assets.pipeline.value_counts.fingerprint_shuffle import (
    FingerprintRanges,
    decode_fingerprints,
    encode_fingerprints,
    shuffle_fingerprints,
)
from metastore_assets.statistics.fingerprints import (
    FINGERPRINT_BITS,
    FingerprintCounts,
    count_fingerprints,
    sum_fingerprints,
)
from metastore_assets.storage.io_counters import count_io, record_read, record_write
from tests.pipeline.file_lake import everything_on_spark
from tests.pipeline.test_fingerprints import Lake, change, check, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FINGERPRINTS = st.dictionaries(st.integers(0, 2**FINGERPRINT_BITS - 1), st.integers(1, 2**40)).map(
    lambda counts: count_fingerprints(np.array(list(counts), np.int64), np.array(list(counts.values()), np.int64))
)


@given(FINGERPRINTS, st.booleans())
def test_encoded_fingerprints_decode_to_the_same(counts: FingerprintCounts, is_located: bool) -> None:
    counts = counts.at(2**20 - 1) if is_located else counts
    assert decode_fingerprints(pa.py_buffer(encode_fingerprints(counts))).equals(counts)


@given(st.lists(FINGERPRINTS, max_size=4))
def test_counts_are_summed_by_fingerprint(parts: list[FingerprintCounts]) -> None:
    expected: dict[int, int] = {}
    for part in parts:
        for value, count in zip(part.fingerprints.tolist(), part.counts.tolist(), strict=True):
            expected[value] = expected.get(value, 0) + count
    total = sum_fingerprints(parts)
    assert dict(zip(total.fingerprints.tolist(), total.counts.tolist(), strict=True)) == expected
    assert total.fingerprints.tolist() == sorted(expected)


def _read(seed: int) -> FingerprintCounts:
    record_read(f"profile {seed}", 100)
    return count_fingerprints(np.random.default_rng(seed).integers(0, 2**12, 3_000), None)


def _failing(seed: int) -> FingerprintCounts:
    raise CorruptionError(f"profile {seed} is damaged")


def _return_total(number: int, total: FingerprintCounts) -> tuple[int, FingerprintCounts]:
    record_write(f"run {number}", 10)
    return number, total


@pytest.mark.spark
def test_ranges_cover_all_fingerprints(spark: SparkSession) -> None:
    """Spark tasks sum fingerprints in ranges.

    The sums of all ranges together equal a sum in this process.

    The bytes that tasks read and wrote are counted, and the error of a task is raised.
    """
    with count_io() as meter:
        ranges = FingerprintRanges.of_values(spark, 20_000_000, 12)
        result = shuffle_fingerprints(spark, _read, [1, 2, 3], ranges, _return_total)
    read_counts, written_counts = meter.counts().read.to_json(), meter.counts().written.to_json()
    assert (read_counts, written_counts) == (
        {"files": 3, "bytes": 300},
        {"files": len(result), "bytes": 10 * len(result)},
    )
    assert len(result) > 2
    sorted_counts = [counts for _, counts in sorted(result, key=lambda one: one[0])]
    complete = FingerprintCounts(
        *(np.concatenate(arrays) for arrays in zip(*((o.fingerprints, o.counts) for o in sorted_counts), strict=True))
    )
    assert complete.equals(sum_fingerprints(map(_read, [1, 2, 3])))
    with pytest.raises(CorruptionError):
        shuffle_fingerprints(spark, _failing, [1, 2], FingerprintRanges.of_values(spark, 10, 12), _return_total)


@pytest.mark.long
@pytest.mark.spark
def test_incremental_refreshes_on_spark_equal_those_from_scratch(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fingerprints, "TABLE_BITS", 7)
    monkeypatch.setattr(fingerprints, "_MAX_LOCAL_ROWS", 100)
    monkeypatch.setattr(fingerprints, "_MIN_ROWS_PER_TASK", 150)
    draw, removed_files = random.Random(3), []
    lake = Lake(tmp_path)
    config = lake.config.model_copy(update={"engine": "spark"})
    run = partial(refresh, config, config.tables[0], lambda: spark)
    for part in range(4):
        lake.put(rows(draw, 60), part % 2)
    with everything_on_spark():
        for number in range(2):
            run(RefreshRequest(full=number == 1))
            check(lake)
            change(lake, draw, removed_files)
        run()
    check(lake)
