"""Custom statistics of a filtered view equal those of a table with only the matching rows.

A filtered view of a table has only the rows that match a predicate. A fragment is a data file together with the deletes
that apply to it. A profile is the stored statistics of a fragment, a partition or the table. A version has the
statistics of one snapshot of the table.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.lookup import FilteredView
from metastore_assets.lookup.json import column_to_json
from metastore_assets.metastore import open_table
from metastore_assets.pipeline.refresh import refresh
from metastore_assets.statistics.user_defined import loading
from tests.pipeline.file_lake import Lake
from tests.pipeline.test_user_defined import ALL, LONG, STATISTICS_MODULE, close, no_spark, refreshed

POLICIES: list[dict[str, Any]] = [
    {},
    {"default": {"frequencies": "off"}},
    {"default": {"frequencies": "repeated", "algorithm": "fingerprints"}, "group": {"statistics": []}},
    {"price": {"frequencies": "off"}, "ratio": {"values": "hidden"}, "id": {"frequencies": "all"}},
]
"""Policies of columns: the states of custom statistics are derived from value counts, are stored, or both."""


def user_results(scope: Any) -> dict[str, Any]:
    return {row.column: column_to_json(row)["user_defined"] for row in scope.statistics()}


def results_of_rows(lake: Lake, folder: Path, where: pc.Expression) -> dict[str, Any]:
    """Return the custom statistics of a new table that has only the rows that match."""
    table = pa.concat_tables(
        pq.read_table(path, partitioning=None).append_column("part", pa.array([int(path.parent.name[5:])] * count))
        for path in lake.files()
        if (count := pq.read_metadata(path).num_rows)
    ).filter(where)
    uri = folder / "alone"
    uri.mkdir(parents=True)
    pq.write_table(table, uri / "rows.parquet")
    table_config = TableConfig.model_validate({"name": "t", "uri": str(uri), **lake.options})
    config = MetastoreConfig(root=str(folder / "alone_root"), tables=[table_config], engine="auto")
    refresh(config, table_config, no_spark)
    return user_results(open_table(config.root, "t"))


def filtered(lake: Lake, where: str, *, has_classes: bool = True, **how: Any) -> FilteredView:
    table = open_table(
        str(lake.folder / "root"), "t", statistic_classes=ALL if has_classes else (), table_locations=[str(lake.folder)]
    )
    return table.filter(where, **how)


PREDICATES = [
    ("part in ('1', '2')", pc.field("part").isin([1, 2])),
    ("part = '1' or id < 300000", (pc.field("part") == 1) | (pc.field("id") < 300_000)),
    ("\"group\" = 'ä'", pc.field("group") == "ä"),
    ("id is null and part = '2'", pc.field("id").is_null() & (pc.field("part") == 2)),
    ("id < 0", pc.field("id") < 0),
]


@pytest.mark.parametrize("policy", [0, 3, *(pytest.param(actual, marks=pytest.mark.long) for actual in (1, 2))])
def test_custom_statistics_equal_those_of_a_table_of_the_matching_rows(tmp_path: Path, policy: int) -> None:
    """Custom statistics of a filtered view equal those of a table that has only the matching rows.

    Profiles of complete partitions are merged, and rows of partially matching fragments are read.
    """
    lake = Lake(tmp_path, random.Random(policy))
    lake.options = {"statistics": ALL, "columns": POLICIES[policy]}
    for partition, count in ((1, 50), (2, 40), (2, LONG if policy == 2 else 30), (3, 20)):
        lake.append(partition, count)
    refreshed(lake)
    for at, (where, same) in enumerate(PREDICATES[policy % 2 :: 2]):
        actual, expected_results = (
            user_results(filtered(lake, where, read=True)),
            results_of_rows(lake, tmp_path / str(at), same),
        )
        expected_results["part"] = actual["part"]  # text in one table, a number in the other
        assert close(actual, expected_results), (where, actual, expected_results)
        assert policy in (1, 2) or all("most_frequent" in actual[name] for name in ("id", "day"))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(25))
def test_custom_statistics_are_correct_after_many_commits(tmp_path: Path, seed: int) -> None:
    """After each of several random commits, custom statistics of a filtered view equal those of its rows.

    Later versions merge and reuse the profiles of earlier ones.
    """
    draw = random.Random(seed)
    lake = Lake(tmp_path, draw)
    lake.options = {"statistics": ALL, "columns": draw.choice(POLICIES)}
    for partition in range(4):
        lake.append(partition)
    for at in range(4):
        refreshed(lake)
        where, same = draw.choice(PREDICATES)
        actual, expected_results = (
            user_results(filtered(lake, where, read=True)),
            results_of_rows(lake, tmp_path / str(at), same),
        )
        expected_results["part"] = actual["part"]
        assert close(actual, expected_results), (where, actual, expected_results)
        lake.commit()


def test_a_class_that_the_caller_does_not_name_is_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The module of a class that the caller does not name is not imported.

    A statistic that needs such a class is absent, with a reason. A statistic is available if it can be read from one
    stored profile, if this package ships its class, or if the given configuration names the class.
    """
    lake = Lake(tmp_path)
    lake.options = {"statistics": ALL}
    for partition in (1, 2, 3):
        lake.append(partition)
    refreshed(lake)
    loading.load_statistic.cache_clear()
    loading._load_all.cache_clear()
    monkeypatch.delitem(sys.modules, STATISTICS_MODULE)
    scope = filtered(lake, "part in ('1', '2')", has_classes=False)
    result = user_results(scope)
    assert STATISTICS_MODULE not in sys.modules
    reason = (
        f"'{STATISTICS_MODULE}:MostFrequent' or '{STATISTICS_MODULE}:Parities' computes it, "
        "and is not imported because you have not named it: "
        "name them, with"
    )
    assert result["id"]["parities"]["guarantee"] == "absent"
    assert reason in result["id"]["parities"]["reason"]
    assert result["id"]["benford_distance"]["guarantee"] != "absent"
    assert result["group"]["common_prefix"] == {"value": "", "guarantee": "exact", "reason": None}
    assert user_results(filtered(lake, "part = '1'", has_classes=False))["id"]["parities"]["guarantee"] == "exact"
    # The configuration of the table names the classes, too.
    assert user_results(filtered(lake, "part in ('1', '2')", has_classes=False, table=lake.table))["id"]["parities"][
        "value"
    ]


def test_a_class_that_differs_from_the_profiled_one_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A statistic is absent, with a reason, if its class is not the one that profiled the table.

    The class has another revision, has other source code with the same revision, or cannot be imported.
    """
    import linecache

    module = tmp_path / "scoped_statistics.py"
    text = (
        "import pyarrow as pa\nimport pyarrow.compute as pc\nfrom metastore_assets import MergeableStatistic\n\n"
        "class Total(MergeableStatistic):\n    name = 'total'\n    revision = '{}'\n    types = ('int64',)\n"
        "    state = result = pa.int64()\n    def initial(self):\n        return 0\n"
        "    def update(self, state, values, counts):\n        return state + pc.sum(counts).as_py(){}\n"
        "    def merge(self, one, other):\n        return one + other\n"
        "    def finalize(self, state):\n        return state\n"
    )

    def written(revision: str, more: str = "") -> dict[str, Any]:
        module.write_text(text.format(revision, more))
        return reload()

    def reload() -> dict[str, Any]:
        sys.modules.pop("scoped_statistics", None)
        linecache.clearcache()
        loading.load_statistic.cache_clear()
        loading._load_all.cache_clear()
        table = open_table(str(tmp_path / "root"), "t", statistic_classes=["scoped_statistics:Total"])
        result: dict[str, Any] = user_results(table.filter("part in ('1', '2')"))["id"]["total"]
        return result

    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    lake = Lake(tmp_path)
    for partition in (1, 2, 3):
        lake.append(partition)
    refreshed(lake)
    module.write_text(text.format("1", ""))
    lake.options = {"statistics": ["scoped_statistics:Total"]}
    refreshed(lake)  # computed from stored value counts, because child processes have the older module
    assert reload()["value"] == sum(
        pq.read_table(path, columns=["id"], partitioning=None)["id"].drop_null().length() for path in lake.files()[:2]
    )
    assert (
        written("2")["reason"]
        == "revision '1' of 'scoped_statistics:Total' computed it, and the installed revision is '2'"
    )
    changed_result = written("1", " + 1")
    assert changed_result["guarantee"] == "absent"
    assert changed_result["reason"] == "another source of 'scoped_statistics:Total' than the installed one computed it"
    module.unlink()
    assert "cannot be imported" in reload()["reason"]
