"""Partition keys are injective for all texts, safe in Dagster, and readable for ordinary values."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from metastore_assets.errors import PartitionKeyError
from metastore_assets.formats import decode_partition_key, encode_partition_key

_TEXTS = st.one_of(
    st.text(),
    st.text(st.sampled_from("/%,=.\n\r\t\0 ab_\\\"'*[]\x7f\u2028\u200b\u0301é😀")),
    st.sampled_from(["", "null", "None", "all", "__HIVE_DEFAULT_PARTITION__", "%5F_HIVE_DEFAULT_PARTITION__", "%2F"]),
)
_ITEMS = st.lists(st.tuples(_TEXTS, st.none() | _TEXTS), max_size=3)


@given(_ITEMS)
@example([("", "")])
@example([("", None)])
@example([("a", "..."), ("...", "b")])
def test_decoding_is_the_inverse_of_encoding(items: list[tuple[str, str | None]]) -> None:
    """Decoding a key returns the columns and values of its partition.

    So different partitions have different keys.
    """
    assert decode_partition_key(encode_partition_key(items)) == tuple(items)


@given(_ITEMS)
def test_a_key_has_no_special_characters(items: list[tuple[str, str | None]]) -> None:
    """A key has no comma, wildcard, quote, square bracket, line break or other special character.

    Such characters have a meaning in a shell or in Dagster's ranges, lists and inputs. A key has a `/` only between its
    columns.
    """
    key = encode_partition_key(items)
    assert key
    assert key.isprintable()
    assert key == key.strip()
    assert not set(key) & set(",*[]\"'\\`$&;<>|?#{}^!\n")
    assert ".." not in key
    assert "  " not in key
    assert (key == "all") == (not items)
    assert len(key.split("/")) == max(1, len(items))


@given(st.text(st.characters(categories=["Cc", "Cf", "Zs", "Zl", "Zp"]), min_size=1))
def test_invisible_characters_are_encoded(text: str) -> None:
    """A key has no invisible character except the plain space, and decoding the key returns the value."""
    key = encode_partition_key([("a", text)])
    assert not any(char != " " and not char.isprintable() for char in key)
    assert decode_partition_key(key) == (("a", text),)


@pytest.mark.parametrize(
    ("items", "key"),
    [
        ([], "all"),
        ([("day", "2024-01-01"), ("country", "FR")], "day=2024-01-01/country=FR"),
        ([("ts", "2024-01-01 10:00:00.5Z")], "ts=2024-01-01 10:00:00.5Z"),
        ([("city", "São Paulo")], "city=São Paulo"),
        ([("city", "東京")], "city=東京"),
        ([("amount", "-12.50")], "amount=-12.50"),
        ([("k", None)], "k=__HIVE_DEFAULT_PARTITION__"),
        ([("k", "__HIVE_DEFAULT_PARTITION__")], "k=%5F_HIVE_DEFAULT_PARTITION__"),
        ([("k", "")], "k="),
        ([("k", "null")], "k=null"),
        ([("k", "a/b%c,d=e")], "k=a%2Fb%25c%2Cd%3De"),
        ([("k", "a...b")], "k=a.%2E%2Eb"),
        ([("k", " a  b ")], "k=%20a %20b%20"),
        ([("k", "😀")], "k=%F0%9F%98%80"),
    ],
)
def test_ordinary_keys_stay_readable(items: list[tuple[str, str | None]], key: str) -> None:
    """Keys of ordinary values are readable texts, and the encoding of a key does not change.

    Keys are stored in versions and in Dagster's history, so another encoding would not match them.
    """
    assert encode_partition_key(items) == key


@pytest.mark.parametrize(
    "key",
    ["", "a", "a=b,c", "a=%2f", "a=%41", "a=%ff", "a=%", "a=b/", "/a=b", "a=b=c", "a=é\n", "All", "a=..", "a=\ud800"],
)
def test_invalid_keys_are_refused(key: str) -> None:
    """A text that is no partition key is refused, and so is another spelling of a valid key.

    Each partition has exactly one key.
    """
    with pytest.raises(PartitionKeyError):
        decode_partition_key(key)


@given(st.text())
def test_any_text_is_a_canonical_key_or_refused(text: str) -> None:
    try:
        items = decode_partition_key(text)
    except PartitionKeyError:
        return
    assert encode_partition_key(items) == text


def test_keys_with_lone_surrogates_round_trip() -> None:
    items = (("a", "\ud800b"),)
    assert encode_partition_key(items).isascii()
    assert decode_partition_key(encode_partition_key(items)) == items


def test_safe_characters_are_the_documented_ones() -> None:
    """Every ASCII character is either unchanged or percent-encoded.

    The test lists the unchanged characters, which are those in the documentation.
    """
    safe_characters = {
        chr(code) for code in range(128) if encode_partition_key([("a", f"x{chr(code)}y")]) == f"a=x{chr(code)}y"
    }
    assert safe_characters == set(re.findall(r"[A-Za-z0-9\-_~:+@() .]", "".join(map(chr, range(128)))))
