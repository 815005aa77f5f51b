"""Patterns of `like`: what they say of texts, and with what the texts begin that they are of."""

from __future__ import annotations

import pyarrow as pa

from metastore_assets.errors import PredicateError
from metastore_assets.expressions.predicates import Column, Comparison, Constant, IsNull, Like, Predicate

_WILD = ("%", "_")


def like_of(column: Column, pattern: str, escape: str | None, negated: bool) -> Predicate:
    """`column [not] like pattern [escape '…']` as the simplest predicate that says so. Raises PredicateError."""
    tokens = _tokens(pattern, escape)
    plain = next((at for at, token in enumerate(tokens) if token in _WILD), len(tokens))
    prefix = "".join(token[-1] for token in tokens[:plain])
    if plain == len(tokens):
        text = pa.array([_bytes(prefix)], pa.large_binary()).view(pa.large_string())[0]
        return Comparison(column, "!=" if negated else "=", text)
    rest = tokens[plain:]
    if all(token == "%" for token in rest):
        if prefix:
            return Like(column, _bytes(prefix), None, negated)
        return Constant(False) if negated else IsNull(column, negated=True)
    return Like(column, _bytes(prefix), "".join(tokens), negated)


def _tokens(pattern: str, escape: str | None) -> list[str]:
    r"""The characters of a pattern; plain ones that mean something in it, and backslashes, as two: `\%`."""
    found = []
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            following = next(characters, None)
            if following is None:
                raise PredicateError(f"the pattern {pattern!r} ends with its escape character")
            found.append(f"\\{following}" if following in ("%", "_", "\\") else following)
        else:
            found.append("\\\\" if character == "\\" else character)
    return found


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
