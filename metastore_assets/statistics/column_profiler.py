"""The numbers of a statistics row, computed block by block: of all values sorted and counted, or in passing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metastore_assets.config import ResolvedPolicy
from metastore_assets.errors import UnsupportedTypeError
from metastore_assets.statistics.blocks import Block, listed_block, passing_block
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.statistics.distinct import (
    EMPTY_SKETCH,
    add_multiset_hashes,
    distinct_sketch,
    estimate_distinct,
    merge_distinct_sketches,
    multiset_hash,
    multiset_hash_of_nulls,
)
from metastore_assets.statistics.fingerprints import EMPTY, FingerprintCounter, FingerprintCounts
from metastore_assets.statistics.frequencies import PERCENTS, Frequencies, Percentiles, nearest_ranks
from metastore_assets.statistics.hashing import Words
from metastore_assets.statistics.histogram import (
    Histogram,
    build_histogram_of_values,
    histogram_capacity,
    merge_histograms,
)
from metastore_assets.statistics.moments import Moments, encode_moments, merge_moments, moment_facts, moments_of
from metastore_assets.statistics.quantiles import build_quantile_sketch, merge_quantile_sketches
from metastore_assets.statistics.runs import BLOCK, SortedValues
from metastore_assets.statistics.user_defined.states import UserStateAccumulator
from metastore_assets.statistics.value_filter import build_filter
from metastore_assets.values.physical import order_key, storage
from metastore_assets.values.truncation import truncate_lower, truncate_upper
from metastore_assets.values.types import TypeClass

State = TypeVar("State")
_MOST = 64


class Fold(Generic[State]):
    """A state that is merged from many, a few dozen at a time."""

    def __init__(self, merge: Callable[[Sequence[State]], State]) -> None:
        self._merge = merge
        self._parts: list[State] = []

    def add(self, part: State | None) -> None:
        """Add one part, if there is one."""
        if part is not None:
            self._parts.append(part)
        if len(self._parts) >= _MOST:
            self._parts = [self._merge(self._parts)]

    def total(self) -> State | None:
        """The merged state; None when nothing was added."""
        if len(self._parts) == 1:
            return self._parts[0]  # As merging it would give.
        return self._merge(self._parts) if self._parts else None


@dataclass
class _Lengths:
    total: int = 0
    bytes: int = 0
    least: int | None = None
    greatest: int | None = None


@dataclass
class ColumnProfiler:
    """Takes a column's values, and says what they amount to: either with `add` the frequencies of all of them, in
    blocks of ascending values; or with `pass_by` values as they come. What needs them all together, sorted (distinct
    and duplicate values, percentiles), `finish` tells only after `add`; all else is the same.

    What merges over rows merges over blocks of values, so that a block is all that is held.
    """

    cls: TypeClass
    policy: ResolvedPolicy
    ranked: int = 0
    """How many values there are in all, NaN left out; known before `add`, because percentiles are picked in passing."""
    passed_by: int = 0
    """Values that `pass_by` took."""
    _distinct: int = 0
    _duplicates: int = 0
    _passed: int = 0
    _nans: int = 0
    _trues: int = 0
    _least: pa.Scalar | None = None
    _greatest: pa.Scalar | None = None
    _percentiles: list[pa.Scalar] = field(default_factory=list)
    _lengths: _Lengths = field(default_factory=_Lengths)
    _sketches: Fold[bytes] = field(default_factory=lambda: Fold(merge_distinct_sketches))
    _prints: Fold[bytes] = field(default_factory=lambda: Fold(add_multiset_hashes))
    _moments: Fold[Moments] = field(default_factory=lambda: Fold(merge_moments))
    _digests: Fold[bytes] = field(default_factory=lambda: Fold(merge_quantile_sketches))
    _histograms: Fold[Histogram] = field(default_factory=lambda: Fold(merge_histograms))
    _printed: FingerprintCounter | None = None
    """Of values in passing, where fingerprints are kept of them."""
    _members: list[Words] = field(default_factory=list)
    """Hashes of the values, where a filter is to be made of them."""
    _user_defined: UserStateAccumulator = field(init=False)

    def __post_init__(self) -> None:
        self._user_defined = UserStateAccumulator(self.policy.statistics, self.cls)

    def add(self, block: Frequencies) -> None:
        """Take the next block. Raises UnsupportedTypeError for text that is not UTF-8."""
        counts = block.counts.to_numpy()
        self._distinct += len(block)
        self._duplicates += int((counts > 1).sum())
        self._user_defined.add(block.values, block.counts)
        described = self._without_nan(listed_block(block))
        if len(described):
            self._rank(Frequencies(block.values.slice(0, len(described)), block.counts.slice(0, len(described))))
            self._take(described)

    def pass_by(self, run: SortedValues) -> None:
        """Take some values in any order, or counted ones. Raises UnsupportedTypeError for text that is not UTF-8.

        Numbers are put in order a block at a time, which moments and digests are made of; nothing else is.
        """
        if self._printed is None and self.policy.frequencies == "repeated":
            self._printed = FingerprintCounter()
        for start in range(0, len(run), BLOCK):
            block = passing_block(run.part(start, min(start + BLOCK, len(run))), self.cls)
            self.passed_by += int(block.counts.sum())
            if self._user_defined:
                self._user_defined.add(block.array(), pa.array(block.counts))
            block = self._without_nan(block)
            if len(block):
                self._take(block)

    def prints(self) -> FingerprintCounts:
        """The fingerprints of values that were passed by, where the policy keeps them."""
        return EMPTY if self._printed is None else self._printed.total()

    def membership(self) -> bytes | None:
        """The filter of the values that were taken, where the policy keeps one and there is a value."""
        return build_filter(np.concatenate(self._members)) if self._members else None

    def estimated_distinct(self) -> int:
        """About how many distinct values were taken."""
        sketch = self._sketches.total()
        return 0 if sketch is None else estimate_distinct(sketch)

    def finish(self, row: ColumnStatistics, width: int) -> ColumnStatistics:
        """`row`, which has the counts of values and nulls, with all the rest. `width`: bytes of a value, if fixed."""
        cls, has_lengths = self.cls, self.cls.name in ("string", "binary")
        self._prints.add(multiset_hash_of_nulls(row.null_count))
        told: dict[str, Any] = {
            "nan_count": self._nans if cls.kind == "float" else None,
            "distinct_sketch": self._sketches.total() or EMPTY_SKETCH,
            "multiset_hash": self._prints.total(),
            "true_count": self._trues if cls.kind == "boolean" else None,
            "total_bytes": self._lengths.bytes if has_lengths else row.value_count * width,
            "quantile_sketch": self._digests.total(),
            "user_states": self._user_defined.states(),
            **self._bounds(),
        }
        if not self.passed_by:
            told |= {
                "distinct_count": self._distinct,
                "distinct_count_guarantee": "exact",
                "duplicate_count": self._duplicates,
                "percentiles": self._typed_percentiles(),
                "percentiles_guarantee": "exact",
            }
        if has_lengths:
            told |= {
                "minimum_length": self._lengths.least,
                "maximum_length": self._lengths.greatest,
                "mean_length": self._lengths.total / row.value_count if row.value_count else None,
                "total_length": self._lengths.total,
            }
        if cls.is_numeric:
            moments = self._moments.total() or merge_moments([])
            scale = None if cls.kind == "float" else cls.scale
            told |= {"moments": encode_moments(moments), **vars(moment_facts(moments, scale=scale))}
        return replace(row, **told)

    def histogram(self) -> Histogram | None:
        """The histogram that the policy asks for, where there is one."""
        return self._histograms.total()

    def _without_nan(self, block: Block) -> Block:
        """Count what NaN has a part in, and the rest of the block."""
        hashes = block.hashes()
        self._sketches.add(distinct_sketch(hashes[0]))
        self._prints.add(multiset_hash(hashes, block.counts))
        if self._printed is not None:
            self._printed.add(hashes[0], block.counts)
        if self.policy.has_value_filter:
            self._members.append(np.unique(hashes[0]))
        block, nans = block.without_nan()
        self._nans += nans
        return block

    def _rank(self, block: Frequencies) -> None:
        """Pick the percentiles that are in the block."""
        ends = np.cumsum(block.counts.to_numpy()) + self._passed
        ranks = nearest_ranks(self.ranked)
        ranks = ranks[(ranks > self._passed) & (ranks <= ends[-1])]
        self._percentiles += [block.values[at] for at in np.searchsorted(ends, ranks).tolist()]
        self._passed = int(ends[-1])

    def _take(self, block: Block) -> None:
        """What any block adds to. Values need not be distinct."""
        counts = block.counts
        if self.cls.name in ("string", "binary"):
            self._add_lengths(block)
        if self.cls.kind == "boolean":
            self._trues += int(counts[block.values.to_numpy(zero_copy_only=False)].sum())
        self._widen(*block.extent())
        values = block.numbers
        if values is None:
            return
        if self.cls.is_numeric:
            self._moments.add(moments_of(values, counts))
        if self.policy.quantiles != "off":
            points = values.astype(np.float64, copy=False)
            if self.cls.kind == "float":
                finite = np.isfinite(points)
                self._digests.add(build_quantile_sketch(points[finite], counts[finite]))
            else:
                self._digests.add(build_quantile_sketch(points, counts))
        if self.policy.histogram != "off":
            self._histograms.add(
                build_histogram_of_values(values, counts, self.cls, histogram_capacity(self.policy.histogram))
            )

    def _widen(self, least: pa.Scalar, greatest: pa.Scalar) -> None:
        if self._least is None or order_key(least) < order_key(self._least):
            self._least = least
        if self._greatest is None or order_key(greatest) > order_key(self._greatest):
            self._greatest = greatest

    def _add_lengths(self, block: Block) -> None:
        values, counts = storage(block.values), block.counts
        sizes = lengths = pc.binary_length(values).to_numpy()
        if self.cls.name == "string" and not _is_ascii(values):
            try:
                block.values.validate(full=True)
            except pa.ArrowInvalid as error:
                raise UnsupportedTypeError(f"the column holds text that is not UTF-8: {error}") from error
            lengths = pc.utf8_length(block.values).to_numpy()
        held, least, greatest = self._lengths, int(lengths.min()), int(lengths.max())
        held.total += int(np.dot(lengths, counts))
        held.bytes += int(np.dot(sizes, counts))
        held.least = least if held.least is None else min(held.least, least)
        held.greatest = greatest if held.greatest is None else max(held.greatest, greatest)

    def _typed_percentiles(self) -> Percentiles:
        if not self._percentiles:
            return ()
        return tuple((percent / 100, value) for percent, value in zip(PERCENTS, self._percentiles, strict=True))

    def _bounds(self) -> dict[str, Any]:
        least, greatest = self._least, self._greatest
        minimum_exact = maximum_exact = True
        if least is not None and greatest is not None and self.cls.name in ("string", "binary"):
            least, minimum_exact = truncate_lower(least.as_buffer().to_pybytes(), self.cls)
            greatest, maximum_exact = truncate_upper(greatest.as_buffer().to_pybytes(), self.cls)
        return {
            "minimum": least,
            "maximum": greatest,
            "minimum_exact": minimum_exact,
            "maximum_exact": maximum_exact,
        }


def _is_ascii(values: pa.LargeBinaryArray) -> bool:
    start, stop = (values.buffers()[1].slice(8 * (values.offset + at), 8).to_pybytes() for at in (0, len(values)))
    data = np.frombuffer(values.buffers()[2] or b"", np.uint8)
    data = data[int.from_bytes(start, "little") : int.from_bytes(stop, "little")]
    return len(data) == 0 or int(data.max()) < 128
