"""Partitions of a version and those registered in a catalog are matched by their values.

A version is the published statistics of a table at one snapshot.
"""

from __future__ import annotations

import pytest

from metastore_assets.exports.partition_values import registered_values, version_values


@pytest.mark.parametrize(
    ("key", "names", "types", "catalog_values"),
    [
        ("day=2024-01-01", ["day"], ["date"], ["2024-01-01"]),
        ("Year=2024/month=1", ["year", "month"], ["int", "int"], ["2024", "01"]),
        ("name=a%2Fb", ["name"], ["string"], ["a/b"]),
        ("n=__HIVE_DEFAULT_PARTITION__", ["n"], ["int"], ["__HIVE_DEFAULT_PARTITION__"]),
        ("n=x", ["n"], ["int"], ["x"]),
    ],
)
def test_equal_values(key: str, names: list[str], types: list[str], catalog_values: list[str]) -> None:
    assert version_values(key, names, types) == registered_values(catalog_values, types)


def test_texts_stay_as_they_are_and_other_columns_match_nothing() -> None:
    assert registered_values(["01"], ["string"]) != version_values("n=1", ["n"], ["string"])
    assert version_values("m=1", ["n"], ["int"]) is None
