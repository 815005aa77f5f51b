"""Differences between versions equal those counted in the tables' files.

The value counts of a column are its distinct values with the frequency of each. A version has the statistics of one
snapshot of the table. A refresh publishes a version for the current snapshot. The root is the folder with all stored
state.
"""

from __future__ import annotations

import math
import random
import uuid
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.errors import ColumnNotFoundError, VersionNotFoundError
from metastore_assets.lookup import ResultSet, Table
from metastore_assets.lookup.diff import PartitionsDiff, diff_json, diff_partitions
from metastore_assets.lookup.value_count_changes import ValueChange
from metastore_assets.metastore import Metastore, open_table
from metastore_assets.pipeline.outcome import RefreshResult
from metastore_assets.pipeline.refresh import refresh
from metastore_assets.pipeline.value_counts.compact import compact
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.version import PartitionEntry
from metastore_assets.store.versions import VersionStore
from metastore_assets.value_counts import ValueCountChanges
from tests.lookup.publishing import publish
from tests.pipeline.file_lake import SCHEMA, Lake
from tests.store.sample_versions import files, version

PARTITIONS = st.dictionaries(st.sampled_from("abcdef"), st.tuples(st.integers(0, 2), st.integers(0, 2)))
"""By partition key, numbers for the partition's content and for the version that profiled it."""


@given(PARTITIONS, PARTITIONS)
def test_partitions_are_changed_only_if_their_content_is(
    before: dict[str, tuple[int, int]], after: dict[str, tuple[int, int]]
) -> None:
    """A partition counts as changed only if its content differs, even if it was profiled again."""
    versions = [
        replace(version(1), partitions=[PartitionEntry(key, f"c{c}", 1, 1, 1, files("p"), n) for key, (c, n) in each])
        for each in (before.items(), after.items())
    ]
    contents = [{(key, content) for key, (content, _) in each.items()} for each in (before, after)]
    same = len(contents[0] & contents[1])
    added_count, removed_count = len(after.keys() - before.keys()), len(before.keys() - after.keys())
    assert diff_partitions(*versions) == PartitionsDiff(
        added_count, removed_count, len(after) - same - added_count, same
    )


def no_spark() -> Any:
    raise AssertionError("a small table needs no Spark")


def key_of(value: Any) -> Any:
    """Return a key that is equal for equal values: NaN is equal to itself, and -0.0 to 0.0."""
    return "NaN" if isinstance(value, float) and math.isnan(value) else 0.0 if value == 0 else value


def counted(lake: Lake) -> dict[str, Counter[Any]]:
    """Count, by column, how often each value occurs in the files of the lake."""
    tables = [pq.read_table(path, partitioning=None) for path in lake.files()]
    full = pa.concat_tables([SCHEMA.empty_table(), *tables])
    result = {}
    for name in ("id", "group", "price", "ratio", "day"):
        result[name] = Counter(key_of(value) for value in full[name].to_pylist() if value is not None)
    return result


def expected(before: Counter[Any], after: Counter[Any]) -> dict[Any, tuple[str, int | None, int | None]]:
    answer: dict[Any, tuple[str, int | None, int | None]] = {}
    for value in before.keys() | after.keys():
        was, is_ = before.get(value), after.get(value)
        if was != is_:
            answer[value] = ("add" if was is None else "delete" if is_ is None else "update", was, is_)
    return answer


def changes_by_value(changes: ResultSet[ValueChange] | None) -> dict[Any, tuple[str, int | None, int | None]]:
    assert changes is not None
    values = [key_of(change.value.as_py()) for change in changes]
    assert len(set(values)) == len(values), "a value occurs twice"
    return {value: (row.change, row.before, row.after) for value, row in zip(values, changes, strict=True)}


def check_history(folder: Path, seed: int, commits: int) -> None:
    """Make random commits with a refresh after each one, and sometimes a compaction.

    Compare the value changes between pairs of versions with counts of the values in the data files.
    """
    lake = Lake(folder, random.Random(seed), {"columns": {"default": {"frequencies": "all"}}})
    lake.append(1)
    config = lake.config().model_copy(update={"engine": "auto"})
    history: dict[int, dict[str, Counter[Any]]] = {}
    versions = VersionStore(ObjectStore(config.root), "t")
    for _ in range(commits):
        refresh(config, config.tables[0], no_spark)
        history[versions.newest()] = counted(lake)
        if lake.draw.random() < 0.3:
            compact(versions, config.tables[0])
            history[versions.newest()] = history[max(history)]
        lake.commit()
    metastore = Metastore(config.root)
    table = metastore.table("t")
    for pair in [(1, table.version.number), *(tuple(lake.draw.choices(sorted(history), k=2)) for _ in range(6))]:
        since, number = pair
        for column in metastore.table("t", version=number).changes(since, history[number]).columns:
            assert column.changes is not None, column.reason
            expected_changes = expected(history[since][column.column], history[number][column.column])
            assert changes_by_value(column.changes) == expected_changes, (seed, since, number, column.column)
    versions.objects.delete([versions.documents.path(2)])
    for column in table.changes(1, history[1]).columns:
        assert column.changes is not None
        expected_changes = expected(history[1][column.column], history[max(history)][column.column])
        assert changes_by_value(column.changes) == expected_changes, (
            "value counts of both versions are compared if the versions between them are missing"
        )


def test_changes_are_those_of_the_files(tmp_path: Path) -> None:
    check_history(tmp_path, 1, 3)


@pytest.mark.parametrize("is_compacted", [False, True])
@pytest.mark.parametrize("algorithm", ["enumeration", "fingerprints"])
def test_a_commit_is_reported_once_despite_a_policy_change(tmp_path: Path, algorithm: str, is_compacted: bool) -> None:
    """A commit is followed by a refresh that only changes a policy.

    That refresh has no value changes.

    The value changes since version 1 are those of the commit, with and without compaction.
    """
    repeated_policy = {"frequencies": "repeated", "algorithm": algorithm}
    config = MetastoreConfig(root=str(tmp_path / "root"), engine="auto")
    (tmp_path / "lake").mkdir()

    def step(values: list[int], others: Any) -> Table:
        path = tmp_path / f"lake/{values[0]}.parquet"
        if not path.exists():
            pq.write_table(pa.table({"a": values, "b": values}), path)
        settings = {"name": "t", "uri": str(tmp_path / "lake"), "columns": {"a": others, "b": repeated_policy}}
        answer.append(refresh(config, TableConfig.model_validate(settings), no_spark))
        return open_table(config.root, "t")

    answer: list[RefreshResult] = []
    step([1, 1, 1, 2, 2, 3, 4, 5], {"frequencies": "all"})
    before = step([3, 3, 9], {"frequencies": "all"})
    versions = VersionStore(ObjectStore(config.root), "t")
    if is_compacted:
        compact(versions, TableConfig(name="t", uri="nowhere"))
    table = step([3], {"frequencies": "top(2)"})
    assert answer[-1].value_count_changes == ValueCountChanges()
    (a,) = table.changes(before.version.number, ["a"]).columns
    assert changes_by_value(a.changes) == {}
    (a,) = table.changes(1, ["a"]).columns
    assert changes_by_value(a.changes) == {3: ("update", 1, 3), 9: ("add", None, 1)}


@pytest.mark.long
@pytest.mark.parametrize("seed", range(20))
def test_changes_over_longer_histories(tmp_path: Path, seed: int) -> None:
    check_history(tmp_path, seed, 12)


def without_intermediate_version(store: ObjectStore, *tables: pa.Table, **policies: Any) -> Table:
    """Publish three versions, delete the second, and return the newest.

    Unlike versions of refreshes, these record no changes since their predecessor, so complete value counts are
    compared.
    """
    publish(store, tables[0], **policies)
    publish(store, tables[0])
    table = publish(store, tables[1])
    table.versions.objects.delete([table.versions.documents.path(2)])
    return table


def test_changes_of_every_type(local_store: ObjectStore) -> None:
    ids = [uuid.UUID(int=n) for n in range(3)]
    columns: list[dict[str, pa.Array]] = [
        {
            "f": pa.array([1.5, math.nan, -0.0] if late else [math.nan, 0.0, math.inf]),
            "d": pa.array([Decimal("1.10"), None, Decimal("2.20") if late else None], pa.decimal128(9, 2)),
            "b": pa.array([b"\x00", b"\xff" if late else b"\x00", None]),
            "flag": pa.array([True, True, late]),
            "u": pa.ExtensionArray.from_storage(
                pa.uuid(), pa.array([id_.bytes for id_ in (ids[1:] + ids[2:] if late else ids)], pa.binary(16))
            ),
            "t": pa.array([0, 1 if late else 0, None], pa.timestamp("ns")),
        }
        for late in (False, True)
    ]
    table = without_intermediate_version(local_store, *map(pa.table, columns))
    result = {column.column: column for column in table.changes(1).columns}
    assert changes_by_value(result["f"].changes) == {1.5: ("add", None, 1), math.inf: ("delete", 1, None)}
    assert changes_by_value(result["d"].changes) == {Decimal("2.20"): ("add", None, 1)}
    assert changes_by_value(result["b"].changes) == {b"\x00": ("update", 2, 1), b"\xff": ("add", None, 1)}
    assert changes_by_value(result["flag"].changes) == {True: ("update", 2, 3), False: ("delete", 1, None)}
    assert changes_by_value(result["u"].changes) == {ids[0]: ("delete", 1, None), ids[2]: ("update", 1, 2)}
    assert result["t"].changes is not None
    assert [row.change for row in result["t"].changes] == ["update", "add"]


@pytest.mark.parametrize("values", [["p", "q", "r"], ["p", "p", "q"]])
def test_fingerprinted_columns_have_no_distances(tmp_path: Path, values: list[str]) -> None:
    """A difference of versions has no distances for a column of which only repeated values are stored.

    A distance compares the column's distributions in both versions. The difference has a reason instead of distances.
    """
    (tmp_path / "lake").mkdir()
    policies = {"id": {"frequencies": "repeated", "algorithm": "fingerprints"}}
    table_config = TableConfig.model_validate({"name": "t", "uri": str(tmp_path / "lake"), "columns": policies})
    config = MetastoreConfig(root=str(tmp_path / "root"), engine="auto")
    for at in range(2):
        pq.write_table(pa.table({"id": values[at:]}), tmp_path / f"lake/{at}.parquet")
        refresh(config, table_config, no_spark)
    ((column,), row_count) = (result := open_table(config.root, "t").diff(1)).columns, result.row_count
    assert (row_count, column.change, column.distances) == ((3, 5), "changed", None)
    assert column.reason == "only values that occur at least twice have value counts"


def test_decimals_that_exceed_64_bits_have_distances(local_store: ObjectStore) -> None:
    """The distance between a column's distributions in two versions is exact for large decimals, too.

    It is the Kolmogorov-Smirnov distance, computed from value counts. Some decimals fit into 64 bits, others do not.
    """
    columns = {"d": {"frequencies": "all", "histogram": "off"}}
    for values in ([1, 2], [1, 10**25], [10**25, 10**25 + 1]):
        rows = pa.table({"d": pa.array([Decimal(value) for value in values], pa.decimal128(30, 2))})
        table = publish(local_store, rows, columns=columns)
    for since, distance in ((1, 1.0), (2, 0.5)):
        (column,) = table.diff(since).columns
        assert column.distances is not None, column.reason
        assert (column.distances.kolmogorov_smirnov, column.distances.guarantee) == (distance, "exact")
    (column,) = table.diff(1, 2).columns
    assert column.distances is not None
    assert (column.distances.kolmogorov_smirnov, column.distances.over) == (0.5, "3 values")


def test_missing_value_counts_are_reported(local_store: ObjectStore) -> None:
    rows = pa.table({"a": [1, 2], "b": ["x", "y"], "gone": [1, 2]})
    newer = rows.drop_columns(["gone"]).append_column("new", pa.array(["p", "p"]))
    table = without_intermediate_version(local_store, rows, newer, columns={"a": {"frequencies": "off"}})
    answer = {column.column: column for column in table.changes(1).columns}
    assert answer["a"].changes is None
    assert answer["a"].reason == "it had no value counts: frequencies were off"
    assert answer["b"].changes is not None
    assert len(answer["b"].changes) == 0
    assert changes_by_value(answer["new"].changes) == {"p": ("add", None, 2)}
    assert table.changes(1, ["b"]).before.version == 1
    with pytest.raises(ColumnNotFoundError):
        table.changes(1, ["nix"])
    with pytest.raises(VersionNotFoundError):
        table.changes(7)


def published(store: ObjectStore, seed: int, shift: float, name: str = "orders") -> Table:
    draw = random.Random(seed)
    numbers = [draw.gauss(shift, 1) for _ in range(500)]
    words = [draw.choice("aaabbc" if not shift else "abbbcd") for _ in range(500)]
    rows = pa.table({"x": numbers, "word": words, "same": list(range(500)), "list": [[1]] * 500})
    return publish(store, rows, name=name)


def repeated(table: Table) -> Any:
    """Return the values of `x`, each as often as it occurs."""
    values, counts = zip(*((value.as_py(), count) for value, count in table.top("x", 10**6)), strict=True)
    return np.repeat(values, counts)


def test_a_diff_equals_that_of_numpy(local_store: ObjectStore) -> None:
    before, after = published(local_store, 1, 0), published(local_store, 2, 0.8)
    result = {column.column: column for column in after.diff(1).columns}
    x, word, same = (result[name].distances for name in ("x", "word", "same"))
    assert x is not None
    assert word is not None
    assert same is not None
    assert (same.stability_index, same.kolmogorov_smirnov, same.jensen_shannon, same.over) == (
        0,
        0,
        0,
        "the same values",
    )
    assert (result["same"].change, result["word"].change, result["list"].change) == ("same", "changed", "same")
    values = [np.sort(repeated(side)) for side in (before, after)]
    every = np.concatenate(values)
    steps = [np.searchsorted(side_values, every, "right") / len(side_values) for side_values in values]
    exact = np.max(np.abs(steps[0] - steps[1]))
    assert 0.2 < x.kolmogorov_smirnov <= exact + 1e-12, "the distance over bins exceeds the distance over values"
    assert x.kolmogorov_smirnov > 0.9 * exact, "too few values were compared"
    assert x.stability_index > 0.25
    counts = [Counter({value.as_py(): n for value, n in side.top("word")}) for side in (before, after)]
    shares = [{value: count[value] / 500 for value in "abcd"} for count in counts]
    middle = {value: (shares[0][value] + shares[1][value]) / 2 for value in "abcd"}
    divergence = sum(
        share[value] / 2 * math.log2(share[value] / middle[value])
        for share in shares
        for value in "abcd"
        if share[value]
    )
    assert word.jensen_shannon == pytest.approx(math.sqrt(divergence))
    assert (word.over, word.guarantee, x.guarantee) == ("4 values", "exact", "bound")
    answer = diff_json(after.diff(1))
    assert answer["partitions"] == {"added": 0, "removed": 0, "changed": 0, "same": 1}
    assert [column["reason"] for column in answer["columns"]][
        3
    ] == "a list has no values itself; its elements have statistics"


def test_renames_are_followed_and_tables_paired_by_name(local_store: ObjectStore) -> None:
    def schema(**names: str) -> pa.Schema:
        fields = [
            pa.field(name, pa.int64(), metadata={"metastore.field_id": field_id}) for name, field_id in names.items()
        ]
        return pa.schema(fields)

    first = pa.table([[1, 2], [3, 4]], schema=schema(a="1", b="2"))
    second = pa.table([[3, 4], [1, 2]], schema=schema(c="2", a="3"))
    publish(local_store, first)
    table = publish(local_store, second)
    answer = diff_json(table.diff(1))["schema"]
    assert answer == {"added": ["a"], "removed": ["a"], "renamed": [{"from": "b", "to": "c"}], "retyped": []}
    other = publish(local_store, second.select(["a"]).cast(pa.schema([("a", pa.string())])), name="other")
    result = diff_json(table.diff(other))
    assert (result["from"]["table"], result["to"]["table"], result["partitions"]) == ("other", "orders", None)
    assert result["schema"]["retyped"] == [{"column": "a", "from": "string", "to": "int64"}]
    assert result["columns"][1]["reason"] == "values of string and of int64 are not compared"
    assert result["schema"]["added"] == ["c"]


def test_tables_without_values_and_unknown_versions_in_a_diff(local_store: ObjectStore) -> None:
    empty = pa.table({"x": pa.array([], pa.float64()), "w": pa.array([], pa.string()), "n": pa.array([], pa.float64())})
    some = pa.table({"x": [1.0, math.nan], "w": ["a", None], "n": [math.nan, math.inf]})
    off = {"x": {"histogram": "off"}}
    for rows in (empty, some, some.slice(0, 1), some):
        table = publish(local_store, rows, columns=off)
    reasons = [column.reason for column in table.diff(1).columns]
    assert reasons == ["there are no values before"] * 3
    result = {column.column: column for column in table.diff(3).columns}
    assert result["x"].distances is not None
    assert (result["x"].distances.over, result["x"].distances.kolmogorov_smirnov) == ("1 value", 0)
    assert (result["x"].change, result["w"].change) == ("changed", "changed")
    assert result["n"].reason == "one of the two has no values except NaN and infinities"
    assert {column.change for column in table.diff(2).columns} == {"same"}
    assert table.diff(2, 3).row_count == (2, 1)
    with pytest.raises(VersionNotFoundError):
        table.diff(9)


def test_a_root_with_two_paths_is_one_table(tmp_path: Path) -> None:
    """A difference of versions includes partitions, even if one version is opened through a link.

    The link leads to the root of the other version, and is given as a path or as a URI.
    """
    root, link = tmp_path / "root", tmp_path / "link"
    link.symlink_to(root, target_is_directory=True)
    before = publish(ObjectStore(str(root)), pa.table({"a": [1, 2]}))
    after = publish(ObjectStore(str(root)), pa.table({"a": [1]}))
    for other in (str(link), f"file://{link}"):
        assert after.diff(open_table(other, "orders", version=before.version.number)).partitions is not None
