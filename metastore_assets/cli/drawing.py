"""The parts of a page that several commands draw."""

from __future__ import annotations

from collections.abc import Sequence

from metastore_assets.cli.output import Answer
from metastore_assets.cli.page import Page, Styled
from metastore_assets.report import text

CHART_HEIGHT = 12
"""Lines of a chart."""
_FEW_KEYS = 10
"""The number of partitions up to which a page names each of them."""
_FRESHNESS = {True: (", current", "green"), False: (", outdated", "yellow"), None: (", perhaps outdated", "yellow")}


def draw_table_heading(page: Page, answer: Answer) -> None:
    """Draw the table, its partition and predicate, its row count and whether the version is current."""
    subject = answer["uri"] if "uri" in answer else answer["table"]
    partition = f" {answer['partition']}" if answer.get("partition") is not None else ""
    where = f" where {answer['where']}" if "where" in answer else ""
    is_published = "version" in answer
    facts = [
        text.plural(answer["row_count"], "row"),
        *([f"version {answer['version']}"] if is_published else []),
        f"snapshot {short_snapshot(answer['snapshot'])}",
    ]
    words, style = _FRESHNESS[answer["current"]] if is_published else ("", "")
    page.line(
        Styled(text.printable(subject + partition + where), "bold"), "  " + ", ".join(facts), Styled(words, style)
    )


def draw_column_heading(page: Page, column: Answer) -> None:
    """Draw the name and type of a column and its counts of values, distinct values, nulls and NaN."""
    facts = [text.plural(column["value_count"], "value")]
    if column["distinct_count"] is not None:
        distinct = text.estimate(text.number(column["distinct_count"]), column["distinct_count_guarantee"])
        facts.append(f"{distinct} distinct")
    if column["null_count"]:
        facts.append(text.plural(column["null_count"], "null"))
    if column["nan_count"]:
        facts.append(f"{text.number(column['nan_count'])} NaN")
    page.line(
        Styled(text.printable(column["column"]), "bold"),
        Styled(f" {text.type_name(column['type'])}", "cyan"),
        "  " + ", ".join(facts),
    )


def draw_keys(page: Page, keys: Sequence[str], sign: str, style: str, *, every: bool) -> None:
    """Draw one line for each partition key; only the first and the last of many, unless `every` key is requested."""
    is_short = every or len(keys) <= _FEW_KEYS
    for key in keys if is_short else keys[:1]:
        page.line(Styled(f"  {sign} {text.printable(key)}", style))
    if not is_short:
        page.line(Styled(f"    … {len(keys) - 2:,} more (-v names all)", "dim"))
        page.line(Styled(f"  {sign} {text.printable(keys[-1])}", style))


def draw_hidden_columns(page: Page, headings: Sequence[str]) -> None:
    """Draw which columns of a grid did not fit, if there are any."""
    if headings:
        page.line(Styled(f"  not shown: {', '.join(headings)} (see --json)", "dim"))


def short_snapshot(snapshot: str) -> str:
    """Return a snapshot's id; of a long digest, the first 12 characters."""
    return text.printable(snapshot if len(snapshot) <= 20 else snapshot[:12])


def format_time(iso: str | None) -> str:
    """Return a UTC time in ISO 8601 as text, to the second."""
    return text.ABSENT if iso is None else iso[:19].replace("T", " ") + "Z"
