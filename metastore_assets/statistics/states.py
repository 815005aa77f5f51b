"""Tables of states: mergeable statistics of a set of rows, with one row per column of the data table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

import pyarrow as pa

from metastore_assets.statistics.column import STATISTICS, ColumnStatistics
from metastore_assets.statistics.histogram import Histogram
from metastore_assets.statistics.profile_tables import pack_columns, unpack_columns
from metastore_assets.statistics.registry import BUILTIN_STATISTICS

STATE_COLUMNS = tuple(name for name, statistic in STATISTICS.items() if statistic.is_state)
"""The columns of the file `statistics` that merges need. The other columns are derived from states or the schema."""

UNION_COLUMNS = tuple(name for name in STATE_COLUMNS if STATISTICS[name].kind in ("value", "percentiles"))
"""The state columns whose values have the typed union: a struct with one field per type class."""

SKETCH_COLUMNS: dict[str, pa.DataType] = {
    field.name: field.type for statistic in BUILTIN_STATISTICS for field in statistic.state_schema
}
"""The columns of a table of states that encode sketches and other states, with their types."""


def build_states_table(
    rows: Sequence[ColumnStatistics], histograms: Sequence[Histogram | None], union: pa.StructType
) -> pa.Table:
    """Return a table of states.

    Args:
        rows: The statistics of the columns, with their mergeable states.
        histograms: The histogram of each row.
        union: The typed union of all values: a struct with one field per type class.

    Returns:
        A table with one row for each column of the data table. It has the columns of the file `statistics` that merges
        need (`STATE_COLUMNS`), and then the columns with sketches and other states (`SKETCH_COLUMNS`).
    """
    packed_table = pack_columns(rows, STATE_COLUMNS, union)
    sketches = [array for statistic in BUILTIN_STATISTICS for array in statistic.encode_states(rows, histograms)]
    return pa.Table.from_arrays([*packed_table.columns, *sketches], names=[*STATE_COLUMNS, *SKETCH_COLUMNS])


@lru_cache(maxsize=64)
def build_states_schema(union: pa.StructType) -> pa.Schema:
    """Return the schema of the tables that `build_states_table` builds."""
    return build_states_table([], [], union).schema


def read_state_rows(table: pa.Table, columns: Iterable[tuple[str, str]]) -> list[ColumnStatistics]:
    """Return the rows of a table of states.

    Fields that `finalize_statistics` computes are None.

    Args:
        table: A table that `build_states_table` built.
        columns: (path, type as text) of the column of each row, in the order of the rows. The table contains neither
            paths nor types.
    """
    table = table.combine_chunks()
    fields = unpack_columns(table, STATE_COLUMNS)
    for statistic in BUILTIN_STATISTICS:
        fields |= statistic.decode_states(table)
    rows = zip(*fields.values(), strict=True)
    return [
        ColumnStatistics(position=position, column=path, type=type_text, **dict(zip(fields, row, strict=True)))
        for position, (row, (path, type_text)) in enumerate(zip(rows, columns, strict=True))
    ]
