"""Headings, lists, bars and charts that several commands draw."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from metastore_assets.cli.output import Answer, Page, Styled
from metastore_assets.report import text

CHART_HEIGHT = 12
"""Height of a chart in lines."""
_FEW_KEYS = 10
"""The number of partition keys up to which a page lists all of them."""
_BLOCKS = " ▁▂▃▄▅▆▇█"
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_FRESHNESS = {True: (", current", "green"), False: (", outdated", "yellow"), None: (", perhaps outdated", "yellow")}


def draw_table_heading(page: Page, answer: Answer) -> None:
    """Draw a line with table, partition, predicate, row count, and whether the version is current."""
    subject = answer["uri"] if "uri" in answer else answer["table"]
    partition = f" {answer['partition']}" if answer.get("partition") is not None else ""
    where = f" where {answer['where']}" if "where" in answer else ""
    is_published = "version" in answer
    facts = [
        text.format_count(answer["row_count"], "row"),
        *([f"version {answer['version']}"] if is_published else []),
        f"snapshot {short_snapshot(answer['snapshot'])}",
    ]
    freshness, style = _FRESHNESS[answer["current"]] if is_published else ("", "")
    page.line(
        Styled(text.make_printable(subject + partition + where), "bold"),
        "  " + ", ".join(facts),
        Styled(freshness, style),
    )


def draw_column_heading(page: Page, column: Answer) -> None:
    """Draw a line with a column's name, type, and counts of values, distinct values, nulls and NaN."""
    facts = [text.format_count(column["value_count"], "value")]
    if column["distinct_count"] is not None:
        distinct_text = text.mark_estimate(
            text.format_number(column["distinct_count"]), column["distinct_count_guarantee"]
        )
        facts.append(f"{distinct_text} distinct")
    if column["null_count"]:
        facts.append(text.format_count(column["null_count"], "null"))
    if column["nan_count"]:
        facts.append(f"{text.format_number(column['nan_count'])} NaN")
    page.line(
        Styled(text.make_printable(column["column"]), "bold"),
        Styled(f" {text.format_type(column['type'])}", "cyan"),
        "  " + ", ".join(facts),
    )


def draw_keys(page: Page, keys: Sequence[str], sign: str, style: str, *, verbose: bool) -> None:
    """Draw a line for each partition key.

    Without `verbose`, more than ten keys are reduced to the first and the last.

    Args:
        page: The page to draw on.
        keys: The keys.
        sign: The sign before each key, such as `+`.
        style: The style of a line.
        verbose: Whether to draw all keys.
    """
    shows_all = verbose or len(keys) <= _FEW_KEYS
    for key in keys if shows_all else keys[:1]:
        page.line(Styled(f"  {sign} {text.make_printable(key)}", style))
    if not shows_all:
        page.line(Styled(f"    … {len(keys) - 2:,} more (-v names all)", "dim"))
        page.line(Styled(f"  {sign} {text.make_printable(keys[-1])}", style))


def draw_hidden_columns(page: Page, headings: Sequence[str]) -> None:
    """Draw a line that names the columns that a grid omits because the page is too narrow.

    If the grid omits no column, nothing is drawn.
    """
    if headings:
        for line in wrap(f"not shown: {', '.join(headings)} (see --json)", page.width, 2):
            page.line(Styled(f"  {line}", "dim"))


def wrap(sentence: str, width: int | None, indentation: int) -> list[str]:
    """Wrap a sentence to lines.

    Args:
        sentence: The sentence.
        width: The width of the page; None for a single line of any length.
        indentation: The number of cells by which the caller will indent each line.
    """
    return [sentence] if width is None else textwrap.wrap(sentence, max(20, width - indentation))


def short_snapshot(snapshot: str) -> str:
    """Return a snapshot's id, shortened to 12 characters if it has more than 20; `–` if there is none."""
    return text.make_printable(snapshot if len(snapshot) <= 20 else snapshot[:12]) or text.ABSENT


def format_time(iso: str | None) -> str:
    """Format a time as `2024-01-31 08:00:00Z`, without fractions of seconds; `–` for None.

    Args:
        iso: An ISO 8601 text. The caller passes times in UTC only.
    """
    return text.ABSENT if iso is None else iso[:19].replace("T", " ") + "Z"


def bar(part: float, total: float, width: int) -> str:
    """Return a horizontal bar of block characters for the share `part / total`.

    Args:
        part: The value of the bar; any positive value is visible.
        total: The value of a bar of full width.
        width: The full width in terminal cells.
    """
    if part <= 0 or total <= 0:
        return ""
    eighths = max(1, round(part / total * width * 8))
    full_cells, remainder = divmod(eighths, 8)
    return "█" * full_cells + (_EIGHTHS[remainder] if remainder else "")


def sparkline(counts: Sequence[int]) -> str:
    """Return a line of vertical bars, one terminal cell for each count: ` ▁▄█`.

    Only zero is blank.
    """
    maximum = max(counts, default=0)
    return "".join(_BLOCKS[_bar_height(count, maximum, 8)] for count in counts)


def chart(counts: Sequence[int], height: int) -> list[str]:
    """Return a chart with a vertical bar for each count, as `height` lines from top to bottom.

    Each bar is one terminal cell wide. Even the least count above zero is visible.
    """
    maximum = max(counts, default=0)
    levels = [_bar_height(count, maximum, 8 * height) for count in counts]
    return ["".join(_BLOCKS[min(8, max(0, level - 8 * row))] for level in levels) for row in range(height - 1, -1, -1)]


def _bar_height(count: int, maximum: int, full_height: int) -> int:
    """Return the height of a bar in eighths of a cell.

    `full_height` is the height for `maximum`.
    """
    return max(1, round(count / maximum * full_height)) if count > 0 else 0
