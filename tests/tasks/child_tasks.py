"""Functions that tests run in child processes, some of which crash the process."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Iterator
from typing import Any

from metastore_assets.formats.base import FragmentSource
from metastore_assets.tasks.in_flight import record_in_flight


class Stubborn(Exception):
    """An exception that can be pickled but not unpickled, like those of some libraries."""

    def __init__(self, *, code: int) -> None:
        super().__init__(f"code {code}")


def double(number: int) -> int:
    """Return twice the number.

    If it is -n, end the process by the signal n instead.
    """
    if number < 0:
        signal.raise_signal(-number)
    return 2 * number


def segfault(path: str) -> None:
    with record_in_flight(f"{path} (column 'x')"):
        ctypes.string_at(0)


def leave(status: int) -> None:
    os._exit(status)


def raise_missing(path: str) -> None:
    raise FileNotFoundError(2, "No such file or directory", path)


def raise_stubborn() -> None:
    raise Stubborn(code=7)


def noise(number: int) -> int:
    """Write to the file descriptors 1 and 2 directly, as libraries do, and return the number."""
    os.write(1, b"standard output\n" * 100)
    os.write(2, b"standard error\n" * 100)
    print("print")  # noqa: T201
    return number


def process_id() -> int:
    return os.getpid()


def variable(name: str) -> str | None:
    return os.environ.get(name)


def blob(size: int) -> bytes:
    return bytes(size)


def open_fragment(source: FragmentSource) -> int:
    with source.open() as reader:
        return reader.row_count


def loaded(name: str) -> bool:
    return name in sys.modules


def wait_for(path: str) -> int:
    """Wait until a file exists.

    Return the process id.
    """
    while not os.path.exists(path):
        time.sleep(0.005)
    return os.getpid()


def count_to(number: int, then: Any = None) -> Iterator[int]:
    """Yield the numbers below `number`, and then end, raise an error or send a signal to this process.

    `then` is the number of the signal. With None, the stream just ends, and with any other object, it raises a
    ValueError.
    """
    yield from range(number)
    if isinstance(then, int):
        signal.raise_signal(then)
    if then is not None:
        raise ValueError(then)


def mark_and_wait(folder: str, number: int) -> Iterator[int]:
    """Create a file with the task's number as its name, wait for 0.2 seconds, and end.

    Task 0 yields its number before it waits. Other tasks yield nothing.
    """
    with open(f"{folder}/{number}", "w"):
        pass
    if number == 0:
        yield number
    time.sleep(0.2)


def double_while_others_run(folder: str, members: int, number: int) -> int:
    """Return twice the number, after all tasks have started.

    If the number is -n, end the process by the signal n while all other tasks still run. Each of the `members` tasks
    creates a file in `folder`, and waits until all have done so.
    """
    with open(f"{folder}/{number}", "w"):
        pass
    while len(os.listdir(folder)) < members:
        time.sleep(0.005)
    if number > 0:
        time.sleep(0.5)
    return double(number)


def endless(sink: str) -> Iterator[int]:
    """Yield numbers for ever, and write one byte per number to a file."""
    number = 0
    while True:
        with open(sink, "a") as file:
            file.write(".")
        yield number
        number += 1


def endless_blobs(sink: str) -> Iterator[bytes]:
    """Yield blobs of one MiB for ever, and write one byte per blob to a file."""
    return (bytes(1 << 20) for _ in endless(sink))


KILL, ABORT, SEGV = -signal.SIGKILL, -signal.SIGABRT, -signal.SIGSEGV
"""Numbers for `double`."""


_together = 0


def crash_together(begun_path: str) -> Iterator[str]:
    """Crash this process once two calls of this function, with different paths, run in it.

    A call creates the file `begun_path`, and then waits for the other call. If the file exists already, because an
    earlier process crashed, the call only yields the path.
    """
    global _together
    if not os.path.exists(begun_path):
        with open(begun_path, "w"):
            _together += 1
        while _together < 2:
            time.sleep(0.01)
        os.abort()
    yield begun_path
