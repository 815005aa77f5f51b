"""Runs of all stages of value counts, written from full frequencies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from metastore_assets.pipeline.profile_spec import ProfileSpec
from metastore_assets.pipeline.value_counts.deltas import value_count_rows
from metastore_assets.produce.loading import Loader
from metastore_assets.produce.runs import Run
from metastore_assets.statistics.frequencies import Frequencies
from metastore_assets.value_counts.graph import FREQUENCIES, FREQUENCY_COUNTS, VALUES, rows_of, stage_name


def write_runs(
    spec: ProfileSpec,
    classes: Mapping[str, str],
    loaders: Mapping[str, Loader],
    total: int,
    lists: Iterable[tuple[int, Frequencies]],
) -> dict[str, list[Run]]:
    """Write full frequencies, or one range of them, as runs by stage.

    May run in a worker process. Holds the frequencies of one class at a time.
    """
    runs: dict[str, list[Run]] = {}
    held: list[tuple[str, Frequencies]] = []

    def flush(name: str) -> None:
        for kind, table in stage_tables(name, held).items():
            stage = stage_name(kind, name)
            runs.setdefault(stage, []).extend(loaders[stage].write(table))
        held.clear()

    before: str | None = None
    for position, whole in lists:
        leaf, _ = spec.leaves[position]
        name = classes[leaf.field_id]
        if before is not None and name != before:
            flush(before)
        before = name
        if len(whole):
            held.append((leaf.field_id, whole))
    if before is not None:
        flush(before)
    return runs


def stage_tables(type_class: str, lists: Sequence[tuple[str, Frequencies]]) -> dict[str, pa.Table]:
    """Return the rows of each kind of stage in key order, for columns by increasing field id."""
    schema = rows_of(type_class).schema
    values, frequencies, facts = [schema.empty_table()], [], []
    for column, own in lists:
        rows = value_count_rows(column, own.values, own.counts, schema)
        values.append(rows)
        counts = own.counts.to_numpy()
        repeated = np.flatnonzero(counts > 1)
        order = repeated[np.argsort(-counts[repeated], kind="stable")]
        ranked = rows.take(pa.array(order)).append_column("values", pa.array(np.ones(len(order), np.int64)))
        frequencies.append(ranked.select(["column", "frequency", "value", "values"]))
        often, number = np.unique(counts, return_counts=True)
        facts.append(
            pa.table(
                {
                    "column": pa.array([column] * len(often)),
                    "frequency": pa.array(often),
                    "values": pa.array(number.astype(np.int64)),
                }
            )
        )
    tables = {VALUES: values, FREQUENCIES: frequencies, FREQUENCY_COUNTS: facts}
    return {kind: pa.concat_tables(own) for kind, own in tables.items() if own}
