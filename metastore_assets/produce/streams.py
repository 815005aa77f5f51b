"""Sorted streams of frames.

Several streams can be read together, one range of keys at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import polars as pl

from metastore_assets.produce.order import Order


@dataclass(frozen=True)
class Stream:
    """Consecutive sorted frames, which can be read once."""

    frames: Iterable[pl.DataFrame]
    empty: pl.DataFrame
    """A frame with the same columns and no rows."""


def align_streams(streams: Sequence[Stream], order: Order) -> Iterator[list[pl.DataFrame]]:
    """Read sorted streams together, one range of keys at a time.

    Yield a list with each stream's rows in the range.

    All rows of a key are in one list. At most two frames of each stream are in memory, or all rows of one key if these
    are more.
    """
    cursors = [_StreamCursor(stream, order) for stream in streams]
    while True:
        for cursor in cursors:
            cursor.fill()
        # An unfinished stream may have more rows of its last key, so only the keys before it are complete.
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
            # No buffered row is before `bound`: read on in the streams whose last buffered key it is.
            for cursor in cursors:
                cursor.extend(bound)


@dataclass(frozen=True)
class Piece:
    """One frame per stream, with all rows of some keys, or with a part of the rows of one key."""

    frames: list[pl.DataFrame]
    split: bool = False
    """Whether the frames have only a part of one key's rows. Adjacent pieces have the other parts."""


def regroup_steps(steps: Iterable[list[pl.DataFrame]], order: Order, limit: int) -> Iterator[Piece]:
    """Regroup sorted frames into pieces.

    All rows of a key are in one piece, unless the key has many rows.

    Args:
        steps: Lists with one frame per stream, in key order. Adjacent lists may have rows of the same key.
        order: The columns that form the key, and their order.
        limit: A key with more rows may be split into several pieces, which contain no other key.
    """
    following = iter(steps)
    frames = next(following, None)
    split: pl.DataFrame | None = None
    while frames is not None:
        next_frames = next(following, None)
        if split is not None:
            # The key of the last piece may continue here.
            part, frames = _cut(frames, order, split, inclusive=True)
            if _rows(part):
                yield Piece(part, split=True)
            if _rows(frames):
                split = None
        if _rows(frames):
            if next_frames is None:
                yield Piece(frames)
                return
            # All keys except the greatest one are complete.
            last = order.sort(pl.concat([frame[-1:][list(order.columns)] for frame in frames]))[-1:]
            complete, frames = _cut(frames, order, last)
            if _rows(complete):
                yield Piece(complete)
            if _rows(frames) > limit:
                yield Piece(frames, split=True)
                split = last
            else:
                next_frames = [pl.concat(pair) for pair in zip(frames, next_frames, strict=True)]
        frames = next_frames


def _cut(
    frames: list[pl.DataFrame], order: Order, bound: pl.DataFrame, *, inclusive: bool = False
) -> tuple[list[pl.DataFrame], list[pl.DataFrame]]:
    """Split each frame at a key.

    Return (rows before the key, remaining rows), each with a frame per stream.

    With `inclusive`, the rows before the key include those with the key itself.
    """
    counts = [frame.select(order.before(bound, inclusive=inclusive).sum()).item() for frame in frames]
    pairs = list(zip(frames, counts, strict=True))
    return [frame[:count] for frame, count in pairs], [frame[count:] for frame, count in pairs]


def _rows(frames: list[pl.DataFrame]) -> int:
    return sum(frame.height for frame in frames)


class _StreamCursor:
    """A position in a stream, with buffered rows that follow it."""

    def __init__(self, stream: Stream, order: Order) -> None:
        self._frames = iter(stream.frames)
        self._order = order
        self.frame = stream.empty
        # Reading one frame ahead detects the end of the stream, which saves key comparisons for streams of few frames.
        self._next_frame = next(self._frames, None)
        self.ended = self._next_frame is None

    @property
    def last(self) -> pl.DataFrame:
        return self.frame[-1:][list(self._order.columns)]

    def fill(self) -> None:
        """Read frames until rows are buffered or the stream ends."""
        while not self.ended and not self.frame.height:
            self._read()

    def extend(self, bound: pl.DataFrame) -> None:
        """Read one more frame, in case it has more rows with the key `bound`.

        Nothing is read if a buffered row is after this key, or if the stream has ended.
        """
        if not self.ended and not self.frame.tail(1).filter(~self._order.before(bound, inclusive=True)).height:
            self._read()

    def take_before(self, bound: pl.DataFrame) -> pl.DataFrame:
        """Remove the buffered rows before a key from the buffer, and return them."""
        if not self.frame.height:
            return self.frame
        count = self.frame.select(self._order.before(bound).sum()).item()
        return self._take(count)

    def take_all(self) -> pl.DataFrame:
        return self._take(self.frame.height)

    def _take(self, count: int) -> pl.DataFrame:
        rows, self.frame = self.frame[:count], self.frame[count:]
        return rows

    def _read(self) -> None:
        assert self._next_frame is not None
        self.frame = pl.concat([self.frame, self._next_frame]) if self.frame.height else self._next_frame
        self._next_frame = next(self._frames, None)
        self.ended = self._next_frame is None
