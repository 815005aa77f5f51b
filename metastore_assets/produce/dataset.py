"""One dataset of one version: which runs it is made of, and its rows as if it were one sorted file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import polars as pl

from metastore_assets.produce.layout import GONE, Layout
from metastore_assets.produce.lookup import find_in_run
from metastore_assets.produce.order import Order
from metastore_assets.produce.runs import EVERYTHING, KeyRange, Run, read_run
from metastore_assets.produce.streams import Stream, aligned
from metastore_assets.store.objects import ObjectStore

_RUN = "_run"


@dataclass(frozen=True)
class Shard:
    """The runs of one range of keys, oldest first; the runs of level 0 are newer than all of them."""

    runs: tuple[Run, ...] = ()


@dataclass(frozen=True)
class State:
    """What a manifest says of a dataset."""

    splitters: pl.DataFrame
    """Greatest key of each shard but the last, ascending."""
    shards: tuple[Shard, ...] = (Shard(),)
    level0: tuple[Run, ...] = ()
    """Runs over all shards, oldest first."""
    credit: int = 0
    """Rows that compaction may still write at the expense of former updates."""

    def runs(self) -> Iterator[Run]:
        """All runs."""
        yield from self.level0
        for shard in self.shards:
            yield from shard.runs

    @property
    def rows(self) -> int:
        """Rows in all runs: no less than the dataset has."""
        return sum(run.rows for run in self.runs())

    def ranges(self) -> list[KeyRange]:
        """The range of keys of each shard."""
        bounds = [None, *(self.splitters[row] for row in range(self.splitters.height)), None]
        return [KeyRange(after, until) for after, until in pairwise(bounds)]

    def split(self, frame: pl.DataFrame, group: Order) -> list[pl.DataFrame]:
        """The rows of a sorted frame that belong to each shard."""
        if not self.splitters.height:
            return [frame]
        counts = (
            group.before(self.splitters[row], inclusive=True).sum().alias(str(row))
            for row in range(len(self.shards) - 1)
        )
        cuts = [0, *frame.select(counts).row(0), frame.height]
        return [frame[start:stop] for start, stop in pairwise(cuts)]


@dataclass(frozen=True)
class Dataset:
    """A state, and where its files are. Small and picklable."""

    storage: ObjectStore
    layout: Layout
    state: State

    def scan(self, key_range: KeyRange = EVERYTHING) -> Stream:
        """All rows in a range of keys, sorted; no group is split between two frames."""
        return Stream(self._scan(key_range), self._empty)

    def lookup(
        self, keys: pl.DataFrame, key_range: KeyRange = EVERYTHING, columns: Sequence[str] | None = None
    ) -> pl.DataFrame:
        """The rows of some sorted distinct keys in a range, sorted; of some columns, those of units included."""
        layout, state = self.layout, self.state
        columns = layout.schema.names if columns is None else columns
        names = [name for name in layout.file_schema.names if name in (*columns, GONE)]
        keys = key_range.filter(keys, layout.group)
        # What the runs of level 0 say is read once, whatever the number of shards.
        newest = pl.concat([layout.empty[names], *merged(self._found(state.level0, keys, names), layout)])
        frames = [self._empty[list(columns)]]
        split = zip(state.split(keys, layout.group), state.split(newest, layout.group), strict=True)
        for shard, (own, newer) in zip(state.shards, split, strict=True):
            if own.height:
                streams = [Stream([newer], newer.clear()), *self._found(shard.runs, own, names)]
                frames += self._merged(streams)
        return pl.concat(frames)

    def _found(self, runs: Sequence[Run], keys: pl.DataFrame, names: Sequence[str]) -> list[Stream]:
        """The rows of some sorted keys in each run, the newest first; nothing is read where there are no keys."""
        runs = runs if keys.height else ()
        return [find_in_run(self.storage, run, self.layout, keys, names) for run in reversed(runs)]

    @property
    def _empty(self) -> pl.DataFrame:
        return self.layout.empty[self.layout.schema.names]

    def _scan(self, key_range: KeyRange) -> Iterator[pl.DataFrame]:
        for shard, own in zip(self.state.shards, self.state.ranges(), strict=True):
            common = _intersection(own, key_range, self.layout)
            if common is not None:
                runs = reversed((*shard.runs, *self.state.level0))
                yield from self._merged([read_run(self.storage, run, self.layout, common) for run in runs])

    def _merged(self, streams: Sequence[Stream]) -> Iterator[pl.DataFrame]:
        for frame in merged(streams, self.layout):
            alive = frame
            if not self.layout.amounts:
                alive = frame.filter(~pl.col(GONE)) if frame[GONE].any() else frame
                alive = alive[[name for name in frame.columns if name != GONE]]
            if alive.height:
                yield alive


def merged(streams: Sequence[Stream], layout: Layout) -> Iterator[pl.DataFrame]:
    """Runs, newest first, as one: the newest rows of each unit, GONE rows among them, or the sums that are not zero."""
    for frames in aligned(streams, layout.group):
        frame = _summed(frames, layout) if layout.amounts else _newest(frames, layout)
        if frame.height:
            yield frame


def _newest(frames: Sequence[pl.DataFrame], layout: Layout) -> pl.DataFrame:
    """`frames` with the newest first."""
    present = [frame for frame in frames if frame.height]
    if len(present) == 1:
        return present[0]
    numbers = np.repeat(np.arange(len(present)), [frame.height for frame in present])
    ordered = layout.order.sort(pl.concat(present).hstack([pl.Series(_RUN, numbers)]))
    runs = ordered[_RUN].to_numpy()
    starts = np.flatnonzero(ordered.select(layout.unit.changes()).to_series().to_numpy())
    newest = np.repeat(np.minimum.reduceat(runs, starts), np.diff(starts, append=len(runs)))
    return ordered.filter(pl.Series(runs == newest))[frames[0].columns]


def _summed(frames: Sequence[pl.DataFrame], layout: Layout) -> pl.DataFrame:
    """One row per key, sorted, with the sums of its amounts; keys whose sums are all zero are left out.

    Sums wrap around. That of all runs is a total, which fits; that of some is a difference of two totals, which may
    not, but is true again, and not zero before, once the others are added.
    """
    present = [frame for frame in frames if frame.height]
    if len(present) == 1:
        return present[0]
    total = pl.concat(present).group_by(layout.group.columns, maintain_order=True).agg(pl.col(*layout.amounts).sum())
    return layout.order.sort(total.filter(pl.any_horizontal(pl.col(name) != 0 for name in layout.amounts)))


def _intersection(own: KeyRange, other: KeyRange, layout: Layout) -> KeyRange | None:
    """The keys in both ranges; None when there are none for certain."""
    group = layout.group
    after = own.after if other.after is None else other.after
    if own.after is not None and other.after is not None:
        after = _greater(own.after, other.after, layout)
    until = own.until if other.until is None else other.until
    if own.until is not None and other.until is not None:
        until = group.least(pl.concat([own.until, other.until]))
    if after is not None and until is not None and not after.filter(group.before(until)).height:
        return None
    return KeyRange(after, until)


def _greater(one: pl.DataFrame, other: pl.DataFrame, layout: Layout) -> pl.DataFrame:
    return layout.group.sort(pl.concat([one, other])).tail(1)
