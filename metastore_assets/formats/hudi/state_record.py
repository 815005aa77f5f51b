"""A record of a Hudi table's state, from which later changes are computed.

A state is the completed writes whose rows a reader sees at one point in time. An instant is a completed write or clean.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from metastore_assets.formats.hudi.commits import Commit
from metastore_assets.formats.hudi.timeline import HudiState, Instant
from metastore_assets.storage.location import StoredFile


@dataclass(frozen=True)
class StateRecord:
    """The stored facts about a state of a table: its instants, schema, partition columns and settings.

    Later changes cannot be found by the id of the state alone. In the first timeline layout, a completed compaction
    does not change the id.
    """

    instants: tuple[Instant, ...]
    """The completed writes of the state on the active timeline, ordered by start time."""
    until: str
    """Start time of the last instant that may belong to the state."""
    start: str
    """The first instant of the active timeline; see `Timeline.start`."""
    unfinished: frozenset[str]
    """Start times of incomplete writes, compactions and clusterings, whether they belong to the state or not."""
    cleans: frozenset[str]
    """Start times of completed cleans."""
    settings: str
    """Digest of the table's properties and of the options with which it was opened."""
    schema: str | None
    """The schema that a commit records, as Avro JSON; None if no commit records one."""
    schema_instant: str
    """Start time of the commit with the schema; empty without one."""
    is_rewrite_schema: bool
    """Whether the commit with the schema only rewrote rows."""
    columns: str
    """Digest of the snapshot's schema."""
    partition_columns: tuple[str, ...]
    texts: tuple[str, ...]
    """Partition columns that are text only because some partition's value cannot be parsed as the column's type."""

    @property
    def state(self) -> HudiState:
        """The state, without `id` and `committed_at`."""
        return HudiState(
            id="",
            committed_at=None,
            instants=self.instants,
            requested=frozenset(instant.requested for instant in self.instants),
            until=self.until,
            start=self.start,
        )

    @property
    def schema_commits(self) -> tuple[Commit, ...]:
        """The commit that defines the schema, in a tuple; empty if no commit records a schema.

        The commit has its requested time and the schema, but none of the files that it wrote or replaced.
        """
        if self.schema is None:
            return ()
        instant = Instant(self.schema_instant, None, "commit", StoredFile("", 0, ""))
        return (Commit(instant, (), (), self.schema, self.is_rewrite_schema, evolved_by_id=False),)

    def to_json(self) -> dict[str, Any]:
        """Return the record as JSON values."""
        return vars(self) | {
            "instants": [
                [instant.requested, instant.completed, instant.action, *instant.stored] for instant in self.instants
            ],
            "unfinished": sorted(self.unfinished),
            "cleans": sorted(self.cleans),
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> StateRecord:
        """Return the record that `to_json` encoded.

        Raises KeyError, TypeError or ValueError for other values.
        """
        instants = [
            Instant(requested_time, completion_time, action, StoredFile(*file_fields))
            for requested_time, completion_time, action, *file_fields in fields["instants"]
        ]
        return cls(
            **{
                **fields,
                "instants": tuple(instants),
                "unfinished": frozenset(fields["unfinished"]),
                "cleans": frozenset(fields["cleans"]),
                "partition_columns": tuple(fields["partition_columns"]),
                "texts": tuple(fields["texts"]),
            }
        )
