"""Text properties of a table in Glue or a Hive metastore.

Long texts are split into several properties.

One property records the columns whose statistics an export wrote.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from metastore_assets.digests import digest_json

_PART_LENGTH = 4_000
"""A longer property is split as Spark splits it, because metastores limit the length of values."""
_DIGEST_LENGTH = 8
"""Hexadecimal digits of a column's digest. A table has one for each column, so they are short."""


def split_property(key: str, text: str) -> dict[str, str]:
    """Return the property `{key: text}`.

    A long text is split: `<key>.numParts`, `<key>.part.0` and so on.
    """
    if len(text) <= _PART_LENGTH:
        return {key: text}
    parts = [text[start : start + _PART_LENGTH] for start in range(0, len(text), _PART_LENGTH)]
    return {f"{key}.numParts": str(len(parts)), **{f"{key}.part.{i}": part for i, part in enumerate(parts)}}


def join_property(properties: Mapping[str, str], key: str) -> str:
    """Return the text that `split_property` stored under a key; empty if there is none."""
    count = int(properties.get(f"{key}.numParts", "0") or 0)
    return properties.get(key) or "".join(properties.get(f"{key}.part.{part}", "") for part in range(count))


@dataclass(frozen=True)
class WrittenColumns:
    """The columns whose statistics an export wrote, with a digest of each column's statistics.

    The export stores the digests in a property of the table. A later export compares them with the table's statistics,
    to detect whether another program has replaced the statistics of a column.
    """

    digests: Mapping[str, str]
    """Digests by the column's name in the metastore. An empty digest means that an export of the column is in
    progress; its statistics then count as written by this package."""

    @classmethod
    def of_statistics(cls, counts: Mapping[str, Any]) -> WrittenColumns:
        """Return the columns with a digest of the statistics of each.

        Args:
            counts: {name of a column: its statistics as JSON}, such as `{"id": [0, None]}`. Pass only numbers that the
                metastore returns as they were written. Rounded or converted numbers would have another digest.
        """
        return cls({name: _digest(numbers) for name, numbers in counts.items()})

    @classmethod
    def in_progress(cls, names: Collection[str]) -> WrittenColumns:
        """Return columns whose statistics are being written or deleted.

        Their digests are empty.
        """
        return cls(dict.fromkeys(names, ""))

    @classmethod
    def from_properties(cls, properties: Mapping[str, str], key: str) -> WrittenColumns:
        """Decode the property `key` of a table.

        If the table lacks it, the result has no columns.
        """
        return cls(json.loads(join_property(properties, key) or "{}"))

    def to_properties(self, key: str) -> dict[str, str]:
        """Encode the columns as the text of the table property `key`.

        Returns:
            {`key`: text}. A long text is split into several properties; see `split_property`.
        """
        return split_property(key, json.dumps(dict(sorted(self.digests.items())), separators=(",", ":")))

    @property
    def names(self) -> list[str]:
        """The names of the columns, sorted."""
        return sorted(self.digests)

    def unchanged(self, counts: Mapping[str, Any]) -> list[str]:
        """Return the sorted names of columns whose statistics no other program has changed since the export.

        A column with an empty digest is included: its export has begun, but is not recorded as complete.

        Args:
            counts: {name of a column: its present statistics in the metastore}, with the same numbers in the same order
                as were passed to `of_statistics`.
        """
        return [
            name
            for name in self.names
            if not self.digests[name] or (name in counts and _digest(counts[name]) == self.digests[name])
        ]


def _digest(numbers: Any) -> str:
    return digest_json(numbers)[:_DIGEST_LENGTH]
