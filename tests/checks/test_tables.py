"""Checks of tables: freshness, files, rows, and consistent numbers.

A version is the published statistics of a table at one snapshot.
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from metastore_assets.checks.base import Finding
from metastore_assets.checks.configured_checks import NamedCheck, parse_check
from metastore_assets.checks.evaluation import evaluate
from metastore_assets.checks.subject import Subject
from metastore_assets.checks.table_checks import find_contradictions
from metastore_assets.errors import StoreError, TableNotFoundError
from metastore_assets.formats.base import Fragment, Snapshot
from metastore_assets.lookup import Table
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.version import FragmentEntry, ProfileFiles, RetiredFragment, Version
from tests.checks.check_results import around, finding, no_table, results
from tests.lookup.publishing import publish

NOW = datetime(2024, 5, 1, 12, tzinfo=UTC)


def numbers(count: int, nulls: int = 0) -> pa.Table:
    return pa.table({"n": pa.array([None] * nulls + list(range(count - nulls)), pa.int64())})


def table_finding(store: ObjectStore, table: Table, entry: Any, snapshot: Any = no_table, **version: Any) -> Finding:
    """Evaluate one check of the table on a published version with replaced fields.

    Return its finding.

    Args:
        store: The store with the published version.
        table: The published version.
        entry: The check, as in YAML.
        snapshot: Returns the table's current snapshot, or raises an error.
        version: The replaced fields of the version.
    """
    other = table.at(replace(table.version, **version))
    named_check = NamedCheck("own", None, parse_check(entry, "table"))
    return evaluate(named_check, Subject(other, around(store, snapshot, NOW)))


@pytest.mark.parametrize(
    ("commit_age", "publish_age", "status", "guarantee"),
    [
        (timedelta(hours=6), timedelta(0), "passed", "exact"),
        (timedelta(hours=6, seconds=1), timedelta(0), "failed", "exact"),
        (timedelta(hours=-1), timedelta(0), "passed", "exact"),
        # The commit time of files is unknown, but not later than when they were listed.
        (None, timedelta(hours=7), "failed", "bound"),
        (None, timedelta(hours=5), "unknown", "bound"),
    ],
)
def test_fresh_compares_the_age_of_the_data(
    local_store: ObjectStore, commit_age: timedelta | None, publish_age: timedelta, status: str, guarantee: str
) -> None:
    times = {"committed_at": None if commit_age is None else NOW - commit_age, "published_at": NOW - publish_age}
    result = table_finding(local_store, publish(local_store, numbers(1)), {"fresh": "6h"}, **times)
    assert (result.status, result.guarantee) == (status, guarantee), result


def _entry(name: str, rows: int) -> FragmentEntry:
    return FragmentEntry(name, "all", f"{name}.parquet", 1, rows, "layout", (), ProfileFiles("", "", ()))


def _snapshot(version: Version, **rows: int | None) -> Snapshot:
    fragments = tuple(Fragment(name, "all", f"{name}.parquet", 1, count, None) for name, count in rows.items())  # type: ignore[arg-type]
    return Snapshot("delta", version.snapshot, version.committed_at, version.schema, (), fragments=fragments)


@pytest.mark.parametrize(
    ("stored_counts", "status", "message"),
    [
        ({"a": 2, "b": 3}, "passed", "2 files, 5 rows"),
        ({"a": 2}, "failed", "b.parquet is not a file of the table"),
        ({"a": 2, "b": 3, "c": 0}, "failed", "c.parquet"),
        ({"a": 2, "b": 4}, "failed", "b.parquet has 4 rows, and statistics of 3"),
        ({"a": 2, "b": None}, "unknown", "no row count for 1 file"),
        ({"a": 1, "b": None}, "failed", "a.parquet has 1 rows, and statistics of 2"),
    ],
)
def test_complete_compares_files_and_rows(
    local_store: ObjectStore, stored_counts: dict[str, int | None], status: str, message: str
) -> None:
    """The check `complete` compares files and row counts of the version with those of the snapshot.

    A version may still store records of files that were removed from the table. These records are ignored. If the
    snapshot has no row count for a file, the result is unknown, unless another file differs.
    """
    table = publish(local_store, numbers(5))
    entries, retired_fragments = (_entry("a", 2), _entry("b", 3)), (RetiredFragment(1, _entry("gone", 9)),)
    snapshot = _snapshot(table.version, **stored_counts)
    result = table_finding(
        local_store, table, "complete", lambda: snapshot, fragments=entries, retired=retired_fragments
    )
    assert result.status == status
    assert message in result.observed


def test_complete_is_unknown_after_a_later_commit(local_store: ObjectStore) -> None:
    table = publish(local_store, numbers(5))
    later = replace(_snapshot(table.version), id="later")
    result = table_finding(local_store, table, "complete", lambda: later)
    assert (result.status, result.advice) == ("unknown", "metastore refresh orders")

    def removed_table() -> Snapshot:
        raise TableNotFoundError("nothing is there")

    def silent() -> Snapshot:
        raise StoreError("it does not answer")

    def broken() -> Snapshot:
        raise ValueError("what a client of a store raises")

    for kind in ("complete", "current"):
        assert table_finding(local_store, table, kind, removed_table).status == "failed"
        assert table_finding(local_store, table, kind, silent).status == "unknown"
        assert "ValueError: what a client of a store raises" in table_finding(local_store, table, kind, broken).observed
    assert table_finding(local_store, table, "current", lambda: later).status == "failed"
    assert table_finding(local_store, table, "current", lambda: _snapshot(table.version)).status == "passed"


def test_consistent_names_contradictory_numbers(local_store: ObjectStore) -> None:
    """The check `consistent` names each statistic that contradicts another one.

    A column `a.b` is not confused with field `b` of a struct `a`.
    """
    rows = pa.table({"a": pa.array([{"b": 1}, None]), "a.b": [1, 2], "l": [[1, 2, 3], []], "x": [1.0, None]})
    table = publish(local_store, rows)
    assert finding(local_store, table, "consistent").status == "passed"
    (of_x,) = [row for row in table.statistics() if row.column == "x"]
    for wrong, message in (
        ({"null_count": 5}, "1 values and 5 nulls in 2 rows"),
        ({"distinct_count": 7}, "7 distinct values among 1 values"),
        ({"duplicate_count": 2}, "2 values that occur more than once among 1 distinct values"),
        ({"nan_count": 2}, "2 NaN among 1 values"),
        ({"minimum": pa.scalar(2.0), "maximum": pa.scalar(1.0)}, "a minimum that is greater than its maximum"),
        ({"minimum_length": 2, "maximum_length": 1}, "a minimum length of 2 and a maximum length of 1"),
    ):
        others = [row for row in table.statistics() if row.column != "x"]
        (problem,) = find_contradictions(table.version, [*others, replace(of_x, **wrong)])  # type: ignore[arg-type]
        assert message in problem
    version = replace(table.version, row_count=3)
    problems = list(find_contradictions(version, table.statistics()))
    assert re.search(r"\bpartitions\b.*\b2 rows\b.*\btable\b.*\b3$", problems[0])
    (problem,) = find_contradictions(table.version, table.statistics()[:-1])
    assert re.search(r"'x'.*\bno statistics$", problem)


@pytest.mark.parametrize(
    ("before", "now", "settings", "status"),
    [
        (100, 110, "10%", "passed"),
        (100, 111, "10%", "failed"),
        (100, 90, 0.1, "passed"),
        (100, 89, 0.1, "failed"),
        (100, 500, {"lower": 0}, "passed"),
        (100, 99, {"lower": 0}, "failed"),
        (3, 2, {"lower": "-34%", "upper": 0}, "passed"),
        (0, 0, {"upper": 0}, "passed"),
        (0, 0, {"lower": "5%"}, "failed"),
        (0, 0, {"upper": "-5%"}, "failed"),
        (0, 1, {"upper": 9}, "failed"),
        (0, 1, {"lower": 0}, "passed"),
    ],
)
def test_row_count_change_has_limits(
    local_store: ObjectStore, before: int, now: int, settings: Any, status: str
) -> None:
    publish(local_store, numbers(before))
    table = publish(local_store, numbers(now))
    assert finding(local_store, table, {"row_count_change": settings}).status == status


def test_row_count_changes_are_ranked_by_their_distance_to_the_bounds(local_store: ObjectStore) -> None:
    """A failed check `row_count_change` lists partitions by how far they are beyond a bound.

    The furthest partition is first.

    Growth from no rows exceeds every bound.
    """
    before = {"day=1": numbers(100), "day=2": numbers(100), "day=3": numbers(0)}
    publish(local_store, pa.concat_tables(before.values()), partitions=before)
    now = {"day=1": numbers(160), "day=2": numbers(70), "day=3": numbers(1)}
    table = publish(local_store, pa.concat_tables(now.values()), partitions=now)
    check = {"row_count_change": {"lower": "-10%", "upper": "50%"}, "partitions": "all"}
    observation = finding(local_store, table, check).observed
    assert re.findall("day=.", observation) == ["day=3", "day=2", "day=1"]


def test_the_compared_version_is_selected(local_store: ObjectStore) -> None:
    """The setting `against` of a check selects the version to compare with, by number or by age.

    By default, it is the newest version of an earlier snapshot. If there is no such version, the result is unknown.
    """
    for count in (10, 20):
        publish(local_store, numbers(count))
    table = publish(local_store, numbers(40))
    change_checks = [
        NamedCheck("change", None, parse_check({"row_count_change": 0, "against": baseline}, "table"))
        for baseline in (1, "1h")
    ]
    result = [evaluate(each, Subject(table, around(local_store))) for each in change_checks]
    assert result[0].measures["change"] == 3.0
    assert (result[1].status, result[1].advice) == ("unknown", None), "all were published within an hour"
    same = table.at(replace(table.version, snapshot="snapshot 2"))
    check = NamedCheck("own", None, parse_check({"row_count_change": 0}, "table"))
    assert evaluate(check, Subject(same, around(local_store))).measures["change"] == 3.0, "version 2 is of its snapshot"
    for against, message in (
        (3, "version 3"),
        (7, "version 3"),
        ("52w", "364 d"),
    ):
        none = finding(local_store, table, {"row_count_change": 0, "against": against})
        assert none.status == "unknown"
        assert message in none.observed
    first = publish(local_store, numbers(1), name="new")
    none = finding(local_store, first, {"row_count_change": 0})
    assert none.status == "unknown"
    assert re.search(r"\bversion\b.*\bsnapshot\b.*\b1\b", none.observed)


def test_partitions_are_checked_one_by_one(local_store: ObjectStore) -> None:
    """A check with `partitions` is evaluated for each matching partition, and fails if one of them fails.

    A new partition counts as unchanged in the check `row_count_change`. Patterns select the partitions.
    """
    parts = {"day=1": numbers(10), "day=2": numbers(10, nulls=4)}
    publish(local_store, pa.concat_tables(parts.values()), partitions=parts)
    parts |= {"day=2": numbers(30, nulls=4), "month=1": numbers(1)}
    table = publish(local_store, pa.concat_tables(parts.values()), partitions=parts)
    change, nulls, of_day_1 = results(
        local_store,
        table,
        {"row_count_change": 0, "partitions": ["day=*", "month=1"]},
        n=[{"not_null": None, "partitions": "all", "name": "nulls"}, {"not_null": None, "partitions": "day=1"}],
    )
    assert nulls.name == "nulls"
    assert nulls.status == "failed"
    assert [(partition.partition, partition.finding.status) for partition in nulls.partitions or ()] == [
        ("day=1", "passed"),
        ("day=2", "failed"),
        ("month=1", "passed"),
    ]
    assert nulls.to_json()["partitions"] == {
        "passed": 2,
        "failed": 1,
        "unknown": 0,
        "first": [{"partition": "day=2", "status": "failed", "observed": "4 nulls in 30 rows (13.3%)"}],
    }
    assert (of_day_1.status, len(of_day_1.partitions or ())) == ("passed", 1)
    assert [partition.finding.status for partition in change.partitions or ()] == ["passed", "failed", "passed"]
    assert change.finding.observed.startswith("failed in 1 of 3 partitions: day=2: +200.0%: 10 → 30 rows")


def test_a_check_that_passes_for_the_table_passes_for_its_partitions(local_store: ObjectStore) -> None:
    """A check of all values, such as `unique`, fails for a partition only if it fails for the table.

    A check of a share may pass for the table and fail for a partition.
    """
    parts = {f"day={n}": pa.table({"n": [n], "t": ["a" if n else "b"]}) for n in range(3)}
    table = publish(local_store, pa.concat_tables(parts.values()), partitions=parts)
    every = {"partitions": "all"}
    by_check = results(
        local_store,
        table,
        n=[{"unique": None} | every, {"range": {"maximum": 1}} | every],
        t=[{"matches": "a|b"} | every, {"matches": "a", "least": 0.5} | every],
    )
    assert [[partition.finding.status for partition in result.partitions or ()] for result in by_check] == [
        ["passed"] * 3,
        ["passed", "passed", "failed"],
        ["passed"] * 3,
        ["failed", "passed", "passed"],
    ]


def test_checks_of_no_partitions_and_no_rows_say_that_nothing_was_checked(local_store: ObjectStore) -> None:
    """A check of a column without rows, or of all partitions if there are none, passes.

    The result says that nothing was checked. The table's row count is checked nevertheless, and a check that does not
    fit its column fails.
    """
    published_table = publish(local_store, numbers(0))
    table = published_table.at(replace(published_table.version, partitions=[]))
    each = {"partitions": "all"}
    rows, each_row, *values = results(
        local_store,
        table,
        {"row_count": 1},
        {"row_count": 1, **each, "name": "each"},
        n=[
            "not_null",
            {"null_share": 0.1},
            "unique",
            {"range": {"minimum": 1}},
            {"accepted_values": [1]},
            {"not_null": None, **each, "name": "each_not_null"},
            {"range": {"minimum": "x"}, **each, "name": "misfit"},
        ],
    )
    misfit = values.pop()
    assert (rows.status, misfit.status, misfit.finding.guarantee) == ("failed", "failed", "absent")
    for result in (each_row, *values):
        assert result.status == "passed"
        assert "nothing was checked" in result.finding.observed


def test_missing_partitions_make_a_check_unknown(local_store: ObjectStore) -> None:
    """If one of a check's patterns matches no partition, the check is unknown.

    If another pattern matches a partition that fails, the check fails nevertheless.
    """
    table = publish(local_store, numbers(1), partitions={"day=1": numbers(1)})
    result = finding(local_store, table, {"row_count": 1, "partitions": ["day=1", "month=*"]})
    assert result.status == "unknown"
    assert all(name in result.observed for name in ("'orders'", "'month=*'", "'day'"))
    assert finding(local_store, table, {"row_count": 2, "partitions": ["day=1", "month=*"]}).status == "failed"
    assert finding(local_store, table, {"row_count": 1, "partitions": "all"}).status == "passed"


@pytest.mark.parametrize(
    ("checks", "columns", "message"),
    [
        (
            [],
            {"m": ["not_null"]},
            "'orders'.*'m'.*: n",
        ),
        (
            [],
            {"n": [{"range": {"minimum": "x"}}]},
            "'x'.*'n'.*integer",
        ),
        ([], {"n": [{"accepted_values": [1, "2024-01-01"]}]}, "'2024-01-01'.*'n'"),
        ([], {"n": [{"matches": "a"}]}, "'n'.*'orders'.*int64"),
        ([], {"t": [{"matches": "(a"}]}, r"'\(a'.*\(RE2\): .*missing \)"),
        ([], {"t": [{"matches": "a)|(?:b"}]}, r"'a\)\|\(\?:b'.*\(RE2\): .*unexpected \)"),
        ([], {"n": [{"lengths": {"minimum": 1}}]}, "int64.*length"),
        ([], {"t": [{"accepted_values": [1]}]}, "1 .*'t'.*'orders'.*text"),
        ([], {"t": [{"accepted_values": [True]}]}, "True .*'t'.*'orders'.*text"),
    ],
)
def test_a_check_that_does_not_fit_the_table_has_failed(
    local_store: ObjectStore, checks: list[Any], columns: dict[str, Any], message: str
) -> None:
    """A check that does not fit the table or its column fails with the reason, also for partitions.

    Other checks are evaluated.
    """
    table = publish(local_store, pa.table({"n": [1], "t": ["a"]}))
    by_partition = {
        name: [
            {kind: value, "partitions": "all", "name": f"each_{name}"}
            for kind, value in (entry.items() if isinstance(entry, dict) else ((entry, {}),))
        ]
        for name, (entry,) in columns.items()
    }
    for column_checks in (columns, by_partition):
        first, misfit = results(local_store, table, *checks, {"row_count": 1}, **column_checks)
        assert (first.status, misfit.status, misfit.partitions) == ("passed", "failed", None)
        assert misfit.finding.guarantee == "absent"
        assert re.search(message, misfit.finding.observed)
        assert misfit.is_violated
