"""A target that writes a JSON file into a folder, as another package would register it.

An export writes the statistics of a version to a target, such as a catalog.

A version is the published statistics of a table at one snapshot.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from metastore_assets.errors import ExportError
from metastore_assets.exports.base import ExportedVersion, ExportMark, ExportOptions, ExportTarget, WrittenExport
from metastore_assets.statistics.user_defined.interface import MergeableStatistic


class FolderOptions(ExportOptions):
    """The options of the target: the folder to write to."""

    path: str


class FolderTarget(ExportTarget):
    """Writes minimum, maximum and the numbers of values and nulls of each column.

    It fails while the folder has a file `broken`.
    """

    kind = "folder"
    title = "the folder"
    options_model = FolderOptions

    def write(self, version: ExportedVersion) -> WrittenExport:
        if self._file.exists() and self.status() is None and not self.options.replace:
            raise ExportError(f"{self._file} was not written by us: set `replace: true` to overwrite it")
        columns = {
            column.path: {
                "values": column.statistics.value_count,
                "nulls": column.statistics.null_count,
                **{
                    name: None if (value := getattr(column.statistics, name)) is None else str(value.as_py())
                    for name in ("minimum", "maximum")
                },
            }
            for column in version.columns()
        }
        partitions = {entry.key: len(columns) for entry, columns in version.partitions()}
        text = json.dumps({"columns": columns, "partitions": partitions, "mark": version.mark.to_properties()})
        self._file.write_text(text)
        return WrittenExport(len(text), len(columns))

    def status(self) -> ExportMark | None:
        if (self._file.parent / "broken").exists():
            raise OSError("the folder is broken")
        if not self._file.exists():
            return None
        return ExportMark.from_properties(json.loads(self._file.read_text()).get("mark"))

    def remove(self) -> bool:
        if self.status() is None:
            return False
        self._file.unlink()
        return True

    def read_back(self) -> Mapping[str, Mapping[str, Any]]:
        columns: Mapping[str, Mapping[str, Any]] = json.loads(self._file.read_text())["columns"]
        return columns

    @property
    def _file(self) -> Path:
        return Path(self.options.path) / f"{self.table.name}.json"


class SketchingTarget(FolderTarget):
    """A folder target that needs the statistic `Greatest` of text columns."""

    kind = "sketching"

    @classmethod
    def statistics_for(cls, type: pa.DataType) -> tuple[str, ...]:
        return ("tests.exports.folder_target:Greatest",) if pa.types.is_string(type) else ()


class Greatest(MergeableStatistic):
    """A statistic that an export needs and lookups do not report: the greatest text."""

    name = "greatest_text"
    revision = "1"
    types = ("string",)
    state = pa.string()
    result = pa.string()
    is_reported = False

    def initial(self) -> None:
        """Return None, which stands for the greatest of no texts."""

    def update(self, state: str | None, values: pa.Array, counts: pa.Int64Array) -> str:
        return max(state or "", pc.max(values).as_py())

    def merge(self, one: str | None, other: str | None) -> str | None:
        return max((text for text in (one, other) if text is not None), default=None)

    def finalize(self, state: str | None) -> str | None:
        return state
