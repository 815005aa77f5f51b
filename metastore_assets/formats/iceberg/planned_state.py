"""A record of the state of an Iceberg table for which fragments were last planned.

A fragment is a data file with the delete files that apply to it. A later state of the table is compared with the
record. The changes between the two states are planned only if nothing except files differs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from metastore_assets.config import TableConfig
from metastore_assets.digests import digest_bytes, digest_json
from metastore_assets.formats.base import NoDiffError, SnapshotReference
from metastore_assets.formats.iceberg.fragment_planner import IcebergFragmentPlanner
from metastore_assets.formats.iceberg.manifests import Manifest
from metastore_assets.formats.iceberg.schema import arrow_schema
from metastore_assets.formats.readers.columns import KINDS

_REASONS = {
    "schema": "the schema changed",
    "specs": "the partition specs changed",
    "selection": "the selection of partitions changed",
    "mapping": "the name mapping changed",
    "location": "the files of the table are read from another location",
}


@dataclass(frozen=True)
class ManifestRecord:
    """A small record with which a snapshot's manifests are found among those of a later snapshot.

    With the record, the manifest list of the earlier snapshot need not be read again. The record is a digest, because
    the list of a table with ten million files names a thousand manifests.
    """

    digest: str
    """Digest of the identities of the manifests, in any order."""
    sequence_number: int
    """The greatest sequence number of the manifests; 0 without manifests."""

    @classmethod
    def of(cls, manifests: Sequence[Manifest]) -> ManifestRecord:
        """Return the record of the manifests of a snapshot."""
        # List comprehensions without method calls, because there may be thousands of manifests.
        identities = sorted([(manifest.path, manifest.sequence_number) for manifest in manifests])
        return cls(digest_json(identities), max([number for _, number in identities], default=0))

    def split(self, manifests: Sequence[Manifest]) -> tuple[list[Manifest], list[Manifest]] | None:
        """Split the manifests of a later snapshot into the recorded ones and the others.

        The result is None in two cases:

        - The later snapshot lacks a recorded manifest.
        - The table has format version 1, in which manifests have no sequence numbers, and the later snapshot also lists
          manifests that are not recorded.

        Args:
            manifests: The manifests of the later snapshot.
        """
        last_number = self.sequence_number
        earlier = [manifest for manifest in manifests if manifest.sequence_number <= last_number]
        if ManifestRecord.of(earlier) != self:
            return None
        return earlier, [manifest for manifest in manifests if manifest.sequence_number > last_number]


@dataclass(frozen=True)
class PlannedState:
    """The properties that determine the fragments of a state, besides its files."""

    reference: SnapshotReference
    uuid: str
    digests: Mapping[str, str]
    """Digests by the keys of `_REASONS`, such as `schema`."""
    crosses_partitions: bool
    """Whether a position delete file is of another partition than its data file."""
    repeats_files: bool
    """Whether the snapshot lists a data file several times."""
    manifests: ManifestRecord
    """The manifests of the snapshot, except those that the planner does not need."""

    @classmethod
    def of(cls, table: TableConfig, planner: IcebergFragmentPlanner) -> PlannedState:
        """Return the record of a planner's state.

        `crosses_partitions`, `repeats_files` and `manifests` are copied from the planner. They are False or empty until
        it has planned the fragments of the snapshot.
        """
        files, partitions, metadata = planner.files, planner.partitions, planner.metadata
        specs = [metadata.default_spec_id, *sorted(metadata.specs.items())]
        identities = {
            "schema": arrow_schema(table.uri, planner.state.schema).serialize().to_pybytes(),
            "specs": [specs, partitions.columns(), partitions.types(), partitions.constant_columns()],
            "selection": planner.selection,
            "mapping": [planner.fallback.identity(kind) for kind in KINDS],
            "location": [files.folder.uri, files.previous_roots, sorted(table.path_mapping.items())],
        }
        return cls(
            SnapshotReference(planner.state.id, planner.state.committed_at),
            metadata.uuid,
            {name: digest_bytes(repr(identity).encode()) for name, identity in identities.items()},
            planner.crosses_partitions,
            planner.repeats_files,
            ManifestRecord.of(planner.state_manifests),
        )

    @classmethod
    def decode(cls, data: bytes) -> PlannedState:
        """Parse an encoded record.

        Raises one of `corrupt_input.CORRUPTION_ERRORS` if it is invalid.
        """
        id_, committed_at, uuid, digests, crosses_partitions, repeats_files, digest, sequence_number = json.loads(data)
        return cls(
            SnapshotReference(id_, datetime.fromisoformat(committed_at)),
            uuid,
            dict(digests),
            crosses_partitions,
            repeats_files,
            ManifestRecord(str(digest), int(sequence_number)),
        )

    def encode(self) -> bytes:
        """Encode the record as JSON."""
        committed_at = self.reference.committed_at
        assert committed_at is not None
        return json.dumps(
            [
                self.reference.id,
                committed_at.isoformat(),
                self.uuid,
                dict(self.digests),
                self.crosses_partitions,
                self.repeats_files,
                self.manifests.digest,
                self.manifests.sequence_number,
            ]
        ).encode()

    def check_only_files_differ(self, current: PlannedState) -> None:
        """Raise NoDiffError if the files alone do not show which fragments differ in a later state.

        For example, the table was recreated, its schema changed, or this state has the flag `repeats_files`.
        """
        if self.uuid != current.uuid:
            raise NoDiffError("the table was recreated")
        if self.crosses_partitions:
            raise NoDiffError("delete files are of other partitions than their data files")
        if self.repeats_files:
            raise NoDiffError("the earlier snapshot lists a data file several times")
        for name, digest in current.digests.items():
            if self.digests.get(name) != digest:
                raise NoDiffError(_REASONS[name])
