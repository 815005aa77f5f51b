"""Encoded frequencies in a shuffle are blobs of bounded size whose sum is the original."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from metastore_assets.pipeline.value_counts import frequency_sums
from metastore_assets.pipeline.value_counts.frequency_sums import decode_frequencies, encode_frequencies
from metastore_assets.statistics.frequencies import Frequencies, sum_frequencies


@pytest.mark.parametrize("length", [0, 1, 10, 100_000])
def test_blobs_are_bounded_and_lose_nothing(monkeypatch: pytest.MonkeyPatch, length: int) -> None:
    """Only a blob with a single value may exceed the limit.

    The sum of all blobs equals the original frequencies.
    """
    monkeypatch.setattr(frequency_sums, "_BYTES_PER_BLOB", 50_000)
    draw = random.Random(length)
    texts = sorted({f"{draw.random()}" + "x" * draw.choice([0, 0, length]) for _ in range(200)})
    complete = Frequencies(pa.array(texts, pa.large_string()), pa.array(range(1, len(texts) + 1)))
    parts, signs = zip(*map(decode_frequencies, encode_frequencies(complete, -1)), strict=True)
    assert set(signs) == {-1}
    assert all(len(part) == 1 or part.values.nbytes + part.counts.nbytes <= 50_000 for part in parts)
    assert sum_frequencies((part, 1) for part in parts) == complete


def test_an_empty_list_is_one_blob() -> None:
    """Frequencies without values are encoded as one blob, which decodes to frequencies without values."""
    empty = Frequencies(pa.array([], pa.int64()), pa.array([], pa.int64()))
    (blob,) = encode_frequencies(empty, 1)
    frequencies, sign = decode_frequencies(blob)
    assert (len(frequencies), sign) == (0, 1)
