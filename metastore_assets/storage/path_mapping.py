"""Moved tables: recorded locations that exist no more, mapped to where the files lie now."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_ORIGIN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(//[^/]*)?(?=/)")
"""Scheme and authority in front of an absolute path."""


def path_of(uri: str) -> str:
    """The path alone: `hdfs://host:20500/a/b`, `file:/a/b`, `file:///a/b` and `/a/b` are all `/a/b`."""
    return _ORIGIN.sub("", uri, count=1)


@dataclass(frozen=True)
class Relocation:
    """Ordered pairs (recorded prefix, prefix now), the longest recorded prefix first."""

    pairs: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, mapping: Mapping[str, str]) -> Relocation:
        """From what a configuration or a command line says; trailing slashes do not count."""
        pairs = [(old.rstrip("/"), new.rstrip("/")) for old, new in mapping.items()]
        return cls(tuple(sorted(pairs, key=lambda pair: -len(pair[0]))))

    def __call__(self, uri: str) -> str:
        """Where a recorded path or URI lies now: itself, when no prefix of it was given.

        A prefix ends at a path segment. One that is given as a path alone fits whatever scheme and authority.
        """
        for old, new in self.pairs:
            for recorded in (uri, path_of(uri)):
                if recorded == old or recorded.startswith(f"{old}/"):
                    return new + recorded[len(old) :]
        return uri
