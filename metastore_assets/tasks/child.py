"""The process that reads foreign files for `apart`, because a file may end the process that reads it: a program.

Requests come and answers go through pipes, in frames. Which tasks are being read is written to memory that outlives
this process: who asked finds the culprit there.
"""

from __future__ import annotations

import os
import pickle
import resource
import signal
import struct
import threading
import traceback
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from typing import Any, BinaryIO

from metastore_assets.startup import hide_pandas
from metastore_assets.storage.io_counters import IoCounts, count_io
from metastore_assets.storage.process_memory import limit_memory
from metastore_assets.tasks.in_flight import Crumbs

_LENGTH = struct.Struct("<Q")


@dataclass(frozen=True)
class Environment:
    """The environment variables that are to be seen from now on."""

    variables: dict[str, str]


@dataclass(frozen=True)
class Start:
    """So many threads work on the requests that follow."""

    threads: int


@dataclass(frozen=True)
class Share:
    """`function(*arguments)` for each of some tasks. Answered by one Outcomes."""

    first: int
    """Number of the first task, counted from 0; the others follow."""
    function: Callable[..., Any]
    tasks: Sequence[tuple[Any, ...]]


@dataclass(frozen=True)
class Parts:
    """What `function(*arguments)` yields. Answered by any number of Part, and one Outcomes of a None or an error."""

    function: Callable[..., Iterable[Any]]
    arguments: tuple[Any, ...]


Request = Environment | Start | Share | Parts


@dataclass(frozen=True)
class Part:
    """One of the values of a Parts."""

    value: Any


@dataclass(frozen=True)
class Outcomes:
    """What came of a Share: results, and Raised for each task that raised."""

    first: int
    values: Sequence[Any]
    traffic: IoCounts
    """What was read and written for it."""


@dataclass(frozen=True)
class Raised:
    """An error, and where it was raised."""

    error: Exception
    trace: str


def write_frame(sink: BinaryIO, value: object) -> None:
    """Send a value. Raises BrokenPipeError when nobody is there."""
    data = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    sink.write(_LENGTH.pack(len(data)))
    sink.write(data)
    sink.flush()


def read_frame(source: BinaryIO) -> Any:
    """The next value. Raises EOFError at the end, be it in the middle of a frame."""
    (length,) = _LENGTH.unpack(_exactly(source, _LENGTH.size))
    return pickle.loads(_exactly(source, length))


def _exactly(source: BinaryIO, size: int) -> bytes:
    data = source.read(size)
    if len(data) < size:
        raise EOFError
    return data


def serve(requests: BinaryIO, answers: int, crumbs: int) -> None:
    """Answer requests until who sends them is gone. `answers` and `crumbs` are file descriptors. Does not return."""
    # Ctrl-C is for who asked: with it this process ends too.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    limit_memory()
    hide_pandas()
    worker = _Worker(open(answers, "wb"), Crumbs(crumbs))  # noqa: SIM115 (open to the end)
    pool = ThreadPoolExecutor(1, initializer=worker.take_place)
    try:
        while True:
            request = read_frame(requests)
            if isinstance(request, Environment):
                os.environ.clear()
                os.environ.update(request.variables)
            elif isinstance(request, Start):
                pool.shutdown()
                worker.free_places()
                pool = ThreadPoolExecutor(request.threads, initializer=worker.take_place)
            else:
                pool.submit(worker.answer, request)
    except EOFError:
        os._exit(0)  # Whatever is being read is of no use any more.


class _Worker:
    """Answers requests in any number of threads."""

    def __init__(self, answers: BinaryIO, crumbs: Crumbs) -> None:
        self._answers = answers
        self._crumbs = crumbs
        self._lock = threading.Lock()
        self._own = threading.local()
        self.free_places()

    def free_places(self) -> None:
        """Number threads anew."""
        self._places = count()

    def take_place(self) -> None:
        """Give the thread that calls a place for its crumbs."""
        self._own.place = next(self._places)

    def answer(self, request: Share | Parts) -> None:
        """Answer one request. Nothing it comes to may be lost on the way: else who asked would wait for ever."""
        try:
            with count_io() as meter:
                if isinstance(request, Share):
                    first, numbered = request.first, enumerate(request.tasks, request.first)
                    values = [self._outcome(number, request.function, task) for number, task in numbered]
                else:
                    first, values = 0, [self._outcome(0, self._send_parts, (request,))]
            self._send(Outcomes(first, values, meter.counts()))
        except BaseException:  # noqa: BLE001 (whatever it is, it ends this process)
            traceback.print_exc()
            os._exit(1)

    def _outcome(self, number: int, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        self._crumbs.begin(self._own.place, number)
        try:
            return function(*arguments)
        except BaseException as error:  # noqa: BLE001 (native code may raise what is no Exception)
            return Raised(portable(error), traceback.format_exc())
        finally:
            self._crumbs.end(self._own.place)

    def _send_parts(self, request: Parts) -> None:
        for value in request.function(*request.arguments):
            self._send(Part(value))

    def _send(self, answer: Outcomes | Part) -> None:
        with self._lock:
            try:
                write_frame(self._answers, answer)
            except BrokenPipeError:
                os._exit(0)


def portable(error: BaseException) -> Exception:
    """The error, or one that says the same, when it is of a kind that does not reach another process."""
    try:
        copy = pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 (each class has its own way to be pickled, and to fail at it)
        copy = None
    if isinstance(copy, Exception):
        return copy
    return ValueError(f"{type(error).__name__}: {error}")
