"""What pruning answers: fragments to read, why others need not be read, and what it cost and saves."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PrunedFragment:
    """A fragment that has to be read."""

    path: str
    """Of its data file, as the version has it."""
    partition_key: str
    bytes: int
    row_count: int
    """Live rows."""
    least: int
    """At least and at most so many of them the predicate is true of, both inclusive. `most` is at least 1."""
    most: int


@dataclass(frozen=True)
class Elimination:
    """A fragment that need not be read."""

    path: str
    conjunct: str
    """The part of the predicate that is true of none of its rows."""
    statistic: str
    """What tells: `minimum`, `maximum`, `null_count`, `nan_count`, `partition` (what is known of the values of its
    partition), `membership` (the filter of its values); several, where only all of them do."""
    value: str | None
    """Of that statistic in the fragment, as it is written in predicates."""


@dataclass(frozen=True)
class Receipt:
    """What one conjunct has eliminated by one statistic: what no conjunct before it had."""

    conjunct: str
    statistic: str
    fragments: int
    bytes: int


@dataclass(frozen=True)
class Cost:
    """What was read to find out."""

    files: int
    bytes: int
