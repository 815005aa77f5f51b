"""How a process starts: fast, and without code from the working folder."""

from __future__ import annotations

import atexit
import gc
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

_SAFE_PATH = "PYTHONSAFEPATH"
"""The environment variable that has Python leave the working folder out of its import path, as its option `-P` does."""


def python_command(*arguments: str) -> list[str]:
    """Return the command line of this Python with the given arguments.

    The process does not import modules from its working folder, which may hold the files of a table.
    """
    return [sys.executable or "python3", "-P", *arguments]


@contextmanager
def safe_import_path() -> Iterator[None]:
    """Have processes that start inside the block, and those that they start, import nothing from the working folder."""
    before = os.environ.get(_SAFE_PATH)
    os.environ[_SAFE_PATH] = "1"
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(_SAFE_PATH, None)
        else:
            os.environ[_SAFE_PATH] = before


def leave_working_folder() -> None:
    """Remove the working folder from the import path, where `python -m` put it.

    It stays where this package itself is imported from there, as in a checkout that is not installed.
    """
    package_parent = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    with suppress(FileNotFoundError):  # The folder is deleted: Python did not put it there.
        folder = os.getcwd()
        if not sys.flags.safe_path and sys.path[:1] == [folder] and folder != package_parent:
            del sys.path[0]


class _HidesPandas:
    """A finder of modules; `importlib.abc`, which has a class for them, imports forty more."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is hidden: see metastore_assets.startup", name=fullname)
        return None


_FINDER = _HidesPandas()


def hide_pandas() -> None:
    """Spare the import of pandas, which takes as long as all the rest of a start.

    pyarrow imports it, if it is there, at the first list it is given, to see whether the list is a pandas object.
    Nothing here is one.
    """
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)


def unhide_pandas() -> None:
    """Let pandas be imported again, by who really needs it."""
    if _FINDER in sys.meta_path:
        sys.meta_path.remove(_FINDER)


def leave_out_plugins() -> None:
    """Have pydantic not look for plugins in all installed packages, unless the environment says which it may."""
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")


def start_no_threads() -> None:
    """Have numpy's BLAS start no threads of its own, unless the environment says how many: one per core but one, each
    with memory that is cleared for it, and nothing here multiplies matrices."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def merge_in_one_thread() -> None:
    """Have Polars, once imported, work in the thread that asks, unless the environment says how many others it has.

    What a refresh merges in its own process is small: to hand it to threads takes as long as to merge it. What is large
    is merged by tasks, each of which has a core.
    """
    os.environ.setdefault("POLARS_MAX_THREADS", "1")


def collect_seldom() -> None:
    """Look for garbage in cycles less often: while modules are imported there is none, and looking is a tenth of it."""
    gc.set_threshold(400_000, 50, 100)


class QuickEnd:
    """Ends the process without taking apart all that was imported: all of its memory is given back in any case.

    Made before anything registers with `atexit`, so that its turn comes last: Python has waited for threads by then,
    and called whatever wants to be called at the end.
    """

    def __init__(self) -> None:
        self.status: int | None = None
        """What the process is to end with; while that is None, it ends as Python ends it."""
        atexit.register(self._end)

    def _end(self) -> None:
        if self.status is None:
            return
        try:
            for stream in (sys.stdout, sys.stderr):
                if stream is not None:
                    stream.flush()
        except (OSError, ValueError):
            return  # Python tries again, says what is wrong, and has a status for it.
        os._exit(self.status)


__all__ = ["LazyModule", "pc"]


class LazyModule(ModuleType):
    """Stands for a module, and has its attributes. Threads may share it: each import is Python's own."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)  # what tools ask of every module must not import this one
        value = getattr(import_module(self.__name__), name)
        setattr(self, name, value)
        return value


if TYPE_CHECKING:
    import pyarrow.compute as pc
else:
    pc = LazyModule("pyarrow.compute")
    """Arrow's kernels: 30 ms of functions made one by one, which who reads a few numbers does without."""
