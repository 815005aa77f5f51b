"""How much memory a process that reads foreign files may take: a file of some kilobytes may unpack to any number.

The limit is of RLIMIT_DATA, which counts what a process may write to, and neither mapped files nor what it shares.
"""

from __future__ import annotations

import os
import re
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from metastore_assets.errors import ConfigError

R = TypeVar("R")

VARIABLE = "METASTORE_READER_MEMORY"
"""Names the most memory of such a process, as `6g` or `512m`; `none`: no limit."""
_SHARE = 0.5
"""Of the memory of the machine, or of the cgroup, that one process may take."""
_MOST = 8 << 30
_LEAST = 1 << 30
"""Bounds of the share. What is imported takes a fifth of the least."""
_UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_CGROUP = Path("/sys/fs/cgroup")


def limit_memory() -> None:
    """Limit this process, unless it has a lower limit. Raises ConfigError for a value of the variable that is none."""
    _set_limit(configured_limit())


@contextmanager
def limited_memory() -> Iterator[None]:
    """Limit a worker of Spark inside the block, to what is configured, or else to its share of the memory.

    What an executor has is given to it on purpose, so the share has no upper bound. Raises ConfigError.
    """
    before = resource.getrlimit(resource.RLIMIT_DATA)
    _set_limit(configured_limit(most=None))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def run_with_memory_limit(function: Callable[..., R], *arguments: Any) -> R:
    """Return what the function does, called in a worker of Spark with `limited_memory`."""
    with limited_memory():
        return function(*arguments)


def _set_limit(limit: int | None) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    present = [own for own in (soft, hard) if own != resource.RLIM_INFINITY]
    if limit is not None and all(limit <= own for own in present):
        resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))


def configured_limit(most: int | None = _MOST) -> int | None:
    """Return the most bytes that a process that reads files may take; None: any number. Raises ConfigError."""
    text = os.environ.get(VARIABLE, "").strip().lower()
    if not text:
        share = max(int(_SHARE * machine_memory()), _LEAST)
        return share if most is None else min(share, most)
    if text == "none":
        return None
    found = re.fullmatch(r"(\d+)([kmgt])b?", text)
    if found is None or not int(found[1]):
        raise ConfigError(f"${VARIABLE} is {text!r}: write a size such as 6g or 512m, or `none` for no limit")
    return int(found[1]) * _UNITS[found[2]]


def machine_memory() -> int:
    """Return the bytes of memory of the machine, or of this process's cgroup where that has less."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in _cgroup_files():
        try:
            text = path.read_text(encoding="ascii").strip()
        except (OSError, ValueError):
            continue
        if text.isdigit():  # Else it is `max`.
            found.append(int(text))
    return min(found)


def _cgroup_files() -> list[Path]:
    """The files that may limit this process's memory, of both versions of cgroups: its own and those above it."""
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        _, controllers, group = line.split(":", 2)
        if controllers in ("", "memory") or "memory" in controllers.split(","):
            root, name = (_CGROUP, "memory.max") if not controllers else (_CGROUP / "memory", "memory.limit_in_bytes")
            folder = root / group.lstrip("/")
            # In a container the path may be that of the host, of which only the root is to be seen.
            found += [parent / name for parent in (folder, *folder.parents) if parent.is_relative_to(root)]
    return found


def current_limit() -> int | None:
    """Return the most bytes that this process may take; None: any number."""
    soft, _ = resource.getrlimit(resource.RLIMIT_DATA)
    return None if soft == resource.RLIM_INFINITY else soft


def memory_exceeded_clause(limit: int | None) -> str:
    """Return, as a clause, that a file takes more memory than a process under a limit has, and what to do."""
    if limit is None:
        return "it takes more memory than there is"
    size = f"{limit / (1 << 30):.1f} GiB" if limit >= 1 << 30 else f"{limit >> 20} MiB"
    return (
        f"it takes more than the {size} of memory that a process that reads files may take; if you trust the file, set "
        f"${VARIABLE} to more"
    )
