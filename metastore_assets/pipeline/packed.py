"""The file of states of a profile: what merges read. Of a packed profile it also has the lists of values.

One row per column. A column whose list of values is short has that alone, for everything else follows from it. A long
list lies in a row group of its own, so that whoever merges need not read it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from metastore_assets.pipeline.plan import Layout
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.statistics.frequencies import EMPTY, Frequencies
from metastore_assets.statistics.histogram import Histogram
from metastore_assets.statistics.states import states_table
from metastore_assets.statistics.types import TypeClass, class_named, classes_of
from metastore_assets.statistics.union import from_union, pack_values, union_type
from metastore_assets.store.objects import Lean, ObjectStore

ROW_COUNT = "metastore.row_count"
"""Key of the file metadata of `statistics` and `states` that holds the number of rows described."""
SHORT_LIST = 4096
"""Most values of a list that is kept without the states that follow from it."""
_LISTS = ("listed_values", "listed_counts")
_GROUP_VALUES = 1 << 18
_GROUP_ROWS = 1024


def follows(row: ColumnStatistics) -> bool:
    """Whether the states of a column follow from its list of values, and are not kept beside it."""
    return row.frequencies == "listed" and row.value_count > 0 and (row.distinct_count or 0) <= SHORT_LIST


def bare(row: ColumnStatistics) -> ColumnStatistics:
    """Of a row what does not follow from the list of values."""
    return ColumnStatistics(
        position=row.position,
        column=row.column,
        field_id=row.field_id,
        type=row.type,
        type_class=row.type_class,
        value_count=row.value_count,
        null_count=row.null_count,
        distinct_count=row.distinct_count,
        distinct_count_guarantee=row.distinct_count_guarantee,
        frequencies=row.frequencies,
    )


def layout_union(layout: Layout) -> pa.StructType:
    """The typed union of all classes that a profile of that layout has values of."""
    return union_type(classes_of(leaf.type for leaf, _ in layout.leaves))


class StatesWriter:
    """Writes one file of states, with lists of values or without. A context manager."""

    def __init__(self, store: ObjectStore, folder: str, layout: Layout, row_count: int, *, lists: bool) -> None:
        self._union = layout_union(layout)
        self.path = f"{folder}/{uuid.uuid4().hex}.states.parquet"
        self._lists = lists
        schema = states_table([], [], self._union).schema
        if lists:
            for name, type_ in zip(_LISTS, (self._union, pa.int64()), strict=True):
                schema = schema.append(pa.field(name, pa.list_(type_)))
        self._schema = schema.with_metadata({ROW_COUNT: str(row_count)})
        self._store = store
        self._stack = ExitStack()
        self._columns: list[_Column] = []
        self._values = 0

    def add(self, row: ColumnStatistics, histogram: Histogram | None, frequencies: Frequencies | None) -> None:
        """Append a column. Without `lists` the frequencies are left out, but what follows from them too."""
        column = _Column(row, histogram, frequencies)
        if follows(row):
            column = _Column(bare(row), None, frequencies)
        size = 0 if frequencies is None or not self._lists else len(frequencies)
        if size > SHORT_LIST:
            self._write([column])
            return
        self._columns.append(column)
        self._values += size
        if self._values >= _GROUP_VALUES or len(self._columns) >= _GROUP_ROWS:
            self._flush()

    def add_table(self, table: pa.Table) -> None:
        """Append columns whose states were merged, in the union of the layout."""
        self._writer.write_table(table.cast(self._schema), _GROUP_ROWS)

    def _flush(self) -> None:
        self._write(self._columns)
        self._columns, self._values = [], 0

    def _write(self, columns: Sequence[_Column]) -> None:
        table = states_table([own.row for own in columns], [own.histogram for own in columns], self._union)
        if self._lists:
            for name, array in zip(
                _LISTS, _list_arrays([own.frequencies for own in columns], self._union), strict=True
            ):
                table = table.append_column(name, array)
        self._writer.write_table(table.cast(self._schema))

    def __enter__(self) -> StatesWriter:
        self._writer = self._stack.enter_context(
            self._store.parquet_writer(self.path, self._schema, lean=Lean(_encodings(self._schema), self._lists))
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._stack:
            if kind is not None:
                self._stack.__exit__(kind, error, trace)
                return
            if self._columns:
                self._flush()


class PackedLists:
    """The lists of values in a file of states, column by column."""

    def __init__(self, file: pq.ParquetFile) -> None:
        self._file = file
        rows = file.read(columns=["field_id", "frequencies"]) if _LISTS[0] in file.schema_arrow.names else None
        groups = range(file.metadata.num_row_groups)
        places = [(group, at) for group in groups for at in range(file.metadata.row_group(group).num_rows)]
        self._places: dict[str, tuple[int, int]] = {}
        if rows is not None:
            named = zip(*(rows[name].to_pylist() for name in ("field_id", "frequencies")), places, strict=True)
            self._places = {field_id: place for field_id, state, place in named if state == "listed"}
        self._kept: tuple[int, pa.Table] | None = None

    @property
    def listed(self) -> frozenset[str]:
        """Field ids of the columns listed."""
        return frozenset(self._places)

    def read(self, field_id: str) -> Frequencies | None:
        """All values of one column; None when it is not listed."""
        if field_id not in self._places:
            return None
        group, at = self._places[field_id]
        if self._kept is None or self._kept[0] != group:
            self._kept = (group, self._file.read_row_group(group, columns=list(_LISTS)).combine_chunks())
        values, counts = (self._kept[1][name].chunk(0) for name in _LISTS)
        start, stop = values.offsets[at].as_py(), values.offsets[at + 1].as_py()
        if start == stop:
            return EMPTY
        own = from_union(values.values.slice(start, stop - start))
        start, stop = counts.offsets[at].as_py(), counts.offsets[at + 1].as_py()
        return Frequencies(own, counts.values.slice(start, stop - start))


def value_encodings(path: str, union: pa.StructType) -> dict[str, str]:
    """How values of the typed union in a column are encoded, that ascend, or nearly do."""
    encodings = {field.name: value_encoding(class_named(field.name)) for field in union}
    return {f"{path}.{name}": encoding for name, encoding in encodings.items() if encoding}


def value_encoding(cls: TypeClass) -> str | None:
    """How ascending values of a class are encoded; None: plainly."""
    if cls.kind == "integer" and not pa.types.is_decimal(cls.arrow):
        return "DELTA_BINARY_PACKED"
    return {"float64": "BYTE_STREAM_SPLIT", "string": "DELTA_BYTE_ARRAY", "binary": "DELTA_BYTE_ARRAY"}.get(cls.name)


def _encodings(schema: pa.Schema) -> dict[str, str]:
    encodings = {}
    for field in schema:
        if field.type == pa.list_(pa.int64()):
            encodings[f"{field.name}.list.element"] = "DELTA_BINARY_PACKED"
        elif field.type == pa.list_(pa.float64()):
            encodings[f"{field.name}.list.element"] = "BYTE_STREAM_SPLIT"
        elif field.name == _LISTS[0]:
            encodings |= value_encodings(f"{field.name}.list.element", field.type.value_type)
    return encodings


@dataclass(frozen=True)
class _Column:
    row: ColumnStatistics
    histogram: Histogram | None
    frequencies: Frequencies | None


def _list_arrays(lists: Iterable[Frequencies | None], union: pa.StructType) -> list[pa.Array]:
    lists = list(lists)
    held = [own for own in lists if own is not None and len(own)]
    offsets = pa.array(np.cumsum([0, *(0 if own is None else len(own) for own in lists)], dtype=np.int32))
    missing = pa.array([own is None for own in lists], pa.bool_())
    values = pa.concat_arrays([pa.nulls(0, union), *(pack_values(own.values, own.type_class, union) for own in held)])
    counts = pa.concat_arrays([pa.array([], pa.int64()), *(own.counts for own in held)])
    return [pa.ListArray.from_arrays(offsets, own, mask=missing) for own in (values, counts)]
