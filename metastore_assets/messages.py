"""How messages are put together: from parts that others wrote, and with what was probably meant by a wrong name."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence

_LONGEST = 4000
_LAST = 500
"""Characters kept of the end of a message that is too long."""
_MOST = 20
_NEAR = 3
_WINDOW = 200
_ELLIPSIS = re.compile(r"\.{3,}(?=[\s.,:;]|$)")
_STOPS = re.compile(r"(?<=[^\s/.])(?:[.;](?:\s*[.;])+|[.,:;]{2,})(?=\s|$)")
_QUESTION = re.compile(r"([?!])\s*[.;](?:\s+([a-z])|(?=\s|$))")
_CLOSED = re.compile(r"(?<=[^\s/.(])[.,:;]+(?=\))")
_END = re.compile(r"(?<=[^\s/.])[.,:;]$")
_AUTHORITY = re.compile(r"\b([A-Za-z][A-Za-z0-9+.-]*)://([^\s/?#]*)@")
_QUERY = re.compile(r"""\b([A-Za-z][A-Za-z0-9+.-]*://[^\s?'"<>]*?)(?:\?|%3[Ff])[^\s'"<>=]*=[^\s'"<>]*""")
_SHORTEST_SECRET = 6
"""Characters; what is shorter occurs in texts that have nothing to do with it."""
_secrets: dict[str, str] = {}
"""By value that this process put where secrets may be, what is told in its place. Of the process, because what goes
wrong with a secret is told by whoever meets it: libraries far from any configuration."""


def tidy(message: str) -> str:
    """A message whose parts join well, whatever those end with: `x.. Mend` is `x. Mend`, and no full stop at the end.

    Parts that other libraries wrote end with a full stop or without one. Dots inside paths and names stay. Of a very
    long message, which quotes a file's content, the middle is left out. Secrets that this process knows are not told.
    """
    text = _ELLIPSIS.sub("…", _bounded(without_secrets(message)).rstrip())
    text = _CLOSED.sub("", text)
    text = _STOPS.sub(lambda found: found[0][-1], text)
    text = _QUESTION.sub(lambda found: f"{found[1]} {found[2].upper()}" if found[2] else found[1], text)
    return _END.sub("", text)


def _bounded(message: str) -> str:
    """As much of a message as anybody reads, of characters that can be written."""
    text = message.encode("utf-8", "backslashreplace").decode("utf-8")
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - _LAST - 3]} … {text[-_LAST:]}"


def close_names(name: str, names: Sequence[str], otherwise: str) -> str:
    """`; did you mean 'a' or 'b'?` when some names are close, else `otherwise` with the names put into its braces.

    Empty when there are no names.
    """
    from difflib import get_close_matches

    if not names:
        return ""
    by_lower = {known.lower(): known for known in names}
    matches = get_close_matches(name.lower(), by_lower, n=3, cutoff=0.7)
    # Of `dya` and `day` too little is alike; and who says `city` may mean `address.city`.
    swapped = [known for known in names if sorted(known.lower()) == sorted(name.lower())]
    last_parts = [known for known in names if known.rpartition(".")[2].lower() == name.lower()]
    close = list(dict.fromkeys([*(by_lower[match] for match in matches), *swapped, *last_parts]))[:3]
    if close:
        return f"; did you mean {' or '.join(map(repr, close))}?"
    return otherwise.format(join_names(names))


def join_names(names: Sequence[str]) -> str:
    """`a, b, c`, or the first ones and how many more there are."""
    more = f" and {len(names) - _MOST:,} more" if len(names) > _MOST else ""
    return ", ".join(names[:_MOST]) + more


def near_names(name: str, names: Sequence[str]) -> str:
    """`; of 2,000 the nearest are 'a', 'b' and 'c'`: neighbours of a name in sorted order, and names spelled like it.

    For names that are many and alike, of which most are close to any. Empty when there are no names.
    """
    from difflib import get_close_matches

    if not names:
        return ""
    known = sorted(names)
    at = bisect_left(known, name)
    around = known[max(0, at - _WINDOW) : at + _WINDOW]
    spelled = get_close_matches(name, around, n=1, cutoff=0.8)
    beside = [*known[max(0, at - 1) : at + 1], *reversed(known[max(0, at - _NEAR) : at]), *known[at : at + _NEAR]]
    near = sorted(list(dict.fromkeys([*spelled, *beside]))[:_NEAR])
    last = f" and {near[-1]!r}" if len(near) > 1 else ""
    verb = "are" if last else "is"
    of = f"of {len(known):,} the" if len(known) > len(near) else "the"
    return f"; {of} nearest {verb} {', '.join(map(repr, near[:-1] or near))}{last}"


def redacted(text: str) -> str:
    """Return a URI, or a text with URIs in it, without passwords, signatures and whatever else a query may hold.

    `https://user:password@host/path?sig=…` becomes `https://***@host/path?***`. A `?` (or `%3F`) without `=` behind it
    is part of a name. What stands before `@` is no secret where it holds no password, as in Azure's
    `abfss://container@account…`.
    """
    return _AUTHORITY.sub(_without_user, _QUERY.sub(r"\1?***", text))


def _without_user(found: re.Match[str]) -> str:
    scheme, user = found[1], found[2]
    return found[0] if ":" not in user and scheme.lower() not in ("http", "https") else f"{scheme}://***@"


def remember_password(uri: str) -> None:
    """Have `without_secrets` leave out the password in a URI also where a library quotes it without the URI."""
    found = _AUTHORITY.match(uri)
    if found is not None and ":" in found[2]:
        remember_secret(found[2].partition(":")[2], "***")


def remember_secret(value: str, told: str) -> None:
    """That a value is not for messages: `without_secrets` has `told` in its place. Short ones are not looked for."""
    if len(value) >= _SHORTEST_SECRET:
        _secrets[value] = told


def without_secrets(text: str) -> str:
    """The text without the secrets that this process knows, and without those that URIs in it hold (`redacted`).

    The longest first, for one may be part of another.
    """
    for value in sorted(_secrets, key=len, reverse=True):
        text = text.replace(value, _secrets[value])
    return redacted(text)
