"""Drift: distances equal those of DuckDB, and incomparable versions have an unknown distance.

DuckDB computes the distances from the rows.

A version is the published statistics of a table at one snapshot.
"""

from __future__ import annotations

from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from metastore_assets.store.objects import ObjectStore
from tests.checks.check_results import finding
from tests.lookup.publishing import publish

DRAW = np.random.default_rng(5)


def distance(
    store: ObjectStore, then: pa.Array, now: pa.Array, policy: dict[str, Any] | None = None, **check: Any
) -> Any:
    for values in (then, now):
        table = publish(store, pa.table({"c": values}), columns={"c": policy or {}})
    return finding(store, table, c=[{"drift": 0.2, **check}])


def in_duckdb(then: pa.Array, now: pa.Array, bin: str, distance: str) -> float:
    """Return a distance between two columns, computed by DuckDB from the share of each bin in both.

    Args:
        then: The earlier values.
        now: The later values.
        bin: An SQL expression of the column `c` that computes the bin of a value.
        distance: An SQL expression of the distance.
    """
    sides = pa.table({"c": pa.concat_arrays([then, now]), "side": [0] * len(then) + [1] * len(now)})
    connection = duckdb.connect()
    connection.register("given", sides)
    [(result,)] = connection.execute(f"""
        with bins as (select {bin} as bin, count(*) filter (side = 0) as a, count(*) filter (side = 1) as b
                      from given where c is not null group by all),
        shares as (select bin, a / sum(a) over () as p, b / sum(b) over () as q from bins),
        cumulated as (select abs(sum(p) over (order by bin) - sum(q) over (order by bin)) as difference from shares)
        select {distance} from {"cumulated" if "difference" in distance else "shares"}
    """).fetchall()
    return float(result)


PSI = "sum((greatest(p, 1e-4) - greatest(q, 1e-4)) * ln(greatest(p, 1e-4) / greatest(q, 1e-4)))"
JS = """sqrt(sum(coalesce(case when p > 0 then p * log2(2 * p / (p + q)) end, 0)
               + coalesce(case when q > 0 then q * log2(2 * q / (p + q)) end, 0)) / 2)"""


@pytest.mark.parametrize(
    ("measure", "sql"),
    [("stability_index", PSI), ("kolmogorov_smirnov", "max(difference)"), ("jensen_shannon", JS)],
)
def test_drift_of_few_values_equals_duckdbs(local_store: ObjectStore, measure: str, sql: str) -> None:
    """The distance between two versions of a column with few distinct values equals DuckDB's.

    Each measure of the check `drift` is tested. Each distinct value is a bin, and nulls are ignored.
    """
    then = pa.array([None, *DRAW.choice(["a", "b", "c"], 300, p=[0.5, 0.3, 0.2]).tolist()])
    now = pa.array(DRAW.choice(["a", "b", "d"], 200, p=[0.3, 0.3, 0.4]).tolist())
    result = distance(local_store, then, now, measure=measure)
    assert result.measures["distance"] == pytest.approx(in_duckdb(then, now, "c", sql), abs=1e-6)
    assert result.status == "failed"
    assert "since version 1" in result.observed
    integers = [pa.array(DRAW.integers(0, 5, 500)) for _ in range(2)]
    table = [publish(local_store, pa.table({"c": values}), name="ints") for values in integers][-1]
    # As many bins as values, so that each value is a bin.
    drift = finding(local_store, table, c=[{"drift": 0.2, "measure": measure, "groups": 100}])
    assert drift.measures["distance"] == pytest.approx(in_duckdb(*integers, "c", sql), abs=1e-6)
    assert drift.status == "passed"


def test_drift_of_many_numbers_is_close_to_the_exact_distance(local_store: ObjectStore) -> None:
    """The Kolmogorov-Smirnov distance between two versions with many numbers is close to the exact one.

    The check computes it from the bins of histograms. So it is at most the distance that DuckDB computes from the
    values, and less by at most 0.02.
    """
    then, now = pa.array(DRAW.normal(0, 1, 4000)), pa.array(DRAW.normal(0.5, 1, 3000))
    result = distance(local_store, then, now, measure="kolmogorov_smirnov")
    exact = in_duckdb(then, now, "c", "max(difference)")
    assert exact - 0.02 <= result.measures["distance"] <= exact
    table = publish(local_store, pa.table({"c": now}))
    assert finding(local_store, table, c=[{"drift": 0}]).status == "passed", "the same distribution has distance 0"


def test_drift_of_incomparable_columns_is_unknown(local_store: ObjectStore) -> None:
    none = pa.nulls(3, pa.int64())
    some = pa.array([1, 2, 3])
    assert distance(local_store, none, none).status == "passed"
    assert distance(local_store, none, some).observed == "there are no values before, since version 3"
    finding_of_other_type = distance(local_store, some, pa.array(["a"]))
    assert (finding_of_other_type.status, finding_of_other_type.observed) == (
        "unknown",
        "values of int64 and of string are not compared, since version 5",
    )
    off = distance(local_store, some, pa.array([1, 2, 4]), policy={"histogram": "off", "frequencies": "off"})
    assert off.status == "unknown"
    assert "`frequencies: all`" in off.observed
    finding_without_counts = distance(
        local_store, pa.array(["a", "b"]), pa.array(["a", "c"]), policy={"frequencies": "off"}
    )
    assert finding_without_counts.status == "unknown"
    assert "`frequencies: all`" in finding_without_counts.observed
    first = publish(local_store, pa.table({"d": some}))
    assert "column 'd' of table 'orders'" in finding(local_store, first, d=[{"drift": 1}]).observed
