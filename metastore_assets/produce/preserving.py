"""Carrying over what former rows of a target key had, and numbers for target keys that are new."""

from __future__ import annotations

import polars as pl
import pyarrow as pa

from metastore_assets.errors import ProduceError
from metastore_assets.produce.rows import Rows, frame_of, table_of
from metastore_assets.produce.stages import Preserve

_KNOWN = "_known"
_NOVEL = "_novel"


def novel_keys(rows: Rows, written: pl.DataFrame, former: pl.DataFrame) -> pl.DataFrame:
    """The target keys of sorted written rows that had no rows at the last version, sorted."""
    return rows.order.distinct(rows.order.anti(written, former))


def preserved(
    hook: Preserve, stage: str, rows: Rows, written: pl.DataFrame, former: pl.DataFrame, counter: int
) -> tuple[pl.DataFrame, int]:
    """The written rows, which are sorted, as the hook returns them, and how many target keys are new.

    `former` are all rows that the target keys had at the last version, those that are being replaced included.
    New target keys are numbered in key order from `counter` + 1.
    """
    if not written.height:
        return written, 0
    group, names = rows.order, rows.schema.names
    novel = novel_keys(rows, written, former).with_row_index(_NOVEL)
    novel = novel.with_columns(pl.col(_NOVEL).cast(pl.Int64) + counter + 1)
    # The first row of a new key is the example for its others.
    later = group.beside(written.select(group.columns), novel)[_NOVEL].is_not_null()
    later &= ~written.select(group.changes()).to_series()
    examples = former.select(names).filter(group.changes())
    result = _called(hook, stage, rows, written.filter(~later), examples, novel)
    if later.any():
        firsts = group.semi(result, novel).select(names)
        others = _called(hook, stage, rows, written.filter(later), firsts, novel.clear())
        result = group.sort(pl.concat([result, others]))
    return result, novel.height


def _called(
    hook: Preserve, stage: str, rows: Rows, written: pl.DataFrame, examples: pl.DataFrame, novel: pl.DataFrame
) -> pl.DataFrame:
    """Some rows as the hook returns them, given one example of each target key that has one, and numbers of others."""
    found = written.select(rows.order.columns)
    for frame in (examples.with_columns(pl.lit(True).alias(_KNOWN)), novel):
        found = rows.order.beside(found, frame)
    try:
        result = hook(
            table_of(written, rows.schema),
            table_of(found, rows.schema),
            found[_KNOWN].fill_null(False).to_arrow(),
            found[_NOVEL].to_arrow(),
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
