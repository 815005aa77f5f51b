"""`values: hidden`: no byte of the root reveals a value, and the stored statistics are correct.

Hidden values are hashed with a secret key, from the configuration, the environment or a file of the root. The root is
the folder with all stored state.
"""

from __future__ import annotations

import random
import stat
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pydantic import SecretStr

from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.errors import ConfigError, CorruptionError, NotStoredError, ProfileError
from metastore_assets.metastore import Metastore
from metastore_assets.pipeline.hidden_values import KEY_FILE, KEY_VARIABLE
from metastore_assets.pipeline.refresh import is_current, plan_refresh, refresh
from metastore_assets.pipeline.verification.verify import verify
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.versions import VersionStore
from tests.pipeline.file_lake import latest
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


def config(folder: Path, hidden_columns: tuple[str, ...] = HIDDEN, **more: Any) -> MetastoreConfig:
    policies = {name: {"values": "hidden"} for name in hidden_columns}
    config = TableConfig.model_validate({"name": "t", "uri": str(folder / "lake"), "columns": policies, **more})
    return MetastoreConfig(root=str(folder / "root"), tables=[config])


def test_nothing_stored_reveals_a_hidden_value(spark: SparkSession, tmp_path: Path) -> None:
    uri, loaded_config = str(tmp_path / "lake"), config(tmp_path)
    for seed in range(3):
        write_deltalake(uri, table(seed), mode="append", partition_by=["day"])
        refresh(loaded_config, loaded_config.table("t"), lambda: spark)
        assert [text for text in SECRETS if holding(tmp_path / "root", text)] == []
    DeltaTable(uri).delete("id % 3 = 0")
    refresh(loaded_config, loaded_config.table("t"), lambda: spark)
    assert [text for text in SECRETS if holding(tmp_path / "root", text)] == []
    lookup = Metastore(loaded_config.root).table("t")
    rows = {row.column: row for row in lookup.statistics()}
    live = DeltaTable(uri).to_pyarrow_table()
    (expected,) = duckdb.sql(
        "SELECT count(name), count(*) - count(name), min(length(name)), max(length(name)), sum(length(name)) FROM live"
    ).fetchall()
    name = rows["name"]
    assert expected == (
        name.value_count, name.null_count, name.minimum_length, name.maximum_length, name.total_length
    )  # fmt: skip
    assert live.num_rows == lookup.count().value
    for column in ("name", "number", "amount", "person.mail", "person.ages.element", "pairs.key"):
        row = rows[column]
        assert (row.minimum, row.maximum, row.sum, row.mean, row.percentiles) == (None,) * 5, column
        assert (row.true_count, row.frequencies) == (None, "absent"), column
        assert row.multiset_hash is not None, column
        assert "hidden" in (row.reason or ""), column
    answer = {column: (row.distinct_count, row.distinct_count_guarantee) for column, row in rows.items()}
    ages = duckdb.sql("SELECT count(DISTINCT a) FROM (SELECT unnest(person.ages) AS a FROM live)").fetchall()[0][0]
    names, mails, keys = duckdb.sql("SELECT count(DISTINCT name), count(DISTINCT person.mail), 1 FROM live").fetchall()[
        0
    ]
    # Keys are random: with some, two of thirty values share a cell of the sketch.
    assert answer["name"] == (pytest.approx(names, abs=3), "estimate")
    assert answer["person.mail"] == (pytest.approx(mails, abs=3), "estimate")
    assert answer["person.ages.element"] == (pytest.approx(ages, abs=3), "estimate")
    assert answer["number"] == answer["amount"] == answer["pairs.key"] == (keys, "estimate")
    assert rows["id"].minimum is not None
    with pytest.raises(NotStoredError, match="hidden"):
        lookup.top("name")
    with pytest.raises(NotStoredError, match="hidden"):
        lookup.histogram("number")
    assert verify(loaded_config, loaded_config.table("t"), lambda: spark).is_right


def test_a_column_hidden_later_is_read_again_and_can_be_purged(spark: SparkSession, tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "lake"), table(1))
    unhidden_config = config(tmp_path, ())
    refresh(unhidden_config, unhidden_config.table("t"), lambda: spark)
    assert [text for text in SECRETS if not holding(tmp_path / "root", text)] == []
    loaded_config = config(tmp_path)
    result = refresh(loaded_config, loaded_config.table("t"), lambda: spark)
    assert result.fragments_profiled == 1
    purge(VersionStore(ObjectStore(loaded_config.root), "t"), 2)
    assert [text for text in SECRETS if holding(tmp_path / "root", text)] == []


def test_errors_of_readers_quote_no_hidden_values(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "a.csv").write_text("id,name\n1,Secret-Name\n2,Secret-Name\n")
    loaded_config = config(tmp_path, ("name",), schema={"name": "int"})
    with pytest.raises(ProfileError, match=r"a\.csv: .*\bhidden\b") as error_info:
        refresh(loaded_config, loaded_config.table("t"), lambda: spark)
    assert "Secret" not in str(error_info.value)
    assert holding(tmp_path / "root", "Secret") == []


def test_a_partition_column_cannot_be_hidden(spark: SparkSession, tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "lake"), table(1), partition_by=["day"])
    loaded_config = config(tmp_path, ("day",))
    with pytest.raises(ConfigError, match=r"'t'.*columns\.day"):
        refresh(loaded_config, loaded_config.table("t"), lambda: spark)


def sketches(loaded_config: MetastoreConfig) -> dict[str, tuple[Any, ...]]:
    """Return distinct counts, multiset hashes, and numbers of values and nulls of three hidden columns.

    The result has a tuple for each partition and column. Its keys are texts: the partition key (`None` for the whole
    table), a space, and the column.
    """
    lookup = Metastore(loaded_config.root).table("t")
    return {
        f"{key} {row.column}": (row.distinct_count, row.multiset_hash, row.value_count, row.null_count)
        for key in (None, *(entry.key for entry in lookup.partitions()))
        for row in lookup.statistics(partition=key)
        if row.column in ("name", "number", "amount")
    }


def test_sketches_equal_those_from_scratch_only_with_the_same_key(spark: SparkSession, tmp_path: Path) -> None:
    """After four commits, distinct counts and hashes equal those of a new root that has the same key.

    With another key, all hashes differ. If the key is lost, the version is not current, and the next refresh reads
    files again.
    """
    uri, loaded_config = str(tmp_path / "lake"), config(tmp_path)
    for seed in range(3):
        write_deltalake(uri, table(seed), mode="append", partition_by=["day"])
        refresh(loaded_config, loaded_config.table("t"), lambda: spark)
    DeltaTable(uri).delete("id % 3 = 0 AND day = '2024-01-01'")
    refresh(loaded_config, loaded_config.table("t"), lambda: spark)
    assert is_current(loaded_config, loaded_config.table("t"), latest(loaded_config))
    same_key, other_key = (
        loaded_config.model_copy(update={"root": str(tmp_path / name)}) for name in ("same", "other")
    )
    (tmp_path / "same").mkdir()
    key = tmp_path / "root" / KEY_FILE
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    (tmp_path / "same" / KEY_FILE).write_bytes(key.read_bytes())
    for rebuilt in (same_key, other_key):
        refresh(rebuilt, rebuilt.table("t"), lambda: spark)
    assert sketches(same_key) == sketches(loaded_config)
    assert all(
        left[1] != right[1]
        for left, right in zip(sketches(loaded_config).values(), sketches(other_key).values(), strict=True)
    )
    others = [pytest.approx(right[0], abs=3) for right in sketches(other_key).values()]
    assert [left[0] for left in sketches(loaded_config).values()] == others
    secret = key.read_text().strip()
    key.unlink()
    assert holding(tmp_path / "root", secret) == []
    assert not is_current(loaded_config, loaded_config.table("t"), latest(loaded_config))
    assert refresh(loaded_config, loaded_config.table("t"), lambda: spark).fragments_profiled > 0


@pytest.mark.parametrize("partitions", ["a few", "all"])
def test_an_added_hidden_column_is_hidden_in_older_partitions(
    spark: SparkSession, tmp_path: Path, partitions: str
) -> None:
    """A hidden column is added.

    In older partitions it has only nulls and no value counts, and a reason says that it is hidden. `partitions` says
    whether each partition is queried alone or all of them together.
    """
    uri = str(tmp_path / "lake")
    loaded_config = config(tmp_path, columns={"default": {"values": "hidden"}, "day": {"values": "shown"}})
    write_deltalake(uri, pa.table({"day": ["1", "2", "2"], "n": [1, 2, 3]}), partition_by=["day"])
    refresh(loaded_config, loaded_config.table("t"), lambda: spark)
    write_deltalake(uri, pa.table({"day": ["3"], "n": [4], "more": ["x"]}), mode="append", schema_mode="merge")
    refresh(loaded_config, loaded_config.table("t"), lambda: spark)
    lookup = Metastore(loaded_config.root).table("t")
    if partitions == "all":
        result = lookup.statistics(["more"], partition="*")
        rows = dict(zip(result.to_arrow()["partition"].to_pylist(), result, strict=True))
    else:
        rows = {key: lookup.statistics(["more"], partition=key)[0] for key in ("day=1", "day=2", "day=3")}
    answer = {
        key: (row.null_count, row.distinct_count, row.frequencies, row.type_class, "hidden" in (row.reason or ""))
        for key, row in rows.items()
    }
    hidden_bounds = ("absent", None, True)
    assert answer == {"day=1": (1, 0, *hidden_bounds), "day=2": (2, 0, *hidden_bounds), "day=3": (0, 1, *hidden_bounds)}


def test_a_configured_key_is_not_stored(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No file contains the key of the configuration or the environment.

    The environment's key has precedence.

    After the key changes, files are read again. A key that is too short is an error.
    """
    write_deltalake(str(tmp_path / "lake"), table(1))
    first, second = "a" * 40, "b" * 40
    loaded_config = config(tmp_path).model_copy(update={"hidden_key": SecretStr(first)})
    assert first not in repr(loaded_config)
    assert refresh(loaded_config, loaded_config.table("t"), lambda: spark).fragments_profiled == 1
    answer = sketches(loaded_config)
    monkeypatch.setenv(KEY_VARIABLE, second)
    assert refresh(loaded_config, loaded_config.table("t"), lambda: spark).fragments_profiled == 1
    assert answer != sketches(loaded_config)
    assert not (tmp_path / "root" / KEY_FILE).exists()
    assert [key for key in (first, second) if holding(tmp_path / "root", key)] == []
    monkeypatch.setenv(KEY_VARIABLE, "short")
    with pytest.raises(ConfigError, match=r"METASTORE_HIDDEN_KEY.*5.*32"):
        refresh(loaded_config, loaded_config.table("t"), lambda: spark)


def test_a_plan_creates_no_key(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "lake"), table(1))
    loaded_config = config(tmp_path)
    assert len(plan_refresh(loaded_config, loaded_config.table("t")).to_profile) == 1
    assert not (tmp_path / "root").exists()


def test_a_damaged_key_file_is_an_error(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "lake"), table(1))
    loaded_config = config(tmp_path)
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / KEY_FILE).write_text("secret")
    with pytest.raises(CorruptionError, match=f"{KEY_FILE}") as error_info:
        plan_refresh(loaded_config, loaded_config.table("t"))
    assert "secret" not in str(error_info.value)
