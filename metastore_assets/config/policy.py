"""The policy of a column: what is kept of it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    PrivateAttr,
    ValidationError,
    field_validator,
    model_validator,
)

from metastore_assets.config.check_entries import ColumnChecks
from metastore_assets.config.variables import as_written, replaced_at_once
from metastore_assets.errors import ConfigError

FREQUENCY_LIMIT = 131_072
"""Distinct values, about, up to which `frequencies: auto` lists a column's values; beyond, how many is estimated."""
NEAR_UNIQUE_FROM = 65_536
"""Values from which on `frequencies: auto` does not list a column of which more than every second one is another."""
CardinalityMode = Literal["enumerated", "estimated", "fingerprinted"]
"""What is kept of a column whose policy leaves that to what its values are like."""
_REFERENCE = re.compile(r"\w+(\.\w+)*:\w+")
LEAST_KEY = 32
"""Characters that a key for hidden values has at least."""
_TOP = re.compile(r"top\(([1-9][0-9]{0,8})\)")


if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass
else:
    ModelMetaclass = type(BaseModel)


class _ConfigMetaclass(ModelMetaclass):
    """Has models that are made in Python raise ConfigError, as those that are read from a file do.

    A metaclass, because pydantic itself makes the models inside of others and has to see its own errors of these.
    """

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().__call__(*args, **kwargs)
        except ValidationError as error:
            raise _config_error(cls, kwargs, error) from None


class ConfigModel(BaseModel, metaclass=_ConfigMetaclass):
    """A part of the configuration: frozen, and without keys that nobody knows.

    Raises ConfigError where it is made, in Python, of what contradicts itself.
    """

    # What was put in may be a secret. Built at the first use: only the whole is, and not each of its parts too.
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, defer_build=True)

    references: ClassVar[frozenset[str]] = frozenset()
    """Fields in which references to the environment stay until they are needed, since their texts may be secrets, or
    are known to runs alone; and fields with such models. In all others references are replaced when the model is made,
    for their values are checked then."""

    @model_validator(mode="before")
    @classmethod
    def _references_as_written(cls, value: Any) -> Any:
        value = as_written(value)
        if not isinstance(value, Mapping):
            return value
        late = {key for name in cls.references for key in (name, cls.model_fields[name].alias) if key}
        known = {key for name, field in cls.model_fields.items() for key in (name, field.alias) if key}
        return {key: _replaced(key, own) if key in known - late else own for key, own in value.items()}

    @classmethod
    def model_validate(cls, obj: Any, **settings: Any) -> Self:
        """Make the model of a mapping. Raises ConfigError."""
        try:
            return super().model_validate(obj, **settings)
        except ValidationError as error:
            raise _config_error(cls, obj, error) from None

    @classmethod
    def validate_raw(cls, obj: Any) -> Self:
        """Make the model of a mapping. Raises pydantic's ValidationError, for who words it himself."""
        return super().model_validate(obj)


def _replaced(key: str, value: Any) -> Any:
    try:
        return replaced_at_once(value, os.environ)
    except ConfigError as error:
        raise ValueError(f"{key}: {error}") from None


def _config_error(model: Any, raw: Any, error: ValidationError) -> ConfigError:
    from metastore_assets.config.errors import explain

    given = raw if isinstance(raw, Mapping) else {}
    name = given.get("name")
    subject = f"table {name!r}: " if isinstance(name, str) and "uri" in model.model_fields else ""
    return ConfigError(f"{subject}{explain(given, error, model, quotes_unknown=False)}")


def _references(value: Any) -> Any:
    """One alone stands for a list of one."""
    given = (value,) if isinstance(value, str) else value
    if not isinstance(given, list | tuple) or not all(
        isinstance(own, str) and _REFERENCE.fullmatch(own) for own in given
    ):
        raise ValueError("user-defined statistics by module and class, such as my_package.my_stats:Benford")
    return given


References = Annotated[tuple[str, ...], BeforeValidator(_references)]
"""Classes of user-defined statistics, each as `module:Class`."""


class ResolvedPolicy(ConfigModel):
    """What is kept of one column: a policy in which `auto` may be decided, as `enumerated` or `estimated`."""

    frequencies: str = "auto"
    """`auto`; `all`; `top(n)`, of which all is kept and less listed; `repeated`, likewise or by fingerprints; `off`;
    `enumerated` and `estimated`, as `auto` was decided."""
    algorithm: Literal["auto", "counts", "ranges", "enumeration", "fingerprints"] = "auto"
    """How lists are built from scratch: by partial `counts`, added in one place, or by `ranges` of values, a task each;
    these agree. Of a column that is `repeated` also what is kept: `lists` of all its values, whichever way they are
    built, or `fingerprints` of them and a list of those that occur at least twice. `auto` is decided from what its
    values are like.
    """
    histogram: Literal["off"] | int = 1024
    """Number of bins asked for (1,000–10,000; at least that many are kept, never more than 10,000), or `off`."""
    ranks: Literal["on", "off"] = "off"
    """`on`: exact ranks and quantiles, which every list of values gives: so `auto` means `all`."""
    by_partition: Literal["on", "off"] = "off"
    """`on`: it is kept which partitions hold which values, and how often; so `auto` means `all`."""
    quantiles: Literal["sketch", "off"] = "sketch"
    value_filter: Literal["on", "off"] = "off"
    """`on`: of each fragment it is kept which values it may hold, so that `=` and `in` leave out the others."""
    values: Literal["shown", "hidden"] = "shown"
    """`hidden`: nothing is kept that tells of a value, only counts, lengths, and sketches of hashes under a key."""

    statistics: References = ()
    """User-defined statistics that the column has, where they are for its type."""
    _hash_key: bytes | None = PrivateAttr(None)
    """Of hidden values; without it there are no sketches of them."""

    @property
    def hash_key(self) -> bytes | None:
        """The key that hidden values are hashed with, if they are."""
        return self._hash_key

    def with_hash_key(self, key: bytes) -> Self:
        """The same policy with the key that hidden values are hashed with."""
        copy = self.model_copy()
        copy._hash_key = key
        return copy

    @property
    def is_enumerated(self) -> bool:
        """Whether values are listed, unless that is open and there turn out to be too many, or too few that repeat."""
        return self.frequencies not in ("off", "estimated") and not self.is_fingerprinted

    @property
    def is_fingerprinted(self) -> bool:
        """Whether it is settled that fingerprints are kept, and values only that occur at least twice."""
        return self.frequencies == "repeated" and self.algorithm == "fingerprints"

    @property
    def is_undecided(self) -> bool:
        """Whether it hangs on the values what is kept of them, and is not decided yet."""
        return self.frequencies == "auto" or (self.frequencies == "repeated" and self.algorithm == "auto")

    @property
    def enumerating_key(self) -> str | None:
        """The first of the keys that are `on` and take a list of all values."""
        return next((key for key in ("ranks", "by_partition") if getattr(self, key) == "on"), None)

    @property
    def has_value_filter(self) -> bool:
        """Whether it is kept which values a fragment may hold, which would tell of hidden ones as well."""
        return self.value_filter == "on" and self.values == "shown"

    @property
    def has_all_values(self) -> bool:
        """Whether it is settled that all values are kept."""
        return self.is_enumerated and not self.is_undecided

    @property
    def is_truncated(self) -> bool:
        """Whether less is listed than is kept."""
        return self.max_values is not None or self.min_frequency > 1

    @property
    def max_values(self) -> int | None:
        """How many of the values are listed at most, the most frequent ones; None for no limit."""
        found = _TOP.fullmatch(self.frequencies)
        return int(found[1]) if found else None

    @property
    def min_frequency(self) -> int:
        """How often a value occurs at least that is listed."""
        return 2 if self.frequencies == "repeated" else 1

    def resolve(self, mode: CardinalityMode) -> ResolvedPolicy:
        """The same policy with what it leaves open decided. What is not listed, `auto` estimates, and of `repeated`
        fingerprints are kept."""
        if self.frequencies == "repeated":
            own = {"algorithm": "enumeration" if mode == "enumerated" else "fingerprints"}
        else:
            own = {"frequencies": "enumerated" if mode == "enumerated" else "estimated"}
        policy = ResolvedPolicy(**{**self.model_dump(include=set(ResolvedPolicy.model_fields)), **own})
        return policy if self._hash_key is None else policy.with_hash_key(self._hash_key)


class ColumnPolicy(ResolvedPolicy):
    """What is configured for one column. Absent keys fall back to the table's `default` policy, then to defaults."""

    checks: ColumnChecks = ()
    """What has to be true of the column's values. No policy: what is kept does not depend on them."""

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
