"""What threads share without waiting for each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class lock_free_cached_property(Generic[T]):
    """An attribute that is computed at its first use, and the same object for all from then on.

    `functools.cached_property` of Python 3.11 lets one thread at a time compute an attribute, of all objects together,
    so that readers of different tables wait for each other's files. Here threads may compute it twice.
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, owner: None, kind: type) -> lock_free_cached_property[T]: ...

    @overload
    def __get__(self, owner: object, kind: type) -> T: ...

    def __get__(self, owner: object | None, kind: type) -> lock_free_cached_property[T] | T:
        if owner is None:
            return self
        value: T = owner.__dict__.setdefault(self._name, self._compute(owner))
        return value
