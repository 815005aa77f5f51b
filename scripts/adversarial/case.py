"""A case: a table that a foreign writer makes, and what has to be said of it."""

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
"""Integers beyond are told as texts: JSON readers would round them."""

Columns = Mapping[str, Any]
"""What a table holds: lists of Python values by column."""


@dataclass(frozen=True)
class Refused:
    """No numbers are to be given, but an error that has all these words in it."""

    words: tuple[str, ...]

    @classmethod
    def with_words(cls, *words: str) -> Refused:
        return cls(words)


@dataclass(frozen=True)
class Written:
    """What a writer made."""

    expected: Columns | Refused
    path: str = ""
    """The location to be profiled, relative to the case's folder."""
    options: tuple[str, ...] = ()
    """Options of `metastore profile`."""


@dataclass(frozen=True)
class Case:
    """One table."""

    name: str
    """`group/name`, unique."""
    writer: str
    special: str
    """What is special about it, for people."""
    write: Callable[[Path], Written | Columns | Refused] = field(repr=False)

    @property
    def group(self) -> str:
        """Under which heading it is shown."""
        return self.name.partition("/")[0]

    def made(self, folder: Path) -> Written:
        """Write the table into an empty folder."""
        folder.mkdir(parents=True)
        written = self.write(folder)
        return written if isinstance(written, Written) else Written(written)


CASES: dict[str, Case] = {}
"""All cases by name, in the order in which they are declared."""

Write = Callable[[Path], Written | Columns | Refused]


def case(name: str, writer: str, special: str) -> Callable[[Write], Write]:
    """Register a function as the writer of a case."""

    def register(write: Write) -> Write:
        if name in CASES:
            raise ValueError(f"two cases are named {name!r}")
        CASES[name] = Case(name, writer, special, write)
        return write

    return register


def differences(answer: Mapping[str, Any], expected: Columns) -> list[str]:
    """What `metastore profile --json` says otherwise than the values do; empty when nothing.

    Compares row count, columns, nulls, NaNs, distinct values and bounds. Nested columns count by their nulls alone;
    an estimate of distinct values, which says that it is one, is right within its error.
    """
    told = {column["column"]: column for column in answer["columns"]}
    rows = max(map(len, expected.values()), default=0)
    found = [] if answer["row_count"] == rows else [f"{answer['row_count']} rows, not {rows}"]
    found += [f"{name} is not there" for name in expected if name not in told]
    # What is below a list or a struct has a row of its own.
    found += [f"{name} should not be there" for name in told if name.partition(".")[0] not in expected]
    for name in expected.keys() & told.keys():
        for key, value in _known(list(expected[name])).items():
            if key == "distinct_count" and is_about(told[name], value):
                continue
            if plain(told[name][key]) != value:
                found.append(f"{name}: {key} is {told[name][key]!r}, not {value!r}")
    return found


def _known(values: list[Any]) -> dict[str, Any]:
    """What is to be told: plain Python that shares nothing with what it judges.

    NaN counts as one distinct value and is no minimum or maximum; −0.0 is 0.0; texts are ordered by their UTF-8 bytes.
    """
    kept = [value for value in values if value is not None]
    known: dict[str, Any] = {"null_count": len(values) - len(kept)}
    if any(isinstance(value, dict | list) for value in kept):
        return known
    finite = sorted((value for value in kept if not _is_nan(value)), key=_order)
    nans = len(kept) - len(finite)
    if any(isinstance(value, float) for value in kept):
        known["nan_count"] = nans
    return known | {
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
    """A value of Python or of JSON in one form: times without zone, and without the zeros that end a fraction."""
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
    found = _TIME.fullmatch(text)
    return f"{found[1]}{(found[2] or '').rstrip('0').rstrip('.')}" if found else text
