"""Messages that are joined from arbitrary parts have consistent punctuation and bounded length."""

from __future__ import annotations

import pickle
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets.errors import CorruptionError, FragmentError, ProfileError
from metastore_assets.messages import clean_message, close_names, nearest_names
from tests.cli.run_command import BADLY_JOINED


@pytest.mark.parametrize(
    ("joined_text", "message"),
    [
        ("cannot read file.. Mend it", "cannot read file. Mend it"),
        ("disk full.; try again.", "disk full; try again"),
        ("no column 'x'; did you mean 'y'?; list them with `z`", "no column 'x'; did you mean 'y'? List them with `z`"),
        ("did you mean 'y'?. Mend it", "did you mean 'y'? Mend it"),
        ("(OSError: it failed.); rebuild", "(OSError: it failed); rebuild"),
        ("one; . Two", "one. Two"),
        ("cannot open...", "cannot open…"),
        ("s3://b/x.: no such key", "s3://b/x: no such key"),
        # Dots and marks that are parts of names stay.
        ("no table at ../x", "no table at ../x"),
        ("the folder .. is no table", "the folder .. is no table"),
        ("key 'a...b'; column 'x.'; file?.csv", "key 'a...b'; column 'x.'; file?.csv"),
        ("the delimiter: ; is used", "the delimiter: ; is used"),
    ],
)
def test_joined_parts_have_clean_punctuation(joined_text: str, message: str) -> None:
    assert clean_message(joined_text) == message


_PART = st.text(st.sampled_from("ab1)'` "), min_size=1, max_size=6).filter(lambda part: part.strip())
_PIECES = st.lists(st.tuples(_PART, st.sampled_from(["", ".", "?", ";", "!", "...", ".\n"])), min_size=1, max_size=4)


@given(_PIECES, st.sampled_from(["; ", ". ", ": "]))
def test_punctuation_at_the_end_of_parts_is_merged(pieces: list[tuple[str, str]], between: str) -> None:
    """In a cleaned message, no part ends with two punctuation marks.

    Letters stay the same except for their case. Cleaning the message again changes nothing.
    """
    joined_text = between.join(part.strip() + end for part, end in pieces)
    message = clean_message(joined_text)
    assert not BADLY_JOINED.search(message), (joined_text, message)
    assert clean_message(message) == message
    assert re.sub(r"[\s.:;,…]", "", message).lower() == re.sub(r"[\s.:;,…]", "", joined_text).lower()


@pytest.mark.parametrize("part", ["a.", "a-", "http://", "http://x?", "a://%3F", "://@", "; .", "http://a:b"])
def test_the_time_for_a_message_is_linear_in_its_length(part: str) -> None:
    """Cleaning a message of 20,000 parts takes less than four seconds of CPU time.

    A message may be long, because libraries quote whole values of a file. A regular expression that searches on from
    every word would take from 17 seconds to hours for these messages.
    """
    start_time = time.process_time()
    clean_message(part * 20_000)
    assert time.process_time() - start_time < 4


@pytest.mark.parametrize("part", ["x" * 10**6, "nothing, " * 10**5, "\ud800" * 10**5])
def test_the_length_of_messages_is_bounded(part: str) -> None:
    """A message has fewer than 5000 bytes, whatever it quotes.

    A shortened message has its beginning and its end, and is valid UTF-8.
    """
    answer = str(FragmentError(f"/lake/t/1.parquet: the file cannot be read: {part}; mend it", path="p"))
    assert len(answer.encode()) < 5000
    assert answer.startswith("/lake/t/1.parquet: the file cannot be read: ")
    assert answer.endswith("; mend it")


@pytest.mark.parametrize(
    "error", [CorruptionError("a.; b."), ProfileError("a.. Mend"), FragmentError("x.. y.", path="p", missing=True)]
)
def test_every_error_has_a_clean_message(error: Exception) -> None:
    """The punctuation of an error's message is clean, and pickling does not change the message."""
    assert not BADLY_JOINED.search(str(error))
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_close_names_are_suggested() -> None:
    assert close_names("pirce", ["id", "price"], "; there are: {}") == "; did you mean 'price'?"
    assert close_names("dya", ["day", "hour"], "; there are: {}") == "; did you mean 'day'?"
    assert close_names("city", ["address.city", "id"], "; there are: {}") == "; did you mean 'address.city'?"
    assert close_names("x", ["id", "price"], "; there are: {}") == "; there are: id, price"
    many = close_names("x", [f"column{number}" for number in range(30)], "; there are: {}")
    assert many.endswith("column19 and 10 more")
    assert close_names("x", [], "; there are: {}") == ""


def test_near_names_are_suggested() -> None:
    days = [f"day=2024-01-{day:02}" for day in range(1, 32)]
    assert nearest_names("day=2024-02-01", days).startswith("; of 31 the nearest are ")
    assert "'day=2024-01-31'" in nearest_names("day=2024-02-01", days)
    assert "'day=2024-01-15'" in nearest_names("day=2024-0115", days)
    assert nearest_names("x", ["a"]) == "; the nearest is 'a'"
    assert nearest_names("x", ["a", "b"]) == "; the nearest are 'a' and 'b'"
    assert nearest_names("x", []) == ""
