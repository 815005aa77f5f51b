"""Datasets of pyarrow over a table's data files.

Their fragments have bounds of columns as guarantees.

A guarantee is an expression that is true of all rows of a fragment. Arrow skips a fragment if the filter of a query
contradicts its guarantee. Arrow also uses the guarantee to simplify the filter. Two rules keep this correct:

- If a column may have nulls, its guarantee is true of nulls.
- A column that may have NaN has no guarantee. With the guarantee `x <= 5`, Arrow would simplify the filter `~(x <= 5)`
  to false, but the filter is true of NaN.

A version has the statistics of one snapshot of the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from contextlib import suppress
from functools import partial, reduce
from operator import and_
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow import fs

from metastore_assets.errors import FragmentError, MetastoreError, UnsupportedTypeError
from metastore_assets.expressions.predicates import BoundColumn
from metastore_assets.expressions.row_bounds import ColumnBounds
from metastore_assets.formats.base import INITIAL_DEFAULT, ArrowFile, ArrowReadable, Fragment, Snapshot
from metastore_assets.formats.readers.calendars import FileCalendar
from metastore_assets.formats.readers.columns import open_columns
from metastore_assets.formats.readers.nested_arrays import leaf_types
from metastore_assets.formats.readers.parquet import open_parquet
from metastore_assets.formats.schema_casting import PARQUET_FIELD_ID, identity
from metastore_assets.lookup.pruning import Pruner
from metastore_assets.reads.table_file_system import TableFileSystem
from metastore_assets.tasks.isolation import IsolatedRunner
from metastore_assets.values.columns import FIELD_ID, Column, columns_by_field, schema_columns
from metastore_assets.values.physical import array_of
from metastore_assets.values.types import type_class

if TYPE_CHECKING:
    from metastore_assets.reads.snapshot_rows import SnapshotRows

_FIRST_COMMON_DAY = -141_427
"""The day 1582-10-15, the first of the Gregorian calendar. Old writers use the Julian calendar for earlier days."""
_UNITS_PER_DAY = {"s": 86_400, "ms": 86_400 * 10**3, "us": 86_400 * 10**6, "ns": 86_400 * 10**9}
_FOOTER_THREADS, _FOOTER_CHUNK = 8, 16
"""Number of footers that a child process reads at the same time, and number of files in one message to it."""
_INTERVAL = pa.binary(12)
"""The Arrow type of Parquet's intervals. In files of Java's library, Arrow alone reads intervals as nulls. The readers
of this package correct the footers of such files in memory first."""
_PARQUET = ds.ParquetFileFormat(coerce_int96_timestamp_unit="us")


def build_dataset(rows: SnapshotRows, snapshot: Snapshot, fragments: Sequence[Fragment], pruner: Pruner) -> ds.Dataset:
    """Return a dataset of fragments of a snapshot.

    Args:
        rows: The rows of the snapshot.
        snapshot: The snapshot.
        fragments: The fragments of the dataset.
        pruner: Provides the bounds of columns that a version stores. These bounds become guarantees.

    Raises:
        MetastoreError: Arrow alone cannot read the rows of a fragment; the message says why.
    """
    for field in snapshot.schema:
        if INITIAL_DEFAULT in (field.metadata or {}):
            raise _refused(rows.name, f"column {field.name!r} has a default in files that lack it")
        if snapshot.format == "files" and _INTERVAL in leaf_types(field.type):
            raise _refused(
                rows.name, f"column {field.name!r} may have intervals, and Arrow reads those of Java's library as nulls"
            )
    files = [_arrow_file(rows.name, fragment) for fragment in fragments]
    paths = [_validated_path(rows, file) for file in files]
    filesystem: fs.FileSystem = fs.LocalFileSystem()
    if not all(file.location.is_local and not file.location.confined for file in files):
        filesystem = fs.PyFileSystem(TableFileSystem(dict(zip(paths, files, strict=True))))
    _check_columns(rows, snapshot.schema, files, paths)
    guarantees = _Guarantees(rows.schema, snapshot.schema, pruner)
    _check_calendars(rows, fragments, files, guarantees)
    dataset_fragments = [
        _PARQUET.make_fragment(path, filesystem, partition_expression=guarantees.of(fragment.id, file))
        for fragment, file, path in zip(fragments, files, paths, strict=True)
    ]
    return ds.FileSystemDataset(dataset_fragments, rows.schema, _PARQUET, filesystem)


def _arrow_file(table: str, fragment: Fragment) -> ArrowFile:
    """Return the data file of a fragment.

    Raises MetastoreError if Arrow alone cannot read the fragment's rows, for example if rows of its file are deleted.
    """
    source = fragment.source
    file = source.arrow_file() if isinstance(source, ArrowReadable) else "only the reader of its format can read it"
    if isinstance(file, str):
        raise _refused(table, f"{fragment.path}: {file}")
    return file


def _validated_path(rows: SnapshotRows, file: ArrowFile) -> str:
    """Return the path by which a dataset names a file.

    Only files on local disk are checked.

    Raises:
        FragmentError: The file no longer exists.
        MetastoreError: The location refuses the path. A confined location refuses links that lead out of it.
    """
    path = file.location.full_path(file.path)
    if not file.location.is_local:
        return path
    try:
        return file.location.validate_file(file.path)
    except FileNotFoundError as error:
        raise FragmentError(
            f"table {rows.name!r}: {path} is gone: {rows.explain_missing()}", path=path, missing=True
        ) from error
    except OSError as error:
        raise _refused(rows.name, str(error)) from error


def _check_columns(rows: SnapshotRows, schema: pa.Schema, files: Sequence[ArrowFile], paths: Sequence[str]) -> None:
    """Raise MetastoreError if Arrow and the table's format would read a file differently.

    Two kinds of files are checked by their schemas, which child processes read:

    - files of a format that ignores the case of column names, or matches columns by field id;
    - files of a format that converts a float by way of its decimal text (`ArrowFile.widens_text`), if the table has
      doubles or texts. Such a format converts the 32-bit float 0.1 to the double 0.1, and Arrow to 0.10000000149.

    Args:
        rows: The rows of the snapshot.
        schema: The schema of the snapshot, with field ids.
        files: The files.
        paths: The path of each file.
    """
    may_widen = any(_may_be_widened(leaf) for field in schema for leaf in leaf_types(field.type))
    chosen_fields = [
        (file, path)
        for file, path in zip(files, paths, strict=True)
        if file.ignores_case or file.constant_ids is not None or (file.widens_text and may_widen)
    ]
    outcomes = IsolatedRunner(_FOOTER_THREADS, _FOOTER_CHUNK).outcomes(
        partial(_find_difference, schema),
        [file for file, _ in chosen_fields],
        paths=[path for _, path in chosen_fields],
    )
    for (_, path), outcome in zip(chosen_fields, outcomes, strict=True):
        if outcome is not None:
            raise _refused(rows.name, f"{path}: {outcome}")


def _check_calendars(
    rows: SnapshotRows, fragments: Sequence[Fragment], files: Sequence[ArrowFile], guarantees: _Guarantees
) -> None:
    """Raise MetastoreError if a file may have old days in Spark 2's calendar, which Arrow would misread.

    Old days are those before 15 October 1582. A file is opened only if `_Guarantees.allow_old_days` is true for its
    fragment. Files of Iceberg tables are not checked: they never use this calendar.
    """
    chosen_fields = [
        (file, fragment.path)
        for fragment, file in zip(fragments, files, strict=True)
        if file.constant_ids is None and guarantees.allow_old_days(fragment.id)
    ]
    outcomes = IsolatedRunner(_FOOTER_THREADS, _FOOTER_CHUNK).outcomes(
        _is_gregorian, [file for file, _ in chosen_fields], paths=[path for _, path in chosen_fields]
    )
    for (_, path), is_gregorian in zip(chosen_fields, outcomes, strict=True):
        if not is_gregorian:
            raise _refused(rows.name, f"{path}: it may have days before 15 October 1582 in the calendar of Spark 2")


def _is_gregorian(file: ArrowFile) -> bool:
    with file.location.open(file.path) as source:
        return FileCalendar.of(open_parquet(source).metadata.metadata).is_gregorian


def _find_difference(schema: pa.Schema, file: ArrowFile) -> str | None:
    """Return a message if Arrow would read a file differently from the table's format, or None.

    For example, Arrow finds a column by its name, but an Iceberg table finds it by its field id.
    """
    columns = open_columns("parquet", file.location.open(file.path))
    try:
        fields = list(columns.fields)
    finally:
        columns.close()
    if file.constant_ids is not None:
        return _find_id_difference(schema, fields, file.constant_ids)
    if file.widens_text:
        return _find_float_difference(schema, fields)
    return _find_case_difference(schema, fields, {name for name, _ in file.constants})


def _find_id_difference(schema: pa.Schema, fields: Sequence[pa.Field], constant_ids: Set[str]) -> str | None:
    """Return a message if a file's columns differ from the table's columns with the same field ids.

    Otherwise, the result is None. For example, a column has its former name or another type, or the file lacks a column
    of `constant_ids`.

    Args:
        schema: The schema of the table, with field ids.
        fields: The columns of the file, with Parquet field ids.
        constant_ids: The field ids of columns with one value per partition.
    """
    by_id = {(field.metadata or {}).get(PARQUET_FIELD_ID, b"").decode(): field for field in fields}
    if "" in by_id:
        return "it has columns without field ids, by which the table matches columns"
    names = {field.name for field in fields}
    for field in schema:
        stored_field = by_id.get(identity(field))
        if stored_field is None and identity(field) in constant_ids:
            return f"it does not store the partition column {field.name!r}"
        if stored_field is None and field.name in names:
            return f"its column {field.name!r} is another one, which the table no longer has"
        if stored_field is None:
            continue
        if stored_field.name != field.name:
            return f"it has the former name {stored_field.name!r} of the column {field.name!r}"
        if not _is_widened(stored_field.type, field.type) and not _are_same(stored_field, field):
            return f"its column {field.name!r} has another type or other nested fields than the table's"
    return None


def _is_widened(stored_type: pa.DataType, expected: pa.DataType) -> bool:
    """Return whether Arrow can widen a column's stored type to its type in the table without loss.

    The result is true for int32 to int64, for float32 to float64, and for a decimal to one of the same scale with at
    least as many digits.
    """
    if pa.types.is_decimal(stored_type) and pa.types.is_decimal(expected):
        return stored_type.scale == expected.scale and stored_type.precision <= expected.precision
    return (stored_type, expected) in ((pa.int32(), pa.int64()), (pa.float32(), pa.float64()))


def _are_same(stored_field: pa.Field, expected: pa.Field) -> bool:
    """Return whether a file's field has the type and field ids of the expected field, at all levels.

    A field is compared by id only if the expected field has one. Fields of structs must also have the same names.
    The result is false if the expected type contains an extension type.
    """
    one, other = stored_field.type, expected.type
    if isinstance(other, pa.BaseExtensionType):
        return False
    id_ = (expected.metadata or {}).get(FIELD_ID)
    if id_ is not None and (stored_field.metadata or {}).get(PARQUET_FIELD_ID) != id_:
        return False
    if not pa.types.is_nested(other):
        return one.equals(other)  # type: ignore[no-any-return]
    if one.id != other.id or one.num_fields != other.num_fields:
        return False
    if pa.types.is_struct(other) and [child.name for child in one] != [child.name for child in other]:
        return False
    if pa.types.is_map(other):
        return _are_same(one.key_field, other.key_field) and _are_same(one.item_field, other.item_field)
    return all(_are_same(one.field(at), other.field(at)) for at in range(other.num_fields))


def _find_case_difference(schema: pa.Schema, fields: Sequence[pa.Field], constants: Set[str]) -> str | None:
    """Return a message if a file spells a column or field in another case than the table; None otherwise.

    Args:
        schema: The schema of the table.
        fields: The top-level fields of the file.
        constants: Names of columns that are constant in the file's partition. They are not compared.
    """
    stored_paths = {column.path for column in schema_columns(fields)}
    by_folded = {path.lower(): path for path in stored_paths}
    for columns in columns_by_field(field for field in schema if field.name not in constants):
        for column in columns:
            if column.path not in stored_paths and (other := by_folded.get(column.path.lower())) is not None:
                return f"it names the column {column.path!r} {other!r}, and Arrow does not ignore case"
    return None


def _find_float_difference(schema: pa.Schema, fields: Sequence[pa.Field]) -> str | None:
    """Return a message if Arrow would convert floats of a file otherwise than the table's format.

    Otherwise, the result is None. Two conversions differ: that of floats of 16 or 32 bits to doubles, and that of any
    floats to texts.

    Args:
        schema: The schema of the table.
        fields: The columns of the file.
    """
    expected = {column.path: column.type for column in schema_columns(schema)}
    for column in schema_columns(fields):
        target = expected.get(column.path, column.type)
        if pa.types.is_floating(column.type) and column.type != target and _may_be_widened(target):
            return (
                f"its column {column.path!r} has floats of the type {column.type}, "
                f"of which Arrow makes another {target}"
            )
    return None


def _may_be_widened(type_: pa.DataType) -> bool:
    return bool(pa.types.is_float64(type_) or pa.types.is_string(type_))


def _refused(table: str, reason: str) -> MetastoreError:
    return MetastoreError(
        f"table {table!r} cannot be a dataset, of which Arrow reads the files: {reason}; use `read` or `lazy`"
    )


class _Guarantees:
    """The guarantees of fragments, from the statistics of a version."""

    def __init__(self, schema: pa.Schema, table_schema: pa.Schema, pruner: Pruner) -> None:
        selection = pruner.index.all
        self._schema = schema
        self._has_days = any(_has_days(leaf) for field in schema for leaf in leaf_types(field.type))
        self._has_nested_days = any(
            _has_days(leaf) for field in schema if pa.types.is_nested(field.type) for leaf in leaf_types(field.type)
        )
        self._positions = {id_: position for position, id_ in enumerate(selection.fragments(("id",))["id"].to_pylist())}
        columns: dict[str, BoundColumn] = {}
        version_types = {column.field_id: column.type for column in _top_level(pruner.version.schema)}
        for field, column in zip(schema, _top_level(table_schema), strict=True):
            if version_types.get(column.field_id) != column.type or pa.types.is_nested(column.type):
                continue
            with suppress(UnsupportedTypeError):
                columns[field.name] = BoundColumn(column.path, column.field_id, type_class(column.type))
        bounds = selection.bounds(list(columns.values())).columns
        self._columns = [(schema.field(name), bounds[column.field_id]) for name, column in columns.items()]

    def of(self, fragment_id: str, file: ArrowFile) -> pc.Expression:
        """Return an expression that is true of all rows of a fragment."""
        parts = list(self._constants(file.constants))
        position = self._positions.get(fragment_id)
        if position is not None:  # the version does not have fragments that were added since
            constants = dict(file.constants)
            for field, bounds in self._columns:
                if field.name not in constants and (part := _guarantee(field, bounds, position)) is not None:
                    parts.append(part)
        return reduce(and_, parts) if parts else pc.scalar(True)

    def allow_old_days(self, fragment_id: str) -> bool:
        """Return whether a fragment may have days before 15 October 1582 in a date or timestamp column.

        The minima of these columns in the version decide. A column without a known minimum may have such days.

        In two cases, the minima do not suffice: the version lacks the fragment, or a struct, list or map has dates or
        timestamps. The result is then True if the schema has any date or timestamp, nested ones included.
        """
        position = self._positions.get(fragment_id)
        if position is None or self._has_nested_days:
            return self._has_days
        for field, bounds in self._columns:
            if not _has_days(field.type) or bounds.nulls.least[position] == bounds.rows[position]:
                continue
            minimum = bounds.minimum[position]
            if not minimum.is_valid or _is_before_1582(minimum):
                return True
        return False

    def _constants(self, constants: Sequence[tuple[str, pa.Array]]) -> Iterator[pc.Expression]:
        """Yield `column = value` for each column that is constant in the partition.

        If the value is null, the expression is `column is null`. If the file does not store the column, Arrow takes the
        value from the expression.
        """
        for name, value in constants:
            field = self._schema.field(name)
            scalar = value.cast(field.type)[0]
            yield pc.field(name) == scalar if scalar.is_valid else pc.field(name).is_null()


def _top_level(schema: pa.Schema) -> list[Column]:
    return [columns[0] for columns in columns_by_field(schema)]


def _guarantee(field: pa.Field, bounds: ColumnBounds, position: int) -> pc.Expression | None:
    """Return an expression on a column that is true of all rows of a fragment.

    The result is None if the statistics give no such expression.

    Args:
        field: The column.
        bounds: The bounds of the column in all fragments of the version.
        position: The position of the fragment in `bounds`.
    """
    if bounds.nans.most[position]:
        return None
    column = pc.field(field.name)
    if bounds.nulls.least[position] == bounds.rows[position] and bounds.rows[position]:
        return column.is_null()
    minimum, maximum = bounds.minimum[position], bounds.maximum[position]
    if not minimum.is_valid or not maximum.is_valid:
        return None
    try:
        lower, upper = (_to_array(scalar).cast(field.type)[0] for scalar in (minimum, maximum))
        is_old = pa.types.is_temporal(field.type) and not pa.types.is_time(field.type) and _is_before_1582(lower)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        return None
    if is_old:
        return None
    if bounds.nulls.most[position] == 0:
        return (column >= lower) & (column <= upper)
    # Arrow understands only this form: each comparison by itself admits nulls.
    return ((column >= lower) | column.is_null()) & ((column <= upper) | column.is_null())


def _has_days(type_: pa.DataType) -> bool:
    return bool(pa.types.is_date(type_) or pa.types.is_timestamp(type_))


def _to_array(scalar: pa.Scalar) -> pa.Array:
    # Python's times have no nanoseconds: Arrow truncates them without an error.
    return array_of([scalar]) if pa.types.is_time(scalar.type) else pa.array([scalar.as_py()], scalar.type)


def _is_before_1582(scalar: pa.Scalar) -> bool:
    """Return whether a date or timestamp is before 1582-10-15; for earlier days, calendars differ."""
    # Units of a timestamp are not cast to seconds, because the cast would round fractions before 1970 up.
    type = scalar.type if pa.types.is_timestamp(scalar.type) else pa.timestamp("s")
    units = pa.array([scalar]).cast(type).cast(pa.int64())[0].as_py()
    return bool(units // _UNITS_PER_DAY[type.unit] < _FIRST_COMMON_DAY)
