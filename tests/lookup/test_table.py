"""Lookups return what plain Python counts, and explain missing statistics.

A version has the statistics of one snapshot of the table. A profile has the statistics of a set of rows.
"""

from __future__ import annotations

import random
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets.errors import (
    ColumnNotFoundError,
    CorruptionError,
    NotStoredError,
    ObjectNotFoundError,
    PartitionNotFoundError,
    VersionNotFoundError,
)
from metastore_assets.index import fragment_writer
from metastore_assets.lookup import Table, ValueFrequency
from metastore_assets.metastore import Metastore, open_table
from metastore_assets.produce import rank_index
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.sections import SectionReader, SectionWriter
from metastore_assets.store.versions import VersionStore
from tests.lookup.publishing import publish
from tests.store.sample_versions import version

DRAW = random.Random(7)
STATUS = [DRAW.choice(["open", "closed", "", "é", None]) for _ in range(500)]
AMOUNT = [DRAW.choice([None, *range(-20, 20)]) for _ in range(500)]
RATIO = [DRAW.choice([None, float("nan"), float("inf"), DRAW.gauss(0, 10)]) for _ in range(500)]
ORDERS = pa.table(
    {
        "status": pa.array(STATUS, pa.string()),
        "amount": pa.array(AMOUNT, pa.int32()),
        "ratio": pa.array(RATIO, pa.float64()),
        "address": pa.array([{"city": DRAW.choice("abc"), "zip": i % 7} for i in range(500)]),
        "tags": pa.array([["x"] * (i % 3) for i in range(500)]),
        "empty": pa.array([None] * 500, pa.int64()),
        "infinite": pa.array([float("inf"), float("-inf"), float("nan"), None] * 125, pa.float64()),
        "secret": pa.array([f"{i}" for i in range(500)], pa.string()),
        "flat": pa.array(range(500), pa.int64()),
    }
)
COLUMNS = {"secret": {"frequencies": "off"}, "flat": {"histogram": "off"}}
PARTS = {"half=0": ORDERS.slice(0, 250), "half=1": ORDERS.slice(250)}


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """The newest of two versions of `orders`."""
    store = ObjectStore(str(tmp_path_factory.mktemp("root")))
    publish(store, ORDERS.slice(0, 1), columns=COLUMNS)
    return publish(store, ORDERS, columns=COLUMNS, partitions=PARTS)


def counted(values: list[Any], n: int) -> list[tuple[Any, int]]:
    """Return the n most frequent values with their frequencies.

    Ties are ordered by value.
    """
    counts = Counter(value for value in values if value is not None)
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:n]


def python(values: Iterable[ValueFrequency]) -> list[tuple[Any, int]]:
    return [(value.as_py(), frequency) for value, frequency in values]


def test_a_table_names_its_version(orders: Table) -> None:
    assert (orders.version.number, orders.version.snapshot) == (2, "snapshot 2")
    assert orders.count().value == 500
    assert [entry.key for entry in orders.partitions()] == ["half=0", "half=1"]
    assert orders.count(partition="half=1").value == 250


@pytest.mark.parametrize("n", [0, 1, 3, 10, 1000, 10**20])
@pytest.mark.parametrize(("column", "values"), [("status", STATUS), ("amount", AMOUNT)])
def test_top_values(orders: Table, column: str, values: list[Any], n: int) -> None:
    result = orders.top(column, n)
    assert python(result) == counted(values, n)
    assert result.guarantee == "exact"
    assert python(orders.top(column, n, partition="half=1")) == counted(values[250:], n)


def test_values_are_scalars_of_the_class(orders: Table) -> None:
    assert {value.type for value, _ in orders.top("amount")} == {pa.int64()}
    assert {value.type for value, _ in orders.top("address.city")} == {pa.large_string()}
    assert {part.minimum.type for part in orders.histogram("amount")} == {pa.int64()}


def test_statistics_of_all_columns_are_in_table_order(orders: Table) -> None:
    rows = orders.statistics()
    names = [row.column for row in rows]
    assert names[:4] == ["status", "amount", "ratio", "address"]
    assert [row.position for row in rows] == list(range(len(rows)))
    by_name = {row.column: row for row in rows}
    assert by_name["amount"].null_count == AMOUNT.count(None)
    assert by_name["amount"].sum == sum(value for value in AMOUNT if value is not None)
    assert by_name["status"].distinct_count == 4
    assert by_name["tags.element"].value_count == sum(i % 3 for i in range(500))


def test_statistics_of_some_columns_are_in_the_requested_order(orders: Table) -> None:
    rows = {row.column: row for row in orders.statistics()}
    column_names = ["flat", "status", "address.zip", "status"]
    assert orders.statistics(column_names) == [rows[name] for name in column_names]
    assert orders.statistics(iter(["flat"])) == [rows["flat"]]
    assert orders.statistics([]) == []


def test_statistics_have_no_states(orders: Table) -> None:
    assert {(row.moments, row.quantile_sketch, row.distinct_sketch) for row in orders.statistics()} == {(None,) * 3}


def test_statistics_of_a_partition(orders: Table) -> None:
    (row,) = orders.statistics(["amount"], partition="half=1")
    assert row.null_count == AMOUNT[250:].count(None)


@pytest.mark.parametrize("groups", [1, 2, 3, 100])
def test_statistics_are_read_from_any_number_of_row_groups(tmp_path: Path, groups: int) -> None:
    """A version has the same statistics whether its statistics file has one row group or several."""
    store = ObjectStore(str(tmp_path))
    expected = publish(store, ORDERS).statistics()
    objects = store.child("orders")
    path = open_table(str(tmp_path), "orders").version.files.statistics
    table = objects.read_parquet(path)
    with objects.parquet_writer(path, table.schema) as writer:
        writer.write_table(table, row_group_rows=-(-table.num_rows // groups))
    lookup = open_table(str(tmp_path), "orders")
    for row in reversed(expected):
        assert str(list(lookup.statistics([row.column]))) == str([row]), "compared as text, so that NaN equals NaN"
    everything = [row.column for row in expected]
    for names in (everything[::3], everything[::-1], everything):
        assert [row.column for row in lookup.statistics(names)] == names


@pytest.mark.parametrize("bins", [None, 1, 2, 3, 7, 10_000])
@pytest.mark.parametrize(("column", "values"), [("amount", AMOUNT), ("ratio", RATIO)])
def test_histograms_count_every_finite_value_in_its_bin(
    orders: Table, column: str, values: list[Any], bins: int | None
) -> None:
    check_histogram(orders, column, values, bins)
    parts = orders.histogram(column, bins=bins, partition="half=0")
    assert sum(part.frequency for part in parts) == len(finite(values[:250]))


def finite(values: list[Any]) -> list[Any]:
    return [
        value for value in values if value is not None and value not in (float("inf"), float("-inf")) and value == value
    ]


def check_histogram(table: Table, column: str, values: list[Any], bins: int | None) -> None:
    """Assert that the bins have no gaps, and that each bin counts the values inside it."""
    parts = table.histogram(column, bins=bins)
    assert bins is None or len(parts) <= bins
    for part in parts:
        inside = [v for v in finite(values) if part.minimum.as_py() <= v < part.maximum.as_py()]
        assert part.frequency == len(inside)
    assert sum(part.frequency for part in parts) == len(finite(values))
    assert all(a.maximum.equals(b.minimum) for a, b in pairwise(parts)), "bins have gaps"


@given(
    st.lists(st.one_of(st.none(), st.integers(-1000, 1000), st.integers(-(2**62), 2**62)), max_size=30),
    st.integers(1, 50),
)
def test_every_value_is_in_a_bin_for_any_number_of_bins(
    tmp_path_factory: pytest.TempPathFactory, values: list[int | None], bins: int
) -> None:
    store = ObjectStore(str(tmp_path_factory.mktemp("root")))
    table = publish(store, pa.table({"n": pa.array(values, pa.int64())}))
    check_histogram(table, "n", values, bins)
    stored_bins, requested_bins = table.histogram("n"), table.histogram("n", bins=bins)
    assert len(requested_bins) == -(-len(stored_bins) // max(1, -(-len(stored_bins) // bins)))
    assert [part.minimum.as_py() for part in requested_bins] == [part.minimum.as_py() for part in stored_bins][
        :: max(1, -(-len(stored_bins) // bins))
    ]


def test_columns_without_a_finite_value_have_no_bins(orders: Table) -> None:
    assert orders.histogram("empty") == []
    assert orders.histogram("infinite", bins=5) == []
    assert orders.top("empty") == []


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (
            lambda t: t.top("secret"),
            r"'secret'.*'orders'.*`frequencies: off`",
        ),
        (lambda t: t.top("address"), r"'address'.*\bstruct\b"),
        (lambda t: t.top("tags"), r"'tags'.*\blist\b"),
        (
            lambda t: t.histogram("status"),
            r"'status'.*'orders'.*\bstring\b",
        ),
        (
            lambda t: t.histogram("address"),
            r"'address'.*'orders'.*\bstruct\b",
        ),
        (lambda t: t.histogram("flat"), r"'flat'.*`histogram: off`"),
    ],
)
def test_missing_statistics_are_reported_with_the_reason(
    orders: Table, ask: Callable[[Table], object], message: str
) -> None:
    with pytest.raises(NotStoredError, match=message):
        ask(orders)


def test_a_column_over_the_limit_has_no_value_counts(local_store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("metastore_assets.statistics.profile.FREQUENCY_LIMIT", 100)
    table = publish(local_store, ORDERS)
    (row,) = table.statistics(["flat"])
    assert (row.distinct_count_guarantee, row.duplicate_count) == ("estimate", None)
    answer = f": about {row.distinct_count} distinct values, more than `frequencies: auto` stores; "
    with pytest.raises(NotStoredError, match=answer):
        table.top("flat")


@pytest.mark.parametrize("ask", [lambda t, c: t.top(c), lambda t, c: t.histogram(c), lambda t, c: t.statistics([c])])
@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("amonut", r"'orders'.*'amonut'.*'amount'"),
        ("AMOUNT", "'amount'"),
        ("zip", r"'address\.zip'"),
        (
            "xyz",
            "'xyz'.*: status, amount, ratio, address, address.city, address.zip, tags, tags.el",
        ),
    ],
)
def test_an_unknown_column_error_lists_the_columns(
    orders: Table, ask: Callable[[Table, str], object], column: str, message: str
) -> None:
    with pytest.raises(ColumnNotFoundError, match=message):
        ask(orders, column)


def test_an_unknown_column_error_is_short(local_store: ObjectStore) -> None:
    table = publish(local_store, pa.table({f"c{i}": pa.array([1]) for i in range(300)}))
    with pytest.raises(ColumnNotFoundError, match=r"\bc0, .*, c19\b.*\b280\b"):
        table.top("nothing like it")


@pytest.mark.parametrize(
    "ask",
    [
        lambda t: t.count(partition="half=2").value,
        lambda t: t.top("amount", partition="half=2"),
        lambda t: t.histogram("amount", partition="half=2"),
        lambda t: t.statistics(partition="half=2"),
    ],
)
def test_an_unknown_partition_error_says_how_to_list_them(orders: Table, ask: Callable[[Table], object]) -> None:
    message = r"'orders'.*'half=2'.*'half=1'.*`metastore show orders --partitions`"
    with pytest.raises(PartitionNotFoundError, match=message):
        ask(orders)


def test_invalid_numbers_are_refused(orders: Table) -> None:
    with pytest.raises(ValueError, match=r"\bn\b.*-1$"):
        orders.top("amount", -1)
    with pytest.raises(ValueError, match=r"\bbins\b.*\b1\b"):
        orders.histogram("amount", bins=0)


def test_columns_with_a_common_prefix_are_distinct(local_store: ObjectStore) -> None:
    """Columns `a.b`, `a.b.minimum` and `minimum`, and a struct `a` with a field `b`, are not confused."""
    rows = pa.table(
        {
            "a": pa.array([{"b": 1}, {"b": 1}]),
            "a.b": pa.array([5, 6]),
            "a.b.minimum": pa.array([7, 7]),
            "minimum": pa.array([8, 8]),
        }
    )
    table = publish(local_store, rows)
    names = [row.column for row in table.statistics()]
    assert len(set(names)) == 5
    tops = sorted(table.top(name)[0].value.as_py() for name in names if name != "a")
    assert tops == [1, 5, 7, 8]
    lows = sorted(table.histogram(name)[0].minimum.as_py() for name in names if name != "a")
    assert lows == [1, 5, 7, 8]


def test_frequencies_are_read_from_several_files(local_store: ObjectStore) -> None:
    """Top values are the same if the frequencies of the table's profile are divided into five files.

    One column begins in the second file and ends in the fourth. The third is empty.
    """
    table = publish(local_store, ORDERS)
    objects = local_store.child("orders")
    (path,) = table.version.files.frequencies
    enumerated_ids = [row.field_id for row in table.statistics() if row.frequencies == "enumerated"]
    with SectionReader(objects, path) as reader:
        sections = {name: reader.read_section(name) for name in reader.sections}
    schema = next(iter(sections.values())).schema
    assert list(sections) == enumerated_ids
    plan: list[list[tuple[str, pa.Table]]] = [[] for _ in range(5)]
    for index, (name, rows) in enumerate(sections.items()):
        if index == 3:
            plan[1].append((name, rows.slice(0, 2)))
            plan[3].append((name, rows.slice(2)))
        else:
            plan[0 if index == 0 else 1 if index < 3 else 3 if index < 5 else 4].append((name, rows))
    for index, part in enumerate(plan):
        with SectionWriter(objects, f"part-{index}", schema) as writer:
            for name, rows in part:
                writer.write_section(name, rows)
    files = replace(table.version.files, frequencies=tuple(f"part-{index}" for index in range(5)))
    split = table.at(replace(table.version, files=files))
    for row in table.statistics():
        if row.frequencies == "enumerated":
            for n in (1, 2, 3, 1000):
                assert str(split.top(row.column, n)) == str(table.top(row.column, n)), row.column


def test_missing_value_counts_are_a_corruption_error(local_store: ObjectStore) -> None:
    table = publish(local_store, ORDERS)
    changed_version = replace(table.version, value_counts=None)
    with pytest.raises(CorruptionError, match=r"'amount'.*'orders'.*--full"):
        table.at(changed_version).top("amount")


def test_a_table_without_rows_or_columns_has_lookups(local_store: ObjectStore) -> None:
    empty = publish(local_store, ORDERS.slice(0, 0), name="empty")
    assert empty.count().value == 0
    assert empty.top("amount") == []
    assert empty.histogram("amount") == []
    assert {row.value_count for row in empty.statistics()} == {0}
    nothing = publish(local_store, pa.table({}), name="nothing")
    assert nothing.statistics() == []
    with pytest.raises(ColumnNotFoundError, match=r"'nothing'.*'a'"):
        nothing.top("a")


def test_a_lookup_stays_with_its_version(local_store: ObjectStore) -> None:
    first = publish(local_store, ORDERS.slice(0, 10))
    second = publish(local_store, ORDERS)
    assert (first.count().value, second.count().value) == (10, 500)
    assert first.statistics(["flat"])[0].value_count == 10
    assert open_table(local_store.uri(), "orders", version=1).count().value == 10


def test_an_expired_version_is_reported(local_store: ObjectStore) -> None:
    first = publish(local_store, ORDERS.slice(0, 10))
    publish(local_store, ORDERS)
    VersionStore(local_store, "orders").expire(1, timedelta(days=-1))
    for ask in (first.statistics, lambda: first.histogram("flat"), lambda: first.top("flat")):
        with pytest.raises(ObjectNotFoundError, match=r"'orders', version 1\b"):
            ask()


def test_paths_of_a_pruning_of_an_expired_version_are_reported(
    local_store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result of a pruning reads its paths from a large index only when they are requested.

    If the version has expired by then, the request is an error that names the version.
    """
    monkeypatch.setattr(fragment_writer, "_SMALL_ROWS", 10)
    parts = {f"p={number:02}": pa.table({"n": [number, number + 1]}) for number in range(40)}
    publish(local_store, pa.concat_tables(parts.values()), partitions=parts)
    publish(local_store, pa.table({"n": [1]}))
    pruning = open_table(local_store.uri(), "orders", version=1).prune("n > 3")
    VersionStore(local_store, "orders").expire(1, timedelta(days=-1))
    for ask in (lambda: pruning.paths, lambda: pruning.fragments, pruning.eliminated_fragments):
        with pytest.raises(ObjectNotFoundError, match=r"'orders', version 1\b"):
            ask()


def test_a_root_lists_its_tables(store: ObjectStore, request: pytest.FixtureRequest) -> None:
    options = request.getfixturevalue("s3_options") if store.is_remote else {}
    metastore = Metastore(store.uri(), storage_options=options)
    assert metastore.tables() == []
    assert metastore.tables().to_arrow().num_rows == 0
    with pytest.raises(VersionNotFoundError, match="'orders'"):
        metastore.table("orders")
    for name in ("orders", "lineitem"):
        VersionStore(store, name).publish(replace(version(1), table=name))
    store.write("no table/file", b"")
    assert metastore.table_names() == ("lineitem", "orders")
    assert metastore.version_numbers("orders") == (1,)
    assert (metastore.versions("none"), metastore.version_numbers("none")) == ([], ())
    tables = metastore.tables()
    assert [(row.table, row.version) for row in tables] == [("lineitem", 1), ("orders", 1)]
    assert [tables[1]] == metastore.versions("orders")
    assert tables.to_arrow().column("published_at").to_pylist() == [row.published_at for row in tables]
    assert tables.to_polars()["row_count"].to_list() == [metastore.table("orders").count().value] * 2
    assert repr(tables).startswith("2 rows\n")
    assert metastore.table("orders").version.table == "orders"
    with pytest.raises(VersionNotFoundError, match=r"'order'.*'orders'"):
        metastore.table("order")
    with pytest.raises(VersionNotFoundError, match=r"version 7\b.*\b1\b"):
        metastore.table("orders", version=7)
    for name in ("", "..", "a/b", "nul\0"):
        with pytest.raises(VersionNotFoundError, match="lineitem, orders"):
            metastore.table(name)


def test_threads_share_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that share a cache of ranks get the rank of each value.

    The cache is so small that each thread evicts the row groups that others read.
    """
    monkeypatch.setattr(rank_index, "_BLOCK_BYTES", 1)
    lookup = publish(ObjectStore(str(tmp_path)), pa.table({"n": range(30_000)}), columns={"n": {"frequencies": "all"}})
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)

    def ranks(thread: int) -> list[int]:
        return [lookup.rank("n", (thread * 4_099 + number * 7_919) % 30_000).value for number in range(40)]

    try:
        with ThreadPoolExecutor(8) as pool:
            results = list(pool.map(ranks, range(8)))
    finally:
        sys.setswitchinterval(interval)
    assert results == [[(thread * 4_099 + number * 7_919) % 30_000 for number in range(40)] for thread in range(8)]


def test_threads_share_a_lookup(orders: Table) -> None:
    lookup = orders.at(orders.version)
    expected = str(orders.top("status")), orders.statistics(["flat"]), orders.histogram("amount", bins=5)
    wrong: list[object] = []

    def ask() -> None:
        for _ in range(20):
            result = str(lookup.top("status")), lookup.statistics(["flat"]), lookup.histogram("amount", bins=5)
            if result != expected:
                wrong.append(result)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
