"""Versions in an S3 bucket equal those on disk, and conditional puts decide races.

Publishers and compactions race. Every request goes over HTTP to a server in another process. A manifest names the files
of a version. The oracle computes the expected results in plain Python.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from metastore_assets.errors import VersionConflictError, VersionNotFoundError
from metastore_assets.produce import Dataflow, Settings
from metastore_assets.store.documents import Documents
from metastore_assets.store.objects import ObjectInfo, ObjectStore
from tests.produce.commit_plans import plan
from tests.produce.graph_model import Graph, RootNode, StageNode, SumNode, columns
from tests.produce.harness import SMALL, D, Edit, Pair, U, changes
from tests.produce.lost_responses import dropped_responses
from tests.produce.test_publishers import check_all, race

pytestmark = pytest.mark.s3

ROOTS = ("orders", "prices")
NAMES = (*ROOTS, "paid", "by_shop", "totals")
LAZY = Settings(single_run_rows=0, bulk_share=100.0, base_share=100.0)
"""Settings with which every version adds runs, so that there is something to compact."""


def shop_graph() -> Graph:
    """Return a graph that joins orders with prices, keys the joined rows by shop, and sums amounts."""
    item_columns, paid_columns = columns(item="int64"), columns(shop="string", amount="int64")

    def join(item: int, orders: Iterator[Any], prices: Iterator[int]) -> Iterator[Any]:
        price = sum(prices)
        return ((item, (shop, pieces * price)) for shop, pieces in orders if price)

    def re_key(item: int, rows: Iterator[Any]) -> Iterator[Any]:
        return ((shop, (item, amount)) for shop, amount in rows)

    return Graph(
        (
            RootNode("orders", item_columns, columns(shop="string", pieces="int64")),
            RootNode("prices", item_columns, columns(price="int64")),
            StageNode("paid", (("orders",), ("prices",)), item_columns, paid_columns, join),
            StageNode("by_shop", (("paid",),), columns(shop="string"), columns(item="int64", amount="int64"), re_key),
            SumNode("totals", ("by_shop",), ("shop",), ("amount",), "rows"),
        )
    )


def drawn(random: Random) -> dict[str, list[Edit]]:
    """Draw an update of both roots in which items are added, changed and removed."""

    def edits(rows: Any) -> list[Edit]:
        items = sorted(random.sample(range(12), random.randint(1, 6)))
        return [D(item) if random.random() < 0.3 else U(item, *rows()) for item in items]

    return {
        "orders": edits(lambda: [(random.choice("abä"), random.randint(0, 9)) for _ in range(random.randint(1, 3))]),
        "prices": edits(lambda: [random.randint(0, 4)]),
    }


def everything(view: Any) -> dict[str, list[pa.Table]]:
    """Return the tables of a version by node: content, rows by key (groups), update, and mappings.

    Only stages have mappings.
    """
    tables_by_name = {name: [view.content(name), view.groups(name), view.update(name)] for name in NAMES}
    for name in ("paid", "by_shop"):
        tables_by_name[name].append(view.mappings(name))
    return tables_by_name


@pytest.fixture
def pair(s3_store: ObjectStore) -> Pair:
    """The shop graph in a bucket, with its oracle."""
    return Pair(s3_store, shop_graph(), settings=LAZY)


@pytest.mark.parametrize(
    "settings", [pytest.param(Settings(), marks=pytest.mark.long), SMALL], ids=["default", "small"]
)
def test_every_version_equals_the_one_on_local_disk(
    store: ObjectStore, s3_store: ObjectStore, settings: Settings
) -> None:
    """Each version equals the one on local disk, when it is new and when it is old.

    Content, groups, updates and key mappings are compared.
    """
    pairs = [Pair(edits_of_roots, shop_graph(), settings=settings) for edits_of_roots in (store, s3_store)]
    random = Random(1)
    for number in range(1, 7):
        edits = drawn(random)
        for pair in pairs:
            pair.advance(edits)
            if number == 3:
                pair.reopen()
            if number == 4:
                pair.compact(full=True)
        local, remote = (everything(pair.plain_version().view) for pair in pairs)
        assert local == remote
    for number in range(1, 7):
        local, remote = (everything(pair.plain_version(number).view) for pair in pairs)
        assert local == remote
    assert remote["totals"][0].num_rows, "there is something to compare"


def test_a_replayed_version_changes_nothing(pair: Pair) -> None:
    """An update that was already applied, by any process, writes neither a version nor a file."""
    edits = drawn(Random(2))
    pair.advance(edits, versions=dict.fromkeys(ROOTS, 7))
    before = pair.store.list()
    for _ in range(2):
        tables = {root: pair.table(root, changes(edits[root])) for root in ROOTS}
        assert pair.flow.advance(tables, versions=dict.fromkeys(ROOTS, 7)) == 1
        assert pair.store.list() == before
        pair.reopen()


@pytest.mark.parametrize("seed", range(2))
def test_only_one_of_two_publishers_succeeds(s3_store: ObjectStore, s3_options: dict[str, str], seed: int) -> None:
    """The bucket accepts only one of two conditional puts of the same version.

    The other publisher reads this version, which already has the commit.
    """
    commits = plan(seed, 1)
    assert race(commits, s3_store.uri(), s3_options, is_counted=True) == ([1, 1], 2)
    check_all(commits, s3_store)


def test_the_publisher_that_loses_plans_again(s3_store: ObjectStore, s3_options: dict[str, str]) -> None:
    """Two publishers that pass no versions of sources both publish a commit, in successive versions.

    The late publisher bases its version on that of the first.
    """
    commits = plan(0, 1)
    assert race(commits, s3_store.uri(), s3_options, is_counted=False) == ([1, 2], 3)
    replayed_pair = commits.pair(s3_store, 1)
    replayed_pair.number = 2
    replayed_pair.verify_state()


class Overtaken(ObjectStore):
    """A store in which another publisher publishes a version, once, just before the publisher under test."""

    def __init__(self, store: ObjectStore, options: dict[str, str], pair: Pair, edits: dict[str, list[Edit]]) -> None:
        super().__init__(store.uri(), options)
        self.pair, self.edits, self.puts = pair, edits, 0

    def write(self, path: str, data: bytes, *, create: bool = False) -> None:
        self.puts += create
        if create and self.puts == 1:
            self.pair.advance(self.edits)
        super().write(path, data, create=create)


def test_a_late_publisher_builds_on_the_version_of_the_first(pair: Pair, s3_options: dict[str, str]) -> None:
    """The first publisher's rows are kept, and the files of the late attempt are removed."""
    store = Overtaken(pair.store, s3_options, pair, {"orders": [U(1, ("a", 2))], "prices": [U(1, 3)]})
    late = {"orders": [U(2, ("a", 1))], "prices": [U(2, 10)]}
    tables = {root: pair.table(root, changes(edits)) for root, edits in late.items()}
    assert Dataflow(store, pair.graph.declaration(), settings=LAZY).advance(tables) == 2
    assert store.puts == 2
    edits_of_roots = {root: dict(edits) for root, edits in late.items()}
    step = pair.expected(edits_of_roots)
    pair.accept(step, edits_of_roots)
    pair.verify(step)
    assert pair.plain_version().groups("totals") == {"a": [(16, 2)]}
    files = pair.store.list("data")
    pair.flow.expire(keep=2, grace=timedelta(0))
    assert pair.store.list("data") == files


def test_a_compaction_that_loses_a_race_has_no_effect(pair: Pair, s3_options: dict[str, str]) -> None:
    """One of two compactions of the same version is published.

    The other leaves no file.
    """
    for seed in range(3):
        pair.advance(drawn(Random(seed)))

    class Twice(ObjectStore):
        def write(self, path: str, data: bytes, *, create: bool = False) -> None:
            assert pair.flow.compact(full=True)
            files.extend(pair.store.list("data"))
            super().write(path, data, create=create)

    files: list[ObjectInfo] = []
    before = {info.path for info in pair.store.list("data")}
    assert not Dataflow(Twice(pair.store.uri(), s3_options), pair.graph.declaration(), settings=LAZY).compact(full=True)
    assert len(files) > len(before), "it had done its work before it lost the race"
    referenced_paths = {path for name in NAMES for *_, path in pair.plain_version().view.runs(name)}
    assert {info.path for info in pair.store.list("data")} == before | referenced_paths
    pair.verify_state()


def test_a_full_compaction_leaves_one_run_of_each_dataset(pair: Pair) -> None:
    for seed in range(4):
        pair.advance(drawn(Random(seed)))
    assert len(pair.plain_version().view.runs("by_shop")) > 2
    assert pair.compact(full=True)
    assert [(run.dataset, run.shard) for run in pair.plain_version().view.runs("by_shop")] == [
        ("content", 0),
        ("mappings", 0),
    ]
    assert not pair.compact(full=True), "nothing is left to do"
    pair.advance(drawn(Random(9)))


def test_expire_retains_files_of_retained_versions(pair: Pair) -> None:
    """An expiry deletes unreferenced files, and the files that only expired versions reference.

    Retained versions stay as they were, and a further version can be published.
    """
    for seed in range(5):
        pair.advance(drawn(Random(seed)))
    pair.compact(full=True)
    retained_contents = [everything(pair.plain_version(number).view) for number in (4, 5)]
    pair.store.write("data/stray.parquet", b"of a process that was killed")
    before = len(pair.store.list("data"))
    pair.flow.expire(keep=2, grace=timedelta(hours=1))
    assert len(pair.store.list("data")) == before, "nothing is old enough"
    expire_result = pair.flow.expire(keep=2, grace=timedelta(0))
    assert expire_result.versions == 3
    assert len(pair.store.list("data")) == before - expire_result.files
    assert "data/stray.parquet" not in {info.path for info in pair.store.list()}
    assert retained_contents == [everything(pair.plain_version(number).view) for number in (4, 5)]
    with pytest.raises(VersionNotFoundError, match=r"version 3\b.*\b4\b.*\b5\b"):
        pair.flow.version(3)
    pair.advance(drawn(Random(9)))


def test_a_version_is_readable_until_it_is_expired(pair: Pair, s3_options: dict[str, str]) -> None:
    """Later versions and compactions do not affect an open version.

    After its expiry, reads raise an error or answer from memory, and the version cannot be opened again.
    """
    pair.advance({"orders": [U(1, ("a", 2)), U(2, ("b", 1))], "prices": [U(1, 3), U(2, 10)]})
    view = pair.plain_version().view
    previous = everything(view)
    assert all(table.num_rows for tables in previous.values() for table in tables)
    for seed in range(4, 8):
        pair.advance(drawn(Random(seed)))
        pair.compact(full=True)
        assert everything(view) == previous
    pair.expire(keep=1)
    for name in NAMES:
        for ask, expected_rows in ((view.content, previous[name][0]), (view.update, previous[name][2])):
            with suppress(VersionNotFoundError):
                assert ask(name) == expected_rows
    another = Dataflow(ObjectStore(pair.store.uri(), s3_options), pair.graph.declaration(), settings=LAZY)
    with pytest.raises(VersionNotFoundError, match=rf"{pair.store.uri()}.*version 1\b"):
        another.version(view.number)
    with pytest.raises(VersionNotFoundError, match=r"version 1\b"):
        pair.flow.version(view.number)


class Repeated(ObjectStore):
    """A store whose client repeats each put, so that the server refuses the second one.

    It behaves as if the response to the first put were lost.
    """

    def write(self, path: str, data: bytes, *, create: bool = False) -> None:
        super().write(path, data, create=create)
        if create:
            super().write(path, data, create=create)


def test_a_repeated_put_of_the_same_object_succeeds(pair: Pair, s3_options: dict[str, str]) -> None:
    pair.flow = Dataflow(Repeated(pair.store.uri(), s3_options), pair.graph.declaration(), settings=LAZY)
    for seed in range(2):
        pair.advance(drawn(Random(seed)))
    pair.compact(full=True)
    assert Documents(pair.store).numbers() == [1, 2, 3], "two versions and a compaction"


def test_another_publishers_object_is_not_a_success(pair: Pair, s3_options: dict[str, str]) -> None:
    """Another publisher's manifest is not taken for one's own, even if only the publisher differs.

    Otherwise, an update might be applied twice.
    """

    class Preceded(ObjectStore):
        def write(self, path: str, data: bytes, *, create: bool = False) -> None:
            if create:
                super().write(path, data.replace(b'"publisher": "', b'"publisher": "f'))
            super().write(path, data, create=create)

    flow = Dataflow(Preceded(pair.store.uri(), s3_options), pair.graph.declaration(), settings=LAZY)
    with pytest.raises(VersionConflictError):
        flow.advance({"orders": pair.table("orders", changes([U(1, ("a", 1))]))})


def test_a_manifest_whose_response_is_lost_counts_once(pair: Pair, s3_options: dict[str, str]) -> None:
    """The server stored the manifest, but the response was lost.

    The version is published, and only once.
    """
    lost_paths: list[str] = []
    with dropped_responses(s3_options["aws_endpoint"], lost_paths) as endpoint:
        store = ObjectStore(pair.store.uri(), {**s3_options, "aws_endpoint": endpoint})
        pair.flow = Dataflow(store, pair.graph.declaration(), settings=LAZY)
        for seed in range(2):
            pair.advance(drawn(Random(seed)))
    assert sum(path.endswith(".json") for path in lost_paths) == 2
    assert Documents(pair.store).numbers() == [1, 2]
    pair.reopen()
    pair.verify_state()
