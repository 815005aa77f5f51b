"""JSON lines: one object per line, types inferred from every value of a file, and a file's rows in those types."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from metastore_assets.errors import TableFormatError
from metastore_assets.formats.json_shapes import Shape, arrow_type, merge, observe
from metastore_assets.formats.text_reader import OpenStream, PlannedFile

_BUFFER = 4 << 20
_BATCH_ROWS = 16_384
_BATCH_BYTES = 16 << 20
_BOM = "\ufeff"


@dataclass(frozen=True)
class JsonSummary:
    """What all rows of a file have in common."""

    row_count: int
    shape: Shape


@dataclass(frozen=True)
class JsonReader:
    """Reads JSON lines in UTF-8."""

    def summarize(self, open_stream: OpenStream) -> JsonSummary:
        """Parse a whole file and find the types of its values. Raises ArrowInvalid, naming the line."""
        shape = Shape()
        rows = 0
        for number, _, row in _rows(open_stream):
            observe(shape, row, number)
            rows += 1
        return JsonSummary(rows, shape)

    @staticmethod
    def plan(
        table: str, files: Sequence[tuple[str, JsonReader, JsonSummary]]
    ) -> tuple[list[PlannedFile], list[pa.Field]]:
        """The rows of each file, and the columns of all, in the order in which they first occur.

        Raises TableFormatError, naming both places, for two values that no type holds.
        """
        whole = Shape()
        for path, _, summary in files:
            merge(whole, summary.shape, path)
        fields = [pa.field(name, arrow_type(table, name, child)) for name, child in whole.fields.items()]
        if not fields and any(summary.row_count for _, _, summary in files):
            raise TableFormatError(f"{table}: none of the objects in its files has a key")
        return [PlannedFile(summary.row_count, reader) for _, reader, summary in files], fields

    def batches(
        self, open_stream: OpenStream, types: Mapping[str, pa.DataType]
    ) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """The rows of a file, with those types by column name; a key that a row lacks is null."""
        schema = pa.schema(list(types.items()))
        return schema, _batches(open_stream, schema)


def _batches(open_stream: OpenStream, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    type_ = pa.struct(list(schema))
    rows: list[dict[str, Any]] = []
    size = 0
    for _, length, row in _rows(open_stream):
        rows.append(row)
        size += length
        if len(rows) >= _BATCH_ROWS or size >= _BATCH_BYTES:
            yield _batch(rows, type_)
            rows, size = [], 0
    if rows:
        yield _batch(rows, type_)


def _batch(rows: list[dict[str, Any]], type_: pa.StructType) -> pa.RecordBatch:
    try:
        array = pa.array(rows, type_)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        prepare = _preparation(type_)
        if prepare is None:
            raise
        array = pa.array([prepare(row) for row in rows], type_)
    return pa.RecordBatch.from_struct_array(array)


def _preparation(type_: pa.DataType) -> Callable[[Any], Any] | None:
    """What makes of a parsed value one that Arrow takes for the type; None where it is the value itself.

    An object without fields is the text `{}`: no file holds a struct without fields.
    """
    if pa.types.is_string(type_):
        return lambda value: "{}" if value == {} else value
    if pa.types.is_list(type_):
        item = _preparation(type_.value_type)
        return item and (lambda values: [None if value is None else item(value) for value in values])
    if pa.types.is_struct(type_):
        steps = {field.name: step for field in type_ if (step := _preparation(field.type))}

        def prepare(row: dict[str, Any]) -> dict[str, Any]:
            for name, step in steps.items():
                if row.get(name) is not None:
                    row[name] = step(row[name])
            return row

        return prepare if steps else None
    return None


def _rows(open_stream: OpenStream) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Line number, length and object of each line that is not blank."""
    decoder = json.JSONDecoder(object_pairs_hook=_object, parse_float=_float)
    with open_stream() as stream:
        lines = io.TextIOWrapper(io.BufferedReader(stream, _BUFFER), "utf-8", newline="\n")
        for number, line in enumerate(lines, 1):
            text = (line.removeprefix(_BOM) if number == 1 else line).strip(" \t\r\n")
            if not text:
                continue
            try:
                row = decoder.decode(text)
            except RecursionError:
                raise pa.ArrowInvalid(f"line {number}: it is nested too deeply") from None
            except ValueError as error:
                raise pa.ArrowInvalid(f"line {number}: {error}{_hint(text)}") from error
            if not isinstance(row, dict):
                raise pa.ArrowInvalid(f"line {number} is no object{_hint(text)}")
            yield number, len(line), row


def _hint(text: str) -> str:
    if text[0] == "[" or text in ("{", "}"):
        return "; what is read is one object per line, not an array nor an object over several lines"
    return ""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        raise ValueError("an object has a key twice")
    return result


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"the number {text} is beyond all floats")
    return value
