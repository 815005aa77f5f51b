"""Child processes that run isolated tasks.

They are started at first use, used by one caller at a time, and reused.

When the parent ends for any reason, the system closes its end of the request pipe, and the child then exits.
"""

from __future__ import annotations

import atexit
import io
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO

from metastore_assets.errors import MetastoreError
from metastore_assets.startup import python_command
from metastore_assets.storage.process_memory import configured_limit
from metastore_assets.storage.temporary_folders import remove_abandoned_folders
from metastore_assets.tasks.child_program import Request, SetEnvironment, read_frame, write_frame
from metastore_assets.tasks.in_flight import SIZE, InFlightRecord

_PROGRAM = (
    "import json, sys; requests, answers, in_flight = map(int, sys.argv[1:4]); requests = open(requests, 'rb');"
    "sys.path[:] = json.loads(requests.readline());"
    "from metastore_assets.tasks.child_program import serve; serve(requests, answers, in_flight)"
)
_TITLE = "reads the files of tables"
"""A command-line argument without effect, which explains the process in lists of processes."""
_MAX_IDLE = 2
"""Maximum number of idle children that stay for later callers."""
_OUT_OF_MEMORY = re.compile(r"memory allocation of \d+ bytes failed|std::bad_alloc|MemoryError|out of memory")
_EXIT_SECONDS = 5.0
"""Seconds that a child has to exit by itself before it is killed."""


class ChildProcessEnded(Exception):
    """The error that a child process ended before it answered."""

    def __init__(self, code: int, in_flight: dict[int, str], lines: Sequence[str] = ()) -> None:
        super().__init__(code)
        self.status = f"exit status {code}"
        """How the child ended: `exit status 1`, or for example `signal 11, segmentation fault`."""
        if code < 0:
            self.status = f"signal {-code}, {signal.strsignal(-code) or 'unknown'}".lower()
        self.was_killed = code in (-signal.SIGKILL, -signal.SIGTERM)
        """Whether SIGKILL or SIGTERM ended the child: another process sent it, perhaps the kernel for lack of memory.
        """
        self.in_flight = in_flight
        """What each running task was reading, by task number: a path, perhaps with a part of the file; "" if unknown.
        """
        self.last_line = lines[-1] if lines else "it wrote nothing"
        """The last line that the child, or a library in it, wrote."""
        self.was_out_of_memory = any(map(_OUT_OF_MEMORY.search, lines))
        """Whether the child, or a library in it, reported a failed allocation."""


@contextmanager
def acquire_child() -> Iterator[ChildProcess]:
    """Yield an idle or a new child for the exclusive use of the block.

    Any exception in the block ends the child.
    """
    with _lock:
        child = _idle.pop() if _idle else None
    child = child or ChildProcess()
    try:
        child.prepare()
        yield child
    except BaseException:
        # The next caller would receive answers to requests of this block.
        child.end(0)
        raise
    with _lock:
        is_reusable = len(_idle) < _MAX_IDLE
        if is_reusable:
            _idle.append(child)
    if not is_reusable:
        child.end()


class ChildProcess:
    """A running child process."""

    def __init__(self) -> None:
        """Start a child.

        Raises ConfigError for an invalid memory limit, and MetastoreError if the child does not start.
        """
        configured_limit()  # Raises ConfigError here, rather than in a child that does not start.
        _open_standard_streams()
        self._variables = dict(os.environ)
        self._log = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 (open as long as the child lives)
        self._shared = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
        try:
            self._shared.truncate(SIZE)
        except OSError as error:
            raise MetastoreError(
                f"the process that reads the files of tables cannot share a file of {SIZE:,} bytes: {error}; make room "
                f"in {tempfile.gettempdir()}, or raise `ulimit -f`"
            ) from error
        self._in_flight = InFlightRecord(self._shared.fileno())
        requests, self._requests = _pipe_to_child()
        self._answers, answers = _pipe_from_child()
        descriptors = (requests, answers, self._shared.fileno())
        try:
            self._process = subprocess.Popen(
                python_command("-c", _PROGRAM, *map(str, descriptors), _TITLE),
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                pass_fds=descriptors,
                env=self._variables,
            )
        except OSError as error:
            self._close()
            raise MetastoreError(f"the process that reads the files of tables does not start: {error}") from error
        finally:
            os.close(requests)
            os.close(answers)
        _running.add(self)
        with suppress(BrokenPipeError):  # The first request reports that the child has ended.
            self._requests.write(json.dumps([path for path in sys.path if isinstance(path, str)]).encode() + b"\n")
            self._requests.flush()

    def prepare(self) -> None:
        """Prepare the child for a new caller: send changed environment variables, and empty its log.

        Raises ChildProcessEnded if variables must be sent, and the child has ended.
        """
        self._log.truncate(0)
        self._log.seek(0)
        if os.environ != self._variables:
            self._variables = dict(os.environ)
            self.send(SetEnvironment(self._variables))

    def send(self, request: Request) -> None:
        """Send a request.

        Raises ChildProcessEnded if the child has ended.
        """
        try:
            write_frame(self._requests, request)
        except BrokenPipeError:
            raise self._ended_error() from None

    def receive(self) -> Any:
        """Wait for the next answer: TaskOutcomes or StreamItem.

        Raises ChildProcessEnded if the child ends before it has answered.
        """
        try:
            return read_frame(self._answers)
        except EOFError:
            raise self._ended_error() from None

    def end(self, seconds: float = _EXIT_SECONDS) -> None:
        """Close the pipes, so that the child exits.

        Kill it if it still runs after `seconds`.
        """
        _running.discard(self)
        self._close()
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def kill(self) -> None:
        """Kill the process from any thread.

        The thread that uses the child then gets ChildProcessEnded.
        """
        self._process.kill()

    def disown(self) -> None:
        """Close this process's ends of the pipes.

        The child continues. A process calls this method if it was forked from the process that started the child.
        """
        self._process.returncode = 0
        self._close()

    def _ended_error(self) -> ChildProcessEnded:
        code = self._process.wait()
        remove_abandoned_folders()
        self._log.seek(0)
        lines = [line for line in self._log.read().decode("utf-8", "replace").splitlines() if line.strip()]
        return ChildProcessEnded(code, self._in_flight.entries(), lines)

    def _close(self) -> None:
        for file in (self._requests, self._answers, self._shared, self._log):
            with suppress(BrokenPipeError):
                file.close()


def _open_standard_streams() -> None:
    """Open /dev/null for each standard stream that is closed.

    Otherwise, a new pipe would get descriptor 0, 1 or 2.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def _pipe_to_child() -> tuple[int, BinaryIO]:
    read, write = os.pipe()
    return read, open(write, "wb")


class _InterruptiblePipe(io.FileIO):
    """The reading end of a pipe.

    Ctrl-C and other signals interrupt a read that waits for data.
    """

    def readinto(self, buffer: Any) -> int | None:
        # Libraries such as Polars make the system restart reads after a signal. A poll is never restarted.
        waiting = select.poll()
        waiting.register(self, select.POLLIN)
        waiting.poll()
        return super().readinto(buffer)


def _pipe_from_child() -> tuple[BinaryIO, int]:
    read, write = os.pipe()
    return io.BufferedReader(_InterruptiblePipe(read)), write


_running: set[ChildProcess] = set()
_idle: list[ChildProcess] = []
_lock = threading.Lock()


@atexit.register
def _end_all() -> None:
    for child in list(_running):
        child.end()


def _disown_all() -> None:
    """Forget all children after a fork, because they belong to the parent process."""
    global _lock  # Another thread may have held it when the process was forked.
    _lock = threading.Lock()
    _idle.clear()
    for child in list(_running):
        child.disown()
    _running.clear()


os.register_at_fork(after_in_child=_disown_all)
