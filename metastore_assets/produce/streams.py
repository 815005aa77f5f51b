"""Sorted streams of frames, brought to the same boundaries: the one way in which several of them are read together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import polars as pl

from metastore_assets.produce.order import Order


@dataclass(frozen=True)
class Stream:
    """Frames that follow each other in an order, each sorted in itself; to be read once."""

    frames: Iterable[pl.DataFrame]
    empty: pl.DataFrame
    """A frame of the same columns without rows."""


def aligned(streams: Sequence[Stream], order: Order) -> Iterator[list[pl.DataFrame]]:
    """Read streams together: in each step one frame of each, which hold all rows of some range of keys.

    Ranges follow each other in the order; a key is never split between two steps. What is in memory is one frame of
    each stream, or all rows of one key where that is more.
    """
    cursors = [_Cursor(stream, order) for stream in streams]
    while True:
        for cursor in cursors:
            cursor.fill()
        # A stream that may go on holds all rows only of the keys before its last one.
        ends = [cursor.last for cursor in cursors if not cursor.ended]
        if not ends:
            if any(cursor.frame.height for cursor in cursors):
                yield [cursor.take_all() for cursor in cursors]
            return
        bound = order.least(pl.concat(ends))
        frames = [cursor.take_before(bound) for cursor in cursors]
        if any(frame.height for frame in frames):
            yield frames
        else:
            # All that is there is of one key: read on until it ends.
            for cursor in cursors:
                cursor.extend(bound)


@dataclass(frozen=True)
class Piece:
    """Frames with all rows of some keys; or, of one key that has too many, with some of its rows."""

    frames: list[pl.DataFrame]
    split: bool = False
    """Whether it has some rows of one key only, all of whose rows come in pieces that follow each other."""


def grouped(steps: Iterable[list[pl.DataFrame]], order: Order, most: int) -> Iterator[Piece]:
    """Steps of streams that were aligned by a longer order, cut where keys of this one end.

    Only a key of more than `most` rows is split: it then comes by itself, in several pieces.
    """
    following = iter(steps)
    frames = next(following, None)
    split: pl.DataFrame | None = None
    while frames is not None:
        ahead = next(following, None)
        if split is not None:
            part, frames = _cut(frames, order, split, inclusive=True)
            if _rows(part):
                yield Piece(part, split=True)
            if _rows(frames):
                split = None
        if _rows(frames):
            if ahead is None:
                yield Piece(frames)
                return
            last = order.sort(pl.concat([frame[-1:][list(order.columns)] for frame in frames]))[-1:]
            done, frames = _cut(frames, order, last)
            if _rows(done):
                yield Piece(done)
            if _rows(frames) > most:
                yield Piece(frames, split=True)
                split = last
            else:
                ahead = [pl.concat(pair) for pair in zip(frames, ahead, strict=True)]
        frames = ahead


def _cut(
    frames: list[pl.DataFrame], order: Order, bound: pl.DataFrame, *, inclusive: bool = False
) -> tuple[list[pl.DataFrame], list[pl.DataFrame]]:
    """The rows before a bound, or equal to it and `inclusive`, and the others."""
    counts = [frame.select(order.before(bound, inclusive=inclusive).sum()).item() for frame in frames]
    pairs = list(zip(frames, counts, strict=True))
    return [frame[:count] for frame, count in pairs], [frame[count:] for frame, count in pairs]


def _rows(frames: list[pl.DataFrame]) -> int:
    return sum(frame.height for frame in frames)


class _Cursor:
    def __init__(self, stream: Stream, order: Order) -> None:
        self._frames = iter(stream.frames)
        self._order = order
        self.frame = stream.empty
        # One frame ahead: to know the end when it comes spares comparing keys, above all where frames are few.
        self._ahead = next(self._frames, None)
        self.ended = self._ahead is None

    @property
    def last(self) -> pl.DataFrame:
        return self.frame[-1:][list(self._order.columns)]

    def fill(self) -> None:
        while not self.ended and not self.frame.height:
            self._read()

    def extend(self, bound: pl.DataFrame) -> None:
        """Read one more frame where all that is there has the key `bound`."""
        if not self.ended and not self.frame.tail(1).filter(~self._order.before(bound, inclusive=True)).height:
            self._read()

    def take_before(self, bound: pl.DataFrame) -> pl.DataFrame:
        if not self.frame.height:
            return self.frame
        count = self.frame.select(self._order.before(bound).sum()).item()
        return self._take(count)

    def take_all(self) -> pl.DataFrame:
        return self._take(self.frame.height)

    def _take(self, count: int) -> pl.DataFrame:
        taken, self.frame = self.frame[:count], self.frame[count:]
        return taken

    def _read(self) -> None:
        assert self._ahead is not None
        self.frame = pl.concat([self.frame, self._ahead]) if self.frame.height else self._ahead
        self._ahead = next(self._frames, None)
        self.ended = self._ahead is None
