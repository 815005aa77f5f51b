"""The input of a stage: the changed keys of its feeders, and the current values of these keys.

The feeders of a stage are the nodes whose output it reads. The keys of the feeders are the source keys of the stage.
The update of a feeder lists the keys that one step of the dataflow changed. A port is one input of a stage.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import polars as pl

from metastore_assets.produce.dataset import Dataset
from metastore_assets.produce.environment import Settings
from metastore_assets.produce.order import Order
from metastore_assets.produce.parts import Part, find_in_part, part_rows, sample_part_keys, scan_part
from metastore_assets.produce.run_schema import RunSchema
from metastore_assets.produce.runs import EVERYTHING, KeyRange
from metastore_assets.produce.typed_rows import CHANGE, Rows
from metastore_assets.produce.updates import DELETE, update_schema

_FIRST_KEYS = 16_384
"""Number of keys in the first lookup, before the number of rows per key is known."""


@dataclass(frozen=True)
class Feeder:
    """One feeder of a stage in one step: its update, and its content before the step.

    If the stage is rebuilt (`is_full`), there is no update, and `content` is the feeder's content after the step.
    """

    name: str
    rows: Rows
    content: Dataset
    update: tuple[Part, ...]
    """The feeder's update, in key order; empty if nothing changed."""
    sums: bool
    replaced: pl.DataFrame | None = None
    """All previous rows of the updated keys; None if the feeder's step has not read them."""
    is_full: bool = False
    """Whether the stage is rebuilt, so that all content counts as new."""

    @property
    def update_rows(self) -> int:
        """Number of rows in the update; with `is_full`, number of rows in the content."""
        return self.content.state.rows if self.is_full else part_rows(self.update)

    @property
    def run_schema(self) -> RunSchema:
        """The schema of the rows in `update`."""
        return update_schema(self.rows, sums=self.sums)

    def changed(self, key_range: KeyRange, order: Order) -> Iterator[pl.DataFrame]:
        """Yield frames with the updated keys in a key range.

        With `is_full`, these are all keys of the content in the range. Keys may repeat.

        Args:
            key_range: The range.
            order: The order of keys in which the range is defined.
        """
        names = self.rows.key.names
        if self.is_full:
            frames: Iterator[pl.DataFrame] = iter(self.content.scan(self._range_in_order(key_range, order)).frames)
        else:
            frames = (
                frame
                for part in self.update
                for frame in scan_part(
                    self.content.storage, self.run_schema, part, self._range_in_order(key_range, order), names
                ).frames
            )
        for frame in frames:
            yield key_range.filter(frame[:, names].filter(self.rows.order.changes()), order)

    def values(self, keys: pl.DataFrame) -> pl.DataFrame:
        """Return the rows of these keys after the update (key and value columns)."""
        names = self.rows.schema.names
        if self.is_full:
            return self.previous(keys)
        new = self.changed_rows(keys)
        untouched_keys = self.rows.order.anti(keys, new)
        upserts = new.filter(pl.col(CHANGE) != DELETE)[:, names]
        return pl.concat([upserts, self.previous(untouched_keys)]) if untouched_keys.height else upserts

    def changed_rows(self, keys: pl.DataFrame) -> pl.DataFrame:
        """Return the rows of the feeder's update that have one of these keys.

        The result has the columns of `run_schema`.
        """
        keys = self.rows.order.sort(keys)
        storage, run_schema = self.content.storage, self.run_schema
        matches = [frame for part in self.update for frame in find_in_part(storage, run_schema, part, keys).frames]
        return pl.concat([run_schema.empty, *matches])

    def previous(self, keys: pl.DataFrame) -> pl.DataFrame:
        """Return the rows of these keys before the update (key and value columns)."""
        return self.content.lookup(self.rows.order.sort(keys))[:, self.rows.schema.names]

    def previous_rows(self, changed_rows: pl.DataFrame) -> pl.DataFrame:
        """Return the rows that the keys in `changed_rows` had before the update, with key and value columns."""
        keys = self.rows.order.distinct(changed_rows)
        if self.replaced is None:
            return self.previous(keys)
        return self.rows.order.semi(self.replaced, keys)[:, self.rows.schema.names]

    def sample_keys(self) -> pl.DataFrame:
        """Return a sample of the updated keys, spread over the update.

        With `is_full`, it is a sample of all keys of the content.
        """
        parts = tuple(self.content.state.runs()) if self.is_full else self.update
        return sample_part_keys(self.content.storage, self.content.run_schema, parts)

    def _range_in_order(self, key_range: KeyRange, order: Order) -> KeyRange:
        """Return the range of keys to read from the feeder's files: `key_range`, or all keys.

        Only files that are sorted in `order` can be read by the range. In any case, the caller filters the rows it got.
        """
        return key_range if order == self.rows.order else EVERYTHING


def distinct_feeders(ports: Sequence[Sequence[Feeder]]) -> list[Feeder]:
    """Return the feeders of all ports, without repetitions."""
    return list({feeder.name: feeder for port in ports for feeder in port}.values())


def source_order(feeder: Feeder) -> Order:
    """Return the order of source keys: ascending in all key columns of the feeder.

    The feeder's own files may have another order.
    """
    return Order.of(feeder.rows.key.names)


def task_ranges(feeders: Sequence[Feeder], settings: Settings) -> list[KeyRange]:
    """Return ranges of source keys with about `settings.task_rows` update rows each."""
    rows = sum(feeder.update_rows for feeder in feeders)
    count = -(-rows // settings.task_rows)
    return even_ranges(pl.concat([feeder.sample_keys() for feeder in feeders]), source_order(feeders[0]), count)


def even_ranges(sample: pl.DataFrame, order: Order, count: int) -> list[KeyRange]:
    """Return at most `count` key ranges that cover all keys.

    Each has about the same number of sampled keys.
    """
    sorted_sample = order.sort(sample.select(order.columns))
    cuts = (
        sorted({sorted_sample.height * number // count for number in range(1, count)} - {0})
        if sorted_sample.height
        else []
    )
    splitters = order.distinct(sorted_sample[cuts]) if cuts else sorted_sample.clear()
    bounds = [None, *(splitters[row] for row in range(splitters.height)), None]
    return [KeyRange(after, until) for after, until in pairwise(bounds)]


def changed_keys(feeders: Sequence[Feeder], key_range: KeyRange) -> pl.DataFrame:
    """Return the distinct keys in `key_range` that the updates of the feeders change, ascending."""
    order = source_order(feeders[0])
    names = feeders[0].rows.key.names
    frames = [feeders[0].content.run_schema.empty[:, names]]
    for feeder in feeders:
        frames += [frame[:, names] for frame in feeder.changed(key_range, order)]
    return order.distinct(order.sort(pl.concat(frames)))


class KeyChunks:
    """An iterator over chunks of sorted keys.

    A chunk's keys together have about a given number of rows.

    The number of rows of a key is estimated. So call `record` with the actual number of rows of each chunk.
    """

    def __init__(self, keys: pl.DataFrame, rows: int) -> None:
        self._keys = keys
        self._rows = rows
        self._seen_keys = self._seen_rows = 0

    def __iter__(self) -> Iterator[pl.DataFrame]:
        start = 0
        while start < self._keys.height:
            per_key = self._seen_rows / self._seen_keys if self._seen_keys else self._rows / _FIRST_KEYS
            size = max(1, int(self._rows / max(per_key, 1.0)))
            yield self._keys[start : start + size]
            start += size

    def record(self, keys: int, rows: int) -> None:
        """Record that the last chunk had `keys` keys with `rows` rows in total."""
        self._seen_keys += keys
        self._seen_rows += rows
