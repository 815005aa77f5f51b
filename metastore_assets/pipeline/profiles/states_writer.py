"""Writing of states files, which merges read.

States are the mergeable forms of statistics, such as sketches. A profile is the statistics of a set of rows, such as a
fragment (a data file with its deletes). A file has a section per profile, with a row per column. Sections share row
groups, so that many small profiles take little space. Files of fragment profiles also have value counts: distinct
values with their frequencies. For a column with few distinct values, only value counts are stored, and states are
derived from them. A profile spec says which statistics a profile has.

Values of all columns share one struct type, with a field per type class: the physical type of values, such as `int64`.
Fingerprints are short hashes of values. A value filter is a set of hash prefixes that shows which values a fragment
lacks.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from types import TracebackType

import numpy as np
import pyarrow as pa

from metastore_assets.pipeline.profile_spec import ProfileSpec
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.statistics.fingerprints import FingerprintCounts
from metastore_assets.statistics.frequencies import Frequencies
from metastore_assets.statistics.profile import ColumnProfile
from metastore_assets.statistics.states import SKETCH_COLUMNS, build_states_table
from metastore_assets.statistics.typed_union import pack_values, union_type
from metastore_assets.store.objects import MinimalParquet, ObjectStore, ParquetOptions, unique_name
from metastore_assets.store.version import ProfileFiles
from metastore_assets.values.types import TypeClass, class_named, classes_of

ROW_COUNT = "metastore.row_count"
"""File metadata key of `statistics` for the number of rows that the profile describes."""
MAX_DERIVABLE_VALUES = 4096
"""An enumerated column with at most this many distinct values stores only value counts, and no states."""
SECTION_COLUMNS = ("section", "row_count")
"""Columns of the file: the name of the row's section, and the row count of the section's profile."""
VALUE_COUNT_COLUMNS = ("enumerated_values", "enumerated_counts")
"""Columns of the file: the ascending values of an enumerated column, and the frequency of each value."""
FINGERPRINT_COLUMNS = ("fingerprints", "fingerprint_counts")
"""Columns of the file: the ascending fingerprints (short hashes) of a column's values, and the number of rows of each.
"""
VALUE_FILTER_COLUMN = "value_filter"
"""Column of the file: an encoded set of hash prefixes, which shows that a fragment lacks a value."""
_SKETCHES = [name for name, type_ in SKETCH_COLUMNS.items() if pa.types.is_binary(type_) or pa.types.is_nested(type_)]
_LONG_COLUMNS = ("multiset_hash", *_SKETCHES, *VALUE_COUNT_COLUMNS, *FINGERPRINT_COLUMNS, VALUE_FILTER_COLUMN)
"""Columns of the file with many bytes per row."""
_GROUP_VALUES = 1 << 14
"""Number of values after which a row group ends, about 200 KB. Reading a small profile reads its whole row group."""
_GROUP_ROWS = 256
"""Number of rows after which a row group ends."""


def is_derivable(row: ColumnStatistics) -> bool:
    """Return whether the states of a column are not stored, because they are derived from value counts."""
    return row.frequencies == "enumerated" and row.value_count > 0 and (row.distinct_count or 0) <= MAX_DERIVABLE_VALUES


def strip_derivable(row: ColumnStatistics) -> ColumnStatistics:
    """Return the statistics of a column without those that can be derived from its value counts.

    The remaining statistics describe the column, or count its values, nulls and distinct values.
    """
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
    """Return a struct type with a field per type class, which can store any value of a spec's columns."""
    return union_type(classes_of(column.type for column, _ in spec.columns))


@dataclass(frozen=True)
class StatesContent:
    """The type of the values in a states file, and which optional columns it has, such as value counts."""

    union: pa.StructType
    """The type of values, see `value_union`."""
    value_counts: bool = False
    fingerprints: bool = False
    value_filters: bool = False

    @classmethod
    def of_fragments(cls, spec: ProfileSpec) -> StatesContent:
        """Return the content of a file with fragment profiles under a spec."""
        policies = [policy for _, policy in spec.columns]
        return cls(
            value_union(spec),
            value_counts=True,
            fingerprints=any(policy.frequencies == "repeated" and not policy.has_all_values for policy in policies),
            value_filters=any(policy.has_value_filter for policy in policies),
        )

    @property
    def is_states_only(self) -> bool:
        """Whether profiles have no files besides the states file.

        True if the file has fingerprints or value filters: only a states file can store them. Otherwise false.
        """
        return self.fingerprints or self.value_filters

    def schema(self) -> pa.Schema:
        """Return the schema of the file."""
        fields = [pa.field(name, type_) for name, type_ in zip(SECTION_COLUMNS, (pa.string(), pa.int64()), strict=True)]
        fields += build_states_table([], [], self.union).schema
        if self.value_counts:
            types = (self.union, pa.int64())
            fields += [pa.field(name, pa.list_(type_)) for name, type_ in zip(VALUE_COUNT_COLUMNS, types, strict=True)]
        if self.fingerprints:
            fields += [pa.field(name, pa.list_(pa.int64())) for name in FINGERPRINT_COLUMNS]
        if self.value_filters:
            fields.append(pa.field(VALUE_FILTER_COLUMN, pa.binary()))
        return pa.schema(fields)


class StatesWriter:
    """A writer of one states file, which buffers at most one row group.

    It is a context manager. The file is complete when the context ends.
    """

    def __init__(self, store: ObjectStore, folder: str, content: StatesContent) -> None:
        self._content = content
        self.path = f"{folder}/{unique_name()}.states.parquet"
        self._schema = content.schema()
        self._store = store
        self._stack = ExitStack()
        self._sections: list[str] = []
        self._row_count = 0
        self._columns: list[ColumnProfile] = []
        self._tables: list[pa.Table] = []
        self._table_rows = 0
        """Number of rows in `_tables`, which are not written yet."""
        self._values = 0
        """Number of values in `_columns` and `_tables`, which are not written yet."""
        self._bytes = 0
        """Size of the file, known when the context has ended."""

    def begin(self, row_count: int, name: str = "") -> str:
        """Begin the section of a profile, to which columns are added next.

        Return the section's name.

        Args:
            row_count: Number of rows that the profile describes.
            name: Name of the section. If empty, a new unique name is chosen.
        """
        self._end_section()
        self._sections.append(name or uuid.uuid4().hex[:16])
        self._row_count = row_count
        return self._sections[-1]

    @property
    def files(self) -> list[ProfileFiles]:
        """The profiles in the file, in the order of their sections.

        The caller reads this property after the context has ended, when the size of the file is known.
        """
        count = len(self._sections)
        return [ProfileFiles("", "", (), self.path, name, count, self._bytes) for name in self._sections]

    def add(self, profile: ColumnProfile, *, strip: bool = True) -> None:
        """Append the profile of a column to the current section.

        Args:
            profile: The profile.
            strip: Whether to omit states that can be derived from value counts. If so, the value counts must be stored,
                in this file or in another one. This is not checked.
        """
        content = self._content
        profile = replace(
            profile,
            frequencies=profile.frequencies if content.value_counts else None,
            fingerprints=profile.fingerprints if content.fingerprints else None,
        )
        if strip and is_derivable(profile.statistics):
            profile = replace(profile, statistics=strip_derivable(profile.statistics), histogram=None)
        counts = (profile.frequencies, profile.fingerprints)
        size = sum(len(part) for part in counts if part is not None) + len(profile.value_filter or b"") // 2
        if size > MAX_DERIVABLE_VALUES:
            self._write(self._table([profile]))
            return
        self._columns.append(profile)
        self._values += size
        if self._values >= _GROUP_VALUES or self._table_rows + len(self._columns) >= _GROUP_ROWS:
            self._flush()

    def add_table(self, table: pa.Table) -> None:
        """Append merged states to the section that `begin` started last.

        `table` has a row per column of the profile. Its values have the type `StatesContent.union` of the file.
        """
        table = self._add_section(table)
        self.add_rows(self._append_nulls(table, VALUE_COUNT_COLUMNS) if self._content.value_counts else table)

    def add_rows(self, table: pa.Table) -> None:
        """Append rows of a states file, which name their sections.

        Values in the rows have the type `StatesContent.union` of the file.

        Call `begin` first for each section of the rows: `files` lists only sections that were begun. This is not
        checked.
        """
        self._end_section()
        content = self._content
        if content.fingerprints and FINGERPRINT_COLUMNS[0] not in table.column_names:
            table = self._append_nulls(table, FINGERPRINT_COLUMNS)
        if content.value_filters and VALUE_FILTER_COLUMN not in table.column_names:
            table = self._append_nulls(table, [VALUE_FILTER_COLUMN])
        self._tables.append(table.cast(self._schema))
        self._table_rows += table.num_rows
        if content.value_counts:
            self._values += len(table[VALUE_COUNT_COLUMNS[1]].combine_chunks().flatten())
        if content.fingerprints:
            self._values += len(table[FINGERPRINT_COLUMNS[0]].combine_chunks().flatten())
        if content.value_filters:
            self._values += table[VALUE_FILTER_COLUMN].nbytes // 2
        if self._values >= _GROUP_VALUES or self._table_rows >= _GROUP_ROWS:
            self._flush()

    def _add_section(self, table: pa.Table) -> pa.Table:
        """Return rows of the current section, with the columns that name the section in front of the others."""
        for at, (name, value) in enumerate(zip(SECTION_COLUMNS, (self._sections[-1], self._row_count), strict=True)):
            table = table.add_column(at, name, pa.repeat(value, table.num_rows))
        return table

    def _append_nulls(self, table: pa.Table, names: Sequence[str]) -> pa.Table:
        """Return rows with more columns of the file, all of whose values are null."""
        for name in names:
            table = table.append_column(name, pa.nulls(table.num_rows, self._schema.field(name).type))
        return table

    def _end_section(self) -> None:
        """Convert the buffered columns of the current section to a buffered table."""
        if self._columns:
            self._tables.append(self._table(self._columns))
            self._table_rows += len(self._columns)
            self._columns = []

    def _flush(self) -> None:
        self._end_section()
        if self._tables:
            self._write(pa.concat_tables(self._tables))
        self._tables, self._table_rows, self._values = [], 0, 0

    def _write(self, table: pa.Table) -> None:
        self._writer.write_table(table, 2 * _GROUP_ROWS)

    def _table(self, columns: Sequence[ColumnProfile]) -> pa.Table:
        """Convert columns of the current section to rows of the states file."""
        content = self._content
        table = build_states_table(
            [column.statistics for column in columns], [column.histogram for column in columns], content.union
        )
        table = self._add_section(table)
        if content.value_counts:
            arrays = _value_count_arrays([column.frequencies for column in columns], content.union)
            for name, array in zip(VALUE_COUNT_COLUMNS, arrays, strict=True):
                table = table.append_column(name, array)
        if content.fingerprints:
            arrays = fingerprint_arrays([column.fingerprints for column in columns])
            for name, array in zip(FINGERPRINT_COLUMNS, arrays, strict=True):
                table = table.append_column(name, array)
        if content.value_filters:
            filters = pa.array([column.value_filter for column in columns], pa.binary())
            table = table.append_column(VALUE_FILTER_COLUMN, filters)
        return table.cast(self._schema)

    def __enter__(self) -> StatesWriter:
        encoding = MinimalParquet(_encodings(self._schema), self._content.value_counts, zstd_columns=_LONG_COLUMNS)
        self._writer = self._stack.enter_context(
            self._store.parquet_writer(self.path, self._schema, ParquetOptions(minimal=encoding))
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._stack:
            if kind is not None:
                self._stack.__exit__(kind, error, trace)
                return
            self._flush()
            self._bytes = self._writer.row_group_bytes
        self._bytes += self._writer.footer_bytes


def value_encodings(path: str, union: pa.StructType) -> dict[str, str]:
    """Return {path of the Parquet column: encoding} for a struct column with one field per type class.

    The encodings suit ascending values. Example: {"value.int64": "DELTA_BINARY_PACKED"}. Fields with the default
    encoding are omitted.

    Args:
        path: The path of the struct column.
        union: The struct type. The names of its fields are type classes.
    """
    encodings = {field.name: value_encoding(class_named(field.name)) for field in union}
    return {f"{path}.{name}": encoding for name, encoding in encodings.items() if encoding}


def value_encoding(cls: TypeClass) -> str | None:
    """Return the Parquet encoding of ascending values of a type class; None for the default encoding."""
    if cls.kind == "integer" and not pa.types.is_decimal(cls.arrow):
        return "DELTA_BINARY_PACKED"
    return {"float64": "BYTE_STREAM_SPLIT", "string": "DELTA_BYTE_ARRAY", "binary": "DELTA_BYTE_ARRAY"}.get(cls.name)


def _encodings(schema: pa.Schema) -> dict[str, str]:
    """Return {path of the Parquet column: encoding} of a states file."""
    encodings = {SECTION_COLUMNS[1]: "DELTA_BINARY_PACKED"}
    for field in schema:
        if field.type == pa.list_(pa.int64()):
            encodings[f"{field.name}.list.element"] = "DELTA_BINARY_PACKED"
        elif field.type == pa.list_(pa.float64()):
            encodings[f"{field.name}.list.element"] = "BYTE_STREAM_SPLIT"
        elif field.name == VALUE_COUNT_COLUMNS[0]:
            encodings |= value_encodings(f"{field.name}.list.element", field.type.value_type)
    return encodings


def fingerprint_arrays(columns: Sequence[FingerprintCounts | None]) -> list[pa.Array]:
    """Return two list arrays for `FINGERPRINT_COLUMNS`: each column's fingerprints, and their counts.

    An item of `columns` that is None is null in both arrays.
    """
    offsets, is_null = _offsets(columns)
    present = [column for column in columns if column is not None]
    parts = ([column.fingerprints for column in present], [column.counts for column in present])
    arrays = [np.concatenate([np.zeros(0, np.int64), *part]) for part in parts]
    return [pa.ListArray.from_arrays(offsets, pa.array(array), mask=is_null) for array in arrays]


def _value_count_arrays(columns: Sequence[Frequencies | None], union: pa.StructType) -> list[pa.Array]:
    """Return two list arrays: the values, and their counts.

    Each array has a list per column. For a column that is None, the list is null.
    """
    offsets, is_null = _offsets(columns)
    present = [column for column in columns if column is not None and len(column)]
    packed_values = [pack_values(column.values, column.type_class, union) for column in present]
    values = pa.concat_arrays([pa.nulls(0, union), *packed_values])
    counts = pa.concat_arrays([pa.array([], pa.int64()), *(column.counts for column in present)])
    return [pa.ListArray.from_arrays(offsets, array, mask=is_null) for array in (values, counts)]


def _offsets(columns: Sequence[Frequencies | FingerprintCounts | None]) -> tuple[pa.Array, pa.Array]:
    """Return (offsets of a list array with one list per column, mask of the columns that are None)."""
    lengths = [0 if column is None else len(column) for column in columns]
    offsets = pa.array(np.cumsum([0, *lengths], dtype=np.int32))
    return offsets, pa.array([column is None for column in columns], pa.bool_())
