"""Calls of a stage's Produce function on changed source keys, whose output becomes instructions.

A feeder is a node whose output the stage reads. The keys of feeders are the source keys of the stage; the stage's
output has target keys. The function is called for each source key that changed in a feeder, with all current values of
the key. Without any values, it is not called, and the key has no output. The output of a source key replaces the rows
that the key contributed before. Instructions are the rows that carry out this replacement. A tombstone is an
instruction that only deletes rows. Key-mappings are the stored pairs (source key, target key). A port is one input of a
stage.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl
import pyarrow as pa

from metastore_assets.errors import ProduceError
from metastore_assets.produce.dataset import Dataset
from metastore_assets.produce.environment import Spool
from metastore_assets.produce.graph import TypedNode
from metastore_assets.produce.inputs import Feeder, KeyChunks, changed_keys, distinct_feeders
from metastore_assets.produce.order import normalize_zeros
from metastore_assets.produce.parts import Part, Sorter
from metastore_assets.produce.per_key import KeyFailure, batches_of
from metastore_assets.produce.run_schema import TOMBSTONE
from metastore_assets.produce.runs import KeyRange
from metastore_assets.produce.stages import Batch, PerBatch, Stage
from metastore_assets.produce.typed_rows import SOURCE, frame_of, source_columns, table_of, with_nulls
from metastore_assets.produce.updates import key_text

_PORT = "_feeder"


@dataclass(frozen=True)
class ProduceTask:
    """A task that calls the Produce function of a stage for one range of source keys."""

    stage: TypedNode
    ports: tuple[tuple[Feeder, ...], ...]
    mappings: Dataset
    key_range: KeyRange
    spool: Spool


@dataclass(frozen=True)
class Instructions:
    """Sorted rows to apply to the content and to the key-mappings of a stage."""

    content: list[Part]
    """The new rows of each changed pair (target key, source key); a tombstone for a pair without new rows."""
    mappings: list[Part]
    """The new target keys of each changed source key; a tombstone for a source key without target keys."""


def produce(task: ProduceTask) -> Instructions:
    """Call the Produce function on the changed source keys of a range.

    Return the instructions.
    """
    assert isinstance(task.stage.node, Stage)
    assert task.stage.mappings is not None
    content = Sorter(task.spool, task.stage.content)
    mappings = Sorter(task.spool, task.stage.mappings)
    function = batches_of(task.stage.node)
    chunks = KeyChunks(changed_keys(distinct_feeders(task.ports), task.key_range), task.spool.settings.batch_rows)
    for keys in chunks:
        ports = [_port_values(port, keys) for port in task.ports]
        chunks.record(keys.height, sum(port.height for port in ports))
        outputs = _outputs(task, function, keys, ports)
        previous = _previous(task, keys)
        new = outputs.select(previous.columns).unique(maintain_order=True)
        pairs = task.stage.mappings.order
        removed_pairs = pairs.anti(previous, new)
        content.add(_content(task, outputs, removed_pairs))
        mappings.add(_mappings(task, new, removed_pairs, pairs.anti(new, previous)))
    return Instructions(content.parts(), mappings.parts())


def _port_values(port: Sequence[Feeder], keys: pl.DataFrame) -> pl.DataFrame:
    """Return the values of source keys on one port, sorted by source key, then by feeder.

    A port is one input of the stage. The column `_source` has the row number of the source key in `keys`.
    """
    rows = port[0].rows
    numbered_keys = keys.with_row_index(SOURCE).cast({SOURCE: pl.Int64})
    frames = [feeder.values(keys).with_columns(pl.lit(number).alias(_PORT)) for number, feeder in enumerate(port)]
    joined_rows = rows.order.beside(pl.concat(frames), numbered_keys)
    return joined_rows.sort(SOURCE, _PORT, maintain_order=True).select(SOURCE, *rows.value.names)


def _outputs(task: ProduceTask, function: PerBatch, keys: pl.DataFrame, ports: list[pl.DataFrame]) -> pl.DataFrame:
    """Call the Produce function.

    Return its output rows with the columns of source key, target key and values.

    Args:
        task: The task, with the stage.
        function: The Produce function.
        keys: The changed source keys. Keys that have no values in any of `ports` are not passed to the function.
        ports: For each input of the stage, the values of the keys (see `_port_values`).
    """
    used_sources = pl.concat([port[SOURCE] for port in ports]).unique().sort()
    # Produce is not called for a source key without a value on any port, because such a key has no output.
    present = keys[used_sources]
    renumbered_ports = [
        port.with_columns(used_sources.search_sorted(port[SOURCE]).cast(pl.Int64).alias(SOURCE))
        if port.height
        else port
        for port in ports
    ]
    outputs = _call_checked(task, function, present, renumbered_ports)
    sources = present.rename(dict(zip(keys.columns, source_columns(keys.columns), strict=True)))
    sources = sources.with_row_index(SOURCE).cast({SOURCE: pl.Int64})
    outputs = normalize_zeros(outputs, task.stage.rows.key.names)
    return outputs.join(sources, on=SOURCE, how="left", maintain_order="left").drop(SOURCE)


def _call_checked(task: ProduceTask, function: PerBatch, keys: pl.DataFrame, ports: list[pl.DataFrame]) -> pl.DataFrame:
    """Return the output of the Produce function.

    With `Settings.check`, call it again on each half of the keys. Raise ProduceError if the outputs differ.
    """
    outputs = _call(task, function, keys, ports)
    if task.spool.settings.check and keys.height:
        # Call Produce on two halves, which also detects that the output depends on other keys of the batch.
        middle = keys.height // 2
        halves = [
            _call(task, function, keys[start:stop], _select_sources(ports, start, stop))
            for start, stop in ((0, middle), (middle, keys.height))
        ]
        again = pl.concat([halves[0], halves[1].with_columns(pl.col(SOURCE) + middle)])
        _compare(task, keys, outputs.sort(SOURCE, maintain_order=True), again.sort(SOURCE, maintain_order=True))
    return outputs


def _select_sources(ports: list[pl.DataFrame], start: int, stop: int) -> list[pl.DataFrame]:
    """Return the rows of each port whose source key has a number in a range.

    The range is from `start` (inclusive) to `stop` (exclusive). In the result, the source keys are numbered from 0:
    `start` is subtracted from each number.
    """
    return [
        port.filter(pl.col(SOURCE).is_between(start, stop - 1)).with_columns(pl.col(SOURCE) - start) for port in ports
    ]


def _call(task: ProduceTask, function: PerBatch, keys: pl.DataFrame, ports: list[pl.DataFrame]) -> pl.DataFrame:
    """Return the output of a Produce function for source keys and their values.

    Raises ProduceError if the function fails, or if its output is invalid.
    """
    if not keys.height:
        return _empty_outputs(task)
    batch = Batch(
        table_of(keys, task.stage.source),
        tuple(table_of(port, _port_schema(feeders)) for port, feeders in zip(ports, task.ports, strict=True)),
    )
    name = task.stage.name
    try:
        return _typed(task, function(batch), keys.height)
    except KeyFailure as failure:
        cause = failure.__cause__
        raise ProduceError(
            f"stage {name!r}: Produce raised {type(cause).__name__} for the source key {failure.key!r}: {cause}",
            stage=name,
            key=failure.key,
        ) from cause
    except ProduceError:
        raise
    except Exception as error:
        first, last = (key_text(keys[row]) for row in (0, keys.height - 1))
        raise ProduceError(
            f"stage {name!r}: Produce raised {type(error).__name__} in the batch of source keys {first} to {last}: "
            f"{error}",
            stage=name,
            key=first,
        ) from error


def _port_schema(feeders: Sequence[Feeder]) -> pa.Schema:
    return pa.schema([pa.field(SOURCE, pa.int64()), *feeders[0].rows.value])


def _typed(task: ProduceTask, table: pa.Table, keys: int) -> pl.DataFrame:
    """Return the output of a Produce function in the declared types.

    Args:
        task: The task, with the stage.
        table: The output.
        keys: The number of source keys that the function was called with.

    Raises:
        KeyError: A column is missing.
        IndexError: The `_source` of a row is not the position of a source key: an integer from 0 to `keys` - 1.
        ArrowException: A value cannot be cast to the declared type.
    """
    schema = pa.schema([pa.field(SOURCE, pa.int64()), *task.stage.rows.schema])
    missing = [name for name in schema.names if name not in table.schema.names]
    if missing:
        raise KeyError(f"its table has no column {missing[0]!r}; it needs {', '.join(schema.names)}")
    outputs = frame_of(table.select(schema.names).cast(schema))
    if outputs.height and not outputs[SOURCE].is_between(0, keys - 1).fill_null(False).all():
        raise IndexError(f"{SOURCE} is the number of a row of the batch's keys, from 0 to {keys - 1}")
    return outputs


def _empty_outputs(task: ProduceTask) -> pl.DataFrame:
    return frame_of(pa.schema([pa.field(SOURCE, pa.int64()), *task.stage.rows.schema]).empty_table())


def _compare(task: ProduceTask, keys: pl.DataFrame, once: pl.DataFrame, twice: pl.DataFrame) -> None:
    """Raise ProduceError if the outputs of two calls differ.

    The error names the first source key with a difference.

    Args:
        task: The task, for the message.
        keys: The source keys.
        once: The output of the first call. The column SOURCE has the position of each row's source key in `keys`.
        twice: The output of the second call, in the same form.
    """
    if once.equals(twice, null_equal=True):
        return
    for number in range(keys.height):
        mine, again = (frame.filter(pl.col(SOURCE) == number) for frame in (once, twice))
        if not mine.equals(again, null_equal=True):
            key = keys.row(number) if keys.width > 1 else keys.row(number)[0]
            raise ProduceError(
                f"stage {task.stage.name!r}: Produce gave {mine.height} and then other {again.height} rows for the "
                f"source key {key!r}: it must depend on nothing but its arguments",
                stage=task.stage.name,
                key=key,
            )


def _previous(task: ProduceTask, keys: pl.DataFrame) -> pl.DataFrame:
    """Return the previous (source key, target key) pairs of these source keys."""
    sources = keys.rename(dict(zip(keys.columns, source_columns(keys.columns), strict=True)))
    return task.mappings.lookup(sources)


def _content(task: ProduceTask, outputs: pl.DataFrame, removed_pairs: pl.DataFrame) -> pl.DataFrame:
    """Return the instructions for content: all output rows, and a tombstone for each removed pair.

    A pair (source key, target key) is removed if the source key no longer contributes rows to the target key.
    """
    names = task.stage.content.file_schema.names
    written_rows = outputs.with_columns(pl.lit(False).alias(TOMBSTONE))[:, names]
    tombstones = removed_pairs.with_columns(pl.lit(True).alias(TOMBSTONE))
    return pl.concat([written_rows, with_nulls(tombstones, task.stage.content.empty)])


def _mappings(
    task: ProduceTask, new: pl.DataFrame, removed_pairs: pl.DataFrame, added_pairs: pl.DataFrame
) -> pl.DataFrame:
    """Return instructions that replace the key-mappings of source keys whose set of target keys changed.

    For each of these source keys, all of its new pairs are returned. A source key without new pairs has one tombstone.

    Args:
        task: The task.
        new: The pairs (source key, target key) of all source keys for which the Produce function was just called.
        removed_pairs: The previous pairs that are not among the new ones.
        added_pairs: The new pairs that are not among the previous ones.
    """
    assert task.stage.mappings is not None
    source_key = task.stage.mappings.unit
    changed_sources = pl.concat([removed_pairs, added_pairs]).select(source_key.columns).unique()
    sets = source_key.semi(new, changed_sources).with_columns(pl.lit(False).alias(TOMBSTONE))
    tombstones = source_key.anti(changed_sources, new).with_columns(pl.lit(True).alias(TOMBSTONE))
    return pl.concat([sets, with_nulls(tombstones, task.stage.mappings.empty)])
