"""The stored progress of an unfinished backfill.

A backfill (`metastore backfill`) computes the statistics of selected partitions. It may publish a version after every
few of them. After an interruption, a later backfill with the same request, such as the same partitions, continues.

    <root>/<table>/backfills/<digest of the request>.json

`expire` deletes the files of abandoned backfills.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field

from metastore_assets.errors import ObjectNotFoundError
from metastore_assets.store.entries import find_partitions
from metastore_assets.store.json_fields import parse_json
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.version import Version

FOLDER = "backfills"


@dataclass
class BackfillRecord:
    """The partitions that a backfill has finished, stored in one file per request."""

    objects: ObjectStore
    """The table's folder."""
    request: str
    """Digest of the request."""
    attempt: str = field(default_factory=lambda: uuid.uuid4().hex)
    """Id of the backfill until it ends or starts over. The Dagster runs that it launches have this id as a tag."""
    since: int = 0
    """The newest version when the backfill started; 0 if there was none."""
    done: dict[str, int] = field(default_factory=dict)
    """The finished partitions: {partition key: version in which the partition was finished}."""

    @classmethod
    def of(cls, objects: ObjectStore, request: str, newest: Version | None) -> BackfillRecord:
        """Return the stored record of a request, or a new record.

        A stored record is ignored if it is damaged, or if its backfill started at a later version than `newest`. In the
        second case, the table's versions have been deleted since.

        Args:
            objects: The table's folder.
            request: Digest of the request.
            newest: The newest version of the table; None if there is none.
        """
        new_record = cls(objects, request, since=newest.number if newest else 0)
        try:
            fields = parse_json(objects.read(new_record.path))
            attempt, since = str(fields["attempt"]), int(fields["since"])
            done = {str(key): int(number) for key, number in fields["done"].items()}
        except (ObjectNotFoundError, ValueError, KeyError, TypeError, AttributeError, OverflowError):
            return new_record
        return cls(objects, request, attempt, since, done) if since <= new_record.since else new_record

    @property
    def path(self) -> str:
        """Path below the table's folder."""
        return f"{FOLDER}/{self.request}.json"

    def finished_keys(self, newest: Version | None) -> frozenset[str]:
        """Return the keys of the partitions that the backfill need not process again.

        The record has each finished partition with the version that finished it. Two conditions must hold: this version
        is later than the newest version when the backfill started, and the statistics of the partition in `newest` were
        computed by this version or a later one. If `newest` is None, the result is empty.
        """
        entries = find_partitions(newest, self.done) if newest else ()
        return frozenset(entry.key for entry in entries if self.since < self.done[entry.key] <= entry.version)

    def add(self, keys: Iterable[str], version: int) -> None:
        """Record that these partitions were finished in the version with the number `version`.

        The record is stored.
        """
        self.done.update(dict.fromkeys(keys, version))
        self.save()

    def save(self) -> None:
        """Store the record."""
        fields = {"attempt": self.attempt, "since": self.since, "done": self.done}
        self.objects.write(self.path, json.dumps(fields).encode())

    def remove(self) -> None:
        """Delete the record, because the backfill has ended."""
        self.done.clear()
        self.objects.delete([self.path])
