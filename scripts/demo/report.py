"""The lines that the demo prints."""

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

_FRAGMENT_COLUMNS = "added removed unchanged read"
_VALUE_COLUMNS = "  added removed changed"
_HEAD = (
    f"  {'':8}  {'':24}  {'':8}  {'fragments':^28}  partitions  {'values':^23}",
    f"  {'table':8}  {'commit':24}  {'rows':>8}  {_FRAGMENT_COLUMNS}  recomputed  {_VALUE_COLUMNS}  seconds",
)


class Reporter:
    """A printer of the demo's lines to stdout, with colours on a terminal."""

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
        """Print the column headings for the lines of `refreshed`."""
        for line in _HEAD:
            self.console.print(Text(line, style="dim"))

    def refreshed(self, table: str, title: str, change: Change, seconds: float) -> None:
        """Print one line about what a refresh read and recomputed."""
        line = Text(f"  {table:<8}  {title:<24}  {change.row_difference:>+8,}  ")
        fragments = f"{change.added:>5} {change.removed:>7} {change.unchanged:>9} {change.read:>4}"
        line.append(fragments, style="cyan")
        line.append(f"  {f'{len(change.recomputed)} of {change.partitions}':>10}", style="green")
        values = change.value_counts
        numbers = [f"{n:,}" for n in (values.added, values.removed, values.changed)] if values else ["–"] * 3
        line.append("  " + " ".join(f"{number:>7}" for number in numbers), style="magenta")
        line.append(f"  {seconds:>7.1f}")
        self.console.print(line)

    def median(self, table: str, column: str, before: Quantile, after: Quantile) -> None:
        """Print the median of a column before and after a commit."""
        values = f"still {after.value}" if after.value == before.value else f"{before.value} → {after.value}"
        self.console.print(Text(f"  {'':<8}  median of {table}.{column}, {after.guarantee}: {values}", style="dim"))

    def unexpected(self, commit: Commit, change: Change | None) -> None:
        """Print that a refresh did not recompute exactly the partitions that its commit changed."""
        recomputed_partitions, dropped_partitions = (change.recomputed, change.dropped) if change else ((), ())
        self.console.print(
            f"  error: expected partitions: {', '.join(commit.changed) or 'none'} recomputed, "
            f"{', '.join(commit.removed) or 'none'} removed; "
            f"actual: {', '.join(sorted(recomputed_partitions)) or 'none'} recomputed, "
            f"{', '.join(sorted(dropped_partitions)) or 'none'} removed",
            style="red",
            markup=False,
        )

    def command(self, arguments: Sequence[str]) -> None:
        """Print a `metastore` command, and run it."""
        self.console.print()
        self.console.print(Text(f"  $ metastore {' '.join(arguments)}", style="bold cyan"))
        sys.stdout.flush()
        program = "import sys; from metastore_assets.cli import main; sys.exit(main())"
        subprocess.run(python_command("-c", program, *arguments), check=True)
