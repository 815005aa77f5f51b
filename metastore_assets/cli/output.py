"""Where answers go: JSON for programs, tables and pictures for people. Both print the same answers.

An answer is what the command's JSON holds, so that nothing is shown to a person that a program cannot get.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import click

if TYPE_CHECKING:
    from metastore_assets.cli.page import Page

Answer = Mapping[str, Any]
"""A JSON object."""


class Output(Protocol):
    """Prints the answers of the commands to stdout."""

    @property
    def draws(self) -> bool:
        """Whether `statistics` shows distributions, so that they have to be looked up."""

    @property
    def default_bins(self) -> int | None:
        """How many bins `histogram` is best given; None for all there are."""

    def tables(self, rows: Sequence[Answer]) -> None:
        """The configured tables."""

    def refreshed(self, result: Answer, *, every: bool = False) -> None:
        """What a refresh did, or would do; of a plan with `every` partition by name, or for people some of many."""

    def backfill(self, result: Answer) -> None:
        """What a backfill did, or would do."""

    def failed(self, subject: Answer, message: str) -> None:
        """One of several subjects failed; the message is on stderr already."""

    def statistics(self, answer: Answer, shapes: Mapping[str, Sequence[int]], chosen: bool = False) -> None:
        """The statistics of columns. `shapes`: by column, the frequencies of a few bins, for a small picture.

        Of columns that were `chosen` by name, nothing is left out.
        """

    def partitions(self, subject: Answer, rows: Sequence[Answer]) -> None:
        """The partitions of a version."""

    def top(self, subject: Answer, values: Sequence[Answer]) -> None:
        """The most frequent values of a column. `subject` is the column's statistics in a `show`."""

    def histogram(self, subject: Answer, bins: Sequence[Answer]) -> None:
        """The bins of a column. `subject` is the column's statistics in a `show`."""

    def quantiles(self, subject: Answer, rows: Sequence[Answer]) -> None:
        """Quantiles of a column, as they were asked for. `subject` is the column's statistics in a `show`."""

    def rank(self, subject: Answer, answer: Answer) -> None:
        """The rank of a value. `subject` is the column's statistics in a `show`."""

    def where(self, subject: Answer, rows: Sequence[Answer]) -> None:
        """The partitions that hold a value. `subject` is the column's statistics in a `show`."""

    def pruned(self, answer: Answer) -> None:
        """What a predicate leaves of a table's files."""

    def estimated(self, answer: Answer) -> None:
        """About how many rows a predicate is true of."""

    def counted(self, answer: Answer) -> None:
        """How many rows a predicate is true of."""

    def compacted(self, result: Answer) -> None:
        """What became of the files of lists."""

    def versions(self, rows: Sequence[Answer]) -> None:
        """The published versions of a table, the newest first."""

    def expired(self, result: Answer) -> None:
        """What was removed."""

    def purged(self, result: Answer) -> None:
        """What was removed at once."""

    def verified(self, result: Answer) -> None:
        """What was compared with the table, and what differs."""

    def answer(self, document: object, draw: Callable[[Page], None]) -> None:
        """A document for programs, which people see as `draw` prints it."""

    def checked(self, result: Answer) -> None:
        """What became of trying the laws of a user-defined statistic."""

    def checks(self, answer: Answer) -> None:
        """What the checks of a table found."""

    def suggested(self, answer: Answer) -> None:
        """Checks that could be configured."""


class JsonOutput:
    """One JSON document per line."""

    draws = False
    default_bins = None

    def tables(self, rows: Sequence[Answer]) -> None:
        """A list."""
        _write(rows)

    def refreshed(self, result: Answer, *, every: bool = False) -> None:
        """An object per table."""
        _write(result)

    def backfill(self, result: Answer) -> None:
        """An object."""
        _write(result)

    def failed(self, subject: Answer, message: str) -> None:
        """The subject and the error as an object."""
        _write({**subject, "error": message})

    def statistics(self, answer: Answer, shapes: Mapping[str, Sequence[int]], chosen: bool = False) -> None:
        """An object."""
        _write(answer)

    def partitions(self, subject: Answer, rows: Sequence[Answer]) -> None:
        """A list."""
        _write(rows)

    def top(self, subject: Answer, values: Sequence[Answer]) -> None:
        """A list, the most frequent value first."""
        _write(values)

    def histogram(self, subject: Answer, bins: Sequence[Answer]) -> None:
        """A list by increasing minimum."""
        _write(bins)

    def quantiles(self, subject: Answer, rows: Sequence[Answer]) -> None:
        """A list in the order asked for."""
        _write(rows)

    def rank(self, subject: Answer, answer: Answer) -> None:
        """An object."""
        _write(answer)

    def where(self, subject: Answer, rows: Sequence[Answer]) -> None:
        """A list in the order of partitions."""
        _write(rows)

    def pruned(self, answer: Answer) -> None:
        """An object."""
        _write(answer)

    def estimated(self, answer: Answer) -> None:
        """An object."""
        _write(answer)

    def counted(self, answer: Answer) -> None:
        """An object."""
        _write(answer)

    def compacted(self, result: Answer) -> None:
        """An object."""
        _write(result)

    def versions(self, rows: Sequence[Answer]) -> None:
        """A list, the newest version first."""
        _write(rows)

    def expired(self, result: Answer) -> None:
        """An object."""
        _write(result)

    def purged(self, result: Answer) -> None:
        """An object."""
        _write(result)

    def verified(self, result: Answer) -> None:
        """An object."""
        _write(result)

    def answer(self, document: object, draw: Callable[[Page], None]) -> None:
        """The document."""
        _write(document)

    def checked(self, result: Answer) -> None:
        """An object."""
        _write(result)

    def checks(self, answer: Answer) -> None:
        """An object."""
        _write(answer)

    def suggested(self, answer: Answer) -> None:
        """An object."""
        _write(answer)


def _write(document: object) -> None:
    # Outside UTF-8 every other character is escaped, which JSON allows and every terminal can print.
    unicode = (sys.stdout.encoding or "ascii").lower().replace("-", "") == "utf8"
    click.echo(json.dumps(document, ensure_ascii=not unicode, allow_nan=False))
    sys.stdout.flush()
