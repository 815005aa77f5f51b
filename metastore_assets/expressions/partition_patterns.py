"""Select partitions by key, by readable key, or by patterns of column values."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from urllib.parse import unquote

from metastore_assets.errors import PartitionNotFoundError
from metastore_assets.expressions.partition_filter import matches_value_patterns
from metastore_assets.expressions.partition_keys import (
    NULL_VALUE,
    UNPARTITIONED,
    decode_partition_key,
    encode_partition_key,
)
from metastore_assets.expressions.wildcards import escape_wildcards
from metastore_assets.messages import close_names, nearest_names

_ESCAPES = re.compile(r"(?:%[0-9A-Fa-f]{2})+")

Items = tuple[tuple[str, str | None], ...]


def match_partitions(table: str, texts: Iterable[str], keys: Collection[str]) -> set[str]:
    """Return the keys that the texts select together.

    A text is a key, a readable key (with or without percent-encoding), or `column=pattern`, several of them joined by
    `/`, which selects all partitions whose values match all patterns. `*`, `?` and `[…]` are wildcards; null is
    `__HIVE_DEFAULT_PARTITION__`. Raises PartitionNotFoundError with similar keys if a text selects none.
    """
    there = set(keys)
    chosen: set[str] = set()
    for text in texts:
        chosen.update([text] if text in there else _meant(table, text, sorted(there)))
    return chosen


def resolve_partition_keys(table: str, texts: Iterable[str], keys: Collection[str]) -> set[str]:
    """Return the keys that the texts name, one each, as keys or readable keys without patterns.

    Raises PartitionNotFoundError with the number of unknown texts, and keys similar to the first.
    """
    there = set(keys)
    chosen: set[str] = set()
    readable: dict[str, str] = {}
    unknown: list[str] = []
    for text in texts:
        if text not in there and not readable:
            readable = {_readable(decode_partition_key(key)): key for key in there}
        key = text if text in there else readable.get(text) or readable.get(unquote(text))
        if key is None:
            unknown.append(text)
        else:
            chosen.add(key)
    if unknown:
        ordered = sorted(there)
        columns = list(dict.fromkeys(name for key in ordered for name, _ in decode_partition_key(key)))
        more = f"; nor the {len(unknown) - 1:,} others that are listed and unknown" if len(unknown) > 1 else ""
        raise PartitionNotFoundError(_none_fits(table, unknown[0], ordered, columns) + more)
    return chosen


def resolve_partition(table: str, text: str, keys: Collection[str]) -> str:
    """Return the only key that a text selects, as in `match_partitions`. Raises PartitionNotFoundError."""
    chosen = sorted(match_partitions(table, [text], keys))
    if len(chosen) > 1:
        raise PartitionNotFoundError(
            f"{text!r} means {len(chosen):,} partitions of table {table!r}: name one of them, such as {chosen[0]!r}; "
            f"list them with `metastore show {table} --partitions`"
        )
    return chosen[0]


def _meant(table: str, text: str, keys: Sequence[str]) -> Collection[str]:
    items = {key: decode_partition_key(key) for key in keys}
    for wanted in (text, unquote(text)):
        if readable := [key for key in keys if _readable(items[key]) == wanted]:
            return readable
    columns = list(dict.fromkeys(name for own in items.values() for name, _ in own))
    patterns = [(name, _unescaped(pattern)) for name, pattern in split_column_patterns(text, columns)]
    fitting = [key for key in keys if patterns and all(_fits(dict(items[key]), *pattern) for pattern in patterns)]
    if not fitting:
        raise PartitionNotFoundError(_none_fits(table, text, keys, columns))
    return fitting


def _readable(items: Items) -> str:
    return "/".join(f"{name}={NULL_VALUE if value is None else value}" for name, value in items) or UNPARTITIONED


def split_column_patterns(text: str, columns: Sequence[str]) -> list[tuple[str, str]]:
    """Return the (column, text) pairs of `column=text/column=text`; none unless it starts with a column.

    A `/` that is not followed by a column belongs to the text.
    """
    names = {form: name for name in columns for form in (encode_partition_key([(name, "")])[:-1], name)}
    known = "|".join(re.escape(form) for form in sorted(names, key=len, reverse=True))
    parts = re.split(rf"(?:^|/)({known})=", text)
    if not known or parts[0]:
        return []
    return [(names[form], own) for form, own in zip(parts[1::2], parts[2::2], strict=True)]


def _unescaped(pattern: str) -> str:
    """Decode the percent-encoding of a pattern; encoded characters are not wildcards."""
    return _ESCAPES.sub(lambda found: escape_wildcards(unquote(found[0])), pattern)


def _fits(values: dict[str, str | None], column: str, pattern: str) -> bool:
    return column in values and matches_value_patterns(values[column], (pattern,))


def _none_fits(table: str, text: str, keys: Sequence[str], columns: Sequence[str]) -> str:
    has_none = f"table {table!r} has no partition {text!r}"
    if not keys:
        return f"{has_none}: it has none at all, for it has no rows"
    if not columns:
        return f"{has_none}: it is not partitioned, and its one partition is {keys[0]!r}"
    how = f"; list them with `metastore show {table} --partitions`"
    form = f"name a key, or a pattern such as `{'/'.join(f'{column}=…' for column in columns)}`"
    if "=" not in text:
        return f"{has_none}; {form}" + nearest_names(f"{columns[0]}={text}", keys) + how
    named = [unquote(part.partition("=")[0]) for part in text.split("/") if "=" in part]
    unknown = [name for name in named if name not in columns]
    if unknown:
        by = " and ".join(map(repr, columns))
        said = f"{has_none}: it is partitioned by {by}, not by {unknown[0]!r}; {form}"
        return said + how + close_names(unknown[0], columns, "")
    return has_none + nearest_names(text, keys) + how
