"""Signatures of columns: what a stored profile holds of a top-level column, output by output, as a short text.

Statistics, frequencies and histograms are signed apart, each with a version of its own, and names and order beside
them. So a change of one output leaves the others alone; what is stored serves whoever wants no more than it holds; and
a rename or a reordering changes no content. What has its default value is left out, so that a new option with a
default changes no signature.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from metastore_assets.config import ResolvedPolicy
from metastore_assets.errors import ConfigError, UnsupportedTypeError
from metastore_assets.statistics.histogram import histogram_capacity
from metastore_assets.statistics.keyed_hashing import key_id
from metastore_assets.statistics.user_defined.interface import MergeableStatistic
from metastore_assets.statistics.user_defined.loading import load_for_class
from metastore_assets.values.leaf_columns import LeafColumn
from metastore_assets.values.types import type_class, type_fingerprint

STATISTICS_VERSION = "3"
FREQUENCIES_VERSION = "1"
HISTOGRAMS_VERSION = "1"
"""Each is raised when its output would come out differently of the same rows, so that it is computed again."""
PROFILE_VERSION = f"{STATISTICS_VERSION}.{FREQUENCIES_VERSION}.{HISTOGRAMS_VERSION}"

_UNLISTED = {"auto": "estimated", "enumerated": "estimated", "repeated": "prints"}
"""What is held instead of lists of values that were not worth listing."""
_LISTING = ("enumerated", "auto", "repeated")
"""States in which there are lists, of leaves that are not `unlisted`."""
LISTED = "="
"""Begins the keys of user-defined statistics that follow from lists."""
_DEFAULT = ResolvedPolicy()
_CAPACITY = histogram_capacity(int(_DEFAULT.histogram))


@dataclass(frozen=True)
class ColumnSpec:
    """What is held, or wanted, of one top-level column and the leaf columns below it, by their field ids."""

    statistics: str
    """Digest of the leaves' type classes: what any number is computed from."""
    names: str = field(compare=False)
    """Digest of the leaves' places in the table, paths and types as they are told: no number depends on it."""
    values: tuple[str, ...]
    """The leaves that have values of a class: those below stand for them."""
    frequencies: Mapping[str, str] = field(default_factory=dict)
    """`auto` and `repeated` (not decided), `prints`, `estimated` or `off`; leaves not named are listed."""
    histograms: Mapping[str, int] = field(default_factory=dict)
    """Most bins, 0 for no histogram; leaves not named have the default."""
    without_quantiles: tuple[str, ...] = ()
    membership: tuple[str, ...] = field(default=(), compare=False)
    """Leaves with filters of their values, of fragments alone."""
    user_defined: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By leaf, the user-defined statistics that it has: digest of the source by key, `module:Class@revision`. Of those
    that follow from lists the key begins with `=`, for nothing is held for their sake."""
    frequencies_version: str = ""
    histograms_version: str = ""

    def state(self, leaf: str, unlisted: Collection[str] = ()) -> str:
        """`enumerated`, `prints`, `estimated`, `off`, `auto` or `repeated`. `unlisted`: leaves whose values are not
        worth listing, as was found."""
        state = self.frequencies.get(leaf, "enumerated")
        return _UNLISTED.get(state, state) if leaf in unlisted else state

    def satisfies(self, wanted: ColumnSpec, unlisted: Collection[str] = ()) -> bool:
        """Whether all that is wanted is held, or follows from what is held."""
        return not any(True for _ in self.missing_outputs(wanted, unlisted))

    def missing_outputs(self, wanted: ColumnSpec, unlisted: Collection[str] = ()) -> Iterator[tuple[str, str]]:
        """(Leaf, output) of all that is wanted and does not follow from what is held."""
        if self.statistics != wanted.statistics:
            yield from ((leaf, "statistics") for leaf in wanted.values)
            if not wanted.values:
                yield "", "statistics"
            return
        for leaf in wanted.values:
            if leaf in self.without_quantiles and leaf not in wanted.without_quantiles:
                yield leaf, "quantiles"
            if not self._lists(wanted, leaf, unlisted):
                yield leaf, "frequencies"
            if not self._has_bins(wanted, leaf):
                yield leaf, "histogram"
            # Filters follow from lists, and so do states.
            is_filtered = leaf in self.membership or self.state(leaf, unlisted) in _LISTING
            if leaf in wanted.membership and not is_filtered:
                yield leaf, "membership"
            if self.state(leaf, unlisted) not in _LISTING:
                own = self.user_defined.get(leaf, {})
                lacking = (key for key in wanted.user_defined.get(leaf, {}) if key not in own)
                yield from ((leaf, key) for key in lacking if not key.startswith(LISTED))

    def equals(self, wanted: ColumnSpec, unlisted: Collection[str] = ()) -> bool:
        """Whether what is held is what is wanted, no more and no less; names and order aside."""
        return (
            (self.statistics, self.without_quantiles) == (wanted.statistics, wanted.without_quantiles)
            and self.user_defined == wanted.user_defined
            and self.satisfies(wanted, unlisted)
            and all(
                self._bins(leaf) == wanted._bins(leaf) and self._resolved(leaf, unlisted) == wanted._resolved(leaf)
                for leaf in wanted.values
            )
        )

    def _lists(self, wanted: ColumnSpec, leaf: str, unlisted: Collection[str]) -> bool:
        if wanted.state(leaf) in ("estimated", "off"):
            return True
        if self.frequencies_version != wanted.frequencies_version:
            return False
        held, asked = self.state(leaf, unlisted), wanted.state(leaf)
        # Fingerprints follow from lists. Where nothing is decided, what was found not to be worth listing is as good as
        # a list.
        return (
            held in _LISTING
            or (held == "prints" and asked in ("prints", "repeated"))
            or (held == "estimated" and leaf in unlisted and asked == "auto")
        )

    def _has_bins(self, wanted: ColumnSpec, leaf: str) -> bool:
        most = wanted._bins(leaf)
        return not most or (self.histograms_version == wanted.histograms_version and self._bins(leaf) >= most)

    def _bins(self, leaf: str) -> int:
        return self.histograms.get(leaf, _CAPACITY)

    def _resolved(self, leaf: str, unlisted: Collection[str] = ()) -> str:
        state = self.state(leaf, unlisted)
        return "enumerated" if state in _LISTING else state

    def to_text(self) -> str:
        """The signature as it is stored."""
        told: dict[str, Any] = {"statistics": self.statistics, "names": self.names}
        told["values"] = list(self.values)
        told |= {"frequencies": self.frequencies} if self.frequencies else {}
        told |= {"histograms": self.histograms} if self.histograms else {}
        told |= {"without_quantiles": list(self.without_quantiles)} if self.without_quantiles else {}
        told |= {"membership": list(self.membership)} if self.membership else {}
        told |= {"user_defined": self.user_defined} if self.user_defined else {}
        told["versions"] = [self.frequencies_version, self.histograms_version]
        return json.dumps(told, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


@lru_cache(maxsize=65_536)
def parse_column_spec(text: str) -> ColumnSpec | None:
    """The inverse of `ColumnSpec.to_text`; None for what is no signature of today's form, which serves nobody."""
    try:
        told = json.loads(text)
        frequencies_version, histograms_version = told["versions"]
        return ColumnSpec(
            told["statistics"],
            told["names"],
            tuple(told["values"]),
            told.get("frequencies", {}),
            told.get("histograms", {}),
            tuple(told.get("without_quantiles", ())),
            tuple(told.get("membership", ())),
            told.get("user_defined", {}),
            frequencies_version,
            histograms_version,
        )
    except (ValueError, KeyError, TypeError):
        return None


def column_spec(position: int, leaves: Iterable[tuple[LeafColumn, ResolvedPolicy]]) -> ColumnSpec:
    """What is wanted of a top-level column, whose first leaf is at that position in the table."""
    own = list(leaves)
    valued = [(leaf.field_id, policy) for leaf, policy in own if policy.values == "shown" and _has_values(leaf)]
    kinds = [f"{leaf.field_id}:{type_fingerprint(leaf.type)}{_hidden(policy)}" for leaf, policy in own]
    states = {
        leaf: "prints" if policy.is_fingerprinted else policy.frequencies
        for leaf, policy in valued
        if not policy.has_all_values
    }
    bins = {
        leaf: 0 if policy.histogram == "off" else histogram_capacity(policy.histogram)
        for leaf, policy in valued
        if policy.histogram != _DEFAULT.histogram
    }
    return ColumnSpec(
        statistics=digest([STATISTICS_VERSION, *kinds]),
        names=digest([str(position), *(f"{leaf.path}:{leaf.type}" for leaf, _ in own)]),
        values=tuple(leaf for leaf, _ in valued),
        frequencies=states,
        histograms=bins,
        without_quantiles=tuple(leaf for leaf, policy in valued if policy.quantiles == "off"),
        membership=tuple(leaf for leaf, policy in valued if policy.has_value_filter),
        user_defined={leaf.field_id: held for leaf, policy in own if (held := _user_defined(leaf, policy))},
        frequencies_version=FREQUENCIES_VERSION,
        histograms_version=HISTOGRAMS_VERSION,
    )


def check_sources(table: str, held: Iterable[Mapping[str, str]], wanted: Mapping[str, str]) -> None:
    """Raise ConfigError when a user-defined statistic that is wanted has another source than the one, of the same
    revision, that stored profiles were made with. Both are signatures by column."""
    sources = dict(_sources(wanted))
    if not sources:
        return
    for own in held:
        for key, source in _sources(own):
            if sources.get(key, source) != source:
                reference, _, revision = key.removeprefix(LISTED).rpartition("@")
                raise ConfigError(
                    f"table {table!r}: statistics: the source of {reference!r} has changed since numbers were computed "
                    f"by it, and its revision is still {revision!r}: "
                    "give the class another revision, or its former source"
                )


def _sources(column_specs: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for text in column_specs.values():
        own = parse_column_spec(text)
        for sources in own.user_defined.values() if own is not None else ():
            yield from sources.items()


def _user_defined(leaf: LeafColumn, policy: ResolvedPolicy) -> dict[str, str]:
    if not policy.statistics or policy.values == "hidden" or not _has_values(leaf):
        return {}
    return {
        own.key if isinstance(own.statistic, MergeableStatistic) else f"{LISTED}{own.key}": own.source
        for own in load_for_class(policy.statistics, type_class(leaf.type))
    }


def _hidden(policy: ResolvedPolicy) -> str:
    if policy.values == "shown":
        return ""
    return f":hidden:{'' if policy.hash_key is None else key_id(policy.hash_key)}"


def digest(parts: Iterable[str]) -> str:
    """128 bits of the parts, as text."""
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _has_values(leaf: LeafColumn) -> bool:
    try:
        type_class(leaf.type)
    except UnsupportedTypeError:
        return False
    return True
