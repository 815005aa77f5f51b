"""Compare the speed of this checkout with an earlier commit.

`python -m benchmarks.against COMMIT [PAIRS]` runs the same commands on the same table in both checkouts in turns, each
command in a separate process. PAIRS is how often each command runs in each checkout, by default 20. The output shows,
for each command, the medians of the ratios new / old of CPU time and of wall time, with 95 % intervals. A ratio of 1.05
is 5 % slower.
"""

from __future__ import annotations

import compileall
import io
import os
import random
import resource
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import yaml
from deltalake import write_deltalake
from rich.console import Console
from rich.table import Table

REPOSITORY = Path(__file__).resolve().parents[1]
ROWS, DAYS = 400_000, 40
COMMIT_ROWS = 1_000
NAME = "t"
PREDICATE = "i3 > 900000 and s0 = 'v7'"
LIMIT = 1.05
"""The new commit counts as slower if the upper end of an interval reaches this ratio."""
_WARM = f"""
import time
from metastore_assets import open_table
table = open_table("root", "{NAME}")
def lookups():
    table.statistics(); table.top("s1", 10); table.quantile("i2", 0.5); table.histogram("f0", bins=50)
    table.estimate("i0 < 500")
def prune():
    for bound in range(20): table.prune(f"i3 > {{900000 + bound}}")
for name, action in (("warm lookups", lookups), ("warm prune", prune)):
    action()
    best = []
    for _ in range(15):
        started = time.perf_counter(); action(); best.append(time.perf_counter() - started)
    print(name, sorted(best)[7], sep="\\t")
"""


@dataclass(frozen=True)
class Side:
    """One of the two checkouts.

    Both checkouts profile the same table. The commands of a checkout run in its own `folder`, and store the statistics
    in the subfolder `root` of this folder.
    """

    checkout: Path
    folder: Path

    def run(self, *arguments: str) -> tuple[float, float, str]:
        """Run Python with the package of this checkout.

        Return CPU seconds, wall seconds and standard output.
        """
        environment = {
            **os.environ,
            "PYTHONPATH": str(self.checkout),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        before, start_time = _cpu_of_children(), time.perf_counter()
        process = subprocess.run(
            [sys.executable, *arguments], cwd=self.folder, env=environment, capture_output=True, text=True, check=False
        )
        wall = time.perf_counter() - start_time
        if process.returncode:
            raise RuntimeError(
                f"{self.checkout}: {arguments} ended with {process.returncode}: {process.stderr[-2000:]}"
            )
        return _cpu_of_children() - before, wall, process.stdout

    def command(self, *arguments: str) -> tuple[float, float, str]:
        """Run a command of the CLI.

        Return CPU seconds, wall seconds and standard output.
        """
        return self.run("-m", "metastore_assets", *arguments)

    def stored_bytes(self) -> int:
        """Return the total size of the files below the folder `root`, in bytes."""
        return sum(path.stat().st_size for path in (self.folder / "root").rglob("*") if path.is_file())


def _cpu_of_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _rows(seed: int, count: int, days: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    day = np.datetime64("2024-01-01") + rng.integers(0, days, count)
    columns: dict[str, pa.Array] = {"day": pa.array(day.astype("datetime64[D]"))}
    columns |= {f"i{k}": pa.array(rng.integers(0, 1000 * 10**k, count)) for k in range(4)}
    columns |= {f"f{k}": pa.array(rng.normal(size=count)) for k in range(3)}
    columns |= {f"s{k}": pa.array([f"v{x}" for x in rng.integers(0, 50 * 30**k, count)]) for k in range(3)}
    return pa.table(columns)


def _checkout(commit: str, folder: Path) -> Path:
    archive = subprocess.run(["git", "archive", commit], cwd=REPOSITORY, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder, filter="tar")
    return folder


def _interval(ratios: list[float]) -> tuple[float, float]:
    """Return the 95 % confidence interval of the ratios' median, computed by bootstrap."""
    draw = random.Random(0)
    medians = sorted(median(draw.choices(ratios, k=len(ratios))) for _ in range(2000))
    return medians[50], medians[1949]


def measure(commit: str, pairs: int) -> tuple[dict[str, list[float]], dict[str, list[float]], float]:
    """Run all commands and warm lookups in both checkouts, and compare their times.

    Args:
        commit: The earlier commit.
        pairs: How often each command runs in each checkout.

    Returns:
        The ratios new / old of CPU time, by command; those of wall time, by command and by warm lookup; and the ratio
        of the stored bytes.
    """
    cpu: dict[str, list[float]] = defaultdict(list)
    wall: dict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="metastore-bench-") as scratch:
        lake = Path(scratch) / "lake"
        write_deltalake(lake, _rows(1, ROWS, DAYS), partition_by=["day"])
        sides = {}
        for name, checkout in (("new", REPOSITORY), ("old", _checkout(commit, Path(scratch) / "checkout"))):
            folder = Path(scratch) / name
            folder.mkdir()
            tables = [{"name": NAME, "uri": str(lake)}]
            (folder / "metastore.yaml").write_text(yaml.safe_dump({"root": "./root", "tables": tables}))
            compileall.compile_dir(checkout / "metastore_assets", quiet=2)
            sides[name] = Side(checkout, folder)
            sides[name].command("refresh", NAME)

        def pair(name: str, action: Callable[[Side], tuple[float, float, str]], order: list[str]) -> dict[str, str]:
            results = {side: action(sides[side]) for side in order}
            cpu[name].append(results["new"][0] / results["old"][0])
            wall[name].append(results["new"][1] / results["old"][1])
            return {side: result[2] for side, result in results.items()}

        for number in range(pairs):
            order = ["new", "old"] if number % 2 else ["old", "new"]
            write_deltalake(lake, _rows(number + 2, COMMIT_ROWS, 1), mode="append")
            pair("small commit", lambda side: side.command("refresh", NAME), order)
            pair("cold show", lambda side: side.command("show", NAME), order)
            pair("cold top", lambda side: side.command("top", NAME, "s1"), order)
            pair("cold prune", lambda side: side.command("prune", NAME, "--where", PREDICATE), order)
            outputs = pair("process of warm lookups", lambda side: side.run("-P", "-c", _WARM), order)
            times = {side: dict(line.split("\t") for line in text.splitlines()) for side, text in outputs.items()}
            for name in times["new"]:
                wall[name].append(float(times["new"][name]) / float(times["old"][name]))
            pair("full profile", lambda side: side.command("refresh", NAME, "--full"), order)
            print(number + 1, {name: round(median(ratios), 3) for name, ratios in wall.items()}, file=sys.stderr)
        return cpu, wall, sides["new"].stored_bytes() / sides["old"].stored_bytes()


def main(arguments: list[str]) -> int:
    """Compare this checkout with the commit that the first argument names, and print the ratios.

    The second argument, if there is one, is how often each command runs in each checkout.

    Returns:
        The exit status: 1 if the upper end of an interval of CPU ratios reaches 1.05 (`LIMIT`), otherwise 0. Warm
        lookups have no CPU ratios, so the interval of their wall ratios is compared.
    """
    commit, pairs = arguments[0], int(arguments[1]) if len(arguments) > 1 else 20
    cpu, wall, stored_bytes = measure(commit, pairs)
    table = Table(title=f"New against {commit}, {pairs} pairs: ratios of medians, with 95 % intervals")
    for heading in ("", "CPU", "wall"):
        table.add_column(heading)
    slower = False
    for name, ratios in wall.items():
        cells = []
        for values in (cpu.get(name), ratios):
            low, high = _interval(values) if values else (0.0, 0.0)
            cells.append(f"{median(values):.3f} ({low:.3f} to {high:.3f})" if values else "")
        decisive = cpu.get(name) or ratios
        slower = slower or _interval(decisive)[1] >= LIMIT
        table.add_row(name, *cells)
    table.add_row("bytes stored", f"{stored_bytes:.3f}", "")
    Console(width=110).print(table)
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
