"""A search for Arrow scalars in objects that are sent to another process.

A pickled scalar loses precision.
"""

from __future__ import annotations

import dataclasses
import functools
import types
from collections.abc import Iterator, Mapping, Set
from typing import Any

import pyarrow as pa

_LEAVES = (str, bytes, int, float, bool, type(None), type, types.ModuleType, pa.Array, pa.Schema, pa.DataType, pa.Field)


def scalars_in(value: Any, path: str = "", visited_ids: set[int] | None = None) -> Iterator[str]:
    """Yield the path and type of each Arrow scalar in a value.

    Data classes, containers, partial functions, closures and attributes of other objects are searched at any depth.

    Args:
        value: The searched value.
        path: The path of the value, with which the yielded paths begin.
        visited_ids: The ids of the objects that were searched already; None for none.
    """
    visited_ids = set() if visited_ids is None else visited_ids
    if isinstance(value, _LEAVES) or id(value) in visited_ids:
        return
    visited_ids.add(id(value))
    if isinstance(value, pa.Scalar):
        yield f"{path}: {value.type}"
        return
    for name, part in _parts(value):
        yield from scalars_in(part, f"{path}.{name}", visited_ids)


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield (name, value) for each value directly inside a value.

    These are items, attributes, or the closure and defaults of a function.
    """
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield f"{key!r}", (key, part)
    elif isinstance(value, list | tuple | Set):
        yield from ((str(index), part) for index, part in enumerate(value))
    elif isinstance(value, functools.partial):
        yield from (("func", value.func), ("args", value.args), ("keywords", value.keywords))
    elif isinstance(value, types.FunctionType):
        yield from (("closure", cell.cell_contents) for cell in value.__closure__ or ())
        yield "defaults", value.__defaults__
    elif dataclasses.is_dataclass(value):
        yield from ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))
    else:
        yield from vars(value).items() if hasattr(value, "__dict__") else ()
