"""Concurrent publishers and expiring processes keep a root valid, even if killed at any step.

A publisher writes the next version of a table: its statistics at one snapshot. An expiring process deletes old versions
and unreferenced files. A root is the folder with all stored state.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from metastore_assets.store.objects import ObjectStore

PROGRAM = Path(__file__).with_name("publisher_processes.py")


def run(action: str, store: ObjectStore, options: dict[str, str], *arguments: str) -> Any:
    """Run the program `publisher_processes.py` with an action, such as `kill`, and return its report."""
    command = [sys.executable, str(PROGRAM), action, store.uri(), json.dumps(options), *arguments]
    process = subprocess.run(command, capture_output=True, text=True, timeout=500)
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


@pytest.fixture
def options(request: pytest.FixtureRequest, store: ObjectStore) -> dict[str, str]:
    """The storage options of the store."""
    return request.getfixturevalue("s3_options") if store.is_remote else {}


def test_after_a_kill_at_any_step_the_next_version_is_published(store: ObjectStore, options: dict[str, str]) -> None:
    """A publisher is killed with SIGKILL at its first step, another one at its second, and so on.

    A step is a call that changes stored data. After each kill, all listed versions are complete, the next publisher
    succeeds, and `expire` removes all remaining files. The last publisher is not killed.
    """
    *kills, last = run("kill", store, options)
    assert len(kills) > (7 if store.is_remote else 40)
    assert {step["outcome"] for step in kills} == {"killed"}
    assert last["outcome"] == "published"
    result = [step["recovered"] for step in (*kills, last)]
    states = [step["before"] for step in result]
    assert [state for state, previous in zip(states, [[], *states], strict=False) if state != previous] == [
        [1],
        [1, 2],
        [2],
    ]
    assert all(step["after"] == [*step["before"], step["before"][-1] + 1] for step in result)
    assert all(step["dropped"] == step["after"][-1:] for step in result)
    assert not any(step["stray"] for step in result)


def test_exactly_one_of_concurrent_publishers_succeeds(store: ObjectStore, options: dict[str, str]) -> None:
    *rounds, end = run("race", store, options)
    for number, result in enumerate(rounds, 1):
        assert sorted(result["outcomes"], key=len)[1:] == ["conflict"] * 5, f"round {number}"
        assert result["published"] in result["outcomes"]
    assert end == {"whole": list(range(1, len(rounds) + 1))}


def test_expire_deletes_no_file_of_a_running_publisher_or_reader(store: ObjectStore, options: dict[str, str]) -> None:
    """A publisher, a reader and two expiring processes run at the same time.

    The publisher and the reader miss no file.

    The publisher references old files, files of pending profiles and new ones. The reader reads all files of the newest
    version.
    """
    for _ in range(5):
        report = run("expire", store, options, "6" if store.is_remote else "3")
        if report["in_time"]:
            assert isinstance(report["published"], int), report["published"]
            assert isinstance(report["reads"], int), report["reads"]
            assert all(isinstance(counts, list) for counts in report["removed"]), report["removed"]
            # On a busy machine a process may not have run, so that nothing happened concurrently.
            if report["published"] > 1 and report["reads"] > 1 and all(map(sum, zip(*report["removed"], strict=True))):
                break
    else:
        pytest.skip("publishing takes longer on this machine than the grace of this test")
    assert report["finally"] == {"numbers": [report["published"]], "exactly": True}
