"""Read foreign files apart, in a child process: what is in a file may end the process that reads it.

No native reader of foreign files is called where a table is planned: it is called by what is asked for here. A child
serves one caller at a time, is kept for the next one, and ends with this process. Functions and arguments, credentials
among them, go to it through a pipe.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from metastore_assets.errors import FatalFileError, MetastoreError, TableFormatError
from metastore_assets.storage.io_counters import add_io_counts
from metastore_assets.storage.process_memory import configured_limit, memory_exceeded_clause
from metastore_assets.tasks.child import Part, Parts, Raised, Share, Start
from metastore_assets.tasks.children import ChildEnded, lent

_MOST_DEATHS = 200
"""Times that a child may end, twice for each file at fault, before the rest of what was asked for is given up."""
_MOST_SILENT = 3
"""Times that a child may end without reading anything."""


def read_all(
    function: Callable[..., Any],
    tasks: Sequence[tuple[Any, ...]],
    paths: Sequence[str],
    *,
    threads: int = 1,
    share: int = 1,
) -> list[Any]:
    """`[function(*task) for task in tasks]`, each of which reads the file at the path in its place.

    What a task raised stands where its result would: a FatalFileError when it ended the child that was at nothing else.
    A child that was killed from outside is believed when that happens again. `threads` tasks run at a time; a thread is
    given `share` tasks at once.
    """
    outcomes: dict[int, Any] = {}
    suspects: list[int] = []
    deaths = silent = 0
    while left := [place for place in range(len(tasks)) if place not in outcomes]:
        if deaths == _MOST_DEATHS:
            return [outcomes.get(place, _given_up(path)) for place, path in enumerate(paths)]
        alone = suspects[:1]
        places = alone or left
        try:
            with lent() as child:
                child.send(Start(1 if alone else threads))
                for first, last in _shares(places, share):
                    child.send(Share(first, function, tasks[first:last]))
                for _ in _shares(places, share):
                    answer = child.receive()
                    add_io_counts(answer.traffic)
                    outcomes |= enumerate(map(_restored, answer.values), answer.first)
        except ChildEnded as ended:
            deaths += 1
            if list(ended.reading) == places and (alone or not ended.was_killed):
                (place,) = places
                path = paths[place]
                outcomes[place] = FatalFileError(_fatal(ended.reading[place] or path, ended), path=path)
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
    return told(outcome)


def told(outcome: Any) -> Any:
    """What a task of `read_all` came to, or what it raised: a TableFormatError when it ended the child."""
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
            with lent() as child:
                child.send(Start(1))
                child.send(Parts(function, arguments))
                while isinstance(answer := child.receive(), Part):
                    silent = _MOST_SILENT  # It cannot be begun again any more.
                    yield answer.value
                add_io_counts(answer.traffic)
                (outcome,) = map(_restored, answer.values)
        except ChildEnded as ended:
            if ended.reading:
                raise TableFormatError(_fatal(ended.reading[0] or path, ended)) from ended
            silent += 1
            _check_silent(silent, ended)
            continue
        told(outcome)
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


def _fatal(what: str, ended: ChildEnded) -> str:
    if ended.was_out_of_memory:
        return (
            f"reading {what} ended the process that read it ({ended.how}): {memory_exceeded_clause(configured_limit())}"
        )
    more = ", or takes more memory than there is" if ended.how.startswith("signal 9,") else ""
    return (
        f"reading {what} ended the process that read it ({ended.how}): the file is damaged in a way its reader does "
        f"not survive{more}; mend or remove it"
    )


def _given_up(path: str) -> FatalFileError:
    return FatalFileError(
        f"{path} was not read: {_MOST_DEATHS} times other files of the table ended the process that read them; mend or "
        "remove those first",
        path=path,
    )


def _check_silent(times: int, ended: ChildEnded) -> None:
    if times >= _MOST_SILENT:
        raise MetastoreError(
            f"the process that reads the files of tables ended while it read none ({ended.how}): {ended.said}"
        ) from ended
