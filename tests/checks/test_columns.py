"""Each check of a column passes, fails, or is unknown, as its values and stored statistics require."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from metastore_assets.checks.check_results import CheckResult
from metastore_assets.checks.configured_checks import parse_check
from metastore_assets.store.objects import ObjectStore
from tests.checks.check_results import results
from tests.lookup.publishing import publish

LONG = "x" * 5000
OFF = {"frequencies": "off"}
COLUMNS: dict[str, tuple[pa.Array, dict[str, Any]]] = {
    "text": (pa.array(["ab", "b", "ab", None]), {}),
    "text_off": (pa.array(["ab", "b", "ab", None]), OFF),
    "long": (pa.array([LONG + "b", LONG + "c", None, None]), OFF),
    "code": (pa.array(["A1", "A2", "é", "a\nb"]), {}),
    "number": (pa.array([1, 2, 3, 3]), {}),
    "number_off": (pa.array([1, 2, 3, 3]), OFF),
    "two_off": (pa.array([1, 2, 1, 2]), OFF),
    "nan": (pa.array([math.nan, math.nan, 1.0, None]), OFF),
    "infinite": (pa.array([math.inf, 1.0, 2.0, 3.0]), {}),
    "price": (pa.array([Decimal("0.10"), Decimal("0.20"), None, None]), {}),
    "day": (pa.array([date(2024, 1, 1), date(2024, 1, 31), None, None]), {}),
    "moment": (pa.array([datetime(2024, 1, 1, 12, tzinfo=UTC)] * 4, pa.timestamp("us", "UTC")), {}),
    "flag": (pa.array([True, True, False, None]), OFF),
    "hidden": (pa.array(["a", "b", "c", None]), {"values": "hidden"}),
    "none": (pa.nulls(4, pa.int64()), {}),
    "list": (pa.array([[1], [1, 2], [], None]), {}),
}
CASES: list[tuple[str, Any, str, str]] = [
    ("text", "not_null", "failed", "1 null in 4 rows (25.0%)"),
    ("number", "not_null", "passed", "no nulls in 4 rows"),
    ("text", {"null_share": 0.25}, "passed", "25.0%"),
    ("text", {"null_share": 0.24}, "failed", "25.0%"),
    ("text", {"null_share": {"least": 0.26}}, "failed", "25.0%"),
    ("text", "unique", "failed", "2 distinct of 3 values; 1 value occurs more than once"),
    ("price", "unique", "passed", "2 distinct of 2 values"),
    ("two_off", "unique", "failed", "4 values, and only 2 can be distinct"),
    ("number_off", "unique", "failed", "4 values, and only 3 can be distinct"),
    ("text_off", "unique", "unknown", "about 2 distinct of 3 values"),
    ("nan", "unique", "failed", "2 distinct of 3 values"),
    ("hidden", "unique", "unknown", "hidden"),
    ("list", "unique", "unknown", "a list has no values itself"),
    ("none", "unique", "passed", "no values"),
    ("text", {"accepted_values": ["b", "ab", "c"]}, "passed", "100.0% of 3 values accepted"),
    ("text", {"accepted_values": ["b"]}, "failed", "2 distinct values, and 1 is accepted; not ab"),
    ("text", {"accepted_values": ["b", "x"]}, "failed", "ab not accepted; ab to b"),
    ("text_off", {"accepted_values": ["ab", "b"]}, "unknown", "`frequencies: all`"),
    ("text_off", {"accepted_values": ["x", "y"]}, "failed", "not accepted"),
    ("number_off", {"accepted_values": [1, 3]}, "unknown", "no value counts"),
    ("number_off", {"accepted_values": [1, 2]}, "failed", "3 not accepted; 1 to 3"),
    ("long", {"accepted_values": ["a"]}, "failed", "no value is accepted"),
    ("nan", {"accepted_values": [1]}, "failed", "2 distinct values, and 1 is accepted"),
    ("flag", {"accepted_values": [True]}, "failed", "2 distinct values, and 1 is accepted"),
    ("price", {"accepted_values": [0.1, "0.20"]}, "passed", "100.0%"),
    ("day", {"accepted_values": [date(2024, 1, 1), "2024-01-31"]}, "passed", "100.0%"),
    ("number", {"range": {"minimum": 1, "maximum": 3}}, "passed", "1 to 3"),
    ("number", {"range": {"minimum": 2}}, "failed", "1 to 3; 1 value outside"),
    ("number", {"range": {"minimum": 2, "maximum": 2}}, "failed", "1 to 3; 3 values outside"),
    ("number_off", {"range": {"maximum": 2}}, "failed", "1 to 3"),
    ("price", {"range": {"minimum": 0.1, "maximum": 0.2}}, "passed", "0.10 to 0.20"),
    ("price", {"range": {"minimum": 0.11}}, "failed", "1 value outside"),
    ("day", {"range": {"maximum": "2024-01-30"}}, "failed", "1 value outside"),
    ("moment", {"range": {"minimum": date(2024, 1, 1), "maximum": datetime(2024, 1, 1, 12, tzinfo=UTC)}}, "passed", ""),
    ("infinite", {"range": {"maximum": 1e300}}, "failed", "1 value outside"),
    ("nan", {"range": {"minimum": 0}}, "failed", "2 of 3 values are NaN"),
    ("none", {"range": {"minimum": 5}}, "passed", "no values"),
    # Bounds of long texts are truncated, and decide if they can: the true minimum may be greater than the bound.
    ("long", {"range": {"minimum": LONG + "a"}}, "unknown", "≥"),
    ("long", {"range": {"maximum": LONG + "d"}}, "unknown", "≤"),
    ("long", {"range": {"minimum": "w", "maximum": "y"}}, "passed", "≥"),
    ("long", {"range": {"minimum": "y"}}, "failed", "≥"),
    ("hidden", {"range": {"minimum": "a"}}, "unknown", "hidden"),
    ("text", {"lengths": {"minimum": 1, "maximum": 2}}, "passed", "lengths from 1 to 2"),
    ("text", {"lengths": {"maximum": 1}}, "failed", "lengths from 1 to 2"),
    ("hidden", {"lengths": {"minimum": 1}}, "passed", "all of length 1"),
    ("list", {"lengths": {"minimum": 1}}, "failed", "lengths from 0 to 2"),
    ("code", {"matches": "[A-Z][0-9]"}, "failed", "50.0% of 4 values as described; not a\\nb, é"),
    ("code", {"matches": {"pattern": "[A-Z][0-9]", "least": 0.5}}, "passed", "50.0% of 4 values as described"),
    ("code", {"matches": "[A-Z]"}, "failed", "0.0% of 4 values"),
    ("code", {"matches": "(?s)A.|.|a.b"}, "passed", "100.0%"),
    ("code", {"matches": "A1|A2|é|a"}, "failed", "75.0%"),
    ("text_off", {"matches": "a"}, "unknown", "no value counts"),
    ("hidden", {"matches": "a"}, "unknown", "hidden"),
]


@pytest.fixture(scope="module")
def results_by_case(tmp_path_factory: pytest.TempPathFactory) -> list[CheckResult]:
    """The results of all checks in `CASES`, in their order.

    One table has all their columns.
    """
    store = ObjectStore(str(tmp_path_factory.mktemp("columns")))
    rows = pa.table({name: values for name, (values, _) in COLUMNS.items()})
    table = publish(store, rows, columns={name: policy for name, (_, policy) in COLUMNS.items()})
    checks_by_column: dict[str, list[Any]] = {}
    for at, (column, check, _, _) in enumerate(CASES):
        entry = {check: None} if isinstance(check, str) else check
        checks_by_column.setdefault(column, []).append({**entry, "name": f"case_{at}"})
    return sorted(results(store, table, **checks_by_column), key=lambda result: int(result.name.removeprefix("case_")))


@pytest.mark.parametrize("at", range(len(CASES)), ids=lambda at: f"{CASES[at][0]} {CASES[at][1]} {CASES[at][2]}"[:60])
def test_a_check_has_the_expected_result(results_by_case: list[CheckResult], at: int) -> None:
    column, _, status, message = CASES[at]
    result = results_by_case[at]
    assert (result.column, result.status) == (column, status), result.finding
    assert message in f"{result.finding.observed} {result.finding.advice or ''}"


def test_values_that_are_hard_to_see_are_quoted() -> None:
    """The text of a check's expectation quotes an empty text, and a text that begins with a blank."""
    check = parse_check({"accepted_values": ["", " a", "b", 5]}, "column")
    assert check.expectation == "only '', ' a', b, 5"
