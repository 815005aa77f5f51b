"""The policy of a column: which statistics, value counts, histograms and filters are stored for it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, PrivateAttr, field_validator, model_validator

from metastore_assets.config.base import ConfigModel

FREQUENCY_LIMIT = 131_072
"""Approximate number of distinct values up to which `frequencies: auto` enumerates the values of a column."""
NEAR_UNIQUE_FROM = 65_536
"""Number of values from which `frequencies: auto` does not enumerate a column with more than half of them distinct."""
CardinalityMode = Literal["enumerated", "estimated", "fingerprinted"]
"""How the values of a column are stored, once the profile has decided what the policy leaves open.

`enumerated`: every distinct value with its frequency. `estimated`: the number of distinct values. `fingerprinted`: a
hash of every value, and the values that occur at least twice.
"""
HIDDEN_KEY_MIN_LENGTH = 32
"""Minimum number of characters of a key for hidden values."""
_CLASS_REFERENCE = re.compile(r"\w+(\.\w+)*:\w+")
_TOP = re.compile(r"top\(([1-9][0-9]{0,8})\)")


def _class_references(value: Any) -> Any:
    """Return class references as a list; a single one becomes a list of one."""
    references = (value,) if isinstance(value, str) else value
    if not isinstance(references, list | tuple) or not all(
        isinstance(item, str) and _CLASS_REFERENCE.fullmatch(item) for item in references
    ):
        raise ValueError("user-defined statistics by module and class, such as my_package.my_stats:Benford")
    return references


ClassReferences = Annotated[tuple[str, ...], BeforeValidator(_class_references)]
"""Classes of user-defined statistics, each as `module:Class`."""


class ResolvedPolicy(ConfigModel):
    """What is stored of one column. `resolve` replaces what `auto` and `repeated` leave open."""

    frequencies: str = "auto"
    """Which values are stored with their frequencies: `auto`, `all`, `top(n)`, `repeated` or `off`. `top(n)` and
    `repeated` limit what is reported, and `repeated` may also store fingerprints. `auto` resolves to `enumerated` or
    `estimated`."""
    algorithm: Literal["auto", "counts", "ranges", "enumeration", "fingerprints"] = "auto"
    """How value counts are built from scratch: by adding partial `counts` in one place, or by `ranges` of values with
    a task each; the results are equal. With `frequencies: repeated` also what is stored: an `enumeration` of all
    values, or `fingerprints` of all values and an enumeration of those that occur at least twice. `auto` is decided
    from the values.
    """
    histogram: Literal["off"] | int = 1024
    """Minimum number of bins (1,000 to 10,000), or `off`. A histogram never has more than 10,000 bins."""
    ranks: Literal["on", "off"] = "off"
    """`on`: exact ranks and quantiles. They need all values, so `frequencies: auto` then means `all`."""
    by_partition: Literal["on", "off"] = "off"
    """`on`: the frequencies of every value by partition. They need all values, so `auto` then means `all`."""
    quantiles: Literal["sketch", "off"] = "sketch"
    value_filter: Literal["on", "off"] = "off"
    """`on`: a filter per fragment of the values that it may hold, so that `=` and `in` prune other fragments."""
    values: Literal["shown", "hidden"] = "shown"
    """`hidden`: nothing that reveals a value is stored, only counts, lengths, and sketches of keyed hashes."""

    statistics: ClassReferences = ()
    """User-defined statistics of the column. Those that do not support its type are ignored."""
    _hash_key: bytes | None = PrivateAttr(None)

    @property
    def hash_key(self) -> bytes | None:
        """The key that hidden values are hashed with. Without it they have no sketches."""
        return self._hash_key

    def with_hash_key(self, key: bytes) -> Self:
        """Return the policy with the key that hidden values are hashed with."""
        copy = self.model_copy()
        copy._hash_key = key
        return copy

    @property
    def is_enumerated(self) -> bool:
        """Whether values are stored with their frequencies. If `is_undecided`, the values may change this."""
        return self.frequencies not in ("off", "estimated") and not self.is_fingerprinted

    @property
    def is_fingerprinted(self) -> bool:
        """Whether fingerprints of all values are stored, and an enumeration of those that occur at least twice."""
        return self.frequencies == "repeated" and self.algorithm == "fingerprints"

    @property
    def is_undecided(self) -> bool:
        """Whether the values of the column decide how they are stored (`resolve`)."""
        return self.frequencies == "auto" or (self.frequencies == "repeated" and self.algorithm == "auto")

    @property
    def enumerating_key(self) -> str | None:
        """The first key (`ranks`, `by_partition`) that is `on` and requires an enumeration of all values."""
        return next((key for key in ("ranks", "by_partition") if getattr(self, key) == "on"), None)

    @property
    def has_value_filter(self) -> bool:
        """Whether fragments have a value filter. A filter would reveal hidden values, so these have none."""
        return self.value_filter == "on" and self.values == "shown"

    @property
    def has_all_values(self) -> bool:
        """Whether all values are stored with their frequencies, whatever they are."""
        return self.is_enumerated and not self.is_undecided

    @property
    def is_truncated(self) -> bool:
        """Whether fewer values are reported than stored."""
        return self.max_values is not None or self.min_frequency > 1

    @property
    def max_values(self) -> int | None:
        """Maximum number of reported values, the most frequent ones; None for no limit."""
        match = _TOP.fullmatch(self.frequencies)
        return int(match[1]) if match else None

    @property
    def min_frequency(self) -> int:
        """Minimum frequency of reported values."""
        return 2 if self.frequencies == "repeated" else 1

    def resolve(self, mode: CardinalityMode) -> ResolvedPolicy:
        """Return the policy with the decision about its values.

        For any mode but `enumerated`, `auto` becomes `estimated` and `repeated` stores fingerprints.
        """
        if self.frequencies == "repeated":
            decision = {"algorithm": "enumeration" if mode == "enumerated" else "fingerprints"}
        else:
            decision = {"frequencies": "enumerated" if mode == "enumerated" else "estimated"}
        policy = ResolvedPolicy(**{**self.model_dump(include=set(ResolvedPolicy.model_fields)), **decision})
        return policy if self._hash_key is None else policy.with_hash_key(self._hash_key)


class ColumnPolicy(ResolvedPolicy):
    """The configured policy of one column. Absent keys default to the table's policy `default`."""

    checks: tuple[Any, ...] = ()
    """Checks of the column's values, as written. They are validated by `metastore_assets.checks`."""

    @model_validator(mode="before")
    @classmethod
    def _yaml_booleans(cls, value: Any) -> Any:
        """YAML 1.1 reads a bare `off` as false and `on` as true: take them as the words they were."""
        if not isinstance(value, Mapping):
            return value
        return {key: {True: "on", False: "off"}[v] if isinstance(v, bool) else v for key, v in value.items()}

    @field_validator("frequencies", mode="before")
    @classmethod
    def _frequencies(cls, value: Any) -> Any:
        if not isinstance(value, str) or (
            value not in ("auto", "all", "repeated", "off") and not _TOP.fullmatch(value)
        ):
            raise ValueError("must be auto, all, repeated, off, or top(n) with a number, such as top(100)")
        return value

    @field_validator("histogram")
    @classmethod
    def _bins(cls, value: int | str) -> int | str:
        if isinstance(value, int) and not 1000 <= value <= 10_000:
            raise ValueError("a number of bins from 1000 to 10000, or off")
        return value
