"""Runs an action, or a kill, before the n-th write of a refresh in this process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.produce.killable_store import KilledError

_CALLS = ("replace", "link", "unlink")
"""What makes files appear and disappear."""


@contextmanager
def at_change(root: Path, number: int, action: Callable[[], object]) -> Iterator[None]:
    """Do something before the n-th change, from 0, of what lies below a folder."""
    changes = 0

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def change(*arguments: Any, **options: Any) -> Any:
            nonlocal changes
            if Path(arguments[-1]).is_relative_to(root):
                changes += 1
                if changes == number + 1:
                    action()
            return call(*arguments, **options)

        return change

    with _around_calls(counted):
        yield


@contextmanager
def killed_at(root: Path, number: int) -> Iterator[list[bool]]:
    """What is done here ends before its n-th change, from 0, below a folder, and changes nothing from then on: no
    handler does, as none would of a process that is killed. What is yielded is not empty when it came to that.
    """
    dead: list[bool] = []

    def die() -> None:
        dead.append(True)
        raise KilledError

    def unless_dead(call: Callable[..., Any]) -> Callable[..., Any]:
        def change(*arguments: Any, **options: Any) -> Any:
            if dead:
                raise KilledError
            return call(*arguments, **options)

        return change

    try:
        with _around_calls(unless_dead), at_change(root, number, die):
            yield dead
    except KilledError:
        assert dead
    else:
        assert not dead, "a kill was swallowed"


@contextmanager
def _around_calls(wrapped: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Iterator[None]:
    """The calls that change what is stored, as `wrapped` makes them."""
    with ExitStack() as stack:
        for name in _CALLS:
            stack.enter_context(patch.object(os, name, wrapped(getattr(os, name))))
        yield
