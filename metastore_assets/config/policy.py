"""The policy of a column: the settings that decide which of its statistics and values are stored."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, PrivateAttr, field_validator, model_validator

from metastore_assets.config.base import ConfigModel

FREQUENCY_LIMIT = 131_072
"""Approximate number of distinct values up to which `frequencies: auto` enumerates the values of a column."""
NEAR_UNIQUE_ABOVE = 65_536
"""Number of values above which `frequencies: auto` does not enumerate a column if more than half of them are distinct.
"""
CardinalityMode = Literal["enumerated", "estimated", "fingerprinted"]
"""How the values of a column are stored. If the policy does not say it, profiling decides.

`enumerated`: every distinct value with its frequency. `estimated`: only the estimated number of distinct values.
`fingerprinted`: a hash of every value, and the values that occur at least twice with their frequencies.
"""
HIDDEN_KEY_MIN_LENGTH = 32
"""Minimum number of characters of the key `hidden_key`, with which hidden values are hashed."""
_CLASS_REFERENCE = re.compile(r"\w+(\.\w+)*:\w+")
_TOP = re.compile(r"top\(([1-9][0-9]{0,8})\)")


def _class_references(value: Any) -> Any:
    """Return references to classes; a text becomes a tuple of one.

    Raises ValueError unless all are `module:Class`.
    """
    references = (value,) if isinstance(value, str) else value
    if not isinstance(references, list | tuple) or not all(
        isinstance(item, str) and _CLASS_REFERENCE.fullmatch(item) for item in references
    ):
        raise ValueError("custom statistics by module and class, such as my_package.my_stats:Benford")
    return references


ClassReferences = Annotated[tuple[str, ...], BeforeValidator(_class_references)]
"""Classes of custom statistics, each written as `module:Class`."""


class ResolvedPolicy(ConfigModel):
    """The settings of one column that decide which of its statistics and values are stored.

    With `frequencies: auto`, or with `frequencies: repeated` and `algorithm: auto`, profiling decides how values are
    stored. `resolve` adds this decision.
    """

    frequencies: str = "auto"
    """Which values are stored with their frequencies: `auto`, `all`, `top(n)`, `repeated` or `off`. `top(n)` and
    `repeated` limit what is reported, and `repeated` may also store fingerprints. `auto` resolves to `enumerated` or
    `estimated`."""
    algorithm: Literal["auto", "counts", "ranges", "enumeration", "fingerprints"] = "auto"
    """How value counts are built from scratch: `counts` adds partial counts in one process, `ranges` runs a task for
    each range of values; the results are equal. With `frequencies: repeated`, what is stored: `enumeration` stores all
    values, `fingerprints` stores hashes of all values, and the values that occur at least twice."""
    histogram: Literal["off"] | int = 1024
    """Number of bins (1,000 to 10,000), or `off`. A histogram has this number to twice this number of bins, with two
    exceptions. It has fewer bins if fewer separate all values. If the number is over 5,000, it has 5,000 to 10,000."""
    ranks: Literal["on", "off"] = "off"
    """`on`: exact ranks and quantiles are stored. They need all values, so `frequencies: auto` then means `all`."""
    by_partition: Literal["on", "off"] = "off"
    """`on`: the frequencies of every value in each partition are stored. They need all values, so `frequencies: auto`
    then means `all`."""
    quantiles: Literal["sketch", "off"] = "sketch"
    """`sketch`: a sketch of each column of numbers, dates or times is stored. It gives estimates of quantiles and ranks
    if the value counts are not stored."""
    value_filter: Literal["on", "off"] = "off"
    """`on`: a compact set of the values is stored for each fragment, so that lookups with `=` and `in` prune the
    fragments without these values."""
    values: Literal["shown", "hidden"] = "shown"
    """`hidden`: nothing that reveals a value is stored, only counts, lengths, and sketches of keyed hashes."""

    statistics: ClassReferences = ()
    """Custom statistics of the column. Those that do not support its type are ignored."""
    _hash_key: bytes | None = PrivateAttr(None)

    @property
    def hash_key(self) -> bytes | None:
        """The secret key for hashes of hidden values; None if no such hashes are stored."""
        return self._hash_key

    def with_hash_key(self, key: bytes) -> Self:
        """Return a copy with a secret key for hashes of hidden values.

        It has an effect only with `values: hidden`.
        """
        copy = self.model_copy()
        copy._hash_key = key
        return copy

    @property
    def is_enumerated(self) -> bool:
        """Whether all values are stored with their frequencies.

        While `is_undecided` is true, this is true, too, although profiling may still decide otherwise.
        """
        return self.frequencies not in ("off", "estimated") and not self.is_fingerprinted

    @property
    def is_fingerprinted(self) -> bool:
        """Whether a hash of every value is stored, and the values that occur at least twice."""
        return self.frequencies == "repeated" and self.algorithm == "fingerprints"

    @property
    def is_undecided(self) -> bool:
        """Whether profiling still has to choose: to store all values, or instead estimates or fingerprints."""
        return self.frequencies == "auto" or (self.frequencies == "repeated" and self.algorithm == "auto")

    @property
    def enumerating_key(self) -> str | None:
        """The first of `ranks` and `by_partition` that is `on`, and so requires all values.

        It is None if neither is `on`.
        """
        return next((key for key in ("ranks", "by_partition") if getattr(self, key) == "on"), None)

    @property
    def has_value_filter(self) -> bool:
        """Whether a compact set of the column's values is stored for each fragment.

        A fragment is a data file with its deletes. Hidden values have no such set, because it would reveal them.
        """
        return self.value_filter == "on" and self.values == "shown"

    @property
    def has_all_values(self) -> bool:
        """Whether all values are stored with their frequencies; false while `is_undecided` is true."""
        return self.is_enumerated and not self.is_undecided

    @property
    def is_truncated(self) -> bool:
        """Whether the policy limits which values are reported: with `top(n)` or `repeated`."""
        return self.max_values is not None or self.min_frequency > 1

    @property
    def max_values(self) -> int | None:
        """How many of the most frequent values are reported: n of `top(n)`; None for no limit."""
        match = _TOP.fullmatch(self.frequencies)
        return int(match[1]) if match else None

    @property
    def min_frequency(self) -> int:
        """The least frequency of a value that is reported: 2 if `frequencies` is `repeated`, otherwise 1."""
        return 2 if self.frequencies == "repeated" else 1

    def resolve(self, mode: CardinalityMode) -> ResolvedPolicy:
        """Return a copy of the policy that contains the decision about how the column's values are stored.

        The decision is whether all distinct values are stored with counts.

        - With `frequencies: repeated`, `algorithm` becomes `enumeration` if all are stored, otherwise `fingerprints`.
        - With any other value, `frequencies` becomes `enumerated` if all are stored, otherwise `estimated`.

        Args:
            mode: The decision. Only `enumerated` means that all distinct values are stored; `estimated` and
                `fingerprinted` have the same effect here.
        """
        if self.frequencies == "repeated":
            decision = {"algorithm": "enumeration" if mode == "enumerated" else "fingerprints"}
        else:
            decision = {"frequencies": "enumerated" if mode == "enumerated" else "estimated"}
        policy = ResolvedPolicy(**{**self.model_dump(include=set(ResolvedPolicy.model_fields)), **decision})
        return policy if self._hash_key is None else policy.with_hash_key(self._hash_key)


class ColumnPolicy(ResolvedPolicy):
    """An entry under `columns`: the policy of a column or, under `default`, of all other columns."""

    checks: tuple[Any, ...] = ()
    """Checks of the column, such as `not_null`."""

    @model_validator(mode="before")
    @classmethod
    def _booleans_to_words(cls, value: Any) -> Any:
        """Replace true by `on` and false by `off`, because YAML 1.1 reads these words as booleans."""
        if not isinstance(value, Mapping):
            return value
        return {key: ("on" if item else "off") if isinstance(item, bool) else item for key, item in value.items()}

    @field_validator("frequencies", mode="before")
    @classmethod
    def _validate_frequencies(cls, value: Any) -> Any:
        if not isinstance(value, str) or (
            value not in ("auto", "all", "repeated", "off") and not _TOP.fullmatch(value)
        ):
            raise ValueError("must be auto, all, repeated, off, or top(n) with a number, such as top(100)")
        return value

    @field_validator("histogram")
    @classmethod
    def _validate_histogram(cls, value: int | str) -> int | str:
        if isinstance(value, int) and not 1000 <= value <= 10_000:
            raise ValueError("a number of bins from 1000 to 10000, or off")
        return value
