"""The complete report: the table, its columns, its partitions, its versions, and what changed."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from metastore_assets.errors import MissingPackageError
from metastore_assets.history import distinct_versions, read_history
from metastore_assets.lookup import Table
from metastore_assets.lookup.diff import TableDiff
from metastore_assets.report import text
from metastore_assets.report.html.charts import bars
from metastore_assets.report.html.clustering import clustering_section
from metastore_assets.report.html.columns import change_rows, column_entry
from metastore_assets.report.html.looks import SCRIPT, STYLE
from metastore_assets.report.html.markup import Markup, Part, joined, markup, table, tag
from metastore_assets.store.manifest import PartitionEntry

_LISTED_PARTITIONS = 200
_LISTED_VERSIONS = 50
_BARS = 240
_TRENDED = 50
"""Number of versions in the trend of each column."""


def report_page(lookup: Table, against: Table | None = None, *, is_current: bool | None = None) -> str:
    """Return the report about a version as HTML, with the changes since another version if one is given.

    Raises StoreError.
    """
    version = lookup.version
    found = None if against is None else lookup.diff(against)
    history, note = _history(lookup)
    by_column: dict[str, list[Mapping[str, Any]]] = {}
    for record in history:
        by_column.setdefault(record["field_id"], []).append(record)
    changes = {own.name: own for own in found.columns if own.after is not None} if found else {}
    rows = lookup.statistics()
    columns = [
        column_entry(lookup, row, by_column.get(row.field_id, [])[-_TRENDED:], changes.get(row.column)) for row in rows
    ]
    body = [
        _header(lookup, is_current),
        tag("main", _columns(columns, has_changes=found is not None), *_changed(found), _partitions(lookup),
            *clustering_section(lookup), _versions(lookup, note)),
        tag("footer", f"version {version.number:,}, published {_moment(version.published_at)}; ~ marks estimates, "
            "≥ and ≤ bounds"),
    ]  # fmt: skip
    return _document(f"{version.table} · version {version.number}", joined(body))


def _document(title: str, body: Markup) -> str:
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    # The policy allows no requests and no other script, whatever the table's names and values contain.
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1"><meta name="color-scheme" '
        f'content="light dark"><title>{markup(title)}</title><style>{STYLE}</style></head>'
        f"<body>{body.html}<script>{SCRIPT}</script></body></html>\n"
    )


def _header(lookup: Table, is_current: bool | None) -> Markup:
    version = lookup.version
    facts = [
        ("rows", text.number(version.row_count)),
        ("size", text.size(version.bytes)),
        ("columns", text.number(len(version.schema))),
        ("partitions", text.number(len(version.partitions))),
        ("fragments", text.number(version.fragment_count)),
        ("format", version.format),
        ("snapshot", text.short(version.snapshot, 24)),
        *([("committed", _moment(version.committed_at))] if version.committed_at else []),
    ]
    state = {True: ("current", "good"), False: ("outdated: the table has moved on", "fair"), None: None}[is_current]
    badge = [] if state is None else [tag("span", state[0], class_=f"badge {state[1]}")]
    entries = (tag("div", tag("dt", name), tag("dd", shown)) for name, shown in facts)
    return tag("header", tag("h1", version.table, *badge), tag("dl", *entries))


def _columns(columns: Sequence[Markup], *, has_changes: bool) -> Markup:
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


def _changed(found: TableDiff | None) -> list[Part]:
    if found is None:
        return []
    before, after = found.before, found.after
    name = f"version {before.version:,}"
    if found.tables[0] != found.tables[1]:
        name = f"table {found.tables[0]}, {name}"
    parts: list[Part] = [tag("h2", f"Changes since {name}")]
    rows = f"rows {_moved(*found.row_count)}; size {text.size(found.bytes[0])} → {text.size(found.bytes[1])}"
    parts.append(tag("p", rows))
    if found.partitions is not None:
        told = ", ".join(f"{count:,} {what}" for what, count in vars(found.partitions).items() if count)
        parts.append(tag("p", f"partitions: {told or 'none'}"))
    changed = change_rows(found.columns)
    if changed:
        names = ("column", "nulls", "distinct", "PSI", "KS", "JS", "over")
        parts.append(table([(own, own not in ("column", "over")) for own in names], changed))
    same = sum(own.change == "same" for own in found.columns)
    if same:
        parts.append(tag("p", f"{text.plural(same, 'column')} the same", class_="dim"))
    assert after.version
    return [tag("section", *parts)]


def _partitions(lookup: Table) -> Markup:
    entries = sorted(lookup.partitions(), key=lambda entry: entry.key)
    parts: list[Part] = [tag("h2", "Partitions"), tag("p", f"{len(entries):,}, in the order of their keys")]
    if len(entries) > 1:
        for name, sizes in (("rows", [own.row_count for own in entries]), ("bytes", [own.bytes for own in entries])):
            drawn = _fewer(sizes)
            per = f" of {text.plural(-(-len(sizes) // _BARS), 'partition')} a bar" if len(drawn) < len(sizes) else ""
            most = text.size(max(drawn)) if name == "bytes" else text.number(max(drawn))
            caption = tag("figcaption", tag("small", f"{name}{per}, at most "), most)
            parts.append(tag("figure", bars(drawn, f"{name} by partition", "bars wide"), caption))
        parts.append(tag("p", tag("small", entries[0].key), tag("small", entries[-1].key), class_="ends"))
    head, tail = entries, list[PartitionEntry]()
    if len(entries) > _LISTED_PARTITIONS:
        head, tail = entries[: _LISTED_PARTITIONS // 2], entries[-_LISTED_PARTITIONS // 2 :]
    headings = [("partition", False), ("rows", True), ("size", True), ("fragments", True), ("version", True)]
    listed = [_partition(own) for own in head]
    if tail:
        gap = f"{len(entries) - len(head) - len(tail):,} more"
        listed += [[tag("i", gap), "", "", "", ""], *map(_partition, tail)]
    whole = table(headings, listed)
    parts.append(tag("details", tag("summary", "list"), whole) if len(entries) > 12 else whole)
    return tag("section", *parts)


def _partition(entry: PartitionEntry) -> list[Part]:
    numbers = (text.number(own) for own in (entry.fragments, entry.version))
    return [text.short(entry.key, 120), text.number(entry.row_count), text.size(entry.bytes), *numbers]


def _versions(lookup: Table, note: str | None) -> Markup:
    try:
        records = distinct_versions(read_history(lookup.versions, lookup.version.number)).to_pylist()
    except MissingPackageError:
        records = []
    parts: list[Part] = [tag("h2", "Versions")]
    if note is not None:
        parts.append(tag("p", note, class_="note"))
    if len(records) > 1:
        drawn = [own["row_count"] for own in records[-_BARS:]]
        span = f"versions {records[-len(drawn) :][0]['version']:,} to {records[-1]['version']:,}, at most "
        caption = tag("figcaption", tag("small", f"rows, {span}"), text.number(max(drawn)))
        parts.append(tag("figure", bars(drawn, "rows by version", "bars wide"), caption))
    names = ("version", "published", "snapshot", "rows", "size", "partitions", "fragments")
    listed = [
        [
            text.number(own["version"]),
            _moment(own["published_at"]),
            text.short(own["snapshot"], 24),
            text.number(own["row_count"]),
            text.size(own["bytes"]),
            text.number(own["partitions"]),
            text.number(own["fragments"]),
        ]
        for own in reversed(records[-_LISTED_VERSIONS:])
    ]
    headings = [(name, name not in ("published", "snapshot")) for name in names]
    parts.append(table(headings, listed))
    if len(records) > _LISTED_VERSIONS:
        parts.append(tag("p", f"the last {_LISTED_VERSIONS} of {len(records):,}", class_="dim"))
    return tag("section", *parts)


def _history(lookup: Table) -> tuple[list[dict[str, Any]], str | None]:
    """Return the history's rows of the latest versions, or the reason why there are none."""
    wanted = ["version", "field_id", "null_count", "value_count", "distinct_count", "mean"]
    try:
        return read_history(lookup.versions, lookup.version.number).select(wanted).to_pylist(), None
    except MissingPackageError as error:
        return [], str(error)


def _fewer(sizes: Sequence[int]) -> list[int]:
    """Add up neighbours until there are at most `_BARS`."""
    step = max(1, -(-len(sizes) // _BARS))
    return [sum(sizes[at : at + step]) for at in range(0, len(sizes), step)]


def _moved(before: int, after: int) -> str:
    return f"{after:,}" if before == after else f"{before:,} → {after:,} ({after - before:+,})"


def _moment(moment: datetime | None) -> str:
    return text.ABSENT if moment is None else f"{moment:%Y-%m-%d %H:%M:%S}Z"
