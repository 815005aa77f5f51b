"""The first version of a table with very many fragments, which is computed in lots.

A fragment is a data file with its deletes, and its profile is its statistics. A lot is a limited number of fragments.
Each lot is profiled, merged with the lots before it, and stored as a staged version, which no reader sees. So memory
depends on the size of a lot, and an interruption loses at most one lot. A version is the published statistics of a
table at one snapshot.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

from metastore_assets.errors import (
    CorruptionError,
    StoreError,
    VersionConflictError,
)
from metastore_assets.formats.base import NoDiffError, SnapshotReference, UnstreamableError
from metastore_assets.pipeline import planning
from metastore_assets.pipeline.context import RefreshContext
from metastore_assets.pipeline.execution import ImpossibleLotsError, execute
from metastore_assets.pipeline.fragment_runs import Lot, stream_lots
from metastore_assets.pipeline.plan import Lots, Plan
from metastore_assets.pipeline.planning import AttemptProfiles, plan_lot, stored_fragments
from metastore_assets.pipeline.stages import (
    DivideIntoLots,
    PlanStage,
    ProfileFragments,
    Publish,
    WriteExports,
    join_lots,
)
from metastore_assets.storage.io_counters import io_step
from metastore_assets.store.staged_versions import PUBLISHED_BY_ANOTHER, StagedVersions, reading_staged
from metastore_assets.store.version import Version
from metastore_assets.store.version_document import OlderFormatError

_STAGED_GRACE = timedelta(hours=1)
"""Time for which the files of a replaced staged version stay, because another refresh may continue from it."""


def make_lots(
    context: RefreshContext, plan: Plan, lots: Lots, attempt: AttemptProfiles
) -> tuple[Version, DivideIntoLots]:
    """Compute the lots that the newest staged version, `plan.staged_version`, lacks.

    Return (last staged version, stage that describes the finished work).

    Args:
        context: The table, its store and engine.
        plan: A plan in lots.
        lots: The fragments of the plan.
        attempt: The profiles of this refresh. The read fragments are counted in it. If the version cannot be computed
            in lots, `attempt.makes_lots` is set to false.

    Raises:
        ImpossibleLotsError: The version cannot be computed in lots. Finished lots stay staged.
        UnreadableFragmentsError: Fragments cannot be read.
        VersionConflictError: Another process staged or published a version first.
    """
    maker = _LotMaker(context, plan, attempt)
    try:
        with reading_staged(context.versions):
            version = maker.make(lots)
    except (NoDiffError, UnstreamableError) as error:
        attempt.makes_lots = False
        raise ImpossibleLotsError(str(error)) from error
    return version, maker.executed_stage(version)


class _LotMaker:
    """The computation of the missing lots of a first version."""

    def __init__(self, context: RefreshContext, plan: Plan, attempt: AttemptProfiles) -> None:
        self._context = context
        self._plan = plan
        self._attempt = attempt
        self._staged_versions = StagedVersions(context.versions)
        self._executed_stages: list[Sequence[PlanStage]] = []
        """The stages of each lot that was computed."""

    def make(self, lots: Lots) -> Version:
        """Compute the missing lots one after the other, and return the last staged version.

        If no lot is missing, but the staged version describes another snapshot than the plan, an empty lot records the
        plan's snapshot. Unreadable staged versions are removed first.

        Raises:
            NoDiffError: Columns or policies changed since the last lot was staged, or a stored profile cannot be used.
            UnstreamableError: Two fragments have the same key.
        """
        base = self._plan.staged_version
        if base is None:
            self._remove_unreadable()
        staged_entries = None if base is None else stored_fragments(base)
        (stage,) = (stage for stage in self._plan.stages if isinstance(stage, DivideIntoLots))
        for number, lot in enumerate(stream_lots(lots.fragments, staged_entries, planning.FRAGMENTS_PER_LOT), 1):
            base = self._stage(base, lot, f"lot {number} of {max(stage.lots, number)}")
        if base is None or SnapshotReference(base.snapshot, base.committed_at) != self._plan.snapshot.reference:
            base = self._stage(base, Lot((), ()), "")
        return base

    def executed_stage(self, version: Version) -> DivideIntoLots:
        """Return a stage that describes the finished work: the computed lots, and the stages run for them.

        Args:
            version: The last staged version.
        """
        count = len(version.fragments)
        stages = tuple(
            replace(stage, reused=count - stage.fragments) if isinstance(stage, ProfileFragments) else stage
            for stage in join_lots(self._executed_stages)
        )
        return DivideIntoLots(count, len(self._executed_stages), stages)

    def _stage(self, base: Version | None, lot: Lot, part: str) -> Version:
        """Profile the fragments of a lot, and store a staged version with the changes of the lot.

        Return this version.

        Args:
            base: The staged version to change; None if there is none yet.
            lot: The lot. If it is empty, the new version has the same fragments, and names the current snapshot.
            part: The lot in reports of progress, such as `lot 2 of 7`.

        Raises:
            VersionConflictError: Another process has published the first version, or staged a version.
        """
        context, staged_versions, attempt = self._context, self._staged_versions, AttemptProfiles()
        context = replace(
            context, versions=staged_versions, progress=lambda event: self._context.progress(replace(event, part=part))
        )
        plan = plan_lot(context, attempt, self._plan.snapshot, lot)
        stages = tuple(stage for stage in plan.stages if not isinstance(stage, Publish | WriteExports))
        execution = execute(context, replace(plan, stages=stages), attempt, time.monotonic(), {})
        assert execution.version is not None
        self._executed_stages.append(execution.executed_stages)
        with io_step("publish"):
            staged_versions.publish(execution.version, base, may_merge=execution.builder.may_merge_entries)
        self._attempt.lot_fragments += attempt.read_fragments
        self._attempt.lot_bytes += attempt.read_bytes
        newest = staged_versions.latest()
        if newest is None:
            raise VersionConflictError(PUBLISHED_BY_ANOTHER)
        with suppress(StoreError):  # `expire` or a later lot removes what stays.
            staged_versions.clear_pending()
            staged_versions.drop_outdated(newest.number, 1, _STAGED_GRACE)
        return newest

    def _remove_unreadable(self) -> None:
        """Remove all staged versions if the newest one is damaged, or in the format of an earlier release."""
        try:
            self._staged_versions.latest()
        except (CorruptionError, OlderFormatError):
            self._staged_versions.remove_documents()
