"""Commands that read start fast: they import nothing large that is not needed, and start no Spark.

The value counts of a column are its distinct values with the frequency of each.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TextIO

import pytest

LARGE = {"dagster", "deltalake", "duckdb", "pandas", "pyiceberg", "pyspark", "rich"}
_PROGRAM = """
import json, sys
from metastore_assets.cli import run
for arguments in json.loads(sys.argv[1]):
    sys.argv = ["metastore", *arguments]
    try:
        run()
    except SystemExit as end:
        print("ended", end.code, *sorted(sys.modules), file=sys.stderr)
"""


def imported(*arguments: str, folder: Path, environment: Mapping[str, str] | None = None) -> set[str]:
    """Return the full names of the modules that a command has imported; it must succeed."""
    (modules,) = imported_by([arguments], folder=folder, environment=environment)
    return modules


def imported_by(
    commands: Sequence[Sequence[str]], *, folder: Path, environment: Mapping[str, str] | None = None
) -> list[set[str]]:
    """Return, for each of several commands of one process, the modules imported so far."""
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, json.dumps(commands)],
        cwd=folder,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        check=True,
    )
    ends = [line.split()[1:] for line in done.stderr.splitlines() if line.startswith("ended ")]
    assert [status for status, *_ in ends] == ["0"] * len(commands), done.stderr
    return [set(modules) for _, *modules in ends]


READING = [
    ["tables"],
    ["show", "orders"],
    ["show", "orders", "--json"],
    ["show", "orders", "--partitions"],
    ["top", "orders", "state"],
    ["histogram", "orders", "id"],
    ["quantile", "orders", "day", "0.5"],
    ["rank", "orders", "state", "new"],
    ["locate", "orders", "state", "new"],
    ["prune", "orders", "--where", "id < 5"],
    ["estimate", "orders", "--where", "id < 5"],
    ["compact", "orders"],
    ["check", "orders"],
    ["versions", "orders"],
    ["expire", "orders"],
    ["refresh", "fresh", "--dry-run"],
    ["backfill", "fresh", "--dry-run"],
]


def test_reading_imports_nothing_large(config_file: Path) -> None:
    """No command that only reads imports a large module that it does not need.

    The commands run one after the other in one process. If the test fails, it lists each command after which a large
    module is loaded. The first command in this list has imported the module.
    """
    settings = imported_by(READING, folder=config_file.parent)
    assert len(settings) == len(READING)
    large = [(arguments, sorted(modules & LARGE)) for arguments, modules in zip(READING, settings, strict=True)]
    assert [modules_imported for modules_imported in large if modules_imported[1]] == []


def test_reading_statistics_imports_no_value_counts(config_file: Path) -> None:
    """`show` imports neither the code that reads value counts nor other modules that it does not need.

    So it starts fast.
    """
    modules_imported = imported("show", "orders", folder=config_file.parent)
    unwanted_modules = {
        "asyncio",
        "multiprocessing",
        "numpy.ma",
        "obstore",
        "polars",
        "pyarrow.compute",
        "pyarrow.dataset",
    }
    assert modules_imported & {*LARGE, *unwanted_modules, "sqlglot", "subprocess"} == set()
    packages = (
        "assets",
        "checks.base",
        "checks.evaluation",
        "history",
        "index",
        "pipeline",
        "produce",
        "profiling",
        "scan",
        "spark",
        "sql",
        "value_counts.reading",
    )
    for name in packages:
        assert find_spec(f"metastore_assets.{name}"), name
    assert modules_imported & {f"metastore_assets.{package}" for package in packages} == set()


@pytest.mark.parametrize("arguments", [["--help"], ["show", "--help"], ["profile", "--help"], ["--version"]])
def test_help_imports_nothing_at_all(tmp_path: Path, arguments: list[str]) -> None:
    modules = imported(*arguments, folder=tmp_path)
    assert modules & (LARGE | {"numpy", "obstore", "polars", "pyarrow", "pydantic", "yaml"}) == set()


@pytest.mark.skipif(not Path("/proc/self/task").exists() or (os.cpu_count() or 1) < 2, reason="cannot be seen here")
def test_numpy_starts_threads_only_on_request() -> None:
    """With `limit_blas_threads`, numpy starts BLAS threads only if a variable sets their number."""
    program = (
        "import os; from metastore_assets.startup import limit_blas_threads; limit_blas_threads(); "
        "import numpy; print(len(os.listdir('/proc/self/task')))"
    )

    def threads(settings: Mapping[str, str]) -> int:
        environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
        run = subprocess.run(
            [sys.executable, "-c", program],
            env={**environment, **settings},
            capture_output=True,
            text=True,
            check=True,
        )
        return int(run.stdout)

    assert threads({}) == 1
    assert threads({"OPENBLAS_NUM_THREADS": "2"}) == 2


_TRICKS = """
import dataclasses, gc, json, os, resource, sys, types
from metastore_assets import startup

def called(a, b, c, d, e, f, g, h, i, j, k, l):
    pass

def page_faults(depth):
    if depth:
        return page_faults(depth - 1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(1000):
        called(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def has_frozen_objects():
    objects = [[] for _ in range(30_000)]
    startup.freeze_objects()
    return gc.get_freeze_count() >= len(objects)

startup.share_dataclass_methods()
startup.hide_pandas()
startup.disable_pydantic_plugins()
startup.limit_blas_threads()
startup.limit_polars_threads()
startup.collect_garbage_seldom()
print(json.dumps({
    "pandas": len([finder for finder in sys.meta_path if type(finder).__module__ == "metastore_assets.startup"]),
    "variables": sorted({"PYDANTIC_DISABLE_PLUGINS", "OPENBLAS_NUM_THREADS", "POLARS_MAX_THREADS"} & set(os.environ)),
    "lazy": type(startup.pc) is not types.ModuleType,
    "gc": gc.get_threshold()[0] > 10_000,
    "dataclasses": dataclasses.dataclass.__module__ != "dataclasses",
    "frames": startup.call_with_frame_memory(lambda: max(map(page_faults, range(400)))) < 500,
    "frozen": has_frozen_objects(),
}))
end = startup.FastExit()
sys.modules["held"] = held = types.SimpleNamespace()
held.output = open(sys.argv[1], "w")
held.output.write("flushed by Python's own exit")
end.status = 0
"""


@pytest.mark.parametrize(("value", "is_fast"), [(None, True), ("0", True), ("1", False)])
def test_one_variable_turns_off_all_start_up_tricks(tmp_path: Path, value: str | None, is_fast: bool) -> None:
    variables = ("PYDANTIC_DISABLE_PLUGINS", "OPENBLAS_NUM_THREADS", "POLARS_MAX_THREADS", "METASTORE_PLAIN_STARTUP")
    environment = {name: text for name, text in os.environ.items() if name not in variables}
    if value is not None:
        environment["METASTORE_PLAIN_STARTUP"] = value
    command = [sys.executable, "-c", _TRICKS, str(tmp_path / "output")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {
        "pandas": int(is_fast),
        "variables": sorted(variables[:3]) if is_fast else [],
        "lazy": is_fast,
        "gc": is_fast,
        "dataclasses": is_fast,
        "frames": is_fast,
        "frozen": is_fast,
    }
    assert ((tmp_path / "output").read_text() == "") == is_fast


_ENDING = """
import atexit, sys, threading, time
from metastore_assets.startup import FastExit

class Told:
    def __del__(self):
        print("taken apart")

def work():
    time.sleep(0.2)
    print("a thread has ended")

end = FastExit()
atexit.register(print, "what wants to be called was called")
threading.Thread(target=work).start()
told = Told()
told.itself = told  # so that only a look for garbage, or taking the module apart, comes by it
"""


def test_a_process_ends_after_all_exit_functions() -> None:
    """A process whose `FastExit` has an exit status ends without destroying objects.

    Before that, its threads end, its exit functions are called, and all output is flushed.
    """
    done = _ended(_ENDING + "end.status = 3; sys.exit(3)")
    assert done.returncode == 3
    assert done.stdout.splitlines() == ["a thread has ended", "what wants to be called was called"]


def test_a_process_without_a_status_ends_normally() -> None:
    """After an unexpected error, `FastExit` has no status, and Python destroys all objects as usual."""
    done = _ended(_ENDING + "raise ValueError('unexpected')")
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == "taken apart"
    assert done.stderr.endswith("ValueError: unexpected\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_unwritable_output_is_reported_at_exit() -> None:
    """The disk is full, so Python cannot flush stdout.

    Python prints the error and exits with its own status 120.
    """
    with open("/dev/full", "w") as full:
        done = _ended(_ENDING + "print('held back'); end.status = 0; sys.exit(0)", stdout=full)
    assert done.returncode == 120
    assert "No space left on device" in done.stderr


def _ended(program: str, stdout: int | TextIO = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    # Output is buffered, as it is by default.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = [sys.executable, "-c", program]
    return subprocess.run(command, env=environment, stdout=stdout, stderr=subprocess.PIPE, text=True, check=False)
