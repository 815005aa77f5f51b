"""A program that searches for a random graph that violates the property of test_property.py.

python -m tests.produce.search_failing_graph PACKAGE GRAPHS

PACKAGE is the folder from which the code under test must have been imported. GRAPHS is the number of graphs to draw,
with the seeds from 0. Prints the first failure and exits with status 1, or prints nothing and exits with status 0 if
all graphs pass.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import metastore_assets
from tests.produce.test_property import check


def main(package: str, graphs: str) -> int:
    assert Path(metastore_assets.__file__).parent.samefile(package), f"{metastore_assets.__file__} is not in {package}"
    os.fsync = lambda descriptor: None
    for seed in range(int(graphs)):
        with tempfile.TemporaryDirectory() as folder:
            try:
                check(seed, Path(folder))
            except Exception as error:  # noqa: BLE001 (whatever it is, it was found)
                what = str(error).split("\n", 1)[0]
                print(f"graph {seed}: {type(error).__name__}: {what}")  # noqa: T201
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
