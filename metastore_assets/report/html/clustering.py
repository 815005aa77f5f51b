"""The section of the report about clustering: how well columns skip files."""

from __future__ import annotations

from metastore_assets.lookup import Table
from metastore_assets.report.html.charts import share_bar
from metastore_assets.report.html.markup import Part, table, tag

_KINDS = {"clustered": "good", "partly": "fair", "scattered": "bad"}
_SHOWN = 50


def clustering_section(lookup: Table) -> list[Part]:
    """Return a table of the columns with bounds, the best first; empty for a table of few files."""
    if lookup.version.index is None:
        return []
    known = [own for own in lookup.clustering() if own.verdict not in ("unknown", "few values")]
    known.sort(key=lambda own: (own.depth or 0, own.column))
    rows: list[list[Part]] = [
        [
            own.column,
            f"{own.depth:,.1f}",
            f"{own.skipped or 0:.0%}",
            share_bar(own.skipped or 0, 1),
            tag("span", own.verdict, class_=_KINDS.get(own.verdict, "dim")),
        ]
        for own in known[:_SHOWN]
    ]
    if not rows:
        return []
    told = (
        f"In how many of {lookup.version.fragment_count:,} files a value lies, by their bounds, and how many a query "
        "for it skips. A scattered column that queries filter by is one to order, cluster or partition the table by."
    )
    heads = [("column", False), ("in files", True), ("skips", True), ("", False), ("", False)]
    return [tag("section", tag("h2", "Layout"), tag("p", told, class_="dim"), table(heads, rows))]
