"""A refresh after the type of a column changed does what a first refresh does.

Floats became doubles and are read again, or a declared type became too small for a value.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metastore_assets.config import MetastoreConfig
from metastore_assets.errors import ProfileError
from metastore_assets.lookup import Table
from metastore_assets.metastore import Metastore
from metastore_assets.pipeline.refresh import refresh
from tests.formats.delta.log_writer import add_file, commit, field, metadata, protocol
from tests.formats.hudi.writer import FIELDS, HudiWriter
from tests.formats.iceberg.writer import IcebergWriter, column, with_ids
from tests.pipeline.file_lake import assert_same, everything

_FLOAT = 0.10000000149011612
"""The number next to 0.1 that a float of 32 bits has."""


def _refreshed(folder: Path, root: str = "root", **table: Any) -> tuple[MetastoreConfig, Table]:
    config = MetastoreConfig.model_validate(
        {"root": str(folder / root), "engine": "auto", "tables": [{"name": "t", "uri": str(folder / "t"), **table}]}
    )
    refresh(config, config.tables[0], _no_spark)
    return config, Metastore(config.root).table("t")


def _no_spark() -> Any:
    raise AssertionError("Spark is not needed")


def _values(table: Table, column: str) -> dict[Any, int]:
    return {row.value.as_py(): row.frequency for row in table.values(column)}


@pytest.mark.parametrize("version", [6, 9])
def test_floats_of_hudi_become_the_doubles_with_the_same_text(tmp_path: Path, version: int) -> None:
    """A top-level column and a field of a struct are floats, and become doubles.

    Hudi's readers convert floats by their texts. `Table.count` counts the converted values even before the next
    refresh.
    """
    writer = HudiWriter(tmp_path / "t", version, by_commit=True, fields=[FIELDS[0], FIELDS[1]])
    for count, (avro, arrow, value) in enumerate(
        [("float", pa.float32(), 0.1), ("float", pa.float32(), 0.5), ("double", pa.float64(), 0.1)]
    ):
        struct = {"type": "record", "name": "s", "fields": [{"name": "x", "type": ["null", avro], "default": None}]}
        writer.fields[2:] = [
            {"name": "v", "type": ["null", avro], "default": None},
            {"name": "s", "type": ["null", struct], "default": None},
        ]
        writer.types |= {"v": arrow, "s": pa.struct([("x", arrow)])}
        if avro == "double":
            config, table = _refreshed(tmp_path)
            assert _values(table, "v") == _values(table, "s.x") == {_FLOAT: 1, 0.5: 1}
        instant = writer.tick()
        one = writer.new_slice("a", instant)
        rows = [{"key": str(count), "part": "a", "v": value, "s": {"x": value}}]
        writer.complete(instant, "deltacommit", [writer.base_file(one, instant, rows)])
    for name in ("v", "s.x"):
        assert table.count(f"{name} = 0.1", table=config.tables[0]).value == 2
        assert table.count(f"{name} > 0.1", table=config.tables[0]).value == 1
    config, table = _refreshed(tmp_path)
    assert _values(table, "v") == _values(table, "s.x") == {0.1: 2, 0.5: 1}
    assert_same(everything(config), everything(_refreshed(tmp_path, "scratch")[0]))


def test_a_partition_column_of_delta_has_the_values_of_its_current_type(tmp_path: Path) -> None:
    """The text of a partition value is parsed as the current type of the column, as Spark parses it.

    The type changes from float to double.
    """
    folder = tmp_path / "t"
    adds = [add_file(folder, pa.table({"a": [1, 2]}), f"{text}.parquet", p=text) for text in ("0.1", "0.5")]
    commit(folder, protocol(), metadata([field("p", "float"), field("a", "long")], ["p"]), *adds)
    config, table = _refreshed(tmp_path)
    assert _values(table, "p") == {_FLOAT: 2, 0.5: 2}
    commit(folder, metadata([field("p", "double"), field("a", "long")], ["p"]))
    assert table.count("p = 0.1", table=config.tables[0]).value == 2
    config, table = _refreshed(tmp_path)
    assert _values(table, "p") == {0.1: 2, 0.5: 2}
    assert_same(everything(config), everything(_refreshed(tmp_path, "scratch")[0]))


def test_initial_defaults_of_iceberg_have_the_current_type(tmp_path: Path) -> None:
    """The default 0.1 of a column that changes from float to double becomes the double 0.1.

    The column, and a field of a struct, are newer than the data file, so its rows have the default. `Table.count`
    counts the doubles even before the next refresh.
    """
    writer = IcebergWriter(tmp_path / "t", [column(1, "a", "long")], version=3)
    writer.commit(writer.data(with_ids(pa.table({"a": [1, 2]}), {"a": 1})))

    def add_schema(type_: str) -> None:
        struct = {"type": "struct", "struct-id": 1, "fields": [column(4, "x", type_, initial_default=0.1)]}
        columns = [column(2, "v", type_, initial_default=0.1), column(3, "s", struct, initial_default={})]
        writer.schemas.append([column(1, "a", "long"), *columns])
        writer.write_metadata()

    add_schema("float")
    config, table = _refreshed(tmp_path)
    assert _values(table, "v") == _values(table, "s.x") == {_FLOAT: 2}
    add_schema("double")
    assert table.count("v = 0.1 and s.x = 0.1", table=config.tables[0]).value == 2
    config, table = _refreshed(tmp_path)
    assert _values(table, "v") == _values(table, "s.x") == {0.1: 2}
    assert_same(everything(config), everything(_refreshed(tmp_path, "scratch")[0]))


def test_texts_of_parquet_are_parsed_as_the_declared_type(tmp_path: Path) -> None:
    """Texts of Parquet files are parsed as doubles once the declared type changes from float to double.

    The type is declared for a column and for a field of a struct.
    """
    (tmp_path / "t").mkdir()
    pq.write_table(pa.table({"v": ["0.1", "0.5"], "s": [{"x": "0.1"}, {"x": "0.5"}]}), tmp_path / "t" / "a.parquet")
    _, table = _refreshed(tmp_path, schema={"v": "float", "s.x": "float"})
    assert _values(table, "v") == _values(table, "s.x") == {_FLOAT: 1, 0.5: 1}
    doubles = {"v": "double", "s.x": "double"}
    config, table = _refreshed(tmp_path, schema=doubles)
    assert _values(table, "v") == _values(table, "s.x") == {0.1: 1, 0.5: 1}
    assert_same(everything(config), everything(_refreshed(tmp_path, "scratch", schema=doubles)[0]))


@pytest.mark.parametrize(
    ("values", "before", "after"),
    [
        (["3000000000", "1"], "bigint", "int"),
        ([3_000_000_000, 1], "bigint", "int"),
        ([3_000_000_000, 1], None, "int"),
        (["13:00:00.5", "01:00:00"], "time32[ms]", "time32[s]"),
    ],
    ids=str,
)
def test_a_smaller_declared_type_that_lacks_a_value_is_reported(
    tmp_path: Path, values: list[Any], before: str | None, after: str
) -> None:
    """If the declared type becomes too small for a value, a refresh fails as a first refresh does.

    Both errors name the value.
    """
    (tmp_path / "t").mkdir()
    pq.write_table(pa.table({"v": values}), tmp_path / "t" / "a.parquet")
    _refreshed(tmp_path, schema={"v": before} if before else {})
    messages = []
    for root in ("root", "scratch"):
        with pytest.raises(ProfileError, match=f"{str(values[0])[:8]}.* is no ") as error:
            _refreshed(tmp_path, root, schema={"v": after})
        messages.append(str(error.value))
    assert messages[0] == messages[1]
