"""`values: hidden`: no byte of the root tells of a value, and what is told is right."""

from __future__ import annotations

import random
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.errors import ConfigError, NotKeptError, ProfileError
from metastore_assets.lookup import Metastore
from metastore_assets.pipeline.refresh import refresh
from metastore_assets.pipeline.verify import verify
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.versions import VersionStore
from tests.pipeline.test_purge import holding, purge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
SECRETS = ("Secret-Name", "881223", "4477.25", "secret@inside", "Secret-Key")
HIDDEN = ("name", "number", "amount", "person", "pairs")


def table(seed: int, count: int = 60) -> pa.Table:
    draw = random.Random(seed)
    return pa.table(
        {
            "day": [f"2024-01-0{1 + n % 2}" for n in range(count)],
            "id": range(count),
            "name": [None if n % 7 == 0 else f"Secret-Name {draw.randrange(30)}é" for n in range(count)],
            "number": pa.array([881223] * count, pa.int64()),
            "amount": [Decimal("4477.25")] * count,
            "person": [{"mail": f"secret@inside{n % 5}", "ages": [n % 3] * (n % 4)} for n in range(count)],
            "pairs": pa.array([[("Secret-Key", n)] for n in range(count)], pa.map_(pa.string(), pa.int64())),
        }
    )


def config(folder: Path, hidden: tuple[str, ...] = HIDDEN, **more: Any) -> MetastoreConfig:
    policies = {name: {"values": "hidden"} for name in hidden}
    own = TableConfig.model_validate({"name": "t", "uri": str(folder / "lake"), "columns": policies, **more})
    return MetastoreConfig(root=str(folder / "root"), tables=[own])


def test_nothing_tells_of_a_hidden_value(spark: SparkSession, tmp_path: Path) -> None:
    uri, own = str(tmp_path / "lake"), config(tmp_path)
    for seed in range(3):
        write_deltalake(uri, table(seed), mode="append", partition_by=["day"])
        refresh(own, own.table("t"), lambda: spark)
        assert [text for text in SECRETS if holding(tmp_path / "root", text)] == []
    DeltaTable(uri).delete("id % 3 = 0")
    refresh(own, own.table("t"), lambda: spark)
    assert [text for text in SECRETS if holding(tmp_path / "root", text)] == []
    lookup = Metastore(own.root).table("t")
    rows = {row.column: row for row in lookup.statistics()}
    live = DeltaTable(uri).to_pyarrow_table()
    (expected,) = duckdb.sql(
        "SELECT count(name), count(*) - count(name), min(length(name)), max(length(name)), sum(length(name)) FROM live"
    ).fetchall()
    name = rows["name"]
    assert expected == (
        name.value_count, name.null_count, name.minimum_length, name.maximum_length, name.total_length
    )  # fmt: skip
    assert live.num_rows == lookup.row_count()
    for column in ("name", "number", "amount", "person.mail", "person.ages.element", "pairs.key"):
        row = rows[column]
        assert (row.minimum, row.maximum, row.sum, row.mean, row.percentiles) == (None,) * 5, column
        assert (row.distinct_count, row.fingerprint, row.true_count) == (None,) * 3, column
        assert "hidden" in (row.reason or ""), column
    assert rows["id"].minimum is not None
    with pytest.raises(NotKeptError, match="hidden"):
        lookup.top("name")
    with pytest.raises(NotKeptError, match="hidden"):
        lookup.histogram("number")
    assert verify(own, own.table("t"), lambda: spark).is_right


def test_what_was_shown_is_read_again_and_can_be_purged(spark: SparkSession, tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "lake"), table(1))
    shown = config(tmp_path, ())
    refresh(shown, shown.table("t"), lambda: spark)
    assert [text for text in SECRETS if not holding(tmp_path / "root", text)] == []
    own = config(tmp_path)
    result = refresh(own, own.table("t"), lambda: spark)
    assert result.fragments_profiled == 1
    purge(VersionStore(ObjectStore(own.root), "t"), 2)
    assert [text for text in SECRETS if holding(tmp_path / "root", text)] == []


def test_what_a_reader_stumbles_over_is_not_quoted(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "a.csv").write_text("id,name\n1,Secret-Name\n2,Secret-Name\n")
    own = config(tmp_path, ("name",), schema={"name": "int"})
    with pytest.raises(ProfileError, match=r"a\.csv: cannot be read .*hidden") as raised:
        refresh(own, own.table("t"), lambda: spark)
    assert "Secret" not in str(raised.value)
    assert holding(tmp_path / "root", "Secret") == []


def test_a_partition_column_cannot_be_hidden(spark: SparkSession, tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "lake"), table(1), partition_by=["day"])
    own = config(tmp_path, ("day",))
    with pytest.raises(ConfigError, match=r"'t': columns\.day cannot be hidden: the table is partitioned by it"):
        refresh(own, own.table("t"), lambda: spark)
