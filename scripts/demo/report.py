"""The output of the demo."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from metastore_assets.lookup.results import Quantile
from metastore_assets.startup import python_command
from scripts.demo.change import Change
from scripts.demo.commits import Commit

_HEAD = (
    f"  {'':8}  {'':24}  {'':8}  {'fragments':^23}  partitions  {'listed values':^23}",
    f"  {'table':8}  {'commit':24}  {'rows':>8}  {'came':>5} {'went':>5} {'kept':>5} {'read':>5}  recomputed  {'new':>7} {'gone':>7} {'other':>7}  seconds",
)


class Reporter:
    """Prints to stdout, with colors on a terminal."""

    def __init__(self) -> None:
        self.console = Console(highlight=False, soft_wrap=True)

    def heading(self, text: str) -> None:
        """Print the title of the next part."""
        self.console.print()
        self.console.print(Text(text, style="bold"))

    def line(self, text: str) -> None:
        """Print one line of plain text."""
        self.console.print(Text(f"  {text}"))

    def table_head(self) -> None:
        """Print the headings above the lines of `refreshed`."""
        for line in _HEAD:
            self.console.print(Text(line, style="dim"))

    def refreshed(self, table: str, title: str, change: Change, seconds: float) -> None:
        """Print one line about the changes of a refresh."""
        line = Text(f"  {table:<8}  {title:<24}  {change.rows_more:>+8,}  ")
        line.append(f"{change.added:>5} {change.removed:>5} {change.kept:>5} {change.read:>5}", style="cyan")
        line.append(f"  {f'{len(change.recomputed)} of {change.partitions}':>10}", style="green")
        lists = change.lists
        numbers = [f"{n:,}" for n in (lists.added, lists.removed, lists.changed)] if lists else ["–"] * 3
        line.append("  " + " ".join(f"{number:>7}" for number in numbers), style="magenta")
        line.append(f"  {seconds:>7.1f}")
        self.console.print(line)

    def median(self, table: str, column: str, before: Quantile, now: Quantile) -> None:
        """Print one line about the median of a column before and after a commit."""
        change = f"stays {now.value}" if now.value == before.value else f"{before.value} → {now.value}"
        self.console.print(Text(f"  {'':<8}  median of {table}.{column}, {now.guarantee}: {change}", style="dim"))

    def unexpected(self, commit: Commit, change: Change | None) -> None:
        """Print that a refresh did not recompute exactly the partitions that the commit changed."""
        recomputed, dropped = (change.recomputed, change.dropped) if change else ((), ())
        self.console.print(
            f"  expected: {', '.join(commit.changed) or 'none'} recomputed, {', '.join(commit.removed) or 'none'} gone; "
            f"found: {', '.join(sorted(recomputed)) or 'none'} and {', '.join(sorted(dropped)) or 'none'}",
            style="red",
            markup=False,
        )

    def command(self, arguments: Sequence[str]) -> None:
        """Print a `metastore` command, then run it."""
        self.console.print()
        self.console.print(Text(f"  $ metastore {' '.join(arguments)}", style="bold cyan"))
        sys.stdout.flush()
        program = "import sys; from metastore_assets.cli import main; sys.exit(main())"
        subprocess.run(python_command("-c", program, *arguments), check=True)
