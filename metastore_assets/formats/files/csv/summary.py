"""Summaries of CSV files: the types that all values fit, collected by block, and their serialization as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import astuple, dataclass, replace
from functools import lru_cache
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa

from metastore_assets.formats.files.csv.blocks import Block
from metastore_assets.formats.files.csv.header import FirstRow
from metastore_assets.formats.files.csv.options import CsvOptions
from metastore_assets.formats.files.csv.quotes import Backslashes
from metastore_assets.formats.files.csv.texts import blank_texts, values
from metastore_assets.formats.files.csv.types import ALL, CANDIDATES, SHOWN, RuledOut, misfits

_NUMBERS = {type_: number for number, type_ in enumerate(CANDIDATES)}

Types = frozenset[pa.DataType]


@dataclass(frozen=True)
class Column:
    """The summary of a column in one file."""

    name: str
    types: Types = ALL
    """The types that all values fit; all types without values."""
    ruled_out: tuple[RuledOut, ...] = ()
    """Why the column is not of the other types."""

    def with_values(self, texts: pa.StringArray, block: Block, first: int, options: CsvOptions) -> Column:
        """Return the summary with more values: those of the block's rows from `first` on."""
        texts = values(texts, options)
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

    def with_blank_lines(self, count: int, options: CsvOptions) -> Column:
        """Return the summary with the values of `count` blank lines at the beginning of the file."""
        if not count:
            return self
        one = np.zeros(1, np.int64)
        block = Block(b"", 1, one, one, 1, None, count, frozenset(), None)
        return self.with_values(blank_texts(1, options), block, 0, options)

    def without_values(self) -> Column:
        """Return the summary without the values that ruled types out. Their line numbers remain."""
        return replace(self, ruled_out=tuple(replace(mismatch, text=None) for mismatch in self.ruled_out))


@dataclass(frozen=True)
class CsvSummary:
    """The summary of a CSV file."""

    row_count: int
    columns: tuple[Column, ...]
    """In file order."""
    first_row: FirstRow | None = None
    """The first row, if the options do not say whether it is a header. `columns` then include it as values."""
    has_header: bool | None = None
    """Whether the first row is a header; None when that is ambiguous."""
    headed: tuple[Column, ...] = ()
    """The columns if the first row is a header."""
    backslashes: Backslashes | None = None
    """What backslashes may mean, if no option says it."""
    blank_lines: int = 0
    """Blank lines before the first row that are rows if it is no header; in a file of blank lines, all of them."""

    def without_values(self, is_hidden: Callable[[str], bool]) -> CsvSummary:
        """Return the summary without values of hidden columns, given by name; itself if it has none.

        A column is hidden if either of its names is: the one in the header that the file may have, or its number.
        """
        named = self.headed or self.columns
        hidden = [is_hidden(one.name) or is_hidden(two.name) for one, two in zip(self.columns, named, strict=True)]
        columns, headed = (
            tuple(column.without_values() if hide else column for column, hide in zip(part, hidden, strict=False))
            for part in (self.columns, self.headed)
        )
        # A first row that is no header has values.
        is_row = any(hidden) and self.has_header is False and self.first_row is not None
        if not is_row and columns == self.columns and headed == self.headed:
            return self
        if is_row:
            return replace(self, columns=columns, headed=(), first_row=None)
        return replace(self, columns=columns, headed=headed)

    def resolved(self, has_header: bool | None) -> CsvSummary:
        """Return the summary after it was decided whether the file has a header."""
        if self.first_row is None or not has_header:
            return self
        return CsvSummary(self.row_count - 1 - self.blank_lines, self.headed)


def encode_summary(summary: CsvSummary) -> bytes:
    """Serialize a summary."""
    first = summary.first_row
    # Columns with and without a header differ little, but both are rarely present.
    fields = {
        "rows": summary.row_count,
        "columns": [_column(column) for column in summary.columns],
        "headed": [_column(column) for column in summary.headed],
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
    """Parse a serialized summary. Raises ValueError, LookupError or TypeError for invalid bytes."""
    fields = json.loads(data)
    first = fields["first"]
    return CsvSummary(
        fields["rows"],
        tuple(map(_restored, fields["columns"])),
        first and FirstRow(tuple(first["cells"]), first["typed"]),
        fields["header"],
        tuple(map(_restored, fields["headed"])),
        fields["backslashes"] and Backslashes(*fields["backslashes"]),
        fields["blank"],
    )


def _column(column: Column) -> list[Any]:
    # One value rules out many types.
    groups = groupby(column.ruled_out, lambda mismatch: (mismatch.text, mismatch.line))
    ruled_out = [[_types(mismatch.type for mismatch in some), *value] for value, some in groups]
    return [column.name, _types(column.types), *ruled_out]


def _restored(column: list[Any]) -> Column:
    name, types, *ruled_out = column
    mismatch = [RuledOut(type_, text, line) for bits, text, line in ruled_out for type_ in _ordered(bits)]
    return Column(name, _types_of(types), tuple(mismatch))


def _types(types: Iterable[pa.DataType]) -> int:
    """Return a set of candidates as the bits of a number."""
    return sum(1 << _NUMBERS[type_] for type_ in types)


@lru_cache(maxsize=4096)
def _ordered(bits: int) -> tuple[pa.DataType, ...]:
    return tuple(type_ for number, type_ in enumerate(CANDIDATES) if bits >> number & 1)


@lru_cache(maxsize=4096)
def _types_of(bits: int) -> Types:
    return frozenset(_ordered(bits))
