"""Writing states files, which merges read: one or many profiles per file. Those of fragments also have value counts.

A file consists of sections, one per profile, with a row per column. Sections share row groups, so that many small
profiles take little space. A column with few values has value counts alone: its states are derived from them. A column
with many values has a row group to itself, which merges need not read.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from types import TracebackType

import numpy as np
import pyarrow as pa

from metastore_assets.pipeline.profile_spec import ProfileSpec
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.statistics.fingerprints import FingerprintCounts
from metastore_assets.statistics.frequencies import Frequencies
from metastore_assets.statistics.histogram import Histogram
from metastore_assets.statistics.states import SKETCH_COLUMNS, build_states_table
from metastore_assets.statistics.union import pack_values, union_type
from metastore_assets.store.manifest import ProfileFiles
from metastore_assets.store.objects import MinimalParquet, ObjectStore
from metastore_assets.values.types import TypeClass, class_named, classes_of

ROW_COUNT = "metastore.row_count"
"""Key of the file metadata of `statistics` with the number of rows that the profile describes."""
SHORT_LIST = 4096
"""Most values of value counts that are stored without the states that are derived from them."""
SECTION = ("section", "row_count")
"""Columns of every row: the name of its section, and the number of rows that the profile describes."""
LISTS = ("enumerated_values", "enumerated_counts")
"""Columns with the value counts of enumerated columns."""
PRINTS = ("fingerprints", "fingerprint_counts")
"""Columns with ascending fingerprints of values, and the number of rows of each."""
MEMBERSHIP = "value_filter"
"""Column with value filters."""
_SKETCHES = [name for name, type_ in SKETCH_COLUMNS.items() if pa.types.is_binary(type_) or pa.types.is_nested(type_)]
_LONG = ("multiset_hash", *_SKETCHES, *LISTS, *PRINTS, MEMBERSHIP)
"""Columns with many bytes per row; the others have a number or a short text."""
_GROUP_VALUES = 1 << 14
_GROUP_ROWS = 256
"""Where a row group ends: at about 200 KB, because reading one small profile reads its whole row group."""


def is_derivable(row: ColumnStatistics) -> bool:
    """Return whether the states of a column are derived from its value counts, so that they are not stored."""
    return row.frequencies == "enumerated" and row.value_count > 0 and (row.distinct_count or 0) <= SHORT_LIST


def strip_derivable(row: ColumnStatistics) -> ColumnStatistics:
    """Return the statistics of a column without those that are derived from its value counts."""
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


def value_union(spec: ProfileSpec) -> pa.StructType:
    """The typed union of all classes that a profile of that profile spec has values of."""
    return union_type(classes_of(leaf.type for leaf, _ in spec.leaves))


def has_fingerprints(spec: ProfileSpec) -> bool:
    """Return whether profiles of a spec may have fingerprints."""
    return any(policy.frequencies == "repeated" and not policy.has_all_values for _, policy in spec.leaves)


def has_value_filters(spec: ProfileSpec) -> bool:
    """Return whether profiles of a spec may have value filters."""
    return any(policy.has_value_filter for _, policy in spec.leaves)


def states_schema(union: pa.StructType, *, lists: bool, prints: bool = False, filters: bool = False) -> pa.Schema:
    """Return the columns of a states file."""
    fields = [pa.field(name, type_) for name, type_ in zip(SECTION, (pa.string(), pa.int64()), strict=True)]
    fields += build_states_table([], [], union).schema
    if lists:
        fields += [pa.field(name, pa.list_(own)) for name, own in zip(LISTS, (union, pa.int64()), strict=True)]
    if prints:
        fields += [pa.field(name, pa.list_(pa.int64())) for name in PRINTS]
    if filters:
        fields.append(pa.field(MEMBERSHIP, pa.binary()))
    return pa.schema(fields)


class StatesWriter:
    """Writes one states file. A context manager; `files` are final when it ends.

    Buffers at most one row group.
    """

    def __init__(
        self,
        store: ObjectStore,
        folder: str,
        union: pa.StructType,
        *,
        lists: bool,
        prints: bool = False,
        filters: bool = False,
    ) -> None:
        self._union = union
        self.path = f"{folder}/{uuid.uuid4().hex}.states.parquet"
        self._lists = lists
        self._prints = prints
        self._filters = filters
        self._schema = states_schema(union, lists=lists, prints=prints, filters=filters)
        self._store = store
        self._stack = ExitStack()
        self._sections: list[str] = []
        self._row_count = 0
        self._columns: list[_Column] = []
        self._tables: list[pa.Table] = []
        self._waiting = 0
        """Number of rows in `_tables`, which are not written yet."""
        self._values = 0

    def begin(self, row_count: int, name: str = "") -> str:
        """Begin the section of a profile with a number of rows. Return its name, which is new by default."""
        self._end_section()
        self._sections.append(name or uuid.uuid4().hex[:16])
        self._row_count = row_count
        return self._sections[-1]

    @property
    def files(self) -> list[ProfileFiles]:
        """The profiles of the file, in the order of their sections."""
        return [ProfileFiles("", "", (), self.path, name, len(self._sections)) for name in self._sections]

    def add(
        self,
        row: ColumnStatistics,
        histogram: Histogram | None,
        frequencies: Frequencies | None,
        prints: FingerprintCounts | None = None,
        membership: bytes | None = None,
        *,
        implied: bool = True,
    ) -> None:
        """Append a column. Without `lists` the frequencies are left out, but what follows from them too: unless the
        profile has no lists anywhere, and nothing is `implied` by them.
        """
        column = _Column(
            row, histogram, frequencies if self._lists else None, prints if self._prints else None, membership
        )
        if implied and is_derivable(row):
            column = replace(column, row=strip_derivable(row), histogram=None)
        size = sum(len(own) for own in (column.frequencies, column.prints) if own is not None)
        size += len(membership or b"") // 2
        if size > SHORT_LIST:
            self._write(self._table([column]))
            return
        self._columns.append(column)
        self._values += size
        if self._values >= _GROUP_VALUES or self._waiting + len(self._columns) >= _GROUP_ROWS:
            self._flush()

    def add_table(self, table: pa.Table) -> None:
        """Append rows of merged states, in the union of the file."""
        for at, (name, value) in enumerate(zip(SECTION, (self._sections[-1], self._row_count), strict=True)):
            table = table.add_column(at, name, pa.repeat(value, table.num_rows))
        if self._lists:
            for name in LISTS:
                table = table.append_column(name, pa.nulls(table.num_rows, self._schema.field(name).type))
        self.add_rows(table)

    def add_rows(self, table: pa.Table) -> None:
        """Append rows with the names of sections that were begun, in the union of the file."""
        self._end_section()
        for name in PRINTS if self._prints and PRINTS[0] not in table.column_names else ():
            table = table.append_column(name, pa.nulls(table.num_rows, self._schema.field(name).type))
        if self._filters and MEMBERSHIP not in table.column_names:
            table = table.append_column(MEMBERSHIP, pa.nulls(table.num_rows, pa.binary()))
        self._tables.append(table.cast(self._schema))
        self._waiting += table.num_rows
        if self._lists:
            self._values += len(table[LISTS[1]].combine_chunks().flatten())
        if self._prints:
            self._values += len(table[PRINTS[0]].combine_chunks().flatten())
        if self._filters:
            self._values += table[MEMBERSHIP].nbytes // 2
        if self._values >= _GROUP_VALUES or self._waiting >= _GROUP_ROWS:
            self._flush()

    def _end_section(self) -> None:
        """Build a table of the buffered columns, which belong to one section."""
        if self._columns:
            self._tables.append(self._table(self._columns))
            self._waiting += len(self._columns)
            self._columns = []

    def _flush(self) -> None:
        self._end_section()
        if self._tables:
            self._write(pa.concat_tables(self._tables))
        self._tables, self._waiting, self._values = [], 0, 0

    def _write(self, table: pa.Table) -> None:
        self._writer.write_table(table, 2 * _GROUP_ROWS)

    def _table(self, columns: Sequence[_Column]) -> pa.Table:
        table = build_states_table([own.row for own in columns], [own.histogram for own in columns], self._union)
        for at, (name, value) in enumerate(zip(SECTION, (self._sections[-1], self._row_count), strict=True)):
            table = table.add_column(at, name, pa.repeat(value, table.num_rows))
        if self._lists:
            arrays = _list_arrays([own.frequencies for own in columns], self._union)
            for name, array in zip(LISTS, arrays, strict=True):
                table = table.append_column(name, array)
        if self._prints:
            for name, array in zip(PRINTS, print_arrays([own.prints for own in columns]), strict=True):
                table = table.append_column(name, array)
        if self._filters:
            table = table.append_column(MEMBERSHIP, pa.array([own.membership for own in columns], pa.binary()))
        return table.cast(self._schema)

    def __enter__(self) -> StatesWriter:
        minimal = MinimalParquet(_encodings(self._schema), self._lists, zstd_columns=_LONG)
        self._writer = self._stack.enter_context(self._store.parquet_writer(self.path, self._schema, minimal=minimal))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._stack:
            if kind is not None:
                self._stack.__exit__(kind, error, trace)
                return
            self._flush()


def value_encodings(path: str, union: pa.StructType) -> dict[str, str]:
    """Return by path the Parquet encodings of ascending values in a column of union type."""
    encodings = {field.name: value_encoding(class_named(field.name)) for field in union}
    return {f"{path}.{name}": encoding for name, encoding in encodings.items() if encoding}


def value_encoding(cls: TypeClass) -> str | None:
    """Return the Parquet encoding of ascending values of a class; None for the plain one."""
    if cls.kind == "integer" and not pa.types.is_decimal(cls.arrow):
        return "DELTA_BINARY_PACKED"
    return {"float64": "BYTE_STREAM_SPLIT", "string": "DELTA_BYTE_ARRAY", "binary": "DELTA_BYTE_ARRAY"}.get(cls.name)


def _encodings(schema: pa.Schema) -> dict[str, str]:
    encodings = {SECTION[1]: "DELTA_BINARY_PACKED"}
    for field in schema:
        if field.type == pa.list_(pa.int64()):
            encodings[f"{field.name}.list.element"] = "DELTA_BINARY_PACKED"
        elif field.type == pa.list_(pa.float64()):
            encodings[f"{field.name}.list.element"] = "BYTE_STREAM_SPLIT"
        elif field.name == LISTS[0]:
            encodings |= value_encodings(f"{field.name}.list.element", field.type.value_type)
    return encodings


@dataclass(frozen=True)
class _Column:
    row: ColumnStatistics
    histogram: Histogram | None
    frequencies: Frequencies | None
    prints: FingerprintCounts | None
    membership: bytes | None = None


def print_arrays(prints: Sequence[FingerprintCounts | None]) -> list[pa.Array]:
    """The columns `PRINTS`."""
    offsets = pa.array(np.cumsum([0, *(0 if own is None else len(own) for own in prints)], dtype=np.int32))
    missing = pa.array([own is None for own in prints], pa.bool_())
    held = [own for own in prints if own is not None]
    parts = ([own.fingerprints for own in held], [own.counts for own in held])
    arrays = [np.concatenate([np.zeros(0, np.int64), *own]) for own in parts]
    return [pa.ListArray.from_arrays(offsets, pa.array(own), mask=missing) for own in arrays]


def _list_arrays(lists: Iterable[Frequencies | None], union: pa.StructType) -> list[pa.Array]:
    lists = list(lists)
    held = [own for own in lists if own is not None and len(own)]
    offsets = pa.array(np.cumsum([0, *(0 if own is None else len(own) for own in lists)], dtype=np.int32))
    missing = pa.array([own is None for own in lists], pa.bool_())
    values = pa.concat_arrays([pa.nulls(0, union), *(pack_values(own.values, own.type_class, union) for own in held)])
    counts = pa.concat_arrays([pa.array([], pa.int64()), *(own.counts for own in held)])
    return [pa.ListArray.from_arrays(offsets, own, mask=missing) for own in (values, counts)]
