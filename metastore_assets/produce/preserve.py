"""Calls of a stage's Preserve hook, which copies values from previous rows to new rows.

The hook copies values, such as ids, between rows with the same target key. A stage is a step of a dataflow that
computes rows. The keys of these rows are its target keys.
"""

from __future__ import annotations

import polars as pl
import pyarrow as pa

from metastore_assets.errors import ProduceError
from metastore_assets.produce.cogroup import ApplyTask
from metastore_assets.produce.typed_rows import Rows, frame_of, table_of

_HAS_PREVIOUS = "_has_previous"
_NOVEL = "_novel"


def novel_keys(rows: Rows, written_rows: pl.DataFrame, previous: pl.DataFrame) -> pl.DataFrame:
    """Return the target keys that have rows in `written_rows` and none in `previous`.

    All frames are sorted.
    """
    return rows.order.distinct(rows.order.anti(written_rows, previous))


def apply_preserve(task: ApplyTask, written_rows: pl.DataFrame, previous: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Call the Preserve hook of a stage on new rows.

    Return (rows with the hook's values, sorted; number of new target keys).

    Args:
        task: The task, with the hook. New target keys get the numbers after the task's counter, in key order.
        written_rows: The new rows, sorted.
        previous: Rows that the target keys of `written_rows` had before, including rows that are being replaced. At
            least the first previous row of each key is needed, because the hook copies values from it. If an earlier
            call got the first row of a new key, `previous` has this row, as that call returned it.
    """
    assert task.rows is not None
    rows = task.rows
    if not written_rows.height:
        return written_rows, 0
    group, names = rows.order, rows.schema.names
    novel = novel_keys(rows, written_rows, previous).with_row_index(_NOVEL)
    novel = novel.with_columns(pl.col(_NOVEL).cast(pl.Int64) + task.counter + 1)
    # The hook gets the first row of a new key as the previous row of the key's other rows.
    later = group.beside(written_rows.select(group.columns), novel)[_NOVEL].is_not_null()
    later &= ~written_rows.select(group.changes()).to_series()
    examples = previous.select(names).filter(group.changes())
    result = _call_hook(task, written_rows.filter(~later), examples, novel)
    if later.any():
        firsts = group.semi(result, novel).select(names)
        others = _call_hook(task, written_rows.filter(later), firsts, novel.clear())
        result = group.sort(pl.concat([result, others]))
    return result, novel.height


def _call_hook(
    task: ApplyTask, written_rows: pl.DataFrame, examples: pl.DataFrame, novel: pl.DataFrame
) -> pl.DataFrame:
    """Call the hook once.

    Return `written_rows` with the values that the hook gives to its rows.

    Args:
        task: The task, with the hook.
        written_rows: The new rows, sorted.
        examples: One previous row for each target key that has one.
        novel: The target keys that have no row in `examples`. Each has a number, which the hook may assign to the key
            as a new id. The numbers are consecutive.

    Raises:
        ProduceError: The hook failed, or returned another number of rows, or values of wrong types.
    """
    hook, stage, rows = task.preserve, task.stage, task.rows
    assert hook is not None
    assert rows is not None
    # One row per written row: its target key, the previous row of this key (nulls without one), and its number.
    joined_rows = written_rows.select(rows.order.columns)
    for frame in (examples.with_columns(pl.lit(True).alias(_HAS_PREVIOUS)), novel):
        joined_rows = rows.order.beside(joined_rows, frame)
    try:
        result = hook(
            table_of(written_rows, rows.schema),
            table_of(joined_rows, rows.schema),
            joined_rows[_HAS_PREVIOUS].fill_null(False).to_arrow(),
            joined_rows[_NOVEL].to_arrow(),
        )
        values = frame_of(result.select(rows.value.names).cast(pa.schema(rows.value)))
        if values.height != written_rows.height:
            raise ValueError(f"it returned {values.height} rows for {written_rows.height}")
    except Exception as error:
        first = written_rows.select(rows.order.columns).row(0)
        raise ProduceError(
            f"stage {stage!r}: the preserve hook raised {type(error).__name__} among the target keys from {first!r}: "
            f"{error}",
            stage=stage,
            key=first,
        ) from error
    return written_rows.with_columns(values.get_columns())
