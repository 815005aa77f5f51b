"""What travels through Spark's exchange: pieces of bounded size that add up to the list they were cut from."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from metastore_assets.pipeline.value_counts import exchange
from metastore_assets.statistics.frequencies import Frequencies, sum_frequencies


@pytest.mark.parametrize("length", [0, 1, 10, 100_000])
def test_blobs_are_bounded_and_lose_nothing(monkeypatch: pytest.MonkeyPatch, length: int) -> None:
    """Whatever the values' lengths; only a single value may be longer than a blob."""
    monkeypatch.setattr(exchange, "_BYTES_PER_BLOB", 50_000)
    draw = random.Random(length)
    texts = sorted({f"{draw.random()}" + "x" * draw.choice([0, 0, length]) for _ in range(200)})
    whole = Frequencies(pa.array(texts, pa.large_string()), pa.array(range(1, len(texts) + 1)))
    parts = [exchange.of_blob(blob) for blob in exchange.blobs(whole)]
    assert all(len(part) == 1 or part.values.nbytes + part.counts.nbytes <= 50_000 for part in parts)
    assert sum_frequencies((part, 1) for part in parts) == whole


def test_an_empty_list_is_one_blob() -> None:
    """It says that there are no values, which no blob would not."""
    empty = Frequencies(pa.array([], pa.int64()), pa.array([], pa.int64()))
    (blob,) = exchange.blobs(empty)
    assert len(exchange.of_blob(blob)) == 0
