"""The table that the benchmarks print."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Row:
    """One comparison with a peer or a limit."""

    name: str
    measured: list[float]
    """The measured values of all runs: seconds if the name has no other unit."""
    peer: list[float]
    """The peer's values, or the limit."""
    ratio: float
    """How many times faster, or smaller, than the peer or the limit."""
    goal: float
    """The least ratio with which the goal is met."""


def show(rows: list[Row]) -> bool:
    """Print the comparisons.

    Return whether all goals are met.
    """
    table = Table(title="Benchmarks: medians in seconds, ratios pair by pair")
    for heading in ("benchmark", "metastore", "peer", "times faster", "goal", ""):
        table.add_column(heading, justify="left" if heading == "benchmark" else "right")
    for row in rows:
        is_met = row.ratio >= row.goal
        table.add_row(row.name, f"{median(row.measured):.2f}", f"{median(row.peer):.2f}", f"{row.ratio:.2f}",
                      f"{row.goal:g}", "met" if is_met else "missed")  # fmt: skip
    Console(width=130).print(table)
    return all(row.ratio >= row.goal for row in rows)
