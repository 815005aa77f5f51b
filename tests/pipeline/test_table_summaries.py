"""Summaries of value counts equal those of the rows, and reading them takes few passes."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metastore_assets.config import MetastoreConfig
from metastore_assets.pipeline.refresh import refresh
from metastore_assets.produce import Settings, View
from metastore_assets.statistics.frequencies import PERCENTS
from metastore_assets.store.objects import ObjectStore
from metastore_assets.value_counts import ValueCountReader, graph, read_value_counts, reading
from tests.pipeline.file_lake import latest
from tests.pipeline.test_refresh import no_spark

LIMIT = 40
"""Number of distinct values above which a column is large."""
ROWS = 100


def file_of(folder: Path, name: str, large_columns: list[str], draw: random.Random) -> dict[str, list[int | None]]:
    """Write a file with 12 columns, and return its rows.

    The column `c05` has only nulls.
    """
    columns = {
        column: [
            None if column == "c05" else draw.randrange(10_000 if column in large_columns else 12) for _ in range(ROWS)
        ]
        for column in (f"c{number:02}" for number in range(12))
    }
    pq.write_table(pa.table({name: pa.array(values, pa.int64()) for name, values in columns.items()}), folder / name)
    return columns


@pytest.mark.parametrize(
    ("large_columns", "passes"),
    [([], 1), (["c00"], 1), (["c11"], 1), (["c04", "c06"], 2), (["c03", "c04", "c09"], 3), (["c01", "c03"], 3)],
    ids=str,
)
def test_columns_between_large_ones_are_read_in_one_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large_columns: list[str], passes: int
) -> None:
    """Columns without a large one between them are read in one pass, which skips large columns.

    After the second commit, each value is in several files.
    """
    monkeypatch.setattr(reading, "_MAX_SCANNED_VALUES", LIMIT)
    monkeypatch.setattr(
        graph, "SETTINGS", Settings(single_run_rows=0, bulk_share=1e9, base_share=1e9, row_group_rows=7)
    )
    config = MetastoreConfig.model_validate(
        {
            "root": str(tmp_path / "root"),
            "engine": "auto",
            "tables": [{"name": "t", "uri": str(tmp_path / "t"), "columns": {"default": {"frequencies": "all"}}}],
        }
    )
    (tmp_path / "t").mkdir()
    draw = random.Random(7)
    rows: dict[str, list[int | None]] = {}
    for name in ("a.parquet", "b.parquet"):
        for column, values in file_of(tmp_path / "t", name, large_columns, draw).items():
            rows.setdefault(column, []).extend(values)
        refresh(config, config.tables[0], no_spark)
    store = ObjectStore(config.root).child("t")
    reader = ValueCountReader(store, read_value_counts(store, latest(config).value_counts))
    starts: list[str] = []
    batches_from, content_batches = View.batches_from, View.content_batches

    def counted(view: View, stage: str, *key: pa.Table) -> object:
        starts.append(stage)
        return batches_from(view, stage, *key) if key else content_batches(view, stage)

    monkeypatch.setattr(View, "batches_from", counted)
    monkeypatch.setattr(View, "content_batches", counted)
    summaries = reader.summaries("int64", list(rows))
    assert len([stage for stage in starts if stage.startswith("values")]) == passes
    for column, values in rows.items():
        present = np.sort(np.array([value for value in values if value is not None], np.int64))
        distinct, counts = np.unique(present, return_counts=True)
        assert (len(distinct) > LIMIT) == (column in large_columns)
        summary = summaries[column]
        assert (summary.distinct_count, summary.duplicate_count) == (len(distinct), int((counts > 1).sum()))
        expected = [int(present[-(-percent * len(present) // 100) - 1]) for percent in PERCENTS] if len(present) else []
        assert summary.ranked is not None
        assert summary.ranked.to_pylist() == expected
