"""The runner of tasks in a child process, in which a crash becomes an error about one file.

Native code that reads files of tables runs only in child processes, never in the process that plans a refresh.
Functions and tasks, which may contain credentials, are sent to the child through a pipe.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from metastore_assets.errors import FatalFileError, MetastoreError, TableFormatError
from metastore_assets.storage.io_counters import add_io_counts
from metastore_assets.storage.process_memory import configured_limit, memory_exceeded_clause
from metastore_assets.tasks.child_process import ChildProcessEnded, acquire_child
from metastore_assets.tasks.child_program import RaisedError, RunTasks, SetThreads
from metastore_assets.tasks.runner import TaskBatch, TaskRunner, with_arguments

T = TypeVar("T")

TEXT_THREADS = 4
"""Number of CSV or JSON files that one child reads at the same time. Each needs memory for some blocks of text."""
_MAX_CRASHES = 200
"""Number of crashes in one call after which the remaining tasks fail without being run. One file may cause two."""
MAX_IDLE_CRASHES = 3
"""Number of times that the child may end while it runs no task. Then the call raises MetastoreError."""


class IsolatedRunner(TaskRunner):
    """A runner of tasks in a child process.

    A crash of the child fails only the task that caused it.

    The outcome of this task is a FatalFileError. To find the task, all tasks that were running at the crash run again,
    each one alone.
    """

    def __init__(self, threads: int = 1, chunk_size: int = 1) -> None:
        """Configure the child.

        Args:
            threads: Tasks that the child runs at the same time.
            chunk_size: Number of tasks in one message: more than 1 for tasks of a few microseconds.
        """
        self._threads = threads
        self._chunk_size = chunk_size

    @property
    def parallelism(self) -> int:
        return self._threads

    def _run(self, function: Callable[[T], Any], batch: TaskBatch[T]) -> list[Any]:
        """Run the tasks in a child process.

        Return their outcomes, in the order of the tasks.

        After a crash, the tasks that were running are repeated first, each one alone. The other tasks follow. After
        `_MAX_CRASHES` crashes, no task runs any more: the outcome of each unfinished task is a FatalFileError.
        """
        tasks = batch.tasks
        paths = batch.paths if batch.paths is not None else [f"task {number}" for number in range(len(tasks))]
        outcomes: dict[int, Any] = {}
        suspects: list[int] = []  # tasks that were in flight at a crash and have no outcome yet
        crashes = idle_crashes = 0
        while pending := [number for number in range(len(tasks)) if number not in outcomes]:
            if crashes == _MAX_CRASHES:
                return [outcomes.get(number, _unread_error(path)) for number, path in enumerate(paths)]
            suspect = suspects[:1]
            numbers = suspect or pending
            try:
                with acquire_child() as child:
                    child.send(SetThreads(1 if suspect else self._threads))
                    for first, last in _chunks(numbers, self._chunk_size):
                        child.send(RunTasks(first, function, tasks[first:last]))
                    for _ in _chunks(numbers, self._chunk_size):
                        answer = child.receive()
                        add_io_counts(answer.io_counts)
                        outcomes |= enumerate(map(restore_error, answer.values), answer.first)
            except ChildProcessEnded as ended:
                crashes += 1
                # A task is blamed if it was running alone. If another process killed the child, perhaps the kernel for
                # lack of memory, the task gets one more attempt.
                if len(numbers) == 1 and list(ended.in_flight) == numbers and (suspect or not ended.was_killed):
                    (number,) = numbers
                    path = paths[number]
                    outcomes[number] = FatalFileError(crash_message(ended.in_flight[number] or path, ended), path=path)
                elif not ended.in_flight:
                    idle_crashes += 1
                    check_idle_crashes(idle_crashes, ended)
                suspects += [number for number in ended.in_flight if number not in suspects]
            suspects = [number for number in suspects if number not in outcomes]
        return [outcomes[number] for number in range(len(tasks))]


def run_isolated(function: Callable[..., Any], path: str, *arguments: Any) -> Any:
    """Call `function(*arguments)` in a child process, and return the result.

    Args:
        function: Reads the metadata file at `path`.
        path: The file that an error about a crash names.
        arguments: Picklable arguments of the function.

    Raises:
        TableFormatError: The function crashed the child.
        Exception: The exception that the function raises.
    """
    (outcome,) = IsolatedRunner().outcomes(with_arguments(function), [arguments], paths=[path])
    return metadata_result(outcome)


def metadata_result(outcome: Any) -> Any:
    """Return the outcome of a task that read a metadata file.

    If it is an exception, raise it.

    A FatalFileError is raised as a TableFormatError, because the table cannot be read without the metadata.
    """
    if isinstance(outcome, FatalFileError):
        raise TableFormatError(str(outcome)) from outcome
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def _chunks(numbers: Sequence[int], max_size: int) -> Iterator[tuple[int, int]]:
    """Split ascending numbers into ranges of at most `max_size` consecutive numbers.

    A range is (first inclusive, last exclusive). `numbers` must not be empty.
    """
    first = last = numbers[0]
    for number in numbers:
        if number != last or last - first == max_size:
            yield first, last
            first = last = number
        last += 1
    yield first, last


def restore_error(value: Any) -> Any:
    """Return the outcome of a task from the value that a child sent.

    For a RaisedError, the outcome is the exception in it, with the child's traceback as its cause. Any other value is
    returned unchanged.
    """
    if not isinstance(value, RaisedError):
        return value
    # The standard library's process pools show a remote traceback in this way.
    value.error.__cause__ = _RemoteTraceback(f"\n{value.trace}")
    return value.error


class _RemoteTraceback(Exception):
    """The traceback of an error in the child, as text.

    It is the cause of the error that the parent raises.
    """


def crash_message(what: str, child_end: ChildProcessEnded) -> str:
    """Return the error message about a child that ended while it read `what`: a file, or part of a file."""
    prefix = f"reading {what} ended the process that read it ({child_end.status})"
    if child_end.was_out_of_memory:
        return f"{prefix}: {memory_exceeded_clause(configured_limit())}"
    memory = ", or takes more memory than there is" if child_end.status.startswith("signal 9,") else ""
    return f"{prefix}: the file is damaged in a way that its reader does not survive{memory}; mend or remove it"


def _unread_error(path: str) -> FatalFileError:
    return FatalFileError(
        f"{path} was not read: {_MAX_CRASHES} times other files of the table ended the process that read them; mend or "
        "remove those first",
        path=path,
    )


def check_idle_crashes(times: int, child_end: ChildProcessEnded) -> None:
    """Raise MetastoreError if child processes ended `MAX_IDLE_CRASHES` times while they ran no task.

    Args:
        times: How often this has happened. A caller that cannot try again passes `MAX_IDLE_CRASHES`.
        child_end: The error about the child that ended last.
    """
    if times >= MAX_IDLE_CRASHES:
        raise MetastoreError(
            f"the process that reads the files of tables ended while it read none ({child_end.status}): "
            f"{child_end.last_line}"
        ) from child_end
