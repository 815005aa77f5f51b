"""A program that publishes the commits of a plan, and may exit at a chosen write.

python -m tests.produce.publisher_program ROOT SEED COMMITS FUSE

Prints `ready`, waits for a line on standard input, and publishes the commits one after another, while other publishers
may do the same. After each commit, it prints the number of the newest version. With a FUSE of n ≥ 0, the process exits
with status 9, without any cleanup, at its write or deletion number n, counted from 0. A plan is a list of updates that
are drawn in advance.
"""

from __future__ import annotations

import os
import sys

from metastore_assets.store.objects import ObjectStore
from tests.produce.commit_plans import plan
from tests.produce.killable_store import KillableStore, exit_at_once


def main(root: str, seed: str, commits: str, fuse: str) -> None:
    os.fsync = lambda descriptor: None  # flushed, so that a killed process loses no output
    commit_plan = plan(int(seed), int(commits))
    store = KillableStore(root, int(fuse), die=exit_at_once) if int(fuse) >= 0 else ObjectStore(root)
    print("ready", flush=True)  # noqa: T201 (read by whoever started it)
    sys.stdin.readline()
    for commit in commit_plan.commits:
        print(commit_plan.publish(store, commit), flush=True)  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
