"""One dataset of one version: which runs it is made of, and its rows as if it were one sorted file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import polars as pl

from metastore_assets.produce.lookup import find_in_run
from metastore_assets.produce.order import Order
from metastore_assets.produce.run_schema import GONE, RunSchema
from metastore_assets.produce.runs import EVERYTHING, KeyRange, Run, footer_of, read_run
from metastore_assets.produce.streams import Stream, aligned
from metastore_assets.store.objects import ObjectStore

_RUN = "_run"
_ROWS = "_rows"


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
    run_schema: RunSchema
    state: State

    def scan(self, key_range: KeyRange = EVERYTHING) -> Stream:
        """All rows in a range of keys, sorted; no unit is split between two frames."""
        return Stream(self._scan(key_range), self._empty)

    def lookup(
        self, keys: pl.DataFrame, key_range: KeyRange = EVERYTHING, columns: Sequence[str] | None = None
    ) -> pl.DataFrame:
        """The rows of some sorted distinct keys in a range, sorted; of some columns, those of units included."""
        run_schema, state = self.run_schema, self.state
        columns = run_schema.schema.names if columns is None else columns
        names = [name for name in run_schema.file_schema.names if name in (*columns, GONE)]
        keys = key_range.filter(keys, run_schema.group)
        # What the runs of level 0 say is read once, whatever the number of shards.
        newest = pl.concat([run_schema.empty[:, names], *merged(self._found(state.level0, keys, names), run_schema)])
        frames = [self._empty[:, list(columns)]]
        split = zip(state.split(keys, run_schema.group), state.split(newest, run_schema.group), strict=True)
        for shard, (own, newer) in zip(state.shards, split, strict=True):
            if own.height:
                streams = [Stream([newer], newer.clear()), *self._found(shard.runs, own, names)]
                frames += self._merged(streams)
        return pl.concat(frames)

    def beginning(self, prefixes: pl.DataFrame) -> pl.DataFrame:
        """The rows of sums whose keys begin with one of some sorted distinct prefixes, in the order of keys."""
        run_schema, state = self.run_schema, self.state
        looked_up = replace(run_schema, group_columns=prefixes.width)

        def found(runs: Sequence[Run], own: pl.DataFrame) -> list[Stream]:
            names = run_schema.schema.names
            return [find_in_run(self.storage, run, looked_up, own, names) for run in reversed(runs) if own.height]

        newest = pl.concat([self._empty, *merged(found(state.level0, prefixes), run_schema)])
        frames = [self._empty]
        split = zip(state.shards, state.ranges(), state.split(newest, run_schema.group), strict=True)
        for shard, key_range, newer in split:
            # Keys that begin as a splitter does may be on both sides of it.
            own, begin = prefixes, looked_up.group
            if key_range.after is not None:
                own = own.filter(~begin.before(key_range.after))
            if key_range.until is not None:
                own = own.filter(begin.before(key_range.until, inclusive=True))
            frames += self._merged([Stream([newer], newer.clear()), *found(shard.runs, own)])
        return pl.concat(frames)

    def crowded(self, most: int) -> pl.DataFrame:
        """Keys that may have more than `most` rows, sorted: those that fill whole row groups of about half as many."""
        group = self.run_schema.group
        found = [self.run_schema.empty_keys.with_columns(pl.lit(0, pl.Int64).alias(_ROWS))]
        for run in self.state.runs():
            if run.rows * 2 > most:
                footer = footer_of(self.storage, run.path)
                sizes = [footer.metadata.row_group(number).num_rows for number in range(footer.first.height)]
                ends = footer.first.hstack(
                    [pl.Series(_ROWS, sizes, pl.Int64), *footer.last.rename(_last_of).get_columns()]
                )
                full = (pl.col(name).eq_missing(pl.col(_last_of(name))) for name in group.columns)
                found.append(ends.filter(pl.all_horizontal(full)).select(*group.columns, _ROWS))
        rows = pl.concat(found).group_by(group.columns, maintain_order=True).agg(pl.col(_ROWS).sum())
        return group.sort(rows.filter(pl.col(_ROWS) * 2 > most).select(group.columns))

    def _found(self, runs: Sequence[Run], keys: pl.DataFrame, names: Sequence[str]) -> list[Stream]:
        """The rows of some sorted keys in each run, the newest first; nothing is read where there are no keys."""
        runs = runs if keys.height else ()
        return [find_in_run(self.storage, run, self.run_schema, keys, names) for run in reversed(runs)]

    @property
    def _empty(self) -> pl.DataFrame:
        return self.run_schema.empty[:, self.run_schema.schema.names]

    def _scan(self, key_range: KeyRange) -> Iterator[pl.DataFrame]:
        for shard, own in zip(self.state.shards, self.state.ranges(), strict=True):
            common = _intersection(own, key_range, self.run_schema)
            if common is not None:
                runs = reversed((*shard.runs, *self.state.level0))
                yield from self._merged([read_run(self.storage, run, self.run_schema, common) for run in runs])

    def _merged(self, streams: Sequence[Stream]) -> Iterator[pl.DataFrame]:
        for frame in merged(streams, self.run_schema):
            alive = frame
            if not self.run_schema.amounts:
                alive = frame.filter(~pl.col(GONE)) if frame[GONE].any() else frame
                alive = alive[:, [name for name in frame.columns if name != GONE]]
            if alive.height:
                yield alive


def merged(streams: Sequence[Stream], run_schema: RunSchema) -> Iterator[pl.DataFrame]:
    """Runs, newest first, as one: the newest rows of each unit, GONE rows among them, or the sums that are not zero."""
    # The keys of one run of sums are distinct: no two frames share one.
    if run_schema.amounts and len(streams) == 1:
        yield from (frame for frame in streams[0].frames if frame.height)
        return
    for frames in aligned(streams, run_schema.unit):
        frame = summed(frames, run_schema) if run_schema.amounts else _newest(frames, run_schema)
        if frame.height:
            yield frame


def _newest(frames: Sequence[pl.DataFrame], run_schema: RunSchema) -> pl.DataFrame:
    """`frames` with the newest first."""
    present = [frame for frame in frames if frame.height]
    if len(present) == 1:
        return present[0]
    numbers = np.repeat(np.arange(len(present)), [frame.height for frame in present])
    ordered = run_schema.order.sort(pl.concat(present).hstack([pl.Series(_RUN, numbers)]))
    runs = ordered[_RUN].to_numpy()
    starts = np.flatnonzero(ordered.select(run_schema.unit.changes()).to_series().to_numpy())
    newest = np.repeat(np.minimum.reduceat(runs, starts), np.diff(starts, append=len(runs)))
    return ordered.filter(pl.Series(runs == newest))[frames[0].columns]


def summed(frames: Sequence[pl.DataFrame], run_schema: RunSchema) -> pl.DataFrame:
    """One row per key, sorted, with the sums of its amounts; keys whose sums are all zero are left out.

    Sums wrap around. That of all runs is a total, which fits; that of some is a difference of two totals, which may
    not, but is true again, and not zero before, once the others are added.
    """
    present = [frame for frame in frames if frame.height]
    if len(present) == 1:
        return present[0]
    total = (
        pl.concat(present)
        .group_by(run_schema.group.columns, maintain_order=True)
        .agg(pl.col(*run_schema.amounts).sum())
    )
    return run_schema.order.sort(total.filter(pl.any_horizontal(pl.col(name) != 0 for name in run_schema.amounts)))


def _last_of(name: str) -> str:
    return f"_last_{name}"


def _intersection(own: KeyRange, other: KeyRange, run_schema: RunSchema) -> KeyRange | None:
    """The keys in both ranges, of which `own` is not closed; None when there are none for certain."""
    group = run_schema.group
    after, closed = own.after, False
    if other.after is not None and (after is None or after.filter(group.before(other.after)).height):
        after, closed = other.after, other.closed
    until = own.until if other.until is None else other.until
    if own.until is not None and other.until is not None:
        until = group.least(pl.concat([own.until, other.until]))
    if after is not None and until is not None and not after.filter(group.before(until, inclusive=closed)).height:
        return None
    return KeyRange(after, until, closed)
