"""Iceberg's partition statistics file: files, rows and deletes of each partition.

The table specification defines the file. pyiceberg computes the numbers from the manifests of the snapshot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pyiceberg.table import Table

_FIELD_ID = "PARQUET:field_id"
_COUNTS = (
    ("spec_id", "spec_id", pa.int32(), 2),
    ("data_record_count", "record_count", pa.int64(), 3),
    ("data_file_count", "file_count", pa.int32(), 4),
    ("total_data_file_size_in_bytes", "total_data_file_size_in_bytes", pa.int64(), 5),
    ("position_delete_record_count", "position_delete_record_count", pa.int64(), 6),
    ("position_delete_file_count", "position_delete_file_count", pa.int32(), 7),
    ("equality_delete_record_count", "equality_delete_record_count", pa.int64(), 8),
    ("equality_delete_file_count", "equality_delete_file_count", pa.int32(), 9),
)
"""The required columns: name in the file, name in pyiceberg's table `partitions`, type and field id."""
_DELETE_FILES = ("position_delete_file_count", "equality_delete_file_count")


def encode_partition_statistics(table: Table, snapshot_id: int) -> bytes | str:
    """Return the content of a snapshot's partition statistics file, which has the format Parquet.

    If the table cannot have such a file, return the reason as text.

    Args:
        table: The table. All manifests of the snapshot are read.
        snapshot_id: Id of the snapshot.
    """
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    metadata = table.metadata
    if metadata.spec().is_unpartitioned():
        return "it is not partitioned"
    if metadata.properties.get("write.format.default", "parquet").lower() != "parquet":
        return "the table's property write.format.default is not parquet"
    partition_fields = {(field.field_id, field.name) for spec in metadata.partition_specs for field in spec.fields}
    ids, names = zip(*partition_fields, strict=True)
    if not len(partition_fields) == len(set(ids)) == len(set(names)):
        return "pyiceberg loses values of partition fields that were renamed, or share a name"
    rows = table.inspect.partitions(snapshot_id=snapshot_id)
    has_deletes = pc.greater(pc.add(rows[_DELETE_FILES[0]], rows[_DELETE_FILES[1]]), 0)
    if metadata.format_version >= 3 and pc.any(pc.greater(rows["position_delete_file_count"], 0)).as_py():
        return "pyiceberg does not tell deletion vectors from other files of position deletes"
    structure = schema_to_pyarrow(metadata.specs_struct())
    partition = rows["partition"].combine_chunks()
    stored_fields = {field.name: partition.field(field.name) for field in partition.type}
    values = [stored_fields.get(field.name, pa.nulls(len(rows), field.type)).cast(field.type) for field in structure]
    fields = [_field("partition", pa.struct(list(structure)), 1, nullable=False)]
    columns: list[pa.Array | pa.ChunkedArray] = [pa.StructArray.from_arrays(values, fields=list(structure))]
    for name, source, type_, field_id in _COUNTS:
        fields.append(_field(name, type_, field_id, nullable=False))
        columns.append(rows[source].cast(type_))
    optional = [
        # With deletes, the number of live rows does not follow from the manifests.
        ("total_record_count", pc.if_else(has_deletes, None, rows["record_count"]), pa.int64(), 10),
        ("last_updated_at", rows["last_updated_at"].cast(pa.int64()), pa.int64(), 11),
        ("last_updated_snapshot_id", rows["last_updated_snapshot_id"], pa.int64(), 12),
    ]
    for name, column, type_, field_id in optional:
        fields.append(_field(name, type_, field_id, nullable=True))
        columns.append(column.cast(type_))
    if metadata.format_version >= 3:
        fields.append(_field("dv_count", pa.int32(), 13, nullable=False))
        columns.append(pa.array([0] * len(rows), pa.int32()))
    result = pa.Table.from_arrays(columns, schema=pa.schema(fields))
    # The specification: ascending by the values of the partition, nulls first.
    keys = pa.table(dict(zip([f"{at}" for at in range(len(values))], values, strict=True)))
    order = pc.sort_indices(keys, [(name, "ascending", "at_start") for name in keys.column_names])
    sink = pa.BufferOutputStream()
    pq.write_table(result.take(order), sink)
    return sink.getvalue().to_pybytes()


def _field(name: str, type_: pa.DataType, field_id: int, *, nullable: bool) -> pa.Field:
    return pa.field(name, type_, nullable, {_FIELD_ID: str(field_id)})
