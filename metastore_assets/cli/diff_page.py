"""What is different between two versions, for people: what changed, the most shifted columns first."""

from __future__ import annotations

from collections.abc import Callable

from metastore_assets.cli.page import Column, Page, Part, Styled
from metastore_assets.lookup.diff import ColumnDiff, TableDiff
from metastore_assets.report import text
from metastore_assets.statistics.column import ColumnStatistics

_STABLE, _SHIFTED = 0.1, 0.25
_STYLES = {"added": "green", "removed": "red", "changed": "", "same": "dim"}


def print_diff(page: Page, found: TableDiff, *, everything: bool) -> None:
    """A heading, the schema, and a line for each column that is not the same."""
    of = zip(found.tables, (found.before, found.after), strict=True)
    sides = [f"{name} version {own.version:,}, snapshot {text.short(own.snapshot, 20)}" for name, own in of]
    page.line(Styled(sides[0], "bold"), " → ", Styled(sides[1], "bold"))
    page.line(f"  rows {_moved(*found.row_count)}, {text.size(found.bytes[0])} → {text.size(found.bytes[1])}")
    if found.partitions is not None:
        told = vars(found.partitions).items()
        page.line("  partitions: " + (", ".join(f"{count:,} {what}" for what, count in told if count) or "none"))
    for own in found.columns:
        _schema(page, own)
    shown = [own for own in found.columns if everything or own.change != "same"]
    shown.sort(key=lambda own: -(own.distances.stability_index if own.distances else 0))
    if shown:
        columns = [
            Column("column", style="bold"),
            *(Column(name, right=True) for name in ("nulls", "distinct", "mean")),
        ]
        columns += [*(Column(name, right=True) for name in ("PSI", "KS", "JS")), Column("over", style="dim")]
        left_out = page.fitting_grid(columns, [_line(own) for own in shown], ["mean", "JS", "KS"])
        if left_out:
            page.line(Styled(f"  not shown: {', '.join(left_out)} (see --json)", "dim"))
    same = len(found.columns) - len(shown)
    if same:
        page.line(Styled(f"  {text.plural(same, 'column')} the same (--all lists them)", "dim"))


def _schema(page: Page, own: ColumnDiff) -> None:
    name = text.printable(own.name)
    row = own.after or own.before
    assert row is not None
    if own.change in ("added", "removed"):
        sign = "+" if own.change == "added" else "-"
        page.line(Styled(f"  {sign} {name} {text.type_name(row.type)}", _STYLES[own.change]))
        return
    assert own.before is not None
    if own.is_renamed:
        page.line(Styled(f"  {text.printable(own.before.column)} is now called {name}", "yellow"))
    if own.is_retyped:
        page.line(Styled(f"  {name}: {text.type_name(own.before.type)} → {text.type_name(row.type)}", "yellow"))


def _line(own: ColumnDiff) -> tuple[Part, ...]:
    known = own.distances
    name = Styled(text.printable(own.name), f"bold {_STYLES[own.change]}".strip())
    counts = [_both(own, _nulls), _both(own, _distinct), _both(own, lambda row: text.number(row.mean))]
    if known is None:
        why = own.reason or ("added" if own.change == "added" else "removed")
        return (name, *counts, *[text.ABSENT] * 3, text.one_line(why))
    shift = known.stability_index
    style = "red" if shift > _SHIFTED else "yellow" if shift > _STABLE else ""
    measures = [known.kolmogorov_smirnov, known.jensen_shannon]
    return (name, *counts, Styled(_measure(shift), style), *map(_measure, measures), known.over)


def _measure(value: float) -> str:
    return "0" if value == 0 else "<0.001" if value < 0.001 else f"{value:.3f}"


def _both(own: ColumnDiff, tell: Callable[[ColumnStatistics], str]) -> str:
    sides = [None if row is None else tell(row) for row in (own.before, own.after)]
    if sides[0] == sides[1]:
        return str(sides[0])
    return " → ".join("" if side is None else side for side in sides).strip()


def _nulls(row: ColumnStatistics) -> str:
    return text.share(row.null_count, row.null_count + row.value_count)


def _distinct(row: ColumnStatistics) -> str:
    return text.estimate(text.number(row.distinct_count), row.distinct_count_guarantee)


def _moved(before: int, after: int) -> str:
    if before == after:
        return f"{before:,}"
    return f"{before:,} → {after:,} ({after - before:+,})"
