"""Decide which file slices of a Hudi table must be merged, and by which rules."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

import pyarrow as pa

from metastore_assets.errors import TableFormatError
from metastore_assets.formats.hudi.file_cache import CachedFiles
from metastore_assets.formats.hudi.log import LogBlock, live_instants
from metastore_assets.formats.hudi.merge import Merge, MergeRules, log_blocks
from metastore_assets.formats.hudi.names import data_file_name
from metastore_assets.formats.hudi.schema import HudiSchema
from metastore_assets.formats.hudi.slices import FileSlice
from metastore_assets.formats.hudi.timeline import State, Timeline
from metastore_assets.storage.location import StoredFile


class Merger:
    """Decides for each slice whether hudi-rs must read it, and how."""

    def __init__(self, timeline: Timeline, state: State, schema: HudiSchema, cache: CachedFiles) -> None:
        self._cache = cache
        self._timeline = timeline
        self._state = state
        self._schema = schema
        self._rules: MergeRules | None = None

    def merge(self, one: FileSlice) -> Merge | None:
        """Return how to merge a slice; None for a base file alone that needs no hudi-rs. Raises TableFormatError."""
        uri = self._timeline.location.uri
        if one.kind == "hfile":
            raise TableFormatError(f"{uri} has base files in HFile, which has no reader")
        if not one.logs and one.kind != "lance":
            return None
        if self._timeline.layout == 1:
            instants = live_instants(chain.from_iterable(map(self._blocks, one.logs)), self._state.has)
        else:
            instants = tuple(
                dict.fromkeys(
                    meaning.instant
                    for stored in one.logs
                    if (meaning := data_file_name(stored.path.rpartition("/")[2]))
                )
            )
        if not instants and one.kind != "lance":
            return None
        if one.kind == "orc":
            raise TableFormatError(f"{uri} has log files on base files in ORC, which has no reader")
        try:
            rules = self._rules = self._rules or MergeRules.of(self._timeline.version, self._timeline.properties)
        except ValueError as error:
            raise TableFormatError(f"{uri} has log files that merge by {error}, which has no reader") from error
        if self._schema.avro is None:
            raise TableFormatError(f"{uri} has log files, and neither a commit nor a file tells the schema in Avro")
        if one.kind == "lance" and _has_local_times(self._schema.columns):
            raise TableFormatError(f"{uri} has timestamps without time zone in Lance, which has no reader")
        if not one.in_order and rules.mode == "COMMIT_TIME_ORDERING":
            raise TableFormatError(
                f"{uri}: the file group {one.file_id} has log files of concurrent writes, whose order is not defined"
            )
        return Merge(rules, self._schema.avro, instants)

    def _blocks(self, stored: StoredFile) -> list[LogBlock]:
        blocks = self._cache.blocks(stored)
        if blocks is None:
            blocks = log_blocks(self._timeline.location, (stored,))
            self._cache.put_blocks(stored, blocks)
        return blocks


def _has_local_times(fields: Iterable[pa.Field]) -> bool:
    return any(
        (pa.types.is_timestamp(field.type) and field.type.tz is None)
        or _has_local_times(field.type.field(index) for index in range(field.type.num_fields))
        for field in fields
    )
