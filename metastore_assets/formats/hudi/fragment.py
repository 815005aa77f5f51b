"""The source of a fragment of a Hudi table.

A fragment is a file slice: a base file, and log files with later changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import pyarrow as pa

from metastore_assets.digests import digest_json
from metastore_assets.errors import FragmentError
from metastore_assets.formats.base import ArrowFile
from metastore_assets.formats.hudi.column_reading import HudiColumns
from metastore_assets.formats.hudi.merge import HudiMergePlan, merge_files
from metastore_assets.formats.hudi.merge_plan import PlannedSlice
from metastore_assets.formats.hudi.type_changes import cast_as_hudi
from metastore_assets.formats.readers.columns import open_columns
from metastore_assets.formats.readers.reader import ColumnMapping, FileFragmentReader, fragment_errors
from metastore_assets.formats.schema_casting import FieldMatcher
from metastore_assets.formats.values import Constant, value_text
from metastore_assets.storage.location import Location, StoredFile


@dataclass(frozen=True)
class HudiFragmentSource:
    """A file slice that any process can open."""

    location: Location
    base: StoredFile | None
    kind: str
    logs: tuple[StoredFile, ...]
    constants: tuple[tuple[str, Constant], ...]
    numbers: tuple[tuple[str, pa.DataType], ...]
    """Name and type of number columns that the files may store as texts."""
    meta_columns: bool
    """Whether the columns that Hudi adds are requested."""
    merge_plan: HudiMergePlan | None
    """How hudi-rs merges the slice; None if the base file is read without hudi-rs."""

    def arrow_file(self) -> ArrowFile | str:
        """Return the base file, or the reason why Arrow alone cannot read the rows of the slice."""
        if self.base is None or self.merge_plan is not None:
            return "its file slice has log files, or rows to merge"
        if self.kind != "parquet":
            return f"it is no Parquet file, but {self.kind}"
        if self.numbers:
            return "it may store numbers as texts"
        return ArrowFile(self.location, self.base.path, self.constants, widens_text=True)

    def open(self) -> FileFragmentReader:
        """Open the base file, or the merged rows of the slice.

        If `merge_plan` is set, hudi-rs merges the files of the slice into a temporary file, and this file is opened.

        Raises FragmentError.
        """
        files = ((self.base,) if self.base else ()) + self.logs
        path = self.location.full_path(files[0].path)
        count = len(self.logs)
        # An error may concern any file of the slice. Its reason names the file.
        what = f"its file slice ({count} log file{'s' * (count > 1)})" if count else "the file"
        with fragment_errors(path, what), ExitStack() as stack:
            if self.merge_plan is None and self.base is not None:
                source = stack.enter_context(self.location.open_stored(self.base))
                columns = open_columns(self.kind, source)
            elif self.merge_plan is not None:
                try:
                    merged_file = merge_files(self.location, self.base, self.logs, self.merge_plan)
                except FileNotFoundError as error:
                    # The base file may exist: the reason names the file that does not.
                    raise FragmentError(
                        f"{path}: a file of its file slice is gone since the table was listed: {error}",
                        path=path,
                        missing=True,
                    ) from error
                source = stack.enter_context(merged_file)
                columns = open_columns("parquet", source)
            reader = FileFragmentReader(
                HudiColumns(columns, dict(self.numbers), meta_columns=self.meta_columns),
                path=path,
                mapping=ColumnMapping(FieldMatcher(convert=cast_as_hudi), dict(self.constants)),
                verify=self._verify if self.merge_plan is None else lambda: None,
            )
            stack.pop_all()
        return reader

    def _verify(self) -> None:
        if self.base is not None:
            self.location.check(self.base)


def fragment_id(planned_slice: PlannedSlice, constants: Sequence[tuple[str, Constant]]) -> str:
    """Return the id of the fragment of a file slice.

    Equal ids mean equal rows.

    Args:
        planned_slice: the file slice.
        constants: (column, value) of each partition column that its files do not store.
    """
    file_slice, merge_plan = planned_slice.file_slice, planned_slice.merge_plan
    files = file_slice.files
    parts: list[object] = [[stored_file.path, stored_file.size] for stored_file in files]
    if planned_slice.log_ranges:
        # The size of a log file also changes with blocks that do not apply.
        parts[-len(file_slice.logs) :] = [
            [stored_file.path, *ranges]
            for stored_file, ranges in zip(file_slice.logs, planned_slice.log_ranges, strict=True)
        ]
    if merge_plan is not None and file_slice.logs:
        rules = merge_plan.rules
        # File names do not show which blocks of the log files apply, and how they merge.
        parts += [list(merge_plan.instants), rules.mode, list(rules.ordering), list(rules.record_key)]
    # The table's properties say how values are taken from the path of a partition.
    parts += [[name, value_text(value)] for name, value in constants]
    return digest_json(parts)
