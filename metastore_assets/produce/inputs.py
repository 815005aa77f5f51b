"""What a stage reads of its feeders: the keys that have changed, and all values of those keys as they are now."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import polars as pl

from metastore_assets.produce.dataset import Dataset
from metastore_assets.produce.order import Order
from metastore_assets.produce.parts import Part, find_in_part, part_bounds, part_rows, scan_part
from metastore_assets.produce.rows import CHANGE, Rows
from metastore_assets.produce.run_schema import RunSchema
from metastore_assets.produce.runs import EVERYTHING, KeyRange
from metastore_assets.produce.settings import Settings
from metastore_assets.produce.updates import DELETE, update_schema

_FIRST_KEYS = 16_384
"""Keys looked up at first, before it is known how many rows a key has."""


@dataclass(frozen=True)
class Feeder:
    """One feeder at one step: its content before, and what has changed since."""

    name: str
    rows: Rows
    content: Dataset
    update: tuple[Part, ...]
    """Its update, in key order. None when nothing has changed."""
    sums: bool
    replaced: pl.DataFrame | None = None
    """All former rows of the keys of the update, where they have been read before."""
    whole: bool = False
    """Whether all that it holds counts as new: the stage is built from nothing, on the content as it is now."""

    @property
    def update_rows(self) -> int:
        """Rows of the update."""
        return self.content.state.rows if self.whole else part_rows(self.update)

    @property
    def run_schema(self) -> RunSchema:
        """Of the update."""
        return update_schema(self.rows, sums=self.sums)

    def changed(self, key_range: KeyRange, order: Order) -> Iterator[pl.DataFrame]:
        """The keys that the update has in a range of an order, in frames; some may come twice."""
        names = self.rows.key.names
        if self.whole:
            frames: Iterator[pl.DataFrame] = iter(self.content.scan(self._own(key_range, order)).frames)
        else:
            frames = (
                frame
                for part in self.update
                for frame in scan_part(
                    self.content.storage, self.run_schema, part, self._own(key_range, order), names
                ).frames
            )
        for frame in frames:
            yield key_range.filter(frame[:, names].filter(self.rows.order.changes()), order)

    def values(self, keys: pl.DataFrame) -> pl.DataFrame:
        """Key and value columns of some keys as they are now, in group order within a key."""
        names = self.rows.schema.names
        if self.whole:
            return self.former(keys)
        new = self.news(keys)
        untouched = self.rows.order.anti(keys, new)
        upserts = new.filter(pl.col(CHANGE) != DELETE)[:, names]
        return pl.concat([upserts, self.former(untouched)]) if untouched.height else upserts

    def news(self, keys: pl.DataFrame) -> pl.DataFrame:
        """The rows of the update with some keys."""
        wanted = self.rows.order.sort(keys)
        storage, run_schema = self.content.storage, self.run_schema
        found = [frame for part in self.update for frame in find_in_part(storage, run_schema, part, wanted).frames]
        return pl.concat([run_schema.empty, *found])

    def former(self, keys: pl.DataFrame) -> pl.DataFrame:
        """Key and value columns of some keys in the content, in group order within a key."""
        return self.content.lookup(self.rows.order.sort(keys))[:, self.rows.schema.names]

    def outdated(self, news: pl.DataFrame) -> pl.DataFrame:
        """Key and value columns that keys of the update had before it, in group order within a key."""
        keys = self.rows.order.distinct(news)
        if self.replaced is None:
            return self.former(keys)
        return self.rows.order.semi(self.replaced, keys)[:, self.rows.schema.names]

    def bounds(self) -> pl.DataFrame:
        """Some changed keys, spread over the update."""
        parts = tuple(self.content.state.runs()) if self.whole else self.update
        return part_bounds(self.content.storage, self.content.run_schema, parts)

    def _own(self, key_range: KeyRange, order: Order) -> KeyRange:
        """The range, where it is one of the feeder's own order too."""
        return key_range if order == self.rows.order else EVERYTHING


def distinct_feeders(ports: Sequence[Sequence[Feeder]]) -> list[Feeder]:
    """Every feeder once."""
    return list({feeder.name: feeder for port in ports for feeder in port}.values())


def source_order(feeder: Feeder) -> Order:
    """Source keys ascend, whatever the feeder's own order is."""
    return Order.of(feeder.rows.key.names)


def task_ranges(feeders: Sequence[Feeder], settings: Settings) -> list[KeyRange]:
    """Ranges of source keys that have about `task_rows` rows of updates each."""
    rows = sum(feeder.update_rows for feeder in feeders)
    count = -(-rows // settings.task_rows)
    return even_ranges(pl.concat([feeder.bounds() for feeder in feeders]), source_order(feeders[0]), count)


def even_ranges(sample: pl.DataFrame, order: Order, count: int) -> list[KeyRange]:
    """At most `count` ranges that hold about as many of the sampled keys each."""
    ordered = order.sort(sample.select(order.columns))
    cuts = sorted({ordered.height * number // count for number in range(1, count)} - {0}) if ordered.height else []
    splitters = order.distinct(ordered[cuts]) if cuts else ordered.clear()
    bounds = [None, *(splitters[row] for row in range(splitters.height)), None]
    return [KeyRange(after, until) for after, until in pairwise(bounds)]


def changed_keys(feeders: Sequence[Feeder], key_range: KeyRange) -> pl.DataFrame:
    """The distinct keys that any update has in a range, ascending."""
    order = source_order(feeders[0])
    names = feeders[0].rows.key.names
    frames = [feeders[0].content.run_schema.empty[:, names]]
    for feeder in feeders:
        frames += [frame[:, names] for frame in feeder.changed(key_range, order)]
    return order.distinct(order.sort(pl.concat(frames)))


class KeyChunks:
    """Cuts keys into chunks that have about as many rows as wanted, going by what the chunks before had."""

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

    def told(self, keys: int, rows: int) -> None:
        """What a chunk turned out to have."""
        self._seen_keys += keys
        self._seen_rows += rows
