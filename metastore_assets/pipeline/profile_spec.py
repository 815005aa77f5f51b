"""Profile specs: the wanted content of a table's profiles, and comparisons with stored profiles.

A profile is the statistics of a data file, a partition or the table. A column is a top-level column or a field nested
in one; it may be a struct, list or map. An enumerated column is stored as value counts: all distinct values with their
frequencies. An output is the statistics, frequencies or histogram of a column, or the like. A column spec is the part
of a profile spec for one top-level column, as a text. A policy `auto` or `repeated` is resolved when it is decided
whether the column is enumerated. A hidden column has the policy `values: hidden`: new profiles have no values of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from metastore_assets.config import CardinalityMode, ResolvedPolicy, TableConfig
from metastore_assets.digests import digest_texts
from metastore_assets.errors import ConfigError, UnsupportedTypeError
from metastore_assets.exports.configured_targets import ExportEntry, read_export_entries
from metastore_assets.expressions.partition_filter import PartitionFilter
from metastore_assets.formats.base import CONVERSION, INITIAL_DEFAULT
from metastore_assets.pipeline.column_spec import ColumnSpec, column_spec, parse_column_spec
from metastore_assets.statistics.keyed_hashing import column_key
from metastore_assets.statistics.user_defined.interface import FrequencyStatistic
from metastore_assets.statistics.user_defined.loading import load_for_class
from metastore_assets.values.columns import FIELD_ID, Column, columns_by_field
from metastore_assets.values.types import type_class

_MERGE_VERSION = "4"
"""Version of merging. Increase it when merging the same profiles gives another result. Stored profiles are then merged
again, but no fragment is read again."""
_CONDITION_VERSION = "2"
"""Version of conditions. Increase it when a condition on partitions selects other partitions than before."""

ProfileSpecs = Mapping[str, Mapping[str, str]]
"""{spec id: {identity of a top-level column: text of its `ColumnSpec`}}."""


@dataclass(frozen=True)
class ProfileSpec:
    """The wanted outputs of each column, from the schema and the policies of a table."""

    id: str
    """Digest of all wanted outputs, names, the column order, and the selection of partitions."""
    column_specs: Mapping[str, str]
    """The `ColumnSpec` of each top-level column as text, by identity of the column."""
    columns: tuple[tuple[Column, ResolvedPolicy], ...]
    """The columns with their policies, in table order. The file `statistics` has a row for each."""
    top_level_ids: Mapping[str, str]
    """The identity of the top-level column of each column, by field id."""
    defaulted_columns: frozenset[str] = frozenset()
    """Identities of the top-level columns with a default value for files that were written before the column was
    added."""
    auto_ids: frozenset[str] = frozenset()
    """Field ids of the columns whose configured policy is `auto` or `repeated`."""

    @property
    def typed_ids(self) -> frozenset[str]:
        """Field ids of the columns whose type is supported and whose values are shown."""
        column_specs = map(parse_column_spec, self.column_specs.values())
        return frozenset(field_id for spec in column_specs if spec is not None for field_id in spec.values)

    @property
    def unresolved_ids(self) -> tuple[str, ...]:
        """Field ids of the columns whose policy (`auto` or `repeated`) is not resolved yet."""
        typed_ids = self.typed_ids
        return tuple(
            column.field_id for column, policy in self.columns if policy.is_undecided and column.field_id in typed_ids
        )


class SpecCompatibility:
    """A comparison of the specs of stored profiles with the wanted spec."""

    def __init__(self, specs: ProfileSpecs, wanted_profile_spec: ProfileSpec) -> None:
        """Prepare comparisons.

        Args:
            specs: The specs of stored profiles, by id.
            wanted_profile_spec: The wanted spec.
        """
        self.specs = specs
        self.wanted_spec = wanted_profile_spec
        self._wanted_columns = {
            column: parse_column_spec(text) for column, text in wanted_profile_spec.column_specs.items()
        }
        self._answers: dict[tuple[str, str, tuple[str, ...]], bool] = {}
        self._missing: dict[str, frozenset[str]] = {}
        self._has_current_names: dict[str, bool] = {}

    def satisfies(self, spec_id: str, not_enumerated: tuple[str, ...] = ()) -> bool:
        """Return whether a profile stores all wanted outputs of the columns that it has, or can derive them.

        Wanted columns that the profile does not have make no difference (see `missing_columns`). False if the profile's
        spec is unknown or cannot be parsed.

        Args:
            spec_id: The id of the profile's spec.
            not_enumerated: Columns that the profile does not enumerate although its spec allows it.
        """
        return self._compare("satisfies", spec_id, not_enumerated)

    def equals(self, spec_id: str, not_enumerated: tuple[str, ...] = ()) -> bool:
        """Return whether a profile stores exactly the wanted outputs of all columns that both specs have.

        Columns that only one spec has are ignored. False if the profile's spec is unknown or cannot be parsed.

        Args:
            spec_id: The id of the profile's spec.
            not_enumerated: Columns that the profile does not enumerate although its spec allows it.
        """
        return self._compare("equals", spec_id, not_enumerated)

    def missing_columns(self, spec_id: str) -> frozenset[str]:
        """Return the identities of the wanted columns that profiles with this spec lack.

        `field_identity` returns the identity of a column.
        """
        if spec_id not in self._missing:
            self._missing[spec_id] = frozenset(self._wanted_columns) - set(self.specs.get(spec_id, {}))
        return self._missing[spec_id]

    def missing_outputs(self, spec_id: str, not_enumerated: tuple[str, ...] = ()) -> list[tuple[str, str]]:
        """Return (field id, output) for each wanted output that a profile neither stores nor can derive.

        The field id is that of a column. If all values of a top-level column are hidden or of unsupported types, it
        is the identity of the top-level column (see `field_identity`). Wanted columns that the profile does not have
        are omitted (see `missing_columns`).

        If the profile's spec of a column cannot be parsed, all wanted outputs of the column are missing. They are
        returned as one output per column, `statistics`. If `spec_id` is unknown, this applies to every column.

        Args:
            spec_id: The id of the profile's spec.
            not_enumerated: Columns that the profile does not enumerate although its spec allows it.
        """
        stored_columns = self.specs.get(spec_id)
        outputs: list[tuple[str, str]] = []
        for column, wanted_spec in self._wanted_columns.items():
            if wanted_spec is not None and (stored_columns is None or column in stored_columns):
                stored_spec = None if stored_columns is None else parse_column_spec(stored_columns[column])
                missing = (
                    wanted_spec.all_outputs()
                    if stored_spec is None
                    else stored_spec.missing_outputs(wanted_spec, not_enumerated)
                )
                outputs += [(field_id or column, output) for field_id, output in missing]
        return outputs

    def has_user_defined(self, columns: Iterable[str]) -> bool:
        """Return whether the wanted spec has user-defined statistics of any of these columns.

        `columns` are identities of wanted columns, as `field_identity` returns them.
        """
        return any(spec.user_defined for column in columns if (spec := self._wanted_columns[column]) is not None)

    def has_current_names(self, spec_id: str) -> bool:
        """Return whether a stored spec has exactly the wanted columns.

        The names, types and order of the columns must be the wanted ones, too.
        """
        if spec_id not in self._has_current_names:
            self._has_current_names[spec_id] = self._names(spec_id) == self._names(self.wanted_spec.id)
        return self._has_current_names[spec_id]

    def _names(self, spec_id: str) -> dict[str, str]:
        """Return {identity of a top-level column: digest} for the profile spec with an id.

        The digest covers the position of the column, and the paths and types of the column and of the fields nested in
        it. A column whose column spec cannot be parsed is omitted. The result is empty if no profile spec has the id.
        """
        columns = {column: parse_column_spec(text) for column, text in self.specs.get(spec_id, {}).items()}
        return {column: spec.names for column, spec in columns.items() if spec is not None}

    def _compare(self, method: str, spec_id: str, not_enumerated: tuple[str, ...]) -> bool:
        """Return whether each column that is in both the stored and the wanted spec passes a comparison.

        False if the stored spec is unknown, or if either spec of such a column cannot be parsed.

        Args:
            method: The method of `ColumnSpec` that compares: `satisfies` or `equals`.
            spec_id: The id of the profile's spec.
            not_enumerated: Columns that the profile does not enumerate although its spec allows it.
        """
        key = (method, spec_id, not_enumerated)
        if key not in self._answers:
            # A profile of an unknown spec satisfies nothing, nor does a column whose spec cannot be parsed.
            stored_columns = self.specs.get(spec_id)
            shared_columns = self._shared_columns(spec_id)
            common = 0 if stored_columns is None else len(stored_columns.keys() & self._wanted_columns.keys())
            self._answers[key] = (
                stored_columns is not None
                and len(shared_columns) == common
                and all(
                    getattr(stored_spec, method)(wanted_spec, not_enumerated)
                    for stored_spec, wanted_spec in shared_columns
                )
            )
        return self._answers[key]

    def _shared_columns(self, spec_id: str) -> list[tuple[ColumnSpec, ColumnSpec]]:
        """Return (stored spec, wanted spec) of each column that both have.

        Omits specs that cannot be parsed.
        """
        stored_columns = self.specs.get(spec_id, {})
        pairs = [
            (parse_column_spec(stored_columns[column]), wanted_spec)
            for column, wanted_spec in self._wanted_columns.items()
            if column in stored_columns
        ]
        return [(spec, wanted_spec) for spec, wanted_spec in pairs if spec is not None and wanted_spec is not None]


def table_profile_spec(
    schema: pa.Schema, table: TableConfig, resolutions: Mapping[str, CardinalityMode] | None = None
) -> ProfileSpec:
    """Return the profile spec of a schema under a table's policies.

    Ignores policies of columns that the schema lacks.

    Args:
        schema: The schema.
        table: The configured policies.
        resolutions: Decisions about `auto` and `repeated` policies, by field id. Without a decision, such a
            policy stays undecided.
    """
    exports = read_export_entries(table)
    columns: list[tuple[Column, ResolvedPolicy]] = []
    column_specs: dict[str, str] = {}
    top_level_ids: dict[str, str] = {}
    for field, field_columns in zip(schema, columns_by_field(schema), strict=True):
        policies = [
            (column, _add_export_statistics(_resolve_policy(table, column, resolutions or {}), column, exports))
            for column in field_columns
        ]
        with _add_table_to_errors(table):
            for column, policy in policies:
                _check_statistics(table, column, policy)
            conversion = (field.metadata or {}).get(CONVERSION, b"").decode()
            column_specs[field_identity(field)] = column_spec(len(columns), policies, conversion).to_text()
        top_level_ids |= {column.field_id: field_identity(field) for column in field_columns}
        columns += policies
    parts = [_MERGE_VERSION, json.dumps(column_specs)]
    # Fragment profiles do not depend on the selected partitions. A version does.
    parts += [_partitions_text(table.partitions)] if table.partitions else []
    # All value counts are stored and merged. Which of them a version shows is part of its spec.
    truncated_frequencies = {column.field_id: policy.frequencies for column, policy in columns if policy.is_truncated}
    parts += [json.dumps(truncated_frequencies)] if truncated_frequencies else []
    # Value counts by partition are derived from value counts: fragment profiles do not depend on them.
    by_partition = [column.field_id for column, policy in columns if policy.by_partition == "on"]
    parts += [json.dumps({"by_partition": by_partition})] if by_partition else []
    defaulted_columns = frozenset(
        field_identity(field) for field in schema if INITIAL_DEFAULT in (field.metadata or {})
    )
    auto = frozenset(
        column.field_id for column, _ in columns if table.effective_policy(column.path, column.aliases).is_undecided
    )
    return ProfileSpec(digest_texts(parts), column_specs, tuple(columns), top_level_ids, defaulted_columns, auto)


def _partitions_text(partitions: str | Mapping[str, tuple[str, ...]]) -> str:
    """Return a text that identifies a value of the configuration key `partitions`.

    The key limits a table to some partitions. A condition with `current_date`, such as `day >= current_date - 90`,
    gives another text every day.

    Args:
        partitions: The text of a condition on partition columns, or {partition column: patterns of its values}.
    """
    if not isinstance(partitions, str):
        return json.dumps(partitions)
    return f"{_CONDITION_VERSION} {PartitionFilter.of(partitions)!r}"


def _resolve_policy(table: TableConfig, column: Column, resolutions: Mapping[str, CardinalityMode]) -> ResolvedPolicy:
    """Return the effective policy of a column, with its hash key if it is hidden.

    Args:
        table: The configured policies, and the key of hidden values.
        column: The column.
        resolutions: Decisions about `auto` and `repeated` policies, by field id. Without a decision, the policy stays
            undecided.
    """
    policy = table.effective_policy(column.path, column.aliases)
    if policy.values == "hidden" and table.hidden_key is not None:
        policy = policy.with_hash_key(column_key(table.hidden_key, table.name, column.field_id))
    if not policy.is_undecided or column.field_id not in resolutions:
        return policy
    return policy.resolve(resolutions[column.field_id])


def _add_export_statistics(policy: ResolvedPolicy, column: Column, exports: Sequence[ExportEntry]) -> ResolvedPolicy:
    """Return a column's policy with the statistics that export targets need.

    Hidden columns get none. Enumerated columns need none, because they have value counts.
    """
    if policy.has_all_values or policy.values == "hidden":
        return policy
    added_references = [reference for entry in exports for reference in entry.statistics_for(column.path, column.type)]
    if not added_references:
        return policy
    return policy.model_copy(update={"statistics": tuple(dict.fromkeys((*policy.statistics, *added_references)))})


def _check_statistics(table: TableConfig, column: Column, policy: ResolvedPolicy) -> None:
    """Raise ConfigError if a column with `frequencies: off` lists a statistic of value counts.

    Such a statistic is computed from value counts. Only `statistics` in the column's own entry under `columns` are
    checked. Statistics that the column inherits raise no error, because they are meant for many columns. This column
    then has no results of the inherited statistics that need value counts.
    """
    column_policy = table.columns.get(column.path) if column.path != "default" else None
    if column_policy is None or "statistics" not in column_policy.model_fields_set or policy.frequencies != "off":
        return
    try:
        cls = type_class(column.type)
    except UnsupportedTypeError:
        return
    for loaded_statistic in load_for_class(policy.statistics, cls):
        if isinstance(loaded_statistic.statistic, FrequencyStatistic):
            raise ConfigError(
                f"columns.{column.path}.statistics: {loaded_statistic.reference} is computed from all values and their "
                "counts, which `frequencies: off` does not store: give the column `frequencies: all`, or leave the "
                "statistic out"
            )


@contextmanager
def _add_table_to_errors(table: TableConfig) -> Iterator[None]:
    """Add the table's name to errors of user-defined statistics."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"table {table.name!r}: {error}") from error


def field_identity(field: pa.Field) -> str:
    """Return the stable identity of a top-level column: its field id, otherwise its name."""
    identity: bytes | None = (field.metadata or {}).get(FIELD_ID)
    return identity.decode() if identity is not None else str(field.name)
