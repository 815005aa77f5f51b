"""The table that the benchmarks print."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Row:
    """One comparison. Times are seconds of each run; `ratio` is how many times faster than the peer."""

    name: str
    own: list[float]
    peer: list[float]
    ratio: float
    goal: float


def show(rows: list[Row]) -> bool:
    """Print the comparisons; true when every goal is met."""
    table = Table(title="Benchmarks: medians in seconds, ratios pair by pair")
    for heading in ("benchmark", "metastore", "peer", "times faster", "goal", ""):
        table.add_column(heading, justify="left" if heading == "benchmark" else "right")
    for row in rows:
        met = row.ratio >= row.goal
        table.add_row(row.name, f"{median(row.own):.2f}", f"{median(row.peer):.2f}", f"{row.ratio:.2f}",
                      f"{row.goal:g}", "met" if met else "missed")  # fmt: skip
    Console(width=130).print(table)
    return all(row.ratio >= row.goal for row in rows)
