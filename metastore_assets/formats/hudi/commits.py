"""Metadata of Hudi's instants, which are completed writes and cleans.

Commits record the files that they wrote or replaced, and the table's schema. Cleans record the files that they removed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from metastore_assets.formats.hudi.timeline import Instant
from metastore_assets.formats.metadata_json import as_integer, as_list, as_object, as_objects, as_text, parse_json
from metastore_assets.formats.readers.avro import read_avro_records
from metastore_assets.storage.corrupt_input import CORRUPTION_ERRORS, metadata_errors, unreadable_error
from metastore_assets.storage.location import Location
from metastore_assets.storage.parallel import parallel_map
from metastore_assets.tasks.isolation import IsolatedRunner, metadata_result

_AVRO = b"Obj\x01"
_THREADS = 8
_CHUNK_SIZE = 16
_REWRITES = ("CLUSTER", "COMPACT", "INDEX", "LOG_COMPACT")
_NO_SCHEMA = ("", '"null"')
"""Schemas of commits that record none. Hudi Streamer up to 0.10 wrote the Avro type null after an empty batch."""

Group = tuple[str, str]
"""A file group: partition path and file id."""
_Document = tuple[Instant, str, Callable[[], Mapping[str, Any]]]
"""An instant, the location of its metadata file, and a function that parses the file or raises the error of parsing."""


@dataclass(frozen=True, slots=True)
class Write:
    """A file that a commit wrote, as its metadata record it."""

    group: Group
    name: str
    rows: int | None
    """Number of rows of a base file; None for a log file, or if it is not recorded."""
    previous: str | None
    """Instant of the base file that this file replaces or changes; None for the first file of its group."""


@dataclass(frozen=True)
class Commit:
    """The metadata of one completed write to the table."""

    instant: Instant
    writes: tuple[Write, ...]
    replaced: tuple[Group, ...]
    """File groups that the commit removed, as `replacecommit` does."""
    schema: str | None
    """The table's schema as Avro JSON; None if the commit does not record it."""
    is_rewrite: bool
    """Whether the commit only rewrote existing rows. Its schema may then be older than the table's."""
    evolved_by_id: bool
    """Whether the schema identifies fields by id (schema evolution on read). Columns may then have been renamed."""

    @property
    def file_names(self) -> frozenset[tuple[Group, str]]:
        """The written files, each as its file group and name."""
        return frozenset((write.group, write.name) for write in self.writes)


def read_commits(location: Location, instants: Sequence[Instant]) -> list[Commit]:
    """Read the metadata of commits, and return them in the same order.

    Raises OSError or TableFormatError.
    """
    return [_parse_commit(*document) for document in _read_documents(location, instants)]


def read_cleaned_files(location: Location, instants: Sequence[Instant]) -> list[tuple[str, str]]:
    """Return (partition path, file name) of each file that a clean removed or failed to remove.

    Raises OSError if the metadata of a clean cannot be read, or TableFormatError if they are invalid.
    """
    files = []
    for _, path, load in _read_documents(location, instants):
        with metadata_errors(path):
            partitions = as_object(as_object(load(), "it").get("partitionMetadata") or {}, "partitionMetadata")
            for partition, partition_metadata in partitions.items():
                for key in ("successDeleteFiles", "failedDeleteFiles"):
                    # The first version has absolute paths here, later ones have names.
                    names = as_list(as_object(partition_metadata, "partitionMetadata").get(key) or [], key)
                    files += [(partition, as_text(name, key).rpartition("/")[2]) for name in names]
    return files


def _read_documents(location: Location, instants: Sequence[Instant]) -> list[_Document]:
    """Read the metadata files of instants, and return them in the same order.

    Raises OSError.
    """
    if not instants:
        return []
    contents = parallel_map(lambda instant: location.read(instant.path), instants, _THREADS)
    paths = [location.full_path(instant.path) for instant in instants]
    in_avro = [index for index, data in enumerate(contents) if data.startswith(_AVRO)]
    outcomes = IsolatedRunner(chunk_size=_CHUNK_SIZE).outcomes(
        _decode_avro, [contents[index] for index in in_avro], paths=[paths[index] for index in in_avro]
    )
    decoded_documents = dict(zip(in_avro, outcomes, strict=True))
    loaders: list[Callable[[], Mapping[str, Any]]] = [
        partial(metadata_result, decoded_documents[index]) if index in decoded_documents else partial(_parse_json, data)
        for index, data in enumerate(contents)
    ]
    return list(zip(instants, paths, loaders, strict=True))


def _parse_commit(instant: Instant, path: str, load: Callable[[], Mapping[str, Any]]) -> Commit:
    """Return a commit with the metadata that `load` returns.

    Args:
        instant: the instant of the commit.
        path: the path of the metadata file, for messages.
        load: parses the content of the file.

    Raises:
        TableFormatError: the metadata are invalid.
        FileNotFoundError: `load` did not find the file.
    """
    try:
        metadata = as_object(load(), "it")
        written_partitions = as_object(metadata.get("partitionToWriteStats") or {}, "partitionToWriteStats").items()
        replaced_partitions = as_object(
            metadata.get("partitionToReplaceFileIds") or {}, "partitionToReplaceFileIds"
        ).items()
        # The second name is that of the first Hudi versions.
        extra_metadata = as_object(
            metadata.get("extraMetadata") or metadata.get("extraMetadataMap") or {}, "extraMetadata"
        )
        return Commit(
            instant,
            tuple(
                write
                for partition, stats in written_partitions
                for stat in as_objects(stats, "partitionToWriteStats")
                for write in _writes(partition, stat)
            ),
            tuple(
                (partition, as_text(file_id, "a file group"))
                for partition, ids in replaced_partitions
                for file_id in as_list(ids, "partitionToReplaceFileIds")
            ),
            as_text(extra_metadata["schema"], "schema")
            if (extra_metadata.get("schema") or "") not in _NO_SCHEMA
            else None,
            metadata.get("operationType") in _REWRITES,
            bool(extra_metadata.get("latest_schema")),
        )
    except FileNotFoundError:
        raise
    except CORRUPTION_ERRORS as error:
        raise unreadable_error(f"{path} cannot be read as the metadata of a Hudi commit", error) from error


def _parse_json(data: bytes) -> Mapping[str, Any]:
    """Parse metadata in JSON.

    Raises ValueError for an empty file, which may be one that is still being written.
    """
    if not data:
        raise ValueError("it is empty; a write that has just been completed may fill it")
    return cast(Mapping[str, Any], parse_json(data))


def _decode_avro(data: bytes) -> Mapping[str, Any]:
    """Return the metadata of a commit in Avro.

    Runs in a child process.

    Raises ValueError or ArrowInvalid if it is corrupt.
    """
    record = next(read_avro_records(data), None)
    if record is None:
        raise ValueError("it has no record")
    return cast(Mapping[str, Any], record)


def _writes(partition: str, stat: Mapping[str, Any]) -> list[Write]:
    """Return the files that one write statistic of a commit records; empty if it names none.

    Raises ValueError if it names files and no file id.
    """
    path = stat.get("path")
    written_name = as_text(path, "path").rpartition("/")[2] if path else ""
    # In delta commits `path` is the last of several log files of an older base file.
    logs = as_list(stat.get("logFiles") or [], "logFiles")
    other_names = {as_text(name, "logFiles") for name in (*logs, stat.get("baseFile")) if name} - {written_name}
    if not written_name and not other_names:
        return []
    group = (partition, as_text(stat.get("fileId"), "fileId"))
    previous = stat.get("prevCommit")
    previous = None if previous in (None, "null") else as_text(previous, "prevCommit")
    rows = stat.get("numWrites")
    rows = None if rows is None or written_name.startswith(".") else as_integer(rows, "numWrites")
    base_writes = [Write(group, written_name, rows, previous)] if written_name else []
    return base_writes + [Write(group, name, None, previous) for name in sorted(other_names)]
