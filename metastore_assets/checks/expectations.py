"""What a check expects, in words."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from metastore_assets.config.check_models import (
    AcceptedValues,
    Check,
    Complete,
    Consistent,
    Current,
    Drift,
    Fresh,
    Lengths,
    Matches,
    Measure,
    NotNull,
    NullShare,
    Range,
    RowCount,
    RowCountChange,
    Unique,
)
from metastore_assets.report.text import number, short
from metastore_assets.report.text import value as visible

MEASURES: Mapping[Measure, str] = {
    "stability_index": "stability index",
    "kolmogorov_smirnov": "Kolmogorov–Smirnov distance",
    "jensen_shannon": "Jensen–Shannon distance",
}
"""What distances are called."""

_MOST_VALUES = 8
_CELL = 60


def expectation(check: Check) -> str:
    """On one line: `from 0 to 100`; `at most 5% null`."""
    told = _told(check)
    return f"{told}, in each partition" if check.partitions else told


def _told(check: Check) -> str:
    match check:
        case Fresh():
            return f"committed in the last {_time(check.within)}"
        case Current():
            return "of the snapshot that the table is in"
        case Complete():
            return "all files of the table, with as many rows as its metadata say"
        case Consistent():
            return "numbers that agree with each other"
        case RowCount():
            return f"{_between(check.minimum, check.maximum)} rows"
        case RowCountChange():
            return f"{_between(_percent(check.lower), _percent(check.upper))} rows against {_version(check.against)}"
        case NotNull():
            return "no nulls"
        case NullShare():
            return f"{_between(_percent(check.least), _percent(check.most))} null"
        case Unique():
            return "no value twice"
        case AcceptedValues():
            shown = ", ".join(short(_value(own), _CELL) for own in check.values[:_MOST_VALUES])
            more = len(check.values) - _MOST_VALUES
            return f"only {shown}" + (f" and {more} more" if more > 0 else "")
        case Range():
            return f"values {_between(check.minimum, check.maximum)}"
        case Matches():
            most = "" if check.least == 1 else f"at least {_percent(check.least)} "
            return f"{most}like {short(check.pattern, _CELL)}"
        case Lengths():
            return f"lengths {_between(check.minimum, check.maximum)}"
        case Drift():
            return f"{MEASURES[check.measure]} of at most {check.most.normalize():f} against {_version(check.against)}"
    raise AssertionError(check.kind)


def _between(low: Any, high: Any) -> str:
    if low is None:
        return f"at most {_value(high)}"
    if high is None:
        return f"at least {_value(low)}"
    return f"from {_value(low)} to {_value(high)}"


def _value(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat(sep=" ")
    if isinstance(value, bool):
        return str(value).lower()
    return number(value) if isinstance(value, int | float) else visible(str(value))


def _percent(value: Decimal | None) -> str | None:
    return None if value is None else f"{(value * 100).normalize():f}%"


def _version(against: Any) -> str:
    if against == "previous":
        return "the snapshot before"
    return f"version {against}" if isinstance(against, int) else f"{_time(against)} before"


def _time(length: timedelta) -> str:
    seconds = length.total_seconds()
    for unit, own in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= own and seconds % own == 0:
            return f"{seconds / own:.0f} {unit}"
    return f"{seconds:g} s"
