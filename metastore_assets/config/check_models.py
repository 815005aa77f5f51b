"""The checks that `metastore.yaml` can ask for, as pydantic models: what each is about, and what it takes."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field, model_validator

from metastore_assets.config.check import Check as Check
from metastore_assets.config.check import Level as Level
from metastore_assets.config.check_settings import (
    Against,
    Count,
    Duration,
    Limit,
    Literally,
    Part,
    Share,
    share,
)

Measure: TypeAlias = Literal["stability_index", "kolmogorov_smirnov", "jensen_shannon"]


class Fresh(Check):
    """The snapshot that is described was committed at most so long ago."""

    kind = "fresh"
    level = "table"
    main = "within"
    by_partition = False
    within: Duration


class Current(Check):
    """The newest version describes the snapshot that the table is in."""

    kind = "current"
    level = "table"
    by_partition = False


class Complete(Check):
    """The newest version has all files of the table, each with as many rows as the format's own metadata say."""

    kind = "complete"
    level = "table"
    by_partition = False


class Consistent(Check):
    """The numbers of the version agree with each other."""

    kind = "consistent"
    level = "table"
    by_partition = False


class _Between(Check):
    @model_validator(mode="after")
    def _some_bound(self) -> _Between:
        low, high = self._bounds()
        if low is None and high is None:
            first, second = self._names()
            raise ValueError(f"give {first}, {second} or both")
        if isinstance(low, int | Decimal) and isinstance(high, int | Decimal) and low > high:
            raise ValueError(f"{' is greater than '.join(self._names())}: nothing lies between")
        return self

    def _names(self) -> tuple[str, str]:
        return ("minimum", "maximum")

    def _bounds(self) -> tuple[Any, Any]:
        first, second = self._names()
        return getattr(self, first), getattr(self, second)


class RowCount(_Between):
    """The number of rows is from `minimum` to `maximum`, both inclusive."""

    kind = "row_count"
    level = "table"
    main = "minimum"
    minimum: Count | None = None
    maximum: Count | None = None


class RowCountChange(_Between):
    """The number of rows against an earlier version's, as a part of that: from `lower` to `upper`, both inclusive."""

    kind = "row_count_change"
    level = "table"
    main = "within"
    lower: Share | None = None
    upper: Share | None = None
    against: Against = "previous"

    @model_validator(mode="before")
    @classmethod
    def _both_ways(cls, value: Any) -> Any:
        """`within: 20%` stands for `lower: -20%, upper: 20%`."""
        if not isinstance(value, Mapping) or "within" not in value:
            return value
        if {"lower", "upper"} & set(value):
            raise ValueError("within stands for lower and upper: give either")
        most = share(value["within"])
        if most < 0:
            raise ValueError("within is 0 or more")
        return {**{key: own for key, own in value.items() if key != "within"}, "lower": -most, "upper": most}

    def _names(self) -> tuple[str, str]:
        return ("lower", "upper")


class NotNull(Check):
    """No value is null."""

    kind = "not_null"
    universal = True


class NullShare(_Between):
    """The part of rows that are null is from `least` to `most`, both inclusive."""

    kind = "null_share"
    main = "most"
    least: Part | None = None
    most: Part | None = None

    def _names(self) -> tuple[str, str]:
        return ("least", "most")


class Unique(Check):
    """No value occurs twice. Nulls may."""

    kind = "unique"
    universal = True


class AcceptedValues(Check):
    """Every value is one of these. Nulls may be there."""

    kind = "accepted_values"
    universal = True
    main = "values"
    values: Annotated[tuple[Literally, ...], Field(min_length=1)]


class Range(_Between):
    """Every value lies from `minimum` to `maximum`, both inclusive. NaN lies in no range."""

    kind = "range"
    universal = True
    minimum: Limit = None
    maximum: Limit = None


class Matches(Check):
    """At least this part of the values are, from beginning to end, what a regular expression (RE2) describes."""

    kind = "matches"
    main = "pattern"
    pattern: Annotated[str, Field(min_length=1)]
    least: Part = Decimal(1)

    @property
    def is_of_each_row(self) -> bool:
        """Where all values have to match."""
        return self.least == 1


class Lengths(_Between):
    """The length of every value is from `minimum` to `maximum`, both inclusive: characters, bytes, or elements."""

    kind = "lengths"
    universal = True
    minimum: Count | None = None
    maximum: Count | None = None


class Drift(Check):
    """The values are distributed as in an earlier version: the distance of the two is at most `most`."""

    kind = "drift"
    main = "most"
    most: Annotated[Decimal, BeforeValidator(share), Field(ge=0)]
    measure: Measure = "stability_index"
    against: Against = "previous"
    groups: Annotated[int, Field(ge=2, le=1000, strict=True)] = 10
    """Of the stability index: how many groups of about equal parts of the earlier version's values; of texts and the
    like its most frequent values, and all others in one."""


KINDS: Mapping[str, type[Check]] = {
    one.kind: one
    for one in (
        Fresh,
        Current,
        Complete,
        Consistent,
        RowCount,
        RowCountChange,
        NotNull,
        NullShare,
        Unique,
        AcceptedValues,
        Range,
        Matches,
        Lengths,
        Drift,
    )
}
"""All checks there are, by name."""
