"""Readings that run together make requests in common rounds, and return what each returns alone.

A reading is a generator that yields the byte ranges that it needs next, and receives their bytes.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets.errors import ObjectNotFoundError
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.read_rounds import ByteRange, Reading, join_readings, run_reading

_STEPS = st.lists(st.lists(st.integers(0, 90), max_size=3), max_size=3)
"""The first byte of each range that a reading requests, for each of its steps."""


def reading(path: str, steps: Sequence[Sequence[int]]) -> Reading[list[list[bytes]]]:
    """Request ten bytes from each position of a step, one step after the other.

    Return the bytes of each step.
    """
    results = []
    for starts in steps:
        results.append([*(yield [(path, start, start + 10) for start in starts])])
    return results


def content(path: str) -> bytes:
    return bytes((len(path) * at) % 251 for at in range(100))


@given(st.lists(_STEPS, max_size=4))
def test_a_round_has_the_requests_of_all_readings(readings: list[list[list[int]]]) -> None:
    paths = ["p" * (number + 1) for number in range(len(readings))]
    joined = join_readings([reading(path, steps) for path, steps in zip(paths, readings, strict=True)])
    rounds: list[Sequence[ByteRange]] = []
    answers: list[bytes] | None = None
    try:
        while True:
            rounds.append(next(joined) if answers is None else joined.send(answers))
            answers = [content(path)[start:end] for path, start, end in rounds[-1]]
    except StopIteration as stop:
        results = stop.value
    assert results == [
        [[content(path)[start : start + 10] for start in starts] for starts in steps]
        for path, steps in zip(paths, readings, strict=True)
    ]
    assert len(rounds) == max(map(len, readings), default=0)
    for number, requests in enumerate(rounds):
        assert sorted(requests) == sorted(
            (path, start, start + 10)
            for path, steps in zip(paths, readings, strict=True)
            for start in (steps[number] if number < len(steps) else [])
        )


def test_the_requests_of_a_round_are_parallel_for_a_remote_store(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.write("a", content("a"))
    store.write("b", content("b"))
    barrier = threading.Barrier(4)
    read_range = ObjectStore.read_range

    def waiting(store: ObjectStore, path: str, start: int, end: int) -> bytes:
        barrier.wait(30)
        return read_range(store, path, start, end)

    monkeypatch.setattr(ObjectStore, "is_remote", True)
    monkeypatch.setattr(ObjectStore, "read_range", waiting)
    results = run_reading(store, join_readings([reading("a", [[0, 50]]), reading("b", [[20, 7]])]))
    assert results == [[[content("a")[:10], content("a")[50:60]]], [[content("b")[20:30], content("b")[7:17]]]]


def test_an_error_of_a_request_ends_the_reading(store: ObjectStore) -> None:
    store.write("a", content("a"))
    with pytest.raises(ObjectNotFoundError):
        run_reading(store, join_readings([reading("a", [[0]]), reading("missing", [[0]])]))
