"""Functions for the start of a process: they protect imports from the working folder, and save time.

METASTORE_PLAIN_STARTUP=1 turns off everything that saves time, here and in `spark.jvm`. Comments give the measured
gains: medians of 9 or 15 pairs of starts on two cores.
"""

from __future__ import annotations

import atexit
import dataclasses
import gc
import operator
import os
import reprlib
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

T = TypeVar("T")

__all__ = [
    "PLAIN_VARIABLE",
    "FastExit",
    "LazyModule",
    "allow_pandas",
    "call_with_frame_memory",
    "collect_garbage_seldom",
    "disable_pydantic_plugins",
    "freeze_objects",
    "hide_pandas",
    "is_plain",
    "lazy_module",
    "limit_blas_threads",
    "limit_polars_threads",
    "pc",
    "python_command",
    "remove_working_folder",
    "safe_import_path",
    "share_dataclass_methods",
]

PLAIN_VARIABLE = "METASTORE_PLAIN_STARTUP"
"""Environment variable that turns off everything that makes the start faster, if it is neither empty nor 0."""
_FEW_OBJECTS = 20_000
"""With at most this many objects, `freeze_objects` does nothing. Imported modules alone are over 100,000 objects."""
_SAFE_PATH = "PYTHONSAFEPATH"
"""Environment variable that keeps the working folder out of Python's import path, as the option `-P` does."""


def python_command(*arguments: str) -> list[str]:
    """Return a command line that runs this Python with some arguments.

    The process imports no modules from its working folder, which may contain files of a table.
    """
    return [sys.executable or "python3", "-P", *arguments]


@contextmanager
def safe_import_path() -> Iterator[None]:
    """Keep the working folder out of the import path of processes that start in the block.

    The same holds for their child processes.
    """
    before = os.environ.get(_SAFE_PATH)
    os.environ[_SAFE_PATH] = "1"
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(_SAFE_PATH, None)
        else:
            os.environ[_SAFE_PATH] = before


def remove_working_folder() -> None:
    """Remove the working folder, which `python -m` adds, from the import path of this process.

    It stays if this package itself is imported from there, as in a checkout that is not installed.
    """
    package_parent = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    with suppress(FileNotFoundError):  # The folder is deleted: Python did not put it there.
        folder = os.getcwd()
        if not sys.flags.safe_path and sys.path[:1] == [folder] and folder != package_parent:
            del sys.path[0]


def is_plain() -> bool:
    """Return whether METASTORE_PLAIN_STARTUP turns off everything that makes the start faster."""
    return os.environ.get(PLAIN_VARIABLE, "") not in ("", "0")


class _PandasBlocker:
    """An import finder that makes `import pandas` fail."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is hidden: see metastore_assets.startup", name=fullname)
        return None


_PANDAS_BLOCKER = _PandasBlocker()


def hide_pandas() -> None:
    """Make `import pandas` fail, so that pyarrow does not import it.

    Does nothing with METASTORE_PLAIN_STARTUP.
    """
    # Measured: 506 ms of CPU until the first array of pyarrow, 173 ms with this.
    # pyarrow imports pandas to check for its objects. Processes of this package have none.
    if not is_plain() and _PANDAS_BLOCKER not in sys.meta_path:
        sys.meta_path.insert(0, _PANDAS_BLOCKER)


def allow_pandas() -> None:
    """Undo `hide_pandas`, for PySpark, which needs pandas."""
    if _PANDAS_BLOCKER in sys.meta_path:
        sys.meta_path.remove(_PANDAS_BLOCKER)


class LazyModule(ModuleType):
    """A stand-in for a module, which is imported when one of its attributes is first used.

    Threads may share it.
    """

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)  # Tools ask every module for these names: they must not import this one.
        value = getattr(import_module(self.__name__), name)
        setattr(self, name, value)
        return value


def lazy_module(name: str) -> Any:
    """Return a module that is imported at its first use, for large modules that many processes never use.

    With METASTORE_PLAIN_STARTUP, it is imported immediately.
    """
    return import_module(name) if is_plain() else LazyModule(name)


if TYPE_CHECKING:
    import pyarrow.compute as pc
else:
    # Measured: 208 ms of CPU to import pyarrow with its compute functions, 164 ms without.
    pc = lazy_module("pyarrow.compute")
    """Arrow's compute functions."""


def disable_pydantic_plugins() -> None:
    """Keep pydantic from searching all installed packages for plugins.

    It still searches if the environment selects plugins.
    """
    # Measured: 154 ms of CPU to import pydantic and define a model, 146 ms with this; more with more packages.
    if not is_plain():
        os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")


def limit_blas_threads() -> None:
    """Keep numpy's BLAS from starting threads, unless the environment sets their number."""
    # Measured on two cores: 127 ms of CPU to import numpy, 93 ms with this.
    if not is_plain():
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def limit_polars_threads() -> None:
    """Limit Polars to one thread, unless the environment sets a number.

    Call it before Polars is imported.
    """
    # Measured: 269 ms of CPU for 300 small sums, 247 ms with this.
    if not is_plain():
        os.environ.setdefault("POLARS_MAX_THREADS", "1")


def collect_garbage_seldom() -> None:
    """Run the garbage collector less often."""
    # Measured: 1.00 s of CPU to import what a refresh needs, 0.92 s with this.
    if not is_plain():
        gc.set_threshold(400_000, 50, 100)


def freeze_objects() -> None:
    """Exclude all existing objects, such as imported modules, from garbage collection.

    Nothing is excluded if the objects are few. Python workers of Spark call this before each task.
    """
    # PySpark collects garbage after each task. Measured: visiting the modules takes 60 ms of CPU, thirty times the work
    # of a small task.
    if not is_plain() and len(gc.get_objects()) > _FEW_OBJECTS:
        gc.freeze()


def call_with_frame_memory(function: Callable[[], T]) -> T:
    """Call a function and return its result.

    Its nested calls do not allocate memory for their Python frames.

    The 512 KB for these frames are allocated before the call. They suffice for a depth of about 3,000 calls.
    """
    # Measured: 492 ms of CPU for `metastore top`, 474 ms with this.
    # CPython stores frames in chunks of 16 KB. A loop whose calls cross the end of a chunk maps and unmaps memory at
    # each call, which takes 7 us. The frame of `_call` is so large that its chunk has a size of 1 MB.
    return function() if is_plain() else _call(function)


def _call(function: Callable[[], T]) -> T:
    return function()


_call.__code__ = _call.__code__.replace(co_stacksize=1 << 16)


_PACKAGE = "metastore_assets"
"""The package whose dataclasses `share_dataclass_methods` changes. It leaves those of other packages alone."""
_STANDARD_DATACLASS = dataclasses.dataclass


def share_dataclass_methods() -> None:
    """Let dataclasses of this package that are imported later share `__repr__`, `__eq__` and `__hash__`.

    The methods return the same results as those of standard dataclasses.
    """
    # Measured: 545 ms of CPU for `metastore show`, 514 ms with this.
    # The standard decorator writes source code of each method, and Python compiles it.
    if not is_plain():
        dataclasses.dataclass = _dataclass  # type: ignore[assignment]


def _dataclass(cls: type | None = None, /, **parameters: Any) -> Any:
    """Do the same as `dataclasses.dataclass`, but compile no code for `__repr__` and `__eq__`.

    The parameters are the same. Classes outside of this package, and classes with `order` or `unsafe_hash`, get the
    standard decorator.
    """
    if cls is None:
        return lambda decorated_class: _dataclass(decorated_class, **parameters)
    package = cls.__module__.partition(".")[0]
    if package != _PACKAGE or parameters.get("order") or parameters.get("unsafe_hash"):
        return _STANDARD_DATACLASS(cls, **parameters)
    has_eq = "__eq__" in cls.__dict__
    # Python sets `__hash__` to None in a class that defines `__eq__` only.
    has_hash = "__hash__" in cls.__dict__ and not (has_eq and cls.__dict__["__hash__"] is None)
    created_class: Any = _STANDARD_DATACLASS(cls, **{**parameters, "repr": False, "eq": False})
    if parameters.get("repr", True) and "__repr__" not in cls.__dict__:
        created_class.__repr__ = _dataclass_repr
    if parameters.get("eq", True):
        fields = dataclasses.fields(created_class)
        values = _values_getter([field.name for field in fields if field.compare])
        if not has_eq:
            created_class.__eq__ = _equality(values)
        if not has_hash and parameters.get("frozen"):
            get_hashed_values = _values_getter([f.name for f in fields if (f.compare if f.hash is None else f.hash)])
            created_class.__hash__ = lambda self: hash(get_hashed_values(self))
        elif not has_hash:
            created_class.__hash__ = None
    return created_class


def _values_getter(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that returns the values of some attributes as a tuple."""
    if len(names) > 1:
        return operator.attrgetter(*names)
    return lambda self: tuple(getattr(self, name) for name in names)


def _equality(values: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any, Any], bool]:
    """Return the method `__eq__` of a dataclass.

    `values` returns the compared values of an object. The method returns the same results as that of a standard
    dataclass of this version of Python.
    """
    if sys.version_info >= (3, 13):
        # Standard dataclasses compare field by field. Tuples regard a NaN as equal to itself.
        return lambda self, other: (
            self is other or all(map(operator.eq, values(self), values(other)))
            if other.__class__ is self.__class__
            else NotImplemented
        )
    return lambda self, other: values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented


@reprlib.recursive_repr()
def _dataclass_repr(self: Any) -> str:
    fields = (f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self) if field.repr)
    return f"{type(self).__qualname__}({', '.join(fields)})"


class FastExit:
    """A hook that ends the process faster at its exit, without destroying modules and objects.

    The constructor registers the hook with `atexit`. Call it before anything else is registered there, so that the
    hook runs last.

    The hook has no effect while the attribute `status` is None, or if `is_plain()` is true.
    """

    # Measured: 394 ms of CPU to import what commands need and end, 279 ms with this.

    def __init__(self) -> None:
        self.status: int | None = None
        """The exit status. While it is None, Python ends the process in its own way."""
        atexit.register(self._exit)

    def _exit(self) -> None:
        """End the process immediately, if `status` is set and the standard streams can be flushed."""
        if self.status is None or is_plain():
            return
        try:
            for stream in (sys.stdout, sys.stderr):
                if stream is not None:
                    stream.flush()
        except (OSError, ValueError):
            return  # Python flushes again, reports the error, and has an exit status for it.
        os._exit(self.status)
