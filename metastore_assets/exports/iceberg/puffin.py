"""A writer of Puffin files, which have blobs, and a footer that describes the blobs.

Iceberg's Puffin specification, version 1, defines the files. pyiceberg can read Puffin files, but cannot write them.
pyiceberg reads only uncompressed footers, so this writer compresses no footers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_MAGIC = b"PFA1"
_NO_FLAGS = bytes(4)


@dataclass(frozen=True)
class Blob:
    """A blob, such as a sketch, that describes one field of a table."""

    type: str
    field_id: int
    content: bytes
    properties: Mapping[str, str]


@dataclass(frozen=True)
class PuffinFile:
    """A serialized Puffin file."""

    content: bytes
    footer_size: int
    """Size in bytes of the footer, from its first magic number to the end of the file."""


def encode_puffin(
    blobs: Sequence[Blob], snapshot_id: int, sequence_number: int, properties: Mapping[str, str]
) -> PuffinFile:
    """Return a Puffin file with the given blobs, in memory.

    Args:
        blobs: The blobs. Their content is written without compression.
        snapshot_id: The snapshot that all blobs describe.
        sequence_number: The sequence number of that snapshot.
        properties: Properties of the file.
    """
    content, blob_metadata = bytearray(_MAGIC), list[dict[str, Any]]()
    for blob in blobs:
        blob_metadata.append(
            {
                "type": blob.type,
                "fields": [blob.field_id],
                "snapshot-id": snapshot_id,
                "sequence-number": sequence_number,
                "offset": len(content),
                "length": len(blob.content),
                "properties": dict(blob.properties),
            }
        )
        content += blob.content
    payload = json.dumps({"blobs": blob_metadata, "properties": dict(properties)}, ensure_ascii=False).encode()
    footer = _MAGIC + payload + len(payload).to_bytes(4, "little") + _NO_FLAGS + _MAGIC
    return PuffinFile(bytes(content) + footer, len(footer))
