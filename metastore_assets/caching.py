"""Caches that threads share: a cached property without a lock, and a cache of limited size."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")
Key = TypeVar("Key", bound=Hashable)


class SizedCache(Generic[Key, T]):
    """A cache of the most recently used values, limited by their total size.

    Threads can share it.
    """

    def __init__(self, max_bytes: int, size: Callable[[T], int], max_count: int | None = None) -> None:
        """Create a cache.

        Args:
            max_bytes: Maximum size of all values.
            size: Returns the size of a value in bytes.
            max_count: Maximum number of values; None means any number.
        """
        self.max_bytes = max_bytes
        self._size = size
        self._max_count = max_count
        self._values: OrderedDict[Key, T] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()

    def get(self, key: Key) -> T | None:
        """Return a value, or None if it is not cached."""
        with self._lock:
            value = self._values.get(key)
            if value is not None:
                self._values.move_to_end(key)
            return value

    def put(self, key: Key, value: T) -> None:
        """Cache a value in place of an earlier value of the key.

        The least recently used values are then dropped until the cache is within its limits. A value larger than
        `max_bytes` is not cached, and an earlier value of the key is dropped nevertheless.
        """
        size = self._size(value)
        with self._lock:
            if (earlier := self._values.pop(key, None)) is not None:
                self._bytes -= self._size(earlier)
            if size > self.max_bytes:
                return
            self._values[key] = value
            self._bytes += size
            while self._bytes > self.max_bytes or (self._max_count is not None and len(self._values) > self._max_count):
                self._bytes -= self._size(self._values.popitem(last=False)[1])

    def clear(self) -> None:
        """Remove all values."""
        with self._lock:
            self._values.clear()
            self._bytes = 0


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
