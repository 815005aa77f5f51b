"""The registry of built-in statistics.

To add a statistic, declare its results in `column.ColumnStatistics`, write its class in one module, and add the class
here.
"""

from __future__ import annotations

import hashlib
from typing import Any

from metastore_assets.statistics.counts import NanCount, TrueCount
from metastore_assets.statistics.distinct import DistinctCount
from metastore_assets.statistics.extremes import Extremes
from metastore_assets.statistics.histogram import HistogramStatistic
from metastore_assets.statistics.interface import BuiltinStatistic
from metastore_assets.statistics.lengths import LengthStatistics
from metastore_assets.statistics.moments import MomentStatistics
from metastore_assets.statistics.multiset_hash import MultisetHash
from metastore_assets.statistics.quantiles import QuantileStatistics
from metastore_assets.statistics.user_defined.states import UserStates

DISTINCT_COUNT, HISTOGRAM, QUANTILES = DistinctCount(), HistogramStatistic(), QuantileStatistics()

BUILTIN_STATISTICS: tuple[BuiltinStatistic[Any], ...] = (
    UserStates(),
    NanCount(),
    TrueCount(),
    LengthStatistics(),
    Extremes(),
    MultisetHash(),
    MomentStatistics(),
    QUANTILES,
    DISTINCT_COUNT,
    HISTOGRAM,
)
"""All statistics in the order in which they are updated and merged.

The method `merge` receives the merged columns of earlier statistics: distinct counts depend on counts and extremes, and
quantile digests on moments.
"""


def _digest_versions() -> str:
    row_statistics = [statistic for statistic in BUILTIN_STATISTICS if statistic is not HISTOGRAM]
    versions = ",".join(f"{statistic.name}={statistic.version}" for statistic in row_statistics)
    return hashlib.sha256(versions.encode()).hexdigest()[:8]


STATISTICS_VERSION = _digest_versions()
"""A digest of the versions of all built-in statistics except the histogram, whose file has a separate version."""
