"""The versions of one table: published by one put-if-absent, read whole or not at all.

    <root>/<table>/versions/<n>.json                         names everything the version consists of
    <root>/<table>/versions/<n>-<unique>.fragments.parquet   and .partitions, .nodes, .layouts: named by the JSON
    <root>/<table>/versions/<n>-<unique>.memory.parquet      what planning learnt: named by this version and later ones
    <root>/<table>/pending/<unique>.parquet                  profiles finished by attempts that did not publish

The JSON is the last thing written. A crash before it leaves files that no version names, which `expire` removes.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from metastore_assets.errors import (
    CorruptionError,
    ObjectExistsError,
    ObjectNotFoundError,
    VersionConflictError,
    VersionNotFoundError,
)
from metastore_assets.store.document import decode_version, encode_version, version_number, version_path
from metastore_assets.store.entries import entries_table, layouts_table
from metastore_assets.store.expire import Expired, expire
from metastore_assets.store.manifest import FragmentEntry, NodeEntry, PartitionEntry, Version
from metastore_assets.store.memory import keep_memory
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.pending import clear_pending, list_pending, read_pending, save_pending


class VersionStore:
    """The versions and pending profiles of one table under a root."""

    def __init__(self, store: ObjectStore, table: str) -> None:
        self.table = table
        self.objects = store.child(table)
        """The table's folder: what `ProfileFiles` paths are relative to."""
        self._pending_known: set[str] = set()

    def numbers(self) -> list[int]:
        """The numbers of the versions there are, ascending."""
        numbers = (version_number(info.path) for info in self.objects.list("versions"))
        return sorted(number for number in numbers if number is not None)

    def latest(self) -> Version | None:
        """The newest version, or None before the first."""
        numbers = self.numbers()
        return self.read(numbers[-1]) if numbers else None

    def read(self, number: int) -> Version:
        """One version. Raises VersionNotFoundError naming those there are."""
        path = version_path(number)
        try:
            data = self.objects.read(path)
        except ObjectNotFoundError:
            numbers = self.numbers()
            there = f"{'there are versions' if len(numbers) > 1 else 'there is version'} {_ranges(numbers)}"
            there_are = there if numbers else "none is published yet; run `refresh`"
            raise VersionNotFoundError(f"table {self.table!r} has no version {number}; {there_are}") from None
        return decode_version(data, self.objects, path)

    def memory(self) -> Mapping[bytes, bytes]:
        """What planning learnt up to the newest version; nothing before the first, or when that is damaged."""
        try:
            latest = self.latest()
        except CorruptionError:
            return {}
        return latest.memory if latest is not None else {}

    def publish(self, version: Version) -> None:
        """Make the version the newest. Its number must follow the newest there is.

        Raises VersionConflictError when another publisher was first: plan again from `latest()`. After any other
        StoreError the version may or may not have been published; `latest()` tells.
        """
        newest = max(self.numbers(), default=0)
        if version.number != newest + 1:
            raise self._conflict(version.number, newest)
        stem = f"versions/{version.number}-{uuid.uuid4().hex}"
        entries = self._write_entries(stem, version)
        memory = keep_memory(self.objects, f"{stem}.memory.parquet", version.memory)
        data = encode_version(version, entries, memory, stem.rpartition("-")[2])
        path = version_path(version.number)
        try:
            self.objects.write(path, data, create=True)
        except ObjectExistsError:
            # A put whose answer was lost on the way is repeated by the client, and then finds its own object.
            if self.objects.read(path) != data:
                written = [*(entry["path"] for entry in entries.values()), f"{stem}.memory.parquet"]
                self.objects.delete(written)
                raise self._conflict(version.number, version.number) from None

    def save_pending(self, entries: Sequence[FragmentEntry]) -> None:
        """Keep profiles that were finished by an attempt that will not publish."""
        if entries:
            self._pending_known.add(save_pending(self.objects, entries))

    def pending(self) -> list[FragmentEntry]:
        """Profiles kept by `save_pending` and not cleared since; of several with one id and layout, the newest."""
        found: dict[tuple[str, str], FragmentEntry] = {}
        for path in list_pending(self.objects).current():
            for entry in read_pending(self.objects, path):
                found[entry.id, entry.layout] = entry
            self._pending_known.add(path)
        return list(found.values())

    def clear_pending(self) -> None:
        """Clear what this object saved and what `pending` read: those profiles are in a version now, or of no use.

        The files they name stay safe from `expire` for its grace, because another attempt may have read them too.
        """
        clear_pending(self.objects, sorted(self._pending_known))
        self._pending_known.clear()

    def expire(self, keep: int, grace: timedelta) -> Expired:
        """Remove all but the newest `keep` versions, and files that nothing kept names and older than `grace`.

        The grace must be longer than the longest refresh; versions replaced more recently than that stay too.
        """
        return expire(self.objects, keep, grace)

    def _write_entries(self, stem: str, version: Version) -> dict[str, dict[str, Any]]:
        tables = {
            "fragments": entries_table(FragmentEntry, version.fragments),
            "partitions": entries_table(PartitionEntry, version.partitions),
            "nodes": entries_table(NodeEntry, version.nodes),
            "layouts": layouts_table(version.layouts),
        }
        for name, table in tables.items():
            self.objects.write_parquet(f"{stem}.{name}.parquet", table)
        return {name: {"path": f"{stem}.{name}.parquet", "rows": t.num_rows} for name, t in tables.items()}

    def _conflict(self, number: int, newest: int) -> VersionConflictError:
        return VersionConflictError(
            f"version {number} of table {self.table!r} cannot be published: version {newest} is there; plan again"
        )


def _ranges(numbers: Sequence[int]) -> str:
    """`[1, 2, 3, 7]` as `1-3, 7`."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)
