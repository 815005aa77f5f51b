"""What an unfinished backfill has done, so that the same one goes on with the rest.

    <root>/<table>/backfills/<digest of the request>.json

No version names it: one that nobody goes on with is removed by `expire`, as other files are that crashes leave.
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
    """The partitions that a backfill has done, under the name of its request."""

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
        """The record of a request; a new one where there is none, or where it is none of the versions there are."""
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
        """Where it is, below the table's folder."""
        return f"{FOLDER}/{self.request}.json"

    def still_done(self, newest: Version | None) -> frozenset[str]:
        """The partitions that the newest version still has as they were done, or newer."""
        made: Mapping[str, int] = {entry.key: entry.version for entry in newest.partitions} if newest else {}
        return frozenset(key for key, number in self.done.items() if self.since < number <= made.get(key, 0))

    def add(self, keys: Iterable[str], version: int) -> None:
        """Keep that these were done for a version."""
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
