"""Random histories of tables whose values are counted by fingerprints.

A fingerprint is a hash of a value. The tests use fingerprints so short that they collide. The tables are Delta and
Iceberg tables and plain files.

A repeated value is one that occurs more than once. The oracle counts repeated values in a Python model of the rows. The
changes of the tables include deletes, renames, new columns, wider types and restores.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from metastore_assets.config import ColumnPolicy, MetastoreConfig
from metastore_assets.lookup import Table
from metastore_assets.metastore import Metastore
from metastore_assets.pipeline.refresh import plan_refresh, refresh
from metastore_assets.pipeline.value_counts import fingerprints
from metastore_assets.statistics.fingerprints import FingerprintCounts
from metastore_assets.store.version import FragmentEntry
from metastore_assets.value_counts import read_value_counts
from metastore_assets.value_counts.fingerprinted import FINGERPRINTS, fingerprint_dataflow
from tests.formats.delta.log_writer import commit, mapped, metadata
from tests.pipeline.file_lake import assert_same, everything
from tests.robustness.delta_tables import DeltaMapped
from tests.robustness.file_tables import PlainFiles
from tests.robustness.histories import History, shuffled
from tests.robustness.iceberg_tables import IcebergCopyOnWrite, IcebergMergeOnRead
from tests.robustness.refresh_assertions import no_spark, versions

pytestmark = [
    # Warned by pyiceberg if a commit has nothing to delete.
    pytest.mark.filterwarnings("ignore:Delete operation did not match any records"),
]
_KINDS = [DeltaMapped, IcebergCopyOnWrite, IcebergMergeOnRead, PlainFiles]


@pytest.mark.parametrize(
    ("kind", "seed", "length"),
    [
        *(pytest.param(kind, 0, 3) for kind in (DeltaMapped, IcebergMergeOnRead)),
        *(pytest.param(kind, seed, 14, marks=pytest.mark.long) for kind in _KINDS for seed in range(6)),
    ],
)
def test_repeated_values_equal_the_counted_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[History], seed: int, length: int
) -> None:
    monkeypatch.setattr(fingerprints, "TABLE_BITS", 6)
    history = kind(tmp_path, seed)
    config = history.config()
    policy = ColumnPolicy(frequencies="repeated", algorithm="fingerprints")
    table = config.tables[0].model_copy(update={"columns": {"default": policy}})
    config = config.model_copy(update={"tables": [table], "engine": "auto"})
    comparisons = set()
    for step in ["", *shuffled(history, length)]:
        if step:
            history.take(step)
        comparisons.add(plan_refresh(config, table).target.changes.comparison)
        refresh(config, table, no_spark)
        _compare(Metastore(config.root).table("t"), history.live(), step)
    assert ("" in comparisons) == (kind is not PlainFiles), (
        "formats report the difference for fingerprinted columns, too"
    )
    scratch = config.model_copy(update={"root": str(tmp_path / "scratch")})
    refresh(scratch, table, no_spark)
    assert_same(everything(config), everything(scratch))
    assert _stored_fingerprints(config) == _stored_fingerprints(scratch)


class _RenamedPartitions(DeltaMapped):
    """A Delta table whose partition column may be renamed, which changes the keys of all partitions."""

    def rename_partition_column(self) -> None:
        self.model.columns["p"] = ("q", self.model.columns["p"][1])
        types = {pa.int64(): "long", pa.int32(): "integer", pa.float64(): "double", pa.string(): "string"}
        columns = self.model.columns.items()
        fields = [mapped(name, types[type_], self.numbers[key]) for key, (name, type_) in columns]
        commit(self.uri, metadata(fields, ["q"], **{"delta.columnMapping.mode": "name"}))


@pytest.mark.parametrize("seed", range(3))
def test_values_in_partitions_with_new_keys_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Between two refreshes, rows are added and the partition column is renamed.

    The second refresh reads only new files. Repeated values are those of the live rows, and all stored fingerprints are
    those of a refresh from scratch. The stored fingerprints of files whose partition key changed are read in batches.
    """
    monkeypatch.setattr(fingerprints, "TABLE_BITS", 6)
    history = _RenamedPartitions(tmp_path, seed)
    config = history.config()
    policy = ColumnPolicy(frequencies="repeated", algorithm="fingerprints")
    table = config.tables[0].model_copy(update={"columns": {"default": policy}})
    config = config.model_copy(update={"tables": [table], "engine": "auto"})
    for _ in range(3):
        history.append(10)
    refresh(config, table, no_spark)
    history.append(8)
    history.rename_partition_column()
    batches: list[int] = []
    largest_fragment = 0
    sum_stored_fingerprints = fingerprints.sum_stored_fingerprints

    def recording(store: Any, column: Any, entries: Sequence[FragmentEntry]) -> FingerprintCounts:
        nonlocal largest_fragment
        batches.append(sum(entry.row_count for entry in entries))
        largest_fragment = max([largest_fragment, *(entry.row_count for entry in entries)])
        return sum_stored_fingerprints(store, column, entries)

    with monkeypatch.context() as patch:
        patch.setattr(fingerprints, "sum_stored_fingerprints", recording)
        patch.setattr(fingerprints, "_MIN_ROWS_PER_TASK", 5)
        result = refresh(config, table, no_spark)
    assert max(batches) <= 4 + largest_fragment < 40
    assert result.fragments_profiled == result.fragments_added > 0, "only new files are read"
    _compare(Metastore(config.root).table("t"), history.live(), "rename")
    scratch = config.model_copy(update={"root": str(tmp_path / "scratch")})
    refresh(scratch, table, no_spark)
    assert _stored_fingerprints(config) == _stored_fingerprints(scratch)


def _stored_fingerprints(config: MetastoreConfig) -> list[dict[str, Any]]:
    """Return all stored fingerprints with their counts and locations (sums of hashed partition keys)."""
    store = versions(config)
    version = store.latest()
    assert version is not None
    counts = read_value_counts(store.objects, version.value_counts).fingerprinted
    view = fingerprint_dataflow(store.objects, counts.columns.values()).view(counts.flow)
    rows: list[dict[str, Any]] = view.groups(FINGERPRINTS).to_pylist()
    return rows


def _compare(published_table: Table, live: pa.Table, step: str) -> None:
    """Assert that repeated values, their frequencies and distinct counts are right."""
    assert sorted(row.column for row in published_table.statistics()) == sorted(live.column_names), step
    for name in live.column_names:
        counts = Counter(_key(value) for value in live[name].to_pylist() if value is not None)
        repeated_counts = {value: count for value, count in counts.items() if count > 1}
        actual = {_key(value.as_py()): count for value, count in published_table.top(name, 10**9)}
        assert actual == repeated_counts, (step, name)
        spread = published_table.spread(name)
        assert (spread.distinct_count, spread.duplicate_count) == (len(counts), len(repeated_counts)), (step, name)


def _key(value: Any) -> Any:
    return "nan" if isinstance(value, float) and math.isnan(value) else value
