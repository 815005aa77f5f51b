"""The first version of a table with very many fragments, which is computed in lots.

A fragment is a data file with its deletes. A lot is a limited number of fragments. Each lot is profiled, merged with
the lots before it, and stored as a staged version, which no reader sees. So memory depends on the size of a lot, and an
interruption loses at most one lot.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from metastore_assets.batching import batched
from metastore_assets.errors import (
    CorruptionError,
    ObjectNotFoundError,
    StoreError,
    VersionConflictError,
    VersionNotFoundError,
)
from metastore_assets.formats.base import (
    NoDiffError,
    SnapshotReference,
    SnapshotStream,
    TableFormat,
    UnstreamableError,
)
from metastore_assets.history import append_when_due
from metastore_assets.pipeline import planning
from metastore_assets.pipeline.context import RefreshContext, export_version
from metastore_assets.pipeline.execution import GRACE, execute
from metastore_assets.pipeline.fragment_runs import Lot, sort_fragments, stream_lots
from metastore_assets.pipeline.outcome import Progress, RefreshResult
from metastore_assets.pipeline.planning import AttemptProfiles, plan_lot
from metastore_assets.pipeline.stages import DivideIntoLots, PlanStage, Publish, WriteExports, join_lots
from metastore_assets.pipeline.table_location import table_location
from metastore_assets.pipeline.version_policies import matches_policies
from metastore_assets.store.entries import StoredEntries
from metastore_assets.store.staged_versions import StagedVersions
from metastore_assets.store.version import FragmentEntry, RefreshStats, Version
from metastore_assets.store.version_document import OlderFormatError

_STAGED_GRACE = timedelta(hours=1)
"""Time for which the files of a replaced staged version stay, because another refresh may continue from it."""
_PENDING_AT_ONCE = 10_000
_PUBLISHED_BY_ANOTHER = "another process has published the first version"


class FirstVersion:
    """A builder of the first version of a table. `publish` computes the version in lots, and publishes it."""

    def __init__(self, context: RefreshContext, table_format: TableFormat, stream: SnapshotStream) -> None:
        """Prepare to build the first version. Nothing is read.

        Args:
            context: The table, its store and engine.
            table_format: Reads the table's metadata.
            stream: The snapshot that the version describes.
        """
        self._context = context
        self._format = table_format
        self._stream = stream
        self._staged = StagedVersions(context.versions)
        self._profiled = self._bytes = 0
        self._executed: list[Sequence[PlanStage]] = []
        """The stages of each lot that was computed."""

    def publish(self, attempt: AttemptProfiles, started: float, cached: Mapping[bytes, bytes]) -> RefreshResult | None:
        """Compute the missing lots and publish the version. Return the result without its duration.

        `seconds` of the result is 0, because the caller sets it. If the version cannot be computed in lots, None is
        returned. Finished profiles are then saved, and `attempt.makes_lots` is set to false.

        Args:
            attempt: The profiles of this refresh.
            started: Time of the monotonic clock when the refresh started.
            cached: Metadata of the table's files, stored for planning the next version.

        Raises:
            UnreadableFragmentsError: Fragments cannot be read.
            VersionConflictError: Another process staged or published a version first.
        """
        try:
            last = self._make_lots()
        except (NoDiffError, UnstreamableError):
            self._give_up(attempt)
            return None
        except (CorruptionError, ObjectNotFoundError, VersionNotFoundError) as error:
            if self._context.versions.newest():
                # The process that published it has removed the staged versions.
                raise VersionConflictError(_PUBLISHED_BY_ANOTHER) from error
            raise
        context, versions = self._context, self._context.versions
        context.progress(Progress(context.table.name, "publish"))
        version = replace(
            last,
            number=1,
            published_at=datetime.now(UTC),
            metadata_cache=cached,
            refresh_stats=RefreshStats(self._profiled, self._bytes, time.monotonic() - started),
            table_location=table_location(context.table, last.format),
        )
        versions.publish(version, last)
        with suppress(StoreError):  # `expire` or the next refresh removes what stays.
            versions.clear_pending()
            self._staged.remove()
            append_when_due(versions, None, version, context.keep_versions, GRACE)
        exports = export_version(context, version)
        return RefreshResult(
            table=version.table,
            version=1,
            snapshot=version.snapshot,
            published=True,
            fragments_added=len(version.fragments),
            fragments_removed=0,
            fragments_unchanged=0,
            fragments_profiled=self._profiled,
            partitions_changed=tuple(_partition_keys(version)),
            partitions_removed=(),
            partitions_total=len(version.partitions),
            seconds=0.0,
            dropped_columns=version.dropped_columns,
            refresh_stats=version.refresh_stats,
            value_count_changes=None,
            stages=(
                DivideIntoLots(len(version.fragments), len(self._executed)),
                *join_lots(self._executed),
                Publish(1, 0),
                *([WriteExports(tuple(export.target for export in exports))] if exports else ()),
            ),
            exports=exports,
        )

    def _make_lots(self) -> Version:
        """Compute the missing lots one after the other, and return the last staged version.

        Raises:
            NoDiffError: The version cannot be made in lots, for example because a column is stored as fingerprints. Or
                columns or policies changed since the last lot was staged.
            UnstreamableError: The format must read all fragments together, or two fragments have the same key.
        """
        with sort_fragments(self._stream) as fragments:
            base = self._newest_staged()
            if base is not None and not matches_policies(self._context.table, base):
                # `plan_lot` compares the policies, but it is not called if no lot is missing.
                raise NoDiffError("columns or policies changed")
            stored = None if base is None else _fragments(base)
            size = planning.FRAGMENTS_PER_LOT
            total = -(-(fragments.count - (len(stored) if stored is not None else 0)) // size)
            for number, lot in enumerate(stream_lots(fragments, stored, size), 1):
                base = self._stage(base, lot, f"lot {number} of {max(total, number)}")
        if base is None or SnapshotReference(base.snapshot, base.committed_at) != self._stream.metadata.reference:
            base = self._stage(base, Lot((), ()), "")
        return base

    def _stage(self, base: Version | None, lot: Lot, part: str) -> Version:
        """Profile the fragments of a lot, and publish a staged version with the changes of the lot. Return it.

        Args:
            base: The staged version to change; None if there is none yet.
            lot: The lot. If it is empty, the new version has the same fragments, and names the current snapshot.
            part: The lot in reports of progress, such as `lot 2 of 7`.

        Raises:
            VersionConflictError: Another process has published the first version, or staged a version.
        """
        context, staged, attempt = self._context, self._staged, AttemptProfiles()
        context = replace(
            context, versions=staged, progress=lambda event: self._context.progress(replace(event, part=part))
        )
        plan = plan_lot(context, self._format, attempt, self._stream.metadata, lot)
        stages = tuple(stage for stage in plan.stages if not isinstance(stage, Publish | WriteExports))
        execution = execute(context, replace(plan, stages=stages), attempt, time.monotonic(), {})
        assert execution.version is not None
        self._executed.append(stages)
        staged.publish(execution.version, base, may_merge=execution.builder.may_merge_entries)
        self._profiled += len(attempt.new_entries)
        self._bytes += sum(entry.bytes for entry in attempt.new_entries)
        newest = staged.latest()
        if newest is None:
            raise VersionConflictError(_PUBLISHED_BY_ANOTHER)
        with suppress(StoreError):  # `expire` or a later lot removes what stays.
            staged.clear_pending()
            staged.drop_outdated(newest.number, 1, _STAGED_GRACE)
        return newest

    def _newest_staged(self) -> Version | None:
        """Return the newest staged version; None if there is none.

        If it is damaged, or in the format of an earlier release, remove all staged versions and return None.
        """
        try:
            return self._staged.latest()
        except (CorruptionError, OlderFormatError):
            self._staged.remove_documents()
            return None

    def _give_up(self, attempt: AttemptProfiles) -> None:
        """Stop the computation in lots: set `attempt.makes_lots` to false, and remove all staged versions.

        Their fragment profiles are saved before, so that a plan without lots reuses them.
        """
        attempt.makes_lots = False
        newest = self._newest_staged()
        if newest is None:
            return
        attempt.specs.update(newest.specs)
        entries = _fragments(newest).stream()
        for chunk in batched(entries, _PENDING_AT_ONCE):
            self._context.versions.save_pending(chunk)
        # Pending profiles may have files that only earlier staged versions reference.
        self._staged.remove_documents()


def _fragments(version: Version) -> StoredEntries[FragmentEntry]:
    assert isinstance(version.fragments, StoredEntries), "the version was read from a store"
    return version.fragments


def _partition_keys(version: Version) -> Iterator[str]:
    assert isinstance(version.partitions, StoredEntries), "the version was read from a store"
    for rows in version.partitions.stream_rows(["key"]):
        yield from rows["key"].to_pylist()
