"""The policy of a column: what is kept of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator, model_validator

FREQUENCY_LIMIT = 131_072
"""Distinct values, about, up to which `frequencies: auto` lists a column's values; beyond, how many is estimated."""
NEAR_UNIQUE_FROM = 16_384
"""Values from which on `frequencies: auto` does not list a column of which more than every second one is another."""
_NOT_BUILT = {"repeated", "top", "on"}
_BUILT: Mapping[str | None, tuple[str, ...]] = {"frequencies": ("auto", "all", "off"), "ranks": ("off",)}


class ConfigModel(BaseModel):
    """A part of the configuration: frozen, and without keys that nobody knows."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class KeptPolicy(ConfigModel):
    """What is kept of one column: a policy in which `auto` may be decided, as `listed` or `estimated`."""

    frequencies: Literal["auto", "all", "off", "listed", "estimated"] = "auto"
    histogram: Literal["off"] | int = 1024
    """Number of bins asked for (1,000–10,000; at least that many are kept, never more than 10,000), or `off`."""
    ranks: Literal["off"] = "off"
    quantiles: Literal["sketch", "off"] = "sketch"
    values: Literal["shown", "hidden"] = "shown"
    """`hidden`: nothing is kept that tells of a value, only counts and lengths."""

    @property
    def lists(self) -> bool:
        """Whether values are listed, unless `auto`, where it is not decided yet, finds too many."""
        return self.frequencies in ("auto", "all", "listed")

    def decided(self, frequencies: Literal["listed", "estimated"]) -> KeptPolicy:
        """The same policy with `auto` decided."""
        return KeptPolicy(frequencies=frequencies, **self.model_dump(exclude={"frequencies"}))


class ColumnPolicy(KeptPolicy):
    """What is configured for one column. Absent keys fall back to the table's `default` policy, then to defaults."""

    frequencies: Literal["auto", "all", "off"] = "auto"

    @model_validator(mode="before")
    @classmethod
    def _yaml_booleans(cls, value: Any) -> Any:
        """YAML 1.1 reads a bare `off` as false and `on` as true: take them as the words they were."""
        if not isinstance(value, Mapping):
            return value
        return {key: {True: "on", False: "off"}[v] if isinstance(v, bool) else v for key, v in value.items()}

    @field_validator("frequencies", "ranks", mode="before")
    @classmethod
    def _refuse_what_is_not_built(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, str) and (value in _NOT_BUILT or value.startswith("top(")):
            raise ValueError(
                f"{value!r} is designed but not built yet; what there is: {', '.join(_BUILT[info.field_name])}"
            )
        return value

    @field_validator("histogram")
    @classmethod
    def _bins(cls, value: int | str) -> int | str:
        if isinstance(value, int) and not 1000 <= value <= 10_000:
            raise ValueError("a number of bins from 1000 to 10000, or off")
        return value
