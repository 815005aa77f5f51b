"""The interface of export targets, and the view of a version that a target writes.

A target is a place where an engine looks for statistics when it plans a query, such as a Hive metastore. Each table has
its own targets. A version is the published statistics of the table at one snapshot. A refresh computes and publishes a
new version. A hidden column is one whose policy `values: hidden` does not allow its values to be shown. The value
counts of a column are its distinct values with their frequencies.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import pyarrow as pa
from pydantic import BaseModel, ConfigDict

from metastore_assets.batching import batched
from metastore_assets.config import TableConfig
from metastore_assets.digests import digest_texts
from metastore_assets.expressions.wildcards import matches_any_pattern
from metastore_assets.lookup.table import Table
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.statistics.profile import HIDDEN_REASON
from metastore_assets.statistics.user_defined.loading import load_statistic
from metastore_assets.statistics.user_defined.states import decode_user_states
from metastore_assets.store.version import PartitionEntry, Version
from metastore_assets.values.columns import Column

_PREFIX = "metastore-assets."
_PARTITIONS_AT_ONCE = 256
"""Number of partitions whose statistics are in memory together."""


class ExportOptions(BaseModel):
    """The settings under a target's name in the key `exports` of a table.

    A target adds its own keys in a subclass.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, defer_build=True)

    columns: tuple[str, ...] = ()
    """Dotted paths and patterns (`order_*`) of the columns to export. Default: all columns."""
    replace: bool = False
    """Whether statistics that something else wrote to the target are overwritten. By default they are an error."""

    def includes(self, column: str) -> bool:
        """Return whether the column with a dotted path is exported."""
        return not self.columns or matches_any_pattern(column, self.columns)


@dataclass(frozen=True)
class ExportMark:
    """The identity of an exported version, which the target stores beside the statistics."""

    version: int
    """Number of the version."""
    snapshot: str
    """Id of the table's snapshot that the version describes."""
    digest: str
    """Digest of all that an export depends on: the version's snapshot and content, the hidden columns, and the options
    and the revision of the target. Equal digests mean an equal export."""

    def to_properties(self, scope: str = "") -> dict[str, str]:
        """Return the mark as properties: `{"metastore-assets.hive.version": "7", ...}`.

        Args:
            scope: A part of the property names, such as `hive`. Targets that store their marks among the same
                properties use different scopes.
        """
        values = (str(self.version), self.snapshot, self.digest)
        return dict(zip(self.property_names(scope), values, strict=True))

    @classmethod
    def from_properties(cls, properties: Mapping[str, str] | None, scope: str = "") -> ExportMark | None:
        """Return the mark that properties contain; None if this package did not write the statistics.

        Args:
            properties: The properties; None if there are none.
            scope: The scope that `to_properties` was called with.
        """
        version, snapshot, digest = ((properties or {}).get(name) for name in cls.property_names(scope))
        if version is None or snapshot is None or digest is None or not version.isdecimal():
            return None
        return cls(int(version), snapshot, digest)

    @staticmethod
    def property_names(scope: str = "") -> tuple[str, ...]:
        """Return the names of the three properties in which `to_properties(scope)` stores the mark.

        Args:
            scope: The scope that `to_properties` is called with: a part of each name, such as `hive`.
        """
        prefix = f"{_PREFIX}{scope}." if scope else _PREFIX
        return tuple(f"{prefix}{name}" for name in ("version", "snapshot", "digest"))


@dataclass(frozen=True)
class ExportedColumn:
    """A column of a version with the statistics that may be exported."""

    table_column: Column
    statistics: ColumnStatistics
    """The statistics of the column. Those of a hidden column have only `value_count` and `null_count`."""
    is_hidden: bool
    """Whether the column's values are hidden, by the version or by the configuration."""

    @property
    def path(self) -> str:
        """The dotted path of the column."""
        return self.table_column.path

    @property
    def is_enumerated(self) -> bool:
        """Whether the version stores the value counts of the column and they are not hidden."""
        return not self.is_hidden and self.statistics.frequencies == "enumerated"


class ExportedVersion:
    """The part of a version that a target writes: the columns that its option `columns` includes.

    A hidden column has only its numbers of values and of nulls.
    """

    def __init__(self, table: TableConfig, lookup: Table, options: ExportOptions, revision: str = "") -> None:
        """Create the view.

        Nothing is read yet.

        Args:
            table: The configuration of the table.
            lookup: The table, opened at the version.
            options: The options of the target.
            revision: Kind and revision of the target, such as `hive@1`. If it changes, the version is exported again.
        """
        self.table = table
        self.lookup = lookup
        self._options = options
        self._revision = revision

    @property
    def version(self) -> Version:
        """The version that is exported."""
        return self.lookup.version

    @cached_property
    def mark(self) -> ExportMark:
        """The mark that identifies the exported version.

        The target stores it with the statistics.
        """
        version = self.version
        # The digest omits the number, so a version with the same content as the previous one is not exported again.
        # Otherwise, a catalog that reports each export as a commit would cause versions and exports without end.
        parts = [
            *(version.snapshot, version.content_id, version.spec_id),
            *(self._revision, json.dumps(self._options.model_dump(mode="json"), sort_keys=True)),
            # A column that was hidden since the version was published: its values leave the target.
            *(column.field_id for column in self.lookup.columns.all if self._hides(column)),
        ]
        return ExportMark(version.number, version.snapshot, digest_texts(parts))

    def columns(self) -> list[ExportedColumn]:
        """Return the columns that the option `columns` includes, in table order.

        Each has statistics of all rows.
        """
        return self._exported(self.lookup.statistics())

    def unmatched_patterns(self) -> list[str]:
        """Return the entries of the option `columns` that match no column of the version."""
        paths = [column.path for column in self.lookup.columns.all]
        return [
            pattern
            for pattern in self._options.columns
            if not any(matches_any_pattern(path, (pattern,)) for path in paths)
        ]

    def partitions(self) -> Iterator[tuple[PartitionEntry, list[ExportedColumn]]]:
        """Yield (entry, columns) for each partition, in ascending order of keys.

        The columns are those of the method `columns`, with their statistics for the partition.
        """
        for entries in batched(self.version.partitions, _PARTITIONS_AT_ONCE):
            rows: dict[str, list[ColumnStatistics]] = {entry.key: [] for entry in entries}
            for row in self.lookup.statistics(partition=list(rows)):
                rows[row.partition or ""].append(row)
            for entry in entries:
                yield entry, self._exported(rows[entry.key])

    def states(self, reference: str) -> dict[str, Any]:
        """Return a statistic of each column for the whole table, in its mergeable form, such as a sketch.

        The keys are the dotted paths of the columns. Hidden columns, and columns for which the version does not store
        this statistic, are omitted.

        Args:
            reference: The class of the statistic, as `module:Class`.
        """
        key = load_statistic(reference).key
        encoded_states = self._user_states
        decoded_states = {
            column.path: decode_user_states(encoded_states[column.table_column.field_id]).get(key)
            for column in self.columns()
            if not column.is_hidden and column.table_column.field_id in encoded_states
        }
        return {
            path: state.value for path, state in decoded_states.items() if state is not None and state.reason is None
        }

    @cached_property
    def _user_states(self) -> dict[str, bytes]:
        return self.lookup.profiles.profile(None).user_states()

    def _exported(self, rows: Sequence[ColumnStatistics]) -> list[ExportedColumn]:
        """Return the columns to export, with their statistics.

        The statistics of a hidden column are only its numbers of values and of nulls.
        """
        columns = {column.path: column for column in self.lookup.columns.all}
        exported_columns = []
        for row in rows:
            if not self._options.includes(row.column):
                continue
            column = columns[row.column]
            is_hidden = row.reason == HIDDEN_REASON or self._hides(column)
            exported_columns.append(ExportedColumn(column, _counts_only(row) if is_hidden else row, is_hidden))
        return exported_columns

    def _hides(self, column: Column) -> bool:
        """Return whether the configuration now hides a column.

        The configuration may have changed since the version was published.
        """
        return self.table.effective_policy(column.path, column.aliases).values == "hidden"


def _counts_only(row: ColumnStatistics) -> ColumnStatistics:
    """Return a copy of a row with only the numbers of values and of nulls, which reveal no value."""
    return ColumnStatistics(
        position=row.position,
        column=row.column,
        field_id=row.field_id,
        type=row.type,
        type_class=row.type_class,
        value_count=row.value_count,
        null_count=row.null_count,
        partition=row.partition,
    )


@dataclass(frozen=True)
class WrittenExport:
    """The result of writing a version to a target."""

    bytes: int
    """Size of everything that was written or sent, in bytes."""
    columns: int
    """Number of columns for which something was written."""
    notes: tuple[str, ...] = ()
    """One sentence for each kind of omission: what was left out, and why."""


class ExportTarget(ABC):
    """A place to which the versions of one table are exported.

    A subclass is an entry point of the group `metastore_assets.exports`, named after its `kind`. The module of a
    subclass imports client libraries only in methods, because configurations must be validated without these libraries.
    """

    kind: ClassVar[str]
    """The name of the entry point, which a configuration uses for the target, such as `hive`."""
    title: ClassVar[str]
    """The name of the target in messages, such as `the Hive metastore`."""
    revision: ClassVar[str] = "1"
    """The revision of what `write` writes. Change it together with `write`, so that all tables are exported again."""
    is_single: ClassVar[bool] = False
    """Whether a table can have only one target of the kind, because all would write to the same place."""
    options_model: ClassVar[type[ExportOptions]] = ExportOptions
    """The model of the target's settings."""

    def __init__(self, table: TableConfig, options: Any) -> None:
        """Create the target without sending a request.

        Args:
            table: The resolved configuration of the table.
            options: An object of `options_model`.
        """
        self.table = table
        self.options = options

    @classmethod
    def statistics_for(cls, type: pa.DataType) -> tuple[str, ...]:
        """Return the statistics that a refresh computes only because this target needs them.

        They are for columns of the type `type`. Each is the name of a class of mergeable statistics, as `module:Class`.
        Hidden columns, and columns whose values are all stored with their counts, do not get these statistics. A
        refresh stores the statistics of each fragment, such as a data file. It reads a fragment again if a statistic of
        this target is missing.
        """
        return ()

    @abstractmethod
    def write(self, version: ExportedVersion) -> WrittenExport:
        """Write the statistics of a version to the target, and a mark that names the version.

        Both replace those of an earlier export. Write the mark last or together with the statistics. An interrupted
        export then leaves no mark of its version, and is repeated.

        Raises:
            ExportError: The table cannot be exported, or the target has statistics that something else wrote and
                `options.replace` is false.
            MetastoreError: The target cannot be reached.
        """

    @abstractmethod
    def status(self) -> ExportMark | None:
        """Return the mark that the target stores; None if this package exported nothing to the target.

        Raises the errors of `write`.
        """

    @abstractmethod
    def remove(self) -> bool:
        """Remove everything that this package wrote to the target.

        Return whether there was anything.

        Raises the errors of `write`.
        """

    @abstractmethod
    def read_back(self) -> Mapping[str, Mapping[str, Any]]:
        """Return what an engine reads from the target: for each column, the statistics by the engine's names.

        Tests compare it with the version. Raises the errors of `write`.
        """


def exported_version(target: ExportTarget, lookup: Table) -> ExportedVersion:
    """Return the part of a version that a target writes.

    Nothing is read yet.

    Args:
        target: The target.
        lookup: The table, opened at the version.
    """
    return ExportedVersion(target.table, lookup, target.options, f"{target.kind}@{target.revision}")
