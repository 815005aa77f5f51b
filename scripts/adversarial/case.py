"""A case: a table that another library writes, and the expected result of profiling it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

from scripts.realtables.compare import is_about

_TIME = re.compile(r"((?:.+T)?\d\d:\d\d:\d\d)(\.\d+)?(?:Z|\+00:00)?")
_JSON_INTEGER = 2**53 - 1
"""Larger integers are strings in the JSON output, because JSON readers would round them."""

Columns = Mapping[str, Any]
"""The rows of a table: a list of Python values for each column."""


@dataclass(frozen=True)
class Refused:
    """The expectation that profiling fails with an error that contains all these words."""

    words: tuple[str, ...]

    @classmethod
    def with_words(cls, *words: str) -> Refused:
        return cls(words)


@dataclass(frozen=True)
class Written:
    """A written table, and how to profile it."""

    expected: Columns | Refused
    path: str = ""
    """The location to profile, relative to the case's folder."""
    options: tuple[str, ...] = ()
    """Options of `metastore profile`."""


@dataclass(frozen=True)
class Case:
    """One table to write and profile."""

    name: str
    """The unique name, such as `delta/checkpoint`."""
    writer: str
    """The library or program that writes the table, such as `PyArrow`."""
    special: str
    """What is special about the table. It is shown in the documentation."""
    write: Callable[[Path], Written | Columns | Refused] = field(repr=False)
    """Write the table into an empty folder. Rows or `Refused` mean that the folder is profiled without options."""

    @property
    def group(self) -> str:
        """The first part of the name, such as `delta`."""
        return self.name.partition("/")[0]

    def write_into(self, folder: Path) -> Written:
        """Create a folder, and write the table into it.

        Return the table with its expected result.
        """
        folder.mkdir(parents=True)
        result = self.write(folder)
        return result if isinstance(result, Written) else Written(result)


CASES: dict[str, Case] = {}
"""All cases by name, in the order of their definition."""

Write = Callable[[Path], Written | Columns | Refused]


def case(name: str, writer: str, special: str) -> Callable[[Write], Write]:
    """Register the decorated function as the `write` of a new case.

    Args:
        name: The unique name of the case, such as `delta/checkpoint`.
        writer: The library or program that writes the table.
        special: What is special about the table.
    """

    def register(write: Write) -> Write:
        if name in CASES:
            raise ValueError(f"two cases are named {name!r}")
        CASES[name] = Case(name, writer, special, write)
        return write

    return register


def differences(answer: Mapping[str, Any], expected: Columns) -> list[str]:
    """Return how a profile differs from the rows of its table.

    An empty list means it is correct.

    Row count, columns, nulls, NaNs, distinct values, minima and maxima are compared; of nested columns, only nulls. A
    number of distinct values that is marked as an estimate may differ by its error.

    Args:
        answer: The profile, as `metastore profile --json` prints it.
        expected: The rows of the table.
    """
    columns_by_name = {column["column"]: column for column in answer["columns"]}
    rows = max(map(len, expected.values()), default=0)
    problems = [] if answer["row_count"] == rows else [f"{answer['row_count']} rows, not {rows}"]
    problems += [f"{name} is missing" for name in expected if name not in columns_by_name]
    # The fields of lists and structs are columns of the profile, too, such as `s.x`.
    problems += [f"{name} is unexpected" for name in columns_by_name if name.partition(".")[0] not in expected]
    for name in expected.keys() & columns_by_name.keys():
        for key, value in _statistics(list(expected[name])).items():
            if key == "distinct_count" and is_about(columns_by_name[name], value):
                continue
            if plain(columns_by_name[name][key]) != value:
                problems.append(f"{name}: {key} is {columns_by_name[name][key]!r}, not {value!r}")
    return problems


def _statistics(values: list[Any]) -> dict[str, Any]:
    """Compute the expected statistics of a column in plain Python, without code of the package.

    All NaNs are one distinct value, and are neither minimum nor maximum. −0.0 equals 0.0. Texts are ordered by their
    UTF-8 bytes.
    """
    not_null = [value for value in values if value is not None]
    statistics: dict[str, Any] = {"null_count": len(values) - len(not_null)}
    if any(isinstance(value, dict | list) for value in not_null):
        return statistics
    finite = sorted((value for value in not_null if not _is_nan(value)), key=_order)
    nans = len(not_null) - len(finite)
    if any(isinstance(value, float) for value in not_null):
        statistics["nan_count"] = nans
    return statistics | {
        "distinct_count": len({_order(value) for value in finite}) + bool(nans),
        "minimum": plain(finite[0]) if finite else None,
        "maximum": plain(finite[-1]) if finite else None,
    }


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _order(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode()
    return value.bytes if isinstance(value, UUID) else value


def plain(value: Any) -> Any:
    """Return a value of Python or JSON in a form that can be compared.

    Times have no UTC zone and no trailing zeros in their fraction. Infinities, bytes, decimals and large integers are
    strings.
    """
    if isinstance(value, float):
        return value + 0.0 if math.isfinite(value) else {math.inf: "Infinity", -math.inf: "-Infinity"}[value]
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, int) and abs(value) > _JSON_INTEGER:
        return str(value)
    if value is None or isinstance(value, bool | int):
        return value
    text = value.isoformat() if isinstance(value, datetime | date | time) else str(value)
    match = _TIME.fullmatch(text)
    return f"{match[1]}{(match[2] or '').rstrip('0').rstrip('.')}" if match else text
