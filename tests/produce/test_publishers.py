"""Several publishers use one storage: one of them publishes each version, and no update is lost.

A publisher may pass the version of the source of each root (input), which tells whether the root's update is already
applied. If publishers pass these versions, no update is applied twice. A manifest names the files of a version.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from random import Random
from threading import Barrier, Event
from typing import Any

import pytest

from metastore_assets.errors import ObjectExistsError, VersionConflictError
from metastore_assets.produce import Dataflow
from metastore_assets.store.documents import Documents
from metastore_assets.store.objects import ObjectStore
from tests.produce import oracle
from tests.produce.commit_plans import Plan, plan
from tests.produce.graph_model import Graph, RootNode, StageNode, SumNode, columns
from tests.produce.harness import Pair, U
from tests.produce.killable_store import publish_commit, run_until_killed

REPOSITORY = Path(__file__).parents[2]


def _long(start: int, stop: int) -> list[Any]:
    """Return the seeds from `start` up to `stop`, exclusive, as parameters with the mark `long`."""
    return [pytest.param(seed, marks=pytest.mark.long) for seed in range(start, stop)]


def check_all(commit_plan: Plan, store: ObjectStore) -> None:
    """Assert that there is one version for each commit, whose content and updates equal the oracle's.

    The newest version is compared completely.
    """
    documents = Documents(store)
    numbers = [json.loads(documents.read(document))["number"] for document in documents.numbers()]
    assert numbers == sorted(numbers)
    assert set(numbers) == set(range(1, len(commit_plan.commits) + 1))
    pair = commit_plan.pair(store, len(commit_plan.commits))
    pair.verify(commit_plan.steps[-1])
    for number in range(1, len(commit_plan.commits) + 1):
        plain_version = pair.plain_version(number)
        for node in commit_plan.case.graph.nodes:
            assert plain_version.content(node.name) == commit_plan.states[number].content[node.name]
            if commit_plan.case.graph.is_followed(node.name):
                assert plain_version.update(node.name) == commit_plan.steps[number - 1].updates[node.name]


class BarrierStore(ObjectStore):
    """A store in which publishers wait for each other before they first publish.

    So one of the publishers is too late.
    """

    def __init__(self, uri: str, options: Mapping[str, str], barrier: Barrier) -> None:
        super().__init__(uri, options)
        self._barrier = barrier
        self.attempts = 0

    def write(self, path: str, data: bytes, *, create: bool = False) -> None:
        if create:
            self.attempts += 1
            if self.attempts == 1:
                self._barrier.wait(60)
        super().write(path, data, create=create)


def race(commit_plan: Plan, uri: str, options: Mapping[str, str] = {}, *, is_counted: bool) -> tuple[list[int], int]:
    """Let two publishers publish the only commit of a plan at the same time.

    Returns the two version numbers, sorted, and the number of all attempts to write a manifest. With `is_counted`, each
    publisher passes the versions of the sources.
    """
    (commit,) = commit_plan.commits
    barrier = Barrier(2)
    stores = [BarrierStore(uri, options, barrier) for _ in range(2)]

    def publish(store: ObjectStore) -> int:
        flow = Dataflow(store, commit_plan.case.graph.declaration(), settings=commit_plan.case.settings)
        return flow.advance(dict(commit.tables), versions=commit.versions if is_counted else None)

    with ThreadPoolExecutor(2) as pool:
        numbers = sorted(pool.map(publish, stores))
    return numbers, sum(store.attempts for store in stores)


@pytest.mark.parametrize("seed", range(4))
def test_one_of_two_simultaneous_publishers_does_nothing(seed: int, tmp_path: Path) -> None:
    """The late publisher finds the commit in the newest version, and publishes nothing.

    Both publishers pass the versions of the sources, which show that the commit is applied already.
    """
    commit_plan = plan(seed, 1)
    assert race(commit_plan, str(tmp_path), is_counted=True) == ([1, 1], 2)
    check_all(commit_plan, ObjectStore(str(tmp_path)))


@pytest.mark.parametrize("seed", range(4))
def test_two_publishers_that_do_not_count_are_both_applied(seed: int, tmp_path: Path) -> None:
    """Without versions of sources, the late publisher applies the same edits again as the next version."""
    commit_plan = plan(seed, 1)
    assert race(commit_plan, str(tmp_path), is_counted=False) == ([1, 2], 3)
    pair = commit_plan.pair(ObjectStore(str(tmp_path)), 1)
    pair.number = 2
    pair.verify_state()
    replay = oracle.advance(pair.nodes, commit_plan.states[1], commit_plan.states[1], commit_plan.commits[0].edits)
    for name in (node.name for node in commit_plan.case.graph.nodes if commit_plan.case.graph.is_followed(node.name)):
        assert pair.plain_version(1).update(name) == commit_plan.steps[0].updates[name]
        assert pair.plain_version(2).update(name) == replay.updates[name]


class StaleStore(ObjectStore):
    """A store that refuses each new version, as if another publisher had just created it."""

    def write(self, path: str, data: bytes, *, create: bool = False) -> None:
        super().write(path, b"{}" if create else data, create=create)
        if create:
            self.delete([path])
            raise ObjectExistsError(path)

    def read(self, path: str) -> bytes:
        return b"another publisher's"


def test_a_publisher_that_never_wins_gives_up(tmp_path: Path) -> None:
    commit_plan = plan(0, 1)
    flow = Dataflow(StaleStore(str(tmp_path)), commit_plan.case.graph.declaration())
    with pytest.raises(VersionConflictError):
        flow.advance(dict(commit_plan.commits[0].tables))
    assert commit_plan.pair(ObjectStore(str(tmp_path)), 0).plain_version().number == 0


@pytest.mark.parametrize("seed", [*range(20, 22), *_long(22, 24), *_long(1_000, 1_200)])
def test_two_threads_publish_the_same_commits(seed: int, tmp_path: Path) -> None:
    commit_plan = plan(seed, 6)
    barrier = Barrier(2)

    def publish(_: int) -> list[int]:
        numbers = []
        for commit in commit_plan.commits:
            barrier.wait(60)
            numbers.append(commit_plan.publish(ObjectStore(str(tmp_path)), commit))
        return numbers

    with ThreadPoolExecutor(2) as pool:
        for numbers in pool.map(publish, range(2)):
            assert numbers == [commit.number for commit in commit_plan.commits]
    check_all(commit_plan, ObjectStore(str(tmp_path)))


@pytest.mark.parametrize("seed", [*range(60, 62), *_long(1_200, 1_400)])
def test_two_publishers_that_are_killed_repeatedly_lose_nothing(seed: int, tmp_path: Path) -> None:
    commit_plan = plan(seed, 6)

    def publish(number: int) -> None:
        random = Random(seed * 2 + number)
        for commit in commit_plan.commits:
            limit = 15
            while run_until_killed(
                commit_plan, tmp_path, random.randrange(limit), publish_commit(commit), after=random.random() < 0.3
            ):
                limit *= 2  # so that it terminates

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(publish, range(2)))
    check_all(commit_plan, ObjectStore(str(tmp_path)))


def test_two_processes_publish_the_same_commits(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.produce.publisher_program", str(tmp_path), "30", "6", "-1"]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    running = [subprocess.Popen(command, cwd=REPOSITORY, text=True, **pipes) for _ in range(2)]
    try:
        for process in running:
            assert process.stdout
            assert process.stdout.readline() == "ready\n"
        for process in running:
            assert process.stdin
            process.stdin.write("go\n")
            process.stdin.flush()
        for process in running:
            output, errors = process.communicate(timeout=120)
            assert process.returncode == 0, errors
            assert [int(line) for line in output.split()] == sorted(int(line) for line in output.split())
    finally:
        for process in running:
            process.kill()
            process.wait()
    check_all(plan(30, 6), ObjectStore(str(tmp_path)))


def two_roots() -> Graph:
    key, value = columns(k="int64"), columns(x="int64")
    return Graph(
        (
            RootNode("left", key, value),
            RootNode("right", key, value),
            StageNode("both", (("left", "right"),), key, value, lambda k, rows: ((k, row) for row in rows)),
            SumNode("totals", ("both",), ("k",), ("x",), "n"),
        )
    )


def test_publishers_of_different_roots_do_not_wait(store: ObjectStore) -> None:
    """Two publishers publish at the same time, each for another root (input of the dataflow).

    All edits of both publishers are applied once, each in a version of its own.
    """
    graph = two_roots()
    barrier = Barrier(2)

    def publish(root: str) -> None:
        pair = Pair(store, graph)
        for number in range(1, 9):
            barrier.wait(60)
            table = pair.table(root, [("update", number % 3, number)])
            _insist(lambda table=table, number=number: pair.flow.advance({root: table}, versions={root: number}))

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(publish, ("left", "right")))
    pair = Pair(store, graph)
    assert pair.plain_version().number == 16
    assert pair.plain_version().groups("both") == {0: [6, 6], 1: [7, 7], 2: [8, 8]}
    assert pair.plain_version().groups("totals") == {0: [(12, 2)], 1: [(14, 2)], 2: [(16, 2)]}


@pytest.mark.parametrize("seed", [40, *_long(41, 43), *_long(1_400, 1_450)])
def test_a_publisher_is_correct_during_compactions_and_removals(seed: int, tmp_path: Path) -> None:
    commit_plan = plan(seed, 6)
    store = ObjectStore(str(tmp_path))
    end_event = Event()

    def clean_message() -> int:
        rounds = 0
        while not end_event.is_set() or rounds < 2:
            flow = Dataflow(store, commit_plan.case.graph.declaration(), settings=commit_plan.case.settings)
            _insist(lambda flow=flow: flow.compact(full=True))
            flow.expire(keep=3, grace=timedelta(minutes=5))
            rounds += 1
        return rounds

    with ThreadPoolExecutor(1) as pool:
        tidying = pool.submit(clean_message)
        try:
            for commit in commit_plan.commits:
                assert commit_plan.publish(store, commit) == commit.number
                commit_plan.pair(store, commit.number).verify(commit_plan.steps[commit.number - 1])
        finally:
            end_event.set()
        assert tidying.result() >= 2
    commit_plan.pair(store, 6).verify(commit_plan.steps[-1])


def test_replay_of_an_applied_source_version_changes_nothing(store: ObjectStore) -> None:
    pair = Pair(store, two_roots())
    edits = {"left": [U(1, 10)], "right": [U(1, 20)]}
    pair.advance(edits, versions={"left": 5, "right": 9})
    tables = {root: pair.table(root, [("update", 1, 99)]) for root in edits}
    for versions in ({"left": 5, "right": 9}, {"left": 4, "right": 1}):
        assert pair.flow.advance(tables, versions=versions) == 1
    pair.reopen()
    assert pair.flow.advance(tables, versions={"left": 5, "right": 9}) == 1
    assert pair.plain_version().number == 1
    assert pair.flow.advance(tables, versions={"left": 5, "right": 10}) == 2, "the one that is not applied counts"
    assert pair.plain_version().groups("both") == {1: [10, 99]}


def _insist(work: Callable[[], object]) -> None:
    """Do the work, repeating it until no other publisher interferes."""
    while True:
        try:
            work()
        except VersionConflictError:
            continue
        return
