"""Calls on shared threads: order of results, errors, nesting, contexts and forks."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from metastore_assets.storage import parallel
from metastore_assets.storage.io_counters import count_io, record_read
from metastore_assets.storage.parallel import parallel_map


def test_results_have_the_order_of_the_items() -> None:
    """Results have the order of the items, although the calls end in the opposite order.

    Each call waits until the call for the next item has ended.
    """
    ended = [threading.Event() for _ in range(5)]
    ended[4].set()

    def square(number: int) -> int:
        if number < 4:
            assert ended[number + 1].wait(30)
        ended[number].set()
        return number**2

    assert parallel_map(square, range(5)) == [0, 1, 4, 9, 16]


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_at_most_the_given_number_of_calls_run_at_once(threads: int) -> None:
    lock, running, most = threading.Lock(), 0, 0

    def call(number: int) -> int:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        threading.Event().wait(0.01)
        with lock:
            running -= 1
        return number

    assert parallel_map(call, range(12), threads) == list(range(12))
    assert most <= threads


def test_the_error_of_the_first_failed_item_is_raised_when_started_calls_have_ended() -> None:
    """Items 1 and 3 fail, item 3 first, and items 0 and 2 end after both.

    The error of item 1 is raised, after all calls have ended.
    """
    failed, ended = [threading.Event() for _ in range(4)], []

    def call(number: int) -> None:
        if number == 3:
            failed[3].set()
            raise KeyError(number)
        assert failed[3].wait(30)
        if number == 1:
            failed[1].set()
            raise ValueError(number)
        assert failed[1].wait(30)
        ended.append(number)

    with pytest.raises(ValueError, match="1"):
        parallel_map(call, range(4))
    assert sorted(ended) == [0, 2]


def test_no_call_starts_after_an_error() -> None:
    started = []

    def call(number: int) -> None:
        started.append(number)
        raise ValueError(number)

    with pytest.raises(ValueError, match="0"):
        parallel_map(call, range(1000), 2)
    assert len(started) <= 2


def test_nested_calls_end_without_free_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls that are nested three deep all end, although there is only one shared thread."""

    def call(depth: int) -> int:
        return 1 if depth == 0 else sum(parallel_map(call, [depth - 1] * 4))

    with ThreadPoolExecutor(1) as pool:
        monkeypatch.setattr(parallel, "_pool", pool)
        assert call(3) == 64


def test_reads_count_for_the_caller() -> None:
    def read(number: int) -> None:
        record_read(f"file {number}", number)

    with count_io() as counter:
        parallel_map(read, range(50))
    assert counter.counts().read.files == 50
    assert counter.counts().read.bytes == sum(range(50))
    with count_io() as other_counter:
        pass
    assert other_counter.counts().read.files == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_has_threads_of_its_own() -> None:
    parallel_map(str, range(10))
    if not (child := os.fork()):
        status = 1
        try:
            barrier = threading.Barrier(2)  # The two calls wait for each other, so they need a second thread.
            status = 0 if parallel_map(lambda _: barrier.wait(30), range(2)) else 1
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
