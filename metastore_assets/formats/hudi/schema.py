"""The schema of a Hudi table, from the newest commit that records one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
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
"""A column in tables of writers that record the operation of each row (`hoodie.allow.operation.metadata.field`)."""
_ADDED = frozenset({*META_COLUMNS, OPERATION})
_CREATED = "hoodie.table.create.schema"


def is_added(name: str) -> bool:
    """Return whether Hudi adds the column of that name. `_hoodie_is_deleted` is one of the table's own columns."""
    return name in _ADDED


@dataclass(frozen=True)
class HudiSchema:
    """The table's columns, without those that Hudi adds."""

    avro: str | None
    """The schema as Avro JSON for readers of log files, without the columns that Hudi adds. None if not recorded."""
    columns: pa.Schema
    has_operations: bool = False
    """Whether Hudi also adds the column of operations."""
    numbers: tuple[tuple[str, pa.DataType], ...] = ()
    """Name and type of columns that some files store as texts though the table was created with numbers."""

    def missing_names(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the names that are neither a column nor a nested field."""
        column_names = {field.name.lower() for field in self.columns}
        return tuple(name for name in names if not {name.lower(), name.partition(".")[0].lower()} & column_names)

    def with_texts(self, names: Sequence[str]) -> HudiSchema:
        """Return the schema with additional text columns, which no file holds."""
        return replace(self, columns=pa.schema([*self.columns, *(pa.field(name, pa.string()) for name in names)]))


def table_schema(
    location: Location,
    properties: Mapping[str, str],
    commits: Sequence[Commit],
    dropped: Sequence[str],
    dated: Sequence[str],
) -> HudiSchema | None:
    """Return the schema after some commits; None if neither they nor the properties record one.

    Args:
        dropped: Partition columns that data files do not store. They are texts if the schema lacks them.
        dated: Partition columns whose values are formatted as dates in folder names.

    Raises:
        TableFormatError
    """
    created = properties.get(_CREATED)
    with_schema = [commit for commit in commits if commit.schema]
    with_schema.sort(key=lambda commit: (not commit.is_rewrite, commit.instant.requested))
    text = with_schema[-1].schema if with_schema else created
    if text is None:
        return None
    if any(commit.evolved_by_id for commit in commits):
        _check_no_column_renamed(location)
    schema = parse_schema(location, text, dropped)
    return _restore_numbers(schema, parse_schema(location, created).columns, dated) if created and dated else schema


def _restore_numbers(schema: HudiSchema, created: pa.Schema, dated: Sequence[str]) -> HudiSchema:
    """Restore number columns. Spark reads columns that are formatted as dates as texts, and updates write them as
    texts.
    """
    numbers = tuple(
        (field.name, created.field(field.name).type)
        for field in schema.columns
        if field.name in dated
        and field.name in created.names
        and pa.types.is_string(field.type)
        and pa.types.is_integer(created.field(field.name).type)
    )
    types = dict(numbers)
    columns = pa.schema([field.with_type(types.get(field.name, field.type)) for field in schema.columns])
    return replace(schema, columns=columns, numbers=numbers)


def file_schema(location: Location, base: StoredFile) -> tuple[bytes | None, pa.Schema]:
    """Return the schema of a base file as Avro JSON (or None) and in Arrow. Runs in a child process."""
    with location.open_stored(base) as source:
        file = open_parquet(source)
        return (file.metadata.metadata or {}).get(b"parquet.avro.schema"), file.schema_arrow


def parse_schema(location: Location, text: str, dropped: Sequence[str] = ()) -> HudiSchema:
    """Convert Avro JSON to a schema. Raises TableFormatError if Arrow has no such type."""
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
    missing = [name for name in dropped if name not in {field.name for field in columns}]
    document["fields"] = [field for field in fields if field["name"] not in dropped]
    schema = pa.schema(columns + [pa.field(name, pa.string()) for name in missing])
    return HudiSchema(json.dumps(document), schema, OPERATION in arrow.names)


def schema_of_columns(stored: pa.Schema) -> HudiSchema:
    """Return the columns of a file, if no Avro schema is recorded."""
    fields = [pa.field(field.name, field.type) for field in stored if not is_added(field.name)]
    return HudiSchema(None, pa.schema(fields), OPERATION in stored.names)


def _check_no_column_renamed(location: Location) -> None:
    """Raise if columns were renamed: files keep the old names, and only the numbered history of schemas shows it."""
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
    """Return (numbers of the field and its parents, dotted name) of every nested field."""
    named_fields = []
    for field in fields:
        key = (*above, int(field["id"]))
        named_fields.append((key, f"{'.'.join(map(str, above))}.{field['name']}"))
        type_ = field["type"]
        if isinstance(type_, Mapping):
            below = [type_[name] for name in ("element", "value") if isinstance(type_.get(name), Mapping)]
            nested = [*type_.get("fields", ()), *(child for part in below for child in part.get("fields", ()))]
            named_fields += _named_fields(nested, key)
    return named_fields
