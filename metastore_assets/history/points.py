"""Time series from a history: one statistic of a column or a table, with one point per version.

The rows of a history are Arrow tables with the columns `version_rows.SCHEMA`. A version has the statistics of one
snapshot of the table. A guarantee says how precise an answer is, for example `exact` or `estimate`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa

from metastore_assets.history.version_rows import VERSION_COLUMNS
from metastore_assets.messages import close_names
from metastore_assets.statistics.column import STATISTICS, Guarantee

_PERCENTILE = re.compile(r"p([0-9]{1,2})")
_GUARANTEES = {"distinct_count": "distinct_count_guarantee", "percentiles": "percentiles_guarantee"}
_EXACT = {"minimum": "minimum_exact", "maximum": "maximum_exact"}
_NAMES = [name for name, declaration in STATISTICS.items() if declaration.is_reported]


@dataclass(frozen=True)
class HistoryPoint:
    """A statistic in one version."""

    version: int
    snapshot: str
    published_at: datetime
    """Time when the version was published, in UTC."""
    value: Any
    """A number, a boolean or a text. `minimum`, `maximum`, `sum` and percentiles are texts, as in `metastore show
    --json`. Custom statistics have JSON values. None if the version lacks the statistic."""
    guarantee: Guarantee


def points(rows: pa.Table, statistic: str) -> list[HistoryPoint]:
    """Return one statistic of a column in every version: one point per row, in the same order.

    Args:
        rows: The rows of one column in a history.
        statistic: The name of a statistic in `metastore show --json`, `row_count` or another of `VERSION_COLUMNS`, a
            percentile such as `p50`, or the name of a custom statistic. A custom statistic has precedence.

    Raises:
        ValueError: There is no such statistic.
    """
    user_defined = {name for text in rows["user_defined"].to_pylist() if text for name in json.loads(text)}
    names = [*VERSION_COLUMNS.names, *_NAMES, *sorted(user_defined)]
    if statistic not in names and not _PERCENTILE.fullmatch(statistic):
        alternatives = close_names(statistic, names, "; there are {}")
        raise ValueError(
            f"there is no statistic {statistic!r}; percentiles are p1, p5, p50 (the median) and so on{alternatives}"
        )
    value_of = _user_defined_value if statistic in user_defined else _value
    return [
        HistoryPoint(record["version"], record["snapshot"], record["published_at"], *value_of(record, statistic))
        for record in rows.to_pylist()
    ]


def version_points(rows: pa.Table, statistic: str) -> list[HistoryPoint]:
    """Return one statistic of a whole table in every version.

    Args:
        rows: Rows of a history. It does not matter which columns of the table they describe.
        statistic: `row_count`, `bytes`, `partitions` or `fragments`.

    Raises:
        ValueError: There is no such statistic.
    """
    names = VERSION_COLUMNS.names[4:]
    if statistic not in names:
        alternatives = close_names(statistic, names, "; there are {}")
        raise ValueError(f"{statistic!r} is no statistic of a whole table{alternatives}; name a column for others")
    return [
        HistoryPoint(record["version"], record["snapshot"], record["published_at"], record[statistic], "exact")
        for record in distinct_versions(rows).to_pylist()
    ]


def distinct_versions(rows: pa.Table) -> pa.Table:
    """Return one row per version of a history, the oldest first, with the columns `VERSION_COLUMNS`."""
    versions = rows.select(VERSION_COLUMNS.names).group_by(VERSION_COLUMNS.names, use_threads=False).aggregate([])
    return versions.sort_by("version")  # Arrow does not return groups in the order of their first rows


def points_table(points: Sequence[HistoryPoint]) -> pa.Table:
    """Return a table with a row per point.

    All values get one type, chosen by the first rule that applies.

    - If any value is a list or dict, all values become JSON texts.
    - If an integer is too large, all values become texts. The limit is 2**63, or 2**53 if there are floats.
    - If there are only integers and floats, and both occur, all values become doubles.
    - If values have several types, such as booleans and integers, all values become texts.
    - If values have one type, they keep it.
    """
    values = [point.value for point in points]
    types = {type(value) for value in values if value is not None}
    if types & {list, dict}:
        values = [None if value is None else json.dumps(value) for value in values]
    elif (len(types) > 1 and types != {int, float}) or _exceed_numbers(values, 53 if float in types else 63):
        values = [None if value is None else str(value) for value in values]
    return pa.table(
        {
            "version": pa.array([point.version for point in points], pa.int64()),
            "snapshot": pa.array([point.snapshot for point in points], pa.string()),
            "published_at": pa.array([point.published_at for point in points], pa.timestamp("us", "UTC")),
            "value": pa.array(values),
            "guarantee": pa.array([point.guarantee for point in points], pa.string()),
        }
    )


def _exceed_numbers(values: Sequence[Any], bits: int) -> bool:
    """Return whether the magnitude of an integer among the values is 2**bits or more."""
    return any(type(value) is int and abs(value) >> bits for value in values)


def _user_defined_value(record: dict[str, Any], statistic: str) -> tuple[Any, Guarantee]:
    """Return (value, guarantee) of a custom statistic in one row of a history.

    The result is (None, `absent`) if the row does not have the statistic.
    """
    result = json.loads(record["user_defined"] or "{}").get(statistic)
    return (None, "absent") if result is None else (result["value"], result["guarantee"])


def _value(record: dict[str, Any], statistic: str) -> tuple[Any, Guarantee]:
    """Return (value, guarantee) of a built-in statistic in one row of a history.

    The result is (None, `absent`) without a value.
    """
    percentile = _PERCENTILE.fullmatch(statistic)
    if percentile:
        fraction = int(percentile[1]) / 100
        value = next((each["value"] for each in record["percentiles"] or () if each["fraction"] == fraction), None)
        return value, "absent" if value is None else record["percentiles_guarantee"]
    value = record[statistic]
    if value is None:
        return None, "absent"
    if statistic in _GUARANTEES:
        return value, record[_GUARANTEES[statistic]]
    return value, "exact" if record.get(_EXACT.get(statistic, ""), True) else "bound"
