"""How files are read where that takes long: in children of this process, unless whoever plans has others to do it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol


class Runner(Protocol):
    """Reads many files at a time."""

    def __call__(
        self,
        function: Callable[..., Any],
        tasks: Sequence[tuple[Any, ...]],
        paths: Sequence[str],
        sizes: Sequence[int],
        *,
        threads: int,
    ) -> list[Any]:
        """`[function(*task) for task in tasks]`, each of which reads the file of that path and size in its place.

        What a task raised stands where its result would: a FatalFileError when it ended the process that read it.
        `threads` tasks run at a time where they run in this process's children.
        """


def run_in_children(
    function: Callable[..., Any],
    tasks: Sequence[tuple[Any, ...]],
    paths: Sequence[str],
    sizes: Sequence[int],
    *,
    threads: int,
) -> list[Any]:
    """A Runner that is always at hand."""
    from metastore_assets.tasks.reading import read_all  # looking for commits needs no children

    return read_all(function, tasks, paths, threads=threads)
