"""Numbers and values as a person reads them: safe to print, compact, and cut only where that is asked for."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Mapping
from typing import Any

ABSENT = "–"
ELLIPSIS = "…"
_BINARY = re.compile(r"(?:large_|fixed_size_)?binary")


def printable(text: str) -> str:
    """The text without line breaks, terminal control sequences or invisible characters: those are escaped."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


def one_line(text: str) -> str:
    """A message as one printable line."""
    return printable(" ".join(text.split()))


def number(value: int | float | str | None) -> str:
    """A count or a measure, with its thousands apart; a float to six significant digits: 38,255.1; 0.049998; 1.2e+17.

    A number that JSON holds as text, because it is beyond 2**53 or a decimal, is grouped likewise.
    """
    if value is None:
        return ABSENT
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return _measure(value)
    sign, digits = ("-", value[1:]) if value.startswith("-") else ("", value)
    whole, point, fraction = digits.partition(".")
    return f"{sign}{int(whole):,}{point}{fraction}" if whole.isdigit() else value


def estimate(shown: str, guarantee: str) -> str:
    """A number that is shown, marked where it is an estimate."""
    return f"~{shown}" if guarantee == "estimate" else shown


def result(told: Mapping[str, Any]) -> str:
    """A user-defined statistic, as JSON has it: its value, marked as an estimate where it is one, or why there is none.

    Of structs the values of their fields, in their order.
    """
    if told["value"] is None:
        return ABSENT if told["reason"] is None else f"{ABSENT} ({one_line(told['reason'])})"
    return estimate(_nested(told["value"]), told["guarantee"])


def at_least(shown: str, exact: bool) -> str:
    """A least value that is shown, marked where it is a bound: no value is less."""
    return shown if exact else f"≥{shown}"


def at_most(shown: str, exact: bool) -> str:
    """A greatest value that is shown, marked where it is a bound: no value is greater."""
    return shown if exact else f"≤{shown}"


def value(given: Any, limit: int | None = None) -> str:
    """A value of a column, as its JSON form holds it; with `limit`, at most that many terminal cells."""
    if given is None:
        text = ABSENT
    elif isinstance(given, bool):
        text = "true" if given else "false"
    elif isinstance(given, float):
        text = f"{given:.10g}"
    elif isinstance(given, str):
        text = _visible(given)
    else:
        text = str(given)
    return text if limit is None else cut(text, limit)


def typed_value(given: Any, type: str, limit: int | None = None) -> str:
    """A value like `value`, of a column of that Arrow type: a blank for the T of times, and 0x before binary."""
    if isinstance(given, str) and type.startswith("timestamp"):
        given = given.replace("T", " ", 1)
    elif isinstance(given, str) and _BINARY.match(type):
        given = f"0x{given}"
    return value(given, limit)


def type_name(type: str) -> str:
    """An Arrow type as text, without what a reader of statistics need not know of it.

    Of a struct, list or map only that it is one: what is inside has rows of its own.
    """
    container = re.match(r"(?:large_|fixed_size_)?(struct|list|map)(?:_view)?<", type)
    if container:
        return container[1]
    short = re.sub(r"decimal\d+\((\d+), (-?\d+)\)", r"decimal(\1,\2)", type)
    short = re.sub(r"date32\[day\]|date64\[ms\]", "date", short)
    short = re.sub(r"time(32|64)\[", "time[", short)
    short = re.sub(r"\b(large_)?(string|binary)(_view)?\b", r"\2", short)
    return printable(short.replace(", tz=", ", "))


def short(text: str, limit: int) -> str:
    """Any text on one line, in at most `limit` terminal cells."""
    return cut(printable(text), limit)


def cut(text: str, limit: int) -> str:
    """At most `limit` terminal cells of a printable text, with `…` for what is left out."""
    if cells(text) <= limit:
        return text
    kept, width = [], 1
    for char in text:
        width += _cell(char)
        if width > limit:
            break
        kept.append(char)
    return "".join(kept) + ELLIPSIS


def cut_middle(text: str, limit: int) -> str:
    """At most `limit` terminal cells, with `…` in the middle: of a dotted path the end tells more than the middle."""
    if cells(text) <= limit:
        return text
    end = cut(text[::-1], limit // 2)[:-1][::-1]
    return cut(text, limit - cells(end)) + end


def cells(text: str) -> int:
    """Number of terminal cells that a printable text takes."""
    return len(text) if text.isascii() else sum(map(_cell, text))


def share(part: int, whole: int) -> str:
    """A part as percent of the whole: one decimal place, and never 0 or 100 unless it is so."""
    if not whole:
        return ABSENT
    percent = 100 * part / whole
    if part > 0 and percent < 0.05:
        return "<0.1%"
    if part < whole and percent > 99.95:
        return ">99.9%"
    return f"{percent:.1f}%"


def size(count: int) -> str:
    """A number of bytes with a unit of 1000."""
    amount = float(count)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if amount < 999.5:
            return f"{count} B" if unit == "B" else f"{amount:.3g} {unit}"
        amount /= 1000
    return f"{amount:,.3g} PB"


def seconds(amount: float) -> str:
    """A duration of seconds to minutes."""
    return f"{amount:.2f} s" if amount < 10 else f"{amount:.0f} s" if amount < 120 else f"{amount / 60:.1f} min"


def plural(count: int, noun: str, nouns: str | None = None) -> str:
    """`1 partition`, `2 partitions`."""
    return f"{count:,} {noun if count == 1 else nouns or noun + 's'}"


def _nested(given: Any) -> str:
    if isinstance(given, Mapping):
        return " ".join(map(_nested, given.values()))
    if isinstance(given, list):
        return "; ".join(map(_nested, given)) if given else "none"
    return number(given) if isinstance(given, int | float) and not isinstance(given, bool) else value(given)


def _measure(value: float) -> str:
    """Without an exponent from 1e-4 to 1e9, and without zeros at the end."""
    if not math.isfinite(value) or not (value == 0 or 1e-4 <= abs(value) < 1e9):
        return f"{value:.6g}"
    if value.is_integer():
        return f"{value:,.0f}"
    shown = f"{value:,.{max(0, 5 - math.floor(math.log10(abs(value))))}f}"
    return shown.rstrip("0").rstrip(".") if "." in shown else shown


def _visible(text: str) -> str:
    """Text of which nothing is lost to the eye: quoted where it is empty or has blanks at an edge."""
    shown = printable(text)
    return f"'{shown}'" if not text or text != text.strip() else shown


def _cell(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1
