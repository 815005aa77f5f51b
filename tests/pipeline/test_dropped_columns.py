"""Policies for columns that the table no longer has, and for columns that never existed.

A policy says which statistics and values of a column are stored. A version is the published statistics of a table at
one snapshot.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metastore_assets.config import MetastoreConfig
from metastore_assets.errors import ConfigError
from metastore_assets.metastore import Metastore
from metastore_assets.pipeline.hidden_values import check_hidden_not_renamed
from metastore_assets.pipeline.outcome import RefreshResult
from metastore_assets.pipeline.plan import RefreshRequest
from metastore_assets.pipeline.refresh import plan_refresh, refresh
from metastore_assets.store.versions import versions_of
from metastore_assets.values.columns import FIELD_ID

NOTE = {"note": {"frequencies": "off"}}


def config_of(folder: Path, columns: dict[str, Any]) -> MetastoreConfig:
    table = {"name": "t", "uri": str(folder / "lake"), "columns": columns}
    return MetastoreConfig.model_validate({"root": str(folder / "root"), "engine": "auto", "tables": [table]})


def no_spark() -> Any:
    raise AssertionError("Spark is not needed")


def refreshed(folder: Path, columns: dict[str, Any], *, full: bool = False) -> RefreshResult:
    config = config_of(folder, columns)
    return refresh(config, config.table("t"), no_spark, RefreshRequest(full))


def write(folder: Path, *names: str) -> None:
    """Replace the table by one with these columns.

    A name with a dot is a field of a struct.
    """
    (folder / "lake").mkdir(exist_ok=True)
    arrays = {
        name.split(".")[0]: pa.StructArray.from_arrays([pa.array([1, 2])], [name.split(".")[1]])
        if "." in name
        else pa.array([1, 2])
        for name in names
    }
    pq.write_table(pa.table(arrays), folder / "lake" / "1.parquet")


def test_refreshes_continue_after_a_column_is_dropped(tmp_path: Path) -> None:
    """A column with a policy is dropped.

    The result of each refresh names this column. The second refresh publishes nothing.

    Removing the policy publishes nothing either. When the column is back, the policy applies again.
    """
    write(tmp_path, "id", "note")
    assert refreshed(tmp_path, NOTE).dropped_columns == ()
    write(tmp_path, "id")
    for version, is_published in ((2, True), (2, False)):
        result = refreshed(tmp_path, NOTE)
        assert (result.version, result.published, result.dropped_columns) == (version, is_published, ("note",))
    assert result.to_json()["dropped_columns"] == ["note"]
    lookup = Metastore(str(tmp_path / "root")).table("t")
    assert [row.column for row in lookup.statistics()] == ["id"]
    assert not refreshed(tmp_path, {}).published
    assert refreshed(tmp_path, NOTE, full=True).dropped_columns == ("note",)
    write(tmp_path, "id", "note", "more")
    assert refreshed(tmp_path, NOTE).dropped_columns == ()
    assert {row.column: row.frequencies for row in Metastore(str(tmp_path / "root")).table("t").statistics()} == {
        "id": "enumerated",
        "note": "off",
        "more": "enumerated",
    }


def test_a_dropped_column_is_recorded_after_its_versions_expire(tmp_path: Path) -> None:
    write(tmp_path, "id", "a.b")
    columns = {"a.b": {"frequencies": "off"}}
    refreshed(tmp_path, columns)
    write(tmp_path, "id")
    refreshed(tmp_path, columns)
    versions_of(config_of(tmp_path, columns), "t").expire(1, timedelta(0))
    assert versions_of(config_of(tmp_path, columns), "t").numbers() == [2]
    write(tmp_path, "id", "more")
    result = refreshed(tmp_path, columns)
    assert (result.version, result.dropped_columns) == (3, ("a.b",))


def test_a_policy_for_a_column_that_was_dropped_before(tmp_path: Path) -> None:
    """A policy for a column that only an older stored version has is no error.

    The next version records the column as dropped.
    """
    for names in (("id", "note"), ("id",), ("id", "more")):
        write(tmp_path, *names)
        refreshed(tmp_path, {})
    result = refreshed(tmp_path, NOTE)
    assert (result.version, result.published, result.dropped_columns) == (4, True, ("note",))
    assert not refreshed(tmp_path, NOTE).published


@pytest.mark.parametrize("names", [("id",), ("id", "note")])
def test_a_misspelt_name_is_an_error(tmp_path: Path, names: tuple[str, ...]) -> None:
    """A policy for a column that never existed is an error that names the policy.

    This is so with and without a version, and even beside a policy for a column that was dropped.
    """
    misspelt = {"nmae": {"frequencies": "off"}}
    write(tmp_path, *names)
    with pytest.raises(ConfigError, match=r"columns\.nmae"):
        refreshed(tmp_path, misspelt)
    refreshed(tmp_path, {})
    write(tmp_path, "id")
    for full in (False, True):
        config = config_of(tmp_path, {**NOTE, **misspelt} if "note" in names else misspelt)
        with pytest.raises(ConfigError, match=r"columns\.nmae"):
            plan_refresh(config, config.table("t"), RefreshRequest(full))


def test_a_hidden_column_does_not_show_its_values_under_another_name(tmp_path: Path) -> None:
    """A refresh is refused if a hidden column disappears and another column appears that is not hidden.

    If both happen between two versions, this may be a rename, which many formats do not record.
    """
    hidden_policy = {"note": {"values": "hidden"}}
    write(tmp_path, "id", "note")
    refreshed(tmp_path, hidden_policy)
    write(tmp_path, "id", "remark")
    with pytest.raises(ConfigError, match=r"columns\.note.*\bremark\b"):
        refreshed(tmp_path, hidden_policy)
    assert refreshed(tmp_path, {**hidden_policy, "remark": {"values": "hidden"}}).dropped_columns == ("note",)
    write(tmp_path, "id")
    assert refreshed(tmp_path, hidden_policy).dropped_columns == ("note",)
    write(tmp_path, "id", "more")
    assert refreshed(tmp_path, hidden_policy).dropped_columns == ("note",), "it has been missing for one version"


@pytest.mark.parametrize("damaged_pattern", ["versions/2.json", "entries/*.fragments.parquet"])
def test_a_full_refresh_over_damage_does_not_show_hidden_values(tmp_path: Path, damaged_pattern: str) -> None:
    """Stored files are damaged.

    A refresh with `--full` is refused if a hidden column may have been renamed.

    Older versions show which columns were hidden.
    """
    hidden_policy = {"note": {"values": "hidden"}}
    write(tmp_path, "id", "note")
    for _ in range(2):
        refreshed(tmp_path, hidden_policy, full=True)
    for path in (tmp_path / "root" / "t").glob(damaged_pattern):
        path.write_bytes(b"damaged")
    write(tmp_path, "id", "remark")
    with pytest.raises(ConfigError, match=r"columns\.note.*\bremark\b"):
        refreshed(tmp_path, hidden_policy, full=True)
    assert refreshed(tmp_path, {**hidden_policy, "remark": {"values": "hidden"}}, full=True).version == 3


def test_a_hidden_column_of_a_database_is_not_shown_under_another_name(tmp_path: Path) -> None:
    """A new column in place of a hidden one is refused, also if the policy is that of a database.

    A database's policies may name columns that a table lacks. `values: shown` permits the new column.
    """

    def refreshed_table(columns: dict[str, Any]) -> RefreshResult:
        config = config_of(tmp_path, columns)
        return refresh(config, config.table("t").with_database("sales"), no_spark)

    hidden_policies = {"note": {"values": "hidden"}, "absent": {"values": "hidden"}}
    write(tmp_path, "id", "note")
    refreshed_table(hidden_policies)
    write(tmp_path, "id", "remark")
    with pytest.raises(ConfigError, match=r"columns\.note.*\bremark\b"):
        refreshed_table(hidden_policies)
    assert refreshed_table({**hidden_policies, "remark": {"values": "shown"}}).published


def test_a_hidden_column_that_takes_the_name_of_a_dropped_one_is_not_shown() -> None:
    """Renaming a hidden column to the name of a dropped column is refused.

    The format's field ids show the rename. Dropping the hidden column is no error.
    """

    def schema(**ids: str) -> pa.Schema:
        return pa.schema([pa.field(name, pa.int64(), metadata={FIELD_ID: field_id}) for name, field_id in ids.items()])

    (table,) = config_of(Path("x"), {"note": {"values": "hidden"}}).tables
    before = schema(id="1", note="2", remark="3")
    check_hidden_not_renamed(table, before, schema(id="1", remark="3"))
    with pytest.raises(ConfigError, match=r"columns\.note.*\bremark\b"):
        check_hidden_not_renamed(table, before, schema(id="1", remark="2"))


def test_warnings_name_dropped_columns(tmp_path: Path) -> None:
    """A warning names only those dropped columns for which the configuration has a policy."""
    (table,) = config_of(tmp_path, {**NOTE, "id": {}}).tables
    assert table.dropped_columns_warning(()) is None
    assert table.dropped_columns_warning(("gone",)) is None
    assert table.dropped_columns_warning(("gone", "note")) == (
        "table 't': columns.note is for a column that the table no longer has, and has no effect: remove it from the "
        "configuration, or bring the column back"
    )
    assert "columns.id, columns.note are for columns" in str(table.dropped_columns_warning(("id", "note")))
