"""Functions that run an action, or simulate a kill, before a refresh's n-th change of files.

The refresh runs in this process.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.produce.killable_store import KilledError

_CALLS = ("replace", "link", "unlink")
"""The functions of `os` that make files appear and disappear."""


@contextmanager
def at_change(root: Path, number: int, action: Callable[[], object]) -> Iterator[None]:
    """During the block, call `action` before change number `number` (from 0) of the files below a folder."""
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
    """Simulate a kill in the block at change `number` (from 0) of the files below a folder.

    The change raises `KilledError`, which ends the block. Every later change of any file fails too, so that exception
    handlers cannot change files. The yielded list is empty until the change is reached. A block with fewer changes ends
    normally.
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
def _around_calls(wrapper: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Iterator[None]:
    """During the block, replace each function that changes files by the result of `wrapper` for it."""
    with ExitStack() as stack:
        for name in _CALLS:
            stack.enter_context(patch.object(os, name, wrapper(getattr(os, name))))
        yield
