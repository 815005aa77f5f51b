"""The reader of JSON lines.

It infers types from every value, and then reads rows in the decided types.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from metastore_assets.errors import TableFormatError
from metastore_assets.formats.base import TypeReason
from metastore_assets.formats.files.json.literals import (
    DECODER,
    LITERAL_DECODER,
    cast_rows,
    replace_literals,
    text_types,
)
from metastore_assets.formats.files.json.shapes import (
    JsonSummary,
    Shape,
    arrow_type,
    decode_summary,
    encode_summary,
    merge,
    observe,
    type_reasons,
    without_extremes,
)
from metastore_assets.formats.files.text_reader import OpenStream, PlannedFile
from metastore_assets.formats.metadata_json import is_nested_deeply, max_value_count
from metastore_assets.storage.compression import HEAD_BYTES, check_text
from metastore_assets.storage.corrupt_input import InvalidContentError
from metastore_assets.storage.limits import LINE_BYTES, NESTING, RECORD_VALUES

_BUFFER = 4 << 20
_BATCH_ROWS = 16_384
_BATCH_BYTES = 16 << 20
_ENCODING = "JSON lines are read in UTF-8"
_BLANKS = b" \t\r"
_LINE = re.compile(rb"[^ \t\r\n][^\n]*\n?")
_HALF = r"\ud"
"""The start of an escaped UTF-16 surrogate. A surrogate without its pair is no character."""


@dataclass(frozen=True)
class JsonReader:
    """A reader of files with one JSON object per line, in UTF-8."""

    declared: tuple[tuple[str, pa.DataType], ...] = ()
    """Dotted path and type of each type that the configuration declares."""

    def summarize(self, open_stream: OpenStream) -> JsonSummary:
        """Read a whole file, and return its row count and the kinds of its values.

        Raises ArrowInvalid if a line is invalid. The message begins with the line number.
        """
        shape = Shape()
        rows = 0
        for number, _, row in self._read_rows(open_stream):
            observe(shape, row, number)
            rows += 1
        return JsonSummary(rows, without_extremes(shape))

    @staticmethod
    def encode(summary: JsonSummary) -> bytes:
        """Serialize a summary for the cache."""
        return encode_summary(summary)

    @staticmethod
    def decode(data: bytes) -> JsonSummary:
        """Parse a serialized summary.

        Raises ValueError, LookupError or TypeError for invalid bytes.
        """
        return decode_summary(data)

    @staticmethod
    def without_values(summary: JsonSummary, is_hidden: Callable[[str], bool]) -> JsonSummary:
        """Return the summary unchanged, because it contains line numbers and no values."""
        return summary

    @staticmethod
    def plan(
        table: str, files: Sequence[tuple[str, JsonReader, JsonSummary]]
    ) -> tuple[list[PlannedFile], list[pa.Field], list[TypeReason]]:
        """Decide which columns the table has; see `TextReader.plan`.

        Columns are in the order of first occurrence.

        Raises:
            TableFormatError: no type fits all values of a column, or no object has a key.
        """
        merged_shape = Shape()
        for path, _, summary in files:
            merge(merged_shape, summary.shape, path)
        declared_types = dict(files[0][1].declared) if files else {}
        fields = [
            pa.field(name, arrow_type(table, name, child, declared_types))
            for name, child in merged_shape.fields.items()
        ]
        if not fields and any(summary.row_count for _, _, summary in files):
            raise TableFormatError(f"{table}: none of the objects in its files has a key")
        reasons = [reason for name, child in merged_shape.fields.items() for reason in type_reasons(name, child)]
        return [PlannedFile(summary.row_count, reader) for _, reader, summary in files], fields, reasons

    def batches(
        self, open_stream: OpenStream, types: Mapping[str, pa.DataType]
    ) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """Return the schema and the rows of a file; see `TextReader.batches`.

        A key that a row lacks is null.
        """
        schema = pa.schema(list(types.items()))
        return schema, self._batches(open_stream, schema)

    @property
    def _paths(self) -> frozenset[str]:
        return frozenset(path for path, _ in self.declared)

    def _read_rows(self, open_stream: OpenStream) -> Iterator[tuple[int, int, dict[str, Any]]]:
        if not self.declared:
            return _read_objects(open_stream, DECODER)
        rows = _read_objects(open_stream, LITERAL_DECODER)
        return ((number, length, replace_literals(row, "", self._paths)) for number, length, row in rows)

    def _batches(self, open_stream: OpenStream, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file, in batches that have the schema `schema`.

        Raises:
            ArrowInvalid: A line is invalid, or a value does not have the type of its column.
        """
        target = pa.struct(list(schema))
        type_ = text_types(target, "", self._paths)
        rows: list[dict[str, Any]] = []
        numbers: list[int] = []
        size = 0

        def batch() -> pa.RecordBatch:
            return pa.RecordBatch.from_struct_array(cast_rows(_to_arrow(rows, type_), target, numbers))

        for number, length, row in self._read_rows(open_stream):
            rows.append(row)
            numbers.append(number)
            size += length
            if len(rows) >= _BATCH_ROWS or size >= _BATCH_BYTES:
                yield batch()
                rows, numbers, size = [], [], 0
        if rows:
            yield batch()


def _to_arrow(rows: list[dict[str, Any]], type_: pa.StructType) -> pa.StructArray:
    """Convert parsed rows to an Arrow array of structs.

    If Arrow does not accept the parsed values for the type, they are converted by the function that `_conversion`
    returns.
    """
    try:
        return pa.array(rows, type_)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        prepare = _conversion(type_)
        if prepare is None:
            raise
        return pa.array([prepare(row) for row in rows], type_)


def _conversion(type_: pa.DataType) -> Callable[[Any], Any] | None:
    """Return a function that converts parsed values to fit an Arrow type.

    The result is None if no value needs a conversion. An object without keys becomes the text `{}`, because Parquet
    stores no structs without fields.
    """
    if pa.types.is_string(type_):
        return lambda value: "{}" if value == {} else value
    if pa.types.is_list(type_):
        item = _conversion(type_.value_type)
        return item and (lambda values: [None if value is None else item(value) for value in values])
    if pa.types.is_struct(type_):
        steps = {field.name: step for field in type_ if (step := _conversion(field.type))}

        def prepare(row: dict[str, Any]) -> dict[str, Any]:
            for name, step in steps.items():
                if row.get(name) is not None:
                    row[name] = step(row[name])
            return row

        return prepare if steps else None
    return None


def _read_objects(open_stream: OpenStream, decoder: json.JSONDecoder) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Yield line number, length in bytes and parsed object of each line that is not blank.

    Raises InvalidContentError for a line that is no JSON object, too long, or nested too deeply.
    """
    with open_stream() as stream:
        content = io.BufferedReader(stream, _BUFFER)
        check_text(content.peek(HEAD_BYTES)[:HEAD_BYTES], _ENCODING)
        for number, line in _read_lines(content):
            _check_size(line, number)
            text = _decode_line(line, number).strip(" \t\r\n")
            if not text:
                continue
            try:
                row = decoder.decode(text)
            except RecursionError:
                raise _nesting_error(number) from None
            except ValueError as error:
                hint = _hint(text, error)
                raise InvalidContentError(f"line {number}: {error}{hint}", f"line {number}{hint}") from error
            if not isinstance(row, dict):
                raise InvalidContentError(f"line {number} is no object{_hint(text)}")
            if text.count("[") + text.count("{") > NESTING and is_nested_deeply(row):
                raise _nesting_error(number)
            if _HALF in text.lower():
                _check_characters(row, number)
            yield number, len(line), row


def _read_lines(content: io.BufferedReader) -> Iterator[tuple[int, bytes]]:
    """Yield (number, bytes) of each line that is not blank.

    Numbers start at 1; the bytes have no leading blanks.

    A line longer than LINE_BYTES may be yielded only in part. No line is yielded after that.
    """
    number, incomplete_line, at_end = 1, b"", False
    while not at_end:
        piece = content.read(_BUFFER)
        at_end = not piece
        data = incomplete_line + piece
        end = len(data) if at_end else data.rfind(b"\n") + 1
        counted_end = 0
        # The pattern skips blank lines together: a small compressed file may have millions of them.
        for match in _LINE.finditer(data, 0, end):
            number += data.count(b"\n", counted_end, match.start())
            counted_end = match.start()
            yield number, match[0]
        number += data.count(b"\n", counted_end, end)
        incomplete_line = data[end:].lstrip(_BLANKS)
        if len(incomplete_line) > LINE_BYTES:
            yield number, incomplete_line
            return


def _check_size(line: bytes, number: int) -> None:
    if len(line) > LINE_BYTES:
        raise InvalidContentError(f"line {number}: it is longer than {LINE_BYTES:,} bytes, the most that is read")
    if len(line) > RECORD_VALUES and max_value_count(line) > RECORD_VALUES:
        raise InvalidContentError(f"line {number}: it has more than {RECORD_VALUES:,} values, the most that are read")


def _nesting_error(number: int) -> InvalidContentError:
    return InvalidContentError(f"line {number}: it is nested too deeply: more than {NESTING} levels")


def _decode_line(line: bytes, number: int) -> str:
    try:
        return line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise pa.ArrowInvalid(f"line {number}: {error}; {_ENCODING}") from None


def _check_characters(row: dict[str, Any], number: int) -> None:
    try:
        json.dumps(row, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise InvalidContentError(f"line {number}: it has half of a surrogate pair, which is no character") from None


def _hint(text: str, error: ValueError | None = None) -> str:
    """Return a hint for the message about an invalid line: only one object per line is read.

    `error` is the parser's error; None if the line is valid JSON, but no object.

    The result is empty unless the line looks like one of these:

    - an object that is followed by anything else, such as a second object;
    - an array;
    - the first or last line of an object over several lines.
    """
    if text[0] == "{" and isinstance(error, json.JSONDecodeError) and error.msg == "Extra data":
        expected = "; what is read is one object per line, without text between or after the objects"
        # Amazon Data Firehose writes no line breaks by default.
        advice = "; have the writer add line feeds (Amazon Data Firehose: `AppendDelimiterToRecord`)"
        return expected + (advice if text[error.pos] == "{" else "")
    if text[0] == "[" or text in ("{", "}"):
        return "; what is read is one object per line, not an array nor an object over several lines"
    return ""
