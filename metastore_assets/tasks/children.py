"""Child processes that read files for this one: started when needed, lent to one caller at a time, kept for the next.

They end with this process, whichever way it ends: then there is nobody at the other end of their pipes.
"""

from __future__ import annotations

import atexit
import json
import os
import re
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
from metastore_assets.tasks.child import Environment, Request, read_frame, write_frame
from metastore_assets.tasks.in_flight import SIZE, Crumbs

_PROGRAM = (
    "import json, sys; requests, answers, crumbs = map(int, sys.argv[1:4]); requests = open(requests, 'rb');"
    "sys.path[:] = json.loads(requests.readline());"
    "from metastore_assets.tasks.child import serve; serve(requests, answers, crumbs)"
)
_TITLE = "reads the files of tables"
"""Nothing but what lists of processes show."""
_MOST_IDLE = 2
"""Children that are kept for later."""
_OUT_OF_MEMORY = re.compile(r"memory allocation of \d+ bytes failed|std::bad_alloc|MemoryError|out of memory")
_PATIENCE = 5.0
"""Seconds that a child has to end by itself."""


class ChildEnded(Exception):
    """Raised when a child is gone."""

    def __init__(self, code: int, reading: dict[int, str], lines: Sequence[str] = ()) -> None:
        super().__init__(code)
        self.how = f"exit status {code}"
        """Or `signal 11, segmentation fault`."""
        if code < 0:
            self.how = f"signal {-code}, {signal.strsignal(-code) or 'unknown'}".lower()
        self.was_killed = code in (-signal.SIGKILL, -signal.SIGTERM)
        """By somebody else, perhaps for want of memory."""
        self.reading = reading
        """What it was reading by the number of the task: a file, perhaps with the part of it, or empty."""
        self.said = lines[-1] if lines else "it wrote nothing"
        """The last line that it, or a library in it, wrote."""
        self.was_out_of_memory = any(map(_OUT_OF_MEMORY.search, lines))
        """Whether it, or a library in it, says that it ended for want of memory."""


@contextmanager
def lent() -> Iterator[Child]:
    """A child for oneself. Whatever is raised, Ctrl-C included, ends it: what it would answer next nobody knows."""
    with _lock:
        child = _idle.pop() if _idle else None
    child = child or Child()
    try:
        child.prepare()
        yield child
    except BaseException:
        child.end(0)
        raise
    with _lock:
        is_kept = len(_idle) < _MOST_IDLE
        if is_kept:
            _idle.append(child)
    if not is_kept:
        child.end()


class Child:
    """A running child."""

    def __init__(self) -> None:
        configured_limit()  # What is wrong with it is said here, and not by a child that does not start.
        _occupy_standard_streams()
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
        self._crumbs = Crumbs(self._shared.fileno())
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
        with suppress(BrokenPipeError):  # Whoever asks for something is told.
            self._requests.write(json.dumps([path for path in sys.path if isinstance(path, str)]).encode() + b"\n")
            self._requests.flush()

    def prepare(self) -> None:
        """Make it a child of this process as it is now. Raises ChildEnded."""
        self._log.truncate(0)
        self._log.seek(0)
        if os.environ != self._variables:
            self._variables = dict(os.environ)
            self.send(Environment(self._variables))

    def send(self, request: Request) -> None:
        """Ask for something. Raises ChildEnded."""
        try:
            write_frame(self._requests, request)
        except BrokenPipeError:
            raise self._ended() from None

    def receive(self) -> Any:
        """The next answer, Outcomes or Part. Raises ChildEnded."""
        try:
            return read_frame(self._answers)
        except EOFError:
            raise self._ended() from None

    def end(self, patience: float = _PATIENCE) -> None:
        """Let it go; after so many seconds end it."""
        _running.discard(self)
        self._close()
        try:
            self._process.wait(patience)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def forget(self) -> None:
        """In a fork of the process that started it: it is not ours."""
        self._process.returncode = 0
        self._close()

    def _ended(self) -> ChildEnded:
        code = self._process.wait()
        remove_abandoned_folders()
        self._log.seek(0)
        lines = [line for line in self._log.read().decode("utf-8", "replace").splitlines() if line.strip()]
        return ChildEnded(code, self._crumbs.found(), lines)

    def _close(self) -> None:
        for file in (self._requests, self._answers, self._shared, self._log):
            with suppress(BrokenPipeError):
                file.close()


def _occupy_standard_streams() -> None:
    """Where they are closed, as in some daemons, a pipe would get their numbers, and what is written to them."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def _pipe_to_child() -> tuple[int, BinaryIO]:
    read, write = os.pipe()
    return read, open(write, "wb")


def _pipe_from_child() -> tuple[BinaryIO, int]:
    read, write = os.pipe()
    return open(read, "rb"), write


_running: set[Child] = set()
_idle: list[Child] = []
_lock = threading.Lock()


@atexit.register
def _end_all() -> None:
    for child in list(_running):
        child.end()


def _forget_all() -> None:
    global _lock  # Another thread may have held it when the process was forked.
    _lock = threading.Lock()
    _idle.clear()
    for child in list(_running):
        child.forget()
    _running.clear()


os.register_at_fork(after_in_child=_forget_all)
