"""Two years of revisions of a real data set are committed to tables.

Statistics of the tables equal those published with the data set. On one day the data set was published empty.
"""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import In

from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.lookup import Table
from metastore_assets.metastore import Metastore
from tests.robustness.refresh_assertions import refreshed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    # Warned by pyiceberg if a commit has nothing to delete.
    pytest.mark.filterwarnings("ignore:Delete operation did not match any records"),
]

_EMPTY = 144
"""Number of the revision that has no rows."""
_Row = dict[str, Any]


@dataclass
class Revisions:
    """The revisions of a data set in order, and the rows of the current revision."""

    folder: Path
    rows: dict[int, _Row] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.published_revisions: list[dict[str, Any]] = json.loads((self.folder / "revisions.json").read_text())[
            "revisions"
        ]
        types = {name: column["type"] for name, column in self.published_revisions[0]["columns"].items()}
        kinds = {name: pa.float64() if type_ == "number" else pa.string() for name, type_ in types.items()}
        self.schema = pa.schema([(name, pa.int64() if name == "id" else kind) for name, kind in kinds.items()])

    def changes(self) -> Iterator[tuple[dict[str, Any], dict[int, _Row | None]]]:
        """Yield each revision with its changes by id: the new row, or None if it was removed."""
        paths = [self.folder / "base.csv", *sorted((self.folder / "changes").iterdir())]
        for revision, path in zip(self.published_revisions, paths, strict=True):
            with path.open(encoding="utf-8", newline="") as file:
                changed_rows = dict(self._change(record) for record in csv.DictReader(file))
            for key, row in changed_rows.items():
                if row is None:
                    del self.rows[key]
                else:
                    self.rows[key] = row
            assert len(self.rows) == revision["rows"]
            yield revision, changed_rows

    def arrow(self, rows: Collection[_Row]) -> pa.Table:
        return pa.Table.from_pylist(list(rows), schema=self.schema)

    def _change(self, record: dict[str, str]) -> tuple[int, _Row | None]:
        key = int(record["id"])
        if record.get("op") == "D":
            return key, None
        row: _Row = {name: self._value(name, record[name]) for name in self.schema.names}
        return key, row | {"id": key}

    def _value(self, name: str, text: str) -> Any:
        if text == "":
            return None
        return text if self.schema.field(name).type == pa.string() else float(text)


class DeltaMerged:
    """A Delta table in which each commit is one merge by deltalake."""

    def __init__(self, uri: Path, revisions: Revisions) -> None:
        self.uri = uri
        self.revisions = revisions
        write_deltalake(uri, pa.RecordBatchReader.from_batches(revisions.schema, []))

    def commit(self, changed_rows: dict[int, _Row | None]) -> None:
        source = self.revisions.arrow([row or {"id": key} for key, row in changed_rows.items()])
        source = source.append_column("op", pa.array(["D" if row is None else "U" for row in changed_rows.values()]))
        merging = DeltaTable(self.uri).merge(source, "target.id = source.id", "source", "target")
        every = {f"`{name}`": f"source.`{name}`" for name in self.revisions.schema.names}
        merging.when_matched_delete("source.op = 'D'").when_matched_update(every).when_not_matched_insert(
            every, "source.op <> 'D'"
        ).execute()


class IcebergMerged:
    """An Iceberg table whose commits delete by key and append in one pyiceberg transaction.

    Every tenth commit overwrites the table instead, and so does a commit that changes more than half of the rows.
    """

    def __init__(self, uri: Path, revisions: Revisions) -> None:
        self.revisions = revisions
        catalog = SqlCatalog("c", uri="sqlite://", warehouse=uri.parent.as_uri())
        catalog.create_namespace("n")
        merging = {"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "10"}
        self.table = catalog.create_table("n.t", revisions.schema, location=uri.as_uri(), properties=merging)
        self.commits = 0

    def commit(self, changed_rows: dict[int, _Row | None]) -> None:
        self.commits += 1
        if len(changed_rows) > len(self.revisions.rows) // 2 or self.commits % 10 == 0:
            self.table.overwrite(self.revisions.arrow(self.revisions.rows.values()))
            return
        with self.table.transaction() as transaction:
            transaction.delete(In("id", changed_rows))
            transaction.append(self.revisions.arrow([row for row in changed_rows.values() if row]))


class FilesMerged:
    """A table of Parquet files, each with the rows of 50,000 ids.

    A commit rewrites the files that change.
    """

    def __init__(self, uri: Path, revisions: Revisions) -> None:
        self.uri = uri
        self.revisions = revisions
        self.commits = 0
        uri.mkdir()

    def commit(self, changed_rows: dict[int, _Row | None]) -> None:
        self.commits += 1
        blocks: dict[int, list[_Row]] = {key // 50_000: [] for key in changed_rows}
        for key, row in self.revisions.rows.items():
            if key // 50_000 in blocks:
                blocks[key // 50_000].append(row)
        for block, rows in blocks.items():
            self._write(self.uri / f"{block}", rows)
        # A data set without rows is one file without rows, as published, which has the schema.
        self._write(self.uri / "empty", [] if not self.revisions.rows else None)

    def _write(self, folder: Path, rows: list[_Row] | None) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        if rows or (rows is not None and folder.name == "empty"):
            folder.mkdir()
            pq.write_table(self.revisions.arrow(rows), folder / f"{self.commits}.parquet")


_KINDS = [DeltaMerged, IcebergMerged, FilesMerged]


@pytest.mark.parametrize(
    "kind",
    [DeltaMerged, *(pytest.param(kind, marks=pytest.mark.long) for kind in (IcebergMerged, FilesMerged))],
    ids=lambda kind: kind.__name__,
)
def test_some_revisions_have_the_published_statistics(
    spark: SparkSession, tmp_path: Path, realtables: Path, kind: type[Any]
) -> None:
    """Statistics of the first, the empty and a later revision equal the published ones.

    All changes between two of these revisions are one commit.
    """
    stops = (0, _EMPTY, 150)
    revisions, table, config = _start(kind, tmp_path, realtables)
    waiting: dict[int, _Row | None] = {}
    for revision, changed_rows in revisions.changes():
        waiting |= changed_rows
        if revision["seq"] in stops:
            table.commit(waiting)
            waiting = {}
            refreshed(config, spark)
            _assert_statistics(Metastore(config.root).table("t"), revision, revisions.schema)
        if revision["seq"] == stops[-1]:
            return


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", _KINDS, ids=lambda kind: kind.__name__)
def test_all_revisions_have_the_published_statistics(
    spark: SparkSession, tmp_path: Path, realtables: Path, kind: type[Any]
) -> None:
    """Statistics equal the published ones at every 25th revision and around the empty day.

    Each revision with changes is a commit. The compared revisions include the empty day, the day before it and the day
    after it.
    """
    revisions, table, config = _start(kind, tmp_path, realtables)
    compared_count = 0
    for revision, changed_rows in revisions.changes():
        if changed_rows:
            table.commit(changed_rows)
        if "columns" in revision or abs(revision["seq"] - _EMPTY) <= 1:
            refreshed(config, spark)
            _assert_statistics(Metastore(config.root).table("t"), revision, revisions.schema)
            compared_count += 1
    assert compared_count == 29


def _start(kind: type[Any], folder: Path, realtables: Path) -> tuple[Revisions, Any, MetastoreConfig]:
    revisions = Revisions(realtables / "history" / "ourairports" / "runways")
    table = kind(folder / "lake", revisions)
    config = TableConfig(name="t", uri=str(folder / "lake"))
    return revisions, table, MetastoreConfig(root=str(folder / "root"), tables=[config])


def _assert_statistics(table: Table, revision: dict[str, Any], schema: pa.Schema) -> None:
    """Compare each column's statistics, and the row count, with the published numbers.

    The statistics are the numbers of nulls and distinct values, the minimum and the maximum.
    """
    revision_number = revision["seq"]
    assert table.count().value == revision["rows"], revision_number
    rows = {row.column: row for row in table.statistics()}
    assert list(rows) == schema.names, revision_number
    nothing = {"null_count": 0, "distinct_count": 0, "min": None, "max": None}
    columns = revision.get("columns", dict.fromkeys(schema.names, nothing) if not revision["rows"] else {})
    for name, expected in columns.items():
        row = rows[name]
        least, greatest = (bound and bound.as_py() for bound in (row.minimum, row.maximum))
        actual = {
            "null_count": row.null_count,
            "distinct_count": row.distinct_count,
            "min": least,
            "max": greatest,
        }
        assert actual == {key: expected[key] for key in actual}, (revision_number, name)
        assert row.distinct_count_guarantee == "exact", (revision_number, name)
        assert row.value_count == revision["rows"] - expected["null_count"], (revision_number, name)
