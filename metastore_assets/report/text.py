"""Formatting of numbers and values for users, as printable text that is truncated only on request."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Mapping
from typing import Any

from metastore_assets.markup.elements import ABSENT as ABSENT
from metastore_assets.markup.elements import make_printable as make_printable
from metastore_assets.markup.elements import quote_blanks

ELLIPSIS = "…"
_BINARY = re.compile(r"(?:large_|fixed_size_)?binary")


def to_one_line(text: str) -> str:
    """Convert a text to one printable line.

    Each run of white space becomes one blank.
    """
    return make_printable(" ".join(text.split()))


def format_number(value: int | float | str | None) -> str:
    """Format a number with grouped thousands, and a float with six significant digits.

    Examples: 38,255.1; 0.049998; 1.2e+17. Floats below 1e9 show all digits before the point: 12,345,679.

    Args:
        value: The number in its JSON form. Numbers that JSON cannot represent exactly are texts: decimals, integers
            beyond 2**53, infinity and NaN. None becomes `–`.
    """
    if value is None:
        return ABSENT
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return _format_float(value)
    sign, digits = ("-", value[1:]) if value.startswith("-") else ("", value)
    integer, point, fraction = digits.partition(".")
    return f"{sign}{int(integer):,}{point}{fraction}" if integer.isdigit() else value


def mark_estimate(formatted_number: str, guarantee: str) -> str:
    """Put `~` before a formatted number whose guarantee is `estimate`."""
    return f"~{formatted_number}" if guarantee == "estimate" else formatted_number


def format_user_defined(statistic: Mapping[str, Any]) -> str:
    """Format a user-defined statistic: its value, or the reason why it is absent.

    An estimate begins with `~`.

    Args:
        statistic: The JSON form, with `value`, `guarantee` and `reason`. A struct is shown as the values of its fields.
    """
    if statistic["value"] is None:
        return ABSENT if statistic["reason"] is None else f"{ABSENT} ({to_one_line(statistic['reason'])})"
    return mark_estimate(_format_nested(statistic["value"]), statistic["guarantee"])


def mark_lower_bound(formatted_number: str, exact: bool) -> str:
    """Put `≥` before a formatted minimum, unless the minimum is exact."""
    return formatted_number if exact else f"≥{formatted_number}"


def mark_upper_bound(formatted_number: str, exact: bool) -> str:
    """Put `≤` before a formatted maximum, unless the maximum is exact."""
    return formatted_number if exact else f"≤{formatted_number}"


def format_value(json_value: Any, limit: int | None = None) -> str:
    """Format a value of a column whose type is unknown.

    Args:
        json_value: The value in its JSON form. None becomes `–`.
        limit: The maximum number of terminal cells; None for no limit.
    """
    if json_value is None:
        text = ABSENT
    elif isinstance(json_value, bool):
        text = "true" if json_value else "false"
    elif isinstance(json_value, float):
        text = f"{json_value:.10g}" if math.isfinite(json_value) else _format_non_finite(json_value)
    elif isinstance(json_value, str):
        text = quote_blanks(json_value)
    else:
        text = str(json_value)
    return text if limit is None else truncate(text, limit)


def format_typed_value(json_value: Any, type: str, limit: int | None = None) -> str:
    """Format a value of a column with a known type.

    Timestamps have a blank instead of `T`, and binary values begin with `0x`.

    Args:
        json_value: The value in its JSON form.
        type: The Arrow type as text.
        limit: The maximum number of terminal cells; None for no limit.
    """
    if isinstance(json_value, str) and type.startswith("timestamp"):
        json_value = json_value.replace("T", " ", 1)
    elif isinstance(json_value, str) and _BINARY.match(type):
        json_value = f"0x{json_value}"
    return format_value(json_value, limit)


def format_type(type: str) -> str:
    """Format an Arrow type without details of its representation.

    Examples: `string` for `large_string`, `date` for `date32`. A nested type becomes `struct`, `list` or `map`.
    """
    container = re.match(r"(?:large_|fixed_size_)?(struct|list|map)(?:_view)?<", type)
    if container:
        return container[1]
    name = re.sub(r"decimal\d+\((\d+), (-?\d+)\)", r"decimal(\1,\2)", type)
    name = re.sub(r"date32\[day\]|date64\[ms\]", "date", name)
    name = re.sub(r"time(32|64)\[", "time[", name)
    name = re.sub(r"\b(large_)?(string|binary)(_view)?\b", r"\2", name)
    return make_printable(name.replace(", tz=", ", "))


def format_type_change(before: str, after: str) -> str:
    """Format a change of an Arrow type.

    Examples: `int64 → string`; `struct, with other fields` if both types are structs.
    """
    old, new = format_type(before), format_type(after)
    if old != new:
        return f"{old} → {new}"
    return f"{new}, with other fields" if new in ("struct", "list", "map") else f"{before} → {after}"


def shorten(text: str, limit: int) -> str:
    """Make any text printable, and truncate it to `limit` terminal cells."""
    return truncate(make_printable(text), limit)


def truncate(text: str, limit: int) -> str:
    """Truncate a printable text to `limit` terminal cells, with `…` at the end."""
    if text.isascii() and len(text) <= limit:
        return text
    end, width = 0, 0
    for number, char in enumerate(text, 1):
        width += _cell_width(char)
        if width < limit:
            end = number
        elif width > limit:
            return text[:end] + ELLIPSIS
    return text


def truncate_middle(text: str, limit: int) -> str:
    """Truncate a printable text to `limit` terminal cells, with `…` in the middle, for paths."""
    if count_cells(text) <= limit:
        return text
    end = truncate(text[::-1], limit // 2)[:-1][::-1]
    return truncate(text, limit - count_cells(end)) + end


def count_cells(text: str) -> int:
    """Return the number of terminal cells that a printable text occupies."""
    return len(text) if text.isascii() else sum(map(_cell_width, text))


def format_share(part: int, total: int) -> str:
    """Format `part / total` in percent with one decimal place: `12.5%`; `–` if `total` is 0.

    Shares are never rounded to 0 or 100 percent: they become `<0.1%` or `>99.9%`.
    """
    if not total:
        return ABSENT
    percent = 100 * part / total
    if part > 0 and percent < 0.05:
        return "<0.1%"
    if part < total and percent >= 99.95:
        return ">99.9%"
    return f"{percent:.1f}%"


def format_size(count: int) -> str:
    """Format a number of bytes with a decimal unit, such as `12.3 MB`."""
    amount = float(count)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if amount < 999.5:
            return f"{count} B" if unit == "B" else f"{amount:.3g} {unit}"
        amount /= 1000
    return f"{amount:,.3g} PB"


def format_seconds(amount: float) -> str:
    """Format a duration in seconds, or in minutes from two minutes on: `9.53 s`, `75 s`, `2.5 min`."""
    return f"{amount:.2f} s" if amount < 10 else f"{amount:.0f} s" if amount < 120 else f"{amount / 60:.1f} min"


def format_count_change(before: int, after: int) -> str:
    """Format a count and its change: `1,200 → 1,300 (+100)`, or only the count if it is the same."""
    return f"{after:,}" if before == after else f"{before:,} → {after:,} ({after - before:+,})"


def format_count(count: int, noun: str, nouns: str | None = None) -> str:
    """Format a count with its noun: `1 partition`, `2 partitions`.

    Args:
        count: The count.
        noun: The noun in the singular.
        nouns: The plural. Default: the singular with an `s`.
    """
    return f"{count:,} {noun if count == 1 else nouns or noun + 's'}"


def _format_nested(json_value: Any) -> str:
    """Format a nested JSON value.

    The values of an object are separated by blanks, the items of a list by `; `.
    """
    if isinstance(json_value, Mapping):
        return " ".join(map(_format_nested, json_value.values()))
    if isinstance(json_value, list):
        return "; ".join(map(_format_nested, json_value)) if json_value else "none"
    if isinstance(json_value, int | float) and not isinstance(json_value, bool):
        return format_number(json_value)
    return format_value(json_value)


def _format_non_finite(value: float) -> str:
    from metastore_assets.values.json import float_json  # imports pyarrow, which `--help` does not need

    return str(float_json(value))


def _format_float(value: float) -> str:
    """Format a float: `0.333333` for 1/3, `12,345,679` for 12345678.9, `1.5e+12` for 1.5e12.

    The text has six significant digits, and an exponent if the absolute value is below 1e-4 or at least 1e9. Without an
    exponent, all digits before the point are shown, even if these are more than six.
    """
    if not math.isfinite(value):
        return _format_non_finite(value)
    if not (value == 0 or 1e-4 <= abs(value) < 1e9):
        return f"{value:.6g}"
    if value.is_integer():
        return f"{value:,.0f}"
    digits = f"{value:,.{max(0, 5 - math.floor(math.log10(abs(value))))}f}"
    return digits.rstrip("0").rstrip(".") if "." in digits else digits


def _cell_width(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1
