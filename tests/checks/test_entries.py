"""How checks are written in the configuration, what is said of those that are wrong, and what they are called."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
import yaml

from metastore_assets.checks.expectations import expectation
from metastore_assets.config.check_entries import named_checks, parse_check
from metastore_assets.config.check_models import KINDS, Drift, Fresh, Level, NotNull, NullShare, RowCountChange


def parsed(text: str, level: Level = "column") -> Any:
    return parse_check(yaml.safe_load(text), level)


def test_an_entry_may_be_short_or_long() -> None:
    assert parsed("not_null") == parsed("{not_null: }") == parsed("{not_null: {}}") == NotNull()
    five = NullShare(most=Decimal("0.05"), severity="warn")
    for text in (
        "{null_share: 5%, severity: warn}",
        "{null_share: 0.05, severity: warn}",
        "{null_share: {most: 5 %, severity: warn}}",
        "{null_share: , most: 0.050, severity: warn}",
    ):
        assert parsed(text) == five
    assert parsed("fresh: 1d12h", "table") == Fresh(within=timedelta(hours=36))
    both = RowCountChange(lower=Decimal("-0.2"), upper=Decimal("0.2"), against=timedelta(days=7))
    assert parsed("{row_count_change: 20%, against: 7d}", "table") == both
    assert parsed("{drift: 0.1, measure: jensen_shannon, against: 41}") == Drift(
        most=Decimal("0.1"), measure="jensen_shannon", against=41
    )
    assert parsed("{not_null: , partitions: all}").partitions == ("*",)


@pytest.mark.parametrize(
    ("level", "text", "said"),
    [
        ("table", "frsh: 6h", "no check 'frsh'; there are: fresh, current, .*; did you mean 'fresh'?"),
        ("table", "{fresh: 1d, complete: }", "names fresh, complete: one check for each entry of the list"),
        ("table", "severity: warn", "names no check; there are: fresh, "),
        ("table", "5", "the name of a check, or a mapping"),
        ("table", "{1: 2}", "the name of a check, or a mapping"),
        ("table", "not_null", "not_null is a check of a column, and stands under a column's key `checks`"),
        ("column", "complete", "complete is a check of a table, and stands under the table's key `checks`"),
        ("table", "{complete: , partitions: all}", "complete is of the table as a whole: leave out partitions"),
        ("table", "fresh: 6", "fresh.within = 6: a time with its unit"),
        ("table", "fresh: 99999999999999w", "fresh.within = '99999999999999w': a time with its unit"),
        ("table", "fresh", "fresh.within is missing"),
        ("table", "{fresh: {within: 1h}, within: 2h}", "fresh: within is there twice"),
        ("table", "{fresh: 1h, severity: fatal}", "fresh.severity = 'fatal': must be 'error' or 'warn'"),
        ("table", "{fresh: 1h, name: a b}", "fresh.name = 'a b': up to 100 letters, digits and _"),
        ("table", "{fresh: 1h, sevrity: warn}", "fresh.sevrity: no such key; there are: within, blocking, name"),
        ("table", "row_count: -1", "row_count.minimum = -1: must be 0 or more"),
        ("table", "row_count: yes", "row_count.minimum = True: must be a whole number"),
        ("table", "row_count", "row_count: give minimum, maximum or both"),
        ("table", "row_count_change: {within: 1, lower: 0}", "within stands for lower and upper: give either"),
        ("table", "row_count_change: {lower: 1, upper: 0}", "lower is greater than upper: nothing lies between"),
        ("column", "null_share: 7", "null_share.most = 7: a part of a whole, from 0 to 1"),
        ("column", "null_share: much", "null_share.most = 'much': a part of a whole"),
        ("column", "null_share: 1e-999999999", "null_share.most = '1e-999999999': a part of a whole"),
        ("column", "null_share: 1e999999999%", "null_share.most = '1e999999999%': a part of a whole"),
        ("column", "range: 5", "range takes a mapping of minimum, maximum"),
        ("column", "range: {minimum: .nan}", "range.minimum = nan: NaN is no bound"),
        ("column", "range: {minimum: [1]}", r"range.minimum = \[1\]: a value of the column"),
        ("column", "accepted_values: []", r"accepted_values.values = \[\]: must not be empty"),
        ("column", "accepted_values: a", "accepted_values.values = 'a': must be a list"),
        ("column", "not_null: 1", "not_null takes no setting"),
        ("column", "{drift: 1, against: never}", "drift.against = 'never': a time with its unit"),
        ("column", "{drift: 1, against: 0}", "drift.against = 0: previous, the number of a version, or"),
        ("column", "{drift: 1, measure: psi}", "drift.measure = 'psi': must be 'stability_index', "),
        ("column", "{unique: , partitions: []}", r"unique.partitions = \[\]: all, or keys of partitions"),
    ],
)
def test_what_is_wrong_is_said(level: Level, text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parsed(text, level)


def test_names_are_distinct_and_stay() -> None:
    """By column and kind; what is given comes first; what is no letter or digit is `_`."""
    checks = (parsed("not_null"), parsed("not_null"), parsed("{unique: , name: A_b_not_null}"))
    found = named_checks((parsed("complete", "table"),), {"a.b": checks, "é": (parsed("not_null"),)})
    assert [own.name for own in found] == [
        "complete",
        "a_b_not_null_2",
        "a_b_not_null_3",
        "A_b_not_null",
        "__not_null",
    ]
    with pytest.raises(ValueError, match="two checks have the name 'X'"):
        named_checks((), {"a": (parsed("{unique: , name: x}"), parsed("{unique: , name: X}"))})


def test_every_check_is_told_in_words() -> None:
    """And every one that there is can be evaluated."""
    from metastore_assets.checks.evaluate import EVALUATIONS

    assert set(EVALUATIONS) == set(KINDS)
    told = {
        "{fresh: 36h}": "committed in the last 36 h",
        "current": "of the snapshot that the table is in",
        "complete": "all files of the table, with as many rows as its metadata say",
        "consistent": "numbers that agree with each other",
        "{row_count: 1000, partitions: all}": "at least 1,000 rows, in each partition",
        "{row_count_change: 12.5%}": "from -12.5% to 12.5% rows against the snapshot before",
        "not_null": "no nulls",
        "null_share: {least: 0.5}": "at least 50% null",
        "unique": "no value twice",
        "accepted_values: [1, 2024-01-01, true]": "only 1, 2024-01-01, true",
        "range: {minimum: 0.5, maximum: 2024-01-01 10:00:00}": "values from 0.5 to 2024-01-01 10:00:00",
        "{matches: a+, least: 99%}": "at least 99% like a+",
        "lengths: {maximum: 3}": "lengths at most 3",
        "{drift: 0.20, against: 7d}": "stability index of at most 0.2 against 7 d before",
    }
    assert {next(iter(parsed_kind(text))) for text in told} == set(KINDS)
    for text, expected in told.items():
        level = KINDS[next(iter(parsed_kind(text)))].level
        assert expectation(parsed(text, level)) == expected


def parsed_kind(text: str) -> list[str]:
    given = yaml.safe_load(text)
    return [given] if isinstance(given, str) else [key for key in given if key in KINDS]
