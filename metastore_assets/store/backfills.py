"""The progress of an unfinished backfill, so that the same backfill can continue.

    <root>/<table>/backfills/<digest of the request>.json

No version references these files. `expire` deletes abandoned ones, like other files that crashes leave.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from metastore_assets.errors import ObjectNotFoundError
from metastore_assets.store.json_fields import parse_json
from metastore_assets.store.manifest import Version
from metastore_assets.store.objects import ObjectStore

FOLDER = "backfills"


@dataclass
class BackfillRecord:
    """The partitions that a backfill has finished, stored under the name of its request."""

    objects: ObjectStore
    """The table's folder."""
    request: str
    attempt: str = field(default_factory=lambda: uuid.uuid4().hex)
    """Identifies the backfill from its start to its end or restart. Dagster runs that it launched have it as a tag."""
    since: int = 0
    """The version that the backfill started from."""
    done: dict[str, int] = field(default_factory=dict)
    """By partition key, the version that it was done for."""

    @classmethod
    def of(cls, objects: ObjectStore, request: str, newest: Version | None) -> BackfillRecord:
        """Return the record of a request, or a new one if there is none, or if its version no longer exists."""
        fresh = cls(objects, request, since=newest.number if newest else 0)
        try:
            fields = parse_json(objects.read(fresh.path))
            attempt, since = str(fields["attempt"]), int(fields["since"])
            done = {str(key): int(number) for key, number in fields["done"].items()}
        except (ObjectNotFoundError, ValueError, KeyError, TypeError, AttributeError):
            return fresh
        return cls(objects, request, attempt, since, done) if since <= fresh.since else fresh

    @property
    def path(self) -> str:
        """Path below the table's folder."""
        return f"{FOLDER}/{self.request}.json"

    def still_done(self, newest: Version | None) -> frozenset[str]:
        """Return the partitions that the newest version still has in the finished state, or a newer one."""
        made: Mapping[str, int] = {entry.key: entry.version for entry in newest.partitions} if newest else {}
        return frozenset(key for key, number in self.done.items() if self.since < number <= made.get(key, 0))

    def add(self, keys: Iterable[str], version: int) -> None:
        """Record that partitions are finished as of a version."""
        self.done.update(dict.fromkeys(keys, version))
        self.save()

    def save(self) -> None:
        """Store the record: a backfill that is interrupted from now on is continued."""
        fields = {"attempt": self.attempt, "since": self.since, "done": self.done}
        self.objects.write(self.path, json.dumps(fields).encode())

    def remove(self) -> None:
        """Delete the record: the backfill has ended."""
        self.done.clear()
        self.objects.delete([self.path])
