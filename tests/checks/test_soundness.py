"""A passed check is true of the rows, and a failed one is false.

This holds whatever statistics of the column are stored.
"""

from __future__ import annotations

import math
import re
import tempfile
from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets.checks.column_checks import MatchCount, decide_share
from metastore_assets.store.objects import ObjectStore
from tests.checks.check_results import results
from tests.lookup.publishing import publish
from tests.statistics.random_columns import share

LONG = "x" * 5000
TYPES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "int64": (pa.int64(), st.integers(-3, 3) | st.integers(-(2**63), 2**63 - 1)),
    "uint64": (pa.uint64(), st.integers(0, 3) | st.integers(0, 2**64 - 1)),
    "float64": (pa.float64(), st.integers(-2, 2).map(float) | st.sampled_from([math.nan, math.inf, -math.inf, 0.5])),
    "decimal": (pa.decimal128(9, 2), st.integers(-300, 300).map(lambda n: Decimal(n) / 100)),
    # Bounds of long texts are truncated if the values are not enumerated.
    "string": (pa.string(), st.sampled_from(["", "a", "b", "ab", "é", "a\nb", LONG, LONG + "a", LONG + "b"])),
    "date": (pa.date32(), st.integers(1, 28).map(lambda day: date(2024, 1, day))),
    "boolean": (pa.bool_(), st.booleans()),
    "list": (pa.list_(pa.int64()), st.lists(st.integers(0, 2), max_size=3)),
}
POLICIES: dict[str, dict[str, Any]] = {
    "enumerated": {"frequencies": "all"},
    "cut": {"frequencies": "top(1)"},
    "off": {"frequencies": "off", "quantiles": "off"},
    "hidden": {"values": "hidden"},
}


def key(value: Any) -> Any:
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def written(value: Any) -> Any:
    """Return a value as a YAML file would have it: decimals are text."""
    return str(value) if isinstance(value, Decimal) else value


def is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def holds(kind: str, settings: Any, rows: Sequence[Any]) -> bool:
    """Return whether the values `rows` of a column pass the check `kind` with its `settings`."""
    values = [value for value in rows if value is not None]
    if kind == "not_null":
        return len(values) == len(rows)
    if kind == "null_share":
        return not rows or Fraction(len(rows) - len(values), len(rows)) <= Fraction(settings)
    if kind == "unique":
        return len({key(value) for value in values}) == len(values)
    if kind == "accepted_values":
        return {key(value) for value in values} <= {key(value) for value in settings}
    if kind == "range":
        return all(
            not is_nan(value) and (low is None or value >= low) and (high is None or value <= high)
            for value in values
            for low, high in [(settings.get("minimum"), settings.get("maximum"))]
        )
    if kind == "lengths":
        return all(settings["minimum"] <= len(value) <= settings["maximum"] for value in values)
    assert kind == "matches"
    matching = sum(re.fullmatch(settings["pattern"], value) is not None for value in values)
    return not values or Fraction(matching, len(values)) >= Fraction(settings["least"])


@st.composite
def checks(draw: st.DrawFn, name: str, domain: st.SearchStrategy[Any]) -> tuple[str, Any]:
    """Draw the name and the settings of a check for a column.

    `domain` draws values of the column.
    """
    kinds = ["not_null", "null_share"]
    kinds += {"list": ["lengths"], "string": ["lengths", "matches"]}.get(name, [])
    kinds += ["unique", "accepted_values", "accepted_values", "range", "range"] if name != "list" else []
    kind = draw(st.sampled_from(kinds))
    if kind == "null_share":
        return kind, draw(st.sampled_from(["0", "0.1", "0.5", "1"]))
    if kind == "accepted_values":
        return kind, draw(st.lists(domain, min_size=1, max_size=6))
    if kind == "range":
        low, high = sorted(draw(st.tuples(domain, domain).filter(lambda pair: not any(map(is_nan, pair)))))
        return kind, draw(st.sampled_from([{"minimum": low}, {"maximum": high}, {"minimum": low, "maximum": high}]))
    if kind == "lengths":
        low, high = sorted(draw(st.tuples(st.integers(0, 3), st.sampled_from([0, 2, 5000, 5001]))))
        return kind, {"minimum": low, "maximum": high}
    if kind == "matches":
        pattern = draw(st.sampled_from(["a.*", "[a-z]*", "x+", "", r"(?s).*", "a|b"]))
        return kind, {"pattern": pattern or "()", "least": draw(st.sampled_from(["1", "0.5", "0"]))}
    return kind, None


def in_yaml(settings: Any) -> Any:
    if isinstance(settings, dict):
        return {name: written(value) for name, value in settings.items()}
    return list(map(written, settings)) if isinstance(settings, list) else settings


@st.composite
def cases(draw: st.DrawFn, name: str) -> tuple[list[Any], list[tuple[str, Any]]]:
    """Draw values of a column, some frequent, and checks that concern them."""
    domain = TYPES[name][1]
    few = draw(st.lists(domain, min_size=1, max_size=4))
    rows = draw(st.lists(st.none() | st.sampled_from(few) | domain, min_size=6, max_size=6))
    if draw(st.booleans()):
        rows = [few[0] if value is None else value for value in rows]
    return rows, draw(st.lists(checks(name, st.sampled_from(few) | domain), min_size=3, max_size=3))


@share(8)
@given(st.fixed_dictionaries({name: cases(name) for name in TYPES}))
def test_decided_checks_are_right(drawn_cases: dict[str, tuple[list[Any], list[tuple[str, Any]]]]) -> None:
    columns = {f"{name} {policy}": (name, policy) for name in TYPES for policy in POLICIES}
    rows = pa.table({column: pa.array(drawn_cases[name][0], TYPES[name][0]) for column, (name, _) in columns.items()})
    with tempfile.TemporaryDirectory() as folder:
        store = ObjectStore(folder)
        table = publish(store, rows, columns={column: POLICIES[policy] for column, (_, policy) in columns.items()})
        checks_by_column = {
            column: [{kind: in_yaml(argument)} for kind, argument in drawn_cases[name][1]]
            for column, (name, _) in columns.items()
        }
        by_check = results(store, table, **checks_by_column)
    assert len(by_check) == 3 * len(columns)
    for at, result in enumerate(by_check):
        name, policy = columns[result.column or ""]
        values, configured_checks = drawn_cases[name]
        kind, settings = configured_checks[at % 3]
        assert kind == result.kind
        if result.status == "unknown":
            assert policy == "hidden" or (policy == "off" and result.finding.advice), result
        else:
            assert (result.status == "passed") == holds(kind, settings, values), (result, values)


def test_values_are_counted_where_bounds_are_cut() -> None:
    rows = pa.table({"enumerated": ["", LONG], "off": ["", LONG]})
    with tempfile.TemporaryDirectory() as folder:
        store = ObjectStore(folder)
        table = publish(store, rows, columns={"enumerated": POLICIES["enumerated"], "off": POLICIES["off"]})
        range_results = results(store, table, enumerated=[{"range": {"maximum": ""}}, {"range": {"maximum": LONG}}])
        (result_of_cut_bound,) = results(store, table, off=[{"range": {"maximum": ""}}])
    assert [(result.status, result.finding.guarantee) for result in range_results] == [
        ("failed", "exact"),
        ("passed", "exact"),
    ]
    assert range_results[0].finding.observed.endswith("; 1 value outside")
    assert range_results[1].finding.observed.endswith("; none outside")
    assert (result_of_cut_bound.status, result_of_cut_bound.finding.advice) == (
        "unknown",
        "`frequencies: all`, with which values are counted",
    )


@given(st.integers(0, 12), st.integers(0, 12), st.integers(0, 12), st.fractions(0, 1))
def test_values_outside_of_the_value_counts_are_unknown(
    fit: int, misfit: int, unlisted_count: int, least: Fraction
) -> None:
    """The result of a check of a share is unknown if it depends on values that are not stored.

    The check passes, or fails, only if it does so whatever these values are.
    """
    values = max(1, fit + misfit + unlisted_count)
    unlisted_count = values - fit - misfit
    outcomes = {Fraction(fit + matching, values) >= least for matching in range(unlisted_count + 1)}
    result = decide_share(MatchCount(fit, fit + misfit, ()), values, least, "as described")
    assert result.status == ("unknown" if len(outcomes) > 1 else "passed" if outcomes == {True} else "failed")
