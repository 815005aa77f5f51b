"""The schema of a Hudi table, from its commits, its properties or its files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from metastore_assets.errors import TableFormatError
from metastore_assets.formats.hudi.commits import Commit
from metastore_assets.formats.hudi.timeline import FOLDER, INSTANTS
from metastore_assets.formats.metadata_json import parse_json
from metastore_assets.formats.readers.avro_schema import resolve_record_type
from metastore_assets.formats.readers.columns import check_distinct
from metastore_assets.formats.readers.parquet import open_parquet
from metastore_assets.formats.schema_casting import mark_floats
from metastore_assets.storage.corrupt_input import CORRUPTION_ERRORS, unreadable_error
from metastore_assets.storage.location import Location, StoredFile

META_COLUMNS = (
    "_hoodie_commit_time",
    "_hoodie_commit_seqno",
    "_hoodie_record_key",
    "_hoodie_partition_path",
    "_hoodie_file_name",
)
OPERATION = "_hoodie_operation"
"""Name of the column with each row's operation, which some writers add (`hoodie.allow.operation.metadata.field`)."""
_ADDED = frozenset({*META_COLUMNS, OPERATION})
_CREATED = "hoodie.table.create.schema"


def is_added(name: str) -> bool:
    """Return True for the name of a column that Hudi adds.

    The result is False for `_hoodie_is_deleted`, which is a column of the table.
    """
    return name in _ADDED


@dataclass(frozen=True)
class HudiSchema:
    """The columns of a table, without those that Hudi adds."""

    avro: str | None
    """The schema of the files as Avro JSON, without the columns that Hudi adds; None if it is not recorded."""
    columns: pa.Schema
    has_operations: bool = False
    """Whether Hudi also adds the column `OPERATION`."""
    numbers: tuple[tuple[str, pa.DataType], ...] = ()
    """Name and type of number columns that some files store as texts."""

    def missing_names(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the names that no column has, without regard to case.

        For a dotted name, a column with the name before the first dot suffices.
        """
        column_names = {field.name.lower() for field in self.columns}
        return tuple(name for name in names if not {name.lower(), name.partition(".")[0].lower()} & column_names)

    def with_texts(self, names: Sequence[str]) -> HudiSchema:
        """Return the schema with a text column added for each name.

        The names are those of partition columns that the schema lacks. Their values come from partition paths.
        """
        return replace(self, columns=pa.schema([*self.columns, *(pa.field(name, pa.string()) for name in names)]))


def table_schema(
    location: Location,
    properties: Mapping[str, str],
    commits: Sequence[Commit],
    dropped_columns: Sequence[str],
    dated_columns: Sequence[str],
) -> HudiSchema | None:
    """Return the schema that the commits or the table's properties record; None if neither records one.

    The properties are used only if no commit records a schema (see `schema_commit`).

    Args:
        location: the table's folder.
        properties: the table's properties.
        commits: the commits of the state, at least the one that defines its schema.
        dropped_columns: partition columns that data files do not store. Those that the schema lacks are added as
            strings.
        dated_columns: partition columns whose values are formatted as dates in folder names.

    Raises:
        TableFormatError: the schema cannot be read, or columns were renamed.
    """
    created_text = properties.get(_CREATED)
    newest = schema_commit(commits)
    text = newest.schema if newest else created_text
    if text is None:
        return None
    if any(commit.evolved_by_id for commit in commits):
        _check_no_column_renamed(location)
    schema = parse_schema(location, text, dropped_columns)
    return (
        _restore_numbers(schema, parse_schema(location, created_text).columns, dated_columns)
        if created_text and dated_columns
        else schema
    )


def schema_commit(commits: Iterable[Commit]) -> Commit | None:
    """Return the commit that defines the schema of a state; None if no commit records a schema.

    It is the newest commit that records a schema and added or changed rows. If there is none, it is the newest commit
    that records a schema.
    """
    with_schema = [commit for commit in commits if commit.schema]
    return max(with_schema, key=lambda commit: (not commit.is_rewrite, commit.instant.requested), default=None)


def _restore_numbers(schema: HudiSchema, created_schema: pa.Schema, dated_columns: Sequence[str]) -> HudiSchema:
    """Return the schema with `dated_columns` as integers if the table was created with integers.

    Only columns that are text in `schema` are changed. Spark reads a dated column as text, and stores it as text when
    it updates rows.

    Args:
        schema: the schema, in which these columns may be text.
        created_schema: the schema with which the table was created.
        dated_columns: partition columns whose values are formatted as dates in folder names. Other columns do not
            change.
    """
    numbers = tuple(
        (field.name, created_schema.field(field.name).type)
        for field in schema.columns
        if field.name in dated_columns
        and field.name in created_schema.names
        and pa.types.is_string(field.type)
        and pa.types.is_integer(created_schema.field(field.name).type)
    )
    types = dict(numbers)
    columns = pa.schema([field.with_type(types.get(field.name, field.type)) for field in schema.columns])
    return replace(schema, columns=columns, numbers=numbers)


def file_schema(location: Location, base: StoredFile) -> tuple[bytes | None, pa.Schema]:
    """Return the schema of a base file as Avro JSON (None if not recorded), and as an Arrow schema.

    Call this in a child process, because a corrupt file may crash the process.
    """
    with location.open_stored(base) as source:
        file = open_parquet(source)
        return (file.metadata.metadata or {}).get(b"parquet.avro.schema"), file.schema_arrow


def parse_schema(location: Location, text: str, dropped_columns: Sequence[str] = ()) -> HudiSchema:
    """Parse a schema in Avro JSON.

    Raises TableFormatError if it cannot be read.

    Args:
        location: the table's folder, for messages.
        text: the schema as Avro JSON.
        dropped_columns: partition columns that data files do not store. Those that the schema lacks are added as
            strings.
    """
    try:
        document: dict[str, Any] = parse_json(text)
        # Hudi adds columns of primitive types only, so they define no named types.
        fields = [field for field in document["fields"] if field["name"] not in META_COLUMNS]
        document = document | {"fields": fields}
        arrow = resolve_record_type(document).arrow
        columns = [field.with_nullable(True) for field in arrow if not is_added(field.name)]
        check_distinct([field.name for field in columns])
    except CORRUPTION_ERRORS as error:
        raise unreadable_error(f"{location.uri}: the table's schema cannot be read", error) from error
    missing_names = [name for name in dropped_columns if name not in {field.name for field in columns}]
    document["fields"] = [field for field in fields if field["name"] not in dropped_columns]
    schema = pa.schema(
        [mark_floats(field) for field in columns] + [pa.field(name, pa.string()) for name in missing_names]
    )
    return HudiSchema(json.dumps(document), schema, OPERATION in arrow.names)


def schema_of_columns(stored_schema: pa.Schema) -> HudiSchema:
    """Return the schema of a table without a recorded Avro schema, from the Arrow schema of a file."""
    fields = [mark_floats(pa.field(field.name, field.type)) for field in stored_schema if not is_added(field.name)]
    return HudiSchema(None, pa.schema(fields), OPERATION in stored_schema.names)


def _check_no_column_renamed(location: Location) -> None:
    """Raise TableFormatError if schema evolution on read renamed a column, or replaced it.

    A replaced column was dropped and added again. Such a table cannot be read by column names, because older files
    still have the old column.

    Also raises TableFormatError if the history of schemas cannot be read.
    """
    folder = f"{FOLDER}/.schema"
    names: dict[tuple[int, ...], str] = {}
    try:
        for file in sorted(location.names(folder, *INSTANTS)):
            if not file.endswith(".schemacommit"):
                continue
            history = parse_json(location.read(f"{folder}/{file}"))
            for schema in history["schemas"]:
                for key, name in _named_fields(schema["fields"], ()):
                    if names.setdefault(key, name) != name:
                        raise TableFormatError(
                            f"{location.uri} has a column renamed from {names[key]!r} to {name!r} by schema evolution "
                            "on read, which has no reader"
                        )
        if len(set(names.values())) < len(names):
            raise TableFormatError(
                f"{location.uri} has a column dropped and added again by schema evolution on read, which has no reader"
            )
    except CORRUPTION_ERRORS as error:
        raise unreadable_error(f"{location.full_path(folder)}: its history of schemas cannot be read", error) from error


def _named_fields(fields: Sequence[Mapping[str, Any]], above: tuple[int, ...]) -> list[tuple[tuple[int, ...], str]]:
    """Return a pair (path, name) for each field at any depth.

    The path has the ids from the top-level field down. The name begins with the ids of the enclosing fields. For a
    field `street` with id 7 in a field with id 3, the pair is ((3, 7), "3.street").

    Args:
        fields: the fields of a record.
        above: the ids of the fields that contain the record; empty for top-level fields.
    """
    named_fields = []
    for field in fields:
        key = (*above, int(field["id"]))
        named_fields.append((key, ".".join([*map(str, above), field["name"]])))
        named_fields += _named_fields(_inner_fields(field["type"]), key)
    return named_fields


def _inner_fields(type_: object) -> list[Mapping[str, Any]]:
    """Return the fields of a record type, or of the records in a type of arrays or maps at any depth."""
    if not isinstance(type_, Mapping):
        return []
    parts = [_inner_fields(type_.get(name)) for name in ("element", "value")]
    return [*type_.get("fields", ()), *(field for part in parts for field in part)]
