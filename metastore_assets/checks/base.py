"""The base class of all checks, and the finding that a check returns.

Checks are evaluated on a version: the published statistics of a table at one snapshot.
"""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, model_validator

from metastore_assets.checks.settings import Name, Patterns
from metastore_assets.report.text import format_number
from metastore_assets.report.text import format_value as value_text

if TYPE_CHECKING:
    from metastore_assets.checks.subject import Subject
    from metastore_assets.statistics.column import Guarantee

Level: TypeAlias = Literal["table", "column"]
Status: TypeAlias = Literal["passed", "failed", "unknown"]
"""`unknown`: the stored statistics cannot answer. A check is never decided by an estimate."""

CHECKS: dict[str, type[Check]] = {}
"""All check classes by their name in the configuration. A class adds itself when it is defined."""


@dataclass(frozen=True)
class Finding:
    """The outcome of a check for a table or for one of its partitions."""

    status: Status
    observed: str
    """What was observed, as one line of text."""
    guarantee: Guarantee = "exact"
    """How far the number that the check needs can be trusted, even if it did not decide the check; `absent` if there is
    no such number."""
    advice: str | None = None
    """What would answer an `unknown` check: a policy to configure or a command to run, for example."""
    measures: Mapping[str, int | float] = field(default_factory=dict)
    """The numbers in `observed` by name, so that they can be plotted over versions."""


def status_of(is_satisfied: bool) -> Status:
    """Return `passed` if the check is satisfied, otherwise `failed`."""
    return "passed" if is_satisfied else "failed"


def nothing_to_check(what: str) -> Finding:
    """Return a passed finding.

    If `what` is `rows`, its text is `no rows, so nothing was checked`.
    """
    return Finding("passed", f"no {what}, so nothing was checked")


class Check(BaseModel):
    """One check of a table or column: its settings, its evaluation, and its description.

    A subclass with a `kind` is a check that the configuration can name. Its fields are its settings. It must define
    `evaluate` and `describe`, or else the class definition raises TypeError.
    """

    # `defer_build`: most configurations use few checks.
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    level: ClassVar[Level] = "column"
    kind: ClassVar[str]
    """Name of the check in the configuration."""
    main: ClassVar[str | None] = None
    """The setting to which a single value belongs: in `null_share: 5%`, the setting `most`. None without one."""
    by_partition: ClassVar[bool] = True
    """Whether the check can be evaluated for single partitions."""
    universal: ClassVar[bool] = False
    """Whether the check passes for every subset of rows if it passes for all rows."""
    drill_down: ClassVar[Literal["never", "statistics", "values"]] = "never"
    """What is read to find the failing partitions after the check failed for the whole table: statistics, or value
    counts. `never` means that these partitions are not searched."""

    name: Name = None
    """Name in results and in Dagster. Default: derived from the column and the kind."""
    severity: Literal["error", "warn"] = "error"
    """With `error`, a failure makes `metastore check` exit with status 1."""
    partitions: Patterns = ()
    """Keys and patterns of partitions. The check is evaluated for each matching partition. By default, it is evaluated
    for the whole table."""
    blocking: bool = False
    """Whether a failure with severity `error` fails Dagster's run and the assets downstream. The version is published
    nevertheless."""

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        if "kind" not in cls.__dict__:
            return
        if inspect.isabstract(cls):
            missing_methods = ", ".join(sorted(cls.__abstractmethods__))
            raise TypeError(f"check {cls.kind!r}: {cls.__name__} does not define {missing_methods}")
        CHECKS[cls.kind] = cls

    @abstractmethod
    def evaluate(self, subject: Subject) -> Finding:
        """Evaluate the check for a table, partition or column.

        Raises:
            NotStoredError: The version does not store a number that the check needs.
            ColumnNotFoundError, LiteralError, ConfigError: The settings of the check contradict the table. For example,
                they name a column that the table does not have.
        """

    @abstractmethod
    def describe(self) -> str:
        """Return what the check expects, such as `at most 5% null`."""

    def excess(self, measures: Mapping[str, float]) -> float:
        """Return how much the measures of a finding violate the check, to rank partitions.

        The result is 0 without a violation.
        """
        return 0

    @property
    def expectation(self) -> str:
        """What the check expects: `at most 5% null, in each partition`."""
        return f"{self.describe()}, in each partition" if self.partitions else self.describe()

    @property
    def holds_for_subsets(self) -> bool:
        """Whether the check, with its settings, passes for every partition if it passes for the table."""
        return self.universal


class BoundedCheck(Check):
    """A check with an inclusive lower bound, an inclusive upper bound, or both."""

    bounds: ClassVar[tuple[str, str]] = ("minimum", "maximum")
    """Names of the two settings."""

    @model_validator(mode="after")
    def _valid_bounds(self) -> BoundedCheck:
        low, high = self.limits
        lower, upper = self.bounds
        if low is None and high is None:
            raise ValueError(f"give {lower}, {upper} or both")
        if isinstance(low, int | float | Decimal) and isinstance(high, int | float | Decimal) and low > high:
            raise ValueError(f"{lower} is greater than {upper}: nothing lies between")
        return self

    @property
    def limits(self) -> tuple[Any, Any]:
        """The lower and the upper bound; None for an open side."""
        lower, upper = self.bounds
        return getattr(self, lower), getattr(self, upper)

    def is_within(self, value: Any) -> bool:
        """Return whether a value lies within the bounds."""
        low, high = (Fraction(limit) if isinstance(limit, Decimal) else limit for limit in self.limits)
        return bool((low is None or value >= low) and (high is None or value <= high))

    def excess_of(self, least: float | None, greatest: float | None) -> float:
        """Return how far values lie below the lower bound or above the upper bound, whichever is more.

        The result is 0 if they lie within the bounds. A bound that is a time or a text is ignored.

        Args:
            least: The least value; None if unknown. It is then not compared with the lower bound.
            greatest: The greatest value; None if unknown. It is then not compared with the upper bound.
        """
        low, high = self.limits
        distances = [0.0]
        for limit, value, sign in ((low, least, 1), (high, greatest, -1)):
            if value is not None and limit is not None:
                try:
                    distances.append(sign * (float(str(limit)) - value))
                except ValueError:
                    continue  # a time or a text
        return max(distances)


def describe_bounds(low: Any, high: Any) -> str:
    """Return an interval in words: `from 0 to 100`, `at least 0`, `at most 100`."""
    if low is None:
        return f"at most {describe_value(high)}"
    if high is None:
        return f"at least {describe_value(low)}"
    return f"from {describe_value(low)} to {describe_value(high)}"


def describe_value(value: Any) -> str:
    """Return a value from a check's settings as text for messages.

    Examples: `1,000`, `true` and `2024-01-01 00:00:00`.
    """
    if isinstance(value, datetime):
        return value.isoformat(sep=" ")
    if isinstance(value, bool):
        return str(value).lower()
    return format_number(value) if isinstance(value, int | float) else value_text(str(value))


def describe_share(share: Decimal | None) -> str | None:
    """Return a share in percent; None for None."""
    return None if share is None else f"{(share * 100).normalize():f}%"


def describe_baseline(baseline: Any) -> str:
    """Describe the version to compare with: `the snapshot before`, `version 7` or `7 d before`."""
    if baseline == "previous":
        return "the snapshot before"
    return f"version {baseline}" if isinstance(baseline, int) else f"{describe_duration(baseline)} before"


def describe_duration(duration: timedelta) -> str:
    """Return a duration in the largest unit that divides it: `36 h`."""
    seconds = duration.total_seconds()
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= length and seconds % length == 0:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:g} s"
