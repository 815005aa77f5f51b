"""What planning learnt of a table's files, kept with a version: bytes by key, in one file of two columns.

A version that learnt nothing names the file of the version before. It only saves work: where it is gone or damaged,
nothing is known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from metastore_assets.errors import CorruptionError, ObjectNotFoundError
from metastore_assets.store.objects import ObjectStore

_MEMORY = pa.schema([("key", pa.binary()), ("value", pa.binary())])


class StoredMemory(Mapping[bytes, bytes]):
    """What the file at a path keeps; read on first use."""

    def __init__(self, objects: ObjectStore, path: str) -> None:
        self.path = path
        self._objects = objects
        self._values: Mapping[bytes, bytes] | None = None

    def _all(self) -> Mapping[bytes, bytes]:
        if self._values is None:
            self._values = _read(self._objects, self.path)
        return self._values

    def __getitem__(self, key: bytes) -> bytes:
        return self._all()[key]

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def __reduce__(self) -> tuple[object, ...]:
        return StoredMemory, (self._objects, self.path)


def keep_memory(objects: ObjectStore, path: str, memory: Mapping[bytes, bytes]) -> str | None:
    """The path of the file that holds it, written at `path` where there is none yet; None when it is empty."""
    if isinstance(memory, StoredMemory):
        return memory.path
    if not memory:
        return None
    items = sorted(memory.items())
    columns = [pa.array([item[place] for item in items], pa.binary()) for place in range(2)]
    objects.write_parquet(path, pa.Table.from_arrays(columns, schema=_MEMORY))
    return path


def _read(objects: ObjectStore, path: str) -> dict[bytes, bytes]:
    try:
        table = objects.read_parquet(path).select(_MEMORY.names).cast(_MEMORY)
    except (ObjectNotFoundError, CorruptionError, KeyError, pa.ArrowException):
        return {}
    keys, values = (table.column(name).to_pylist() for name in _MEMORY.names)
    return dict(zip(keys, values, strict=True))
