"""The fragments of a snapshot, sorted by key in bounded memory and compared with published entries.

A fragment is a data file with its deletes. A version has an entry for each of its fragments. The key of a fragment, and
of its entry, consists of the partition key and the path. The id of a fragment changes if its content changes.
"""

from __future__ import annotations

import io
import pickle
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from metastore_assets.batching import batched
from metastore_assets.formats.base import Fragment, SnapshotStream, SortedFragments, UnstreamableError, fragment_order
from metastore_assets.pipeline.table_changes import SnapshotChanges
from metastore_assets.storage.location import Location
from metastore_assets.storage.location_policy import LocationPolicy
from metastore_assets.store.entries import FRAGMENTS, StoredEntries
from metastore_assets.store.sorted_runs import SortedRuns
from metastore_assets.store.version import FragmentEntry, fragment_key, split_fragment_key

_COLUMNS = pa.schema([("key", pa.string()), ("id", pa.string()), ("fragment", pa.binary())])
"""Key of the fragment's entry, id of the fragment, and the fragment as `_FragmentCodec` encodes it."""
_AT_ONCE = 1000
"""Number of fragments that are encoded at a time."""


_HOST = re.compile(r"[^/]+://[^/]*|")
"""Scheme and host of a URI, which may contain a password; empty for a local path."""


class _FragmentCodec:
    """An encoder of fragments to bytes, and a decoder.

    Storage options and hosts, which may contain credentials, stay in memory. The bytes contain numbers in their place.
    """

    def __init__(self) -> None:
        self._values: list[Location | LocationPolicy] = []
        """Location policies, and locations without the path of their URI. Their positions are the numbers in the
        bytes."""
        self._numbers: dict[Location | LocationPolicy, int] = {}

    def encode(self, fragment: Fragment) -> bytes:
        buffer = io.BytesIO()
        _Pickler(buffer, self).dump(fragment)
        return buffer.getvalue()

    def decode(self, data: bytes) -> Fragment:
        fragment = _Unpickler(io.BytesIO(data), self).load()
        assert isinstance(fragment, Fragment)
        return fragment

    def reference(self, value: Location | LocationPolicy) -> tuple[int, str]:
        """Return (number, path), from which `resolve` restores the value.

        A location policy has the rules that decide which locations may be read. `path` is the path in the URI of a
        location, or "" for a location policy. The value without the path is kept in a list in memory, and `number` is
        its index in this list. Values that differ only in the path have the same number.
        """
        path = ""
        if isinstance(value, Location):
            host = _HOST.match(value.uri)
            assert host is not None
            path = value.uri[host.end() :]
            value = replace(value, uri=host[0])
        number = self._numbers.setdefault(value, len(self._values))
        if number == len(self._values):
            self._values.append(value)
        return number, path

    def resolve(self, number: int, path: str) -> Location | LocationPolicy:
        """Return the location or location policy that was passed to `reference`.

        `number` and `path` are what `reference` returned.
        """
        value = self._values[number]
        return replace(value, uri=value.uri + path) if isinstance(value, Location) else value


class _Pickler(pickle.Pickler):
    def __init__(self, output: io.BytesIO, codec: _FragmentCodec) -> None:
        super().__init__(output)
        self._codec = codec

    def persistent_id(self, value: Any) -> tuple[int, str] | None:
        return self._codec.reference(value) if isinstance(value, Location | LocationPolicy) else None


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: io.BytesIO, codec: _FragmentCodec) -> None:
        super().__init__(data)
        self._codec = codec

    def persistent_load(self, reference: Any) -> Location | LocationPolicy:
        return self._codec.resolve(*reference)


class FragmentRuns:
    """The fragments of a snapshot, partly in a temporary file, which is deleted with this object."""

    def __init__(self, fragments: Iterable[Fragment]) -> None:
        """Read all fragments.

        Fragments that do not fit into memory are written to a temporary file.

        Raises:
            UnstreamableError: The format cannot stream its fragments.
        """
        self._runs = SortedRuns(_COLUMNS)
        self._codec = _FragmentCodec()
        self.count = 0
        """Number of fragments."""
        for chunk in batched(fragments, _AT_ONCE):
            keys = [fragment_key(fragment.partition_key, fragment.path) for fragment in chunk]
            ids, data = [fragment.id for fragment in chunk], list(map(self._codec.encode, chunk))
            self._runs.add(pa.table([keys, ids, data], schema=_COLUMNS))
            self.count += len(chunk)

    def rows(self) -> Iterator[tuple[str, str, bytes]]:
        """Yield (key, id, encoded fragment) of each fragment, by ascending key.

        `decode` decodes a fragment.

        Raises:
            UnstreamableError: Two fragments have the same key. Raised after the last row.
        """
        count = 0
        for table in self._runs.stream():
            count += len(table)
            keys, ids, encoded_fragments = (column.to_pylist() for column in table.columns)
            yield from zip(keys, ids, encoded_fragments, strict=True)
        if count < self.count:
            raise UnstreamableError("two fragments have the same key, made of their partition key and path")

    def decode(self, data: bytes) -> Fragment:
        """Decode a fragment that `rows` yielded."""
        return self._codec.decode(data)


def sort_fragments(stream: SnapshotStream) -> FragmentRuns | SortedFragments:
    """Return the fragments of a snapshot, sorted by key.

    Raises:
        UnstreamableError: The format must read all fragments together (see `TableFormat.snapshot`).
    """
    return stream.sorted_fragments or FragmentRuns(stream.fragments)


def compare_stream(
    stream: SnapshotStream,
    published_entries: StoredEntries[FragmentEntry],
    reason: str,
    find_requested_keys: Callable[[SnapshotChanges], Collection[str]] | None = None,
) -> SnapshotChanges:
    """Compare all fragments of a snapshot with the published ones.

    Only fragments of the result are in memory.

    Args:
        stream: The snapshot.
        published_entries: The entries of the published fragments.
        reason: Why all fragments are compared.
        find_requested_keys: Returns keys of partitions, given the changes. The result also has the unchanged fragments
            of these partitions. If None, the result has no unchanged fragments.

    Raises:
        UnstreamableError: The format must read all fragments together, or two fragments have the same key.
        MetastoreError: The table cannot be read.
    """
    fragments = sort_fragments(stream)
    differences = list(_differences(fragments, published_entries))
    added_fragments = [fragment for fragment, _ in differences if fragment is not None]
    removed_keys = [key for _, key in differences if key is not None]
    added_fragments.sort(key=fragment_order)
    changes = SnapshotChanges(
        stream.metadata,
        tuple(added_fragments),
        published_entries.find_all(removed_keys) if removed_keys else {},
        comparison=reason,
    )
    if find_requested_keys is None:
        return changes
    keys, added_ids = set(find_requested_keys(changes)), {fragment.id for fragment in added_fragments}
    unchanged_fragments = (
        fragments.decode(row)
        for key, id_, row in fragments.rows()
        if split_fragment_key(key)[0] in keys and id_ not in added_ids
    )
    return replace(changes, unchanged_fragments=tuple(unchanged_fragments))


@dataclass(frozen=True)
class Lot:
    """Fragments to add and to remove in one batch.

    They are some of the differences between a snapshot and stored entries.
    """

    added_fragments: tuple[Fragment, ...]
    """Fragments whose id is not stored under their key, sorted by (partition_key, id)."""
    removed_keys: tuple[str, ...]
    """Keys of stored entries whose id the snapshot does not have under this key."""


def stream_lots(
    fragments: FragmentRuns | SortedFragments, stored_entries: StoredEntries[FragmentEntry] | None, size: int
) -> Iterator[Lot]:
    """Yield lots with the differences between a snapshot and stored entries, by ascending key.

    Args:
        fragments: The fragments of the snapshot.
        stored_entries: The stored entries; None if there are none.
        size: Maximum number of keys in a lot.
    """
    for chunk in batched(_differences(fragments, stored_entries), size):
        added_fragments = [fragment for fragment, _ in chunk if fragment is not None]
        added_fragments.sort(key=fragment_order)
        yield Lot(tuple(added_fragments), tuple(key for _, key in chunk if key is not None))


def _differences(
    fragments: FragmentRuns | SortedFragments, stored_entries: StoredEntries[FragmentEntry] | None
) -> Iterator[tuple[Fragment | None, str | None]]:
    """Yield (fragment to add, key of the entry to remove) for each difference, by ascending key.

    - Only the snapshot has the key: (fragment, None).
    - Only a stored entry has the key: (None, key).
    - Both have the key, with different fragment ids: (fragment, key).
    """
    current, published_ids = fragments.rows(), stream_ids(stored_entries) if stored_entries is not None else iter(())
    new, old = next(current, None), next(published_ids, None)
    while new is not None or old is not None:
        if old is None or (new is not None and new[0] < old[0]):
            assert new is not None
            yield fragments.decode(new[2]), None
            new = next(current, None)
        elif new is None or old[0] < new[0]:
            yield None, old[0]
            old = next(published_ids, None)
        else:
            if new[1] != old[1]:
                yield fragments.decode(new[2]), old[0]
            new, old = next(current, None), next(published_ids, None)


def stream_ids(published_entries: StoredEntries[FragmentEntry]) -> Iterator[tuple[str, str]]:
    """Yield (key, id) of each published fragment, by ascending key."""
    for table in published_entries.stream_rows([FRAGMENTS.schema[0].name, "id"]):
        yield from zip(table["key"].to_pylist(), table["id"].to_pylist(), strict=True)
