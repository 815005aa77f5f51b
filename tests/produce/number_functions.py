"""Produce functions over numbers, for the stages of random graphs.

A Produce function maps the values of a source key to rows of target keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import zip_longest

KEYS = 8
"""The number of different keys that a root may have."""
Numbers = Callable[..., Iterable[tuple[int, int]]]
"""A function from a key, and one list of values per port, to pairs (target key, value)."""


def identity(key: int, *ports: list[int]) -> Iterator[tuple[int, int]]:
    return ((key, value) for port in ports for value in port)


def modulo(key: int, *ports: list[int]) -> Iterator[tuple[int, int]]:
    return ((key % 3, value) for port in ports for value in port)


def by_value(key: int, *ports: list[int]) -> Iterator[tuple[int, int]]:
    return ((value % 5, key) for port in ports for value in port)


def count(key: int, *ports: list[int]) -> Iterator[tuple[int, int]]:
    """Emit one row.

    Its target key is the number of values modulo 6, and its value is the source key.
    """
    yield sum(map(len, ports)) % 6, key


def aggregate(key: int, *ports: list[int]) -> Iterator[tuple[int, int]]:
    yield key % 2, sum(sum(port) for port in ports)


def filtered(key: int, *ports: list[int]) -> Iterator[tuple[int, int]]:
    return ((key, value) for port in ports for value in port if value % 3)


def fan_out(key: int, *ports: list[int]) -> Iterator[tuple[int, int]]:
    for port in ports:
        for value in port:
            yield from (((key + 3 * copy) % KEYS, value + copy) for copy in range(value % 3))


def first_only(key: int, *ports: list[int]) -> Iterator[tuple[int, int]]:
    return ((key, port[0]) for port in ports[:1] if port)


def presence(key: int, *ports: list[int]) -> Iterator[tuple[int, int]]:
    yield key, sum(bool(port) << number for number, port in enumerate(ports))


def inner_join(key: int, left: list[int], right: list[int], *more: list[int]) -> Iterator[tuple[int, int]]:
    if not all(more):
        return iter(())
    return ((key, one + 7 * other) for one in left for other in right)


def left_join(key: int, left: list[int], right: list[int], *more: list[int]) -> Iterator[tuple[int, int]]:
    return ((key, one + 7 * other) for one in left for other in right or [11])


def full_join(key: int, *ports: list[int]) -> Iterator[tuple[int, int]]:
    return ((key, sum(row)) for row in zip_longest(*ports, fillvalue=5))


def anti_join(key: int, left: list[int], right: list[int], *more: list[int]) -> Iterator[tuple[int, int]]:
    return iter(()) if right or any(more) else ((key, value) for value in left)


ANY_PORTS: tuple[Numbers, ...] = (
    identity,
    modulo,
    by_value,
    count,
    aggregate,
    filtered,
    fan_out,
    first_only,
    presence,
)
JOINS: tuple[Numbers, ...] = (inner_join, left_join, full_join, anti_join)
