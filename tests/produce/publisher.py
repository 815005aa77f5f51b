"""A publisher in a process of its own. A program.

python -m tests.produce.publisher ROOT SEED COMMITS FUSE

Publishes the commits of a plan one after another, beside whoever else does, and prints the number of each. With a FUSE
of n ≥ 0 the process ends at its n-th write without any farewell, with status 9.
"""

from __future__ import annotations

import os
import sys

from metastore_assets.store.objects import ObjectStore
from tests.produce.mortal import MortalStore, exit_at_once
from tests.produce.plans import plan


def main(root: str, seed: str, commits: str, fuse: str) -> None:
    os.fsync = lambda descriptor: None  # a killed process loses nothing that it wrote
    drawn = plan(int(seed), int(commits))
    store = MortalStore(root, int(fuse), die=exit_at_once) if int(fuse) >= 0 else ObjectStore(root)
    print("ready", flush=True)  # noqa: T201 (read by whoever started it)
    sys.stdin.readline()
    for commit in drawn.commits:
        print(drawn.publish(store, commit), flush=True)  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
