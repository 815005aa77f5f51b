"""Writing of the value counts of columns as runs: sorted, immutable Parquet files.

A type class is the physical type of values, such as `int64`. Each type class has several stages. A stage stores the
counts of all columns of the type class in one form: sorted by value, sorted by frequency without the values that occur
once, or summed up as the number of values per frequency. A profile is the statistics of a data file, a partition or the
table, and a profile spec says which statistics it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from metastore_assets.pipeline.profile_spec import ProfileSpec
from metastore_assets.pipeline.value_counts.deltas import value_count_rows
from metastore_assets.produce.complete_load import Loader
from metastore_assets.produce.runs import Run
from metastore_assets.statistics.frequencies import Frequencies
from metastore_assets.value_counts.graph import FREQUENCIES, FREQUENCY_COUNTS, VALUES, rows_of, stage_name


def write_runs(
    spec: ProfileSpec,
    classes: Mapping[str, str],
    loaders: Mapping[str, Loader],
    number: int,
    sums: Iterable[tuple[int, Frequencies]],
) -> dict[str, list[Run]]:
    """Write the value counts of columns, or of one range of a column, as runs of each stage.

    May run in a worker process.

    Args:
        spec: The profile spec. Its columns are sorted by type class, then field id.
        classes: The type classes of the columns, by field id.
        loaders: The writers of the stages, by name of the stage.
        number: Ignored. The parameter exists because `WriteSums` functions get the number of a profile.
        sums: (position in the spec, frequencies) of the columns, by increasing position.

    Returns:
        {name of the stage, such as `values.int64`: written runs}.
    """
    runs: dict[str, list[Run]] = {}
    buffered_columns: list[tuple[str, Frequencies]] = []

    def flush(name: str) -> None:
        for kind, table in stage_tables(name, buffered_columns).items():
            stage = stage_name(kind, name)
            runs.setdefault(stage, []).extend(loaders[stage].write(table))
        buffered_columns.clear()

    previous: str | None = None
    for position, frequencies in sums:
        column, _ = spec.columns[position]
        name = classes[column.field_id]
        if previous is not None and name != previous:
            flush(previous)
        previous = name
        if len(frequencies):
            buffered_columns.append((column.field_id, frequencies))
    if previous is not None:
        flush(previous)
    return runs


def stage_tables(type_class: str, columns: Sequence[tuple[str, Frequencies]]) -> dict[str, pa.Table]:
    """Return the rows of the stages of one type class, in key order, by kind of stage.

    Rows of the kind `FREQUENCIES`, by decreasing frequency, omit values that occur once. If `columns` is empty, the
    result only has an empty table for the kind `VALUES`.

    Args:
        type_class: The type class of all columns.
        columns: (field id, frequencies) of the columns, by increasing field id.
    """
    schema = rows_of(type_class).schema
    tables: dict[str, list[pa.Table]] = {VALUES: [schema.empty_table()], FREQUENCIES: [], FREQUENCY_COUNTS: []}
    for column, frequencies in columns:
        rows = value_count_rows(column, frequencies.values, frequencies.counts, schema)
        tables[VALUES].append(rows)
        counts = frequencies.counts.to_numpy()
        repeated_positions = np.flatnonzero(counts > 1)
        order = repeated_positions[np.argsort(-counts[repeated_positions], kind="stable")]
        sorted_rows = rows.take(pa.array(order)).append_column("values", pa.array(np.ones(len(order), np.int64)))
        tables[FREQUENCIES].append(sorted_rows.select(["column", "frequency", "value", "values"]))
        frequency, value_counts = np.unique(counts, return_counts=True)
        tables[FREQUENCY_COUNTS].append(
            pa.table(
                {
                    "column": pa.array([column] * len(frequency)),
                    "frequency": pa.array(frequency),
                    "values": pa.array(value_counts.astype(np.int64)),
                }
            )
        )
    return {kind: pa.concat_tables(parts) for kind, parts in tables.items() if parts}
