"""The schema of a Hudi table: Avro's, from the newest commit that tells one."""

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
from metastore_assets.formats.readers.avro_schema import record_type
from metastore_assets.formats.readers.parquet import open_parquet
from metastore_assets.formats.readers.reader import check_distinct
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
"""A further one, in tables of writers that record what they did to a row (`hoodie.allow.operation.metadata.field`)."""
_ADDED = frozenset({*META_COLUMNS, OPERATION})
_CREATED = "hoodie.table.create.schema"


def is_added(name: str) -> bool:
    """Whether Hudi adds the column of that name to a table. `_hoodie_is_deleted` is a column of the table's own."""
    return name in _ADDED


@dataclass(frozen=True)
class HudiSchema:
    """Columns of the table, without those that Hudi adds."""

    avro: str | None
    """As JSON, for whoever reads log files: the columns that Hudi adds to every table left out. None when not told."""
    columns: pa.Schema
    has_operations: bool = False
    """Whether Hudi adds the column of operations, too."""
    numbers: tuple[tuple[str, pa.DataType], ...] = ()
    """Columns, by name and type, that some files hold as texts though the table was made with numbers."""

    def without(self, names: Sequence[str]) -> tuple[str, ...]:
        """Those of the names that are of no column, nor of a field in one."""
        known = {field.name.lower() for field in self.columns}
        return tuple(name for name in names if not {name.lower(), name.partition(".")[0].lower()} & known)

    def with_texts(self, names: Sequence[str]) -> HudiSchema:
        """With more columns, which no file holds."""
        return replace(self, columns=pa.schema([*self.columns, *(pa.field(name, pa.string()) for name in names)]))


def table_schema(
    location: Location,
    properties: Mapping[str, str],
    commits: Sequence[Commit],
    dropped: Sequence[str],
    dated: Sequence[str],
) -> HudiSchema | None:
    """The schema after those commits; None when neither they nor the properties tell one.

    `dropped` are partition columns that data files do not hold: texts, where the schema lacks them; `dated` those
    whose values are formatted as dates to make folders. Raises TableFormatError.
    """
    created = properties.get(_CREATED)
    telling = [commit for commit in commits if commit.schema]
    telling.sort(key=lambda commit: (not commit.rewrites, commit.instant.requested))
    text = telling[-1].schema if telling else created
    if text is None:
        return None
    if any(commit.evolved_by_id for commit in commits):
        _check_never_renamed(location)
    schema = parse_schema(location, text, dropped)
    return _as_created(schema, parse_schema(location, created).columns, dated) if created and dated else schema


def _as_created(schema: HudiSchema, created: pa.Schema, dated: Sequence[str]) -> HudiSchema:
    """Spark takes columns that are formatted as dates for texts, and updates write them so: they stay numbers."""
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
    """What a base file says of its rows: in Avro's JSON, or None, and in Arrow. Runs in a child process."""
    with location.open_stored(base) as source:
        file = open_parquet(source)
        return (file.metadata.metadata or {}).get(b"parquet.avro.schema"), file.schema_arrow


def parse_schema(location: Location, text: str, dropped: Sequence[str] = ()) -> HudiSchema:
    """A schema from Avro's JSON. Raises TableFormatError when it cannot be Arrow's."""
    try:
        document: dict[str, Any] = parse_json(text)
        # Hudi adds columns of primitive types only, which define no types that others may name.
        fields = [field for field in document["fields"] if field["name"] not in META_COLUMNS]
        document = document | {"fields": fields}
        arrow = record_type(document).arrow
        columns = [field.with_nullable(True) for field in arrow if not is_added(field.name)]
        check_distinct([field.name for field in columns])
    except CORRUPTION_ERRORS as error:
        raise unreadable_error(f"{location.uri}: the table's schema cannot be read", error) from error
    missing = [name for name in dropped if name not in {field.name for field in columns}]
    document["fields"] = [field for field in fields if field["name"] not in dropped]
    schema = pa.schema(columns + [pa.field(name, pa.string()) for name in missing])
    return HudiSchema(json.dumps(document), schema, OPERATION in arrow.names)


def unparsed(stored: pa.Schema) -> HudiSchema:
    """The columns of a file, where nothing tells the schema in Avro."""
    fields = [pa.field(field.name, field.type) for field in stored if not is_added(field.name)]
    return HudiSchema(None, pa.schema(fields), OPERATION in stored.names)


def _check_never_renamed(location: Location) -> None:
    """Old files hold old names: whether they differ tells the history of schemas by number."""
    folder = f"{FOLDER}/.schema"
    names: dict[tuple[int, ...], str] = {}
    try:
        for file in sorted(location.names(folder, *INSTANTS)):
            if not file.endswith(".schemacommit"):
                continue
            history = parse_json(location.read(f"{folder}/{file}"))
            for schema in history["schemas"]:
                for key, name in _numbered(schema["fields"], ()):
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


def _numbered(fields: Sequence[Mapping[str, Any]], above: tuple[int, ...]) -> list[tuple[tuple[int, ...], str]]:
    """(numbers of the field and of those above it, dotted name) of every field below."""
    found = []
    for field in fields:
        key = (*above, int(field["id"]))
        found.append((key, f"{'.'.join(map(str, above))}.{field['name']}"))
        type_ = field["type"]
        if isinstance(type_, Mapping):
            below = [type_[name] for name in ("element", "value") if isinstance(type_.get(name), Mapping)]
            nested = [*type_.get("fields", ()), *(f for part in below for f in part.get("fields", ()))]
            found += _numbered(nested, key)
    return found
