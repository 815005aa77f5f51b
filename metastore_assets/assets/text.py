"""Numbers and values as short text for people."""

import math

import pyarrow as pa

from metastore_assets.lookup.json import scalar_json

ELLIPSIS = "…"


def short(text: str, length: int) -> str:
    """The text, or its beginning and an ellipsis, in at most `length` characters, on one line."""
    line = "".join(character if character.isprintable() else "␣" for character in text[: length + 1])
    return line if len(line) <= length else line[: length - 1] + ELLIPSIS


def count_text(count: int) -> str:
    """A count with its thousands apart: 6,001,215."""
    return f"{count:,}"


def number_text(number: float) -> str:
    """A number to five significant digits: 38,255; 0.049998; 1.2e+17."""
    if not math.isfinite(number):
        return str(number)
    if number == int(number) and abs(number) < 1e15:
        return f"{int(number):,}"
    if 1e-4 <= abs(number) < 1e15:
        digits = max(0, 4 - math.floor(math.log10(abs(number))))
        text = f"{number:,.{digits}f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    return f"{number:.4g}"


def share_text(part: int, whole: int) -> str:
    """A share in percent that is 0% for none and 100% for all only."""
    if whole <= 0 or part <= 0:
        return "0%"
    share = 100 * part / whole
    if share < 0.1:
        return "<0.1%"
    if share > 99.9:
        return "100%" if part >= whole else ">99.9%"
    return f"{share:.1f}%" if share < 9.95 else f"{share:.0f}%"


def scalar_text(value: pa.Scalar) -> str:
    """One value of a column: times as ISO 8601 with a space, binary as hex, a blank string in quotes."""
    if pa.types.is_floating(value.type):
        return number_text(value.as_py())
    known = scalar_json(value)
    if known is None or isinstance(known, bool):
        return "null" if known is None else str(known).lower()
    if pa.types.is_temporal(value.type):
        return str(known).replace("T", " ").removesuffix("Z")
    if pa.types.is_large_binary(value.type) or pa.types.is_binary(value.type):
        return f"0x{known}"
    if isinstance(known, str) and not known.strip():
        return f'"{known}"'
    return str(known)
