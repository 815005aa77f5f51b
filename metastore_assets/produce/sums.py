"""Sum stages: the amounts that changed rows add or remove, and the totals that result.

An amount is a number to add to a total. Source keys are the keys of the stage's input. Target keys are the keys of its
output, which is the totals. When rows of a source key change, the amounts of the key's previous rows are subtracted
from the totals, and the amounts of its current rows are added. No other rows are read. A target key is removed when all
of its totals are zero. The negation of every amount and total must fit its type, too, so that it can be subtracted
again.

The rows come from two kinds of feeders (nodes that a stage reads). A feeder that stores its rows has an update with the
changed keys. A delta root stores nothing, and passes deltas: batches of rows that were added or removed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import polars as pl
import pyarrow as pa

from metastore_assets.errors import CorruptionError, UpdateError
from metastore_assets.produce.environment import Spool
from metastore_assets.produce.graph import TypedNode
from metastore_assets.produce.inputs import Feeder, KeyChunks, changed_keys
from metastore_assets.produce.order import normalize_zeros
from metastore_assets.produce.parts import Part, Sorter
from metastore_assets.produce.run_schema import RunSchema
from metastore_assets.produce.runs import KeyRange
from metastore_assets.produce.stages import Delta, SumStage
from metastore_assets.produce.typed_rows import CHANGE, frame_of
from metastore_assets.produce.updates import ADD, BEFORE, DELETE, UPDATE, key_text, typed_tables

_ESTIMATE = "_estimate_"
_MAX_TOTAL = 2**63 - 1
_MAX_UNSCALED = 10**38 - 1
"""The greatest decimal total, as an unscaled integer."""


@dataclass(frozen=True)
class Step:
    """The result of applying instructions to some target keys.

    Instructions are new rows, tombstones (which delete rows) or amounts. If a task rewrites its whole key range,
    `previous` and `content` also have the rows of the other keys in the range.
    """

    previous: pl.DataFrame
    """All rows of the target keys before the instructions."""
    run: pl.DataFrame
    """The instructions that have an effect, to record in a new run."""
    content: pl.DataFrame
    """All rows of the target keys after the instructions."""
    update: pl.DataFrame
    """The update rows of these keys, for the stages that read this one."""
    novel: int = 0
    """Number of new target keys that got a number for the Preserve hook."""


@dataclass(frozen=True)
class SumTask:
    """A task that computes what changed rows of a key range add to the totals of a sum stage.

    The range is one of source keys.
    """

    stage: TypedNode
    feeders: tuple[Feeder, ...]
    key_range: KeyRange
    spool: Spool


def changed_amounts(task: SumTask) -> list[Part]:
    """Return the amounts to add to the totals because rows of source keys in `task.key_range` changed.

    Amounts of previous rows are negated. The rows of each part are sorted by target key.
    """
    run_schema = task.stage.content
    sorter = Sorter(task.spool, run_schema)
    chunks = KeyChunks(changed_keys(task.feeders, task.key_range), task.spool.settings.batch_rows)
    for keys in chunks:
        rows = 0
        frames = [run_schema.empty]
        for feeder in task.feeders:
            for values, sign in _signed_rows(feeder, keys):
                rows += values.height
                frames.append(_amounts(task.stage, values, sign))
        chunks.record(keys.height, rows)
        sorter.add(sum_changes(task.stage.name, pl.concat(frames), run_schema))
    return sorter.parts()


def updated_amounts(stage: TypedNode, feeders: Sequence[Feeder], updates: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Return the amounts to add to the totals of a sum stage whose feeders are also sum stages.

    Args:
        stage: The sum stage.
        feeders: The nodes whose output the stage reads, all of them sum stages.
        updates: The update of each feeder, with previous and current totals.
    """
    frames = [stage.content.empty]
    for feeder, update in zip(feeders, updates, strict=True):
        frames += [_amounts(stage, values, sign) for values, sign in _current_and_previous(feeder, update)]
    return sum_changes(stage.name, pl.concat(frames), stage.content)


def all_totals(stage: TypedNode, contents: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Return the totals of a sum stage, computed from all rows of its feeders.

    Args:
        stage: The sum stage.
        contents: For each feeder, a frame with all of its rows.
    """
    assert isinstance(stage.node, SumStage)
    assert stage.input is not None
    frames = [_amounts(stage, values, 1) for values in contents]
    if len(frames) == 1 and set(stage.input.key.names) <= set(stage.node.key):
        return _drop_zeros(frames[0], stage.content)  # No two rows share a key.
    return sum_changes(stage.name, pl.concat(frames), stage.content)


@dataclass(frozen=True)
class DeltaTask:
    """A task that computes what deltas of delta roots add to the totals of a sum stage."""

    stage: TypedNode
    deltas: tuple[Delta, ...]
    spool: Spool


def delta_amounts(task: DeltaTask) -> list[Part]:
    """Return the amounts that deltas add to the totals, by target key.

    Amounts of removed rows are negative.
    """
    stage, run_schema = task.stage, task.stage.content
    sorter = Sorter(task.spool, run_schema)
    buffered_frames = [run_schema.empty]
    rows = 0
    for delta in task.deltas:
        for frame in _delta_rows(stage, delta):
            buffered_frames.append(_amounts(stage, frame, -1 if delta.removed else 1))
            rows += frame.height
            if rows >= task.spool.settings.batch_rows:
                sorter.add(sum_changes(stage.name, pl.concat(buffered_frames), run_schema))
                buffered_frames, rows = [run_schema.empty], 0
    sorter.add(sum_changes(stage.name, pl.concat(buffered_frames), run_schema))
    return sorter.parts()


def _delta_rows(stage: TypedNode, delta: Delta) -> Iterator[pl.DataFrame]:
    """Yield all rows of a delta, with only the columns that the stage uses."""
    node = stage.node
    assert isinstance(node, SumStage)
    assert stage.input is not None
    fields = {field.name: field for field in stage.input.schema}
    schema = pa.schema([fields[name] for name in dict.fromkeys((*node.key, *node.amounts, *(node.least or ())[:1]))])
    for table in typed_tables(" or ".join(node.feeders), schema, delta.batches()):
        yield frame_of(table)


def _signed_rows(feeder: Feeder, keys: pl.DataFrame) -> Sequence[tuple[pl.DataFrame, int]]:
    """Return [(current rows, 1), (previous rows, -1)] of changed source keys in a feeder.

    If the stage is rebuilt (`feeder.is_full`), its totals start empty: only the first pair is returned.
    """
    if feeder.is_full:
        return [(feeder.values(keys), 1)]
    changed_rows = feeder.changed_rows(keys)
    if feeder.sums:
        return _current_and_previous(feeder, changed_rows)
    current = changed_rows.filter(pl.col(CHANGE) != DELETE)[:, feeder.rows.schema.names]
    return [(current, 1), (feeder.previous_rows(changed_rows), -1)]


def _current_and_previous(feeder: Feeder, changed_rows: pl.DataFrame) -> Sequence[tuple[pl.DataFrame, int]]:
    """Return [(current rows, 1), (previous rows, -1)] of a feeder that is a sum stage.

    Args:
        feeder: The feeder.
        changed_rows: Rows of its update, which have the totals before and after.
    """
    current = changed_rows.filter(pl.col(CHANGE) != DELETE)[:, feeder.rows.schema.names]
    previous = changed_rows.filter(pl.col(CHANGE) != ADD).with_columns(
        pl.col(f"{BEFORE}_{name}").alias(name) for name in feeder.rows.value.names
    )
    return [(current, 1), (previous[:, feeder.rows.schema.names], -1)]


def _amounts(stage: TypedNode, values: pl.DataFrame, sign: int) -> pl.DataFrame:
    """Return, for each row of `values`, the key of its total and its amounts multiplied by `sign`.

    If the stage counts rows (`SumStage.count`), each row has the count `sign`. If the stage has a minimum for a column
    (`SumStage.least`), rows with a smaller value in this column are left out.

    Raises UpdateError if an amount is null or does not fit the type of its total.
    """
    node, run_schema = stage.node, stage.content
    assert isinstance(node, SumStage)
    if node.least is not None:
        name, least = node.least
        values = values.filter(pl.col(name) >= least)
    for name in node.amounts:
        if values[name].null_count():
            key = values.filter(pl.col(name).is_null()).select(node.key)[0]
            raise UpdateError(f"stage {stage.name!r}: the amount {name!r} of the key {key_text(key)} is null")
    types = {name: values.schema[name] for name in node.amounts}
    # Keep the width of the totals: the only value whose negation does not fit is too wide for a total itself.
    fits = {name: types[name] == pl.Int64 or not types[name].is_integer() for name in node.amounts}
    wide = [pl.col(name) if fits[name] else pl.col(name).cast(pl.Int128) for name in node.amounts]
    amounts = [
        (amount.cast(run_schema.empty.schema[name]) if not types[name].is_integer() else amount) * sign
        for name, amount in zip(node.amounts, wide, strict=True)
    ]
    if node.count is not None:
        amounts.append(pl.lit(sign, pl.Int64).alias(node.count))
    try:
        keyed_amounts = normalize_zeros(
            values.select(*node.key, *amounts) if values.height else run_schema.empty, node.key
        )
    except pl.exceptions.InvalidOperationError as error:
        raise _too_wide(stage.name, run_schema) from error
    return _cast_amounts(stage.name, keyed_amounts, run_schema)


def add_amounts(
    stage: str, run_schema: RunSchema, changes: pl.DataFrame, previous: pl.DataFrame, *, is_followed: bool = True
) -> Step:
    """Add amounts to the totals of some keys.

    Return the totals before and after, and the rows to write.

    Args:
        stage: Name of the stage, for messages.
        run_schema: Columns of the totals.
        changes: The amounts to add, one row per key.
        previous: The totals of these keys before, and perhaps of other keys. Keys without totals have no row.
        is_followed: Whether another stage reads the changes of the totals. Otherwise `Step.update` is empty.

    Raises:
        CorruptionError: A total in `RunSchema.unsigned` would become negative.
        UpdateError: A total does not fit its type.
    """
    content = sum_changes(stage, pl.concat([previous, changes]), run_schema) if previous.height else changes
    _check_totals(stage, run_schema, content)
    update = _update(run_schema, changes, previous) if is_followed else changes.clear()
    return Step(previous, changes, content, update)


def _check_totals(stage: str, run_schema: RunSchema, content: pl.DataFrame) -> None:
    """Raise CorruptionError if a total in `RunSchema.unsigned` is negative."""
    if any((content[name] < 0).any() for name in run_schema.unsigned):
        below = content.filter(pl.any_horizontal(pl.col(name) < 0 for name in run_schema.unsigned))
        key = key_text(below.select(run_schema.group.columns)[0])
        totals = ", ".join(f"{name} = {below[name][0]}" for name in run_schema.amounts)
        is_signed = run_schema.unsigned != run_schema.amounts
        advice = "" if is_signed else ", or declare it with `signed=True` where totals may be below zero"
        raise CorruptionError(
            f"stage {stage!r}: the totals of the key {key} would be {totals}: more was taken away than was ever added; "
            f"rebuild the stage{advice}"
        )


def sum_changes(stage: str, frame: pl.DataFrame, run_schema: RunSchema) -> pl.DataFrame:
    """Return the exact sums of the amounts of each key, sorted, without keys whose sums are all zero.

    Raises UpdateError if a sum does not fit the type of its total.
    """
    schema = run_schema.empty.schema
    amounts = [
        pl.col(name).cast(pl.Int128).sum() if schema[name].is_integer() else pl.col(name).sum()
        for name in run_schema.amounts
    ]
    estimates = [
        pl.col(name).cast(pl.Float64).sum().alias(f"{_ESTIMATE}{name}")
        for name in run_schema.amounts
        if schema[name].is_decimal()
    ]
    total = frame.group_by(run_schema.group.columns, maintain_order=True).agg(*amounts, *estimates)
    return _drop_zeros(_cast_amounts(stage, total, run_schema), run_schema)


def _drop_zeros(totals: pl.DataFrame, run_schema: RunSchema) -> pl.DataFrame:
    """Return the rows sorted by key, without rows whose totals are all zero.

    Each key must have one row, because rows with the same key are not added up. This is not checked.
    """
    if not all((totals[name] != 0).all() for name in run_schema.amounts):
        totals = totals.filter(pl.any_horizontal(pl.col(name) != 0 for name in run_schema.amounts))
    return run_schema.order.sort(totals)


def _cast_amounts(stage: str, frame: pl.DataFrame, run_schema: RunSchema) -> pl.DataFrame:
    """Return the columns of `run_schema` from a frame, each cast to its type in `run_schema`.

    Other columns are dropped.

    Raises UpdateError if an amount or its negation does not fit the type.
    """
    beyond = []
    for name in run_schema.amounts:
        dtype = frame.schema[name]
        if not isinstance(dtype, pl.Decimal):
            ends = (frame[name].min(), frame[name].max()) if frame.height else ()
            if any(not -_MAX_TOTAL <= end <= _MAX_TOTAL for end in ends):  # type: ignore[operator]
                raise _too_wide(stage, run_schema)
            continue
        beyond.append(~pl.col(name).to_physical().is_between(-_MAX_UNSCALED, _MAX_UNSCALED))
        if f"{_ESTIMATE}{name}" in frame.columns:
            # 128-bit sums wrap around: a wrapped sum differs from the true one by a multiple of 2**128, about 3.4e38.
            beyond.append(pl.col(f"{_ESTIMATE}{name}").abs() > 1.5 * 10.0 ** (38 - dtype.scale))
    if beyond and frame.select(pl.any_horizontal(beyond).any()).item():
        raise _too_wide(stage, run_schema)
    types = run_schema.empty.schema
    if frame.schema == types:
        return frame
    # Cast column by column, because casting a frame builds a query.
    return pl.DataFrame(
        [
            column if column.dtype == types[name] else column.cast(types[name])
            for name in run_schema.schema.names
            for column in [frame[name]]
        ]
    )


def _too_wide(stage: str, run_schema: RunSchema) -> UpdateError:
    totals = ", ".join(f"{name}: {run_schema.schema.field(name).type}" for name in run_schema.amounts)
    return UpdateError(
        f"stage {stage!r}: an amount, or a sum of amounts, does not fit the type of its total ({totals}); "
        "integers that are too wide can be added up as decimals"
    )


def _update(run_schema: RunSchema, changes: pl.DataFrame, previous: pl.DataFrame) -> pl.DataFrame:
    """Return the update rows of changed keys, with their new and previous totals.

    An update row is `add`, `update` or `delete`.

    Args:
        run_schema: Columns and order of the totals.
        changes: The changed keys, with the amounts to add to their totals.
        previous: The totals before, only of keys that had any.
    """
    before = {name: f"{BEFORE}_{name}" for name in run_schema.amounts}
    rows = run_schema.group.beside(changes, previous.rename(before))
    totals_after = {name: pl.col(name) + pl.col(previous_name).fill_null(0) for name, previous_name in before.items()}
    is_deleted = pl.all_horizontal(total == 0 for total in totals_after.values())
    change = (
        pl.when(pl.col(before[run_schema.amounts[0]]).is_null())
        .then(pl.lit(ADD))
        .when(is_deleted)
        .then(pl.lit(DELETE))
        .otherwise(pl.lit(UPDATE))
    )
    totals = [pl.when(~is_deleted).then(total).alias(name) for name, total in totals_after.items()]
    return rows.select(change.alias(CHANGE), *run_schema.group.columns, *totals, *before.values())
