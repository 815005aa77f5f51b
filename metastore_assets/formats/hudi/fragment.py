"""A file slice of a Hudi table: its identity, and how another process opens it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import pyarrow as pa

from metastore_assets.formats.hudi.columns import HudiColumns
from metastore_assets.formats.hudi.merge import MergePlan, merge_files
from metastore_assets.formats.readers.columns import open_columns
from metastore_assets.formats.readers.reader import ColumnMapping, FileFragmentReader, fragment_errors
from metastore_assets.formats.schema_casting import FieldMatcher
from metastore_assets.formats.values import Constant
from metastore_assets.storage.location import Location, StoredFile


@dataclass(frozen=True)
class HudiFragmentSource:
    """A file slice: a listed base file and the log files that change it."""

    location: Location
    base: StoredFile | None
    kind: str
    logs: tuple[StoredFile, ...]
    constants: tuple[tuple[str, Constant], ...]
    numbers: tuple[tuple[str, pa.DataType], ...]
    """Types of columns that the files may store as texts."""
    meta_columns: bool
    """Whether the columns that Hudi adds are requested."""
    merge_plan: MergePlan | None
    """How to merge the slice; None for a base file alone that needs no hudi-rs."""

    def open(self) -> FileFragmentReader:
        """Read the footer, or merge the files once. Raises FragmentError."""
        files = ((self.base,) if self.base else ()) + self.logs
        path = self.location.full_path(files[0].path)
        count = len(self.logs)
        # One of several files is at fault; the reason names it.
        what = f"its file slice ({count} log file{'s' * (count > 1)})" if count else "the file"
        with fragment_errors(path, what), ExitStack() as stack:
            if self.merge_plan is None and self.base is not None:
                source = stack.enter_context(self.location.open_stored(self.base))
                columns = open_columns(self.kind, source)
            elif self.merge_plan is not None:
                source = stack.enter_context(merge_files(self.location, self.base, self.logs, self.merge_plan))
                columns = open_columns("parquet", source)
            reader = FileFragmentReader(
                HudiColumns(columns, dict(self.numbers), meta_columns=self.meta_columns),
                path=path,
                mapping=ColumnMapping(FieldMatcher(), dict(self.constants)),
                verify=self._verify if self.merge_plan is None else lambda: None,
            )
            stack.pop_all()
        return reader

    def _verify(self) -> None:
        if self.base is not None:
            self.location.check(self.base)


def fragment_id(files: Sequence[StoredFile], merge_plan: MergePlan | None, has_logs: bool) -> str:
    """Return the fragment id of the files, base file first."""
    parts: list[object] = [[stored.path, stored.size] for stored in files]
    if merge_plan is not None and has_logs:
        rules = merge_plan.rules
        # File names do not tell which blocks of the log files apply, and how.
        parts += [list(merge_plan.instants), rules.mode, list(rules.ordering), list(rules.record_key)]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]
