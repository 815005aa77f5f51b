"""If several percentiles of a column are the same long value, this value is stored once."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metastore_assets.config import TableConfig
from metastore_assets.store.objects import ObjectStore
from tests.lookup.publishing import write_profile


@pytest.mark.parametrize("kind", [pa.string(), pa.binary()], ids=str)
def test_equal_percentiles_are_stored_once(tmp_path: Path, kind: pa.DataType) -> None:
    # Random digits, so that compression does not hide a copy.
    long_text = "z" + "".join(random.Random(3).choices("0123456789abcdef", k=3 << 20))
    rows = pa.table({"text": pa.array(["a", long_text, "b"]).cast(kind), "number": [1, 2, 3]})
    store = ObjectStore(str(tmp_path))
    files = write_profile(store, TableConfig(name="t", uri="lake"), rows)
    info = store.info(files.statistics)
    assert info is not None
    assert info.size < 1.5 * len(long_text)
    statistics = pq.read_table(store.uri(files.statistics))
    [percentiles] = [row["percentiles"] for row in statistics.to_pylist() if row["column"] == "text"]
    values = [next(value for value in entry["value"].values() if value is not None) for entry in percentiles]
    expected = [text if kind == pa.string() else text.encode() for text in ["a", "b", long_text]]
    # The nearest rank of 1, 5, 10, 25 %, of the median, and of 75, 90, 95 and 99 %.
    assert values == [expected[0]] * 4 + [expected[1]] + [expected[2]] * 4
