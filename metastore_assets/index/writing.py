"""Writing the index: a commit adds one file with the fragments that came, and the names of those that went.

    index/<unique>.index.parquet    sections `gone`, `fragments`, and one per column; newest file first to be believed

What a fragment's rows say never changes, so a file is only written again to have fewer of them: small ones are merged
as they get many, and all are, without what is gone, when the changes come to half of the first. Within a section rows
go by fragment, in the same order in all sections of a file: so a row has no key, and a column is one slice of a file.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable

import pyarrow as pa

from metastore_assets.index.files import FOLDER, GONE, ROWS, padded, section_of
from metastore_assets.index.reading import IndexReader
from metastore_assets.index.rows import FRAGMENTS, IndexRows, column_schema, joined
from metastore_assets.statistics.union import merge_unions
from metastore_assets.store.entry_files import EntryFile, EntryFiles, kept_files
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.sections import SectionWriter
from metastore_assets.values.types import class_named


def next_index(
    store: ObjectStore, base: EntryFiles | None, came: IndexRows, gone: Collection[str], rows: int
) -> EntryFiles:
    """The files of an index in which some fragments are new, or other ones than before, and some are gone.

    `gone` has names that `base` has; then there are `rows` fragments. Nothing is changed: what `base` names stays.
    Raises CorruptionError.
    """
    if not rows:
        return EntryFiles(0, ())
    if base is None or not base.files:
        return _written(store, [came], ())
    names = set(came.fragments["name"].to_pylist())
    if not names and not gone:
        return base
    reader = IndexReader(store, base)
    kept = kept_files(base, rows, len(names) + len(gone), whole_rows=0)
    parts, dropped = [], set(gone)
    for number in range(len(kept), len(base.files)):
        dropped |= reader.gone(number) if kept else set()
        own = reader.rows(number)
        stay = [name not in gone and name not in names for name in own.fragments["name"].to_pylist()]
        parts.append(own if all(stay) else own.filter(pa.array(stay, pa.bool_())))
    found = _written(store, [*parts, came], dropped if kept else ())
    return EntryFiles(rows, (*kept, *found.files))


def _written(store: ObjectStore, parts: Iterable[IndexRows], gone: Collection[str]) -> EntryFiles:
    parts = [part for part in parts if len(part.fragments)]
    union = merge_unions(part.union for part in parts)
    schema = pa.schema([*FRAGMENTS, *column_schema(union)])
    path = f"{FOLDER}/{uuid.uuid4().hex}.index.parquet"
    rows = 0
    with SectionWriter(store, path, schema, _encodings(union)) as writer:
        writer.write_section(GONE, padded(pa.table({"name": pa.array(sorted(gone), pa.string())}), schema))
        for field_id, table in joined(parts):
            rows += len(table) if field_id is None else 0
            writer.write_section(ROWS if field_id is None else section_of(field_id), padded(table, schema))
    return EntryFiles(rows, (EntryFile(path, rows + len(gone)),))


def _encodings(union: pa.StructType) -> dict[str, str]:
    """Counts are mostly alike; so are neighbours among the bounds of what is clustered."""
    encodings = dict.fromkeys(("bytes", "row_count", "null_count", "nan_count"), "DELTA_BINARY_PACKED")
    for field in union:
        cls = class_named(field.name)
        if cls.kind == "integer" and not pa.types.is_decimal(cls.arrow):
            encodings |= {f"{side}.{field.name}": "DELTA_BINARY_PACKED" for side in ("minimum", "maximum")}
        elif cls.kind == "float":
            encodings |= {f"{side}.{field.name}": "BYTE_STREAM_SPLIT" for side in ("minimum", "maximum")}
    return encodings
