"""The statistics of many partitions: of one column those of all of them lie in one slice."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from fnmatch import fnmatchcase
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.statistics.leaves import LeafColumn
from metastore_assets.statistics.naming import named_rows
from metastore_assets.store.manifest import OwnStatistics, PartitionFiles
from metastore_assets.store.objects import ObjectStore

ALL = ("*", "all")
"""What stands for all partitions. `all` is also the key of the only one of a table without partition columns."""


class PartitionStatistics:
    """The statistics of the partitions of one version. Opens each file once, on first use; safe to share."""

    def __init__(
        self,
        objects: ObjectStore,
        files: PartitionFiles,
        read: Callable[[OwnStatistics, Sequence[str]], list[ColumnStatistics]],
        missing: Callable[[int, LeafColumn], ColumnStatistics],
    ) -> None:
        """`read` tells of columns, by path, of a partition that has a file of its own; `missing` what is known of a
        column in a partition of so many rows that was profiled without it."""
        from metastore_assets.index.partitions import PartitionReader  # the statistics of a table do without

        self._reader = PartitionReader(objects, files.files)
        self._files = files
        self._read = read
        self._missing = missing

    def rows(
        self, columns: Sequence[tuple[int, LeafColumn]], wanted: Collection[str] | None = None
    ) -> dict[str, list[ColumnStatistics]]:
        """By key, ascending, the rows of columns, each with its place in the table: of all partitions, or of those
        wanted, which there have to be."""
        apart = {own.key: own for own in self._files.apart}
        hidden = apart.keys() | self._files.gone
        partitions = self._reader.partitions if self._files.files.files else None
        keys = [] if partitions is None else partitions["_key"].to_pylist()
        counts = [] if partitions is None else partitions["_row_count"].to_pylist()
        is_told = np.array([key not in hidden and (wanted is None or key in wanted) for key in keys], np.bool_)
        found: dict[str, list[ColumnStatistics]] = {
            key: [] for key, told in zip(keys, is_told.tolist(), strict=True) if told
        }
        for position, leaf in columns if found else ():
            of: list[ColumnStatistics | None] = [None] * len(keys)
            for places, table in self._reader.column(leaf.field_id):
                mask = is_told[places]
                if not mask.all():
                    places, table = places[mask], table.filter(pa.array(mask))
                if not len(places):
                    continue
                for place, row in zip(places.tolist(), named_rows(table, position, leaf), strict=True):
                    of[place] = row
            for key, one, told, count in zip(keys, of, is_told.tolist(), counts, strict=True):
                if told:
                    found[key].append(self._missing(count, leaf) if one is None else one)
        names = [leaf.path for _, leaf in columns]
        own = {key: self._read(one, names) for key, one in apart.items() if wanted is None or key in wanted}
        return {key: found[key] if key in found else own[key] for key in sorted([*found, *own])} if own else found


def chosen_keys(texts: Iterable[str], keys: Collection[str]) -> list[str] | str:
    """The keys that texts mean, in that order, each once: keys, or patterns; the first text that means none, by itself.

    A pattern is `column=pattern`, or several of them joined by `/` (`*`, `?` and `[…]` are wildcards): all partitions
    whose key has a part that fits each.
    """
    found: dict[str, None] = {}
    for text in texts:
        own = [text] if text in keys else [key for key in keys if _fits(key, text)]
        if not own:
            return text
        found.update(dict.fromkeys(own))
    return list(found)


def _fits(key: str, text: str) -> bool:
    parts = key.split("/")
    readable = [unquote(part) for part in parts]
    return all(
        any(fnmatchcase(own, pattern) for own in (*parts, *readable)) for pattern in text.split("/") if "=" in pattern
    ) and ("=" in text or fnmatchcase(key, text))
