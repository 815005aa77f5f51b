"""Column specs: short texts that describe the content of a top-level column's profile.

A spec describes wanted or stored content. A stored profile satisfies a wanted spec if it contains at least the wanted
outputs. Outputs are statistics, frequencies, histograms and the like. Each kind of output has its own version number.
So a change of one kind does not outdate the others. Default values are omitted from the text, so that a new option does
not change stored specs.

A profile is the statistics of a data file, a partition or the table. A top-level column and the fields nested in it are
columns with statistics of their own. Value counts are the distinct values of a column with their frequencies. An
enumerated column has value counts. A fingerprinted column has short hashes of its values instead. For an estimated
column, no frequencies are stored, and the number of distinct values is estimated.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from metastore_assets.config import ResolvedPolicy
from metastore_assets.digests import digest_texts
from metastore_assets.errors import ConfigError, UnsupportedTypeError
from metastore_assets.statistics.histogram import histogram_capacity
from metastore_assets.statistics.keyed_hashing import key_id
from metastore_assets.statistics.registry import HISTOGRAM, STATISTICS_VERSION
from metastore_assets.statistics.user_defined.interface import MergeableStatistic
from metastore_assets.statistics.user_defined.loading import load_for_class
from metastore_assets.values.columns import Column
from metastore_assets.values.types import type_class, type_fingerprint

FREQUENCIES_VERSION = "1"
"""Version of frequencies. Increase it when frequencies change for the same rows, so that fragments are profiled again.
"""
HISTOGRAMS_VERSION = HISTOGRAM.version
PROFILE_VERSION = f"{STATISTICS_VERSION}.{FREQUENCIES_VERSION}.{HISTOGRAMS_VERSION}"

_NOT_ENUMERATED = {"auto": "estimated", "enumerated": "estimated", "repeated": "fingerprinted"}
"""{state of a column in the spec: its state in a fragment without value counts of the column}."""
_ENUMERATING = ("enumerated", "auto", "repeated")
"""States of columns that have value counts, except in fragments where values hardly repeat."""
DERIVED = "="
"""Prefix of the keys of user-defined statistics that are derived from value counts."""
_DEFAULT = ResolvedPolicy()
_DEFAULT_BINS = histogram_capacity(int(_DEFAULT.histogram))


@dataclass(frozen=True)
class ColumnSpec:
    """The outputs of one top-level column and the fields nested in it.

    These columns are identified by field ids. Methods with the argument `wanted_spec` compare it with this spec, which
    is then the spec of a stored profile.
    """

    statistics: str
    """Digest of what all numbers depend on: the version of statistics, the types of the columns, which of them
    are hidden, and the keys that hash hidden values."""
    names: str = field(compare=False)
    """Digest of the columns' positions, paths and types. No number depends on names or positions."""
    values: tuple[str, ...]
    """Columns whose type is supported and whose values are shown. Only these are keys of the mappings below."""
    frequencies: Mapping[str, str] = field(default_factory=dict)
    """How frequencies are stored, by column: `auto` and `repeated` (not decided yet), `fingerprinted`, `estimated`
    or `off`. Columns without a key are enumerated."""
    histograms: Mapping[str, int] = field(default_factory=dict)
    """Maximum number of bins, by column; 0 for no histogram. Columns without a key have the default."""
    without_quantiles: tuple[str, ...] = ()
    value_filters: tuple[str, ...] = field(default=(), compare=False)
    """Columns with value filters. Only profiles of fragments have such filters."""
    user_defined: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Digests of the source code of user-defined statistics, by column and key. A key is `module:Class@revision`. If
    it begins with `=`, the statistic is derived from value counts, so that nothing is stored for it."""
    frequencies_version: str = ""
    histograms_version: str = ""

    def state(self, field_id: str, not_enumerated: Collection[str] = ()) -> str:
        """Return how the frequencies of a column are stored.

        Args:
            field_id: The field id.
            not_enumerated: Columns for which the stored profile has no value counts, because values hardly repeat.

        Returns:
            `enumerated`, `fingerprinted`, `estimated` or `off`; `auto` or `repeated` if it is not decided yet.
        """
        state = self.frequencies.get(field_id, "enumerated")
        return _NOT_ENUMERATED.get(state, state) if field_id in not_enumerated else state

    def satisfies(self, wanted_spec: ColumnSpec, not_enumerated: Collection[str] = ()) -> bool:
        """Return whether every wanted output is stored, or can be derived from stored outputs.

        Args:
            wanted_spec: The spec with the wanted outputs.
            not_enumerated: Columns for which the stored profile has no value counts, because values hardly repeat.
        """
        return not any(True for _ in self.missing_outputs(wanted_spec, not_enumerated))

    def missing_outputs(
        self, wanted_spec: ColumnSpec, not_enumerated: Collection[str] = ()
    ) -> Iterator[tuple[str, str]]:
        """Yield (field id, output) for each wanted output that is not stored and cannot be derived.

        An output is `quantiles`, `frequencies`, `histogram`, `value_filter`, or the key of a user-defined statistic.
        If no stored output can be used, for example because a type changed, `wanted_spec.all_outputs()` is yielded.

        Args:
            wanted_spec: The spec with the wanted outputs.
            not_enumerated: Columns for which the stored profile has no value counts, because values hardly repeat.
        """
        if self.statistics != wanted_spec.statistics:
            yield from wanted_spec.all_outputs()
            return
        for field_id in wanted_spec.values:
            is_enumerated = self.state(field_id, not_enumerated) in _ENUMERATING
            if field_id in self.without_quantiles and field_id not in wanted_spec.without_quantiles:
                yield field_id, "quantiles"
            if not self._has_frequencies(wanted_spec, field_id, not_enumerated):
                yield field_id, "frequencies"
            if not self._has_bins(wanted_spec, field_id):
                yield field_id, "histogram"
            # Value filters are derived from value counts, and so are the states of user-defined statistics.
            if field_id in wanted_spec.value_filters and not (field_id in self.value_filters or is_enumerated):
                yield field_id, "value_filter"
            if not is_enumerated:
                stored_statistics = self.user_defined.get(field_id, {})
                missing = (key for key in wanted_spec.user_defined.get(field_id, {}) if key not in stored_statistics)
                yield from ((field_id, key) for key in missing if not key.startswith(DERIVED))

    def all_outputs(self) -> list[tuple[str, str]]:
        """Return the (field id, output) pairs that stand for all outputs of the column.

        `missing_outputs` yields them if no stored output can be used. The output is always "statistics". The result has
        a pair for each column in `values`: [("3", "statistics"), ("4", "statistics")]. If there are none, its only pair
        has the field id "".
        """
        return [(field_id, "statistics") for field_id in self.values or ("",)]

    def equals(self, wanted_spec: ColumnSpec, not_enumerated: Collection[str] = ()) -> bool:
        """Return whether exactly the wanted outputs are stored.

        Names and column order do not matter. Neither do stored value filters (sets of hashes) that are not wanted.

        Undecided columns (`auto`, `repeated`) count as enumerated, unless they are in `not_enumerated`.

        Args:
            wanted_spec: The spec with the wanted outputs.
            not_enumerated: Columns for which the stored profile has no value counts, because values hardly repeat.
        """
        return (
            (self.statistics, self.without_quantiles) == (wanted_spec.statistics, wanted_spec.without_quantiles)
            and self.user_defined == wanted_spec.user_defined
            and self.satisfies(wanted_spec, not_enumerated)
            and all(
                self._bins(field_id) == wanted_spec._bins(field_id)
                and self._resolved_state(field_id, not_enumerated) == wanted_spec._resolved_state(field_id)
                for field_id in wanted_spec.values
            )
        )

    def _has_frequencies(self, wanted_spec: ColumnSpec, field_id: str, not_enumerated: Collection[str]) -> bool:
        """Return whether the frequencies that `wanted_spec` requires of a column are stored or derivable.

        True if the column is `estimated` or `off` in `wanted_spec`: then no frequencies are required.

        Args:
            wanted_spec: The spec with the wanted outputs.
            field_id: The field id.
            not_enumerated: Columns for which the stored profile has no value counts, because values hardly repeat.
        """
        if wanted_spec.state(field_id) in ("estimated", "off"):
            return True
        if self.frequencies_version != wanted_spec.frequencies_version:
            return False
        stored_state, wanted_state = self.state(field_id, not_enumerated), wanted_spec.state(field_id)
        # Fingerprints are derived from value counts. While `auto` is undecided, values that were not worth enumerating
        # need not be enumerated.
        return (
            stored_state in _ENUMERATING
            or (stored_state == "fingerprinted" and wanted_state in ("fingerprinted", "repeated"))
            or (stored_state == "estimated" and field_id in not_enumerated and wanted_state == "auto")
        )

    def _has_bins(self, wanted_spec: ColumnSpec, field_id: str) -> bool:
        bins = wanted_spec._bins(field_id)
        return not bins or (self.histograms_version == wanted_spec.histograms_version and self._bins(field_id) >= bins)

    def _bins(self, field_id: str) -> int:
        return self.histograms.get(field_id, _DEFAULT_BINS)

    def _resolved_state(self, field_id: str, not_enumerated: Collection[str] = ()) -> str:
        state = self.state(field_id, not_enumerated)
        return "enumerated" if state in _ENUMERATING else state

    def to_text(self) -> str:
        """Return the spec as JSON, which `parse_column_spec` parses."""
        document: dict[str, Any] = {"statistics": self.statistics, "names": self.names, "values": list(self.values)}
        document |= {"frequencies": self.frequencies} if self.frequencies else {}
        document |= {"histograms": self.histograms} if self.histograms else {}
        document |= {"without_quantiles": list(self.without_quantiles)} if self.without_quantiles else {}
        document |= {"value_filters": list(self.value_filters)} if self.value_filters else {}
        document |= {"user_defined": self.user_defined} if self.user_defined else {}
        document["versions"] = [self.frequencies_version, self.histograms_version]
        return json.dumps(document, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


@lru_cache(maxsize=65_536)
def parse_column_spec(text: str) -> ColumnSpec | None:
    """Parse a stored spec; None if the text cannot be parsed."""
    try:
        document = json.loads(text)
        frequencies_version, histograms_version = document["versions"]
        return ColumnSpec(
            document["statistics"],
            document["names"],
            tuple(document["values"]),
            document.get("frequencies", {}),
            document.get("histograms", {}),
            tuple(document.get("without_quantiles", ())),
            tuple(document.get("value_filters", ())),
            document.get("user_defined", {}),
            frequencies_version,
            histograms_version,
        )
    except (ValueError, KeyError, TypeError):
        return None


def column_spec(position: int, columns: Iterable[tuple[Column, ResolvedPolicy]], conversion: str = "") -> ColumnSpec:
    """Return the spec of a top-level column.

    Args:
        position: Position of the top-level column among all columns of the table, nested ones included.
        columns: The top-level column and the fields nested in it, with their policies.
        conversion: A text that identifies how stored values of the top-level column are converted, from the metadata of
            its Arrow field (see `formats.base.CONVERSION`). Empty if the metadata have none.
    """
    policies = list(columns)
    typed_columns = [
        (column.field_id, policy) for column, policy in policies if policy.values == "shown" and _is_typed(column)
    ]
    types = [
        f"{column.field_id}:{type_fingerprint(column.type)}{_hidden_suffix(policy)}" for column, policy in policies
    ]
    types += [conversion] if conversion else []
    states = {
        field_id: "fingerprinted" if policy.is_fingerprinted else policy.frequencies
        for field_id, policy in typed_columns
        if not policy.has_all_values
    }
    bins = {
        field_id: 0 if policy.histogram == "off" else histogram_capacity(policy.histogram)
        for field_id, policy in typed_columns
        if policy.histogram != _DEFAULT.histogram
    }
    return ColumnSpec(
        statistics=digest_texts([STATISTICS_VERSION, *types]),
        names=digest_texts([str(position), *(f"{column.path}:{column.type}" for column, _ in policies)]),
        values=tuple(field_id for field_id, _ in typed_columns),
        frequencies=states,
        histograms=bins,
        without_quantiles=tuple(field_id for field_id, policy in typed_columns if policy.quantiles == "off"),
        value_filters=tuple(field_id for field_id, policy in typed_columns if policy.has_value_filter),
        user_defined={column.field_id: keys for column, policy in policies if (keys := _user_defined(column, policy))},
        frequencies_version=FREQUENCIES_VERSION,
        histograms_version=HISTOGRAMS_VERSION,
    )


def check_sources(
    table: str, stored_column_specs: Iterable[Mapping[str, str]], wanted_column_specs: Mapping[str, str]
) -> None:
    """Raise ConfigError if a user-defined statistic has new source code under the same revision.

    Args:
        table: Name of the table.
        stored_column_specs: The specs of stored profiles, each as {identity of a column: text of its column spec}. The
            identity is the field id of the top-level column, or its name if it has none.
        wanted_column_specs: The wanted spec in the same form.
    """
    digests = dict(_source_digests(wanted_column_specs))
    if not digests:
        return
    for column_specs in stored_column_specs:
        for key, digest in _source_digests(column_specs):
            if digests.get(key, digest) != digest:
                reference, _, revision = key.removeprefix(DERIVED).rpartition("@")
                raise ConfigError(
                    f"table {table!r}: statistics: the source of {reference!r} has changed since numbers were computed "
                    f"by it, and its revision is still {revision!r}: "
                    "give the class another revision, or its former source"
                )


def _source_digests(column_specs: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield (key, digest of the source code) of each user-defined statistic in some column specs.

    The keys are those of `ColumnSpec.user_defined`, such as `module:Class@revision`.
    """
    for text in column_specs.values():
        spec = parse_column_spec(text)
        for digests in spec.user_defined.values() if spec is not None else ():
            yield from digests.items()


def _user_defined(column: Column, policy: ResolvedPolicy) -> dict[str, str]:
    """Return {key: digest of the source code} of a column's user-defined statistics.

    A key is `module:Class@revision`. It begins with `=` if the statistic is derived from value counts.
    """
    if not policy.statistics or policy.values == "hidden" or not _is_typed(column):
        return {}
    return {
        loaded_statistic.key
        if isinstance(loaded_statistic.statistic, MergeableStatistic)
        else f"{DERIVED}{loaded_statistic.key}": loaded_statistic.source
        for loaded_statistic in load_for_class(policy.statistics, type_class(column.type))
    }


def _hidden_suffix(policy: ResolvedPolicy) -> str:
    if policy.values == "shown":
        return ""
    return f":hidden:{'' if policy.hash_key is None else key_id(policy.hash_key)}"


def _is_typed(column: Column) -> bool:
    """Return whether the type of a column is supported."""
    try:
        type_class(column.type)
    except UnsupportedTypeError:
        return False
    return True
