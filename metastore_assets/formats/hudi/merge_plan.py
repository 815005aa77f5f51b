"""Decisions about which file slices of a Hudi table hudi-rs must merge, and by which rules.

A state is the completed writes whose rows a reader sees at one point in time. A file slice has the rows of one file
group in a state: a base file, and log files with later changes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import chain

import pyarrow as pa

from metastore_assets.errors import TableFormatError
from metastore_assets.formats.hudi.file_cache import HudiFileCache
from metastore_assets.formats.hudi.log import LogBlock, applied_blocks, live_instants
from metastore_assets.formats.hudi.merge import HudiMergePlan, MergeRules, log_blocks
from metastore_assets.formats.hudi.schema import HudiSchema
from metastore_assets.formats.hudi.slices import FileSlice, parse_data_file_name
from metastore_assets.formats.hudi.timeline import HudiState, Timeline
from metastore_assets.storage.location import StoredFile

LogRanges = tuple[tuple[tuple[int, int], ...], ...]
"""Position and length of blocks, for each log file of a slice."""


@dataclass(frozen=True)
class PlannedSlice:
    """A file slice with the log files that apply to it."""

    file_slice: FileSlice
    """The slice. Log files without changes that belong to the state are left out."""
    merge_plan: HudiMergePlan | None
    """How hudi-rs merges the slice; None if the base file is read without hudi-rs."""
    log_ranges: LogRanges = ()
    """The blocks that apply, for each log file. Empty if all blocks of all log files apply.

    Up to table version 6 writers append blocks to existing log files, and failed writes leave blocks there.
    """


class MergePlanner:
    """A planner that decides whether hudi-rs must merge a file slice of a state, and by which rules."""

    def __init__(self, timeline: Timeline, state: HudiState, schema: HudiSchema, cache: HudiFileCache) -> None:
        self._cache = cache
        self._timeline = timeline
        self._state = state
        self.schema = schema
        self._rules: MergeRules | None = None
        """The table's merge rules, once a slice has needed them. They are parsed late, because unsupported rules are an
        error."""

    def plan_slice(self, file_slice: FileSlice) -> PlannedSlice:
        """Return a slice with only the log files that apply to it, and with its merge plan.

        The merge plan is None if hudi-rs is not needed: no log file applies, and the base file is not in Lance.

        Raises TableFormatError if the slice cannot be read. Reading log files raises the errors of `log_blocks`.
        """
        uri = self._timeline.location.uri
        if file_slice.kind == "hfile":
            raise TableFormatError(f"{uri} has base files in HFile, which has no reader")
        if not file_slice.logs and file_slice.kind != "lance":
            return PlannedSlice(file_slice, None)
        file_slice, instants, log_ranges = self._select_logs(file_slice)
        if not instants and file_slice.kind != "lance":
            return PlannedSlice(file_slice, None)
        if file_slice.kind == "orc":
            raise TableFormatError(f"{uri} has log files on base files in ORC, which has no reader")
        files = "log files" if file_slice.logs else "base files in Lance"
        try:
            rules = self._merge_rules() if file_slice.logs else self._unmerged_rules()
            if self.schema.avro is None:
                raise TableFormatError(
                    f"{uri} has {files}, but neither a commit nor a base file records its schema in Avro"
                )
            kind = rules.ordering_kind(self.schema.avro) if file_slice.logs else None
        except ValueError as error:
            raise TableFormatError(f"{uri} has {files}, and merges by {error}, which has no reader") from error
        if file_slice.kind == "lance" and _has_local_times(self.schema.columns):
            raise TableFormatError(f"{uri} has timestamps without time zone in Lance, which has no reader")
        if not file_slice.in_order and (kind is None or not rules.meta_fields):
            raise TableFormatError(
                f"{uri}: the file group {file_slice.file_id} has log files of concurrent writes, whose order is not "
                "defined"
            )
        merge_plan = HudiMergePlan(rules, self.schema.avro, instants, file_slice.in_order)
        return PlannedSlice(file_slice, merge_plan, log_ranges)

    def _select_logs(self, file_slice: FileSlice) -> tuple[FileSlice, tuple[str, ...], LogRanges]:
        """Select the log files of a slice that apply to the table state.

        In timeline layout 1, a log file applies if it has blocks of writes in the state. In layout 2, all log files of
        the slice apply.

        Returns:
            (slice, instants, log ranges): the slice with the log files that apply, the instants of the writes to merge,
            and the value of `PlannedSlice.log_ranges`.
        """
        if self._timeline.layout == 1:
            blocks = {stored_file: self._read_blocks(stored_file) for stored_file in file_slice.logs}
            instants = live_instants(chain.from_iterable(blocks.values()), self._state.includes)
            applied_by_file = {
                stored_file: applied_blocks(headers, instants) for stored_file, headers in blocks.items()
            }
            logs = tuple(stored_file for stored_file in file_slice.logs if applied_by_file[stored_file])
            log_ranges = tuple(
                tuple(block.content_range for block in applied_by_file[stored_file]) for stored_file in logs
            )
            return replace(file_slice, logs=logs), instants, log_ranges
        names = [parse_data_file_name(stored_file.path.rpartition("/")[2]) for stored_file in file_slice.logs]
        return file_slice, tuple(dict.fromkeys(name.instant for name in names if name)), ()

    def _merge_rules(self) -> MergeRules:
        """Return the table's merge rules.

        Raises ValueError for an unsupported rule.
        """
        self._rules = self._rules or MergeRules.of(self._timeline.version, self._timeline.properties)
        return self._rules

    def _unmerged_rules(self) -> MergeRules:
        """Return the rules for slices without log files.

        These are the merge rules of the table. If one of them is unsupported, the result is that of
        `MergeRules.without_merging`.

        Raises ValueError if the table has neither meta fields nor record key fields.
        """
        try:
            return self._merge_rules()
        except ValueError:
            return MergeRules.without_merging(self._timeline.version, self._timeline.properties)

    def _read_blocks(self, stored_file: StoredFile) -> list[LogBlock]:
        """Return the block headers of a log file, from the cache if possible."""
        blocks = self._cache.get_blocks(stored_file)
        if blocks is None:
            blocks = log_blocks(self._timeline.location, (stored_file,))
            self._cache.put_blocks(stored_file, blocks)
        return blocks


def _has_local_times(fields: Iterable[pa.Field]) -> bool:
    return any(
        (pa.types.is_timestamp(field.type) and field.type.tz is None)
        or _has_local_times(field.type.field(index) for index in range(field.type.num_fields))
        for field in fields
    )
