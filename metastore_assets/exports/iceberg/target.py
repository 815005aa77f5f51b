"""The target `iceberg`: statistics files of an Iceberg table, which the catalog registers.

Each file is registered for the snapshot that it describes. The mark of an export, which names the exported version, is
in the properties of each Puffin file's blobs. A version is the published statistics of a table at one snapshot. The
value counts of a column are its distinct values with their frequencies.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from metastore_assets.errors import ExportError
from metastore_assets.exports.base import (
    ExportedColumn,
    ExportedVersion,
    ExportMark,
    ExportOptions,
    ExportTarget,
    WrittenExport,
)
from metastore_assets.exports.catalog_table import TableChangedError
from metastore_assets.exports.iceberg.partition_file import encode_partition_statistics
from metastore_assets.exports.iceberg.puffin import Blob, encode_puffin
from metastore_assets.extras import extra
from metastore_assets.formats.catalogs.client import open_pyiceberg_table
from metastore_assets.formats.iceberg.metadata import CHANGED_AT_PROPERTY, CHANGED_FILE_PROPERTY, last_changed_ms
from metastore_assets.messages import join_names
from metastore_assets.statistics.theta import estimate_sketch

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.statistics import PartitionStatisticsFile, StatisticsFile

THETA = "apache-datasketches-theta-v1"
"""Type of a blob with a theta sketch."""
NDV = "ndv"
"""Property of a blob: the number of distinct values."""
_PARTITION_FILE = "metastore-assets-partition-stats-"
"""Prefix of the names of our partition statistics files, which have no properties."""
_SKETCHES = "metastore_assets.exports.iceberg.sketches"


class IcebergOptions(ExportOptions):
    """The settings of a target of kind `iceberg`."""

    partition_statistics: bool = False
    """Whether the partition statistics file of the specification is written too. Each export then reads all manifests
    of the snapshot."""


@dataclass(frozen=True)
class _SketchedColumn:
    """A column with its theta sketch and its number of distinct values."""

    path: str
    field_id: int
    sketch: bytes
    distinct: int


class IcebergTarget(ExportTarget):
    """A target that writes a Puffin file with theta sketches of columns.

    Optionally, it also writes a partition statistics file.
    """

    kind = "iceberg"
    title = "the Iceberg catalog"
    is_single = True
    options_model = IcebergOptions
    options: IcebergOptions
    sketch_reference: ClassVar[str] = f"{_SKETCHES}:ThetaSketch"
    narrow_reference: ClassVar[str] = f"{_SKETCHES}:NarrowThetaSketch"

    @classmethod
    def statistics_for(cls, type: pa.DataType) -> tuple[str, ...]:
        """Return a reference to the mergeable statistic that computes the theta sketch of a column.

        The reference has the form `module:Class`. For `int` and `float` it names `NarrowThetaSketch`, which hashes each
        number as 4 bytes, as Iceberg serializes it.
        """
        from metastore_assets.exports.iceberg.sketches import is_narrow

        return (cls.narrow_reference if is_narrow(type) else cls.sketch_reference,)

    def write(self, version: ExportedVersion) -> WrittenExport:
        """Write the files of a version's snapshot, and register them.

        See `ExportTarget.write`.

        If no column has a sketch, nothing is written, and our files of all snapshots are removed.
        """
        if not version.version.snapshot:
            return WrittenExport(0, 0, ("the table has no snapshot yet",))
        columns, notes = _sketched_columns(version)
        if not columns:
            if self.status() is not None:
                self.remove()
            return WrittenExport(0, 0, (*notes, "no column has values that are exported"))
        with self._open() as table:
            size = self._write_files(table, version, columns, notes)
        return WrittenExport(size, len(columns), tuple(notes))

    def status(self) -> ExportMark | None:
        """Return the mark of the newest version that has a statistics file of ours.

        Returns None if there is no such file.
        """
        with self._open() as table:
            export_marks = [mark for file in table.metadata.statistics if (mark := _mark(file)) is not None]
        return max(export_marks, key=lambda mark: mark.version, default=None)

    def remove(self) -> bool:
        """Remove our statistics files of all snapshots from the catalog and from the storage.

        This includes files that the table's current metadata no longer lists, because pyiceberg leaves them when it
        expires a snapshot. Earlier metadata files of the table list these files.

        Returns:
            Whether there was anything to remove.
        """
        from pyiceberg.table.update import RemovePartitionStatisticsUpdate, RemoveStatisticsUpdate

        with self._open() as table:
            ours, partition_files = _our_files(table.metadata)
            unlisted_files = _unlisted_files(table)
            updates = [
                *(RemoveStatisticsUpdate.model_validate({"snapshot-id": file.snapshot_id}) for file in ours),
                *(
                    RemovePartitionStatisticsUpdate.model_validate({"snapshot-id": file.snapshot_id})
                    for file in partition_files
                ),
            ]
            if updates:
                _commit(table, updates)
            _delete(table, [*ours, *partition_files, *unlisted_files])
        return bool(updates or unlisted_files)

    def read_back(self) -> Mapping[str, Mapping[str, Any]]:
        """Return what the Puffin file of the newest exported version has of each column.

        The result is {name of the column: {"ndv": distinct count, "sketch": encoded theta sketch}}.
        """
        from pyiceberg.table.puffin import PuffinFile

        mark = self.status()
        with self._open() as table:
            (file,) = (file for file in table.metadata.statistics if mark is not None and _mark(file) == mark)
            with table.io.new_input(file.statistics_path).open() as stream:
                puffin = PuffinFile(stream.read())
            return {
                table.schema().find_column_name(blob.fields[0]) or str(blob.fields[0]): {
                    NDV: int(blob.properties[NDV]),
                    "sketch": puffin.get_blob_payload(blob),
                }
                for blob in puffin.footer.blobs
            }

    @contextmanager
    def _open(self) -> Iterator[Table]:
        """Yield pyiceberg's `Table`.

        Raises ExportError if the table is configured by location, without a catalog.
        """
        if self.table.catalog is None or self.table.identifier is None:
            raise ExportError(
                f"table {self.table.name!r} is configured by its location, and statistics files of Iceberg are "
                "registered through a catalog: configure the table by `catalog` and `table`"
            )
        with extra("iceberg", "the export to Iceberg"), open_pyiceberg_table(self.table) as table:
            yield table

    def _write_files(
        self, table: Table, version: ExportedVersion, columns: Sequence[_SketchedColumn], notes: list[str]
    ) -> int:
        """Write the files, register them with one commit, and delete the files that they replace.

        Args:
            table: The table, as loaded from the catalog.
            version: The version.
            columns: The columns with their sketches.
            notes: Receives a sentence if the table cannot have a partition statistics file.

        Returns:
            The number of bytes that were written.

        Raises:
            ExportError: The catalog no longer has the snapshot. Or another program registered statistics for it, and
                the option `replace` is false.
            TableChangedError: Another process changed the table in the catalog at the same time.
        """
        from pyiceberg.exceptions import CommitFailedException
        from pyiceberg.table.statistics import StatisticsFile
        from pyiceberg.table.update import SetStatisticsUpdate

        number = version.version.snapshot
        snapshot = table.snapshot_by_id(int(number)) if number.isdecimal() else None
        if snapshot is None:
            raise ExportError(
                f"table {self.table.name!r} has no snapshot {number} any more: the next refresh exports the current one"
            )
        stored_files = [file for file in table.metadata.statistics if file.snapshot_id == snapshot.snapshot_id]
        partition_files = [
            file for file in table.metadata.partition_statistics if file.snapshot_id == snapshot.snapshot_id
        ]
        has_others = any(_mark(file) is None for file in stored_files) or (
            self.options.partition_statistics and not all(map(_is_ours, partition_files))
        )
        if has_others and not self.options.replace:
            raise ExportError(
                f"table {self.table.name!r}: something else registered statistics for the snapshot {number}: set "
                "`replace: true` in the settings of the export to overwrite them"
            )
        properties = {**version.mark.to_properties(), **_change_properties(table)}
        blobs = [
            Blob(THETA, column.field_id, column.sketch, {NDV: str(column.distinct), **properties}) for column in columns
        ]
        puffin = encode_puffin(
            blobs, snapshot.snapshot_id, snapshot.sequence_number or 0, {"created-by": _created_by()}
        )
        path = table.location_provider().new_metadata_location(f"{number}-{uuid.uuid4()}.stats")
        _write(table, path, puffin.content)
        statistics_file = StatisticsFile.model_validate(
            {
                "snapshot-id": snapshot.snapshot_id,
                "statistics-path": path,
                "file-size-in-bytes": len(puffin.content),
                "file-footer-size-in-bytes": puffin.footer_size,
                "blob-metadata": [
                    {
                        "type": blob.type,
                        "snapshot-id": snapshot.snapshot_id,
                        "sequence-number": snapshot.sequence_number or 0,
                        "fields": [blob.field_id],
                        "properties": blob.properties,
                    }
                    for blob in blobs
                ],
            }
        )
        size, updates = len(puffin.content), list[Any]()
        updates.append(SetStatisticsUpdate.model_validate({"statistics": statistics_file}))
        written_files: list[Any] = [statistics_file]
        if self.options.partition_statistics:
            content = encode_partition_statistics(table, snapshot.snapshot_id)
            if isinstance(content, str):
                notes.append(f"no partition statistics file: {content}")
            else:
                update = _write_partition_file(table, snapshot.snapshot_id, content)
                size += len(content)
                updates.append(update)
                written_files.append(update.partition_statistics)
        try:
            before = _commit(table, updates)
        except CommitFailedException as error:
            _delete(table, written_files)
            raise TableChangedError from error
        ours, partition_files = _our_files(before)
        replaced_files = [*ours, *(partition_files if len(updates) > 1 else ())]
        _delete(table, [file for file in replaced_files if file.snapshot_id == snapshot.snapshot_id])
        return size


def _write_partition_file(table: Table, snapshot_id: int, content: bytes) -> Any:
    """Write a partition statistics file.

    Return pyiceberg's metadata update that registers the file.
    """
    from pyiceberg.table.update import SetPartitionStatisticsUpdate

    path = table.location_provider().new_metadata_location(f"{_PARTITION_FILE}{snapshot_id}-{uuid.uuid4()}.parquet")
    _write(table, path, content)
    partition_file = {"snapshot-id": snapshot_id, "statistics-path": path, "file-size-in-bytes": len(content)}
    return SetPartitionStatisticsUpdate.model_validate({"partition-statistics": partition_file})


def _sketched_columns(version: ExportedVersion) -> tuple[list[_SketchedColumn], list[str]]:
    """Return (columns that have a sketch, notes).

    If columns lack a sketch that they could have, there is one note. It names these columns, and says that the next
    refresh reads them. Otherwise, there are no notes.
    """
    states = {
        **version.states(IcebergTarget.sketch_reference),
        **version.states(IcebergTarget.narrow_reference),
    }
    sketched_columns, missing = [], []
    for column in version.columns():
        row = column.statistics
        # These columns never have a sketch, so no note names them.
        if column.is_hidden or column.table_column.repeated or row.type_class is None:
            continue
        sketch = _sketch(version, column, states)
        if sketch is None:
            missing.append(column.path)
            continue
        is_exact = row.distinct_count_guarantee == "exact" and row.distinct_count is not None
        distinct = row.distinct_count if is_exact else round(estimate_sketch(sketch))
        # The ids of the parent columns come first.
        field_id = int(column.table_column.field_id.rpartition(".")[2])
        sketched_columns.append(_SketchedColumn(column.path, field_id, sketch, distinct or 0))
    if not missing:
        return sketched_columns, []
    return sketched_columns, [
        f"no sketch of {join_names(missing)}: the next refresh reads these columns and exports again"
    ]


def _sketch(version: ExportedVersion, column: ExportedColumn, states: Mapping[str, bytes]) -> bytes | None:
    """Return the sketch of a column from its value counts or from `states`; None if neither has it.

    Args:
        version: The version.
        column: The column.
        states: The stored sketches of columns without value counts, by dotted path.
    """
    from metastore_assets.exports.iceberg.sketches import is_narrow, sketch_of

    if column.is_enumerated or not column.statistics.value_count:
        values = (
            (piece.values for piece in version.lookup.value_counts.pieces(column.path))
            if column.statistics.value_count
            else ()
        )
        return sketch_of(values, narrow=is_narrow(column.table_column.type))
    return states.get(column.path)


def _mark(file: StatisticsFile) -> ExportMark | None:
    """Return the mark in the blobs of a statistics file; None if another program wrote the file."""
    return next((mark for blob in file.blob_metadata if (mark := ExportMark.from_properties(blob.properties))), None)


def _is_ours(file: PartitionStatisticsFile) -> bool:
    return file.statistics_path.rpartition("/")[2].startswith(_PARTITION_FILE)


def _change_properties(table: Table) -> dict[str, str]:
    """Return the properties of exported blobs that tell when the table last changed.

    The properties are the table's current metadata file and the time of the table's last change. The commit that
    registers the blobs sets `last-updated-ms` of the table, although no row changes. Therefore `last_changed_ms` takes
    the time of the last change from these properties.
    """
    metadata = table.metadata.model_dump(
        mode="json", by_alias=True, include={"last_updated_ms", "metadata_log", "statistics"}
    )
    return {CHANGED_FILE_PROPERTY: table.metadata_location, CHANGED_AT_PROPERTY: str(last_changed_ms(metadata))}


def _our_files(metadata: TableMetadata) -> tuple[list[StatisticsFile], list[PartitionStatisticsFile]]:
    """Return (statistics files, partition statistics files) that this package has registered."""
    ours = [file for file in metadata.statistics if _mark(file) is not None]
    return ours, [file for file in metadata.partition_statistics if _is_ours(file)]


def _unlisted_files(table: Table) -> list[StatisticsFile | PartitionStatisticsFile]:
    """Return our files that only earlier metadata registers and that still exist.

    Only the earlier metadata files in the table's `metadata-log` are searched.
    """
    current = table.metadata
    registered_paths = {file.statistics_path for file in (*current.statistics, *current.partition_statistics)}
    earlier_files: dict[str, StatisticsFile | PartitionStatisticsFile] = {}
    for entry in current.metadata_log:
        with suppress(FileNotFoundError):  # engines may delete old metadata
            for files in _our_files(_read_metadata(table, entry.metadata_file)):
                earlier_files |= {file.statistics_path: file for file in files}
    return [
        file
        for path, file in earlier_files.items()
        if path not in registered_paths and table.io.new_input(path).exists()
    ]


def _read_metadata(table: Table, location: str) -> TableMetadata:
    from pyiceberg.serializers import FromInputFile

    return FromInputFile.table_metadata(table.io.new_input(location))


def _commit(table: Table, updates: Sequence[Any]) -> TableMetadata:
    """Commit updates to a table, and return the metadata that this commit replaced.

    If other processes committed after `table` was loaded, the result is newer than the metadata of `table`. The commit
    requires only the UUID of the table, so their commits do not conflict with it. If the file of the replaced metadata
    is gone, the metadata of `table` is returned.
    """
    from pyiceberg.table.update import AssertTableUUID

    requirements = (AssertTableUUID(uuid=table.metadata.table_uuid),)
    response = table.catalog.commit_table(table, requirements, tuple(updates))
    log = response.metadata.metadata_log
    if log and log[-1].metadata_file != table.metadata_location:
        with suppress(FileNotFoundError):
            return _read_metadata(table, log[-1].metadata_file)
    return table.metadata


def _write(table: Table, path: str, content: bytes) -> None:
    with table.io.new_output(path).create() as stream:
        stream.write(content)


def _delete(table: Table, files: Sequence[StatisticsFile | PartitionStatisticsFile]) -> None:
    for file in files:
        with suppress(FileNotFoundError):
            table.io.delete(file.statistics_path)


def _created_by() -> str:
    from importlib.metadata import version

    return f"metastore-assets {version('metastore-assets')}"
