"""What is wanted of each column of a table, and what stored profiles hold of that."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from metastore_assets.config import CardinalityMode, ResolvedPolicy, TableConfig
from metastore_assets.errors import ConfigError, UnsupportedTypeError
from metastore_assets.expressions.partition_filter import PartitionFilter
from metastore_assets.formats.base import FIELD_ID, INITIAL_DEFAULT
from metastore_assets.pipeline.column_spec import ColumnSpec, column_spec, digest, parse_column_spec
from metastore_assets.statistics.keyed_hashing import column_key
from metastore_assets.statistics.user_defined.interface import FrequencyStatistic
from metastore_assets.statistics.user_defined.loading import load_for_class
from metastore_assets.values.leaf_columns import LeafColumn, schema_leaves
from metastore_assets.values.types import type_class

_MERGE_VERSION = "4"
_CONDITION_VERSION = "2"
"""Of what a condition on partitions means: with another one, a version may be of other partitions."""
"""Raised when the same profiles would merge to another one, so that they are merged again, and nothing is read."""

ProfileSpecs = Mapping[str, Mapping[str, str]]
"""By profile spec id: the signature of each profiled top-level column, by its field id."""


@dataclass(frozen=True)
class ProfileSpec:
    """What is wanted of each column under a schema and a policy, and of which partitions."""

    id: str
    """Digest of everything below, names and order included."""
    column_specs: Mapping[str, str]
    """By identity of the top-level column: its `ColumnSpec`, as text."""
    leaves: tuple[tuple[LeafColumn, ResolvedPolicy], ...]
    """The rows of `statistics`, in table order."""
    owners: Mapping[str, str]
    """Identity of the top-level column of each leaf, by its field id."""
    defaulted: frozenset[str] = frozenset()
    """Identities of the top-level columns that are not null in fragments written without them."""
    open: frozenset[str] = frozenset()
    """Field ids of the leaves of which the configuration leaves it open whether all values are listed."""

    @property
    def valued(self) -> frozenset[str]:
        """Field ids of the leaves that have values of a class."""
        column_specs = map(parse_column_spec, self.column_specs.values())
        return frozenset(leaf for own in column_specs if own is not None for leaf in own.values)

    @property
    def unresolved(self) -> tuple[str, ...]:
        """Field ids of the leaves of which it is open, and not decided yet, whether all values are listed."""
        valued = self.valued
        return tuple(leaf.field_id for leaf, policy in self.leaves if policy.is_undecided and leaf.field_id in valued)


class SpecCompatibility:
    """Compares the specs of stored profiles with the spec that is wanted. Caches each answer."""

    def __init__(self, specs: ProfileSpecs, wanted: ProfileSpec) -> None:
        self.specs = specs
        self.wanted = wanted
        self._signatures = {column: parse_column_spec(text) for column, text in wanted.column_specs.items()}
        self._answers: dict[tuple[str, str, tuple[str, ...]], bool] = {}
        self._missing: dict[str, frozenset[str]] = {}
        self._named: dict[str, bool] = {}

    def satisfies(self, spec_id: str, unlisted: tuple[str, ...] = ()) -> bool:
        """Whether the columns that profiles of the spec have hold what is wanted of them."""
        return self._answer("satisfies", spec_id, unlisted)

    def equals(self, spec_id: str, unlisted: tuple[str, ...] = ()) -> bool:
        """Whether the columns that profiles of the spec have hold what is wanted of them and no more."""
        return self._answer("equals", spec_id, unlisted)

    def missing_columns(self, spec_id: str) -> frozenset[str]:
        """Identities of the columns that are wanted and that profiles of the spec do not have."""
        if spec_id not in self._missing:
            self._missing[spec_id] = frozenset(self._signatures) - set(self.specs.get(spec_id, {}))
        return self._missing[spec_id]

    def missing_outputs(self, spec_id: str, unlisted: tuple[str, ...] = ()) -> list[tuple[str, str]]:
        """(Field id, output) of what is wanted of the columns that a profile has, and that it does not hold."""
        return [found for held, wanted in self._pairs(spec_id) for found in held.missing_outputs(wanted, unlisted)]

    def has_user_defined(self, columns: Iterable[str]) -> bool:
        """Whether user-defined statistics are wanted of any of the columns, by identity."""
        return any(own.user_defined for column in columns if (own := self._signatures[column]) is not None)

    def has_current_names(self, spec_id: str) -> bool:
        """Return whether files written under a spec have the wanted columns, names and column order."""
        if spec_id not in self._named:
            self._named[spec_id] = self._names(spec_id) == self._names(self.wanted.id)
        return self._named[spec_id]

    def _names(self, spec_id: str) -> dict[str, str]:
        """By column of a profile spec, a digest of the names and places that its files go by."""
        own = {column: parse_column_spec(text) for column, text in self.specs.get(spec_id, {}).items()}
        return {column: held.names for column, held in own.items() if held is not None}

    def _answer(self, question: str, spec_id: str, unlisted: tuple[str, ...]) -> bool:
        key = (question, spec_id, unlisted)
        if key not in self._answers:
            # A profile of which it is not known what it holds is of no use.
            own = self.specs.get(spec_id)
            pairs = self._pairs(spec_id)
            common = 0 if own is None else len(own.keys() & self._signatures.keys())
            self._answers[key] = (
                own is not None
                and len(pairs) == common
                and all(getattr(held, question)(wanted, unlisted) for held, wanted in pairs)
            )
        return self._answers[key]

    def _pairs(self, spec_id: str) -> list[tuple[ColumnSpec, ColumnSpec]]:
        own = self.specs.get(spec_id, {})
        found = [
            (parse_column_spec(own[column]), wanted) for column, wanted in self._signatures.items() if column in own
        ]
        return [(held, wanted) for held, wanted in found if held is not None and wanted is not None]


def table_profile_spec(
    schema: pa.Schema, table: TableConfig, resolved: Mapping[str, CardinalityMode] | None = None
) -> ProfileSpec:
    """Return the profile spec of a schema under a table's policies. `resolved`: what `auto` means, by leaf's field id.

    Policies of columns that the schema does not have are left out: planning refuses those that never were there.
    """
    leaves: list[tuple[LeafColumn, ResolvedPolicy]] = []
    column_specs: dict[str, str] = {}
    owners: dict[str, str] = {}
    for own_field, field_leaves in zip(schema, schema_leaves(schema), strict=True):
        own = [(leaf, _policy(table, leaf, resolved or {})) for leaf in field_leaves]
        with _naming(table):
            for leaf, policy in own:
                _check_statistics(table, leaf, policy)
            column_specs[field_identity(own_field)] = column_spec(len(leaves), own).to_text()
        owners |= {leaf.field_id: field_identity(own_field) for leaf in field_leaves}
        leaves += own
    # Profiles of fragments serve under any filter; a version is only true for its own.
    partitions = [_meant(table.partitions)] if table.partitions else []
    # All is stored, and merged, whatever is listed of it; but a version says what that is.
    shown = {leaf.field_id: policy.frequencies for leaf, policy in leaves if policy.is_truncated}
    cut = [json.dumps(shown)] if shown else []
    # Kept beside the lists, and made of them: no profile holds anything for its sake.
    spread = [leaf.field_id for leaf, policy in leaves if policy.by_partition == "on"]
    cut += [json.dumps({"by_partition": spread})] if spread else []
    defaulted = frozenset(field_identity(field) for field in schema if INITIAL_DEFAULT in (field.metadata or {}))
    id_ = digest([_MERGE_VERSION, json.dumps(column_specs), *partitions, *cut])
    open_ = frozenset(leaf.field_id for leaf, _ in leaves if table.policy(leaf.path, leaf.aliases).is_undecided)
    return ProfileSpec(id_, column_specs, tuple(leaves), owners, defaulted, open_)


def _meant(partitions: str | Mapping[str, tuple[str, ...]]) -> str:
    """Which partitions are meant, today."""
    if not isinstance(partitions, str):
        return json.dumps(partitions)
    return f"{_CONDITION_VERSION} {PartitionFilter.of(partitions)!r}"


def _policy(table: TableConfig, leaf: LeafColumn, resolved: Mapping[str, CardinalityMode]) -> ResolvedPolicy:
    policy = table.policy(leaf.path, leaf.aliases)
    if policy.values == "hidden" and table.hidden_key is not None:
        policy = policy.with_hash_key(column_key(table.hidden_key, table.name, leaf.field_id))
    if not policy.is_undecided or leaf.field_id not in resolved:
        return policy
    return policy.resolve(resolved[leaf.field_id])


def _check_statistics(table: TableConfig, leaf: LeafColumn, policy: ResolvedPolicy) -> None:
    """Raise ConfigError for a column whose own policy asks for what follows from a list, and keeps none.

    Of a statistic that is meant for many columns it is only absent there.
    """
    named = table.columns.get(leaf.path)
    if named is None or "statistics" not in named.model_fields_set or policy.frequencies != "off":
        return
    try:
        cls = type_class(leaf.type)
    except UnsupportedTypeError:
        return
    for own in load_for_class(policy.statistics, cls):
        if isinstance(own.statistic, FrequencyStatistic):
            raise ConfigError(
                f"columns.{leaf.path}.statistics: {own.reference} follows from the list of all values, and "
                "`frequencies: off` keeps none: give the column `frequencies: all`, or leave the statistic out"
            )


@contextmanager
def _naming(table: TableConfig) -> Iterator[None]:
    """What is wrong with a user-defined statistic is told of the table that is to have it."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"table {table.name!r}: {error}") from error


def field_identity(field: pa.Field) -> str:
    """The stable identity of a top-level column."""
    own: bytes | None = (field.metadata or {}).get(FIELD_ID)
    return own.decode() if own is not None else str(field.name)
