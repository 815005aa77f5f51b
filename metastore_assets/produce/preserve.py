"""Call the Preserve hook of a stage, and number its new target keys."""

from __future__ import annotations

import polars as pl
import pyarrow as pa

from metastore_assets.errors import ProduceError
from metastore_assets.produce.rows import Rows, frame_of, table_of
from metastore_assets.produce.stages import Preserve

_KNOWN = "_known"
_NOVEL = "_novel"


def novel_keys(rows: Rows, written: pl.DataFrame, previous: pl.DataFrame) -> pl.DataFrame:
    """Return the target keys of sorted written rows that had no rows in the last version, sorted."""
    return rows.order.distinct(rows.order.anti(written, previous))


def apply_preserve(
    hook: Preserve, stage: str, rows: Rows, written: pl.DataFrame, previous: pl.DataFrame, counter: int
) -> tuple[pl.DataFrame, int]:
    """Return the sorted written rows after the hook, and the number of new target keys.

    Args:
        previous: All rows of the target keys in the last version, including rows that are being replaced.
        counter: The last assigned number; new target keys are numbered in key order after it.
    """
    if not written.height:
        return written, 0
    group, names = rows.order, rows.schema.names
    novel = novel_keys(rows, written, previous).with_row_index(_NOVEL)
    novel = novel.with_columns(pl.col(_NOVEL).cast(pl.Int64) + counter + 1)
    # The first row of a new key serves as the previous row of its other rows.
    later = group.beside(written.select(group.columns), novel)[_NOVEL].is_not_null()
    later &= ~written.select(group.changes()).to_series()
    examples = previous.select(names).filter(group.changes())
    result = _called(hook, stage, rows, written.filter(~later), examples, novel)
    if later.any():
        firsts = group.semi(result, novel).select(names)
        others = _called(hook, stage, rows, written.filter(later), firsts, novel.clear())
        result = group.sort(pl.concat([result, others]))
    return result, novel.height


def _called(
    hook: Preserve, stage: str, rows: Rows, written: pl.DataFrame, examples: pl.DataFrame, novel: pl.DataFrame
) -> pl.DataFrame:
    """Call the hook with one previous row for each target key that has one, and numbers for the others."""
    joined = written.select(rows.order.columns)
    for frame in (examples.with_columns(pl.lit(True).alias(_KNOWN)), novel):
        joined = rows.order.beside(joined, frame)
    try:
        result = hook(
            table_of(written, rows.schema),
            table_of(joined, rows.schema),
            joined[_KNOWN].fill_null(False).to_arrow(),
            joined[_NOVEL].to_arrow(),
        )
        values = frame_of(result.select(rows.value.names).cast(pa.schema(rows.value)))
        if values.height != written.height:
            raise ValueError(f"it returned {values.height} rows for {written.height}")
    except Exception as error:
        first = written.select(rows.order.columns).row(0)
        raise ProduceError(
            f"stage {stage!r}: the preserve hook raised {type(error).__name__} among the target keys from {first!r}: "
            f"{error}",
            stage=stage,
            key=first,
        ) from error
    return written.with_columns(values.get_columns())
