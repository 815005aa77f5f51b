"""Read foreign files apart, in a child process: what is in a file may end the process that reads it.

No native reader of foreign files is called where a table is planned: it is called by what is asked for here. A child
serves one caller at a time, is kept for the next one, and ends with this process. Functions and arguments, credentials
among them, go to it through a pipe.
"""

from __future__ import annotations

import atexit
import json
import mmap
import os
import signal
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO

from metastore_assets.errors import FatalFileError, FragmentError, MetastoreError, TableFormatError
from metastore_assets.formats.child import (
    CRUMBS_BYTES,
    Environment,
    Part,
    Parts,
    Raised,
    Share,
    Start,
    read_frame,
    write_frame,
)

_PROGRAM = (
    "import json, sys; requests, answers, crumbs = map(int, sys.argv[1:4]); requests = open(requests, 'rb');"
    "sys.path[:] = json.loads(requests.readline());"
    "from metastore_assets.formats.child import serve; serve(requests, answers, crumbs)"
)
_TITLE = "reads the files of tables"
"""Nothing but what lists of processes show."""
_MOST_IDLE = 2
"""Children that are kept for later."""
_MOST_FATAL = 100
"""Files that may end their reader before the rest of those that were asked for with them is given up."""
_MOST_SILENT = 3
"""Times that a child may end without reading anything."""
_PATIENCE = 5.0
"""Seconds that a child has to end by itself."""


def read_all(
    function: Callable[..., Any],
    tasks: Sequence[tuple[Any, ...]],
    paths: Sequence[str],
    *,
    threads: int = 1,
    share: int = 1,
) -> list[Any]:
    """`[function(*task) for task in tasks]`, each of which reads the file at the path in its place.

    What a task raised stands where its result would: a FatalFileError when it ended the child twice, the second time
    as all that the child was doing. `threads` tasks run at a time; a thread is given `share` tasks at once.
    """
    outcomes: dict[int, Any] = {}
    suspects: list[int] = []
    fatal: list[str] = []
    silent = 0
    while len(outcomes) < len(tasks):
        if len(fatal) == _MOST_FATAL:
            for place in set(range(len(tasks))) - set(outcomes):
                outcomes[place] = _given_up(paths[place], fatal)
            break
        alone = suspects[:1]
        places = alone or [place for place in range(len(tasks)) if place not in outcomes]
        try:
            with _borrowed() as child:
                child.send(Start(1 if alone else threads))
                for first, last in _shares(places, share):
                    child.send(Share(first, function, tasks[first:last]))
                for _ in _shares(places, share):
                    answer = child.receive()
                    outcomes |= enumerate(map(_restored, answer.values), answer.first)
        except _ChildEnded as ended:
            if alone and ended.reading == alone:
                path = paths[alone[0]]
                fatal.append(path)
                outcomes[alone[0]] = FatalFileError(_fatal(path, ended.how), path=path)
            elif not ended.reading:
                silent += 1
                _check_silent(silent, ended)
            suspects += [place for place in ended.reading if place not in suspects]
        suspects = [place for place in suspects if place not in outcomes]
    return [outcomes[place] for place in range(len(tasks))]


def read_one(function: Callable[..., Any], path: str, *arguments: Any) -> Any:
    """`function(*arguments)`, which reads the metadata file at `path`, or what it raises.

    Raises TableFormatError when that ends the child.
    """
    (outcome,) = read_all(function, [arguments], [path])
    if isinstance(outcome, FatalFileError):
        raise TableFormatError(str(outcome)) from outcome
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def read_parts(function: Callable[..., Iterator[Any]], path: str, *arguments: Any) -> Iterator[Any]:
    """What `function(*arguments)` yields, which reads the metadata file at `path`, and raises what it raises.

    Parts come as they are asked for: the child waits. Raises TableFormatError when it ends.
    """
    silent = 0
    while True:
        try:
            with _borrowed() as child:
                child.send(Start(1))
                child.send(Parts(function, arguments))
                while isinstance(answer := child.receive(), Part):
                    silent = _MOST_SILENT  # It cannot be begun again any more.
                    yield answer.value
                (outcome,) = map(_restored, answer.values)
        except _ChildEnded as ended:
            if ended.reading:
                raise TableFormatError(_fatal(path, ended.how)) from ended
            silent += 1
            _check_silent(silent, ended)
            continue
        if isinstance(outcome, Exception):
            raise outcome
        return


def _shares(places: Sequence[int], most: int) -> Iterator[tuple[int, int]]:
    """Ranges, first inclusive and last exclusive, of at most so many consecutive places."""
    first = last = places[0]
    for place in places:
        if place != last or last - first == most:
            yield first, last
            first = last = place
        last += 1
    yield first, last


def _restored(value: Any) -> Any:
    if not isinstance(value, Raised):
        return value
    # As the traceback of an error from another process is shown by the standard library's pools.
    value.error.__cause__ = _Elsewhere(f"\n{value.trace}")
    return value.error


class _Elsewhere(Exception):
    """The traceback of an error that was raised in the child, as text."""


def _fatal(path: str, how: str) -> str:
    more = ", or takes more memory than there is" if how.startswith("signal 9,") else ""
    return (
        f"reading {path} ended the process that read it ({how}): the file is damaged in a way its reader does not "
        f"survive{more}; mend or remove it"
    )


def _given_up(path: str, fatal: Sequence[str]) -> FragmentError:
    return FatalFileError(
        f"{path} was not read: {len(fatal)} other files of the table ended the process that read them, the first "
        f"{fatal[0]}; mend or remove those",
        path=path,
    )


def _check_silent(times: int, ended: _ChildEnded) -> None:
    if times >= _MOST_SILENT:
        raise MetastoreError(
            f"the process that reads the files of tables ended while it read none ({ended.how}): {ended.said}"
        ) from ended


class _ChildEnded(Exception):
    """Raised when the child is gone: how it ended, the numbers of the tasks that it was at, what it wrote last."""

    def __init__(self, how: str, reading: list[int], said: str) -> None:
        super().__init__(how)
        self.how = how
        self.reading = reading
        self.said = said


def _pipe_to_child() -> tuple[int, BinaryIO]:
    read, write = os.pipe()
    return read, open(write, "wb")


def _pipe_from_child() -> tuple[BinaryIO, int]:
    read, write = os.pipe()
    return open(read, "rb"), write


class _Child:
    """A running child."""

    def __init__(self) -> None:
        self._variables = dict(os.environ)
        self._log, self._crumbs_file = (tempfile.TemporaryFile(buffering=0) for _ in range(2))
        self._crumbs_file.truncate(CRUMBS_BYTES)
        self._crumbs = mmap.mmap(self._crumbs_file.fileno(), CRUMBS_BYTES)
        requests, self._requests = _pipe_to_child()
        self._answers, answers = _pipe_from_child()
        descriptors = (requests, answers, self._crumbs_file.fileno())
        try:
            self._process = subprocess.Popen(
                [sys.executable or "python3", "-c", _PROGRAM, *map(str, descriptors), _TITLE],
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
        _children.add(self)
        with suppress(BrokenPipeError):  # Whoever asks next is told.
            self._requests.write(json.dumps([path for path in sys.path if isinstance(path, str)]).encode() + b"\n")
            self._requests.flush()

    def prepare(self) -> None:
        """Make it a child of this process as it is now."""
        self._log.truncate(0)
        self._log.seek(0)
        if os.environ != self._variables:
            self._variables = dict(os.environ)
            self.send(Environment(self._variables))

    def send(self, request: Environment | Start | Share | Parts) -> None:
        """Send a request. Raises _ChildEnded."""
        try:
            write_frame(self._requests, request)
        except BrokenPipeError:
            raise self._ended() from None

    def receive(self) -> Any:
        """The next answer, Outcomes or Part. Raises _ChildEnded."""
        try:
            return read_frame(self._answers)
        except EOFError:
            raise self._ended() from None

    def end(self, patience: float = _PATIENCE) -> None:
        """Let it go, or after some seconds end it."""
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

    def _ended(self) -> _ChildEnded:
        code = self._process.wait()
        how = f"signal {-code}, {signal.strsignal(-code) or 'unknown'}".lower() if code < 0 else f"exit status {code}"
        reading = [number - 1 for number in memoryview(self._crumbs).cast("Q") if number]
        self._log.seek(0)
        lines = self._log.read().decode("utf-8", "replace").split("\n")
        return _ChildEnded(how, reading, next((line for line in reversed(lines) if line.strip()), "it wrote nothing"))

    def _close(self) -> None:
        for file in (self._requests, self._answers, self._crumbs_file, self._log):
            with suppress(BrokenPipeError):
                file.close()


_children: weakref.WeakSet[_Child] = weakref.WeakSet()
_idle: list[_Child] = []
_lock = threading.Lock()


@contextmanager
def _borrowed() -> Iterator[_Child]:
    """A child for oneself. Whatever is raised, Ctrl-C included, ends it: what it would answer next nobody knows."""
    with _lock:
        child = _idle.pop() if _idle else None
    child = child or _Child()
    try:
        child.prepare()
        yield child
    except BaseException:
        child.end(0)
        raise
    with _lock:
        keep = len(_idle) < _MOST_IDLE
        if keep:
            _idle.append(child)
    if not keep:
        child.end()


@atexit.register
def _end_all() -> None:
    for child in list(_children):
        child.end()


def _forget_all() -> None:
    global _lock  # Another thread may have held it when the process was forked.
    _lock = threading.Lock()
    _idle.clear()
    for child in list(_children):
        child.forget()
    _children.clear()


os.register_at_fork(after_in_child=_forget_all)
