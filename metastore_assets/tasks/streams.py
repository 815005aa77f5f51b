"""Streams of the items that one task, or many tasks in parallel, yield in child processes.

Memory is bounded: a child waits while its pipe is full, and only a few items are buffered for the caller.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass
from itertools import islice
from queue import Empty, Queue
from typing import Any, Generic, TypeVar

from metastore_assets.errors import FatalFileError, MetastoreError
from metastore_assets.messages import join_names
from metastore_assets.storage.io_counters import add_io_counts
from metastore_assets.tasks.child_process import ChildProcess, ChildProcessEnded, acquire_child
from metastore_assets.tasks.child_program import SetThreads, StreamItem, StreamTask
from metastore_assets.tasks.isolation import (
    MAX_IDLE_CRASHES,
    IsolatedRunner,
    check_idle_crashes,
    crash_message,
    metadata_result,
    restore_error,
)
from metastore_assets.tasks.runner import with_arguments

T = TypeVar("T")


@dataclass(frozen=True)
class PathTask(Generic[T]):
    """A task, and the path of the file that it reads.

    If the file crashes the child, the error names this path.
    """

    path: str
    task: T


def stream_isolated(function: Callable[..., Iterator[Any]], path: str, *arguments: Any) -> Iterator[Any]:
    """Yield the items of `function(*arguments)`, which runs in a child process.

    If `function` crashes the child, TableFormatError is raised, which names the metadata file at `path`. Errors of the
    function are raised unchanged.
    """
    try:
        yield from _stream_child(with_arguments(function), iter([PathTask(path, arguments)]), 1, _ActiveChildren())
    except FatalFileError as error:
        metadata_result(error)


def stream_parallel(
    function: Callable[[T], Iterator[Any]], tasks: Iterable[PathTask[T]], processes: int, threads: int = 1
) -> Iterator[Any]:
    """Yield the items of `function(task)` for all tasks from child processes, in no particular order.

    If the caller closes the iterator, the children are killed, and no other task starts.

    Args:
        function: Called once per task in a child; yields picklable items.
        tasks: The tasks, which are sent to the children one by one.
        processes: Number of child processes, at least 1.
        threads: Number of tasks that each child runs at the same time.

    Raises:
        FatalFileError: A file crashed the child that read it.
        MetastoreError: A child crashed while it read several files, but none of these files crashes a child alone. Or a
            child repeatedly ended while it ran no task.
        Exception: The first exception that a task raised.
    """
    children = _ActiveChildren()
    remaining = _SharedIterator(tasks, children)
    if processes == 1:
        yield from _stream_child(function, remaining, threads, children)
        return
    items: Queue[_Message] = Queue(2 * processes)

    def work() -> None:
        """Put the items of one child's tasks into the queue, then a message about the end or an error."""
        message = _Message()
        try:
            for item in _stream_child(function, remaining, threads, children):
                if children.are_stopped:
                    return
                items.put(_Message(item, is_last=False))
        except BaseException as error:  # noqa: BLE001 (the caller's thread raises it)
            message = _Message(error=error)
        finally:
            # `stop` empties the queue, and each thread then adds at most two messages.
            items.put(message)

    for _ in range(processes):
        # A daemon thread: the process may exit while the caller has a stream that it no longer reads.
        threading.Thread(target=copy_context().run, args=(work,), daemon=True).start()
    try:
        running = processes
        while running:
            message = items.get()
            if message.error is not None:
                raise message.error
            if message.is_last:
                running -= 1
            else:
                yield message.item
    finally:
        children.stop()
        try:
            while True:
                items.get_nowait()
        except Empty:
            pass


@dataclass(frozen=True)
class _Message:
    """A message from a thread to the caller: an item, or the end of the thread with an error or none."""

    item: Any = None
    is_last: bool = True
    error: BaseException | None = None


class _StreamClosed(Exception):
    """Raised in a thread that waits for a child, after the caller has closed the stream."""


class _ActiveChildren:
    """The child processes that run tasks of one stream, so that `stop` can kill all of them.

    `stop` also works while other threads wait for an answer of a child. These threads then get _StreamClosed.
    """

    def __init__(self) -> None:
        self._children: set[ChildProcess] = set()
        self._lock = threading.Lock()
        self.are_stopped = False
        """Whether `stop` was called."""

    @contextmanager
    def register(self, child: ChildProcess) -> Iterator[None]:
        """Register a child during the block, so that `stop` can kill it.

        Raises _StreamClosed if `stop` was called before or during the block.
        """
        with self._lock:
            if self.are_stopped:
                raise _StreamClosed
            self._children.add(child)
        try:
            yield
        except ChildProcessEnded as ended:
            if self.are_stopped:
                raise _StreamClosed from ended
            raise
        finally:
            with self._lock:
                self._children.discard(child)
        if self.are_stopped:  # The child may be dead and must not be reused.
            raise _StreamClosed

    def stop(self) -> None:
        """Kill the registered children.

        After this call, `register` raises _StreamClosed.
        """
        with self._lock:
            self.are_stopped = True
            for child in self._children:
                child.kill()


class _SharedIterator(Generic[T]):
    """An iterator that several threads can use.

    It ends early after a call of `children.stop`.
    """

    def __init__(self, items: Iterable[T], children: _ActiveChildren) -> None:
        self._items = iter(items)
        self._children = children
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        with self._lock:
            if self._children.are_stopped:
                raise StopIteration
            return next(self._items)


def _stream_child(
    function: Callable[[T], Iterator[Any]], tasks: Iterator[PathTask[T]], threads: int, children: _ActiveChildren
) -> Iterator[Any]:
    """Yield the items of all tasks, from one child process at a time.

    If the child ends between tasks, another child runs the unfinished tasks. The iterator ends early after a call of
    `children.stop`.

    Args:
        function: Called once per task in the child.
        tasks: The tasks. The child gets `threads + 1` of them at a time, so that no thread waits for its next task.
        threads: Number of tasks that the child runs at the same time.
        children: Registers the child, so that the stream can be closed.

    Raises:
        FatalFileError: A child crashed while it ran one task. Or it crashed while it ran several tasks, and one of them
            also crashes a child that runs only this task.
        MetastoreError: A child crashed while it ran several tasks, and none of them alone crashes a child. Or three
            children ended while none of their threads was in a task. If the caller has already got items of an
            unfinished task, one such end is enough, because another run would yield these items again.
        Exception: The exception that a task raised.
    """
    running: dict[int, PathTask[T]] = {}
    # Tasks with items that the caller has received. Running such a task again would repeat these items.
    started_positions: set[int] = set()
    numbered_tasks = enumerate(tasks)
    idle_crashes = 0
    while True:
        try:
            with acquire_child() as child, children.register(child):
                child.send(SetThreads(threads))
                for number, task in running.items():
                    child.send(StreamTask(number, function, task.task))
                _start(child, function, running, islice(numbered_tasks, threads + 1 - len(running)))
                while running:
                    answer = child.receive()
                    if isinstance(answer, StreamItem):
                        started_positions.add(answer.number)
                        yield answer.value
                        continue
                    add_io_counts(answer.io_counts)
                    (outcome,) = map(restore_error, answer.values)
                    if isinstance(outcome, Exception):
                        raise outcome
                    del running[answer.first]
                    started_positions.discard(answer.first)
                    _start(child, function, running, islice(numbered_tasks, 1))
            return
        except _StreamClosed:
            return
        except ChildProcessEnded as ended:
            if ended.in_flight:
                raise _crash_error(function, running, ended) from ended
            idle_crashes = MAX_IDLE_CRASHES if started_positions else idle_crashes + 1
            check_idle_crashes(idle_crashes, ended)


def _start(
    child: ChildProcess,
    function: Callable[[T], Iterator[Any]],
    running: dict[int, PathTask[T]],
    tasks: Iterator[tuple[int, PathTask[T]]],
) -> None:
    """Send all `tasks`, given as (number, task), to a child that runs `function` on each.

    The tasks are added to `running`.
    """
    for number, task in tasks:
        running[number] = task
        child.send(StreamTask(number, function, task.task))


def _crash_error(
    function: Callable[[T], Iterator[Any]], running: dict[int, PathTask[T]], child_end: ChildProcessEnded
) -> MetastoreError:
    """Create the error about a crashed child.

    It names the file that caused the crash.

    If several tasks were running, each of them runs again alone to find the one that crashes. If none does, perhaps
    because together they took too much memory, the error is a MetastoreError that names all of them.

    Args:
        function: The function of the stream.
        running: The tasks that were sent to the child, by number.
        child_end: The error of the child, with the tasks that were running.
    """
    suspects = {number: running[number] for number in child_end.in_flight if number in running}
    if len(suspects) > 1:
        outcomes = IsolatedRunner().outcomes(
            _Exhaust(function),
            [suspect.task for suspect in suspects.values()],
            paths=[suspect.path for suspect in suspects.values()],
        )
        for outcome in outcomes:
            if isinstance(outcome, FatalFileError):
                return outcome
        names = join_names([suspect.path for suspect in suspects.values()])
        return MetastoreError(
            f"reading {len(suspects)} files at a time ended the process that read them ({child_end.status}), and none "
            f"of them does so alone: free some memory, and try again; they are {names}"
        )
    number, what = next(iter(child_end.in_flight.items()))
    path = running[number].path if number in running else what
    return FatalFileError(crash_message(what or path, child_end), path=path)


@dataclass(frozen=True)
class _Exhaust(Generic[T]):
    """A picklable function that runs a task, and drops the items that the task yields."""

    function: Callable[[T], Iterator[Any]]

    def __call__(self, task: T) -> None:
        for _ in self.function(task):
            pass
