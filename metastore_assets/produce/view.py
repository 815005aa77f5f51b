"""Reads of a version or state of a dataflow, as tables or in batches.

A reader gets the content, the key-mappings and the updates of stages. A stage computes its content from its input. The
keys of the input's rows are the source keys, and the keys of the content's rows are the target keys. A key-mapping is a
pair (source key, target key): rows with this target key were computed from rows with this source key. A root receives
rows from an external source, and a sum stage adds up amounts by key. Both have no key-mappings. An update is the
changes of the content since the previous version.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

import polars as pl
import pyarrow as pa

from metastore_assets.errors import GraphError, ObjectNotFoundError, StageChangedError, VersionNotFoundError
from metastore_assets.produce.dataset import Dataset, DatasetState
from metastore_assets.produce.graph import TypedNode
from metastore_assets.produce.manifest import FlowManifest, Manifests
from metastore_assets.produce.order import normalize_zeros
from metastore_assets.produce.ranks import Ranks
from metastore_assets.produce.run_schema import RunSchema
from metastore_assets.produce.runs import KeyRange, read_run
from metastore_assets.produce.stages import DeltaRoot, SumStage
from metastore_assets.produce.state import FlowState, StageState
from metastore_assets.produce.streams import regroup_steps
from metastore_assets.produce.typed_rows import CHANGE, frame_of, table_of, with_nulls
from metastore_assets.produce.updates import ADD, CHANGES, update_schema
from metastore_assets.store.objects import ObjectStore

_MAX_ROWS_TOGETHER = 1_000_000
"""Maximum number of rows of one key that are returned in one batch."""


class RunInfo(NamedTuple):
    """One file of a stage's content or key-mappings."""

    dataset: str
    """`content` or `mappings`."""
    shard: int | None
    """Number of the file's shard; None at level 0, which spans all shards."""
    level: int
    rows: int
    path: str


class View:
    """A reader of one state or version of a dataflow.

    Reads raise VersionNotFoundError if files are missing, because the version has expired or was compacted since. Reads
    of a delta root raise GraphError, because its rows are not stored.
    """

    def __init__(
        self,
        storage: ObjectStore,
        graph: Mapping[str, TypedNode],
        state: FlowState,
        manifest: FlowManifest | None = None,
    ) -> None:
        """Create a view of a state.

        Args:
            storage: The folder of the dataflow.
            graph: The roots and stages of the dataflow, by name.
            state: The state to read.
            manifest: The manifest of the version that has this state; None if the version is not known.
        """
        self._storage = storage
        self._graph = graph
        self._state = state
        self._manifest = manifest

    @property
    def number(self) -> int:
        """The version number, or 0 before the first version.

        Raises GraphError for the view of a state (`Dataflow.view`), which has no number.
        """
        if self._manifest is None:
            raise GraphError("this is the view of a state, which has no number: only its publisher knows the version")
        return self._manifest.number

    @property
    def sources(self) -> Mapping[str, int]:
        """{root: last applied version of its source}, for roots whose source has versions."""
        return self._state.sources

    def content(self, stage: str) -> pa.Table:
        """Return all rows of a root or stage, sorted by key.

        A stage with a Produce function has the columns target key, source key and value, and is sorted by target key
        and source key. Roots and sum stages have no source key.
        """
        return _concat(self.content_batches(stage), self._typed(stage).content.schema)

    def content_batches(self, stage: str) -> Iterator[pa.RecordBatch]:
        """Yield the content in batches.

        A target key with up to a million rows is not split.
        """
        return self._batches(stage, self._typed(stage).content, "content")

    def batches_from(self, stage: str, key: pa.Table) -> Iterator[pa.RecordBatch]:
        """Yield a stage's rows in batches, from a target key on.

        The key (a one-row table) need not exist.
        """
        typed_node = self._typed(stage)
        names = typed_node.content.group.columns
        schema = pa.schema([typed_node.content.schema.field(name) for name in names])
        after = normalize_zeros(frame_of(key.select(names).cast(schema)), names)
        for dataset in self._dataset(stage, typed_node.content, "content"):
            with self._expiry_errors():
                for frame in dataset.scan(KeyRange(after, closed=True)).frames:
                    yield from table_of(frame, typed_node.content.schema).combine_chunks().to_batches()

    def mappings(self, stage: str) -> pa.Table:
        """Return the pairs (source key, target key) of a stage, sorted.

        Raises GraphError if `stage` names a root or a sum stage, because neither has key-mappings.
        """
        run_schema = self._typed(stage).mappings
        if run_schema is None:
            raise GraphError(f"{stage!r} is a root or a sum: it has no key-mappings")
        return _concat(self._batches(stage, run_schema, "mappings"), run_schema.schema)

    def update(self, stage: str) -> pa.Table:
        """Return the changes of a stage since the previous version, sorted by key.

        The columns are `_change`, and the key and value columns. `_change` is `add`, `update` or `delete`. An added or
        updated key has a row for each of its values. The first row of an added key says `add`, and its other rows say
        `update`. Exception: if this version loaded the content, the result is the whole content, and all rows say
        `add`.

        The changes of a sum stage also have the previous totals, in columns such as `_before_frequency`. Raises
        GraphError for a sum stage with `is_followed=False`, which stores no changes.
        """
        schema = self._update_schema(stage).schema
        return _concat(self.update_batches(stage), schema)

    def update_batches(self, stage: str) -> Iterator[pa.RecordBatch]:
        """Yield the rows that `update` returns, in batches."""
        run_schema = self._update_schema(stage)
        self._check_followed(stage)
        state = self._state.stages.get(stage)
        if state is not None and state.loaded:
            for batch in self._batches(stage, self._typed(stage).content, "content"):
                rows = frame_of(pa.Table.from_batches([batch])).with_columns(pl.lit(ADD).alias(CHANGE))
                yield from table_of(with_nulls(rows, run_schema.empty), run_schema.schema).to_batches()
        for run in state.update if state else ():
            with self._expiry_errors():
                for frame in read_run(self._storage, run, run_schema).frames:
                    yield from table_of(frame, run_schema.schema).to_batches()

    def change_counts(self, stage: str) -> dict[str, int]:
        """Return the numbers of `add`, `update` and `delete` rows in the update, without reading a file."""
        self._update_schema(stage)
        self._check_followed(stage)
        state = self._state.stages.get(stage)
        counts = dict.fromkeys(CHANGES, 0)
        if state is not None:
            counts[ADD] += state.content.rows if state.loaded else 0
            for run in state.update:
                for name, rows in zip(CHANGES, run.changes, strict=True):
                    counts[name] += rows
        return counts

    def is_reset(self, stage: str) -> bool:
        """Return whether the stage was rebuilt or loaded in this version, so that its update adds all rows."""
        state = self._state.stages.get(stage)
        return state is not None and state.reset

    def groups(self, stage: str, keys: pa.Table | None = None) -> pa.Table:
        """Return key and value columns of a stage, sorted by target key.

        Args:
            stage: Name of the stage.
            keys: A table of target keys, to return only their rows; None for all rows.
        """
        typed_node = self._typed(stage)
        if keys is None:
            return self.content(stage).select(typed_node.rows.schema.names)
        sorted_keys = normalize_zeros(
            frame_of(keys.select(typed_node.rows.key.names).cast(typed_node.rows.key)), typed_node.rows.key.names
        )
        sorted_keys = typed_node.rows.order.distinct(typed_node.rows.order.sort(sorted_keys))
        with self._expiry_errors():
            frames = [dataset.lookup(sorted_keys) for dataset in self._dataset(stage, typed_node.content, "content")]
        rows = pl.concat([typed_node.content.empty.select(typed_node.content.schema.names), *frames])
        return table_of(rows, typed_node.rows.schema)

    def rows_with_prefixes(self, stage: str, prefixes: pa.Table) -> pa.Table:
        """Return the rows of a sum stage whose first key columns equal a row of `prefixes`.

        Args:
            stage: Name of a sum stage.
            prefixes: Values of the first key columns.

        Raises:
            GraphError: The stage is no sum, or its key does not begin with the columns of `prefixes`.
        """
        typed_node = self._typed(stage)
        order = typed_node.rows.order.first(prefixes.num_columns)
        if not isinstance(typed_node.node, SumStage) or list(order.columns) != prefixes.column_names:
            raise GraphError(f"{stage!r} is no sum by keys that begin with {', '.join(prefixes.column_names)}")
        schema = pa.schema([typed_node.rows.key.field(name) for name in order.columns])
        sorted_keys = order.distinct(order.sort(normalize_zeros(frame_of(prefixes.cast(schema)), schema.names)))
        with self._expiry_errors():
            frames = [
                dataset.rows_with_prefixes(sorted_keys)
                for dataset in self._dataset(stage, typed_node.content, "content")
            ]
        return table_of(pl.concat([typed_node.content.empty, *frames]), typed_node.rows.schema)

    def ranks(self, stage: str, amount: str) -> Ranks:
        """Return a reader of the ranks of a sum stage's keys.

        Ranks follow the order of keys. A key has as many ranks as its value in the column `amount`. Raises GraphError
        unless `amount` is an integer total that is never negative.
        """
        typed_node = self._typed(stage)
        datasets = self._dataset(stage, typed_node.content, "content")
        empty = Dataset(self._storage, typed_node.content, DatasetState(typed_node.content.empty_keys))
        return Ranks(stage, datasets[0] if datasets else empty, amount)

    def runs(self, stage: str) -> list[RunInfo]:
        """Return the files of a stage's content and key-mappings."""
        self._typed(stage)
        state = self._state.stages.get(stage)
        infos: list[RunInfo] = []
        for name, dataset_state in (("content", state.content), ("mappings", state.mappings)) if state else ():
            if dataset_state is not None:
                shards = [(number, run) for number, shard in enumerate(dataset_state.shards) for run in shard.runs]
                everywhere = [(None, run) for run in dataset_state.level0]
                infos += [
                    RunInfo(name, number, run.level, run.rows, run.path) for number, run in (*shards, *everywhere)
                ]
        return infos

    def _typed(self, stage: str) -> TypedNode:
        if stage not in self._graph:
            raise GraphError(f"there is no stage {stage!r}; there are: {', '.join(self._graph)}")
        if isinstance(self._graph[stage].node, DeltaRoot):
            raise GraphError(f"{stage!r} is a DeltaRoot, whose rows are not stored: read the stages that it feeds")
        return self._graph[stage]

    def _check_followed(self, stage: str) -> None:
        node = self._graph[stage].node
        if isinstance(node, SumStage) and not node.is_followed:
            raise GraphError(f"{stage!r} is declared with is_followed=False: its updates are not stored")

    def _update_schema(self, stage: str) -> RunSchema:
        typed_node = self._typed(stage)
        self._check_form(stage)
        return update_schema(typed_node.rows, sums=isinstance(typed_node.node, SumStage))

    def _dataset(self, stage: str, run_schema: RunSchema, name: str) -> list[Dataset]:
        """Return one dataset of a stage in a list; an empty list if the stage does not have the dataset.

        Args:
            stage: Name of the stage.
            run_schema: The schema of the dataset.
            name: The dataset: `content` or `mappings`.

        Raises:
            StageChangedError: The declared columns or row order of the stage differ from those of its stored files.
        """
        self._check_form(stage)
        state: StageState | None = self._state.stages.get(stage)
        dataset_state: DatasetState | None = getattr(state, name) if state else None
        return [] if dataset_state is None else [Dataset(self._storage, run_schema, dataset_state)]

    def _check_form(self, stage: str) -> None:
        state = self._state.stages.get(stage)
        if state is not None and state.form != self._graph[stage].form:
            raise StageChangedError(
                f"stage {stage!r} had other columns, or another order, in {self._text()}: open "
                "the graph as it was declared then to read it"
            )

    def _batches(self, stage: str, run_schema: RunSchema, name: str) -> Iterator[pa.RecordBatch]:
        """Yield all rows of a dataset in batches.

        A target key with up to a million rows is not split.

        Args:
            stage: Name of the stage.
            run_schema: The schema of the dataset.
            name: The dataset: `content` or `mappings`.
        """
        for dataset in self._dataset(stage, run_schema, name):
            with self._expiry_errors():
                frames = dataset.scan().frames
                if not run_schema.amounts:  # a sum has one row per key
                    pieces = regroup_steps(([frame] for frame in frames), run_schema.group, _MAX_ROWS_TOGETHER)
                    frames = (frame for piece in pieces for frame in piece.frames)
                for frame in frames:
                    # Combine each frame into one batch, so that no target key is split.
                    yield from table_of(frame, run_schema.schema).combine_chunks().to_batches()

    def _text(self) -> str:
        which = "this state" if self._manifest is None else f"version {self.number}"
        return f"{which} of {self._storage.uri()}"

    @contextmanager
    def _expiry_errors(self) -> Iterator[None]:
        """Convert an ObjectNotFoundError in the `with` block to VersionNotFoundError.

        The error is converted if the version expired or was compacted. In the view of a state without a version, it is
        always converted.
        """
        try:
            yield
        except ObjectNotFoundError as error:
            if self._manifest is None:
                raise VersionNotFoundError(f"{self._text()} has expired: open a newer one ({error})") from error
            # Raises if the whole version has expired.
            newest = Manifests(self._storage).read(self.number)
            if newest.document == self._manifest.document:
                raise
            raise VersionNotFoundError(
                f"{self._text()} has been compacted since it was opened, and its previous "
                f"files have expired: open it again ({error})"
            ) from error


def _concat(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_batches(batches, schema)
