"""The HTML page of the report, with a header and sections.

The sections are on columns, changes, partitions, clustering and versions. A version is the published statistics of a
table at one snapshot.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from metastore_assets.errors import MissingPackageError
from metastore_assets.history import distinct_versions, read_history
from metastore_assets.lookup import Table
from metastore_assets.lookup.diff import TableDiff
from metastore_assets.markup.charts import bars, share_bar
from metastore_assets.markup.elements import Markup, Part, joined, table, tag, to_html
from metastore_assets.report import text
from metastore_assets.report.html.column_details import change_rows, column_details
from metastore_assets.report.html.stylesheet import SCRIPT, STYLE
from metastore_assets.store.version import PartitionEntry

_LISTED_PARTITIONS = 200
_LISTED_VERSIONS = 50
_LISTED_COLUMNS = 50
_VERDICT_CLASSES = {"clustered": "good", "partly": "fair", "scattered": "bad"}
_BARS = 240
_TRENDED = 50
"""The number of versions in the trend of each column."""


def report_page(
    lookup: Table,
    against: Table | None = None,
    *,
    is_current: bool | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> str:
    """Return the report about a version of a table as a complete HTML page.

    Args:
        lookup: The table, opened at the version.
        against: The table, opened at an earlier version. The report then has a section on the changes since.
        is_current: Whether the version describes the table's current snapshot; None if unknown.
        progress: Called with the number of finished columns and the number of all columns.

    Raises:
        StoreError: Files of the version cannot be read.
    """
    version = lookup.version
    diff = None if against is None else lookup.diff(against)
    history, note = _read_column_history(lookup)
    by_column: dict[str, list[Mapping[str, Any]]] = {}
    for record in history:
        by_column.setdefault(record["field_id"], []).append(record)
    changes = {column.column: column for column in diff.columns if column.after is not None} if diff else {}
    rows = lookup.statistics()
    columns = []
    for number, row in enumerate(rows):
        progress(number, len(rows))
        records = by_column.get(row.field_id, [])[-_TRENDED:]
        columns.append(column_details(lookup, row, records, changes.get(row.column)))
    sections = [
        _columns_section(columns, has_changes=diff is not None),
        *_changes_section(diff),
        _partitions_section(lookup),
        *_clustering_section(lookup),
        _versions_section(lookup, note),
    ]
    published_time = _format_time(version.published_at)
    footer = f"version {version.number:,}, published {published_time}; ~ marks estimates, ≥ and ≤ bounds"
    body = [_header(lookup, is_current), tag("main", *sections), tag("footer", footer)]
    return _document(f"{version.table} · version {version.number}", joined(body))


def _document(title: str, body: Markup) -> str:
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    # The policy allows no requests and no other scripts, even if a name or a value contained some.
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1"><meta name="color-scheme" '
        f'content="light dark"><title>{to_html(title)}</title><style>{STYLE}</style></head>'
        f"<body>{body.html}<script>{SCRIPT}</script></body></html>\n"
    )


def _header(lookup: Table, is_current: bool | None) -> Markup:
    version = lookup.version
    facts = [
        ("rows", text.format_number(version.row_count)),
        ("size", text.format_size(version.bytes)),
        ("columns", text.format_number(len(version.schema))),
        ("partitions", text.format_number(len(version.partitions))),
        ("fragments", text.format_number(version.fragment_count)),
        ("format", version.format),
        ("snapshot", text.shorten(version.snapshot, 24)),
        *([("committed", _format_time(version.committed_at))] if version.committed_at else []),
    ]
    state = {True: ("current", "good"), False: ("outdated: the table has moved on", "fair"), None: None}[is_current]
    badge = [] if state is None else [tag("span", state[0], class_=f"badge {state[1]}")]
    entries = (tag("div", tag("dt", name), tag("dd", shown_value)) for name, shown_value in facts)
    return tag("header", tag("h1", version.table, *badge), tag("dl", *entries))


def _columns_section(columns: Sequence[Markup], *, has_changes: bool) -> Markup:
    orders = [("position", "table order"), ("name", "name"), ("nulls", "most nulls"), ("distinct", "most distinct")]
    orders += [("shift", "most shifted")] if has_changes else []
    options = (tag("option", label, value=value) for value, label in orders)
    controls = tag(
        "div",
        Markup('<input id="search" type="search" placeholder="find a column" aria-label="find a column">'),
        tag("select", *options, id="order", aria_label="order of columns"),
        tag("button", "open all", id="open", type="button"),
        tag("span", f"{len(columns):,} columns", id="shown", class_="dim"),
        class_="controls",
    )
    return tag("section", tag("h2", "Columns"), controls, tag("div", *columns, id="columns"))


def _changes_section(diff: TableDiff | None) -> list[Part]:
    """Return the section on the changes since an older version.

    The list is empty if there is no `diff`.
    """
    if diff is None:
        return []
    before = diff.before
    name = f"version {before.version:,}"
    if diff.tables[0] != diff.tables[1]:
        name = f"table {diff.tables[0]}, {name}"
    parts: list[Part] = [tag("h2", f"Changes since {name}")]
    sizes = " → ".join(map(text.format_size, diff.bytes))
    parts.append(tag("p", f"rows {text.format_count_change(*diff.row_count)}; size {sizes}"))
    if diff.partitions is not None:
        counts = ", ".join(f"{count:,} {change}" for change, count in vars(diff.partitions).items() if count)
        parts.append(tag("p", f"partitions: {counts or 'none'}"))
    changed_rows = change_rows(diff.columns)
    if changed_rows:
        names = ("column", "nulls", "distinct", "PSI", "KS", "JS", "over")
        parts.append(table([(name, name not in ("column", "over")) for name in names], changed_rows))
    same = sum(column.change == "same" for column in diff.columns)
    if same:
        parts.append(tag("p", f"{text.format_count(same, 'column')} the same", class_="dim"))
    return [tag("section", *parts)]


def _partitions_section(lookup: Table) -> Markup:
    """Return a section with charts of rows and bytes by partition, and a list of at most 200 partitions.

    A single partition has no charts.
    """
    entries = sorted(lookup.partitions(), key=lambda entry: entry.key)
    parts: list[Part] = [tag("h2", "Partitions"), tag("p", f"{len(entries):,}, in the order of their keys")]
    if len(entries) > 1:
        row_counts, sizes = [entry.row_count for entry in entries], [entry.bytes for entry in entries]
        for name, counts in (("rows", row_counts), ("bytes", sizes)):
            sums = _merge_neighbours(counts)
            per = (
                f" of {text.format_count(-(-len(counts) // _BARS), 'partition')} a bar"
                if len(sums) < len(counts)
                else ""
            )
            maximum = text.format_size(max(sums)) if name == "bytes" else text.format_number(max(sums))
            caption = tag("figcaption", tag("small", f"{name}{per}, at most "), maximum)
            parts.append(tag("figure", bars(sums, f"{name} by partition", "bars wide"), caption))
        parts.append(tag("p", tag("small", entries[0].key), tag("small", entries[-1].key), class_="ends"))
    head, tail = entries, list[PartitionEntry]()
    if len(entries) > _LISTED_PARTITIONS:
        head, tail = entries[: _LISTED_PARTITIONS // 2], entries[-_LISTED_PARTITIONS // 2 :]
    headings = [("partition", False), ("rows", True), ("size", True), ("fragments", True), ("version", True)]
    rows = list(map(_partition_row, head))
    if tail:
        gap = f"{len(entries) - len(head) - len(tail):,} more"
        rows += [[tag("i", gap), "", "", "", ""], *map(_partition_row, tail)]
    element = table(headings, rows)
    parts.append(tag("details", tag("summary", "list"), element) if len(entries) > 12 else element)
    return tag("section", *parts)


def _partition_row(entry: PartitionEntry) -> list[Part]:
    numbers = (text.format_number(count) for count in (entry.fragments, entry.version))
    return [text.shorten(entry.key, 120), text.format_number(entry.row_count), text.format_size(entry.bytes), *numbers]


def _clustering_section(lookup: Table) -> list[Part]:
    """Return a section that lists up to 50 columns, from best to worst clustered.

    A column is well clustered if few files may have the same value of it. Columns with unknown clustering, or with few
    values, are left out. The result is [] if no columns remain, or if the version has no index.
    """
    if lookup.version.index is None:
        return []
    columns = [column for column in lookup.clustering() if column.verdict not in ("unknown", "few values")]
    columns.sort(key=lambda column: (column.depth or 0, column.column))
    rows: list[list[Part]] = [
        [
            column.column,
            f"{column.depth:,.1f}",
            f"{column.skipped or 0:.0%}",
            share_bar(column.skipped or 0, 1),
            tag("span", column.verdict, class_=_VERDICT_CLASSES.get(column.verdict, "dim")),
        ]
        for column in columns[:_LISTED_COLUMNS]
    ]
    if not rows:
        return []
    explanation = (
        f"How many of the {lookup.version.fragment_count:,} files may have a value, by the files' minima and maxima, "
        "and the share of files that a query for it skips. If queries filter by a scattered column, order, cluster or "
        "partition the table by it."
    )
    headings = [("column", False), ("in files", True), ("skips", True), ("", False), ("", False)]
    return [tag("section", tag("h2", "Clustering"), tag("p", explanation, class_="dim"), table(headings, rows))]


def _versions_section(lookup: Table, note: str | None) -> Markup:
    """Return the section on the table's versions: a note, a chart of row counts, and the newest versions.

    Without a note (None), the section begins with the chart.
    """
    try:
        records = distinct_versions(read_history(lookup.versions, lookup.version.number)).to_pylist()
    except MissingPackageError:
        records = []
    parts: list[Part] = [tag("h2", "Versions")]
    if note is not None:
        parts.append(tag("p", note, class_="note"))
    if len(records) > 1:
        row_counts = [record["row_count"] for record in records[-_BARS:]]
        span = f"versions {records[-len(row_counts) :][0]['version']:,} to {records[-1]['version']:,}, at most "
        caption = tag("figcaption", tag("small", f"rows, {span}"), text.format_number(max(row_counts)))
        parts.append(tag("figure", bars(row_counts, "rows by version", "bars wide"), caption))
    names = ("version", "published", "snapshot", "rows", "size", "partitions", "fragments")
    rows = [
        [
            text.format_number(record["version"]),
            _format_time(record["published_at"]),
            text.shorten(record["snapshot"], 24),
            text.format_number(record["row_count"]),
            text.format_size(record["bytes"]),
            text.format_number(record["partitions"]),
            text.format_number(record["fragments"]),
        ]
        for record in reversed(records[-_LISTED_VERSIONS:])
    ]
    headings = [(name, name not in ("published", "snapshot")) for name in names]
    parts.append(table(headings, rows))
    if len(records) > _LISTED_VERSIONS:
        parts.append(tag("p", f"the last {_LISTED_VERSIONS} of {len(records):,}", class_="dim"))
    return tag("section", *parts)


def _read_column_history(lookup: Table) -> tuple[list[dict[str, Any]], str | None]:
    """Return (rows of the history table, None) or, if they cannot be read, ([], reason)."""
    fields = ["version", "field_id", "null_count", "value_count", "distinct_count", "mean"]
    try:
        return read_history(lookup.versions, lookup.version.number).select(fields).to_pylist(), None
    except MissingPackageError as error:
        return [], str(error)


def _merge_neighbours(counts: Sequence[int]) -> list[int]:
    """Replace each group of neighbouring counts by its sum, so that at most `_BARS` sums are left."""
    step = max(1, -(-len(counts) // _BARS))
    return [sum(counts[start : start + step]) for start in range(0, len(counts), step)]


def _format_time(time: datetime | None) -> str:
    return text.ABSENT if time is None else f"{time:%Y-%m-%d %H:%M:%S}Z"
