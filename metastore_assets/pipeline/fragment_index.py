"""The next fragment index of a table: bounds and null counts of each column in each fragment.

A fragment is a data file with its deletes, and its profile is its statistics. The published index loses the rows of
removed fragments, and gets rows of added ones from their stored profiles. A file of profiles may have several profiles,
each in a section with a name. Value counts are the distinct values of a column with their frequencies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metastore_assets.batching import batched
from metastore_assets.errors import UnsupportedTypeError
from metastore_assets.index import IndexRows, update_index
from metastore_assets.index.fragment_index import (
    FRAGMENTS,
    cast_bounds,
    column_schema,
    group_by_column,
    shorten_bounds,
)
from metastore_assets.pipeline.engine import Engine
from metastore_assets.pipeline.profiles.states_reader import corruption_guard
from metastore_assets.pipeline.profiles.states_writer import SECTION_COLUMNS, VALUE_COUNT_COLUMNS
from metastore_assets.statistics.typed_union import cast_to_union, merge_unions, select_class
from metastore_assets.store.entry_changes import EntryChanges, changed_entries
from metastore_assets.store.merged_set import PlannedUpdate
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.segments import KeyChanges, SegmentFiles
from metastore_assets.store.version import FragmentEntry
from metastore_assets.values.types import TypeClass, type_class

_BOUNDS = ("nan_count", "minimum", "maximum", "minimum_exact", "maximum_exact")
_PROFILE_COLUMNS = ("field_id", "value_count", "null_count", "frequencies", *_BOUNDS)
"""The columns that are read from a profile."""
_FILES_PER_TASK = 64
_READS_PER_MERGE = 10
"""Number of profiles whose bounds can be read in the time of merging one profile."""


def plan_fragment_index(
    engine: Engine,
    store: ObjectStore,
    columns: int,
    base: SegmentFiles | None,
    fragments: EntryChanges[FragmentEntry],
) -> PlannedUpdate[SegmentFiles]:
    """Return the update that makes the next fragment index from the published one.

    Without a published index, the update reads the profiles of all fragments.

    `write` of the update raises CorruptionError if a stored profile, or the published index, is damaged.

    Args:
        engine: The engine that reads profiles.
        store: The table's folder.
        columns: Number of columns of the table, to estimate the work.
        base: The published index; None if there is none.
        fragments: The fragments of the next version, as changes of the published ones.
    """
    before, after = changed_entries(fragments, is_rebuilt=base is None)
    before_rows, after_rows = ({entry.key: _row_identity(entry) for entry in entries} for entries in (before, after))
    changes = KeyChanges.between(before_rows, after_rows, len(fragments))

    def write(may_merge: bool) -> SegmentFiles:
        added_entries = [entry for entry in after if entry.key in changes.added_keys]
        replaced_keys = before_rows.keys() & changes.added_keys
        batches = [read_rows(engine, store, columns, added_entries)]
        return update_index(store, base, batches, replace(changes, may_merge=may_merge), replaced_keys)

    return PlannedUpdate(changes.key_count, write)


def read_rows(engine: Engine, store: ObjectStore, columns: int, fragments: Sequence[FragmentEntry]) -> IndexRows:
    """Read the index rows of fragments from their profiles: one row for each column of each fragment.

    Args:
        engine: The engine. It reads many profiles in Spark tasks.
        store: The folder of the profiles.
        columns: Number of columns of the table, to estimate the work.
        fragments: The fragments.

    Raises:
        CorruptionError: A stored profile is damaged.
    """
    positions_by_file: dict[str, dict[str, int]] = {}
    for position, entry in enumerate(fragments):
        path = entry.files.states if entry.files.is_states_only else entry.files.statistics
        section = entry.files.section if entry.files.is_states_only else ""
        positions_by_file.setdefault(path, {})[section] = position
    tasks = list(batched(positions_by_file.items(), _FILES_PER_TASK))
    weights = [sum(len(positions) for _, positions in task) * columns // _READS_PER_MERGE for task in tasks]
    tables = engine.merge(partial(_read_files, store), tasks, weights) if tasks else []
    table = _concatenate(tables)
    names = list(column_schema(pa.struct([])).names)
    return group_by_column(
        _fragment_table(fragments),
        table["at"].combine_chunks(),
        table["field_id"].combine_chunks(),
        table.select(names),
    )


def class_or_none(type: pa.DataType) -> TypeClass | None:
    """Return the type class of an Arrow type, or None if the type is unsupported.

    The type class is the physical type of the values.
    """
    try:
        return type_class(type)
    except UnsupportedTypeError:
        return None


def index_table(rows: pa.Table, type: pa.DataType) -> pa.Table:
    """Return the columns `null_count`, `nan_count`, `minimum` and `maximum` of one column's index rows.

    The bounds are null if the type is unsupported.

    Args:
        rows: A row for each fragment, with the columns of the index: one of the tables in `IndexRows.columns`.
        type: The type of the column.
    """
    cls = class_or_none(type)
    sides = [
        pa.nulls(len(rows)) if cls is None or cls.kind == "null" else select_class(rows[name].combine_chunks(), cls)
        for name in ("minimum", "maximum")
    ]
    names = ["null_count", "nan_count", "minimum", "maximum"]
    return pa.table([rows["null_count"], rows["nan_count"], *sides], names=names)


def _row_identity(entry: FragmentEntry) -> tuple[object, ...]:
    """Return a tuple that changes whenever the index rows of a fragment may change."""
    return entry.files.name, entry.id, entry.bytes, entry.row_count


def _fragment_table(entries: Sequence[FragmentEntry]) -> pa.Table:
    columns = [[getattr(entry, name) for entry in entries] for name in FRAGMENTS.names]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, FRAGMENTS, strict=True)]
    return pa.table(arrays, schema=FRAGMENTS)


def _concatenate(tables: Iterable[pa.Table]) -> pa.Table:
    """Concatenate tables of index rows, with bounds cast to a common union type.

    A union type is a struct with one field per physical type, such as `int64`.
    """
    tables = [table for table in tables if len(table)]
    union = merge_unions(table.schema.field("minimum").type for table in tables)
    schema = pa.schema([("at", pa.int64()), ("field_id", pa.string()), *column_schema(union)])
    parts = []
    for table in tables:
        bounds = cast_bounds(table, union)
        parts.append(pa.Table.from_arrays([table["at"], table["field_id"], *bounds.columns], schema=schema))
    # `empty_table` fails for extension types, but without tables the union has no types at all.
    return pa.concat_tables(parts) if parts else schema.empty_table()


def _read_files(store: ObjectStore, files: Sequence[tuple[str, Mapping[str, int]]]) -> pa.Table:
    """Read the index rows of profiles.

    May run in a worker process.

    The result has the columns `at` (position of the fragment), `field_id`, and those of the index. A position counts
    from 0 among the fragments given to `read_rows`.

    Args:
        store: The folder of the profiles.
        files: For each file, (path, {section: position of the fragment}). The section is "" if the file has none.
    """
    tables = []
    for path, positions in files:
        with corruption_guard(store, path):
            tables += list(_read_profiles(store, path, positions))
    return _concatenate(tables)


def _read_profiles(store: ObjectStore, path: str, positions: Mapping[str, int]) -> Iterable[pa.Table]:
    """Yield the index rows of profiles in one file, with the columns that `_read_files` returns.

    Args:
        store: The folder of the profiles.
        path: The path of the file.
        positions: {section: position of the fragment} for each section to read. Rows from the section have this
            position in the column `at`. The section is "" if the file has no sections.
    """
    if "" in positions:
        table = store.read_parquet(path, list(_PROFILE_COLUMNS)).combine_chunks()
        yield _index_rows(table, pa.repeat(positions[""], len(table)), lambda: table)
        return
    sections = pa.array(list(positions), pa.string())
    fragments = pa.array(list(positions.values()), pa.int64())
    with store.open_parquet(path) as file:
        for group in range(file.metadata.num_row_groups):
            table = file.read_row_group(group, columns=[SECTION_COLUMNS[0], *_PROFILE_COLUMNS]).combine_chunks()
            at = pc.index_in(table[SECTION_COLUMNS[0]], value_set=sections).combine_chunks()
            read_value_counts = partial(file.read_row_group, group, columns=list(VALUE_COUNT_COLUMNS))
            if at.null_count:
                read_value_counts = partial(_read_filtered, read_value_counts, at.is_valid())
                table, at = table.filter(at.is_valid()), at.drop_null()
            if len(table):
                yield _index_rows(table.combine_chunks(), fragments.take(at), read_value_counts)


def _read_filtered(read: Callable[[], pa.Table], mask: pa.Array) -> pa.Table:
    return read().filter(mask)


def _index_rows(table: pa.Table, at: pa.Array, read_value_counts: Callable[[], pa.Table]) -> pa.Table:
    """Return index rows from rows of profiles.

    Bounds that a profile does not store are derived from value counts. Long texts and binary values are shortened to
    valid bounds, or become null, which means unknown.

    Args:
        table: Rows of profiles, with `_PROFILE_COLUMNS`.
        at: For each row of `table`, the position of its fragment among the fragments given to `read_rows`.
        read_value_counts: Reads the `VALUE_COUNT_COLUMNS` of the same rows.
    """
    for name in ("minimum", "maximum"):
        # Files differ in the Arrow type of texts.
        values = cast_to_union(table[name].combine_chunks(), merge_unions([table.schema.field(name).type]))
        table = table.set_column(table.schema.get_field_index(name), name, values)
    is_derived = pc.and_(
        pc.and_(pc.equal(table["frequencies"], "enumerated"), pc.greater(table["value_count"], 0)),
        pc.and_(table["minimum"].is_null(), pc.invert(table["minimum_exact"].fill_null(False))),
    )
    rows = np.flatnonzero(is_derived.to_numpy())
    if len(rows):
        table = _with_derived_bounds(table, rows, read_value_counts().combine_chunks())
    bounds = column_schema(pa.struct([])).names
    arrays = [at, table["field_id"], *(table[name] for name in bounds)]
    return shorten_bounds(pa.table(arrays, names=["at", "field_id", *bounds]))


def _with_derived_bounds(table: pa.Table, rows: np.ndarray, value_counts: pa.Table) -> pa.Table:
    """Return the table with bounds and NaN counts of some rows set from their value counts.

    Value counts are sorted by value, with NaN last. The bounds are the first and the last value that is not NaN.

    Args:
        table: Rows of profiles, with `_PROFILE_COLUMNS`.
        rows: The positions of the rows to change.
        value_counts: The `VALUE_COUNT_COLUMNS` of all rows of `table`.
    """
    values, counts = (value_counts[name].chunk(0).take(pa.array(rows)) for name in VALUE_COUNT_COLUMNS)
    # `starts` and `ends`: the positions of the first and the last value of each row, without a NaN at the end.
    flat, starts = values.values, values.offsets.to_numpy()[:-1]
    ends = values.offsets.to_numpy()[1:] - 1
    nans = np.zeros(len(rows), np.int64)
    is_float = np.zeros(len(rows), np.bool_)
    if (at := flat.type.get_field_index("float64")) >= 0:
        last = flat.flatten()[at].take(pa.array(ends))
        is_float = last.is_valid().to_numpy(zero_copy_only=False)
        is_nan = pc.is_nan(last).fill_null(False).to_numpy(zero_copy_only=False)
        nans = np.where(is_nan, counts.values.take(pa.array(ends)).to_numpy(), 0)
        ends = ends - is_nan
    is_empty = ends < starts
    low, high = (flat.take(pa.array(np.where(is_empty, 0, positions), mask=is_empty)) for positions in (starts, ends))
    # For each column, derived values are appended to the stored ones; `order` selects the derived ones for `rows`.
    order = np.arange(len(table))
    order[rows] = len(table) + np.arange(len(rows))
    derived_columns = {
        "nan_count": pa.array(nans, mask=~is_float),
        "minimum": low,
        "maximum": high,
        "minimum_exact": pa.array(np.ones(len(rows), np.bool_)),
        "maximum_exact": pa.array(np.ones(len(rows), np.bool_)),
    }
    for name, array in derived_columns.items():
        column = table[name].combine_chunks()
        both = pa.concat_arrays([column, array.cast(column.type)])
        table = table.set_column(table.schema.get_field_index(name), name, both.take(pa.array(order)))
    return table
