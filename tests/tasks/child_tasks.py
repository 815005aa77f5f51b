"""What tests ask child processes for: functions that are found by name there, some of which end the process."""

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
    """An error that is pickled and cannot be unpickled, like those of some libraries."""

    def __init__(self, *, code: int) -> None:
        super().__init__(f"code {code}")


def double(number: int) -> int:
    """Ends the process for numbers that say so."""
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
    """Writes where libraries write, past Python's own streams."""
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
    """Until there is a file at that path."""
    while not os.path.exists(path):
        time.sleep(0.005)
    return os.getpid()


def count_to(number: int, then: Any = None) -> Iterator[int]:
    """Ends as `then` says: with a signal, or with an error."""
    yield from range(number)
    if isinstance(then, int):
        signal.raise_signal(then)
    if then is not None:
        raise ValueError(then)


def endless(sink: str) -> Iterator[int]:
    """The size of the file tells how far it is."""
    number = 0
    while True:
        with open(sink, "a") as file:
            file.write(".")
        yield number
        number += 1


KILL, ABORT, SEGV = -signal.SIGKILL, -signal.SIGABRT, -signal.SIGSEGV
"""Numbers for `double`."""
