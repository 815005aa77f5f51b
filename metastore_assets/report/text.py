"""Format numbers and values for people: printable, compact, and truncated only on request."""

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
    """Escape line breaks, terminal control sequences and invisible characters."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


def one_line(text: str) -> str:
    """Return a message as one printable line."""
    return printable(" ".join(text.split()))


def number(value: int | float | str | None) -> str:
    """Format a count or a measure with grouped thousands; a float has six significant digits: 38,255.1; 0.049998;
    1.2e+17.

    Numbers that JSON holds as text (beyond 2**53, or decimals) are grouped too.
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
    """Mark a formatted number if it is an estimate."""
    return f"~{shown}" if guarantee == "estimate" else shown


def result(told: Mapping[str, Any]) -> str:
    """Format a user-defined statistic from its JSON form: its value, marked if it is an estimate, or why there is none.

    A struct is formatted as the values of its fields, in their order.
    """
    if told["value"] is None:
        return ABSENT if told["reason"] is None else f"{ABSENT} ({one_line(told['reason'])})"
    return estimate(_nested(told["value"]), told["guarantee"])


def at_least(shown: str, exact: bool) -> str:
    """Mark a formatted minimum if it is a lower bound."""
    return shown if exact else f"≥{shown}"


def at_most(shown: str, exact: bool) -> str:
    """Mark a formatted maximum if it is an upper bound."""
    return shown if exact else f"≤{shown}"


def value(given: Any, limit: int | None = None) -> str:
    """Format a column's value from its JSON form, in at most `limit` terminal cells if given."""
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
    """Format a value like `value`, with a blank for the T of times, and 0x before binary."""
    if isinstance(given, str) and type.startswith("timestamp"):
        given = given.replace("T", " ", 1)
    elif isinstance(given, str) and _BINARY.match(type):
        given = f"0x{given}"
    return value(given, limit)


def type_name(type: str) -> str:
    """Format an Arrow type without details that readers of statistics do not need.

    Structs, lists and maps are named only; their contents have rows of their own.
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
    """Return any text on one line, in at most `limit` terminal cells."""
    return cut(printable(text), limit)


def cut(text: str, limit: int) -> str:
    """Truncate a printable text to `limit` terminal cells, with `…` at the end."""
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
    """Truncate a text to `limit` terminal cells with `…` in the middle, so that the end of a path stays."""
    if cells(text) <= limit:
        return text
    end = cut(text[::-1], limit // 2)[:-1][::-1]
    return cut(text, limit - cells(end)) + end


def cells(text: str) -> int:
    """Return the number of terminal cells that a printable text takes."""
    return len(text) if text.isascii() else sum(map(_cell, text))


def share(part: int, whole: int) -> str:
    """Format a share as percent with one decimal place, and as 0 or 100 only if it is exactly that."""
    if not whole:
        return ABSENT
    percent = 100 * part / whole
    if part > 0 and percent < 0.05:
        return "<0.1%"
    if part < whole and percent >= 99.95:
        return ">99.9%"
    return f"{percent:.1f}%"


def size(count: int) -> str:
    """Format a number of bytes with decimal units."""
    amount = float(count)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if amount < 999.5:
            return f"{count} B" if unit == "B" else f"{amount:.3g} {unit}"
        amount /= 1000
    return f"{amount:,.3g} PB"


def seconds(amount: float) -> str:
    """Format a duration."""
    return f"{amount:.2f} s" if amount < 10 else f"{amount:.0f} s" if amount < 120 else f"{amount / 60:.1f} min"


def plural(count: int, noun: str, nouns: str | None = None) -> str:
    """Format a count with its noun: `1 partition`, `2 partitions`."""
    return f"{count:,} {noun if count == 1 else nouns or noun + 's'}"


def _nested(given: Any) -> str:
    if isinstance(given, Mapping):
        return " ".join(map(_nested, given.values()))
    if isinstance(given, list):
        return "; ".join(map(_nested, given)) if given else "none"
    return number(given) if isinstance(given, int | float) and not isinstance(given, bool) else value(given)


def _measure(value: float) -> str:
    """Format a float without exponent between 1e-4 and 1e9, and without trailing zeros."""
    if not math.isfinite(value) or not (value == 0 or 1e-4 <= abs(value) < 1e9):
        return f"{value:.6g}"
    if value.is_integer():
        return f"{value:,.0f}"
    shown = f"{value:,.{max(0, 5 - math.floor(math.log10(abs(value))))}f}"
    return shown.rstrip("0").rstrip(".") if "." in shown else shown


def _visible(text: str) -> str:
    """Quote a text that is empty or has blanks at an edge."""
    shown = printable(text)
    return f"'{shown}'" if not text or text != text.strip() else shown


def _cell(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1
