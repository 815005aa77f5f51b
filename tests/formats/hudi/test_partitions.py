"""Partition paths of Hudi are decoded to values, for every key generator."""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from metastore_assets.errors import TableFormatError
from metastore_assets.formats import encode_partition_key
from metastore_assets.formats.hudi.partitions import PartitionPaths

_HIVE = "hoodie.datasource.write.hive_style_partitioning"
_FIELDS = "hoodie.table.partition.fields"
_ENCODED = "hoodie.datasource.write.partitionpath.urlencode"
_GENERATOR = "hoodie.table.keygenerator.type"
_DATES = "hoodie.keygen.timebased.output.dateformat"
_NULL = "__HIVE_DEFAULT_PARTITION__"


@pytest.mark.parametrize(
    ("properties", "path", "items"),
    [
        ({}, "", ()),
        ({}, "2020/01", (("_hoodie_partition_path", "2020/01"),)),
        ({_FIELDS: "a", _HIVE: "true"}, "a=1", (("a", "1"),)),
        ({_FIELDS: "a", _HIVE: "false"}, "a=1", (("a", "a=1"),)),
        ({_FIELDS: "a"}, "a=1", (("a", "1"),)),
        ({_FIELDS: "a"}, "1", (("a", "1"),)),
        ({_FIELDS: "a,b", _HIVE: "true"}, "a=1/b=2", (("a", "1"), ("b", "2"))),
        ({_FIELDS: "a,b"}, "1/2", (("a", "1"), ("b", "2"))),
        ({_FIELDS: "a,b"}, f"1/{_NULL}", (("a", "1"), ("b", None))),
        ({_FIELDS: "a.b"}, "1", (("a.b", "1"),)),
        ({_FIELDS: "a", _ENCODED: "true"}, "x%2Fy", (("a", "x/y"),)),
        ({_FIELDS: "a", _ENCODED: "false"}, "x%2Fy", (("a", "x%2Fy"),)),
        ({_FIELDS: "ts", _GENERATOR: "TIMESTAMP", _DATES: "yyyy/MM/dd"}, "2024/01/31", (("ts", "2024/01/31"),)),
        ({_FIELDS: "ts", _GENERATOR: "TIMESTAMP", _HIVE: "true"}, "ts=2024/01/31", (("ts", "2024/01/31"),)),
        (
            {_FIELDS: "a:SIMPLE,ts:TIMESTAMP,b:simple", _GENERATOR: "CUSTOM", _DATES: "yyyy/MM"},
            "x/2024/01/y",
            (("a", "x"), ("ts", "2024/01"), ("b", "y")),
        ),
        ({_FIELDS: "a:SIMPLE,ts:TIMESTAMP", _GENERATOR: "CUSTOM"}, "x/2024/01", (("a", "x"), ("ts", "2024/01"))),
    ],
)
def test_a_path_is_decoded_to_values(
    properties: dict[str, str], path: str, items: tuple[tuple[str, str | None], ...]
) -> None:
    """Properties determine the values in a partition path.

    The properties give the partition columns, the style of folder names, their encoding, and formats of dates.
    """
    assert PartitionPaths.of("t", properties).items(path) == items


@pytest.mark.parametrize(("columns", "path"), [("a,b", "1"), ("a,b", "1/2/3"), ("a,b", "a=1/c=2/3")])
def test_a_path_that_does_not_match_is_an_error(columns: str, path: str) -> None:
    with pytest.raises(TableFormatError, match=rf"'{path}'.*\ba, b$"):
        PartitionPaths.of("t", {_FIELDS: columns}).items(path)


_TEXT = st.text(st.characters(exclude_characters="/\0", exclude_categories=("Cs",)), min_size=1)


@given(st.lists(_TEXT, min_size=2, max_size=2, unique=True), st.booleans(), st.booleans())
def test_different_partitions_have_different_keys(texts: list[str], hive_style: bool, is_encoded: bool) -> None:
    """Folder names of two random texts are decoded to these texts, and give two partition keys.

    Folder names may have Hive's style, and may be URL-encoded.
    """
    properties = {_FIELDS: "a", _HIVE: str(hive_style), _ENCODED: str(is_encoded)}
    paths = PartitionPaths.of("t", properties)
    if is_encoded:
        assume(_NULL not in texts)
    folders = [re.sub(r"[\x01-\x1f\"#%'*/:=?\\{\[\]^\x7f]", _escape, text) if is_encoded else text for text in texts]
    items = [paths.items(f"a={folder}" if hive_style else folder) for folder in folders]
    assert [value for ((_, value),) in items] == [None if text == _NULL else text for text in texts]
    assert len({encode_partition_key(item) for item in items}) == 2


def _escape(match: re.Match[str]) -> str:
    return f"%{ord(match[0]):02X}"
