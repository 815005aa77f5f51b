"""If metadata do not show every change of a table, no row is counted twice and none is lost.

A fragment is a data file with the deletes that apply to it. To find what changed since the last version, a refresh uses
the difference of two snapshots, or compares all fragments of both. A version is the published statistics of a table at
one snapshot.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pyarrow as pa
import pytest

from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.metastore import Metastore
from metastore_assets.pipeline.refresh import plan_refresh
from tests.formats.hudi.random_histories import History
from tests.formats.hudi.writer import HudiWriter
from tests.formats.iceberg.writer import IcebergWriter, column
from tests.pipeline.file_lake import assert_same, everything
from tests.robustness.refresh_assertions import from_scratch, no_spark, refreshed

_A, _B = {"key": "a", "ts": 1, "value": 1.0}, {"key": "b", "ts": 1, "value": 2.0}


def _config(folder: Path) -> MetastoreConfig:
    table = TableConfig(name="t", uri=str(folder / "t"))
    return MetastoreConfig(root=str(folder / "root"), engine="auto", tables=[table])


def _assert_refresh(config: MetastoreConfig, row_count: int, reason: str | None) -> None:
    """Refresh, and compare the version with that of a first refresh under an empty root.

    Args:
        config: The configuration of the table.
        row_count: The number of rows that the table must have.
        reason: A part of the reason why the refresh compares all fragments; None: it uses the difference.
    """
    comparison = plan_refresh(config, config.tables[0]).to_json()["full_comparison"]
    assert (comparison is None) if reason is None else (reason in (comparison or ""))
    assert refreshed(config, no_spark).published  # type: ignore[arg-type]
    assert Metastore(config.root).table("t").count().value == row_count
    assert_same(everything(config), from_scratch(config, no_spark, Path(config.root).parent))  # type: ignore[arg-type]


def _remove_old_files(history: History, indexes: Collection[int]) -> None:
    """Remove some outdated base files of partition `y`, as an interrupted clean does.

    `indexes` has the positions of these files among all outdated ones, sorted by path.
    """
    (one,) = (one for one in history.slices() if one.partition == "part=y")
    writer = history.writer
    old = sorted(path for path in writer.folder.glob(f"part=y/{one.file_id}*.parquet") if path.name != one.base_name)
    writer.request(writer.tick(), "clean")
    for index in indexes:
        old[index].unlink()


@pytest.mark.parametrize(
    ("version", "removed_indexes"),
    [
        *((6, [0]), (9, [1]), (9, [0, 1])),
        *(pytest.param(*case, marks=pytest.mark.long) for case in ((9, [0]), (6, [1]), (6, [0, 1]))),
    ],
)
def test_a_hudi_file_removed_by_an_interrupted_clean_is_not_counted(
    tmp_path: Path, version: int, removed_indexes: list[int]
) -> None:
    """Old rows are not counted after an interrupted clean of a Hudi table.

    A base file of the published version is replaced twice. Then the clean removes some of the old files. If it removes
    the file of the published version, the refresh compares all fragments.
    """
    history = History(HudiWriter(tmp_path / "t", version))
    config = _config(tmp_path)
    for part in "xy":
        history.insert(part, [_A, _B])
    _assert_refresh(config, 4, "no version is published")
    for value in (3.0, 4.0):
        history.rewrite(history.slices()[1], [_A | {"ts": int(value), "value": value}])
    _remove_old_files(history, removed_indexes)
    _assert_refresh(config, 4, "uncertain" if 0 in removed_indexes else None)
    history.rewrite(history.slices()[1], [_A | {"ts": 5, "value": 5.0}, {"key": "c", "ts": 5, "value": 0.0}])
    _assert_refresh(config, 5, None)


def test_an_iceberg_file_listed_twice_counts_twice_until_a_rollback(tmp_path: Path) -> None:
    """Rows count twice while the snapshot lists their file twice.

    A refresh compares all fragments if the published snapshot or the new one lists a file twice.
    """
    writer = IcebergWriter(tmp_path / "t", [column(1, "id", "long")])
    config = _config(tmp_path)
    data = writer.data(pa.table({"id": [1, 2, 3]}))
    writer.commit(data, writer.data(pa.table({"id": [7]})), retain_manifests=True)
    _assert_refresh(config, 4, "no version is published")
    first = writer.snapshots[-1]["snapshot-id"]
    again = {key: value for key, value in data.items() if key != "sequence_number"}
    writer.commit(again, retain_manifests=True)
    _assert_refresh(config, 7, "lists a file several times")
    writer.commit(writer.data(pa.table({"id": [9]})), retain_manifests=True)
    _assert_refresh(config, 8, "lists a data file several times")
    writer.write_metadata(**{"current-snapshot-id": first})
    _assert_refresh(config, 4, "lists a data file several times")
    writer.refs["main"]["snapshot-id"] = first
    writer.manifests, writer.live = writer.manifests[:1], writer.live[:2]
    writer.commit(writer.data(pa.table({"id": [10]})), retain_manifests=True)
    _assert_refresh(config, 5, None)
