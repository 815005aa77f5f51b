"""Partition arguments may be keys, readable forms of keys, and the patterns of the configuration."""

from __future__ import annotations

import glob
from urllib.parse import quote

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets.errors import PartitionNotFoundError
from metastore_assets.expressions.partition_filter import PartitionFilter
from metastore_assets.expressions.partition_patterns import (
    combine_partition_patterns,
    match_partitions,
    resolve_partition,
)
from metastore_assets.formats import encode_partition_key

Items = list[tuple[str, str | None]]

_VALUES = st.none() | st.text(st.sampled_from("ab/%=*?[] é日2F"), max_size=4)
_TABLES = st.lists(st.tuples(_VALUES, _VALUES), min_size=1, max_size=8, unique=True)
_WORLD: list[Items] = [
    [("day", day), ("country", country)]
    for day in ("2024-01-01", "2024-01-02", "2024-02-01", None)
    for country in ("FR", "a b/c", "日本", "x*y", "100%", "", None)
]


def keys(rows: list[Items]) -> list[str]:
    return [encode_partition_key(row) for row in rows]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("day=2024-01-*", lambda day, country: day is not None and day.startswith("2024-01")),
        ("day=2024-0[13]-01", lambda day, country: day == "2024-01-01"),
        ("country=FR", lambda day, country: country == "FR"),
        ("day=2024-01-??/country=FR", lambda day, country: country == "FR" and (day or "").startswith("2024-01")),
        ("country=FR/day=2024-02-01", lambda day, country: (day, country) == ("2024-02-01", "FR")),
        ("country=a b/c", lambda day, country: country == "a b/c"),
        ("country=a b/*", lambda day, country: country == "a b/c"),
        ("country=a%20b%2f*", lambda day, country: country == "a b/c"),
        ("country=x*", lambda day, country: country == "x*y"),
        ("country=%E6%97%A5*", lambda day, country: country == "日本"),
        ("country=", lambda day, country: country == ""),
        ("country=*", lambda day, country: country is not None),
        ("country=__HIVE_DEFAULT_PARTITION__", lambda day, country: country is None),
    ],
)
def test_patterns_have_the_syntax_of_the_configuration(text: str, expected: object) -> None:
    assert callable(expected)
    expected_rows = [row for row in _WORLD if expected(row[0][1], row[1][1])]
    assert expected_rows
    assert match_partitions("t", [text], keys(_WORLD)) == set(keys(expected_rows))


@given(_TABLES, st.data())
def test_a_pattern_selects_the_same_partitions_as_in_the_configuration(
    rows: list[tuple[str | None, str | None]], data: st.DataObject
) -> None:
    """The argument `column=pattern` selects the same partitions as a filter in the configuration.

    The filter is `partitions: {column: pattern}`.
    """
    table: list[Items] = [[("x", x), ("y", y)] for x, y in rows]
    pattern = data.draw(st.text(st.sampled_from("ab*?é2"), min_size=1, max_size=3))
    bound_filter = PartitionFilter.of({"y": (pattern,)}).bind("t", {})
    expected = {encode_partition_key(row) for row in table if bound_filter.may_match(row)}
    if expected:
        assert match_partitions("t", [f"y={pattern}"], keys(table)) == expected
    else:
        with pytest.raises(PartitionNotFoundError):
            match_partitions("t", [f"y={pattern}"], keys(table))


@given(_TABLES, st.data())
def test_every_form_of_a_key_selects_its_partition(
    rows: list[tuple[str | None, str | None]], data: st.DataObject
) -> None:
    """The key itself selects only its partition.

    A readable form, without encoding or with another encoding, selects this partition and perhaps others.
    """
    table: list[Items] = [[("x", x), ("y", y)] for x, y in rows]
    items = data.draw(st.sampled_from(table))
    key = encode_partition_key(items)
    assert match_partitions("t", [key], keys(table)) == {key}
    if all(value is not None for _, value in items):
        assert key in match_partitions("t", ["/".join(f"{name}={value}" for name, value in items)], keys(table))
        percent = "/".join(f"{name}={quote(value or '', safe='')}" for name, value in items)
        assert key in match_partitions("t", [percent], keys(table))
        escaped_pattern = "/".join(f"{name}={glob.escape(value or '').replace('%', '%25')}" for name, value in items)
        assert key in match_partitions("t", [escaped_pattern], keys(table))


def test_several_arguments_select_the_union() -> None:
    table = keys(_WORLD)
    both = match_partitions("t", ["day=2024-02-01/country=FR", "country=日?"], table)
    assert both == {table[14], *(key for key in table if key.endswith("日本"))}


def test_an_argument_for_one_partition_must_be_unambiguous() -> None:
    table = keys(_WORLD)
    assert resolve_partition("t", "day=2024-02-01/country=a b/c", table) == "day=2024-02-01/country=a b%2Fc"
    assert resolve_partition("t", "day=2024-02*/country=F?", table) == "day=2024-02-01/country=FR"
    with pytest.raises(PartitionNotFoundError, match=r"'day=2024-\*'.*21.*'t'"):
        resolve_partition("t", "day=2024-*", table)
    twice = keys([[("a", "1/b=2"), ("b", "3")], [("a", "1"), ("b", "2/b=3")]])
    with pytest.raises(PartitionNotFoundError, match=r"'a=1/b=2/b=3'.*2"):
        resolve_partition("t", "a=1/b=2/b=3", twice)
    assert resolve_partition("t", twice[0], twice) == twice[0]
    assert resolve_partition("t", "c/d=e=1", keys([[("c/d=e", "1")]])) == "c%2Fd%3De=1"
    assert resolve_partition("t", "c%2Fd%3De=?", keys([[("c/d=e", "1")]])) == "c%2Fd%3De=1"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("day=2024-02-02", ["no partition 'day=2024-02-02'", "the nearest are", "'day=2024-02-01'"]),
        ("day=2022-*", ["of 29 the nearest are 'day=2023-12-31', 'day=2024-01-01'"]),
        ("day=2025-01-01", ["'day=2024-01-28'"]),
        ("dya=2024-01-01", ["partitioned by 'day', not by 'dya'", "did you mean 'day'?"]),
        ("Day=2024-01-01", ["partitioned by 'day', not by 'Day'", "did you mean 'day'?"]),
        ("day=2024-01-01/contry=FR", ["partitioned by 'day', not by 'contry'"]),
        ("2024-01-02", ["name a key, or a pattern such as `day=…`", "'day=2024-01-02'"]),
        ("", ["name a key, or a pattern such as `day=…`"]),
    ],
)
def test_messages_name_similar_keys(text: str, message: list[str]) -> None:
    days: list[Items] = [[("day", f"2024-01-{day:02}")] for day in range(1, 28)]
    table = keys([*days, [("day", "2023-12-31")], [("day", "2024-02-01")]])
    if "2025" in text:
        table = keys([*days, [("day", "2024-01-28")]])
    with pytest.raises(PartitionNotFoundError) as error_info:
        match_partitions("t", [text], table)
    assert all(part in str(error_info.value) for part in message), error_info.value


def test_tables_without_partition_columns_or_rows() -> None:
    assert match_partitions("t", ["all"], ["all"]) == {"all"}
    with pytest.raises(PartitionNotFoundError, match="'all'"):
        match_partitions("t", ["day=1"], ["all"])
    with pytest.raises(PartitionNotFoundError, match=r"'t'.*'day=1'"):
        match_partitions("t", ["day=1"], [])


@given(_TABLES, st.lists(st.tuples(_VALUES, _VALUES), min_size=1, max_size=3), st.booleans())
def test_combined_patterns_select_the_same_partitions(
    rows: list[tuple[str | None, str | None]], chosen_values: list[tuple[str | None, str | None]], only_x: bool
) -> None:
    """Several keys are combined into one filter of the configuration.

    It selects exactly the partitions with these keys. Keys that differ in both columns may be refused. With `only_x`,
    the keys have only the column x.
    """
    table: list[Items] = [[("x", x), ("y", y)] for x, y in rows]
    texts = [encode_partition_key([("x", x)] if only_x else [("x", x), ("y", y)]) for x, y in chosen_values]
    try:
        patterns = combine_partition_patterns(texts)
    except ValueError:
        assert not only_x
        assert len({x for x, _ in chosen_values}) > 1
        assert len({y for _, y in chosen_values}) > 1
        return
    bound_filter = PartitionFilter.of({column: tuple(items) for column, items in patterns.items()}).bind(
        "t", {"x": pa.string(), "y": pa.string()}
    )
    expected_values = {x for x, _ in chosen_values} if only_x else set(chosen_values)
    assert [bound_filter.may_match(items) for items in table] == [
        (x if only_x else (x, y)) in expected_values for x, y in rows
    ]


@pytest.mark.parametrize("texts", [["2024"], ["=x"], [""], ["day=1", "country=FR"]])
def test_invalid_filters_are_refused(texts: list[str]) -> None:
    with pytest.raises(ValueError, match=r"column=value|columns"):
        combine_partition_patterns(texts)
