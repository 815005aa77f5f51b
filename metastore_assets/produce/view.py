"""Reading a version: content, key-mappings and updates of stages, as tables or piece by piece."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

import polars as pl
import pyarrow as pa

from metastore_assets.errors import GraphError, ObjectNotFoundError, StageChangedError, VersionNotFoundError
from metastore_assets.produce.dataset import Dataset, State
from metastore_assets.produce.graph import Typed
from metastore_assets.produce.layout import Layout
from metastore_assets.produce.manifest import Manifest, Manifests, StageState
from metastore_assets.produce.order import canonical
from metastore_assets.produce.rows import frame_of, table_of
from metastore_assets.produce.runs import read_run
from metastore_assets.produce.stages import SumStage
from metastore_assets.produce.updates import update_layout
from metastore_assets.store.objects import ObjectStore


class RunInfo(NamedTuple):
    """One file that a stage's content or key-mappings are made of."""

    dataset: str
    """`content` or `mappings`."""
    shard: int | None
    """Number of the range of keys that it is of; None at level 0, which is of all."""
    level: int
    rows: int
    path: str


class View:
    """One version. Stays readable until it is expired, whatever is published in the meantime.

    Reading it after that raises VersionNotFoundError.
    """

    def __init__(self, storage: ObjectStore, graph: Mapping[str, Typed], manifest: Manifest) -> None:
        self._storage = storage
        self._graph = graph
        self._manifest = manifest

    @property
    def number(self) -> int:
        """1, 2, 3, …; 0 for the empty state before the first version."""
        return self._manifest.number

    @property
    def sources(self) -> Mapping[str, int]:
        """The last version of its source that each root has, where sources count them."""
        return self._manifest.sources

    def content(self, stage: str) -> pa.Table:
        """All rows (target key, source key, value), by target key, source key, and position."""
        return _whole(self.content_batches(stage), self._typed(stage).content.schema)

    def content_batches(self, stage: str) -> Iterator[pa.RecordBatch]:
        """The same piece by piece: no target key is split between two pieces."""
        return self._batches(stage, self._typed(stage).content, "content")

    def mappings(self, stage: str) -> pa.Table:
        """The set of (source key, target key), by both. Raises GraphError for roots and sums, which have none."""
        layout = self._typed(stage).mappings
        if layout is None:
            raise GraphError(f"{stage!r} is a root or a sum: it has no key-mappings")
        return _whole(self._batches(stage, layout, "mappings"), layout.schema)

    def update(self, stage: str) -> pa.Table:
        """What changed since the version before: `_change`, key and value columns, by key.

        `add`, `update` and `delete`; a key that is added or updated comes with all its values, the first of an added
        one says `add`, the others `update`.
        """
        schema = self._update_layout(stage).schema
        return _whole(self.update_batches(stage), schema)

    def update_batches(self, stage: str) -> Iterator[pa.RecordBatch]:
        """The same piece by piece."""
        layout = self._update_layout(stage)
        state = self._manifest.stages.get(stage)
        for run in state.update if state else ():
            with self._there():
                for frame in read_run(self._storage, run, layout).frames:
                    yield from table_of(frame, layout.schema).to_batches()

    def is_reset(self, stage: str) -> bool:
        """Whether the stage was built anew in this version, so that its update adds all there is."""
        state = self._manifest.stages.get(stage)
        return state is not None and state.reset

    def groups(self, stage: str, keys: pa.Table | None = None) -> pa.Table:
        """Key and value columns by target key, of all keys or of some."""
        typed = self._typed(stage)
        if keys is None:
            return self.content(stage).select(typed.rows.schema.names)
        wanted = canonical(frame_of(keys.select(typed.rows.key.names).cast(typed.rows.key)), typed.rows.key.names)
        wanted = typed.rows.order.distinct(typed.rows.order.sort(wanted))
        with self._there():
            frames = [dataset.lookup(wanted) for dataset in self._dataset(stage, typed.content, "content")]
        whole = pl.concat([typed.content.empty.select(typed.content.schema.names), *frames])
        return table_of(whole, typed.rows.schema)

    def runs(self, stage: str) -> list[RunInfo]:
        """The files that content and key-mappings are made of."""
        self._typed(stage)
        state = self._manifest.stages.get(stage)
        found: list[RunInfo] = []
        for name, own in (("content", state.content), ("mappings", state.mappings)) if state else ():
            if own is not None:
                shards = [(number, run) for number, shard in enumerate(own.shards) for run in shard.runs]
                everywhere = [(None, run) for run in own.level0]
                found += [
                    RunInfo(name, number, run.level, run.rows, run.path) for number, run in (*shards, *everywhere)
                ]
        return found

    def _typed(self, stage: str) -> Typed:
        if stage not in self._graph:
            raise GraphError(f"there is no stage {stage!r}; there are: {', '.join(self._graph)}")
        return self._graph[stage]

    def _update_layout(self, stage: str) -> Layout:
        typed = self._typed(stage)
        self._check_form(stage)
        return update_layout(typed.rows, sums=isinstance(typed.node, SumStage))

    def _dataset(self, stage: str, layout: Layout, name: str) -> list[Dataset]:
        """The dataset, or none where the stage has no state yet."""
        self._check_form(stage)
        state: StageState | None = self._manifest.stages.get(stage)
        own: State | None = getattr(state, name) if state else None
        return [] if own is None else [Dataset(self._storage, layout, own)]

    def _check_form(self, stage: str) -> None:
        state = self._manifest.stages.get(stage)
        if state is not None and state.form != self._graph[stage].form:
            raise StageChangedError(
                f"stage {stage!r} had other columns, or another order, in version {self.number} of "
                f"{self._storage.uri()}: open the graph as it was declared then to read it"
            )

    def _batches(self, stage: str, layout: Layout, name: str) -> Iterator[pa.RecordBatch]:
        for dataset in self._dataset(stage, layout, name):
            with self._there():
                for frame in dataset.scan().frames:
                    # As one piece, so that no target key is split, however many frames it came in.
                    yield from table_of(frame, layout.schema).combine_chunks().to_batches()

    @contextmanager
    def _there(self) -> Iterator[None]:
        """Tells a version that has been expired from a file that is missing."""
        try:
            yield
        except ObjectNotFoundError as error:
            # Raises where the whole version is gone.
            newest = Manifests(self._storage).read(self.number)
            if newest.document == self._manifest.document:
                raise
            raise VersionNotFoundError(
                f"version {self.number} of {self._storage.uri()} has been compacted since it was opened, and its "
                f"former files have been expired: open it anew ({error})"
            ) from error


def _whole(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_batches(batches, schema)
