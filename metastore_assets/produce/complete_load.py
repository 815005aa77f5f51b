"""Loading of complete content: sorted rows become the files (runs) of a root or a sum stage.

A root stores rows from an external source. A sum stage has totals by key. Loading replaces all rows, so no list of
changed keys (update) is written. Several processes may write runs, each for one key range. One process combines all
runs into one dataset.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import polars as pl

from metastore_assets.errors import CorruptionError, GraphError, UpdateError
from metastore_assets.produce.compaction import BASE_LEVEL, continues_key
from metastore_assets.produce.dataset import DatasetState, Shard, merge_streams
from metastore_assets.produce.environment import Settings
from metastore_assets.produce.graph import TypedNode
from metastore_assets.produce.order import normalize_zeros
from metastore_assets.produce.run_schema import RunSchema
from metastore_assets.produce.runs import Run, RunWriter, footer_of, read_run
from metastore_assets.produce.stages import Root, SumStage
from metastore_assets.produce.typed_rows import frame_of, table_of
from metastore_assets.produce.updates import External, key_text, typed_tables
from metastore_assets.store.objects import ObjectStore


@dataclass(frozen=True)
class Loader:
    """A writer of runs for a root or a sum stage.

    It is small and picklable, so that tasks can use it.
    """

    name: str
    storage: ObjectStore
    folder: str
    run_schema: RunSchema
    settings: Settings

    @classmethod
    def of(cls, typed_node: TypedNode, storage: ObjectStore, folder: str, settings: Settings) -> Loader:
        """Return the loader of a root or a sum stage.

        Raises GraphError for other nodes.

        Args:
            typed_node: The root or the sum stage.
            storage: The storage of the runs.
            folder: Folder of the runs.
            settings: Sizes of the runs.
        """
        if not isinstance(typed_node.node, Root | SumStage):
            raise GraphError(
                f"{typed_node.name!r} cannot be loaded: only roots and sum stages can; others are built from what "
                "feeds them"
            )
        return cls(typed_node.name, storage, folder, typed_node.content, settings)

    def write(self, rows: External) -> list[Run]:
        """Write sorted rows (key and value columns) as runs of about the target size.

        Rows of a sum stage must have distinct keys, and totals that are not null and not all zero. Only stages declared
        as `signed` may have negative totals.

        Raises:
            UpdateError: A column is missing or has another type. Or the rows are not sorted by key, or break these
                rules.
        """
        runs: list[Run] = []
        frames = self._checked(rows)
        frame, size = next(frames, None), self.settings.target_rows
        while frame is not None:
            # A run contains all rows of its last key.
            with RunWriter(self.storage, self.folder, self.run_schema, self.settings.row_group_rows) as writer:
                last = frame
                while frame is not None and (writer.rows < size or continues_key(last, frame, self.run_schema)):
                    writer.write(frame)
                    last, frame = frame, next(frames, None)
            runs.append(writer.run(BASE_LEVEL))
        return runs

    def adopt(self, path: str) -> Run:
        """Return the run of a file that `write` has written, perhaps in another process.

        Raises CorruptionError if its columns are not those of the loader's runs, or its row groups are not sorted.
        """
        footer = footer_of(self.storage, path)
        uri, schema = self.storage.uri(path), footer.metadata.schema.to_arrow_schema()
        if not schema.equals(self.run_schema.file_schema):
            raise CorruptionError(
                f"{uri} has the columns {', '.join(schema.names)}, not those of a run of {self.name!r}: "
                f"{', '.join(self.run_schema.file_schema.names)}; write it with the stage's loader"
            )
        ends = pl.concat([footer.first, footer.last]).with_row_index("_position")
        count = footer.first.height
        ends = ends.select(
            pl.exclude("_position"), position=pl.col("_position") % count * 2 + pl.col("_position") // count
        )
        if not self.run_schema.group.is_sorted(ends.sort("position").drop("position")):
            raise CorruptionError(f"{uri}: the keys of its row groups do not ascend; write it again")
        sums = tuple(sum(group_sums) for group_sums in zip(*footer.sums, strict=True))
        return Run(path, BASE_LEVEL, footer.metadata.num_rows, 0, sums)

    def in_order(self, runs: Sequence[Run]) -> list[Run]:
        """Return the runs, sorted by their first keys.

        `state` later rejects runs whose key ranges overlap.
        """
        firsts = [footer_of(self.storage, run.path).first[:1] for run in runs]
        numbered_keys = pl.concat([self.run_schema.empty_keys, *firsts]).with_row_index("_run")
        return [runs[number] for number in self.run_schema.group.sort(numbered_keys)["_run"]]

    def merge_overlapping(self, runs: Sequence[Run]) -> list[Run]:
        """Merge the given runs of a sum stage into new runs, sorted by key.

        Return the new runs.

        The totals of rows with the same key are added up. The key ranges of the given runs may overlap; those of the
        new runs do not. The given runs are not deleted.
        """
        streams = [read_run(self.storage, run, self.run_schema) for run in runs]
        rows = (table_of(frame, self.run_schema.schema) for frame in merge_streams(streams, self.run_schema))
        return self.write(batch for table in rows for batch in table.to_batches())

    def state(self, runs: Sequence[Run]) -> DatasetState:
        """Return the state of a dataset that consists of these runs.

        Raises UpdateError if a run does not begin after the last key of the previous run.
        """
        group = self.run_schema.group
        splitters = self.run_schema.empty_keys
        last: pl.DataFrame | None = None
        for run in runs:
            footer = footer_of(self.storage, run.path)
            first = footer.first[:1]
            if last is not None:
                if first.filter(group.before(last, inclusive=True)).height:
                    raise UpdateError(
                        f"{self.name!r}: the run {run.path} begins with the key {key_text(first)}, but the one before "
                        f"ends with {key_text(last)}; runs that are loaded follow each other in key order"
                    )
                splitters = pl.concat([splitters, last])
            last = footer.last[-1:]
        base_shards = tuple(Shard((replace(run, level=BASE_LEVEL),)) for run in runs)
        return DatasetState(splitters, base_shards or (Shard(),))

    def _checked(self, rows: External) -> Iterator[pl.DataFrame]:
        """Yield the rows in non-empty frames, with 0.0 for −0.0 in keys.

        Raises UpdateError if a column is missing or has another type, or if rows break the rules of `write`.
        """
        names = self.run_schema.group.columns
        last: pl.DataFrame | None = None
        for table in typed_tables(self.name, self.run_schema.schema, rows):
            frame = normalize_zeros(frame_of(table), names)
            if frame.height:
                self._check(frame, frame if last is None else pl.concat([last, frame]))
                yield frame
                last = frame[-1:]

    def _check(self, frame: pl.DataFrame, following: pl.DataFrame) -> None:
        """Check the rows of one frame before they are written.

        Args:
            frame: The rows.
            following: The last row of the previous frame if there is one, then the rows of `frame`. The order of keys
                is checked in `following`, so that it is also checked from one frame to the next.

        Raises:
            UpdateError: The rows are not sorted by key, or rows of a sum stage break the rules of `write`.
        """
        group, amounts = self.run_schema.group, self.run_schema.amounts
        if not group.is_sorted(following):
            raise UpdateError(f"what is loaded into {self.name!r} is not sorted by {', '.join(group.columns)}; sort it")
        if not amounts:
            return
        twice = following.filter(~group.changes())
        if twice.height:
            raise UpdateError(
                f"what is loaded into {self.name!r} has the key {key_text(twice.select(group.columns)[0])} twice; "
                "add up what belongs to one key first"
            )
        is_valid = pl.all_horizontal(
            pl.col(*amounts).is_not_null(), *(pl.col(name) >= 0 for name in self.run_schema.unsigned)
        )
        wrong = frame.filter(~(is_valid & pl.any_horizontal(pl.col(name) != 0 for name in amounts)).fill_null(False))
        if wrong.height:
            totals = ", ".join(f"{name} = {wrong[name][0]}" for name in amounts)
            raise UpdateError(
                f"what is loaded into {self.name!r}: the key {key_text(wrong.select(group.columns)[0])} has {totals}; "
                "totals are not null, not all zero, and below zero only where the stage is declared `signed=True`"
            )
