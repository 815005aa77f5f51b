"""Suggestions for misspelt names, absolute paths, and texts without secrets, for messages."""

from __future__ import annotations

import os
import re
from bisect import bisect_left
from collections.abc import Sequence

_MAX_LINE = 500
_MAX_LENGTH = 4000
"""The maximum number of characters in a message."""
_TAIL_LENGTH = 500
"""The number of characters at the end of a message that remain when it is truncated in the middle."""
_MAX_NAMES = 20
"""The maximum number of names in a list."""
_MAX_NEAREST = 3
"""The maximum number of names that `nearest_names` suggests."""
_SEARCH_WINDOW = 200
"""The number of neighbours before and after a misspelt name in sorted order that are compared with it."""
_ELLIPSIS = re.compile(r"\.{3,}(?=[\s.,:;]|$)")
_STOPS = re.compile(r"(?<=[^\s/.])(?:[.;](?:\s*[.;])+|[.,:;]{2,})(?=\s|$)")
_QUESTION = re.compile(r"([?!])\s*[.;](?:\s+([a-z])|(?=\s|$))")
_CLOSED = re.compile(r"(?<=[^\s/.(])[.,:;]+(?=\))")
_END = re.compile(r"(?<=[^\s/.])[.,:;]$")
# Only the end of a scheme is read, and query strings are searched word by word: the time is linear for any quoted text.
# Other characters may precede a URI without a break, as in the text `\thttps://…` of a quoted tab.
_AUTHORITY = re.compile(r"([A-Za-z0-9+.-]{1,5})://([^\s/?#]*)@")
_WORD = re.compile(r"""[^\s'"<>]+""")
_SCHEME = re.compile(r"[A-Za-z0-9+.-]://")
_QUERY_MARK = re.compile(r"\?|%3[Ff]")
_MIN_SECRET_LENGTH = 6
"""The minimum length of a secret that is redacted. Shorter ones occur by chance in other texts."""
_secrets: dict[str, str] = {}
"""The text that replaces each secret in messages. The variable is global, because any library may quote a secret in an
error."""


def clean_message(message: str) -> str:
    """Return a message with clean punctuation, without secrets, and with at most 4,000 characters.

    Example of clean punctuation: `x.. Mend.` becomes `x. Mend`.
    """
    # A message that quotes another one may have two full stops: `x.. Mend` becomes `x. Mend`.
    text = _ELLIPSIS.sub("…", _truncate(remove_secrets(message)).rstrip())
    text = _CLOSED.sub("", text)
    text = _STOPS.sub(lambda match: match[0][-1], text)
    text = _QUESTION.sub(lambda match: f"{match[1]} {match[2].upper()}" if match[2] else match[1], text)
    return _END.sub("", text)


def redact_to_line(text: str) -> str:
    """Return a text as one line of bounded length without secrets.

    An example is the message of a client library's error.
    """
    return " ".join(remove_secrets(text).split())[:_MAX_LINE]


def _truncate(message: str) -> str:
    """Truncate a message in the middle to the maximum length.

    Characters that UTF-8 cannot encode are escaped.
    """
    text = message.encode("utf-8", "backslashreplace").decode("utf-8")
    return text if len(text) <= _MAX_LENGTH else f"{text[: _MAX_LENGTH - _TAIL_LENGTH - 3]} … {text[-_TAIL_LENGTH:]}"


def close_names(name: str, names: Sequence[str], otherwise: str) -> str:
    """Return a suggestion for a misspelt name: `; did you mean 'a' or 'b'?`.

    Args:
        name: The misspelt name.
        names: The valid names. If there are none, the result is empty.
        otherwise: The result if no valid name is similar. In it, `{}` is replaced by the list of valid names.
    """
    from difflib import get_close_matches

    if not names:
        return ""
    by_lower = {valid.lower(): valid for valid in names}
    matches = get_close_matches(name.lower(), by_lower, n=3, cutoff=0.7)
    # `dya` and `day` are not similar enough for difflib; and `city` may mean `address.city`.
    swapped_names = [valid for valid in names if sorted(valid.lower()) == sorted(name.lower())]
    last_parts = [valid for valid in names if valid.rpartition(".")[2].lower() == name.lower()]
    close = list(dict.fromkeys([*(by_lower[match] for match in matches), *swapped_names, *last_parts]))[:3]
    if close:
        return f"; did you mean {' or '.join(map(repr, close))}?"
    return otherwise.format(join_names(names))


def join_names(names: Sequence[str]) -> str:
    """Join names: `a, b, c`.

    After 20 names, only the number of the others follows.
    """
    more = f" and {len(names) - _MAX_NAMES:,} more" if len(names) > _MAX_NAMES else ""
    return ", ".join(names[:_MAX_NAMES]) + more


def nearest_names(name: str, names: Sequence[str]) -> str:
    """Return a suggestion for an unknown name among many: `; of 2,000 the nearest are 'a', 'b' and 'c'`.

    The suggestion has a similar name, if there is one, and names that come just before and just after the unknown name
    in sorted order.

    Args:
        name: The unknown name.
        names: The valid names. If there are none, the result is empty.
    """
    from difflib import get_close_matches

    if not names:
        return ""
    sorted_names = sorted(names)
    index = bisect_left(sorted_names, name)
    window = sorted_names[max(0, index - _SEARCH_WINDOW) : index + _SEARCH_WINDOW]
    similar = get_close_matches(name, window, n=1, cutoff=0.8)
    neighbours = [
        *sorted_names[max(0, index - 1) : index + 1],
        *reversed(sorted_names[max(0, index - _MAX_NEAREST) : index]),
        *sorted_names[index : index + _MAX_NEAREST],
    ]
    near = sorted(list(dict.fromkeys([*similar, *neighbours]))[:_MAX_NEAREST])
    last = f" and {near[-1]!r}" if len(near) > 1 else ""
    verb = "are" if last else "is"
    of = f"of {len(sorted_names):,} the" if len(sorted_names) > len(near) else "the"
    return f"; {of} nearest {verb} {', '.join(map(repr, near[:-1] or near))}{last}"


def redact(text: str) -> str:
    """Remove passwords and query strings from the URIs in a text.

    `https://user:password@host/path?sig=…` becomes `https://***@host/path?***`.
    """
    return _AUTHORITY.sub(_without_user, _WORD.sub(_without_query, text))


def _without_query(match: re.Match[str]) -> str:
    """Return the matched word.

    If it is a URI with a query, `***` takes the place of the query.
    """
    word = match[0]
    scheme = _SCHEME.search(word) if "://" in word else None
    mark = _QUERY_MARK.search(word, scheme.end()) if scheme else None
    # A `?` (or `%3F`) without a later `=` is part of a name.
    return f"{word[: mark.start()]}?***" if mark and "=" in word[mark.end() :] else word


def _without_user(match: re.Match[str]) -> str:
    scheme, user = match[1], match[2]
    return f"{scheme}://***@" if ":" in user or scheme.lower().endswith(("http", "https")) else match[0]


def remember_password(uri: str) -> None:
    """Register the password in a URI as a secret, because libraries may quote the password alone."""
    match = _AUTHORITY.match(uri)
    if match is not None and ":" in match[2]:
        remember_secret(match[2].partition(":")[2], "***")


def remember_secret(value: str, replacement: str) -> None:
    """Register a secret that `remove_secrets` replaces.

    Values of less than 6 characters are ignored.

    Args:
        value: The secret.
        replacement: The text that messages show instead, such as the reference `${NAME}`.
    """
    if len(value) >= _MIN_SECRET_LENGTH:
        _secrets[value] = replacement


def remove_secrets(text: str) -> str:
    """Replace registered secrets in a text, and remove passwords and query strings of URIs (`redact`)."""
    # Longest first: a secret may be part of another one.
    for value in sorted(_secrets, key=len, reverse=True):
        text = text.replace(value, _secrets[value])
    return redact(text)


def is_uri(location: str) -> bool:
    """Return whether a location is a URI, such as `s3://bucket/x` or `file:/x`, and no local path."""
    return "://" in location or location[:5].lower() == "file:"


def absolute_location(uri: str) -> str:
    """Make a local path absolute, where `~` is the user's home.

    A URI is returned unchanged.
    """
    return uri if is_uri(uri) else os.path.abspath(os.path.expanduser(uri))
