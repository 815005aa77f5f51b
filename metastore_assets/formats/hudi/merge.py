"""Merging of file slices by hudi-rs: slices with log files, and slices whose base file is in Lance.

A file slice has the rows of one file group in a state: a base file, and log files with later changes. hudi-rs reads a
temporary table: the files of the slice, the properties that define how records merge, and a timeline. Before table
version 8, log files may also have blocks of writes that do not belong to the state. For such tables, the timeline
therefore names the writes to merge. In later table versions, it is empty.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain

import pyarrow as pa

from metastore_assets.extras import extra
from metastore_assets.formats.hudi.log import (
    AVRO_BLOCK,
    CONTENT_VERSION,
    DELETE_BLOCK,
    PARQUET_BLOCK,
    SCHEMA_HEADER,
    LogBlock,
    check_mergeable,
    read_blocks,
)
from metastore_assets.formats.hudi.operations import add_operations, operation_positions
from metastore_assets.formats.hudi.ordering import check_concurrent_values, check_ordering_values, ordering_kind
from metastore_assets.formats.hudi.timeline import boolean_property, names_property
from metastore_assets.formats.hudi.transcode import in_utc, needs_transcoding, transcode_base, transcode_log
from metastore_assets.formats.hudi.type_changes import avro_columns, check_calendar, check_type_changes
from metastore_assets.formats.readers.parquet import open_parquet
from metastore_assets.formats.readers.spill import write_temporary_parquet
from metastore_assets.storage.corrupt_input import CORRUPTION_ERRORS, UnsupportedError, error_reason
from metastore_assets.storage.io_counters import record_read
from metastore_assets.storage.location import Location, StoredFile
from metastore_assets.storage.object_store import OverwrittenError
from metastore_assets.storage.temporary_folders import TemporaryFolder
from metastore_assets.values.columns import field_columns

_BATCH_ROWS = 16_384
_FIRST_INSTANT = "19700101000000000"
_MERGE_BYTES = 256 << 20
_COPY_BYTES = 8 << 20
_MODES = ("COMMIT_TIME_ORDERING", "EVENT_TIME_ORDERING")
_COMMIT_TIME, _EVENT_TIME = _MODES
_STRATEGIES = {
    "ce9acb64-bde0-424c-9b91-f6ebba25356d": _COMMIT_TIME,
    "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5": _EVENT_TIME,
}
_PAYLOADS = {
    "org.apache.hudi.common.model.OverwriteWithLatestAvroPayload": _COMMIT_TIME,
    "org.apache.hudi.common.model.DefaultHoodieRecordPayload": _EVENT_TIME,
    "org.apache.hudi.common.model.EventTimeAvroPayload": _EVENT_TIME,
}
_PAYLOAD_KEYS = (
    "hoodie.compaction.payload.class",
    "hoodie.datasource.write.payload.class",
    "hoodie.table.legacy.payload.class",
)
_STRATEGY_KEYS = ("hoodie.record.merge.strategy.id", "hoodie.compaction.record.merger.strategy")
_ORDERING_KEYS = ("hoodie.table.ordering.fields", "hoodie.table.precombine.field")
_PARTIAL_UPDATES = "hoodie.table.partial.update.mode"
_LACK_OF_SUPPORT = re.compile(r"unsupported|not (yet )?(supported|implemented)|only supports?|refusing", re.IGNORECASE)
"""Matches the messages with which hudi-rs reports unsupported features."""
_RECORD_KEY = "hoodie.table.recordkey.fields"
_META_FIELDS = "hoodie.populate.meta.fields"
_KEY_GENERATOR = ".keygenerator."
_GENERATOR = "hoodie.table.keygenerator."
_MERGE_PROPERTIES = ("hoodie.record.merge.property.", "hoodie.payload.delete.")
"""Beginnings of the names of properties that define how records merge, or which records are deletes."""


@dataclass(frozen=True)
class MergeRules:
    """The properties of a table that define how records with the same key merge."""

    version: int
    """The table version, at least 6. Tables of older versions merge as tables of version 6 do."""
    mode: str
    record_key: tuple[str, ...]
    ordering: tuple[str, ...]
    meta_fields: bool
    """Whether files have the columns that Hudi adds. Otherwise record keys are built from `record_key`."""
    generator: tuple[tuple[str, str], ...]
    """Properties of the key generator."""

    @classmethod
    def of(cls, version: int, properties: Mapping[str, str]) -> MergeRules:
        """Return the merge rules of a table.

        Raises ValueError for an unsupported rule.

        Args:
            version: The table version, as Hudi numbers the versions of its storage format.
            properties: The properties of the table.
        """
        payload = next((properties[key] for key in _PAYLOAD_KEYS if properties.get(key)), "")
        strategy = next((properties[key] for key in _STRATEGY_KEYS if properties.get(key)), "")
        ordering = names_property(properties, _ORDERING_KEYS)
        mode = properties.get("hoodie.record.merge.mode", "").upper() or _infer_mode(
            version, payload, strategy, ordering
        )
        unsupported_property = next(
            (key for key, value in properties.items() if value and key.startswith(_MERGE_PROPERTIES)), None
        )
        if mode not in _MODES:
            raise ValueError(f"the merge mode {mode}{f' of {payload}' if payload else ''}")
        if payload and payload not in _PAYLOADS:
            raise ValueError(f"the payload class {payload}")
        if properties.get(_PARTIAL_UPDATES, "NONE").upper() != "NONE":
            raise ValueError(f"partial updates ({_PARTIAL_UPDATES})")
        if unsupported_property:
            raise ValueError(f"the property {unsupported_property}")
        record_key = names_property(properties, (_RECORD_KEY,))
        meta_fields = boolean_property(properties, _META_FIELDS, True)
        if not meta_fields and not record_key:
            raise ValueError("tables with neither meta fields nor record key fields")
        return cls(
            max(version, 6),
            mode,
            record_key,
            ordering,
            meta_fields,
            tuple(sorted((key, value) for key, value in properties.items() if _KEY_GENERATOR in key)),
        )

    @classmethod
    def without_merging(cls, version: int, properties: Mapping[str, str]) -> MergeRules:
        """Return rules for reading files whose records do not merge.

        The rules have only those properties of the table that define record keys.

        Raises ValueError if the table has neither meta fields nor record key fields.

        Args:
            version: The table version.
            properties: The properties of the table.
        """
        return cls.of(version, {key: value for key, value in properties.items() if _is_of_record_keys(key)})

    @property
    def has_ambiguous_keys(self) -> bool:
        """Whether record keys are not stored, and the complex key generator builds them from a single field.

        Depending on its version, Hudi builds such a key as `value` or as `field:value`.
        """
        generators = (value.upper() for key, value in self.generator if key.startswith(_GENERATOR))
        return not self.meta_fields and len(self.record_key) == 1 and any("COMPLEX" in text for text in generators)

    def ordering_kind(self, avro_schema: str) -> str | None:
        """Return the kind of the ordering values by which records merge, such as "integer".

        The result is None if records merge by commit time, or have no ordering values. Raises ValueError if hudi-rs
        does not compare the values as Hudi does. See `ordering.ordering_kind`.
        """
        return ordering_kind(avro_schema, self.ordering) if self.mode == _EVENT_TIME else None


@dataclass(frozen=True)
class HudiMergePlan:
    """The data that hudi-rs needs to merge a file slice, besides its files."""

    rules: MergeRules
    schema: str
    """Schema of the rows as Avro JSON, without the columns that Hudi adds."""
    instants: tuple[str, ...]
    """Instants of the writes that apply. Up to table version 6 they are those in the blocks of log files; in later
    versions, those in the names of log files."""
    in_order: bool = True
    """Whether the writes of the log files began in the order in which they were completed."""


def log_blocks(location: Location, logs: tuple[StoredFile, ...]) -> list[LogBlock]:
    """Read the headers of the blocks of log files, in order, and check that the blocks can be merged.

    Raises OSError, ArrowInvalid for a corrupt file, or UnsupportedError for a block that cannot be merged.
    """
    blocks: list[LogBlock] = []
    for stored_file in logs:
        try:
            blocks_of_file = read_blocks(location.open_stored(stored_file))
            check_mergeable(blocks_of_file)
        except (FileNotFoundError, OverwrittenError):
            raise
        except CORRUPTION_ERRORS as error:
            kind = UnsupportedError if isinstance(error, UnsupportedError) else pa.ArrowInvalid
            raise kind(f"{location.full_path(stored_file.path)}: {error_reason(error)}") from error
        blocks += blocks_of_file
    return blocks


def merge_files(
    location: Location, base: StoredFile | None, logs: tuple[StoredFile, ...], plan: HudiMergePlan
) -> pa.NativeFile:
    """Merge a file slice into a temporary Parquet file, and return that file opened.

    Args:
        location: the table's folder.
        base: the base file of the slice, if it has one.
        logs: the log files of the slice, in order.
        plan: how the files are merged.

    Raises:
        OSError: a file cannot be read, or has changed since it was listed.
        UnsupportedError: the meaning of delete blocks or of values is not certain.
        ArrowInvalid: a file is corrupt, or hudi-rs cannot merge the slice.
    """
    blocks = log_blocks(location, logs)
    if plan.rules.version >= 8 and {block.instant for block in blocks} - set(plan.instants):
        raise pa.ArrowInvalid("its log files have blocks of other instants than their names record")
    if plan.rules.has_ambiguous_keys and any(block.kind == DELETE_BLOCK for block in blocks):
        raise UnsupportedError(
            "delete blocks of tables without meta fields and with the complex key generator on one field are not "
            "supported, because versions of Hudi write the keys in them differently; compact the table with Hudi"
        )
    if any(block.instant < _FIRST_INSTANT for block in blocks):
        raise pa.ArrowInvalid("its log files have blocks of instants that are not times")
    applied_blocks = [block for block in blocks if block.instant in plan.instants]
    with TemporaryFolder("hudi") as folder, _hudi_rs_errors():
        files = ((base,) if base else ()) + logs
        paths = [_provide_file(location, stored_file, folder) for stored_file in files]
        base_path = paths.pop(0) if base else ""
        if logs:
            local_base = os.path.join(folder, base_path) if base_path.endswith(".parquet") else ""
            local_logs = [os.path.join(folder, path) for path in paths]
            _check_values(local_base, local_logs, applied_blocks, plan)
            positions = operation_positions(local_logs, plan.instants)
            schema = add_operations(plan.schema, positions, meta_fields=plan.rules.meta_fields)
            plan = replace(plan, schema=schema)
        _write_table(folder, plan)
        columns = avro_columns(plan.schema)
        if (
            needs_transcoding(plan.schema)
            or any(block.version != CONTENT_VERSION for block in blocks)
            or _has_other_fields(applied_blocks, columns)
        ):
            for path in paths:
                transcode_log(os.path.join(folder, path), columns)
            if base and in_utc(plan.schema) != plan.schema:
                transcode_base(os.path.join(folder, base_path))
        batches = _read_batches(folder, base_path, paths)
        first = next(batches, None)
        if first is None:
            return write_temporary_parquet(pa.schema([]), [])
        result = write_temporary_parquet(first.schema, chain([first], batches))
        for stored_file in files:
            location.check(stored_file)
        return result


def _check_values(base: str, logs: Sequence[str], blocks: Iterable[LogBlock], plan: HudiMergePlan) -> None:
    """Raise UnsupportedError if hudi-rs might merge files or cast their columns otherwise than Hudi.

    Args:
        base: path of the base file; empty if there is none, or if it is not Parquet.
        logs: paths of the log files.
        blocks: those blocks of the log files that are merged.
        plan: how the files are merged.
    """
    columns = avro_columns(plan.schema)
    if base:
        with pa.OSFile(base, "rb") as source:
            file = open_parquet(source)
            check_type_changes(file.schema_arrow, columns)
            check_calendar(file)
    for stored_columns in _stored_columns(blocks):
        check_type_changes(stored_columns, columns)
    kind = plan.rules.ordering_kind(plan.schema)
    if kind is not None:
        check_ordering_values(base, logs, plan.rules.ordering[0], kind, plan.instants)
        if not plan.in_order:
            check_concurrent_values(logs, plan.rules.ordering[0], kind, plan.instants)


def _stored_columns(blocks: Iterable[LogBlock]) -> list[pa.Schema]:
    """Return the distinct schemas of blocks of log files."""
    schemas = {block.headers[SCHEMA_HEADER] for block in blocks if SCHEMA_HEADER in block.headers}
    return [avro_columns(schema) for schema in schemas]


def _has_other_fields(blocks: Iterable[LogBlock], columns: pa.Schema) -> bool:
    """Return True if a block with rows lacks a column of the table, or has other fields inside of one.

    hudi-rs takes a block without a column for a partial update, even if its header does not say so. It matches the
    fields of structs by position if their number is equal, and otherwise does not read them.
    """
    paths = _paths_by_column(columns)
    blocks_with_rows = (block for block in blocks if block.kind in (AVRO_BLOCK, PARQUET_BLOCK))
    return any(
        stored_paths.get(name) != expected_paths
        for stored_paths in map(_paths_by_column, _stored_columns(blocks_with_rows))
        for name, expected_paths in paths.items()
    )


def _paths_by_column(columns: pa.Schema) -> dict[str, list[str]]:
    """Return the paths of each top-level column and the fields inside of it, in order."""
    return {field.name: [column.path for column in field_columns(field)] for field in columns}


def _is_of_record_keys(key: str) -> bool:
    return key in (_RECORD_KEY, _META_FIELDS) or _KEY_GENERATOR in key


def _infer_mode(version: int, payload: str, strategy: str, ordering: tuple[str, ...]) -> str:
    """Return the merge mode that Hudi 1.x infers for a table that records none.

    From table version 8 on, the mode follows from the merge strategy; without a strategy, from the payload class. For
    older versions, the payload class comes first. The mode is `CUSTOM`, which the caller refuses, for a strategy that
    is not in `_STRATEGIES` and for a class that is not in `_PAYLOADS`. Without strategy and class, records merge by
    ordering values if the table has ordering fields, and otherwise by commit time.

    Args:
        version: the table version.
        payload: the payload class; empty if the table records none.
        strategy: the id of the merge strategy; empty if the table records none.
        ordering: the ordering fields.
    """
    if not payload and not strategy:
        return _EVENT_TIME if ordering else _COMMIT_TIME
    by_payload, by_strategy = _PAYLOADS.get(payload, "CUSTOM"), _STRATEGIES.get(strategy, "CUSTOM")
    if version >= 8:
        return by_strategy if strategy else by_payload
    return by_payload if payload else by_strategy


def _write_table(folder: str, plan: HudiMergePlan) -> None:
    """Write the properties and the timeline of the temporary table that hudi-rs reads.

    Before table version 8, the timeline has the writes of the plan, so that hudi-rs ignores blocks of other writes. For
    hudi-rs, writes before the first instant of a timeline are completed. So the timeline begins with an additional
    instant that is before all writes. Since table version 8, the timeline is empty, because the names of log files show
    their writes.
    """
    rules = plan.rules
    hoodie = os.path.join(folder, ".hoodie")
    os.mkdir(hoodie)
    properties = dict(rules.generator) | {
        "hoodie.table.name": "slice",
        "hoodie.table.type": "MERGE_ON_READ",
        "hoodie.table.version": str(rules.version),
        "hoodie.timeline.layout.version": "2" if rules.version >= 8 else "1",
        "hoodie.table.timeline.timezone": "UTC",
        _META_FIELDS: str(rules.meta_fields).lower(),
        _RECORD_KEY: ",".join(rules.record_key),
        "hoodie.record.merge.mode": rules.mode,
        "hoodie.table.create.schema": in_utc(plan.schema),
    }
    # Without ordering values, hudi-rs accepts several ordering fields, too.
    if rules.ordering and rules.mode == _EVENT_TIME:
        properties["hoodie.table.ordering.fields"] = ",".join(rules.ordering)
        properties["hoodie.table.precombine.field"] = ",".join(rules.ordering)
    with open(os.path.join(hoodie, "hoodie.properties"), "w", encoding="utf-8") as file:
        file.writelines(f"{key}={value}\n" for key, value in properties.items())
    if rules.version >= 8:
        # The names of log files contain their instants, so hudi-rs needs no timeline to select blocks.
        os.makedirs(os.path.join(hoodie, "timeline", "history"))
        return
    metadata = {"partitionToWriteStats": {}, "compacted": False, "extraMetadata": {"schema": in_utc(plan.schema)}}
    # hudi-rs counts instants before the start of a timeline as committed. This first instant prevents that.
    for instant in (_FIRST_INSTANT, *plan.instants):
        with open(os.path.join(hoodie, f"{instant}.deltacommit"), "w", encoding="utf-8") as file:
            json.dump(metadata | {"operationType": "UPSERT"}, file)


def _provide_file(location: Location, stored_file: StoredFile, folder: str) -> str:
    """Link or copy a file of the table into the temporary folder, and return its name there."""
    name = stored_file.path.rpartition("/")[2]
    target = os.path.join(folder, name)
    if location.is_local:
        location.check(stored_file)
        os.symlink(location.full_path(stored_file.path), target)
        # hudi-rs reads the whole file and does not report its bytes.
        record_read(location.full_path(stored_file.path), stored_file.size)
    else:
        with location.open_stored(stored_file) as source, open(target, "wb") as file:
            shutil.copyfileobj(source, file, _COPY_BYTES)
    return name


def _read_batches(folder: str, base: str, logs: list[str]) -> Iterator[pa.RecordBatch]:
    """Yield the merged rows of a slice.

    `base` and `logs` are file names in the folder; `base` is empty without a base file.
    """
    with extra("hudi", "a Hudi file slice with log files"):
        from hudi import HudiReadOptions, HudiTable

    options = HudiReadOptions().with_hudi_options(
        {
            "hoodie.memory.merge.max.size": str(_MERGE_BYTES),
            "hoodie.memory.spillable.map.path": os.path.join(folder, ".spill"),
        }
    )
    reader = HudiTable(folder).create_file_group_reader_with_options(options)
    yield from reader.read_file_slice_from_paths_stream(base, logs, options.with_batch_size(_BATCH_ROWS))


@contextmanager
def _hudi_rs_errors() -> Iterator[None]:
    """Convert errors and panics of hudi-rs to UnsupportedError or ArrowInvalid.

    UnsupportedError stands for features that hudi-rs does not support. OSError and Arrow's own exceptions are not
    changed.
    """
    try:
        yield
    except (OSError, pa.ArrowException):
        raise
    except Exception as error:
        kind = UnsupportedError if _LACK_OF_SUPPORT.search(str(error)) else pa.ArrowInvalid
        raise kind(f"hudi-rs cannot read it: {error}") from error
    except BaseException as error:
        # A panic of native code is not an Exception.
        if type(error).__name__ != "PanicException":
            raise
        raise pa.ArrowInvalid(f"hudi-rs failed to read it: {error}") from error
