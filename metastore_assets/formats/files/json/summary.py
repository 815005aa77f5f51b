"""Summaries of JSON lines files, and their serialization."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from metastore_assets.formats.files.json.shapes import Shape

_KINDS: dict[str, type] = {kind.__name__: kind for kind in (bool, int, float, str, dict, list)}


@dataclass(frozen=True)
class JsonSummary:
    """The row count and the shape of all rows of a file."""

    row_count: int
    shape: Shape


def encode_summary(summary: JsonSummary) -> bytes:
    """Serialize a summary."""
    return json.dumps([summary.row_count, _encoded(summary.shape)], separators=(",", ":")).encode()


def decode_summary(data: bytes) -> JsonSummary:
    """Parse a serialized summary. Raises ValueError, LookupError or TypeError for invalid bytes."""
    rows, shape = json.loads(data)
    return JsonSummary(rows, _decoded(shape))


def _encoded(shape: Shape) -> list[Any]:
    return [
        [[kind.__name__, place] for kind, place in shape.seen.items()],
        shape.least,
        shape.greatest,
        shape.beyond,
        [[name, _encoded(child)] for name, child in shape.fields.items()],
        shape.items and _encoded(shape.items),
    ]


def _decoded(shape: list[Any]) -> Shape:
    seen, least, greatest, beyond, fields, items = shape
    return Shape(
        {_KINDS[kind]: place for kind, place in seen},
        least,
        greatest,
        beyond,
        {name: _decoded(child) for name, child in fields},
        None if items is None else _decoded(items),
    )
