"""The history of a table's statistics has one row per version and column, also of expired versions.

A version is the published statistics of a table at one snapshot. The history is a Delta table below the root, the
folder with all stored state. Versions are appended to it from time to time. Reading the history also reads versions
that are not appended yet. A hidden column has the policy `values: hidden`: new versions have no values of it. A purge
removes older versions, and their values from the history.
"""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from metastore_assets.errors import ColumnNotFoundError, ObjectNotFoundError, StoreError, VersionNotFoundError
from metastore_assets.history import (
    HistoryPoint,
    append_versions,
    append_when_due,
    delta_table,
    points,
    points_table,
    read_history,
    remove_values,
    updates,
    version_points,
)
from metastore_assets.history.delta_table import ConflictError, HistoryTable
from metastore_assets.history.version_rows import SCHEMA, read_rows
from metastore_assets.lookup import Table
from metastore_assets.metastore import Metastore
from metastore_assets.statistics.column import column_to_json
from metastore_assets.store.documents import Documents
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.version import Version
from metastore_assets.store.versions import HISTORY, VersionStore
from tests.cli.run_command import run
from tests.lookup.publishing import publish
from tests.store.test_failures import mounted

HOURS = timedelta(hours=0)


def some_rows(number: int) -> pa.Table:
    draw = random.Random(number)
    return pa.table(
        {
            "id": pa.array([draw.randrange(100) for _ in range(20 + number)]),
            "name": pa.array([draw.choice(["ann", "bob", None]) for _ in range(20 + number)]),
            "secret": pa.array([f"secret-{draw.randrange(10)}" for _ in range(20 + number)]),
        }
    )


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, None, 2.5], [1.0, None, 2.5]),
        ([1, "a"], ["1", "a"]),
        ([True, 7, None], ["True", "7", None]),
        ([{"a": 1}, 2], ['{"a": 1}', "2"]),
        ([2**64, 1], [str(2**64), "1"]),
        ([-(2**63) + 1, 1], [-(2**63) + 1, 1]),
        ([2**53 + 1, 2.5], [str(2**53 + 1), "2.5"]),
    ],
    ids=str,
)
def test_points_with_values_of_several_types_are_a_table(values: list[Any], expected: list[Any]) -> None:
    """A user-defined statistic may return another type in each version.

    All values become integers, floats or texts: the first of these types that represents all of them exactly.
    """
    history = [
        HistoryPoint(number, "s", datetime(2024, 1, 1, tzinfo=UTC), value, "exact")
        for number, value in enumerate(values)
    ]
    assert points_table(history)["value"].to_pylist() == expected


@pytest.mark.parametrize("name", ["p50", "row_count"])
def test_a_user_defined_statistic_has_precedence(name: str) -> None:
    """The history returns a user-defined statistic that has the name of a built-in one.

    The names are those of a percentile and of the row count. Versions without the user-defined statistic have no value.
    If no version has it, the history returns the built-in statistic.
    """
    record = {
        "version": 1,
        "snapshot": "s",
        "published_at": datetime(2024, 1, 1, tzinfo=UTC),
        "row_count": 3,
        "percentiles": [{"fraction": 0.5, "value": "3"}],
        "percentiles_guarantee": "exact",
    }
    result = {"value": 7, "guarantee": "estimate"}
    rows = pa.Table.from_pylist([record, record | {"user_defined": json.dumps({name: result})}], SCHEMA)
    assert [(point.value, point.guarantee) for point in points(rows, name)] == [(None, "absent"), (7, "estimate")]
    assert points(rows.slice(0, 1), name)[0].value in ("3", 3)


def published(store: ObjectStore, count: int, columns: Any = None) -> Table:
    for _ in range(count):
        number = VersionStore(store, "orders").newest() + 1
        table = publish(store, some_rows(number), columns=columns)
    return table


def written(store: ObjectStore) -> pa.Table:
    """Read the history's Delta table with deltalake."""
    uri = store.uri(f"orders/{HISTORY}")
    uri = uri if store.is_remote else Path(uri).as_uri()
    return DeltaTable(uri, storage_options=store.storage_options).to_pyarrow_table()


def keys(rows: pa.Table) -> list[tuple[int, str]]:
    return list(zip(rows["version"].to_pylist(), rows["column"].to_pylist(), strict=True))


def expected(count: int) -> list[tuple[int, str]]:
    return [(number, column) for number in range(1, count + 1) for column in ("id", "name", "secret")]


def test_a_row_has_the_statistics_of_its_version(store: ObjectStore) -> None:
    """After three versions are appended, each row of the history has the statistics of its version.

    Deltalake and this package read the rows. If the history is on disk, DuckDB reads them, too.
    """
    tables = [published(store, 1) for _ in range(3)]
    assert append_versions(VersionStore(store, "orders")) == 3
    assert sorted(keys(written(store))) == expected(3)
    rows = tables[-1].history().to_arrow()
    assert keys(rows) == expected(3)
    for record in rows.to_pylist():
        answer = column_to_json(tables[record["version"] - 1].statistics([record["column"]])[0])
        for name in ("type", "value_count", "null_count", "distinct_count", "distinct_count_guarantee", "mean"):
            assert record[name] == answer[name], (record["version"], name)
        for name in ("minimum", "maximum"):
            assert record[name] == (answer[name] if answer["type"] == "string" else str(answer[name]))
        assert record["row_count"] == 20 + record["version"]
        assert [point["fraction"] for point in record["percentiles"]] == [
            point["fraction"] for point in answer["percentiles"]
        ]
    if not store.is_remote:
        files = store.uri("orders/history") + "/*.parquet"
        with duckdb.connect() as connection:
            answer = connection.sql(f"select sum(null_count) from read_parquet('{files}') where version = 2").fetchall()
        total = answer[0][0]
        assert total == tables[1].statistics(["name"])[0].null_count


def test_a_history_outlives_expired_versions(local_store: ObjectStore) -> None:
    table = published(local_store, 3)
    versions = VersionStore(local_store, "orders")
    append_versions(versions)
    before = table.history()
    expire_result = versions.expire(1, HOURS)
    assert expire_result.versions == 2
    assert versions.numbers() == [3]
    again = Metastore(local_store.uri()).table("orders")
    assert again.history() == before
    points = again.history("name", "null_count")
    assert [point.version for point in points] == [1, 2, 3]
    assert [point.value for point in points] == [some_rows(number)["name"].null_count for number in (1, 2, 3)]
    assert {point.guarantee for point in points} == {"exact"}
    assert [point.value for point in again.history(None, "row_count")] == [21, 22, 23]
    alone = [publish(ObjectStore(f"{local_store.uri()}-{number}"), some_rows(number)) for number in (1, 2, 3)]
    assert [point.value for point in again.history("id", "p50")] == [
        str(table.quantile("id", 0.5).value) for table in alone
    ]
    versions.expire(1, HOURS)
    assert again.history() == before, "expiry removes no file of the history"


def test_versions_that_are_not_appended_are_read(local_store: ObjectStore) -> None:
    table = published(local_store, 2)
    assert keys(table.history().to_arrow()) == expected(2)
    assert not list(Path(local_store.uri(f"orders/{HISTORY}")).glob("*")), "reading writes nothing"
    append_versions(VersionStore(local_store, "orders"))
    newest = published(local_store, 2)
    assert keys(newest.history().to_arrow()) == expected(4)
    assert keys(table.history().to_arrow()) == expected(2), "rows up to the older version"
    append_versions(VersionStore(local_store, "orders"))
    append_versions(VersionStore(local_store, "orders"))
    assert sorted(keys(written(local_store))) == expected(4)


def test_an_append_to_a_read_only_root_says_so(tmp_path: Path) -> None:
    """The error of an append to a read-only root advises to omit `--append`.

    It does not advise to remove the history. If the history has all versions already, nothing is written, and there is
    no error.
    """
    root = tmp_path / "root"
    (tmp_path / "metastore.yaml").write_text(f"root: {root}\ntables: [{{name: orders, uri: nowhere}}]\n")
    published(ObjectStore(str(root)), 2)
    command = "history", "orders"
    for _ in range(2):
        for _ in mounted(root, "--bind", str(root)):
            subprocess.run(["mount", "-o", "remount,ro,bind", str(root)], check=True)
            result = run(*command, "--append", config=tmp_path / "metastore.yaml")
            message = "the file system is read-only; set another root; without --append, this command writes nothing"
            assert f"{root}/orders/history/_last_appended: {message}" in result.stderr
            assert run(*command, config=tmp_path / "metastore.yaml").exit_code == 0
        append_versions(VersionStore(ObjectStore(str(root)), "orders"))
        for _ in mounted(root, "--bind", str(root)):
            subprocess.run(["mount", "-o", "remount,ro,bind", str(root)], check=True)
            assert run(*command, "--append", config=tmp_path / "metastore.yaml").exit_code == 0
        published(ObjectStore(str(root)), 1)


@pytest.mark.parametrize("update", [append_versions, lambda versions: remove_values(versions, 2)])
def test_a_purge_removes_the_newest_version_meanwhile(
    local_store: ObjectStore, monkeypatch: pytest.MonkeyPatch, update: Callable[[VersionStore], Any]
) -> None:
    """A purge replaces version 1, the only version, by version 2 during an update of the history.

    The purge runs after the update has listed the versions, and before the update reads version 1. The history then
    has only version 2.
    """
    published(local_store, 1)
    versions = VersionStore(local_store, "orders")
    numbers, others = Documents.numbers, [1]

    def numbers_before_purge(self: Documents) -> list[int]:
        listed_numbers = numbers(self)
        if others:
            removed_number = others.pop()
            published(local_store, 1)
            versions.objects.delete([self.path(removed_number)])
        return listed_numbers

    monkeypatch.setattr(Documents, "numbers", numbers_before_purge)
    update(versions)
    rows, last, _ = HistoryTable(versions.objects).read()
    assert (set(rows["version"].to_pylist()), last) == ({2}, 2)


@pytest.mark.parametrize("update", [append_versions, lambda versions: remove_values(versions, 2)])
@pytest.mark.parametrize("error", [ConflictError, ObjectNotFoundError, VersionNotFoundError])
def test_an_update_that_fails_in_every_attempt_says_what_to_do(
    local_store: ObjectStore,
    monkeypatch: pytest.MonkeyPatch,
    update: Callable[[VersionStore], Any],
    error: type[StoreError],
) -> None:
    published(local_store, 1)

    def fail(*arguments: object) -> None:
        raise error("changed by another process")

    monkeypatch.setattr(updates, "read_rows", fail)
    with pytest.raises(StoreError, match=r"\bhistory\b.*'orders'.*\bevery attempt\b"):
        update(VersionStore(local_store, "orders"))


@pytest.mark.parametrize(
    ("reason", "is_denied"),
    [
        ("Unable to open file x: Permission denied (os error 13)", True),
        ('Error: Os { code: 30, kind: ReadOnlyFilesystem, message: "Read-only file system" }', True),
        ("Client error with status 403 Forbidden: AccessDenied", True),
        ("Object at location x not found: No such file or directory (os error 2)", False),
    ],
)
def test_only_a_damaged_history_is_to_be_removed(
    local_store: ObjectStore, monkeypatch: pytest.MonkeyPatch, reason: str, is_denied: bool
) -> None:
    published(local_store, 1)
    append_versions(VersionStore(local_store, "orders"))

    def refuse(*arguments: Any, **options: Any) -> None:
        raise DeltaError(reason)

    monkeypatch.setattr(DeltaTable, "to_pyarrow_table", refuse)
    with pytest.raises(StoreError, match=re.escape(reason)) as error_info:
        HistoryTable(VersionStore(local_store, "orders").objects).read()
    assert ("remove" in str(error_info.value)) != is_denied


@pytest.mark.long
def test_concurrent_processes_append_each_row_once(local_store: ObjectStore) -> None:
    """Two processes append four versions at the same time, and each row is in the history once.

    Threads are no substitute, because a lock serializes the threads of one process.
    """
    published(local_store, 4)
    program = (
        "import sys; from metastore_assets.history import append_versions; from metastore_assets.store.objects import "
        "ObjectStore; from metastore_assets.store.versions import VersionStore; sys.stdin.readline(); "
        "print(append_versions(VersionStore(ObjectStore(sys.argv[1]), 'orders')))"
    )
    command = [sys.executable, "-c", program, local_store.uri()]
    pipe = subprocess.PIPE
    children = [subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) for _ in range(2)]
    for child in children:
        assert child.stdin is not None
        child.stdin.write("\n")
        child.stdin.flush()
    for child in children:
        out, error = child.communicate(timeout=60)
        assert (child.returncode, out.strip()) == (0, "4"), error
    assert sorted(keys(written(local_store))) == expected(4)


def test_concurrent_threads_append_each_row_once(local_store: ObjectStore) -> None:
    published(local_store, 3)
    threads = [threading.Thread(target=append_versions, args=(VersionStore(local_store, "orders"),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(keys(written(local_store))) == expected(3)


def test_an_interrupted_append_is_repeated(local_store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """An append is interrupted before its commit.

    The next append succeeds, and files of the interrupted append add no rows.
    """
    published(local_store, 2)
    versions = VersionStore(local_store, "orders")
    append_versions(versions)
    published(local_store, 1)

    class Killed(BaseException):
        pass

    def kill(self: object, last: int) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(delta_table.HistoryTable, "_commit", kill)
        with pytest.raises(Killed):
            append_versions(versions)
    assert sorted(keys(written(local_store))) == expected(2)
    published(local_store, 1)
    assert append_versions(versions) == 4
    assert sorted(keys(written(local_store))) == expected(4)


def version_of(table: Table) -> Version:
    return table.version


def test_versions_are_appended_when_due(local_store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Versions are appended after a pause, after many versions, and before a version expires."""
    monkeypatch.setattr(updates, "MAX_VERSIONS", 5)
    versions = VersionStore(local_store, "orders")
    first, second = version_of(published(local_store, 1)), version_of(published(local_store, 1))
    day = timedelta(days=1)
    assert append_when_due(versions, None, first, 100, day) == -99
    assert append_when_due(versions, first, second, 100, day) == -98
    assert append_when_due(versions, first, second, 1, day) == 0, "nothing is due while version 2 is young"
    assert not versions.objects.list(HISTORY)
    assert append_when_due(versions, first, second, 1, -day) == 1
    assert keys(written(local_store).sort_by([("version", "ascending"), ("position", "ascending")])) == expected(2)
    third = version_of(published(local_store, 1))
    later = replace(third, published_at=second.published_at + timedelta(minutes=11))
    assert append_when_due(versions, second, third, 100, day) == -97
    assert len(written(local_store)) == 6
    append_when_due(versions, second, later, 100, day)
    assert len(written(local_store)) == 9
    fifth = version_of(published(local_store, 2))
    append_when_due(versions, fifth, fifth, 100, day)
    assert len(written(local_store)) == 15


def test_hidden_columns_show_no_values(local_store: ObjectStore) -> None:
    """The history shows no values of a hidden column, even of versions in which it was not hidden.

    Appending the version that hides the column stores no value of it.
    """
    table = published(local_store, 1)
    append_versions(VersionStore(local_store, "orders"))
    assert "secret-" in str(table.history().to_arrow().to_pydict())
    hiding_version = published(local_store, 1, {"secret": {"values": "hidden"}})
    rows = hiding_version.history("secret").to_arrow()
    assert rows["null_count"].to_pylist() == [0, 0]
    assert "secret-" not in str(rows.to_pydict())
    append_versions(VersionStore(local_store, "orders"))
    last = written(local_store).to_pylist()
    assert not any("secret-" in str(row) for row in last if row["version"] == 2)


def files_with_text(folder: Path, text: str) -> list[str]:
    """Return the names of the files below a folder that contain a text.

    Parquet files are searched by their values.
    """
    import pyarrow.parquet as pq

    result = []
    for path in filter(Path.is_file, folder.rglob("*")):
        data = str(pq.read_table(path).to_pydict()) if path.suffix == ".parquet" else path.read_text("utf-8", "replace")
        if text in data:
            result.append(path.name)
    return result


def test_a_purge_removes_values(local_store: ObjectStore) -> None:
    """After a purge, no file of the history contains values of columns, such as a minimum.

    This includes files of earlier commits and the log of the Delta table. Counts stay.
    """
    versions = VersionStore(local_store, "orders")
    for _ in range(3):
        published(local_store, 1)
        append_versions(versions)
    folder = Path(local_store.uri(f"orders/{HISTORY}"))
    assert files_with_text(folder, "secret-")
    published(local_store, 1)
    remove_values(versions, 5)
    assert files_with_text(folder, "secret-") == []
    table = Metastore(local_store.uri()).table("orders")
    assert keys(table.history().to_arrow()) == expected(4)
    assert [row.value_count for row in table.history()][:3] == [21, 21 - some_rows(1)["name"].null_count, 21]
    assert {row.minimum for row in table.history()} == {None}
    remove_values(versions, 5)
    published(local_store, 1)
    append_versions(versions)
    assert files_with_text(folder, "secret-"), "rows published since the purge"
    assert sorted(keys(written(local_store))) == expected(5)


def test_concurrent_purges_restore_no_values(local_store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """During one purge of the history, another one finishes.

    No values are restored, and each row is there once.
    """
    published(local_store, 3)
    versions = VersionStore(local_store, "orders")
    append_versions(versions)
    others = [lambda: remove_values(versions, 4)]

    def after_others(*arguments: Any) -> pa.Table:
        if others:
            others.pop()()
        return read_rows(*arguments)

    monkeypatch.setattr(updates, "read_rows", after_others)
    remove_values(versions, 2)
    rows = written(local_store)
    assert sorted(keys(rows)) == expected(3)
    assert set(rows["minimum"].to_pylist()) == {None}


def test_small_files_are_compacted(local_store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta_table, "_COMPACTION_INTERVAL", 2)
    versions = VersionStore(local_store, "orders")
    for _ in range(5):
        published(local_store, 1)
        append_versions(versions)
    table = DeltaTable(local_store.uri(f"orders/{HISTORY}"))
    assert len(table.file_uris()) <= 2
    assert sorted(keys(written(local_store))) == expected(5)
    assert table.metadata().configuration["delta.deletedFileRetentionDuration"] == "interval 1 days"


def test_corrupt_versions_are_skipped(local_store: ObjectStore) -> None:
    published(local_store, 3)
    versions = VersionStore(local_store, "orders")
    versions.objects.write(versions.read(2).files.statistics, b"no Parquet")
    append_versions(versions)
    assert sorted(keys(written(local_store))) == [key for key in expected(3) if key[0] != 2]


def test_invalid_arguments_are_refused(local_store: ObjectStore) -> None:
    table = published(local_store, 1)
    with pytest.raises(ValueError, match=r"'nul_count'.*'null_count'"):
        table.history("name", "nul_count")
    with pytest.raises(ValueError, match="'null_count'"):
        table.history(None, "null_count")
    with pytest.raises(ColumnNotFoundError, match="nam"):
        table.history("nam")
    log = Path(local_store.uri(f"orders/{HISTORY}")) / "_delta_log"
    log.mkdir(parents=True)
    (log / "00000000000000000000.json").write_text(json.dumps({"nonsense": 1})[:-3])
    with pytest.raises(StoreError, match="history"):
        table.history()


def test_an_error_without_a_message_is_an_error_of_the_store(
    local_store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = published(local_store, 1)
    append_versions(VersionStore(local_store, "orders"))

    def fail(*arguments: object, **options: object) -> None:
        raise OSError  # without a message

    monkeypatch.setattr(DeltaTable, "__init__", fail)
    with pytest.raises(StoreError, match="OSError"):
        table.history()


def test_a_root_may_have_unusual_characters(tmp_path: Path) -> None:
    for name in ("with space", "ünï a+b#c?d'e"):
        store = ObjectStore(str(tmp_path / name))
        published(store, 1)
        append_versions(VersionStore(store, "orders"))
        assert len(read_history(VersionStore(store, "orders"), 1)) == 3, name
        assert len(written(store)) == 3, name
        assert [path.name for path in tmp_path.iterdir()] == [name]
        shutil.rmtree(tmp_path / name)


@pytest.mark.parametrize("name", ["a%20b", "a%2fb", "100%25", "[a", "a]", "a\\b", "a|b", "a^b", "a\nb"])
def test_a_root_whose_path_deltalake_does_not_support_has_no_history(tmp_path: Path, name: str) -> None:
    """Appending to the history raises an error if deltalake does not support the path of the root.

    Refreshes may remove versions that are not appended. The history of existing versions can be read. Nothing is
    written outside of the root.
    """
    store = ObjectStore(str(tmp_path / name))
    versions, new = VersionStore(store, "orders"), published(store, 1).version
    with pytest.raises(StoreError, match="deltalake"):
        append_versions(versions)
    assert append_when_due(versions, None, replace(new, number=7), 2, timedelta(0)) == 5
    assert set(read_history(versions, 1)["version"].to_pylist()) == {1}
    remove_values(versions, 1)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert not (tmp_path / name / "orders" / "history").exists()


def test_a_version_with_missing_files_is_an_error(local_store: ObjectStore) -> None:
    table = published(local_store, 1)
    table.objects.delete([table.version.files.statistics])
    with pytest.raises(ObjectNotFoundError):
        table.history()


def test_points_of_a_table_are_in_the_order_of_versions() -> None:
    """The points of a statistic, its values in the versions of a table, are in the order of versions.

    If there are many rows, Arrow returns grouped rows in another order.
    """
    start = datetime(2024, 1, 1, tzinfo=UTC)
    records = [
        {"version": number, "snapshot": f"{number * 7919:x}", "published_at": start + timedelta(seconds=number**2)}
        for number in range(1, 2001)
        for _ in range(3)
    ]
    rows = pa.Table.from_pylist(records, SCHEMA)
    assert [point.version for point in version_points(rows, "row_count")] == list(range(1, 2001))
