"""`make mutants`: put each mistake into a copy of the code, and check that the property test fails.

The property test is in tests/produce. It runs random graphs: dataflows of several stages.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from scripts.mutants.mutants import MUTANTS, Mutant

_REPOSITORY = Path(__file__).parents[2]


def main() -> int:
    """Run the property test on all mutants.

    Returns:
        The exit status: 1 if the unchanged code fails, or if a mutant passes.
    """
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("--graphs", type=int, default=400, help="random graphs until a mutant counts as not found")
    parser.add_argument("--control", type=int, default=25, help="random graphs that the code as it is has to pass")
    parser.add_argument("--only", default="", metavar="TEXT", help="mutants whose name has this in it")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        failure = failing_graph(Path(folder) / "control", None, arguments.control)
        if failure:
            print(f"the code as it is fails already: {failure}", file=sys.stderr)
            return 1
        print(f"as it is: {arguments.control} graphs pass", flush=True)
        survivors = judge([m for m in MUTANTS if arguments.only in m.name], Path(folder), arguments.graphs)
    print(f"{len(survivors)} mutants survive" if survivors else "every mutant is found")
    return 1 if survivors else 0


def judge(mutants: Sequence[Mutant], folder: Path, graphs: int) -> list[Mutant]:
    """Test mutants, and print the result of each.

    Args:
        mutants: The mutants.
        folder: A folder for copies of the code.
        graphs: The number of random graphs after which a mutant counts as not found.

    Returns:
        The mutants that were not found.
    """
    survivors = []
    for number, mutant in enumerate(mutants):
        failure = failing_graph(folder / str(number), mutant, graphs)
        if not failure:
            survivors.append(mutant)
        print(f"{'found   ' if failure else 'SURVIVES'} {mutant.name}{f' ({failure})' if failure else ''}", flush=True)
    return survivors


def failing_graph(folder: Path, mutant: Mutant | None, graphs: int) -> str:
    """Run the property test on a copy of the code.

    Args:
        folder: The new folder of the copy.
        mutant: The mistake in the copy, or None for the unchanged code.
        graphs: The number of random graphs.

    Returns:
        The message about the first graph that fails. It is empty if all graphs pass.

    Raises:
        RuntimeError: If the test cannot run.
    """
    package = folder / "metastore_assets"
    shutil.copytree(_REPOSITORY / "metastore_assets", package, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "tests").symlink_to(_REPOSITORY / "tests")
    if mutant is not None:
        mutant.apply(package)
    # PYTHONPATH comes before the installed package.
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "tests.produce.search_failing_graph", str(package), str(graphs)]
    process = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    message = process.stdout.strip()
    if process.returncode not in (0, 1) or (process.returncode == 1) != message.startswith("graph "):
        raise RuntimeError(f"the test itself failed with status {process.returncode}:\n{process.stderr}")
    if "NameError" in message:
        raise RuntimeError(f"the mistake uses a name that the code does not have: adapt the mutant\n{message}")
    return message


if __name__ == "__main__":
    sys.exit(main())
