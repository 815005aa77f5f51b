"""Selection of partitions by texts, as in `partition=` in Python and `--partition` in commands.

A text is one of these:

- a key: `day=2024-01-01/country=FR`. It may be written without percent-encoding: `city=São Paulo`;
- patterns for the values of some or all partition columns: `day=2024-01-*/country=F?` or `country=FR`. `*`, `?` and
  `[…]` are wildcards;
- `*`: all partitions.

`all` is the key of the only partition of an unpartitioned table. Null is `__HIVE_DEFAULT_PARTITION__`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from urllib.parse import unquote

from metastore_assets.errors import PartitionNotFoundError
from metastore_assets.expressions.partition_filter import matches_value_patterns
from metastore_assets.expressions.partition_keys import (
    ALL_PARTITIONS,
    NULL_VALUE,
    UNPARTITIONED,
    decode_partition_key,
    encode_partition_key,
)
from metastore_assets.expressions.wildcards import escape_wildcards
from metastore_assets.messages import close_names, nearest_names

_ESCAPES = re.compile(r"(?:%[0-9A-Fa-f]{2})+")

_ANY_COLUMN = re.compile(r"(?:^|/)([^/=]+)=")

Items = tuple[tuple[str, str | None], ...]


def match_partitions(table: str, texts: Iterable[str], keys: Collection[str]) -> set[str]:
    """Return the partition keys that at least one of the texts selects.

    Args:
        table: The table's name, for messages.
        texts: Keys or patterns, as the module describes. At the first `*`, all keys are returned, and the texts after
            it are not checked.
        keys: The keys of all partitions of the table.

    Raises:
        PartitionNotFoundError: A text other than `*` selects no partition. The message names similar keys.
    """
    existing = set(keys)
    selected_keys: set[str] = set()
    for text in texts:
        if text == ALL_PARTITIONS:
            return existing
        selected_keys.update([text] if text in existing else _match_text(table, text, sorted(existing)))
    return selected_keys


def resolve_partition_keys(table: str, texts: Iterable[str], keys: Collection[str]) -> set[str]:
    """Return the keys of the partitions that the texts name exactly, without wildcards.

    Args:
        table: The table's name, for messages.
        texts: Keys, which may also be written without percent-encoding.
        keys: The keys of all partitions of the table.

    Raises:
        PartitionNotFoundError: Some texts name no partition.
    """
    existing = set(keys)
    selected_keys: set[str] = set()
    readable: dict[str, str] = {}
    unknown: list[str] = []
    for text in texts:
        if text not in existing and not readable:
            readable = {_readable(decode_partition_key(key)): key for key in existing}
        key = text if text in existing else readable.get(text) or readable.get(unquote(text))
        if key is None:
            unknown.append(text)
        else:
            selected_keys.add(key)
    if unknown:
        sorted_keys = sorted(existing)
        columns = list(dict.fromkeys(name for key in sorted_keys for name, _ in decode_partition_key(key)))
        others = f"; {len(unknown) - 1:,} other keys in the list do not exist either" if len(unknown) > 1 else ""
        raise PartitionNotFoundError(_not_found_message(table, unknown[0], sorted_keys, columns) + others)
    return selected_keys


def resolve_partition(table: str, text: str, keys: Collection[str]) -> str:
    """Return the only partition key that a text selects.

    Args:
        table: The table's name, for messages.
        text: A key or a pattern, as in `match_partitions`.
        keys: The keys of all partitions of the table.

    Raises:
        PartitionNotFoundError: The text selects no partition or several.
    """
    selected_keys = sorted(match_partitions(table, [text], keys))
    if not selected_keys:
        raise PartitionNotFoundError(_not_found_message(table, text, (), ()))
    if len(selected_keys) > 1:
        raise PartitionNotFoundError(
            f"{text!r} means {len(selected_keys):,} partitions of table {table!r}: name one of them, such as "
            f"{selected_keys[0]!r}; list them with `metastore show {table} --partitions`"
        )
    return selected_keys[0]


def _match_text(table: str, text: str, keys: Sequence[str]) -> Collection[str]:
    """Return the keys that a text selects.

    The text is first read as a key, with or without percent-encoding. If no partition has this key, the text is read as
    one pattern per column, such as `day=2024-*/country=FR`.

    Raises PartitionNotFoundError if the text selects no key.
    """
    items = {key: decode_partition_key(key) for key in keys}
    for readable_key in (text, unquote(text)):
        if matching := [key for key in keys if _readable(items[key]) == readable_key]:
            return matching
    columns = list(dict.fromkeys(name for pairs in items.values() for name, _ in pairs))
    patterns = [(name, _unescape(pattern)) for name, pattern in split_column_patterns(text, columns)]
    matching = [
        key for key in keys if patterns and all(_matches_pattern(dict(items[key]), *pattern) for pattern in patterns)
    ]
    if not matching:
        raise PartitionNotFoundError(_not_found_message(table, text, keys, columns))
    return matching


def _readable(items: Items) -> str:
    return "/".join(f"{name}={NULL_VALUE if value is None else value}" for name, value in items) or UNPARTITIONED


def split_column_patterns(text: str, columns: Sequence[str]) -> list[tuple[str, str]]:
    """Return the (column, text) pairs of a text such as `day=2024-*/country=FR`.

    These are (day, 2024-*) and (country, FR). A `/` that is not followed by a column and `=` belongs to the text before
    it.

    Args:
        text: The text to split.
        columns: The table's partition columns.

    Returns:
        The pairs; an empty list if the text does not begin with a column and `=`.
    """
    names = {form: name for name in columns for form in (encode_partition_key([(name, "")])[:-1], name)}
    alternatives = "|".join(re.escape(form) for form in sorted(names, key=len, reverse=True))
    parts = re.split(rf"(?:^|/)({alternatives})=", text)
    if not alternatives or parts[0]:
        return []
    return [(names[form], value) for form, value in zip(parts[1::2], parts[2::2], strict=True)]


def combine_partition_patterns(texts: Iterable[str]) -> dict[str, list[str]]:
    """Return the distinct patterns of each column in several texts, by column.

    For example, `day=2024-*/country=FR` and `day=2025-*/country=FR` become
    `{"day": ["2024-*", "2025-*"], "country": ["FR"]}`. A partition matches if each of its values matches one of the
    patterns of its column.

    Args:
        texts: Keys or patterns of columns, but neither `*` nor `all`.

    Raises:
        ValueError: A text does not begin with a column and `=`, or not all texts have the same columns, or more than
            one column has several patterns.
    """
    alternatives: list[dict[str, str]] = []
    for text in texts:
        parts = _ANY_COLUMN.split(text)
        if parts[0] or len(parts) < 3:
            raise ValueError(f"{text!r} is no partition: write column=value, such as day=2024-01-01 or 'day=2024-*'")
        alternatives.append(
            {unquote(name): _unescape(value) for name, value in zip(parts[1::2], parts[2::2], strict=True)}
        )
    if not alternatives:
        return {}
    first = alternatives[0]
    if any(other.keys() != first.keys() for other in alternatives):
        raise ValueError("several partitions must name the same columns: profile them one after the other")
    combined_patterns = {name: list(dict.fromkeys(other[name] for other in alternatives)) for name in first}
    if sum(len(patterns) > 1 for patterns in combined_patterns.values()) > 1:
        raise ValueError("several partitions may differ in one column only: profile them one after the other")
    return combined_patterns


def _unescape(pattern: str) -> str:
    """Return a pattern with its percent-encoding decoded.

    Decoded characters are not wildcards.
    """
    return _ESCAPES.sub(lambda match: escape_wildcards(unquote(match[0])), pattern)


def _matches_pattern(values: dict[str, str | None], column: str, pattern: str) -> bool:
    return column in values and matches_value_patterns(values[column], (pattern,))


def _not_found_message(table: str, text: str, keys: Sequence[str], columns: Sequence[str]) -> str:
    """Return an error message with the reason why no partition matches `text`, and with advice."""
    summary = f"table {table!r} has no partition {text!r}"
    if not keys:
        return f"{summary}: it has no partitions, because it has no rows"
    if not columns:
        return f"{summary}: it is not partitioned, and its one partition is {keys[0]!r}"
    how = f"; list them with `metastore show {table} --partitions`"
    form = f"name a key, or a pattern such as `{'/'.join(f'{column}=…' for column in columns)}`"
    if "=" not in text:
        return f"{summary}; {form}" + nearest_names(f"{columns[0]}={text}", keys) + how
    named_columns = [unquote(part.partition("=")[0]) for part in text.split("/") if "=" in part]
    unknown = [name for name in named_columns if name not in columns]
    if unknown:
        by = " and ".join(map(repr, columns))
        explanation = f"{summary}: it is partitioned by {by}, not by {unknown[0]!r}; {form}"
        return explanation + how + close_names(unknown[0], columns, "")
    return summary + nearest_names(text, keys) + how
