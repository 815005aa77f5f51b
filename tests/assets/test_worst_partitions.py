"""A failed check of a partitioned table names the five worst of the partitions that fail."""

from pathlib import Path

import pyarrow as pa
import pytest
from dagster import AssetCheckEvaluation, DagsterInstance
from deltalake import write_deltalake

from metastore_assets import MetastoreConfig, TableConfig, build_metastore_definitions
from tests.assets.user_project import commit

NULLS = {"a": 0, "b": 3, "c": 1, "d": 2, "e": 0, "f": 5, "g": 4, "h": 6, "i": 0}
"""By partition, how many of its ten rows are null."""


def evaluated(folder: Path, instance: DagsterInstance, checks: list[object]) -> dict[str, AssetCheckEvaluation]:
    """Refresh a table with checks of column `x`.

    Return the results by name of the check.

    `NULLS` has the number of nulls of each partition. Partition `b` also has a value 999, and `c` a value -5.
    """
    table = TableConfig.model_validate({"name": "t", "uri": str(folder / "t"), "columns": {"x": {"checks": checks}}})
    rows = [
        {"x": None if number < nulls else {"b": 999, "c": -5}.get(part, 1) if number == 9 else number, "part": part}
        for part, nulls in NULLS.items()
        for number in range(10)
    ]
    write_deltalake(folder / "t", pa.Table.from_pylist(rows), partition_by=["part"])
    config = MetastoreConfig(root=str(folder / "metastore"), engine="auto", tables=[table])
    result = commit(build_metastore_definitions(config), instance, "t")
    assert result is not None
    return {evaluation.check_name: evaluation for evaluation in result.get_asset_check_evaluations()}


def records(evaluation: AssetCheckEvaluation) -> list[str]:
    return [str(record.data["partition"]) for record in evaluation.metadata["partitions"].value.records]  # type: ignore[union-attr]


def test_a_failed_check_of_the_table_names_its_worst_partitions(tmp_path: Path, instance: DagsterInstance) -> None:
    """A failed check of the table names the failing partitions, the worst first.

    They are ordered by nulls or by distance from a limit. The description names five of them at most, and has the
    number of the others. A passed check names no partition.
    """
    by_name = evaluated(
        tmp_path,
        instance,
        [
            "not_null",
            {"null_share": "20%"},
            {"range": {"minimum": 0, "maximum": 100}},
            {"range": {"minimum": -9}, "name": "low"},
            "unique",
        ],
    )
    description = (by_name["x_not_null"].description or "").replace("\\", "")
    assert description.startswith(
        "21 nulls in 90 rows (23.3%); in 6 of 9 partitions: part=h: 6 nulls in 10 rows (60.0%)"
    )
    assert description.endswith("part=d: 2 nulls in 10 rows (20.0%) and 1 more")
    assert records(by_name["x_not_null"]) == [f"part={part}" for part in "hfgbdc"]
    assert records(by_name["x_null_share"]) == [f"part={part}" for part in "hfgb"]
    assert records(by_name["x_range"]) == ["part=b", "part=c"]
    assert "; in 2 of 9 partitions: part=b: 3 to 999" in (by_name["x_range"].description or "").replace("\\", "")
    assert by_name["low"].passed
    assert "partitions" not in by_name["low"].metadata


@pytest.mark.parametrize("is_partitioned", [True, False])
def test_a_check_that_no_single_partition_violates_names_none(
    tmp_path: Path, instance: DagsterInstance, is_partitioned: bool
) -> None:
    """A check names no partition if only the table fails it.

    The check `unique` fails because a value occurs once in each of two partitions. A table without partitions names
    none either.
    """
    table = TableConfig.model_validate(
        {"name": "t", "uri": str(tmp_path / "t"), "columns": {"x": {"checks": ["unique"]}}}
    )
    data = pa.table({"x": [1, 1], "part": ["a", "b"]})
    write_deltalake(tmp_path / "t", data, partition_by=["part"] if is_partitioned else None)
    config = MetastoreConfig(root=str(tmp_path / "metastore"), engine="auto", tables=[table])
    result = commit(build_metastore_definitions(config), instance, "t")
    assert result is not None
    by_name = {evaluation.check_name: evaluation for evaluation in result.get_asset_check_evaluations()}
    description = "1 distinct of 2 values; 1 value occurs more than once"
    assert by_name["x_unique"].description == description + (
        "; in none of 2 partitions by itself" if is_partitioned else ""
    )


def test_a_check_of_partitions_names_the_worst_first(tmp_path: Path, instance: DagsterInstance) -> None:
    """A failed check with `partitions` orders the partitions that it names by their share of nulls."""
    by_name = evaluated(tmp_path, instance, [{"null_share": "20%", "partitions": "all"}])
    description = (by_name["x_null_share"].description or "").replace("\\", "")
    assert description.startswith("failed in 4 of 9 partitions: part=h: 6 nulls in 10 rows (60.0%); part=f: 5 nulls")
    assert records(by_name["x_null_share"]) == [f"part={part}" for part in "hfgb"]
