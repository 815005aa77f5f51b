"""A lazy frame of Polars returns the rows that Polars selects from plain rows, and reads fewer files.

A refresh publishes the statistics of the current snapshot as a version.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from polars.io.plugins import register_io_source

from metastore_assets import open_table
from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.errors import UnsupportedTypeError
from metastore_assets.pipeline.refresh import refresh
from metastore_assets.reads.polars_predicates import weaken_predicate
from tests.reads.tables import SCHEMA, build, no_spark, publish, rows

_COLUMN = pl.col
_LITERALS: dict[str, list[Any]] = {
    "id": [1, 100, 1.5, 2**40],
    "ratio": [0.0, -0.0, 1.5, math.nan, math.inf, 2],
    "word": ["", "ab", "ä", "zzz"],
    "day": [date(2024, 1, 1), datetime(2024, 1, 1, 1)],
    "moment": [datetime(2024, 1, 1), date(2024, 1, 1)],
}
_PLAIN = [
    *(operator for name in _LITERALS for literal in _LITERALS[name] for operator in (
        _COLUMN(name) == literal, _COLUMN(name) != literal, _COLUMN(name) < literal, _COLUMN(name) >= literal,
        literal < _COLUMN(name), _COLUMN(name).eq_missing(pl.lit(literal)),
    )),
    *(_COLUMN(name).is_null() for name in SCHEMA.names),
    _COLUMN("ratio").is_nan(),
    _COLUMN("id").is_in([1, 100, 102]),
    _COLUMN("word").is_in(["a", None]),
    _COLUMN("word").is_in(["a", None], nulls_equal=True),
    _COLUMN("ratio").is_in([1.5, math.nan]),
    _COLUMN("ratio").is_between(0.0, math.inf),
    _COLUMN("ratio").is_between(0.0, 2.0, closed="none"),
    _COLUMN("id").is_between(2, 102, closed="left"),
    _COLUMN("word").str.starts_with("a"),
    _COLUMN("flag"),
    ~_COLUMN("flag"),
    _COLUMN("point").struct.field("x") == 2,
    _COLUMN("word").str.len_bytes() > 1,
]  # fmt: skip
_COMBINED = st.one_of(
    st.sampled_from(_PLAIN),
    st.builds(lambda one, other: one & other, st.sampled_from(_PLAIN), st.sampled_from(_PLAIN)),
    st.builds(lambda one, other: one | other, st.sampled_from(_PLAIN), st.sampled_from(_PLAIN)),
    st.builds(lambda one: ~one, st.sampled_from(_PLAIN)),
    st.builds(lambda one, other: ~(one & other), st.sampled_from(_PLAIN), st.sampled_from(_PLAIN)),
)


def test_a_lazy_frame_has_the_rows_that_polars_selects(tmp_path: Path) -> None:
    folders = (tmp_path / str(number) for number in count())

    @settings(
        max_examples=max(4, settings().max_examples // 100), deadline=None, suppress_health_check=list(HealthCheck)
    )
    @given(rows(), st.sampled_from([None, "id = 1"]), st.integers(0, 1), st.lists(_COMBINED, min_size=8, max_size=8))
    def check(files: Any, delete_condition: str | None, late: int, predicates: list[pl.Expr]) -> None:
        folder = next(folders)
        folder.mkdir()
        table = build(folder, "delta", files, delete_condition, late)
        frame, plain = table.lookup.lazy(), pl.DataFrame(table.rows)
        assert frame.collect_schema() == plain.schema
        for predicate in predicates:
            result = frame.filter(predicate).select("id").collect()["id"].sort()
            assert result.to_list() == plain.filter(predicate)["id"].sort().to_list(), str(predicate)

    check()


@pytest.mark.parametrize("predicate", _PLAIN, ids=str)
def test_a_weakened_predicate_selects_no_fewer_rows(predicate: pl.Expr) -> None:
    """The Arrow expression from `weaken_predicate` is true for all rows that match the Polars predicate.

    The rows are in memory. There may be no such Arrow expression.
    """
    values: dict[str, list[Any]] = {
        "id": [0, 1, 2, 100, 102, None, 2**40],
        "ratio": [None, math.nan, -0.0, 0.0, 1.5, 2.0, math.inf],
        "word": [None, "", "a", "ab", "ä", "zz", "zzzz"],
        "day": [None, date(2024, 1, 1), date(2024, 1, 2), date(1969, 1, 1), None, None, None],
        "moment": [None, datetime(2024, 1, 1), datetime(2024, 1, 1, 0, 0, 1), None, None, None, None],
        "flag": [None, True, False, None, True, False, None],
        "point": [None, {"x": 2, "tags": []}, {"x": None, "tags": None}, None, None, None, None],
    }
    plain = pa.table(values, SCHEMA)
    expected_numbers = pl.DataFrame(plain).with_row_index("n").filter(predicate)["n"].to_list()
    weaker = weaken_predicate(_optimized(predicate, pl.DataFrame(plain)), SCHEMA)
    if weaker is not None:
        result = plain.append_column("n", pa.array(range(7))).filter(weaker)["n"].to_pylist()
        assert set(expected_numbers) <= set(result)


def _optimized(predicate: pl.Expr, plain: pl.DataFrame) -> pl.Expr:
    """Return the predicate as Polars passes it to a source, with typed literals and casts.

    `plain` has the rows of the source.
    """
    pushed_predicates: list[pl.Expr] = []

    def read(_columns: Any, pushed_predicate: pl.Expr | None, _rows: Any, _size: Any) -> Iterator[pl.DataFrame]:
        assert pushed_predicate is not None
        pushed_predicates.append(pushed_predicate)
        yield plain.filter(pushed_predicate)

    register_io_source(read, schema=plain.schema).filter(predicate).collect()
    return pushed_predicates[0] if pushed_predicates else predicate


@pytest.fixture
def frame(tmp_path: Path) -> pl.LazyFrame:
    """A lazy frame of a Delta table with four files of ten ids each: 0 to 9, 10 to 19, and so on.

    Only the third file, with the ids 20 to 29, can be read. The others were overwritten after the refresh.
    """
    uri = str(tmp_path / "lake")
    for start in range(0, 40, 10):
        ids = range(start, start + 10)
        part = {
            "id": pa.array(ids, pa.int64()),
            "word": [f"w{number:02}" for number in ids],
            "at": pa.array([datetime(2024, 1, 1 + number // 10, tzinfo=UTC) for number in ids]),
            "ratio": [float(number) for number in ids],
        }
        write_deltalake(uri, pa.table(part), mode="append")
    config = publish(tmp_path, uri)
    lazy = open_table(config.root, "t", table_locations=[uri]).lazy()
    for path in Path(uri).glob("*.parquet"):
        if pq.read_table(path)["id"][0].as_py() != 20:
            path.write_bytes(b"nobody reads this")
    return lazy


@pytest.mark.parametrize(
    "predicate",
    [
        _COLUMN("id") == 22,
        (_COLUMN("id") > 19) & (_COLUMN("id") <= 29),
        _COLUMN("id").is_between(20, 25),
        _COLUMN("id").is_in([21, 23]),
        _COLUMN("word").is_in(["w21", "w29"]),
        _COLUMN("word").str.starts_with("w2"),
        _COLUMN("at") == datetime(2024, 1, 3, tzinfo=UTC),
        (_COLUMN("id") == 25) | (_COLUMN("word") == "w21"),
        (_COLUMN("ratio") < 30.0) & (_COLUMN("ratio") >= 20.0),
        (_COLUMN("id") == 25) & (_COLUMN("word").str.len_bytes() > 1),
    ],
    ids=str,
)
def test_polars_reads_only_files_that_may_match_in_the_index(frame: pl.LazyFrame, predicate: pl.Expr) -> None:
    assert frame.filter(predicate).collect().height


def test_columns_limits_and_counts(frame: pl.LazyFrame) -> None:
    some = frame.filter(_COLUMN("id").is_between(20, 29))
    assert some.select(pl.len()).collect().item() == 10
    assert some.head(3).collect().height == 3
    assert some.select("word").collect().columns == ["word"]
    assert some.group_by(_COLUMN("id") % 2).agg(pl.len()).collect()["len"].to_list() == [5, 5]


def test_a_column_may_have_an_empty_name(tmp_path: Path) -> None:
    """A column whose name is the empty string has this name in a lazy frame, and can be filtered.

    Polars itself renames such a column when it converts an Arrow batch.
    """
    (tmp_path / "lake").mkdir()
    pq.write_table(pa.table({"a": [1, 2], "": ["x", "y"]}), tmp_path / "lake" / "1.parquet")
    table = TableConfig(name="t", uri=str(tmp_path / "lake"))
    config = MetastoreConfig(root=str(tmp_path / "root"), tables=[table], engine="auto")
    refresh(config, config.tables[0], no_spark)
    lazy = open_table(config.root, "t", table_locations=[str(tmp_path)]).lazy()
    assert lazy.collect().to_dict(as_series=False) == {"a": [1, 2], "": ["x", "y"]}
    assert lazy.filter(_COLUMN("") == "y").collect()["a"].to_list() == [2]


def test_nested_uuids_are_bytes(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    ids = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([bytes(16), None], pa.binary(16)))
    nested_columns = {
        "list": pa.ListArray.from_arrays([0, 1, 2], ids),
        "struct": pa.StructArray.from_arrays([ids], ["id"]),
    }
    pq.write_table(pa.table({"a": [1, 2], **nested_columns}), tmp_path / "lake" / "1.parquet")
    table = TableConfig(name="t", uri=str(tmp_path / "lake"))
    config = MetastoreConfig(root=str(tmp_path / "root"), tables=[table], engine="auto")
    refresh(config, config.tables[0], no_spark)
    lookup = open_table(config.root, "t", table_locations=[str(tmp_path)])
    rows = [
        {"a": 1, "list": [bytes(16)], "struct": {"id": bytes(16)}},
        {"a": 2, "list": [None], "struct": {"id": None}},
    ]
    assert lookup.lazy().sort("a").collect().to_dicts() == rows
    assert lookup.lazy().filter(_COLUMN("a") > 2).collect().height == 0
    assert lookup.read(where="a > 2").read_all().num_rows == 0


def test_time_zones_that_polars_lacks_become_utc(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    zones = {"a": "+05:30", "b": "Asia/Kolkata"}
    times = {name: pa.array([0, 60], pa.timestamp("us", zone)) for name, zone in zones.items()}
    pq.write_table(pa.table(times), tmp_path / "lake" / "1.parquet")
    table = TableConfig(name="t", uri=str(tmp_path / "lake"))
    config = MetastoreConfig(root=str(tmp_path / "root"), tables=[table], engine="auto")
    refresh(config, config.tables[0], no_spark)
    lazy = open_table(config.root, "t", table_locations=[str(tmp_path)]).lazy()
    assert lazy.collect_schema() == {"a": pl.Datetime("us", "UTC"), "b": pl.Datetime("us", "Asia/Kolkata")}
    start = datetime(1970, 1, 1, tzinfo=UTC)
    assert lazy.filter(_COLUMN("a") > start).collect()["a"].to_list() == [start + timedelta(microseconds=60)]


def test_nested_time_zones_that_polars_lacks_become_utc(tmp_path: Path) -> None:
    """Times in structs, lists and maps get the zone UTC, too, if Polars does not support their zone.

    The test reads a Parquet file that Arrow wrote.
    """
    (tmp_path / "lake").mkdir()
    zoned_type = pa.timestamp("us", "+05:30")
    type_ = pa.struct([("at", zoned_type), ("list", pa.list_(zoned_type)), ("map", pa.map_(pa.string(), zoned_type))])
    start = datetime(1970, 1, 1, tzinfo=UTC)
    values = [{"at": start, "list": [start, None], "map": [("k", start)]}, None]
    pq.write_table(pa.table({"s": pa.array(values, type_)}), tmp_path / "lake" / "1.parquet")
    table = TableConfig(name="t", uri=str(tmp_path / "lake"))
    config = MetastoreConfig(root=str(tmp_path / "root"), tables=[table], engine="auto")
    refresh(config, config.tables[0], no_spark)
    lazy = open_table(config.root, "t", table_locations=[str(tmp_path)]).lazy()
    assert lazy.select(_COLUMN("s").struct.field("at")).collect_schema() == {"at": pl.Datetime("us", "UTC")}
    frame = lazy.collect()["s"].struct.unnest()
    assert frame["at"].to_list() == [start, None]
    assert frame["list"].to_list() == [[start, None], None]
    assert frame.schema["list"] == pl.List(pl.Datetime("us", "UTC"))
    (first, second) = frame["map"].to_list()
    assert (list(first.values()) if isinstance(first, dict) else [item["value"] for item in first]) == [start]
    assert second is None


def test_a_type_that_polars_does_not_have_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    pq.write_table(pa.table({"a": [1], "wide": pa.array([1], pa.decimal256(50, 2))}), tmp_path / "lake" / "1.parquet")
    table = TableConfig(name="t", uri=str(tmp_path / "lake"))
    config = MetastoreConfig(root=str(tmp_path / "root"), tables=[table], engine="auto")
    refresh(config, config.tables[0], no_spark)
    lookup = open_table(config.root, "t", table_locations=[str(tmp_path)])
    with pytest.raises(UnsupportedTypeError, match="'wide'"):
        lookup.lazy()
    assert lookup.read(columns=["wide"]).read_all().num_rows == 1
