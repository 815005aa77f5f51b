"""What was probably meant by a name that there is not."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

_MOST = 20


def close_names(name: str, names: Sequence[str], otherwise: str) -> str:
    """`; did you mean 'a' or 'b'?` when some names are close, else `otherwise` with the names put into its braces.

    Empty when there are no names.
    """
    if not names:
        return ""
    by_lower = {known.lower(): known for known in names}
    matches = get_close_matches(name.lower(), by_lower, n=3, cutoff=0.7)
    last_parts = [known for known in names if known.rpartition(".")[2].lower() == name.lower()]
    close = list(dict.fromkeys([*(by_lower[match] for match in matches), *last_parts]))[:3]
    if close:
        return f"; did you mean {' or '.join(map(repr, close))}?"
    listed = ", ".join(names[:_MOST])
    more = f" and {len(names) - _MOST:,} more" if len(names) > _MOST else ""
    return otherwise.format(listed + more)
