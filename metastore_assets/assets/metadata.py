"""Metadata of materializations, limited in size for Dagster's event log.

A guarantee says whether a number is exact, a bound or an estimate. Table-level files contain the profile of the whole
table: statistics, value frequencies, histograms and ranks.
"""

import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

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
from metastore_assets.values.columns import field_columns
from metastore_assets.values.types import type_text

Metadata = Mapping[str, MetadataValue]  # type: ignore[type-arg]

VERSION = "version"
SNAPSHOT = "snapshot"
COMMITTED = "committed_at"
SMALL_PICTURE = "summary"
PICTURE = "picture"
_FIRST = (SMALL_PICTURE, PICTURE)
_LAST = ("dagster/uri", "files")
_DIGITS = 6
"""The significant digits of a displayed number."""

# The maximum bytes of the parts of an event whose size depends on the table. The complete event has less than 50,000.
_SCHEMA_BYTES = 13_000
_STATISTICS_BYTES = 7_000
_PICTURE_BYTES = 18_000
_USER_DEFINED_BYTES = 3_000
_MEASURES_BYTES = 2_500
_MEASURE_BYTES = 90
"""The estimated bytes of one number in an event, without the number's name."""
_LINEAGE_BYTES = 4_000
_CELL = 36
"""The maximum characters of a cell: a UUID, or a time to the nanosecond."""
_LONG_CELL = 200
_DESCRIPTION = 120
"""The maximum characters of a column's description."""


@dataclass(frozen=True)
class TableDescription:
    """The data from which the metadata of a table's assets is built."""

    summary: ProfileSummary
    title: str
    """The title of pictures."""
    schema: pa.Schema
    """The columns of the table."""
    ranked: Collection[str] = ()
    """The columns with ranks."""


def partition_metadata(summary: ProfileSummary, title: str) -> Metadata:
    """Return the metadata of a partition: guarantees and pictures.

    A column schema is left out, because the asset's page would show it as the schema of the whole table.

    Args:
        summary: The summary of the partition.
        title: The title of pictures.
    """
    return {
        "guarantee": MetadataValue.text(guarantee("statistics", summary.rows)),
        **_pictures("statistics", summary, title),
    }


def files_metadata(uri: str) -> Metadata:
    """Return the metadata entry `files` of a partition: the URI of its statistics file."""
    return {"files": MetadataValue.path(uri)}


def profile_metadata(kind: Kind, table: TableDescription, uris: Sequence[str]) -> Metadata:
    """Return the metadata of one kind of table-level file: guarantees, pictures, path and columns.

    Args:
        kind: The kind of file.
        table: The description of the table.
        uris: The URIs of the files of that kind. Only the first becomes metadata.
    """
    summary = table.summary
    metadata: dict[str, MetadataValue] = {}  # type: ignore[type-arg]
    if kind == "ranks":
        metadata["guarantee"] = MetadataValue.text(_ranks_guarantee(summary.rows, table.ranked))
    else:
        metadata["guarantee"] = MetadataValue.text(guarantee(kind, summary.rows))
        metadata.update(_pictures(kind, summary, table.title))
    if uris:
        metadata["dagster/uri"] = MetadataValue.text(uris[0])
    columns = fitting_schema(_schema_of_kind(kind, table), summary.rows if kind == "statistics" else ())
    if columns is not None:
        metadata["dagster/column_schema"] = MetadataValue.table_schema(columns)
    return metadata


def other_kinds_metadata(table: TableDescription) -> Metadata:
    """Return the guarantees of the table's frequencies and, if it has ranks, of its ranks.

    With `outputs: table`, one asset stands for all kinds of files. It gets these guarantees in addition to that of its
    statistics. With `outputs: kinds`, each kind has an asset, whose guarantee `profile_metadata` returns.
    """
    metadata = {"frequencies": MetadataValue.text(guarantee("frequencies", table.summary.rows))}
    if table.ranked:
        metadata["ranks"] = MetadataValue.text(_ranks_guarantee(table.summary.rows, table.ranked))
    return metadata


def sort_metadata(metadata: Metadata) -> Metadata:
    """Return the metadata in the order in which Dagster shows it: pictures first, paths last."""
    names = [name for name in metadata if name not in (*_FIRST, *_LAST)]
    return {name: metadata[name] for name in (*_FIRST, *names, *_LAST) if name in metadata}


def rounded_metadata(value: int | float) -> MetadataValue:  # type: ignore[type-arg]
    """Return a number as metadata.

    A float is rounded to six significant digits, as Dagster shows it.
    """
    return MetadataValue.int(value) if isinstance(value, int) else MetadataValue.float(float(f"{value:.{_DIGITS}g}"))


def fitting_schema(schema: pa.Schema, rows: Sequence[ColumnStatistics]) -> TableSchema | None:
    """Return the table's columns for Dagster, with a description of each column.

    If the columns with descriptions do not fit into an event, all descriptions are left out.

    Args:
        schema: The columns.
        rows: The statistics for the descriptions.

    Returns:
        The columns; None if they do not fit even without descriptions.
    """
    # Single columns are never left out: they would look as if they had been dropped.
    for described_rows in (rows, ()):
        columns = column_schema(schema, described_rows)
        if len(serialize_value(columns)) <= _SCHEMA_BYTES:
            return columns
    return None


def measured_metadata(rows: Sequence[ColumnStatistics]) -> Metadata:
    """Return metadata with the numeric statistics of columns, by names such as `amount/null_share`.

    Columns are added in the order of `rows`. The first column that does not fit into an event is omitted, and so are
    all columns after it. Dagster plots such numbers, and its anomaly checks can read them.
    """
    metadata: dict[str, MetadataValue] = {}  # type: ignore[type-arg]
    remaining_bytes = _MEASURES_BYTES
    for row in rows:
        measures = _measures(row)
        remaining_bytes -= sum(len(json.dumps(name)) + _MEASURE_BYTES for name in measures)
        if remaining_bytes < 0:
            break
        metadata |= measures
    return metadata


def _measures(row: ColumnStatistics) -> dict[str, MetadataValue]:  # type: ignore[type-arg]
    """Return the measures of a column, by names such as `amount/null_share`.

    The measures are share of nulls, distinct count, mean and mean length. Unknown numbers, NaN and infinities are
    omitted.
    """
    count = row.null_count + row.value_count
    measures: dict[str, int | float | None] = {
        "null_share": row.null_count / count if count else None,
        "distinct_count": row.distinct_count,
        "mean": row.mean,
        "mean_length": row.mean_length,
    }
    return {
        f"{row.column}/{name}": rounded_metadata(value)
        for name, value in measures.items()
        # JSON has no NaN and no infinities.
        if value is not None and math.isfinite(value)
    }


def lineage_metadata(schema: pa.Schema, source: AssetKey) -> Metadata:
    """Return metadata saying that each column derives from the column of `source` with the same name.

    The result is empty if it does not fit into an event.
    """
    deps = {field.name: [TableColumnDep(source, field.name)] for field in schema}
    lineage = TableColumnLineage(deps)
    if len(serialize_value(lineage)) > _LINEAGE_BYTES:
        return {}
    return {"dagster/column_lineage": MetadataValue.column_lineage(lineage)}


def column_schema(schema: pa.Schema, rows: Sequence[ColumnStatistics] = ()) -> TableSchema:
    """Return the table's columns for Dagster, with Arrow types, and main statistics in Markdown.

    The statistics are the descriptions of the columns.

    Args:
        schema: The columns.
        rows: The statistics of columns. A column without a row has no description.
    """
    descriptions = {row.column: _describe(row) for row in rows}
    return TableSchema(
        columns=[
            TableColumn(
                name=field.name,
                type=type_text(field.type),
                description=descriptions.get(field_columns(field)[0].path),
                constraints=TableColumnConstraints(nullable=field.nullable),
            )
            for field in schema
        ]
    )


def picture_markdown(kind: Kind, summary: ProfileSummary, title: str) -> str:
    """Return Markdown with a picture of what the files of one kind contain, column by column.

    An example is each column's histogram. For the kind `statistics`, tables of statistics follow below the picture.

    Args:
        kind: The kind of file, such as `histograms`.
        summary: The summary of the table or partition.
        title: The title in the picture.
    """
    image = columns_markdown(title, _pictures_of_kind(kind, summary), f"summary of {kind}", _PICTURE_BYTES)
    if kind != "statistics":
        return image
    tables = [statistics_markdown(summary.rows), user_defined_markdown(summary.rows)]
    return "\n\n".join([image, *(table for table in tables if table)])


def statistics_markdown(rows: Sequence[ColumnStatistics]) -> str:
    """Return the main statistics as a Markdown table with one row per column, for as many columns as fit."""
    head = f"| {' | '.join(STATISTICS[name].label for name in _CELLS)} |\n|---|---|--:|--:|--:|--:|--:|"
    lines = [_markdown_row(row) for row in rows]

    def build(count: int) -> str:
        hidden_count = len(lines) - count
        return "\n".join(
            [head, *lines[:count], *([f"\n{format_number(hidden_count)} more columns"] if hidden_count else [])]
        )

    return fit_markdown(build, len(lines), _STATISTICS_BYTES)


def user_defined_markdown(rows: Sequence[ColumnStatistics]) -> str:
    """Return as many user-defined statistics as fit, as a Markdown table.

    Returns an empty text if there are none.
    """
    lines = [
        f"| {literal_markdown(row['column'], _CELL)} | {literal_markdown(name, _CELL)} "
        f"| {literal_markdown(format_user_defined(statistic), _LONG_CELL)} |"
        for row in map(column_to_json, (row for row in rows if row.user_defined))
        for name, statistic in row["user_defined"].items()
    ]

    def build(count: int) -> str:
        hidden_count = len(lines) - count
        return "\n".join(
            [
                "| column | statistic | value |\n|---|---|---|",
                *lines[:count],
                *([f"\n{format_number(hidden_count)} more"] if hidden_count else []),
            ]
        )

    return fit_markdown(build, len(lines), _USER_DEFINED_BYTES) if lines else ""


def guarantee(kind: Kind, rows: Sequence[ColumnStatistics]) -> str:
    """Return a text that says how exact the numbers in files of one kind are.

    It also names the columns that are exceptions. Example: `exact; distinct_count is an estimate: id, email`.

    Args:
        kind: The kind of file: `statistics`, `frequencies` or `histograms`.
        rows: The statistics of the columns.
    """
    if kind == "frequencies":
        exceptions = {
            "only repeated values are enumerated": _columns_where(rows, lambda row: row.frequencies == "repeated"),
            "estimated, not enumerated": _columns_where(rows, lambda row: row.frequencies == "estimated"),
            "off": _columns_where(rows, lambda row: row.frequencies == "off"),
        }
        enumerated_count = sum(row.frequencies == "enumerated" for row in rows)
        return _with_exceptions(f"exact: {enumerated_count} of {len(rows)} columns are enumerated", exceptions)
    if kind == "histograms":
        return "exact"
    return _with_exceptions(
        "exact",
        {
            "distinct_count is an estimate": _columns_where(rows, _is_estimated),
            "percentiles are estimates": _columns_where(rows, lambda row: row.percentiles_guarantee == "estimate"),
            "minimum or maximum is a bound": _columns_where(
                rows,
                lambda row: (
                    (row.minimum is not None and not row.minimum_exact)
                    or (row.maximum is not None and not row.maximum_exact)
                ),
            ),
            "counts only": _columns_where(rows, lambda row: row.reason is not None),
        },
    )


def _describe(row: ColumnStatistics) -> str:
    return literal_markdown(" · ".join(part for part in (*short_facts(row), range_text(row)) if part), _DESCRIPTION)


def _is_estimated(row: ColumnStatistics) -> bool:
    return row.distinct_count_guarantee == "estimate"


def _columns_where(rows: Sequence[ColumnStatistics], matches: Callable[[ColumnStatistics], bool]) -> list[str]:
    return [row.column for row in rows if matches(row)]


def _with_exceptions(guarantee: str, exceptions: Mapping[str, Sequence[str]]) -> str:
    parts = [f"{exception}: {_format_columns(columns)}" for exception, columns in exceptions.items() if columns]
    return "; ".join([guarantee, *parts])


def _format_columns(columns: Iterable[str]) -> str:
    names = list(columns)
    hidden_count = len(names) - 4
    return ", ".join(shorten(column, 60) for column in names[:4]) + (
        f" and {hidden_count} more" if hidden_count > 0 else ""
    )


def _ranks_guarantee(rows: Sequence[ColumnStatistics], ranked_columns: Collection[str]) -> str:
    names = _format_columns(row.column for row in rows if row.column in ranked_columns)
    return f"exact ranks and quantiles: {names}" if names else "no column"


def _pictures(kind: Kind, summary: ProfileSummary, title: str) -> Metadata:
    """Return two pictures as metadata: one of all columns, and a small one.

    Dagster shows the small one without a click.
    """
    informative = {row.column for row in select_informative_columns(summary.rows, SMALL_COLUMNS)}
    columns = sorted(_pictures_of_kind(kind, summary), key=lambda column: column.name not in informative)
    small = small_picture(columns, kind)
    small_metadata = {SMALL_PICTURE: MetadataValue.md(small)} if small else {}
    return {**small_metadata, PICTURE: MetadataValue.md(picture_markdown(kind, summary, title))}


def _schema_of_kind(kind: Kind, table: TableDescription) -> pa.Schema:
    """Return the top-level columns that have data in files of a kind, in the table's order.

    Example of a kind: `histograms`. A column also counts if only a nested field has data. All columns have data in
    files of the kind `statistics`.
    """
    if kind == "statistics":
        return table.schema
    if kind == "histograms":
        names = set(table.summary.histograms)
    elif kind == "ranks":
        names = set(table.ranked)
    else:
        names = {row.column for row in table.summary.rows if row.frequencies in ("enumerated", "repeated")}
    return pa.schema([field for field in table.schema if any(column.path in names for column in field_columns(field))])


def _pictures_of_kind(kind: Kind, summary: ProfileSummary) -> list[ColumnPicture]:
    """Return the columns that the picture for one kind of file shows, with only the data that it shows.

    - `statistics`: all columns, with all data.
    - `histograms`: the columns with a histogram, without their frequent values.
    - `frequencies` and `ranks`: the columns with frequent values, without their histograms and percentiles.
    """
    if kind == "statistics":
        return list(summary.columns)
    if kind == "histograms":
        return [replace(column, top=()) for column in summary.columns if column.bins]
    return [replace(column, bins=(), percentiles=()) for column in summary.columns if column.top]


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
"""The functions that format the cells of the Markdown table, by statistic."""
