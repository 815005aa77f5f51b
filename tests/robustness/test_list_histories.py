"""Very many short histories of tables and of policies: lists, ranks, facts, bins and statistics of one's own.

After every commit they are what DuckDB says of the live rows, in the end what is computed from scratch. Refreshes need
no Spark here, so that a history takes a fraction of a second.
"""

from __future__ import annotations

import math
import os
import random
import shutil
from collections import Counter
from collections.abc import Iterable
from copy import deepcopy
from pathlib import Path
from typing import Any, ClassVar

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.lists import graph
from metastore_assets.lookup import Metastore, TableLookup
from metastore_assets.pipeline.compact import compact
from metastore_assets.pipeline.hidden_key import KEY_FILE
from metastore_assets.pipeline.refresh import refresh
from metastore_assets.statistics.column import ColumnStatistics
from tests.pipeline.support import assert_same, close, everything
from tests.pipeline.test_lists import RUNS
from tests.robustness.delta_tables import DeltaCopyOnWrite, DeltaMapped
from tests.robustness.file_tables import PlainFiles
from tests.robustness.histories import History, shuffled
from tests.robustness.iceberg_tables import IcebergCopyOnWrite
from tests.robustness.support import no_spark, versions

# Of pyiceberg, where a commit finds nothing to delete.
pytestmark = pytest.mark.filterwarnings("ignore:Delete operation did not match any records")

SHIPPED = "metastore_assets.statistics.user_defined.shipped"
OWN = [f"{SHIPPED}:{name}" for name in ("Benford", "StringPatterns", "LongestCommonPrefix", "OutsideFences")]
POLICIES: list[dict[str, Any]] = [
    {},
    {"frequencies": "all"},
    {"frequencies": "off"},
    {"frequencies": "repeated"},
    {"frequencies": "repeated", "algorithm": "fingerprints"},
    {"by_partition": "on"},
    {"frequencies": "top(2)"},
    {"ranks": "on"},
    {"histogram": "off"},
    {"histogram": 4000, "quantiles": "off"},
    {"frequencies": "off", "statistics": OWN[:3]},
    {"statistics": OWN},
    {"values": "hidden"},
]
ORACLE = duckdb.connect(config={"threads": 1})
_LOTS = 10
"""Histories of one test."""


class Policies(History):
    """A table whose policies change as well, and whose lists are compacted now and then."""

    own_steps: ClassVar = ("policy", "compact_lists")

    def append(self, count: int | None = None) -> None:
        """Most commits are small beside the table, so that lists are stepped."""
        super().append(self.draw.randrange(1, 12) if count is None else 3 * count)

    def config(self) -> MetastoreConfig:
        columns = getattr(self, "columns", {})
        there = {column: policy for column, policy in columns.items() if column in self.live().column_names}
        table = TableConfig.model_validate({"name": "t", "uri": str(self.uri), "columns": there})
        return MetastoreConfig(root=str(self.folder / "root"), engine="auto", keep_versions=3, tables=[table])

    def policy(self) -> None:
        named = [name for name in self.live().column_names if name != "p"]
        self.columns = {self.draw.choice(named): self.draw.choice(POLICIES) for _ in range(2)}

    def compact_lists(self) -> None:
        compact(versions(self.config()), self.config().tables[0])


class FilePolicies(Policies, PlainFiles):
    steps: ClassVar = (*PlainFiles.steps, *Policies.own_steps, "policy")


class FewPartitions(FilePolicies):
    """What costs least: so there may be many."""

    partitions: ClassVar = ("a", None)


class DeltaPolicies(Policies, DeltaCopyOnWrite):
    steps: ClassVar = (*DeltaCopyOnWrite.steps, *Policies.own_steps)


class MappedPolicies(Policies, DeltaMapped):
    steps: ClassVar = (*DeltaMapped.steps, *Policies.own_steps)


class IcebergPolicies(Policies, IcebergCopyOnWrite):
    steps: ClassVar = (*IcebergCopyOnWrite.steps, *Policies.own_steps)


def _lots(kind: type[Policies], count: int, length: int, first: int = 0) -> list[Any]:
    return [
        pytest.param(kind, range(at, at + _LOTS), length, id=f"{kind.__name__}-{at}")
        for at in range(first, first + count, _LOTS)
    ]


@pytest.fixture(autouse=True)
def _in_runs_and_without_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph, "SETTINGS", RUNS)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.mark.parametrize(("kind", "seeds", "length"), _lots(FewPartitions, 50, 2))
def test_fifty_histories(tmp_path: Path, kind: type[Policies], seeds: range, length: int) -> None:
    """Ten begin as copies of one table with a version. Of one or two steps, refreshed and looked at once; one of the
    ten is computed from scratch too."""
    start = kind(tmp_path / "start", seeds[0])
    refreshed(start.config())
    for seed in seeds:
        follow(begun(start, tmp_path / str(seed), seed), seed, 1 + seed % length, always=False)


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "seeds", "length"),
    [
        *_lots(FewPartitions, 600, 5, 100),
        *_lots(FilePolicies, 100, 5),
        *_lots(DeltaPolicies, 150, 5),
        *_lots(MappedPolicies, 100, 5),
        *_lots(IcebergPolicies, 100, 5),
    ],
)
def test_a_thousand_histories(tmp_path: Path, kind: type[Policies], seeds: range, length: int) -> None:
    for seed in seeds:
        history = kind(tmp_path / str(seed), seed)
        refreshed(history.config())
        follow(history, seed, length, always=True)
        shutil.rmtree(history.folder)


def begun(start: Policies, folder: Path, seed: int) -> Policies:
    """A table and a root like another's, in a folder of its own: modification times are kept, and so are fragments."""
    shutil.copytree(start.folder, folder)
    history = deepcopy(start)
    history.folder, history.draw = folder, random.Random(seed)
    return history


def follow(history: Policies, seed: int, length: int, *, always: bool) -> None:
    """Take the steps, and compare after each of them, or in the end; then with what is computed from scratch."""
    done: list[str] = []
    draw = random.Random(seed)
    try:
        for step in shuffled(history, length):
            done.append(step)
            history.take(step)
            if not always and len(done) < length:
                continue
            refreshed(history.config())
            assert_answers(Metastore(history.config().root).table("t"), history.live(), history.config(), draw)
        if always or seed % _LOTS == 0:
            assert_is_from_scratch(history.config(), history.folder)
    except Exception as error:
        raise AssertionError(f"{type(history).__name__}, seed {seed}: {', '.join(done)}") from error


def assert_is_from_scratch(config: MetastoreConfig, folder: Path) -> None:
    anew = config.model_copy(update={"root": str(folder / "scratch")})
    if (key := folder / "root" / KEY_FILE).exists():
        (folder / "scratch").mkdir()
        shutil.copy(key, folder / "scratch")
    refreshed(anew)
    own, other = everything(config), everything(anew)
    assert_same(own, other)
    for column, row in own["table"]["columns"].items():
        assert close(told_by_users(row), told_by_users(other["table"]["columns"][column])), column


def refreshed(config: MetastoreConfig) -> None:
    refresh(config, config.tables[0], no_spark)


def told_by_users(row: dict[str, Any]) -> dict[str, Any]:
    return {name: (own["array"].to_pylist(), own["guarantee"]) for name, own in row["user_defined"].items()}


def assert_answers(told: TableLookup, live: pa.Table, config: MetastoreConfig, draw: random.Random) -> None:
    """Of the table, and of a partition."""
    assert told.row_count() == len(live)
    rows = {row.column: row for row in told.statistics()}
    assert sorted(rows) == sorted(live.column_names)
    for name, row in rows.items():
        policy = config.tables[0].policy(name)
        values = [value for value in live[name].to_pylist() if value is not None]
        counts = Counter("nan" if value != value else value for value in values)
        assert (row.value_count, row.null_count) == (len(values), len(live) - len(values)), name
        if policy.values == "hidden":
            assert row.distinct_count is not None
            assert abs(row.distinct_count - len(counts)) <= 4, name
            assert (row.minimum, row.frequencies) == (None, "absent"), name
        elif policy.frequencies == "off":
            assert row.frequencies == "off", name
        else:
            assert row.frequencies == ("repeated" if policy.algorithm == "fingerprints" else "listed"), name
            assert_listed(told, row, counts, policy.least_frequency, policy.most_listed)
    ordered = [row for row in rows.values() if row.frequencies == "listed" and row.value_count]
    if ordered:
        assert_ordered(told, live, draw.choice(ordered), draw)
    if told.frequencies_file is not None:
        assert_plain(told, live, rows.values())


def assert_listed(told: TableLookup, row: ColumnStatistics, counts: Counter[Any], least: int, most: int | None) -> None:
    expected = {value: count for value, count in counts.items() if count >= least}
    listed = [
        ("nan" if (value := own.as_py()) != value else value, count)
        for own, count in told.top(row.column, 10**6).values
    ]
    assert [count for _, count in listed] == sorted(expected.values(), reverse=True)[:most], row.column
    assert all(expected[value] == count for value, count in listed), row.column
    assert len({value for value, _ in listed}) == len(listed), row.column
    duplicates = sum(count > 1 for count in counts.values())
    facts = (row.distinct_count, row.duplicate_count, row.distinct_count_guarantee)
    assert facts == (len(counts), duplicates, "exact"), row.column
    spread, total = told.spread(row.column), counts.total()
    assert spread.singleton_count == sum(count == 1 for count in counts.values()), row.column
    entropy = -sum(count / total * math.log2(count / total) for count in counts.values())
    assert spread.entropy == pytest.approx(entropy, abs=1e-9), row.column


def assert_ordered(told: TableLookup, live: pa.Table, row: ColumnStatistics, draw: random.Random) -> None:
    """Quantiles and a rank, against DuckDB's over the rows."""
    column = '"' + row.column + '"'
    number = f"CASE WHEN isnan({column}) THEN NULL ELSE {column} END" if row.type == "double" else column
    fractions = [0.0, draw.choice([0.25, 0.5, 0.9]), 1.0]
    with ORACLE.cursor() as connection:
        connection.register("live", live)
        wanted = connection.execute(f"SELECT quantile_disc({number}, {fractions}) FROM live").fetchone()
        assert wanted is not None
        if wanted[0] is None:
            return
        found = told.quantile(row.column, fractions)
        assert [one.value.as_py() for one in found] == wanted[0], row.column
        assert {one.guarantee for one in found} == {"exact"}, row.column
        value = wanted[0][1]
        before = connection.execute(f"SELECT count(*) FROM live WHERE {number} < ?", [value]).fetchone()
        assert before is not None
        rank = told.rank(row.column, value)
        assert (rank.count, rank.guarantee) == (before[0], "exact"), row.column
        held = connection.execute(f"SELECT count(*) FROM live WHERE {column} = ?", [value]).fetchone()
        assert held is not None
        assert sum(count for _, count in told.where_is(row.column, value)) == held[0], row.column


def assert_plain(told: TableLookup, live: pa.Table, rows: Iterable[ColumnStatistics]) -> None:
    """The files of compacted lists, read by other tools as they are."""
    listed = {row.column: row for row in rows if row.frequencies in ("listed", "repeated")}
    frequencies, ranks = (
        None if path is None else pq.read_table(f"{told.location}/{path}")
        for path in (told.frequencies_file, told.ranks_file)
    )
    assert frequencies is not None
    assert set(frequencies["column"].unique().to_pylist()) <= listed.keys()
    for name, row in listed.items():
        least = 2 if row.frequencies == "repeated" else 1
        counts = Counter(_comparable(value) for value in live[name].to_pylist() if value is not None)
        expected = sorted((-count, value) for value, count in counts.items() if count >= least)
        own = frequencies.filter(pc.equal(frequencies["column"], name))
        found = zip(_values(own, row), own["frequency"].to_pylist(), strict=True)
        assert [(-count, value) for value, count in found] == expected, name
        own = None if ranks is None else ranks.filter(pc.equal(ranks["column"], name))
        if own is not None and own.num_rows:
            ordered, before = sorted(counts.items()), 0
            for (value, count), *told_ in zip(
                ordered, _values(own, row), own["frequency"].to_pylist(), own["rank"].to_pylist(), strict=True
            ):
                assert told_ == [value, count, before], name
                before += count


def _values(rows: pa.Table, row: ColumnStatistics) -> list[Any]:
    if not rows.num_rows:
        return []
    value = rows["value"].combine_chunks()
    return [_comparable(own) for own in value.field(row.type_class).to_pylist()]


def _comparable(value: Any) -> Any:
    """NaN is greater than all others, and equal to itself."""
    return (isinstance(value, float) and math.isnan(value), 0.0 if value != value else value)
