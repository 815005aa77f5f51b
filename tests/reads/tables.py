"""Random tables with deletes, written by other libraries, and their live rows as an Arrow table.

DuckDB evaluates conditions on the Arrow table, to find the expected rows. A version has the statistics of one snapshot
of the table. A refresh publishes a version for the current snapshot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any

import duckdb
import hypothesis.strategies as st
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake

from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.lookup import Table
from metastore_assets.metastore import open_table
from metastore_assets.pipeline.refresh import refresh

FORMATS = ("delta", "files", "iceberg")
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("ratio", pa.float64()),
        ("word", pa.string()),
        ("day", pa.date32()),
        ("moment", pa.timestamp("us")),
        ("flag", pa.bool_()),
        ("point", pa.struct([("x", pa.int32()), ("tags", pa.list_(pa.string()))])),
    ]
)
_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "ratio": st.sampled_from([None, float("nan"), -1.5, -0.0, 0.0, 1.5, 2.0, 3.25, float("inf")]),
    "word": st.sampled_from([None, "", "a", "ab", "b", "ä", "zz", "it's", "x" * 70]),
    "day": st.sampled_from([None, date(1969, 12, 31), date(2024, 1, 1), date(2024, 1, 2)]),
    "moment": st.sampled_from([None, datetime(1969, 12, 31, 23), datetime(2024, 1, 1), datetime(2024, 1, 1, 0, 0, 1)]),
    "flag": st.sampled_from([None, True, False]),
    "point": st.sampled_from([None, {"x": None, "tags": None}, {"x": 1, "tags": []}, {"x": 2, "tags": ["t", None]}]),
}
Row = dict[str, Any]


def rows() -> st.SearchStrategy[list[list[Row]]]:
    """Draw the rows of one to four files."""
    row = st.fixed_dictionaries(_VALUES)
    return st.lists(st.lists(row, min_size=1, max_size=6), min_size=1, max_size=4).map(_number)


def _number(files: list[list[Row]]) -> list[list[Row]]:
    return [[{"id": 100 * at + row_at, **row} for row_at, row in enumerate(file)] for at, file in enumerate(files)]


_TESTS = [
    *(f"ratio {operator} {literal}" for operator in ("=", "!=", "<", ">=", ">") for literal in ("0.0", "1.5", "3.25")),
    "ratio is null",
    "isnan(ratio)",
    *(f"word {operator} '{literal}'" for operator in ("=", "!=", "<", ">=") for literal in ("", "ab", "ä", "zzz")),
    "word in ('a', 'zz')",
    "word like 'a%'",
    "word is not null",
    *(f"day {operator} date '2024-01-01'" for operator in ("=", "<", ">=")),
    "moment >= timestamp '2024-01-01 00:00:01'",
    "flag",
    "id < 100",
    "id = 201",
    "id between 2 and 103",
    "point.x = 2",
    "point is null",
]


def predicates() -> st.SearchStrategy[str]:
    """Draw predicates that mean the same in this package and in DuckDB."""
    leaf = st.sampled_from(_TESTS)
    negated_leaf = st.builds("not ({})".format, leaf)
    two = st.builds("({}) {} ({})".format, leaf | negated_leaf, st.sampled_from(["and", "or"]), leaf | negated_leaf)
    return leaf | negated_leaf | two


@dataclass(frozen=True)
class ReadTable:
    """A table with a published version, and its current rows, which may differ from those of the version."""

    lookup: Table
    location: str
    rows: pa.Table

    def ids(self, where: str) -> list[int]:
        """Return the ids of the current rows that match a condition, by DuckDB."""
        with duckdb.connect() as connection:
            connection.register("plain", self.rows)
            return sorted(row[0] for row in connection.sql(f"select id from plain where {where}").fetchall())


def build(
    folder: Path, kind: str, files: Sequence[Sequence[Row]], delete_condition: str | None, late: int
) -> ReadTable:
    """Write a table, refresh it, and then delete rows and add the last files.

    Args:
        folder: An empty folder.
        kind: One of `FORMATS`, or `bare files` for Parquet files without statistics.
        files: Rows by file.
        delete_condition: A condition in SQL of rows that are deleted after the refresh; None for none.
        late: Number of files that are added after the refresh, so that the version does not know them.
    """
    uri = folder / "lake"
    parts = [pa.Table.from_pylist(list(file), SCHEMA) for file in files]
    profiled_parts, added_parts = parts[: len(parts) - late], parts[len(parts) - late :]
    writer = {"delta": _Delta, "files": _Files, "bare files": _BareFiles, "iceberg": _Iceberg}[kind](uri)
    for part in profiled_parts:
        writer.append(part)
    config = publish(folder, writer.location)
    lookup = open_table(config.root, "t", table_locations=[str(folder)])
    live = pa.concat_tables(profiled_parts) if profiled_parts else SCHEMA.empty_table()
    if delete_condition is not None:
        writer.delete(delete_condition)
        with duckdb.connect() as connection:
            connection.register("plain", live)
            query = f"select id from plain where ({delete_condition}) is not true"
            ids = [row[0] for row in connection.sql(query).fetchall()]
        live = live.filter(pa.compute.is_in(live["id"], pa.array(ids, pa.int64())))
    for part in added_parts:
        writer.append(part)
    return ReadTable(lookup, writer.location, pa.concat_tables([live, *added_parts]))


def publish(folder: Path, uri: str) -> MetastoreConfig:
    """Refresh the table at `uri` without Spark, and return the configuration.

    The root of the Metastore is in `folder`.
    """
    config = MetastoreConfig(root=str(folder / "root"), tables=[TableConfig(name="t", uri=uri)], engine="auto")
    refresh(config, config.tables[0], no_spark)
    return config


def no_spark() -> Any:
    raise AssertionError("nothing here is worth a session")


class _Delta:
    def __init__(self, uri: Path) -> None:
        self.location = str(uri)
        write_deltalake(self.location, SCHEMA.empty_table())

    def append(self, part: pa.Table) -> None:
        write_deltalake(self.location, part, mode="append")

    def delete(self, condition: str) -> None:
        DeltaTable(self.location).delete(condition)


class _Files:
    _has_statistics = True

    def __init__(self, uri: Path) -> None:
        self.location = str(uri)
        self._count = 0
        uri.mkdir(parents=True)
        self.append(SCHEMA.empty_table())

    def append(self, part: pa.Table) -> None:
        self._count += 1
        path = f"{self.location}/{self._count}.parquet"
        pq.write_table(part, path, write_statistics=self._has_statistics)

    def delete(self, condition: str) -> None:
        """Rewrite every file without the rows to delete, because plain files have no delete files."""
        for path in sorted(Path(self.location).iterdir()):
            plain = pq.read_table(path)
            with duckdb.connect() as connection:
                connection.register("plain", plain)
                query = f"select id from plain where ({condition}) is not true"
                ids = [row[0] for row in connection.sql(query).fetchall()]
            pq.write_table(plain.filter(pa.compute.is_in(plain["id"], pa.array(ids, pa.int64()))), path)


class _BareFiles(_Files):
    _has_statistics = False


class _Iceberg:
    def __init__(self, uri: Path) -> None:
        from pyiceberg.catalog.sql import SqlCatalog

        uri.mkdir(parents=True)
        catalog = SqlCatalog("c", uri=f"sqlite:///{uri}/catalog.db", warehouse=f"file://{uri}")
        catalog.create_namespace("n")
        self._table = catalog.create_table("n.t", SCHEMA)
        self.location = self._table.location().removeprefix("file://")

    def append(self, part: pa.Table) -> None:
        self._table.append(part)

    def delete(self, condition: str) -> None:
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._table.delete(condition)
