"""What a commit costs in tables of ten thousand to a million files, of Delta, Iceberg and Hudi.

Tables have real metadata and no data files. A refresh plans, writes its metadata and publishes as usual. Its profiles,
which are the stored statistics of a file, a partition or the table, are names of files that do not exist. Merges of
profiles are counted instead of run. Each commit is measured in a separate process, after a refresh of a small table.
A version is the published statistics of a table at one snapshot. Above 100,000 files, the first version has copied rows
(see `scale_inflation`).

`METASTORE_BENCH_SCALE=10000,10000000` sets the numbers of files, and `METASTORE_BENCH_FORMATS=delta` the formats.
`METASTORE_BENCH_REPEATED=1` configures a column with `frequencies: repeated`, which stores the values that occur at
least twice; the values of this column hardly repeat.
The format `files` is a folder of links to few Parquet files, which a refresh lists completely. It is measured only if
it is named, because its first version is slow: a refresh of all files publishes it, however many there are.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile

from rich.console import Console
from rich.table import Table

from benchmarks.report import Row
from benchmarks.scale_tables import COMMITS

SIZES = (10_000, 100_000, 1_000_000)
GROWTH = 1.5
"""How many times as much a commit to the largest table may cost as the same commit to the smallest one."""
_STEPS = ("tick", "plan", "publish")
_FLOORS = {"ms": 2.0, "MB": 0.0, "requests": 2.0, "kB": 8.0}
"""By unit, the least number that is compared. Smaller numbers count as this one, because their growth means nothing."""


def run() -> list[Row]:
    """Print the costs of each commit, and their growth from the smallest to the largest table.

    Returns:
        A row per format, which compares the CPU time of a one-file commit to the largest and to the smallest table.
    """
    sizes = tuple(map(int, os.environ.get("METASTORE_BENCH_SCALE", ",".join(map(str, SIZES))).split(",")))
    formats = os.environ.get("METASTORE_BENCH_FORMATS", "delta,iceberg,hudi").split(",")
    rows = []
    for kind in formats:
        costs = {size: measure(kind, size) for size in sizes}
        _print_costs(kind, costs)
        if len(sizes) == 1 or kind == "files":
            continue
        smallest, largest = costs[min(sizes)], costs[max(sizes)]
        _print_growth(kind, smallest, largest, f"{min(sizes):,} to {max(sizes):,}")
        small, large = (_cpu(costs["one file"]) for costs in (smallest, largest))
        name = f"{kind}: CPU of a one-file commit, {max(sizes):,} files against {min(sizes):,} (s)"
        rows.append(Row(name, [large], [small], GROWTH * small / large, 1.0))
    return rows


def measure(kind: str, count: int) -> dict[str, dict[str, float]]:
    """Build a table of `count` files in the format `kind`.

    Return the measurements of each kind of commit to the table, by its name in `scale_tables.COMMITS`.
    """
    with tempfile.TemporaryDirectory(prefix="metastore-bench-", dir=os.environ.get("METASTORE_BENCH_FOLDER")) as name:
        costs = _process(name, "build", kind, str(count))
        print(f"{kind}, {count:,} files: metadata {costs['write']:.0f} s, first version {costs['publish']:.0f} s, "
              f"{costs['peak']:,.0f} MB", flush=True)  # fmt: skip
        return {commit: _process(name, "commit", commit) for commit in COMMITS}


def _process(*arguments: str) -> dict[str, float]:
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.scale_run", *arguments]
    environment = {**os.environ, "DAGSTER_DISABLE_TELEMETRY": "1"}
    process = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    numbers: dict[str, float] = json.loads(process.stdout.splitlines()[-1])
    return numbers


def _cpu(numbers: dict[str, float]) -> float:
    return numbers["plan cpu"] + numbers["publish cpu"] + numbers["children"]


def _columns(numbers: dict[str, float]) -> dict[str, tuple[float, str]]:
    """Return the printed numbers of a commit with their units, by heading."""
    return {
        "tick": (1e3 * numbers["tick cpu"], "ms"),
        "plan": (1e3 * numbers["plan cpu"], "ms"),
        "children": (1e3 * numbers["children"], "ms"),
        "publish": (1e3 * numbers["publish cpu"], "ms"),
        "memory": (numbers["memory"], "MB"),
        "tick requests": (numbers["tick root requests"] + numbers["tick table requests"], "requests"),
        "plan requests": (numbers["plan root requests"] + numbers["plan table requests"], "requests"),
        "publish requests": (numbers["publish root requests"] + numbers["publish table requests"], "requests"),
        "root read": ((numbers["plan root read"] + numbers["publish root read"]) / 1e3, "kB"),
        "table read": ((numbers["plan table read"] + numbers["publish table read"]) / 1e3, "kB"),
        "written": ((numbers["plan written"] + numbers["publish written"]) / 1e3, "kB"),
    }


def _print_costs(kind: str, costs: dict[int, dict[str, dict[str, float]]]) -> None:
    table = Table(
        title=f"{kind}: CPU in ms, memory of the process in MB, requests, kB; profiles that merges would read"
    )
    table.add_column("commit")
    headings = list(_columns(next(iter(next(iter(costs.values())).values()))))
    for heading in ("files", *headings, "profiles"):
        table.add_column(heading, justify="right")
    for commit in COMMITS:
        for size, by_commit in costs.items():
            numbers = by_commit[commit]
            shown_costs = [f"{number:,.0f}" for number, _ in _columns(numbers).values()]
            table.add_row(commit, f"{size:,}", *shown_costs, f"{numbers['profiles']:,.0f}")
    Console(width=170).print(table)


def _print_growth(
    kind: str, smallest: dict[str, dict[str, float]], largest: dict[str, dict[str, float]], sizes: str
) -> None:
    table = Table(title=f"{kind}: growth from {sizes} files; the goal is at most {GROWTH:g}")
    table.add_column("commit")
    for heading in _columns(next(iter(smallest.values()))):
        table.add_column(heading, justify="right")
    for commit in COMMITS:
        cells = []
        for (before, unit), (after, _) in zip(
            _columns(smallest[commit]).values(), _columns(largest[commit]).values(), strict=True
        ):
            growth = max(after, _FLOORS[unit], 1e-9) / max(before, _FLOORS[unit], 1e-9)
            cells.append(f"{growth:,.1f}" + ("" if growth <= GROWTH else " !"))
        table.add_row(commit, *cells)
    Console(width=170).print(table)
