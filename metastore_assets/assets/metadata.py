"""Metadata of materializations, small enough for Dagster's event log."""

import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
from dagster import (
    AssetKey,
    MetadataValue,
    TableColumn,
    TableColumnConstraints,
    TableColumnDep,
    TableColumnLineage,
    TableSchema,
    serialize_value,
)

from metastore_assets.assets.names import Kind
from metastore_assets.lookup.json import column_to_json
from metastore_assets.report.facts import distinct_text, maximum_text, minimum_text, range_text, short_facts
from metastore_assets.report.markdown import fit_markdown, literal_markdown
from metastore_assets.report.picture import SMALL_COLUMNS, ColumnPicture, columns_markdown, small_picture
from metastore_assets.report.summary import ProfileSummary, select_informative_columns
from metastore_assets.report.text import format_number, format_type, format_user_defined, shorten
from metastore_assets.statistics.column import STATISTICS, ColumnStatistics
from metastore_assets.values.leaf_columns import leaf_columns
from metastore_assets.values.types import type_text

Metadata = Mapping[str, MetadataValue]  # type: ignore[type-arg]

VERSION = "version"
SNAPSHOT = "snapshot"
COMMITTED = "committed_at"
GLANCE = "glance"
PICTURE = "picture"
_FIRST = (GLANCE, PICTURE)
_LAST = ("dagster/uri", "files")
_DIGITS = 6
"""Significant digits of a displayed number."""

# Bytes of the parts of an event that grow with the table; the complete event stays below 50,000.
_SCHEMA = 13_000
_STATISTICS = 7_000
_PICTURE = 18_000
_USER_DEFINED = 3_000
_MEASURES = 2_500
_MEASURE = 90
"""Bytes of one number, without its name."""
_LINEAGE = 4_000
_CELL = 36
"""Characters of a cell: a UUID, or a time to the nanosecond."""
_LONG_CELL = 200
_DESCRIPTION = 120
"""Characters of a column's description."""


def partition_metadata(glance: ProfileSummary, title: str) -> Metadata:
    """Return the metadata of a partition: guarantees and a picture.

    Columns are left out, because an asset's page would show them as the table's columns.
    """
    return {
        "guarantee": MetadataValue.text(guarantee("statistics", glance.rows)),
        **_pictures("statistics", glance, title),
    }


def files_metadata(uri: str) -> Metadata:
    """Return the path of a partition's statistics. Its other files are in the same folder."""
    return {"files": MetadataValue.path(uri)}


def profile_metadata(
    kind: Kind, glance: ProfileSummary, title: str, uris: Sequence[str], schema: pa.Schema, ranked: Collection[str] = ()
) -> Metadata:
    """Return the metadata of one kind of file: path, guarantees and a picture. `ranked` are the columns with ranks."""
    metadata: dict[str, MetadataValue] = {}  # type: ignore[type-arg]
    if kind == "ranks":
        metadata["guarantee"] = MetadataValue.text(_ranks_guarantee(glance.rows, ranked))
    else:
        metadata["guarantee"] = MetadataValue.text(guarantee(kind, glance.rows))
        metadata.update(_pictures(kind, glance, title))
    if uris:
        metadata["dagster/uri"] = MetadataValue.text(uris[0])
    columns = fitting_schema(_schema_of_kind(kind, schema, glance, ranked), glance.rows if kind == "statistics" else ())
    if columns is not None:
        metadata["dagster/column_schema"] = MetadataValue.table_schema(columns)
    return metadata


def other_kinds_metadata(glance: ProfileSummary, ranked: Collection[str]) -> Metadata:
    """Return the metadata of the other kinds of files, for the single asset of a table."""
    metadata = {"frequencies": MetadataValue.text(guarantee("frequencies", glance.rows))}
    if ranked:
        metadata["ranks"] = MetadataValue.text(_ranks_guarantee(glance.rows, ranked))
    return metadata


def in_order(metadata: Metadata) -> Metadata:
    """Return the metadata in display order: pictures first, paths last."""
    names = [name for name in metadata if name not in (*_FIRST, *_LAST)]
    return {name: metadata[name] for name in (*_FIRST, *names, *_LAST) if name in metadata}


def rounded(value: int | float) -> MetadataValue:  # type: ignore[type-arg]
    """Round a float to the six significant digits that Dagster shows and plots."""
    return MetadataValue.int(value) if isinstance(value, int) else MetadataValue.float(float(f"{value:.{_DIGITS}g}"))


def fitting_schema(schema: pa.Schema, rows: Sequence[ColumnStatistics]) -> TableSchema | None:
    """Return `column_schema` if it is small enough for an event, if necessary without facts; otherwise nothing.

    A partial schema would look as if columns had been dropped.
    """
    for described in (rows, ()):
        columns = column_schema(schema, described)
        if len(serialize_value(columns)) <= _SCHEMA:
            return columns
    return None


def measured_metadata(rows: Sequence[ColumnStatistics]) -> Metadata:
    """Return numbers of the first columns, named like `amount/null_share`, so that Dagster plots and checks them."""
    told: dict[str, MetadataValue] = {}  # type: ignore[type-arg]
    room = _MEASURES
    for row in rows:
        own = _measures(row)
        room -= sum(len(json.dumps(name)) + _MEASURE for name in own)
        if room < 0:
            break
        told |= own
    return told


def _measures(row: ColumnStatistics) -> dict[str, MetadataValue]:  # type: ignore[type-arg]
    count = row.null_count + row.value_count
    found: dict[str, int | float | None] = {
        "null_share": row.null_count / count if count else None,
        "distinct_count": row.distinct_count,
        "mean": row.mean,
        "mean_length": row.mean_length,
    }
    return {
        f"{row.column}/{name}": rounded(value)
        for name, value in found.items()
        # JSON has no NaN and no infinities.
        if value is not None and math.isfinite(value)
    }


def lineage_metadata(schema: pa.Schema, source: AssetKey) -> Metadata:
    """Return the lineage of each column from the source's column of the same name; nothing for very many columns."""
    deps = {field.name: [TableColumnDep(source, field.name)] for field in schema}
    lineage = TableColumnLineage(deps)
    if len(serialize_value(lineage)) > _LINEAGE:
        return {}
    return {"dagster/column_lineage": MetadataValue.column_lineage(lineage)}


def column_schema(schema: pa.Schema, rows: Sequence[ColumnStatistics] = ()) -> TableSchema:
    """Return the table's columns with their Arrow types, described by the main facts of `rows`.

    Dagster renders descriptions as Markdown, and shows names and types literally.
    """
    described = {row.column: _described(row) for row in rows}
    return TableSchema(
        columns=[
            TableColumn(
                name=field.name,
                type=type_text(field.type),
                description=described.get(leaf_columns(field)[0].path),
                constraints=TableColumnConstraints(nullable=field.nullable),
            )
            for field in schema
        ]
    )


def picture(kind: Kind, glance: ProfileSummary, title: str) -> str:
    """Return the picture of a kind of file as Markdown; for statistics with a table of all columns."""
    columns = [own for column in glance.columns if (own := _of_kind(kind, column)) is not None]
    drawn = columns_markdown(title, columns, f"{kind} at a glance", _PICTURE)
    if kind != "statistics":
        return drawn
    tables = [statistics_markdown(glance.rows), user_defined_markdown(glance.rows)]
    return "\n\n".join([drawn, *(table for table in tables if table)])


def statistics_markdown(rows: Sequence[ColumnStatistics]) -> str:
    """Return the main numbers of the columns as a Markdown table; of the first columns if there are too many."""
    head = f"| {' | '.join(STATISTICS[name].label for name in _CELLS)} |\n|---|---|--:|--:|--:|--:|--:|"
    lines = [_markdown_row(row) for row in rows]

    def build(count: int) -> str:
        rest = len(lines) - count
        return "\n".join([head, *lines[:count], *([f"\n{format_number(rest)} more columns"] if rest else [])])

    return fit_markdown(build, len(lines), _STATISTICS)


def user_defined_markdown(rows: Sequence[ColumnStatistics]) -> str:
    """Return the user-defined statistics of the columns as a Markdown table; empty if there are none."""
    lines = [
        f"| {literal_markdown(row['column'], _CELL)} | {literal_markdown(name, _CELL)} "
        f"| {literal_markdown(format_user_defined(told), _LONG_CELL)} |"
        for row in map(column_to_json, (row for row in rows if row.user_defined))
        for name, told in row["user_defined"].items()
    ]

    def build(count: int) -> str:
        rest = len(lines) - count
        return "\n".join(
            [
                "| column | statistic | value |\n|---|---|---|",
                *lines[:count],
                *([f"\n{format_number(rest)} more"] if rest else []),
            ]
        )

    return fit_markdown(build, len(lines), _USER_DEFINED) if lines else ""


def guarantee(kind: Kind, rows: Sequence[ColumnStatistics]) -> str:
    """Return the guarantee of the numbers in one kind of file, with exceptions by name."""
    if kind == "frequencies":
        named = {
            "repeated values are listed": _where(rows, lambda row: row.frequencies == "repeated"),
            "estimated, not listed": _where(rows, lambda row: row.frequencies == "estimated"),
            "off": _where(rows, lambda row: row.frequencies == "off"),
        }
        listed = sum(row.frequencies == "enumerated" for row in rows)
        return _with_exceptions(f"exact: {listed} of {len(rows)} columns are listed", named)
    if kind == "histograms":
        return "exact"
    return _with_exceptions(
        "exact",
        {
            "distinct_count is an estimate": _where(rows, _is_estimated),
            "percentiles are estimates": _where(rows, lambda row: row.percentiles_guarantee == "estimate"),
            "minimum or maximum is a bound": _where(
                rows,
                lambda row: (
                    (row.minimum is not None and not row.minimum_exact)
                    or (row.maximum is not None and not row.maximum_exact)
                ),
            ),
            "counts only": _where(rows, lambda row: row.reason is not None),
        },
    )


def _described(row: ColumnStatistics) -> str:
    return literal_markdown(" · ".join(part for part in (*short_facts(row), range_text(row)) if part), _DESCRIPTION)


def _is_estimated(row: ColumnStatistics) -> bool:
    return row.distinct_count_guarantee == "estimate"


def _where(rows: Sequence[ColumnStatistics], matches: Callable[[ColumnStatistics], bool]) -> list[str]:
    return [row.column for row in rows if matches(row)]


def _with_exceptions(word: str, exceptions: Mapping[str, Sequence[str]]) -> str:
    told = []
    for what, columns in exceptions.items():
        if columns:
            told.append(f"{what}: {_format_columns(columns)}")
    return "; ".join([word, *told])


def _format_columns(columns: Iterable[str]) -> str:
    first, rest = (named := list(columns))[:4], len(named) - 4
    return ", ".join(shorten(column, 60) for column in first) + (f" and {rest} more" if rest > 0 else "")


def _ranks_guarantee(rows: Sequence[ColumnStatistics], ranked: Collection[str]) -> str:
    names = _format_columns(row.column for row in rows if row.column in ranked)
    return f"exact ranks and quantiles: {names}" if names else "no column"


def _pictures(kind: Kind, glance: ProfileSummary, title: str) -> Metadata:
    """Return the picture, preceded by a small one that Dagster shows without a click."""
    columns = [own for column in glance.columns if (own := _of_kind(kind, column)) is not None]
    best = {row.column for row in select_informative_columns(glance.rows, SMALL_COLUMNS)}
    small = small_picture(sorted(columns, key=lambda column: column.name not in best), kind)
    shown = {GLANCE: MetadataValue.md(small)} if small else {}
    return {**shown, PICTURE: MetadataValue.md(picture(kind, glance, title))}


def _schema_of_kind(kind: Kind, schema: pa.Schema, glance: ProfileSummary, ranked: Collection[str]) -> pa.Schema:
    """Return the columns that a kind of file contains, in the table's order."""
    if kind == "statistics":
        return schema
    if kind == "histograms":
        names = set(glance.histograms)
    elif kind == "ranks":
        names = set(ranked)
    else:
        names = {row.column for row in glance.rows if row.frequencies in ("enumerated", "repeated")}
    return pa.schema([field for field in schema if any(leaf.path in names for leaf in leaf_columns(field))])


def _of_kind(kind: Kind, column: ColumnPicture) -> ColumnPicture | None:
    if kind == "statistics":
        return column
    if kind == "histograms":
        return replace(column, top=()) if column.bins else None
    return replace(column, bins=(), percentiles=()) if column.top else None


def _markdown_row(row: ColumnStatistics) -> str:
    return "| " + " | ".join(literal_markdown(cell(row), _CELL) for cell in _CELLS.values()) + " |"


_CELLS: Mapping[str, Callable[[ColumnStatistics], str]] = {
    "column": lambda row: row.column,
    "type": lambda row: format_type(row.type),
    "null_count": lambda row: format_number(row.null_count),
    "distinct_count": distinct_text,
    "minimum": minimum_text,
    "maximum": maximum_text,
    "mean": lambda row: "" if row.mean is None else format_number(row.mean),
}
"""The cells of the Markdown table, by statistic."""
