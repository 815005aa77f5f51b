"""One statistic over time."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa

from metastore_assets.history.rows import OF_VERSIONS
from metastore_assets.messages import close_names
from metastore_assets.statistics.column import STATISTICS, Guarantee

_PERCENTILE = re.compile(r"p([0-9]{1,2})")
_GUARANTEES = {"distinct_count": "distinct_count_guarantee", "percentiles": "percentiles_guarantee"}
_EXACT = {"minimum": "minimum_exact", "maximum": "maximum_exact"}
_NAMES = [name for name, own in STATISTICS.items() if own.is_reported]


@dataclass(frozen=True)
class HistoryPoint:
    """A statistic in one version."""

    version: int
    snapshot: str
    published_at: datetime
    """UTC."""
    value: Any
    """A number; of `minimum`, `maximum`, `sum` and percentiles text, as `metastore show --json` has it; of a
    user-defined statistic whatever its JSON is. None where it is not known."""
    guarantee: Guarantee


def points(rows: pa.Table, statistic: str) -> list[HistoryPoint]:
    """A statistic of some rows of a history: one point per row, in their order.

    `statistic`: a name of those in `show --json`, `row_count`, a percentile such as `p50`, or a user-defined one.
    Raises ValueError for any other.
    """
    own = {name for text in rows["user_defined"].to_pylist() if text for name in json.loads(text)}
    known = [*OF_VERSIONS.names, *_NAMES, *sorted(own)]
    if statistic not in known and not _PERCENTILE.fullmatch(statistic):
        there = close_names(statistic, known, "; there are {}, and percentiles: p50")
        raise ValueError(f"there is no statistic {statistic!r}{there}")
    return [
        HistoryPoint(record["version"], record["snapshot"], record["published_at"], *_told(record, statistic))
        for record in rows.to_pylist()
    ]


def points_of_versions(rows: pa.Table, statistic: str) -> list[HistoryPoint]:
    """What rows say of their versions, once for each: `row_count`, `bytes`, `partitions` or `fragments`.

    Raises ValueError for anything else.
    """
    known = OF_VERSIONS.names[4:]
    if statistic not in known:
        there = close_names(statistic, known, "; there are {}")
        raise ValueError(f"{statistic!r} is no statistic of a whole table{there}; name a column for others")
    return [
        HistoryPoint(record["version"], record["snapshot"], record["published_at"], record[statistic], "exact")
        for record in versions_in(rows).to_pylist()
    ]


def versions_in(rows: pa.Table) -> pa.Table:
    """One row per version, of what rows say of their versions."""
    return rows.select(OF_VERSIONS.names).group_by(OF_VERSIONS.names, use_threads=False).aggregate([])


def _told(record: dict[str, Any], statistic: str) -> tuple[Any, Guarantee]:
    percentile = _PERCENTILE.fullmatch(statistic)
    if percentile:
        fraction = int(percentile[1]) / 100
        value = next((own["value"] for own in record["percentiles"] or () if own["fraction"] == fraction), None)
        return value, "absent" if value is None else record["percentiles_guarantee"]
    if statistic not in record:
        result = json.loads(record["user_defined"] or "{}").get(statistic)
        return (None, "absent") if result is None else (result["value"], result["guarantee"])
    value = record[statistic]
    if value is None:
        return None, "absent"
    if statistic in _GUARANTEES:
        return value, record[_GUARANTEES[statistic]]
    return value, "exact" if record.get(_EXACT.get(statistic, ""), True) else "bound"
