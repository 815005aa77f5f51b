"""Wildcard patterns over names and partition values: `*`, `?` and `[…]`.

The configuration imports this module when a process starts, so it imports only the standard library.
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase


def matches_any_pattern(text: str, patterns: Iterable[str], *, ignore_case: bool = False) -> bool:
    """Return whether at least one of the patterns matches a complete text.

    Args:
        text: The text.
        patterns: The patterns. If there are none, nothing matches.
        ignore_case: Whether upper and lower case are the same, in the text and in the patterns.
    """
    if ignore_case:
        return any(fnmatchcase(text.lower(), pattern.lower()) for pattern in patterns)
    return any(fnmatchcase(text, pattern) for pattern in patterns)


def escape_wildcards(text: str) -> str:
    """Return a pattern that matches only the text itself."""
    from glob import escape

    return escape(text)
