"""Adapters from Produce functions for one source key to Produce functions for a batch of source keys.

A Produce function computes the output rows of a stage. Stages call it with batches. A feeder is a node whose output the
stage reads. The keys of the feeders are the source keys of the stage.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, time, timedelta
from itertools import accumulate, pairwise
from math import isinf
from typing import Any

import pyarrow as pa

from metastore_assets.produce.stages import Batch, PerBatch, PerKey, Stage
from metastore_assets.produce.typed_rows import SOURCE, Rows
from metastore_assets.values.columns import map_child_types

_PIECE = 1024
"""Number of values that are converted to Python at a time."""


class Port(Sequence[Any]):
    """The values of one port for one source key, in the declared order of the feeders.

    A port is one input of a stage. The values can be read repeatedly as a sequence, or consumed with `next`. They
    become Python objects when they are read.
    """

    def __init__(self, values: pa.Table, start: int, stop: int) -> None:
        self._values = values
        self._start = start
        self._stop = stop
        self._piece_start = self._piece_stop = start
        self._piece: list[Any] = []

    def __len__(self) -> int:
        return self._stop - self._start

    def __iter__(self) -> Iterator[Any]:
        row, stop = self._start, self._stop
        while row < stop:
            piece, first = self._around(row)
            yield from piece[row - first :]
            row = first + len(piece)

    def __next__(self) -> Any:
        if self._start == self._stop:
            raise StopIteration
        value = self[0]
        self._start += 1
        return value

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        row = range(self._start, self._stop)[index]
        piece, first = self._around(row)
        return piece[row - first]

    def __repr__(self) -> str:
        return f"{self[:10]}" if len(self) <= 10 else f"{self[:10]} and {len(self) - 10} more"

    def _around(self, row: int) -> tuple[list[Any], int]:
        """Return (chunk that contains the value at `row`, row of the chunk's first value).

        A chunk has at most 1,024 values, which are Python objects. The last chunk is cached, because its conversion is
        slow.
        """
        if not self._piece_start <= row < self._piece_stop:
            first = row - (row - self._start) % _PIECE
            self._piece_start, self._piece_stop = first, min(first + _PIECE, self._stop)
            self._piece = _plain_rows(self._values.slice(first, self._piece_stop - first))
        return self._piece, self._piece_start


def batches_of(stage: Stage) -> PerBatch:
    """Return a stage's Produce function as a function of batches."""
    if stage.produce_batch is not None:
        return stage.produce_batch
    assert stage.produce is not None
    return _PerKeyAdapter(stage.produce, stage.rows)


@dataclass(frozen=True)
class _PerKeyAdapter:
    produce: PerKey
    rows: Rows

    def __call__(self, batch: Batch) -> pa.Table:
        """Call the function for each source key of a batch.

        Return the output of all calls as one table.

        Raises KeyFailure for a key if the function fails, or if its output does not have the declared types.

        If each output has the declared types, but Arrow cannot convert all of them to one column, the error of the
        conversion is raised. Example: a struct column, for which one output is a tuple and another a mapping.
        """
        keys = _plain_rows(batch.keys)
        groups = zip(*(_groups(port, len(keys)) for port in batch.ports), strict=True)
        sources: list[int] = []
        targets: list[Any] = []
        values: list[Any] = []
        for number, (key, ports) in enumerate(zip(keys, groups, strict=True)):
            try:
                for target, value in self.produce(key, *ports):
                    sources.append(number)
                    targets.append(target)
                    values.append(value)
            except Exception as error:
                raise KeyFailure(key) from error
        try:
            columns = _columns(targets, self.rows.key) + _columns(values, self.rows.value)
        except Exception as error:
            wrong = self._first_wrong(targets, values)
            if wrong is None:
                raise
            raise KeyFailure(keys[sources[wrong]]) from error
        return pa.table([pa.array(sources, pa.int64()), *columns], names=[SOURCE, *self.rows.schema.names])

    def _first_wrong(self, targets: list[Any], values: list[Any]) -> int | None:
        """Return the index of the first (target, value) pair without the declared types, else None.

        Each pair is checked alone. So the result may be None even if the pairs do not fit into one column together. For
        example, Arrow converts a tuple or a mapping to a struct, but not both in one column.
        """
        for number, (target, value) in enumerate(zip(targets, values, strict=True)):
            try:
                _columns([target], self.rows.key)
                _columns([value], self.rows.value)
            except Exception:  # noqa: BLE001 (whatever it is, the caller has the error)
                return number
        return None


class KeyFailure(Exception):
    """Raised if a Produce function fails for the source key `key`."""

    def __init__(self, key: Any) -> None:
        super().__init__(key)
        self.key = key


def _plain_rows(table: pa.Table) -> list[Any]:
    """Return rows as Python values: single values for a table of one column, otherwise tuples.

    Raises ValueError for dates and times that Python cannot represent.
    """
    columns = [_plain_values(name, column) for name, column in zip(table.column_names, table.columns, strict=True)]
    return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))


def _plain_values(name: str, column: pa.ChunkedArray) -> list[Any]:
    """Return the values of a column as Python values.

    Raises ValueError for dates and times that Python cannot represent (nanoseconds, years beyond 9999).
    """
    plain = _plain_type(column.type)
    try:
        return list((column if plain == column.type else column.cast(plain)).to_pylist())
    except (pa.ArrowInvalid, ValueError, OverflowError) as error:
        raise ValueError(
            f"column {name!r} of type {column.type} holds what Python's dates and times cannot ({error}); give the "
            "stage a `produce_batch`, which gets Arrow"
        ) from error


def _plain_type(type_: pa.DataType) -> pa.DataType:
    """Return a type with microseconds instead of nanoseconds.

    Arrow would return nanoseconds as pandas values.
    """
    if pa.types.is_time64(type_):
        return pa.time64("us")
    if pa.types.is_timestamp(type_) and type_.unit == "ns":
        return pa.timestamp("us", type_.tz)
    if pa.types.is_duration(type_) and type_.unit == "ns":
        return pa.duration("us")
    return map_child_types(type_, _plain_type)


def _groups(port: pa.Table, keys: int) -> Iterator[Port]:
    """Split the rows of a port by source key.

    Yield one `Port` per source key, which may have no rows.

    Args:
        port: The rows, sorted by the column SOURCE, which has the numbers of the source keys.
        keys: The number of source keys. They are numbered from 0.
    """
    counts = [0] * keys
    for source in port[SOURCE].to_pylist():
        counts[source] += 1
    values = port.drop_columns([SOURCE])
    for start, stop in pairwise(accumulate(counts, initial=0)):
        yield Port(values, start, stop)


def _columns(rows: list[Any], schema: pa.Schema) -> list[pa.Array]:
    if len(schema) == 1:
        return [_exact(rows, schema.field(0).type)]
    if not all(isinstance(row, tuple | list) and len(row) == len(schema) for row in rows):
        raise ValueError(f"it needs a tuple of one value for each of the columns {', '.join(schema.names)}")
    return [_exact([row[number] for row in rows], field.type) for number, field in enumerate(schema)]


def _exact(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    """Return the values as an array of a type.

    Raises ValueError if this changes a value (see `_check_exact`).
    """
    array = pa.array(values, type_)
    _check_exact(values, array)
    return array


def _check_exact(values: Sequence[Any], array: pa.Array) -> None:
    """Raise ValueError if the conversion of `values` to `array` changed a value.

    Integers and times must be equal. A float may be rounded, but a finite float must not become infinite. Values in
    structs, lists and maps are compared, too.
    """
    type_ = array.type
    if pa.types.is_nested(type_):
        for inner_values, inner_array in _nested(values, array):
            _check_exact([_python(value) for value in inner_values], inner_array)
        return
    kinds: Any = (object,) if pa.types.is_integer(type_) else (date, time, timedelta)
    if pa.types.is_integer(type_) or pa.types.is_temporal(type_):
        for value, stored_value in zip(values, array.to_pylist(), strict=True):
            if value is not None and isinstance(value, kinds) and value != stored_value:
                raise ValueError(f"{value!r} would become {stored_value!r} in a column of type {type_}")
    elif pa.types.is_floating(type_):
        for value, stored_value in zip(values, array.to_pylist(), strict=True):
            if value is not None and isinf(stored_value) and not isinf(value):
                raise ValueError(f"{value!r} is too large for a column of type {type_}")


def _nested(values: Sequence[Any], array: pa.Array) -> Iterator[tuple[Sequence[Any], pa.Array]]:
    """Yield (values, array) for each child of an array.

    The children are each field of structs, the items of lists, or the keys and values of maps.

    Args:
        values: The Python values that were converted to `array`, one for each element.
        array: An array of structs, lists or maps. Null elements are skipped, because they have no children.
    """
    present = [_python(value) for value, is_valid in zip(values, array.is_valid().to_pylist(), strict=True) if is_valid]
    array = array.drop_null()
    if pa.types.is_struct(array.type):
        names = [field.name for field in array.type]
        # Arrow takes a tuple by position, and anything else by name.
        rows = [dict(zip(names, row, strict=True) if isinstance(row, tuple) else row) for row in present]
        for name, child in zip(names, array.flatten(), strict=True):
            yield [row.get(name) for row in rows], child
    elif pa.types.is_map(array.type):
        items = [item for value in present for item in (value.items() if isinstance(value, Mapping) else value)]
        yield [key for key, _ in items], array.keys
        yield [item for _, item in items], array.items
    else:
        yield [item for value in present for item in value], array.flatten()


def _python(value: Any) -> Any:
    return value.as_py() if isinstance(value, pa.Scalar) else value
