"""A cached property without a lock, for objects that several threads share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class lock_free_cached_property(Generic[T]):
    """A property that is computed at first use and then cached, without a lock.

    Two threads may compute the property at the same time; both get the object that was stored first. The
    `cached_property` of Python 3.11 has one lock for all objects of a class, so that threads with different objects
    would wait for each other.
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> lock_free_cached_property[T]: ...

    @overload
    def __get__(self, instance: object, owner: type) -> T: ...

    def __get__(self, instance: object | None, owner: type) -> lock_free_cached_property[T] | T:
        if instance is None:
            return self
        value: T = instance.__dict__.setdefault(self._name, self._compute(instance))
        return value
