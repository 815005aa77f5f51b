"""Questions about the distribution of a column: a part of `Table`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metastore_assets.errors import NotKeptError
from metastore_assets.lookup.answers import Answers, AsOf
from metastore_assets.lookup.histograms import Bin, between, bins_of, why_no_histogram
from metastore_assets.lookup.missing import files_there
from metastore_assets.lookup.profile_files import Profile
from metastore_assets.lookup.values import ColumnValues
from metastore_assets.statistics.histogram import Histogram


class HistogramAnswers:
    """Answers from histograms."""

    if TYPE_CHECKING:

        @property
        def as_of(self) -> AsOf: ...

        def _profile(self, partition: str | None) -> Profile: ...

        def _values(self, column: str, partition: str | None) -> ColumnValues: ...

        def _named(self, column: str) -> str: ...

        def _check(self, column: str) -> None: ...

    @files_there
    def histogram(
        self,
        column: str,
        bins: int | None = None,
        partition: str | None = None,
        *,
        lower: object = None,
        upper: object = None,
    ) -> Answers[Bin]:
        """The column's histogram, by increasing minimum, without gaps. NaN and infinities are in no bin.

        With `lower` or `upper`, which are values of the column, both inclusive, only the bins that have room for values
        between them: what is kept is not cut, so that the first and the last may reach further. With `bins`, at most so
        many: neighbouring bins are added up, the last one over fewer where it does not come out even. Empty for a
        column without a finite value.

        Raises NotKeptError when there is no histogram, LiteralError, ColumnNotFoundError, PartitionNotFoundError.
        """
        if bins is not None and bins < 1:
            raise ValueError(f"bins must be at least 1, not {bins}")
        histogram = self.lattice(column, partition)
        if histogram is not None and (lower is not None or upper is not None):
            own = self._values(column, partition)
            histogram = between(histogram, *(None if value is None else own.literal(value) for value in (lower, upper)))
        found = [] if histogram is None else bins_of(histogram, len(histogram) if bins is None else bins)
        return Answers(found, "exact", self.as_of)

    @files_there
    def lattice(self, column: str, partition: str | None = None) -> Histogram | None:
        """The histogram as it is kept, which others can be laid beside. Otherwise as `histogram`; None for no bin."""
        profile = self._profile(partition)
        self._check(column)
        histogram = profile.histogram(column)
        reason = why_no_histogram(profile.statistics([column])[0]) if histogram is None else None
        if reason is not None:
            raise NotKeptError(f"{self._named(column)} has no histogram: {reason}")
        return histogram
