"""After a kill at any write or deletion, the newest version is complete.

The newest version is the new one if the new manifest was written, and otherwise the old one. The same call again gives
the same result as without a kill. A manifest names the files of a version.
"""

from __future__ import annotations

import copy
import shutil
import subprocess
import sys
from datetime import timedelta
from itertools import count
from pathlib import Path
from random import Random

import pytest

from metastore_assets.store.objects import ObjectStore
from tests.produce.commit_plans import Commit, Plan, plan
from tests.produce.harness import Pair
from tests.produce.killable_store import publish_commit, run_until_killed

REPOSITORY = Path(__file__).parents[2]
COMMITS = 4


def prepared(commit_plan: Plan, folder: Path, commits: int) -> None:
    """Publish the first commits of a plan to a storage."""
    store = ObjectStore(str(folder))
    for commit in commit_plan.commits[:commits]:
        assert commit_plan.publish(store, commit) == commit.number


def finish(commit_plan: Plan, pair: Pair, commit: Commit) -> None:
    """Publish a commit after a kill, and assert that the version is the same as without the kill.

    Also asserts that the commit is not applied a second time.
    """
    assert pair.flow.advance(dict(commit.tables), versions=commit.versions) == commit.number
    step = copy.copy(commit_plan.steps[commit.number - 1])
    pair.previous = commit_plan.states[commit.number - 1]
    pair.state, pair.number = step.state, commit.number
    pair.verify(step)
    again = pair.flow.advance(dict(commit.tables), versions=commit.versions)
    assert again == commit.number, "an applied version is not applied again"
    pair.verify_state()


def every_kill(seed: int, folder: Path) -> None:
    commit_plan = plan(seed, COMMITS)
    before = folder / "before"
    prepared(commit_plan, before, COMMITS - 1)
    commit = commit_plan.commits[-1]
    reached_versions = [COMMITS - 1]
    for fuse in count():
        here = folder / str(fuse)
        shutil.copytree(before, here)
        if not run_until_killed(commit_plan, here, fuse, publish_commit(commit)):
            break
        newest = commit_plan.pair(ObjectStore(str(here)), 0).plain_version().number
        assert newest in (reached_versions[-1], COMMITS), (
            "an interrupted version leaves no trace, a published one stays"
        )
        reached_versions.append(newest)
        pair = commit_plan.pair(ObjectStore(str(here)), newest)
        pair.verify(commit_plan.steps[newest - 1])
        finish(commit_plan, pair, commit)
        shutil.rmtree(here)
    assert len(reached_versions) > 1
    last = folder / "after"
    shutil.copytree(before, last)
    assert run_until_killed(commit_plan, last, 0, publish_commit(commit), after=True, only="versions/")
    pair = commit_plan.pair(ObjectStore(str(last)), COMMITS)
    pair.verify(commit_plan.steps[-1])
    finish(commit_plan, pair, commit)


@pytest.mark.parametrize("seed", [2, pytest.param(9, marks=pytest.mark.long)])
def test_killed_at_every_write_of_a_version(seed: int, tmp_path: Path) -> None:
    every_kill(seed, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 160))
def test_killed_at_every_write_of_more_versions(seed: int, tmp_path: Path) -> None:
    every_kill(seed, tmp_path)


@pytest.mark.parametrize(("seed", "full"), [(3, False), (13, True)])
def test_killed_at_every_write_of_a_compaction(seed: int, full: bool, tmp_path: Path) -> None:
    commit_plan = plan(seed, COMMITS)
    before = tmp_path / "before"
    prepared(commit_plan, before, COMMITS)
    for fuse in count():
        here = tmp_path / str(fuse)
        shutil.copytree(before, here)
        has_finished = not run_until_killed(commit_plan, here, fuse, lambda flow: flow.compact(full=full))
        pair = commit_plan.pair(ObjectStore(str(here)), COMMITS)
        pair.verify(commit_plan.steps[-1])
        pair.compact(full=full)
        shutil.rmtree(here)
        if has_finished:
            break


@pytest.mark.parametrize("seed", [pytest.param(2, marks=pytest.mark.long), 9])
def test_killed_at_every_removal_of_old_files(seed: int, tmp_path: Path) -> None:
    commit_plan = plan(seed, COMMITS)
    before = tmp_path / "before"
    prepared(commit_plan, before, COMMITS)
    for fuse in count():
        here = tmp_path / str(fuse)
        shutil.copytree(before, here)
        has_finished = not run_until_killed(
            commit_plan, here, fuse, lambda flow: flow.expire(keep=2, grace=timedelta(0))
        )
        pair = commit_plan.pair(ObjectStore(str(here)), COMMITS)
        pair.verify(commit_plan.steps[-1])
        pair.expire(keep=1)
        pair.verify(commit_plan.steps[-1])
        shutil.rmtree(here)
        if has_finished:
            assert fuse > 0
            break


def random_kills(seed: int, folder: Path, commits: int) -> None:
    """Publish each commit, with kills at random writes, until one attempt is not killed.

    Compare with the oracle.

    Compactions and expiry between the commits may be killed too.
    """
    commit_plan, random = plan(seed, commits), Random(seed)
    store = ObjectStore(str(folder))
    for commit in commit_plan.commits:
        number, limit = commit.number, 15
        while run_until_killed(
            commit_plan, folder, random.randrange(limit), publish_commit(commit), after=random.random() < 0.3
        ):
            limit *= 2  # so that it terminates
            newest = commit_plan.pair(store, number - 1).plain_version().number
            assert newest in (number - 1, number)
            commit_plan.pair(store, newest).verify_state()
        pair = commit_plan.pair(store, number)
        pair.verify(commit_plan.steps[number - 1])
        if random.random() < 0.4:
            full = random.random() < 0.5
            run_until_killed(commit_plan, folder, random.randrange(8), lambda flow, full=full: flow.compact(full=full))
        if random.random() < 0.3:
            run_until_killed(
                commit_plan, folder, random.randrange(12), lambda flow: flow.expire(keep=2, grace=timedelta(0))
            )
        pair.verify(commit_plan.steps[number - 1])


@pytest.mark.parametrize("seed", [10, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(11, 14))])
def test_random_kills(seed: int, tmp_path: Path) -> None:
    random_kills(seed, tmp_path / "flow", 8)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(200, 400))
def test_more_random_kills(seed: int, tmp_path: Path) -> None:
    random_kills(seed, tmp_path / "flow", 12)


@pytest.mark.parametrize(
    "fuse", [1, 4, pytest.param(7, marks=pytest.mark.long), pytest.param(12, marks=pytest.mark.long)]
)
def test_a_process_that_exits_at_a_write_loses_nothing(fuse: int, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.produce.publisher_program", str(tmp_path / "flow"), "3", "3", str(fuse)]
    process = subprocess.run(command, cwd=REPOSITORY, input="go\n", capture_output=True, text=True, timeout=120)
    assert process.returncode == 9, process.stderr
    commit_plan = plan(3, 3)
    store = ObjectStore(str(tmp_path / "flow"))
    newest = commit_plan.pair(store, 0).plain_version().number
    assert newest == len(process.stdout.split()) - 1, "one number is printed for each version there is"
    commit_plan.pair(store, newest).verify_state()
    for commit in commit_plan.commits[newest:]:
        finish(commit_plan, commit_plan.pair(store, commit.number - 1), commit)
