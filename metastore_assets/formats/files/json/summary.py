"""What all rows of a file of JSON lines have in common; as JSON, to be kept, and back."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from metastore_assets.formats.files.json.shapes import Shape

_KINDS: dict[str, type] = {kind.__name__: kind for kind in (bool, int, float, str, dict, list)}


@dataclass(frozen=True)
class JsonSummary:
    """What all rows of a file have in common."""

    row_count: int
    shape: Shape


def encode_summary(summary: JsonSummary) -> bytes:
    """As `decode_summary` understands it."""
    return json.dumps([summary.row_count, _encoded(summary.shape)], separators=(",", ":")).encode()


def decode_summary(data: bytes) -> JsonSummary:
    """What `encode_summary` made. Raises ValueError, LookupError or TypeError for anything else."""
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
