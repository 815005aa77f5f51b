"""Modules that are imported when they are first used: large ones, that many processes come by without using them."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

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
