"""A dataset of one version: several sorted files (runs) that are read like one.

A shard is a key range with its own runs. Further runs, those of level 0, may contain keys of all shards. They are newer
than the runs of shards. A unit is a group of rows that are replaced together; a tombstone is a row that deletes a unit.
A sum dataset contains totals by key: each run has amounts to add, and the total of a key is the sum over all runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import polars as pl

from metastore_assets.produce.lookup import find_in_run
from metastore_assets.produce.order import Order
from metastore_assets.produce.run_schema import TOMBSTONE, RunSchema
from metastore_assets.produce.runs import EVERYTHING, KeyRange, Run, footer_of, read_run
from metastore_assets.produce.streams import Stream, align_streams
from metastore_assets.store.objects import ObjectStore

_RUN = "_run"
_ROWS = "_rows"


@dataclass(frozen=True)
class Shard:
    """The runs of one key range, oldest first."""

    runs: tuple[Run, ...] = ()


@dataclass(frozen=True)
class DatasetState:
    """The runs of a dataset in one version, as the version's manifest records them.

    A manifest is a JSON document that names all files of a version.
    """

    splitters: pl.DataFrame
    """The greatest key of each shard except the last, ascending."""
    shards: tuple[Shard, ...] = (Shard(),)
    level0: tuple[Run, ...] = ()
    """Runs that span all shards, oldest first."""
    credit: int = 0
    """Number of rows that merges may still write. Updates add to it."""

    def runs(self) -> Iterator[Run]:
        """Yield all runs of the dataset."""
        yield from self.level0
        for shard in self.shards:
            yield from shard.runs

    @property
    def rows(self) -> int:
        """Number of rows in all runs: an upper bound of the dataset's rows."""
        return sum(run.rows for run in self.runs())

    def ranges(self) -> list[KeyRange]:
        """Return the key range of each shard, in order."""
        bounds = [None, *(self.splitters[row] for row in range(self.splitters.height)), None]
        return [KeyRange(after, until) for after, until in pairwise(bounds)]

    def split(self, frame: pl.DataFrame, group: Order) -> list[pl.DataFrame]:
        """Return one frame per shard: the rows of `frame` in the key range of the shard, possibly none.

        Args:
            frame: The frame, sorted by `group`.
            group: The key columns and their order.
        """
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
    """A readable dataset: its state, its schema and its storage.

    It is small and picklable.
    """

    storage: ObjectStore
    run_schema: RunSchema
    state: DatasetState

    def scan(self, key_range: KeyRange = EVERYTHING) -> Stream:
        """Return a sorted stream of all rows of a key range.

        Rows that are replaced together (a unit, see `RunSchema`) are in one frame.
        """
        return Stream(self._scan(key_range), self._empty)

    def lookup(
        self, keys: pl.DataFrame, key_range: KeyRange = EVERYTHING, columns: Sequence[str] | None = None
    ) -> pl.DataFrame:
        """Return the rows with these keys, sorted.

        Args:
            keys: The keys, sorted and distinct.
            key_range: Keys outside this range are ignored.
            columns: Columns to return; None for all. They must include the columns of `run_schema.order` and
                `run_schema.amounts`, because these are needed to merge the rows of several runs. This is not checked.
        """
        run_schema, state = self.run_schema, self.state
        columns = run_schema.schema.names if columns is None else columns
        names = [name for name in run_schema.file_schema.names if name in (*columns, TOMBSTONE)]
        keys = key_range.filter(keys, run_schema.group)
        # Read the runs of level 0 once, whatever the number of shards.
        newest = pl.concat(
            [run_schema.empty[:, names], *merge_streams(self._lookup_runs(state.level0, keys, names), run_schema)]
        )
        frames = [self._empty[:, list(columns)]]
        split = zip(state.split(keys, run_schema.group), state.split(newest, run_schema.group), strict=True)
        for shard, (shard_keys, newer) in zip(state.shards, split, strict=True):
            if shard_keys.height:
                streams = [Stream([newer], newer.clear()), *self._lookup_runs(shard.runs, shard_keys, names)]
                frames += self._merged(streams)
        return pl.concat(frames)

    def rows_with_prefixes(self, prefixes: pl.DataFrame) -> pl.DataFrame:
        """Return the rows whose first key columns equal a row of `prefixes`, in key order.

        Only for a sum dataset, because tombstones are not read. `View.rows_with_prefixes` checks this.

        Args:
            prefixes: Values of the first key columns, sorted and distinct.
        """
        run_schema, state = self.run_schema, self.state
        looked_up = replace(run_schema, group_columns=prefixes.width)

        def matches(runs: Sequence[Run], shard_keys: pl.DataFrame) -> list[Stream]:
            names = run_schema.schema.names
            return [
                find_in_run(self.storage, run, looked_up, shard_keys, names)
                for run in reversed(runs)
                if shard_keys.height
            ]

        newest = pl.concat([self._empty, *merge_streams(matches(state.level0, prefixes), run_schema)])
        frames = [self._empty]
        split = zip(state.shards, state.ranges(), state.split(newest, run_schema.group), strict=True)
        for shard, key_range, newer in split:
            # Keys that share the prefix of a splitter may lie on both sides of the splitter.
            shard_keys, begin = prefixes, looked_up.group
            if key_range.after is not None:
                shard_keys = shard_keys.filter(~begin.before(key_range.after))
            if key_range.until is not None:
                shard_keys = shard_keys.filter(begin.before(key_range.until, inclusive=True))
            frames += self._merged([Stream([newer], newer.clear()), *matches(shard.runs, shard_keys)])
        return pl.concat(frames)

    def find_hot_keys(self, limit: int) -> pl.DataFrame:
        """Return keys that may have more than `limit` rows, sorted.

        Reads only footers.

        A key is returned if it has more than `limit / 2` rows in row groups that have no other key. Runs with at most
        `limit / 2` rows are skipped, so keys whose rows are in many small runs are missing.
        """
        group = self.run_schema.group
        matches = [self.run_schema.empty_keys.with_columns(pl.lit(0, pl.Int64).alias(_ROWS))]
        for run in self.state.runs():
            if run.rows * 2 > limit:  # Smaller runs are skipped, even if several have rows of one key.
                footer = footer_of(self.storage, run.path)
                sizes = [footer.metadata.row_group(number).num_rows for number in range(footer.first.height)]
                ends = footer.first.hstack(
                    [pl.Series(_ROWS, sizes, pl.Int64), *footer.last.rename(_last_of).get_columns()]
                )
                # A row group has one key only, if its first key equals its last.
                full = (pl.col(name).eq_missing(pl.col(_last_of(name))) for name in group.columns)
                matches.append(ends.filter(pl.all_horizontal(full)).select(*group.columns, _ROWS))
        rows = pl.concat(matches).group_by(group.columns, maintain_order=True).agg(pl.col(_ROWS).sum())
        return group.sort(rows.filter(pl.col(_ROWS) * 2 > limit).select(group.columns))

    def _lookup_runs(self, runs: Sequence[Run], keys: pl.DataFrame, names: Sequence[str]) -> list[Stream]:
        """Return one stream per run, the newest run first.

        A stream has the rows of its run whose key is in `keys`.

        Returns [] if there are no keys.

        Args:
            runs: The runs, the oldest first.
            keys: The keys, sorted.
            names: The columns to return.
        """
        runs = runs if keys.height else ()
        return [find_in_run(self.storage, run, self.run_schema, keys, names) for run in reversed(runs)]

    @property
    def _empty(self) -> pl.DataFrame:
        return self.run_schema.empty[:, self.run_schema.schema.names]

    def _scan(self, key_range: KeyRange) -> Iterator[pl.DataFrame]:
        """Yield the rows of a key range, shard by shard."""
        for shard, shard_keys in zip(self.state.shards, self.state.ranges(), strict=True):
            common = _intersection(shard_keys, key_range, self.run_schema)
            if common is not None:
                runs = reversed((*shard.runs, *self.state.level0))
                yield from self._merged([read_run(self.storage, run, self.run_schema, common) for run in runs])

    def _merged(self, streams: Sequence[Stream]) -> Iterator[pl.DataFrame]:
        """Yield the current rows of the dataset from the streams of its runs, sorted and without tombstones.

        The streams begin with that of the newest run, because its units replace those of older runs. In a sum dataset,
        the amounts of all runs are added up instead.
        """
        for frame in merge_streams(streams, self.run_schema):
            alive = frame
            if not self.run_schema.amounts:
                alive = frame.filter(~pl.col(TOMBSTONE)) if frame[TOMBSTONE].any() else frame
                alive = alive[:, [name for name in frame.columns if name != TOMBSTONE]]
            if alive.height:
                yield alive


def merge_streams(streams: Sequence[Stream], run_schema: RunSchema) -> Iterator[pl.DataFrame]:
    """Merge the rows of several runs.

    Yield the current rows and tombstones, sorted.

    The rows of a unit (see `RunSchema`) come from the newest run that has the unit. In a sum dataset, the amounts of
    all runs are added up instead.

    Args:
        streams: The rows of each run, the newest run first.
        run_schema: Columns and order of the runs.
    """
    # The keys of one run of sums are distinct, so no two frames share a key.
    if run_schema.amounts and len(streams) == 1:
        yield from (frame for frame in streams[0].frames if frame.height)
        return
    for frames in align_streams(streams, run_schema.unit):
        frame = sum_rows(frames, run_schema) if run_schema.amounts else _newest(frames, run_schema)
        if frame.height:
            yield frame


def _newest(frames: Sequence[pl.DataFrame], run_schema: RunSchema) -> pl.DataFrame:
    """Return the current rows of all units, sorted.

    A unit is a group of rows that are replaced together.

    If several frames have rows of a unit, those of the first of these frames are returned.
    """
    present = [frame for frame in frames if frame.height]
    if len(present) == 1:
        return present[0]
    numbers = np.repeat(np.arange(len(present)), [frame.height for frame in present])
    sorted_rows = run_schema.order.sort(pl.concat(present).hstack([pl.Series(_RUN, numbers)]))
    runs = sorted_rows[_RUN].to_numpy()
    starts = np.flatnonzero(sorted_rows.select(run_schema.unit.changes()).to_series().to_numpy())
    newest = np.repeat(np.minimum.reduceat(runs, starts), np.diff(starts, append=len(runs)))
    return sorted_rows.filter(pl.Series(runs == newest))[frames[0].columns]


def sum_rows(frames: Sequence[pl.DataFrame], run_schema: RunSchema) -> pl.DataFrame:
    """Add up the amounts of each key.

    Return one row per key, sorted, without keys whose sums are all zero.

    An integer sum over some of the runs may exceed 64 bits. It then wraps around modulo 2**64. The sum over all runs
    is nevertheless right, because it fits in 64 bits.
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


def _intersection(shard_keys: KeyRange, other: KeyRange, run_schema: RunSchema) -> KeyRange | None:
    """Return the range of keys that are in both ranges; None if the ranges do not overlap."""
    group = run_schema.group
    after, is_closed = shard_keys.after, False
    if other.after is not None and (after is None or after.filter(group.before(other.after)).height):
        after, is_closed = other.after, other.closed
    until = shard_keys.until if other.until is None else other.until
    if shard_keys.until is not None and other.until is not None:
        until = group.least(pl.concat([shard_keys.until, other.until]))
    if after is not None and until is not None and not after.filter(group.before(until, inclusive=is_closed)).height:
        return None
    return KeyRange(after, until, is_closed)
