"""Summaries of CSV files: the types that the values of each column fit.

They are cached as JSON. A hidden column is one whose values the configuration hides.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import astuple, dataclass, replace
from functools import lru_cache
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa

from metastore_assets.formats.files.csv.blocks import RowBlock
from metastore_assets.formats.files.csv.header import FirstRow
from metastore_assets.formats.files.csv.options import CsvOptions
from metastore_assets.formats.files.csv.quotes import Backslashes
from metastore_assets.formats.files.csv.texts import blank_texts, replace_null_texts
from metastore_assets.formats.files.csv.types import ALL, CANDIDATES, SHOWN, RuledOut, misfits

_TYPE_NUMBERS = {type_: number for number, type_ in enumerate(CANDIDATES)}

Types = frozenset[pa.DataType]


@dataclass(frozen=True)
class ColumnSummary:
    """The types that the values of one column of a file fit."""

    name: str
    types: Types = ALL
    """The types that all values fit. Without values, these are all candidates."""
    ruled_out: tuple[RuledOut, ...] = ()
    """For each other type except the null type, the first value that does not fit."""

    def with_values(self, texts: pa.StringArray, block: RowBlock, first: int, options: CsvOptions) -> ColumnSummary:
        """Return a summary that includes more values of the column.

        Args:
            texts: the values.
            block: the block that contains the values. It gives the line numbers for messages.
            first: index of the first value's row among the rows of the block: 1 if the block's first row is left out.
            options: how the file is written.
        """
        texts = replace_null_texts(texts, options)
        mismatches = misfits(texts, self.types, empty_fits=options.empty_is_null)
        types = self.types - mismatches.keys()
        if texts.null_count < len(texts):
            types -= {pa.null()}
        if types == self.types:
            return self
        mismatch = [
            RuledOut(type_, texts[mismatches[type_]].as_py()[:SHOWN], block.line_of(first + mismatches[type_]))
            for type_ in CANDIDATES
            if type_ in mismatches
        ]
        return replace(self, types=types, ruled_out=(*self.ruled_out, *mismatch))

    def with_blank_lines(self, count: int, options: CsvOptions) -> ColumnSummary:
        """Return a summary that includes the `count` blank lines with which the file begins.

        Each line is a value of the column: null or an empty text, depending on the options.
        """
        if not count:
            return self
        first_line = np.zeros(1, np.int64)
        block = RowBlock(b"", 1, first_line, first_line, 1, None, count, frozenset(), None)
        return self.with_values(blank_texts(1, options), block, 0, options)

    def without_values(self) -> ColumnSummary:
        """Return the summary without the recorded values that do not fit a type.

        Their line numbers remain.
        """
        return replace(self, ruled_out=tuple(replace(mismatch, text=None) for mismatch in self.ruled_out))


@dataclass(frozen=True)
class CsvSummary:
    """Row count and columns of one CSV file, with evidence about its header, backslashes and blank lines."""

    row_count: int
    columns: tuple[ColumnSummary, ...]
    """In file order. If `first_row` is not None, they include the first row as values."""
    first_row: FirstRow | None = None
    """The first row, if no option says whether it is a header; else None."""
    has_header: bool | None = None
    """Whether the first row is detected as a header. None if that is ambiguous, or if an option says it."""
    headed: tuple[ColumnSummary, ...] = ()
    """The columns under the assumption that the first row is a header."""
    backslashes: Backslashes | None = None
    """The evidence of whether backslashes are escapes; None if the file has none, or if an option decides."""
    blank_lines: int = 0
    """Number of blank lines before the first row. They are rows if the first row is no header. In a file of blank
    lines, these are all lines."""

    def without_values(self, is_hidden: Callable[[str], bool]) -> CsvSummary:
        """Return the summary without values of hidden columns; the same object if it has no such values.

        A first row that was detected not to be a header consists of values. It is left out if any column is hidden.

        Args:
            is_hidden: returns whether the column with a name is hidden. It is called with two names of each column: its
                text in the first row, and its name if there is no header, such as `f0`. The column is hidden if the
                result is true for at least one of them.
        """
        named_columns = self.headed or self.columns
        are_hidden = [
            is_hidden(column.name) or is_hidden(named_column.name)
            for column, named_column in zip(self.columns, named_columns, strict=True)
        ]
        columns, headed_columns = (
            tuple(column.without_values() if hide else column for column, hide in zip(part, are_hidden, strict=False))
            for part in (self.columns, self.headed)
        )
        # A first row that is no header consists of values.
        is_row = any(are_hidden) and self.has_header is False and self.first_row is not None
        if not is_row and columns == self.columns and headed_columns == self.headed:
            return self
        if is_row:
            return replace(self, columns=columns, headed=(), first_row=None)
        return replace(self, columns=columns, headed=headed_columns)

    def resolved(self, has_header: bool | None) -> CsvSummary:
        """Return the summary of the rows without the header, once the caller knows whether there is one.

        If `first_row` is set and is a header, the result leaves out this row and the blank lines before it. Otherwise,
        the result is this object.

        Args:
            has_header: whether the first row is a header. None, for a file without rows, has the effect of False.
        """
        if self.first_row is None or not has_header:
            return self
        return CsvSummary(self.row_count - 1 - self.blank_lines, self.headed)


def encode_summary(summary: CsvSummary) -> bytes:
    """Serialize a summary as JSON."""
    first = summary.first_row
    # `headed` repeats most of `columns`, but few summaries have both.
    fields = {
        "rows": summary.row_count,
        "columns": [_encode_column(column) for column in summary.columns],
        "headed": [_encode_column(column) for column in summary.headed],
        "header": summary.has_header,
        "first": first
        and {
            "cells": first.cells,
            "typed": first.has_types,
        },
        "backslashes": summary.backslashes and astuple(summary.backslashes),
        "blank": summary.blank_lines,
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_summary(data: bytes) -> CsvSummary:
    """Parse a serialized summary.

    Raises ValueError, LookupError or TypeError for invalid bytes.
    """
    fields = json.loads(data)
    first = fields["first"]
    return CsvSummary(
        fields["rows"],
        tuple(map(_decode_column, fields["columns"])),
        first and FirstRow(tuple(first["cells"]), first["typed"]),
        fields["header"],
        tuple(map(_decode_column, fields["headed"])),
        fields["backslashes"] and Backslashes(*fields["backslashes"]),
        fields["blank"],
    )


def _encode_column(column: ColumnSummary) -> list[Any]:
    # One value often rules out many types, so it is stored once for all of them.
    groups = groupby(column.ruled_out, lambda mismatch: (mismatch.text, mismatch.line))
    ruled_out = [[_encode_types(mismatch.type for mismatch in group), *value] for value, group in groups]
    return [column.name, _encode_types(column.types), *ruled_out]


def _decode_column(column: list[Any]) -> ColumnSummary:
    name, types, *ruled_out = column
    mismatch = [RuledOut(type_, text, line) for bits, text, line in ruled_out for type_ in _decode_ordered_types(bits)]
    return ColumnSummary(name, _decode_types(types), tuple(mismatch))


def _encode_types(types: Iterable[pa.DataType]) -> int:
    """Encode a set of candidate types as an integer with one bit per type."""
    return sum(1 << _TYPE_NUMBERS[type_] for type_ in types)


@lru_cache(maxsize=4096)
def _decode_ordered_types(bits: int) -> tuple[pa.DataType, ...]:
    return tuple(type_ for number, type_ in enumerate(CANDIDATES) if bits >> number & 1)


@lru_cache(maxsize=4096)
def _decode_types(bits: int) -> Types:
    return frozenset(_decode_ordered_types(bits))
