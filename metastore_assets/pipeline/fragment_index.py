"""The index of a table, from the published version to the next: what profiles say of the fragments that came.

It is not taken from the tasks that profile, because fragments come by other ways too: profiled by an attempt that did
not publish, or back in the table after a restore.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metastore_assets.errors import UnsupportedTypeError
from metastore_assets.index import IndexRows, update_index
from metastore_assets.index.fragments import (
    FRAGMENTS,
    cast_bounds,
    column_schema,
    group_by_column,
    shorten_bounds,
)
from metastore_assets.pipeline.engine import Engine
from metastore_assets.pipeline.profiles.states_reader import corruption_guard
from metastore_assets.pipeline.profiles.states_writer import LISTS, SECTION
from metastore_assets.statistics.union import cast_to_union, merge_unions, select_class
from metastore_assets.store.manifest import FragmentEntry, Version
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.segments import KeyChanges, SegmentFiles
from metastore_assets.values.types import TypeClass, type_class

_BOUNDS = ("nan_count", "minimum", "maximum", "minimum_exact", "maximum_exact")
_TOLD = ("field_id", "value_count", "null_count", "frequencies", *_BOUNDS)
"""What is read of each column of a profile."""
_FILES_PER_TASK = 64
_CHEAPER = 10
"""Times that it takes less to read bounds of a profile than to merge it."""


def table_index(
    engine: Engine, store: ObjectStore, columns: int, base: Version | None, fragments: Sequence[FragmentEntry]
) -> SegmentFiles:
    """The index of a version with those fragments, of about so many columns. Reads the profiles of those that `base`
    has not.

    Raises CorruptionError when a stored profile, or the index of `base`, is damaged.
    """
    base_files = base.index if base is not None else None
    base_fragments = base.fragments if base is not None and base_files is not None else ()
    before = {entry.files.name: _row(entry) for entry in base_fragments if entry.retired is None}
    changes = KeyChanges.between(before, {entry.files.name: _row(entry) for entry in fragments})
    added = [entry for entry in fragments if entry.files.name in changes.added]
    return update_index(store, base_files, read_rows(engine, store, columns, added), changes)


def read_rows(engine: Engine, store: ObjectStore, columns: int, fragments: Sequence[FragmentEntry]) -> IndexRows:
    """What the profiles of fragments say. Many are read by Spark's tasks. Raises CorruptionError."""
    by_file: dict[str, list[tuple[int, FragmentEntry]]] = {}
    for at, entry in enumerate(fragments):
        by_file.setdefault(entry.files.states if entry.files.is_states_only else entry.files.statistics, []).append(
            (at, entry)
        )
    paths = list(by_file)
    lots = [paths[at : at + _FILES_PER_TASK] for at in range(0, len(paths), _FILES_PER_TASK)]
    tasks = [
        [
            (path, {entry.files.section if entry.files.is_states_only else "": at for at, entry in by_file[path]})
            for path in lot
        ]
        for lot in lots
    ]
    work = [sum(len(sections) for _, sections in task) * columns // _CHEAPER for task in tasks]
    tables = engine.merge(partial(_read_files, store), tasks, work) if tasks else []
    table = _concatenated(tables)
    names = list(column_schema(pa.struct([])).names)
    return group_by_column(
        _fragments(fragments), table["at"].combine_chunks(), table["field_id"].combine_chunks(), table.select(names)
    )


def class_or_none(type: pa.DataType) -> TypeClass | None:
    """The class that values of a type widen into, if there is one."""
    try:
        return type_class(type)
    except UnsupportedTypeError:
        return None


def index_table(rows: pa.Table, type: pa.DataType) -> pa.Table:
    """Rows of a column of a type as `IndexColumn` has them."""
    cls = class_or_none(type)
    sides = [
        pa.nulls(len(rows)) if cls is None or cls.kind == "null" else select_class(rows[name].combine_chunks(), cls)
        for name in ("minimum", "maximum")
    ]
    names = ["null_count", "nan_count", "minimum", "maximum"]
    return pa.table([rows["null_count"], rows["nan_count"], *sides], names=names)


def _row(entry: FragmentEntry) -> tuple[object, ...]:
    return entry.id, entry.path, entry.partition_key, entry.bytes, entry.row_count


def _fragments(entries: Sequence[FragmentEntry]) -> pa.Table:
    rows = [(entry.files.name, *_row(entry)) for entry in entries]
    columns = list(zip(*rows, strict=True)) or [()] * len(FRAGMENTS)
    return pa.table(
        [pa.array(own, field.type) for own, field in zip(columns, FRAGMENTS, strict=True)], schema=FRAGMENTS
    )


def _concatenated(tables: Iterable[pa.Table]) -> pa.Table:
    tables = [table for table in tables if len(table)]
    union = merge_unions(table.schema.field("minimum").type for table in tables)
    schema = pa.schema([("at", pa.int64()), ("field_id", pa.string()), *column_schema(union)])
    parts = []
    for table in tables:
        bounds = cast_bounds(table, union)
        parts.append(pa.Table.from_arrays([table["at"], table["field_id"], *bounds.columns], schema=schema))
    # Arrow makes no empty arrays of extension types; without any table there is none of them.
    return pa.concat_tables(parts) if parts else schema.empty_table()


def _read_files(store: ObjectStore, files: Sequence[tuple[str, Mapping[str, int]]]) -> pa.Table:
    """A row for each column of some profiles: place of the fragment, field id, and what the index has.

    `files`: each with its sections that are wanted, and their places; a file without sections has "".
    """
    tables = []
    for path, places in files:
        with corruption_guard(store, path):
            tables += list(_profiles(store, path, places))
    return _concatenated(tables)


def _profiles(store: ObjectStore, path: str, places: Mapping[str, int]) -> Iterable[pa.Table]:
    if "" in places:
        table = store.read_parquet(path, list(_TOLD)).combine_chunks()
        yield _told(table, pa.repeat(places[""], len(table)), lambda: table)
        return
    wanted = pa.array(list(places), pa.string())
    numbers = pa.array(list(places.values()), pa.int64())
    with store.open_parquet(path) as file:
        for group in range(file.metadata.num_row_groups):
            table = file.read_row_group(group, columns=[SECTION[0], *_TOLD]).combine_chunks()
            own = pc.index_in(table[SECTION[0]], value_set=wanted).combine_chunks()
            lists = partial(file.read_row_group, group, columns=list(LISTS))
            if own.null_count:
                lists = partial(_filtered, lists, own.is_valid())
                table, own = table.filter(own.is_valid()), own.drop_null()
            if len(table):
                yield _told(table.combine_chunks(), numbers.take(own), lists)


def _filtered(read: Callable[[], pa.Table], mask: pa.Array) -> pa.Table:
    return read().filter(mask)


def _told(table: pa.Table, at: pa.Array, lists: Callable[[], pa.Table]) -> pa.Table:
    """What the index has of columns of profiles. A column that is kept as its list of values says the rest by that."""
    for name in ("minimum", "maximum"):
        # Not every file says of which Arrow type its texts were.
        values = cast_to_union(table[name].combine_chunks(), merge_unions([table.schema.field(name).type]))
        table = table.set_column(table.schema.get_field_index(name), name, values)
    implied = pc.and_(
        pc.and_(pc.equal(table["frequencies"], "enumerated"), pc.greater(table["value_count"], 0)),
        pc.and_(table["minimum"].is_null(), pc.invert(table["minimum_exact"].fill_null(False))),
    )
    places = np.flatnonzero(implied.to_numpy())
    if len(places):
        table = _with_ends(table, places, lists().combine_chunks())
    arrays = [at, table["field_id"], table["null_count"], *(table[name] for name in _BOUNDS)]
    return shorten_bounds(pa.table(arrays, names=["at", "field_id", "null_count", *_BOUNDS]))


def _with_ends(table: pa.Table, places: np.ndarray, lists: pa.Table) -> pa.Table:
    """The first and the last value of each list: they ascend, NaN last."""
    values, counts = (lists[name].chunk(0).take(pa.array(places)) for name in LISTS)
    flat, starts = values.values, values.offsets.to_numpy()[:-1]
    ends = values.offsets.to_numpy()[1:] - 1
    nans = np.zeros(len(places), np.int64)
    is_float = np.zeros(len(places), np.bool_)
    if (at := flat.type.get_field_index("float64")) >= 0:
        last = flat.flatten()[at].take(pa.array(ends))
        is_float = last.is_valid().to_numpy(zero_copy_only=False)
        is_nan = pc.is_nan(last).fill_null(False).to_numpy(zero_copy_only=False)
        nans = np.where(is_nan, counts.values.take(pa.array(ends)).to_numpy(), 0)
        ends = ends - is_nan
    none = ends < starts
    low, high = (flat.take(pa.array(np.where(none, 0, own), mask=none)) for own in (starts, ends))
    mask = np.zeros(len(table), np.bool_)
    mask[places] = True
    order = np.arange(len(table))
    order[places] = len(table) + np.arange(len(places))
    found = {
        "nan_count": pa.array(nans, mask=~is_float),
        "minimum": low,
        "maximum": high,
        "minimum_exact": pa.array(np.ones(len(places), np.bool_)),
        "maximum_exact": pa.array(np.ones(len(places), np.bool_)),
    }
    for name, own in found.items():
        column = table[name].combine_chunks()
        both = pa.concat_arrays([column, own.cast(column.type)])
        table = table.set_column(table.schema.get_field_index(name), name, both.take(pa.array(order)))
    return table
