"""An SQL query of a table has the rows that DuckDB selects, and opens only files that it needs.

DuckDB selects from plain rows.
"""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from metastore_assets import Metastore
from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.errors import ConfigError, QueryError
from metastore_assets.pipeline.refresh import refresh
from metastore_assets.sql import query
from tests.reads.tables import build, no_spark, predicates, rows


def test_a_query_has_the_rows_of_the_table(tmp_path: Path) -> None:
    folders = (tmp_path / str(number) for number in count())

    @settings(
        max_examples=max(3, settings().max_examples // 100), deadline=None, suppress_health_check=list(HealthCheck)
    )
    @given(rows(), st.sampled_from([None, "id = 1"]), st.integers(0, 1), st.lists(predicates(), min_size=8, max_size=8))
    def check(files: Any, delete_condition: str | None, late: int, wheres: list[str]) -> None:
        folder = next(folders)
        folder.mkdir()
        table = build(folder, "delta", files, delete_condition, late)
        metastore = Metastore(str(folder / "root"), table_locations=[str(folder)])
        for where in [*wheres, "id in (1, 2, 101)", "id not in (1, 2)", "ratio in (1.5, 2)", "word in ('a', null)"]:
            result = query(metastore, f"select id from t where {where} order by id")["id"].to_pylist()
            assert result == table.ids(where), where

    check()


@pytest.fixture
def metastore(tmp_path: Path) -> Metastore:
    """A Delta table of four files of ten consecutive ids, and a hidden column.

    Only the third file is readable.
    """
    uri = str(tmp_path / "lake" / "sales")
    for start in range(0, 40, 10):
        ids = range(start, start + 10)
        part = {
            "id": pa.array(ids, pa.int64()),
            "day": [date(2024, 1, 1 + start // 10)] * 10,
            "email": [f"{number}@example.org" for number in ids],
        }
        write_deltalake(uri, pa.table(part), mode="append")
    table = TableConfig.model_validate({"name": "sales", "uri": uri, "columns": {"email": {"values": "hidden"}}})
    config = MetastoreConfig(root=str(tmp_path / "root"), tables=[table], engine="auto")
    refresh(config, config.tables[0], no_spark)
    for path in Path(uri).glob("*.parquet"):
        if pq.read_table(path)["id"][0].as_py() != 20:
            path.write_bytes(b"nobody reads this")
    return Metastore(config.root, table_locations=[uri])


@pytest.mark.parametrize(
    ("text", "expected_rows"),
    [
        ("select count(*) from sales where id between 20 and 24", [(5,)]),
        ("select sum(id) from Sales where day = date '2024-01-03'", [(245,)]),
        ("select id from sales where id in (21, 23) order by 1", [(21,), (23,)]),
        ("select s.id from sales s join statistics v on true where s.id = 22 and v.column_name = 'id'", [(22,)]),
        ("with a as (select * from sales where id > 19 and id < 30) select max(id), count(*) from a", [(29, 10)]),
    ],
)
def test_a_query_opens_only_files_that_may_match_in_the_index(
    metastore: Metastore, text: str, expected_rows: Any
) -> None:
    assert [tuple(row.values()) for row in query(metastore, text).to_pylist()] == expected_rows
    with pytest.raises(QueryError, match=r"sales") as error_info:
        query(metastore, "select sum(id) from sales")
    assert "Traceback" not in str(error_info.value)


def test_hidden_columns_are_read_by_unrestricted_queries_only(metastore: Metastore) -> None:
    assert query(metastore, "from sales where id = 22").column_names == ["id", "day"]
    with pytest.raises(QueryError, match="email"):
        query(metastore, "select email from sales where id = 22")
    result = query(metastore, "select email from sales where id = 22", unrestricted=True)
    assert result.to_pydict() == {"email": ["22@example.org"]}


def test_a_table_without_shown_columns_is_named(tmp_path: Path) -> None:
    """A query of a table with only hidden columns is an error that names the table and `--unrestricted`."""
    uri = str(tmp_path / "sales")
    write_deltalake(uri, pa.table({"id": [1, 2]}))
    table = TableConfig.model_validate({"name": "sales", "uri": uri, "columns": {"id": {"values": "hidden"}}})
    config = MetastoreConfig(root=str(tmp_path / "root"), tables=[table], engine="auto")
    refresh(config, config.tables[0], no_spark)
    metastore = Metastore(config.root, table_locations=[uri])
    with pytest.raises(QueryError, match=r"'sales'.*--unrestricted"):
        query(metastore, "select count(*) from sales")
    assert query(metastore, "select count(*) as n from sales", unrestricted=True)["n"].to_pylist() == [2]


def test_a_column_with_a_new_field_is_not_shown(tmp_path: Path) -> None:
    """A query does not show a struct column after a commit added a field to the struct.

    A policy that no refresh has applied yet may hide the new field. After a refresh that applies such a policy, the
    column is still not shown.
    """
    uri = str(tmp_path / "sales")
    write_deltalake(uri, pa.table({"id": [1], "who": [{"name": "Ada"}]}))
    policy = {"who.email": {"values": "hidden"}}
    write_deltalake(uri, pa.table({"id": [2], "who": [{"name": "Bob"}]}), mode="append")
    table = TableConfig.model_validate({"name": "sales", "uri": uri})
    config = MetastoreConfig(root=str(tmp_path / "root"), tables=[table], engine="auto")
    refresh(config, table, no_spark)
    lookup = Metastore(config.root, table_locations=[uri]).table("sales")
    assert lookup.open_rows().list_shown_columns() == ["id", "who"]
    added_rows = pa.table({"id": [3], "who": [{"name": "Eve", "email": "e@example.org"}]})
    write_deltalake(uri, added_rows, mode="append", schema_mode="merge")
    assert lookup.open_rows().list_shown_columns() == ["id"]
    table = TableConfig.model_validate({"name": "sales", "uri": uri, "columns": policy})
    refresh(MetastoreConfig(root=config.root, tables=[table], engine="auto"), table, no_spark)
    lookup = Metastore(config.root, table_locations=[uri]).table("sales")
    assert lookup.open_rows().list_shown_columns() == ["id"]


def test_a_location_must_be_confirmed(metastore: Metastore, tmp_path: Path) -> None:
    root = str(tmp_path / "root")
    with pytest.raises(ConfigError, match="confirm"):
        query(Metastore(root), "from sales")
    config = TableConfig(name="sales", uri=str(tmp_path / "lake" / "sales"))
    result = query(Metastore(root), "select id from sales where id = 22", find_table=lambda name: config)
    assert result["id"].to_pylist() == [22]


def test_types_that_duckdb_lacks_are_converted(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    half, wide = pa.array([1.5, None], pa.float16()), pa.array([Decimal("1.50"), None], pa.decimal256(60, 2))
    columns = {
        "id": pa.array([1, 2]),
        "half": half,
        "wide": wide,
        "decimal": wide.cast(pa.decimal256(20, 2)),
        "nested": pa.array([{"a": [{"b": 1.5}]}, None], pa.struct([("a", pa.list_(pa.struct([("b", pa.float16())])))])),
        "pairs": pa.array([[("a", 1.5)], None], pa.map_(pa.string(), pa.float16())),
        "vector": pa.FixedSizeListArray.from_arrays(pa.array([1, 2, 3, 4], pa.float16()), 2),
    }
    pq.write_table(pa.table(columns), tmp_path / "lake" / "1.parquet")
    config = MetastoreConfig(
        root=str(tmp_path / "root"), tables=[TableConfig(name="t", uri=str(tmp_path / "lake"))], engine="auto"
    )
    refresh(config, config.tables[0], no_spark)
    metastore = Metastore(config.root, table_locations=[str(tmp_path)])
    assert query(metastore, "from t where id = 1").to_pylist() == [
        {
            "id": 1,
            "half": 1.5,
            "wide": "1.50",
            "decimal": Decimal("1.50"),
            "nested": {"a": [{"b": 1.5}]},
            "pairs": [("a", 1.5)],
            "vector": [1.0, 2.0],
        }
    ]
    for where in ("half > 1", "half in (1.5, 2)", "wide = '1.50'", "decimal >= 1.5", "wide > 'a' or id = 1"):
        assert query(metastore, f"select id from t where {where}")["id"].to_pylist() == [1], where
