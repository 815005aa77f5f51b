"""Deletion of rows of a Delta table by deletion vectors, without rewriting data files.

The Python package `deltalake` reads deletion vectors, but does not write them. The vectors written here are inline:
stored in the log itself.
"""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Collection
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyroaring import BitMap64

_MAGIC = 1681511377
"""The magic number of a serialised set of row numbers in the Delta protocol."""
_BASE85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def delete_rows(table: Path, partitions: Collection[dict[str, str]], condition: pc.Expression) -> int:
    """Delete the rows that match a condition from some partitions, in one commit.

    Return the number of deleted rows.

    Args:
        table: The folder of the table.
        partitions: The values of each partition by column. Files of the partitions must not have a deletion vector.
        condition: A condition on the columns in the files, which have no partition columns.
    """
    delta = DeltaTable(table)
    actions: list[dict[str, object]] = []
    deleted_count = 0
    for add in pa.table(delta.get_add_actions()).to_pylist():
        if add["partition"] not in partitions:
            continue
        rows = pq.ParquetFile(table / unquote(add["path"])).read()
        numbered_rows = rows.append_column("row_number", pa.array(range(rows.num_rows), pa.uint64()))
        numbers = BitMap64(numbered_rows.filter(condition)["row_number"].to_pylist())
        if numbers:
            deleted_count += len(numbers)
            actions += _replace(add, numbers)
    information = {"timestamp": _now(), "operation": "DELETE", "operationParameters": {"predicate": str(condition)}}
    lines = [json.dumps(action) for action in [{"commitInfo": information}, *actions]]
    # "x": the protocol's rule that the first writer of a version wins.
    with open(table / "_delta_log" / f"{delta.version() + 1:020}.json", "x", encoding="utf-8") as log:
        log.write("\n".join(lines) + "\n")
    return deleted_count


def _replace(add: dict[str, object], numbers: BitMap64) -> list[dict[str, object]]:
    """Return the two actions that replace a file by the same file with a deletion vector.

    Args:
        add: The current add action of the file.
        numbers: The row numbers in the deletion vector.
    """
    file = {"path": add["path"], "partitionValues": add["partition"], "size": add["size_bytes"]}
    vector_bytes = struct.pack("<I", _MAGIC) + numbers.serialize()
    vector = {
        "storageType": "i",
        "pathOrInlineDv": _base85(vector_bytes),
        "sizeInBytes": len(vector_bytes),
        "cardinality": len(numbers),
    }
    # The count includes deleted rows. `tightBounds: false`: bounds may be those of deleted rows.
    stats = json.dumps({"numRecords": add["num_records"], "tightBounds": False})
    changed_fields = {"modificationTime": _now(), "dataChange": True, "stats": stats, "deletionVector": vector}
    return [
        {"remove": {**file, "deletionTimestamp": _now(), "dataChange": True, "extendedFileMetadata": True}},
        {"add": {**file, **changed_fields}},
    ]


def _base85(data: bytes) -> str:
    """Return the data in base 85 as ZeroMQ defines it: 5 characters for 4 bytes.

    Delta's protocol requires this encoding.
    """
    text = ""
    for number in struct.unpack(f">{(len(data) + 3) // 4}I", data.ljust((len(data) + 3) // 4 * 4, b"\0")):
        text += "".join(_BASE85[number // 85**power % 85] for power in (4, 3, 2, 1, 0))
    return text


def _now() -> int:
    return int(time.time() * 1000)
