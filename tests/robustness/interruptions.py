"""What may happen between any two writes of a refresh in this process: it dies there, or another one overtakes it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.produce.mortal import KilledError

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

    patches = [patch.object(os, name, counted(getattr(os, name))) for name in _CALLS]
    for each in patches:
        each.start()
    try:
        yield
    finally:
        for each in patches:
            each.stop()


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

    patches = [patch.object(os, name, unless_dead(getattr(os, name))) for name in _CALLS]
    for each in patches:
        each.start()
    try:
        with at_change(root, number, die):
            yield dead
    except KilledError:
        assert dead
    else:
        assert not dead, "a kill was swallowed"
    finally:
        for each in patches:
            each.stop()
