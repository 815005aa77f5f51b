"""The export target `spark`: statistics in the properties of tables in a Hive metastore.

Spark reads these properties. The *mark* names the exported version. It is stored in three further properties of the
table. A version is the published statistics of a table at one snapshot.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

from pydantic import Field

from metastore_assets.digests import digest_json
from metastore_assets.errors import ExportError
from metastore_assets.exports.base import (
    ExportedColumn,
    ExportedVersion,
    ExportMark,
    ExportOptions,
    ExportTarget,
    WrittenExport,
)
from metastore_assets.exports.declared_columns import case_twins, top_level_columns, twins_note
from metastore_assets.exports.hive.metastore import HiveTable, open_hive_table
from metastore_assets.exports.spark.catalog_columns import SparkColumn, spark_columns
from metastore_assets.exports.spark.histograms import MAX_BINS, compute_histogram
from metastore_assets.exports.spark.properties import (
    PREFIX,
    SIZE,
    column_properties,
    parse_column_properties,
    table_properties,
)
from metastore_assets.messages import join_names

_CONTENT = "metastore-assets.spark.content"
"""The property with the digest of the statistics that an export wrote."""


class SparkOptions(ExportOptions):
    """The settings of an export to Spark."""

    bins: int = Field(default=254, ge=0, le=MAX_BINS)
    """Number of bins of a column's histogram; 0 for no histograms. Spark's own default is 254."""


class SparkTarget(ExportTarget):
    """A target that writes the properties `spark.sql.statistics.*` of a table of plain files.

    Spark's `ANALYZE TABLE` writes the same properties.
    """

    kind = "spark"
    title = "Spark's session catalog"
    is_single = True
    options_model = SparkOptions

    def write(self, version: ExportedVersion) -> WrittenExport:
        """Write the statistics, and the mark that names the version, with one request.

        See `ExportTarget.write`.
        """
        if version.version.format != "files":
            raise ExportError(
                f"Spark plans queries of {version.version.format} tables without statistics in its session catalog: "
                "the export `spark` is for tables of Parquet, ORC, Avro, CSV or JSON files"
            )
        with self._open() as table:
            before = table.load()
        self._refuse_foreign(before.properties)
        try:
            columns = spark_columns(before.properties, {**before.columns, **before.keys})
        except ValueError as error:
            raise ExportError(f"table {self.table.identifier!r}: {error}") from error
        statistics, notes, count = self._statistics(version, columns)
        new_properties = {**version.mark.to_properties(self.kind), _CONTENT: digest_json(statistics)}
        with self._open() as table:
            current = table.load().properties
            self._refuse_foreign(current)
            table.change_properties(statistics | new_properties, _statistics_of(current))
        size = sum(len(key) + len(text) for key, text in (statistics | new_properties).items())
        return WrittenExport(size, count, notes)

    def status(self) -> ExportMark | None:
        """Return the mark of the last export; None without one, or if Spark has changed the statistics since."""
        with self._open() as table:
            parameters = table.load().properties
        return ExportMark.from_properties(parameters, self.kind) if _has_our_content(parameters) else None

    def remove(self) -> bool:
        """Remove the mark, and the statistics unless Spark has changed them.

        Return whether there was an export.
        """
        with self._open() as table:
            parameters = table.load().properties
            if ExportMark.from_properties(parameters, self.kind) is None:
                return False
            ours = _statistics_of(parameters) if _has_our_content(parameters) else {}
            table.change_properties({}, {*ours, *ExportMark.property_names(self.kind), _CONTENT})
            return True

    def read_back(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the statistics by column and by Spark's name.

        Example: `{"": {"numRows": "9"}, "id": {"nullCount": "0"}}`. The empty name stands for the whole table.
        """
        with self._open() as table:
            return parse_column_properties(table.load().properties)

    def _open(self) -> AbstractContextManager[HiveTable]:
        return open_hive_table(self.table, self.title)

    def _refuse_foreign(self, parameters: Mapping[str, str]) -> None:
        """Raise ExportError if another program wrote statistics of the table.

        Nothing is raised if the option `replace` is set. A table with the mark of our last export is also accepted if
        its only statistic is the size. After an export, each write of Spark updates the size and removes the other
        statistics.
        """
        statistics = _statistics_of(parameters)
        if not statistics or self.options.replace or _has_our_content(parameters):
            return
        # After a write, Spark updates the size of a table with statistics, and removes its other statistics.
        if ExportMark.from_properties(parameters, self.kind) is not None and list(statistics) == [SIZE]:
            return
        raise ExportError(
            f"table {self.table.identifier!r} has statistics of ANALYZE TABLE in Spark: set `replace: true` for this "
            "export to replace them"
        )

    def _statistics(
        self, version: ExportedVersion, columns: list[SparkColumn]
    ) -> tuple[dict[str, str], tuple[str, ...], int]:
        """Convert the statistics of a version to table properties.

        Returns:
            (The properties, the reasons why columns are left out, the number of columns that have properties). Each
            reason is a text that names its columns.
        """
        properties = table_properties(version.version.row_count, version.version.bytes)
        names = top_level_columns(version)
        twins = case_twins(names.values())
        declared_columns = {column.name.lower(): column for column in columns} | {
            column.name: column for column in columns
        }
        mismatched_names, unbounded_names, ambiguous, count = [], [], [], 0
        for exported_column in version.columns():
            name = names.get(exported_column.path)
            if name is None:
                continue
            column = declared_columns.get(name)
            if column is None and name.lower() in twins:
                ambiguous.append(name)
                continue
            column = column or declared_columns.get(name.lower())
            # The statistics of a hidden column do not show its type.
            if column is None or not (
                exported_column.is_hidden or column.accepts(exported_column.statistics.type_class)
            ):
                mismatched_names.append(name)
            elif column_properties := self._column_properties(version, exported_column, column):
                properties |= column_properties
                count += 1
            else:
                unbounded_names.append(name)
        notes = []
        if mismatched_names:
            notes.append(f"left out, because Spark has no statistics of their types: {join_names(mismatched_names)}")
        if unbounded_names:
            notes.append(
                f"left out, because their bounds or distinct values are not known: {join_names(unbounded_names)}"
            )
        return properties, (*notes, *twins_note(ambiguous)), count

    def _column_properties(
        self, version: ExportedVersion, exported_column: ExportedColumn, column: SparkColumn
    ) -> dict[str, str]:
        row = exported_column.statistics
        has_bins = self.options.bins and not exported_column.is_hidden
        return column_properties(
            column,
            row,
            lambda: compute_histogram(version.lookup, column, row, self.options.bins) if has_bins else None,
        )


def _statistics_of(parameters: Mapping[str, str]) -> dict[str, str]:
    return {key: text for key, text in parameters.items() if key.startswith(PREFIX)}


def _has_our_content(parameters: Mapping[str, str]) -> bool:
    return parameters.get(_CONTENT) == digest_json(_statistics_of(parameters))
