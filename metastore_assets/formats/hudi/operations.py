"""Operations of change data, which some writers record in the column `_hoodie_operation` of each row.

A row with a delete operation deletes its record. The meta columns, such as `_hoodie_record_key`, are other columns that
Hudi adds.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from functools import lru_cache

import pyarrow as pa

from metastore_assets.formats.hudi.log import AVRO_BLOCK, PARQUET_BLOCK, SCHEMA_HEADER, read_blocks
from metastore_assets.formats.hudi.schema import META_COLUMNS, OPERATION
from metastore_assets.formats.readers.parquet import open_parquet
from metastore_assets.storage.corrupt_input import UnsupportedError


def add_operations(avro_schema: str, positions: Collection[int | None], *, meta_fields: bool) -> str:
    """Return a table's schema, with the column of operations inserted if log blocks have this column.

    The schemas that commits record lack the column. hudi-rs recognizes delete operations only if the table's schema has
    the column. It expects the column at the same position in the schema and in all blocks.

    Args:
        avro_schema: the table's schema as Avro JSON, without the meta columns.
        positions: the result of `operation_positions` for the log files of a file slice.
        meta_fields: whether files begin with the meta columns.

    Raises:
        UnsupportedError: a block lacks the column, but the schema or another block has it. Or the position of
            the column is not the same everywhere.
    """
    schema = json.loads(avro_schema)
    fields, offset = schema["fields"], len(META_COLUMNS) * meta_fields
    names = [field["name"] for field in fields]
    expected = {offset + names.index(OPERATION)} if OPERATION in names else set()
    if not expected and set(positions) <= {None}:
        return avro_schema
    distinct_positions = expected.union(positions)
    position = distinct_positions.pop()
    if distinct_positions or position is None or not 0 <= position - offset <= len(fields):
        raise UnsupportedError(
            f"log blocks without the column {OPERATION!r}, or with this column at several positions, are not supported "
            "in tables that have it; compact the table with Hudi"
        )
    if not expected:
        fields.insert(position - offset, {"name": OPERATION, "type": ["null", "string"], "default": None})
    return json.dumps(schema)


def operation_positions(logs: Iterable[str], instants: Collection[str]) -> set[int | None]:
    """Return the positions that the column of operations has in the blocks of log files.

    A position is an index among all columns of a block. The result contains None if a block lacks the column.

    Args:
        logs: paths of the log files.
        instants: the instants of the writes to merge. Blocks of other writes are ignored.
    """
    positions: set[int | None] = set()
    for path in logs:
        for block in read_blocks(pa.OSFile(path)):
            if block.instant not in instants or block.kind not in (AVRO_BLOCK, PARQUET_BLOCK):
                continue
            if block.kind == AVRO_BLOCK:
                names = _column_names(block.headers[SCHEMA_HEADER])
            else:
                start, length = block.content_range
                with pa.OSFile(path) as source:
                    names = tuple(open_parquet(pa.BufferReader(source.read_at(length, start))).schema_arrow.names)
            positions.add(names.index(OPERATION) if OPERATION in names else None)
    return positions


@lru_cache(maxsize=8)
def _column_names(avro_schema: str) -> tuple[str, ...]:
    return tuple(field["name"] for field in json.loads(avro_schema)["fields"])
