"""The memory limit of processes that read tables' files.

A small file may decompress to any size. The limit is RLIMIT_DATA. It counts private writable memory, but neither mapped
files nor shared memory. The environment variable `METASTORE_READER_MEMORY` sets the limit.
"""

from __future__ import annotations

import os
import re
import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from metastore_assets.errors import ConfigError

R = TypeVar("R")

VARIABLE = "METASTORE_READER_MEMORY"
"""Environment variable with the limit, such as `6g` or `512m`; `none` means no limit."""
_SHARE = 0.5
"""The share of the memory of the machine or cgroup that one process may use by default."""
_MAX_DEFAULT = 8 << 30
_MIN_DEFAULT = 1 << 30
"""The least default limit in bytes; `_MAX_DEFAULT` is the greatest one. Imported modules take about 200 MB."""
_UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_CGROUP = Path("/sys/fs/cgroup")


def limit_memory() -> None:
    """Set the memory limit of this process to the configured one, unless the current limit is lower.

    Raises ConfigError if the environment variable with the limit is invalid.
    """
    _set_limit(configured_limit())


@contextmanager
def limited_memory() -> Iterator[None]:
    """Limit the memory of this Spark worker during the block, and restore the old limit afterwards.

    Raises ConfigError if the environment variable with the limit is invalid.
    """
    before = resource.getrlimit(resource.RLIMIT_DATA)
    _set_limit(configured_limit(upper_bound=None))  # Users choose the memory of executors.
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def run_with_memory_limit(function: Callable[..., R], *arguments: Any) -> R:
    """Call a function in a `limited_memory` block, and return its result."""
    with limited_memory():
        return function(*arguments)


def _set_limit(limit: int | None) -> None:
    """Set the soft memory limit of this process to `limit` bytes.

    Nothing changes if `limit` is None, or greater than the current soft or hard limit.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    current_limits = [value for value in (soft, hard) if value != resource.RLIM_INFINITY]
    if limit is not None and all(limit <= value for value in current_limits):
        resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))


def configured_limit(upper_bound: int | None = _MAX_DEFAULT) -> int | None:
    """Return the memory limit in bytes that the environment variable sets; None for no limit.

    If the variable is not set, the limit is half of the memory of the machine or cgroup. This default is at least 1
    GiB, and at most `upper_bound`.

    Args:
        upper_bound: The greatest default in bytes; None for no bound.

    Raises:
        ConfigError: The variable is neither a size nor `none`.
    """
    text = os.environ.get(VARIABLE, "").strip().lower()
    if not text:
        share = max(int(_SHARE * machine_memory()), _MIN_DEFAULT)
        return share if upper_bound is None else min(share, upper_bound)
    if text == "none":
        return None
    match = re.fullmatch(r"(\d{1,18})([kmgt])b?", text)
    size = int(match[1]) * _UNITS[match[2]] if match is not None else 0
    if not 0 < size <= sys.maxsize:
        raise ConfigError(f"${VARIABLE} is {text!r}: write a size such as 6g or 512m, or `none` for no limit")
    return size


def machine_memory() -> int:
    """Return the memory in bytes of the machine, or of this process's cgroup if that has less."""
    sizes = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in _cgroup_files():
        try:
            text = path.read_text(encoding="ascii").strip()
        except (OSError, ValueError):
            continue
        if text.isdigit():  # Else it is `max`.
            sizes.append(int(text))
    return min(sizes)


def _cgroup_files() -> list[Path]:
    """Return the files that may have the memory limits of this process's cgroup and its parents.

    Both cgroups v1 and v2 are covered.
    """
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    files = []
    for line in lines:
        _, controllers, group = line.split(":", 2)
        if controllers in ("", "memory") or "memory" in controllers.split(","):
            root, name = (_CGROUP, "memory.max") if not controllers else (_CGROUP / "memory", "memory.limit_in_bytes")
            folder = root / group.lstrip("/")
            # In a container, the path may be the one on the host, of which only the root is visible.
            files += [parent / name for parent in (folder, *folder.parents) if parent.is_relative_to(root)]
    return files


def current_limit() -> int | None:
    """Return the limit in bytes of this process; None for no limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_DATA)
    return None if soft == resource.RLIM_INFINITY else soft


def memory_exceeded_clause(limit: int | None) -> str:
    """Return a clause for error messages: a file needs more memory than the limit.

    Args:
        limit: The limit in bytes; None if there was none.
    """
    if limit is None:
        return "it takes more memory than there is"
    size = f"{limit / (1 << 30):.1f} GiB" if limit >= 1 << 30 else f"{limit >> 20} MiB"
    return (
        f"it takes more than the {size} of memory that a process that reads files may take; if you trust the file, set "
        f"${VARIABLE} to more"
    )
