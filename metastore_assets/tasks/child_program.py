"""The program of a child process that runs isolated tasks, and its messages to and from the parent.

Messages go through two pipes as length-prefixed pickles. The *in-flight record* is memory that child and parent share.
There, the child notes which file each of its threads is reading, in one slot per thread. The parent reads these notes
after a crash.
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
from metastore_assets.tasks.in_flight import InFlightRecord

_LENGTH = struct.Struct("<Q")


@dataclass(frozen=True)
class SetEnvironment:
    """Request to replace all environment variables.

    It has no answer.
    """

    variables: dict[str, str]


@dataclass(frozen=True)
class SetThreads:
    """Request to run all later requests on a number of threads.

    It has no answer.
    """

    threads: int


@dataclass(frozen=True)
class RunTasks:
    """Request to call `function(task)` for a chunk of tasks.

    The answer is one TaskOutcomes.
    """

    first: int
    """Number of the first task, counted from 0. The other tasks have the next numbers."""
    function: Callable[[Any], Any]
    tasks: Sequence[Any]


@dataclass(frozen=True)
class StreamTask:
    """Request to send the items of `function(task)` one by one.

    The answers are one StreamItem per item, then one TaskOutcomes. The only value of the TaskOutcomes is None, or a
    RaisedError if the task raised an exception.
    """

    number: int
    """Number of the task, which its answers repeat."""
    function: Callable[[Any], Iterable[Any]]
    task: Any


Request = SetEnvironment | SetThreads | RunTasks | StreamTask


@dataclass(frozen=True)
class StreamItem:
    """Message to the parent: an item that a StreamTask yielded."""

    number: int
    """`StreamTask.number`."""
    value: Any


@dataclass(frozen=True)
class TaskOutcomes:
    """The outcomes of a chunk of tasks: each task's result, or RaisedError if it raised an exception."""

    first: int
    values: Sequence[Any]
    io_counts: IoCounts
    """The files and bytes that the tasks read and wrote."""


@dataclass(frozen=True)
class RaisedError:
    """An exception of a task, with its traceback as text."""

    error: Exception
    trace: str


def write_frame(sink: BinaryIO, value: object) -> None:
    """Send a value through a pipe.

    Raises BrokenPipeError if the other process has ended.
    """
    data = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    sink.write(_LENGTH.pack(len(data)))
    sink.write(data)
    sink.flush()


def read_frame(source: BinaryIO) -> Any:
    """Receive a value from a pipe.

    Raises EOFError if the other process has ended, perhaps in the middle of a value.
    """
    (length,) = _LENGTH.unpack(_read_exactly(source, _LENGTH.size))
    return pickle.loads(_read_exactly(source, length))


def _read_exactly(source: BinaryIO, size: int) -> bytes:
    data = source.read(size)
    if len(data) < size:
        raise EOFError
    return data


def serve(requests: BinaryIO, answers: int, in_flight: int) -> None:
    """Answer requests until the parent closes the request pipe.

    Then exit the process. The memory of the process is limited, and Ctrl-C is left to the parent.

    Args:
        requests: The pipe of requests.
        answers: File descriptor of the pipe of answers.
        in_flight: File descriptor of the shared memory in which the child notes running tasks (see `InFlightRecord`).
    """
    # Ctrl-C reaches the whole process group. The parent handles it, and ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    limit_memory()
    hide_pandas()
    worker = _Worker(open(answers, "wb"), InFlightRecord(in_flight))  # noqa: SIM115 (open until the process exits)
    pool = ThreadPoolExecutor(1, initializer=worker.assign_slot)
    try:
        while True:
            request = read_frame(requests)
            if isinstance(request, SetEnvironment):
                os.environ.clear()
                os.environ.update(request.variables)
            elif isinstance(request, SetThreads):
                pool.shutdown()
                worker.reset_slots()
                pool = ThreadPoolExecutor(request.threads, initializer=worker.assign_slot)
            else:
                pool.submit(worker.answer, request)
    except EOFError:
        os._exit(0)  # Nobody waits for the running tasks.


class _Worker:
    """The object whose methods answer requests, on one or several threads."""

    def __init__(self, answers: BinaryIO, in_flight: InFlightRecord) -> None:
        self._answers = answers
        self._in_flight = in_flight
        self._lock = threading.Lock()
        self._thread = threading.local()
        self.reset_slots()

    def reset_slots(self) -> None:
        """Let `assign_slot` begin with slot 0 of the in-flight record again.

        Called when new threads replace the earlier ones, because the record has a fixed number of slots.
        """
        self._slots = count()

    def assign_slot(self) -> None:
        """Give the calling thread the next slot of the in-flight record.

        No other thread writes to this slot.
        """
        self._thread.slot = next(self._slots)

    def answer(self, request: RunTasks | StreamTask) -> None:
        """Answer one request.

        After an error outside of tasks, exit the process, so that the parent does not wait forever.
        """
        try:
            with count_io() as counter:
                if isinstance(request, RunTasks):
                    first, numbered_tasks = request.first, enumerate(request.tasks, request.first)
                    values = [self._outcome(number, request.function, task) for number, task in numbered_tasks]
                else:
                    first, values = request.number, [self._outcome(request.number, self._send_items, request)]
            self._send(TaskOutcomes(first, values, counter.counts()))
        except BaseException:  # noqa: BLE001 (any error ends this process)
            traceback.print_exc()
            os._exit(1)

    def _outcome(self, number: int, function: Callable[[Any], Any], task: Any) -> Any:
        """Return `function(task)`, or a RaisedError if the task raises an exception.

        While the task runs, the in-flight record has its number.
        """
        self._in_flight.begin(self._thread.slot, number)
        try:
            return function(task)
        except BaseException as error:  # noqa: BLE001 (native code may raise a BaseException)
            return RaisedError(portable_error(error), traceback.format_exc())
        finally:
            self._in_flight.end(self._thread.slot)

    def _send_items(self, request: StreamTask) -> None:
        for value in request.function(request.task):
            self._send(StreamItem(request.number, value))

    def _send(self, answer: TaskOutcomes | StreamItem) -> None:
        with self._lock:
            try:
                write_frame(self._answers, answer)
            except BrokenPipeError:
                os._exit(0)


def portable_error(error: BaseException) -> Exception:
    """Return an error in a form that survives pickling.

    It is a copy of the error if the error survives pickling. Otherwise, it is a ValueError with the error's class name
    and message.
    """
    try:
        copy = pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 (each class has its own way to fail at pickling)
        copy = None
    if isinstance(copy, Exception):
        return copy
    return ValueError(f"{type(error).__name__}: {error}")
