"""Profiling of the fragments of a plan, in one or more jobs.

A fragment is a data file with its deletes, and its profile is its statistics. A bundle is a group of fragments of one
partition, which one task profiles. Spark runs one task per slot at a time. Profiles are saved even if other fragments
fail. An entry describes a profiled fragment, and names the files of its profile.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import groupby

from metastore_assets.config import TableConfig
from metastore_assets.errors import ProfileError
from metastore_assets.formats.base import Fragment
from metastore_assets.pipeline.context import RefreshContext
from metastore_assets.pipeline.fragments import Bundle, FragmentFailure, FragmentProfiler, ProfilingContext, read_cost
from metastore_assets.pipeline.merging.tree import key_position
from metastore_assets.pipeline.outcome import Progress
from metastore_assets.pipeline.plan import Plan
from metastore_assets.pipeline.profiles.states_writer import StatesContent
from metastore_assets.store.version import FragmentEntry
from metastore_assets.store.versions import VersionStore

_BUNDLES_PER_SLOT = 8
"""Number of bundles per slot in one Spark job; more if they cost less than `_MIN_JOB_COST`. Between jobs, finished
profiles are saved and progress is reported."""
_MIN_JOB_COST = 128 << 20
"""Minimum read cost in bytes per slot of a job, except the last: a few seconds of work. Each job takes some tenths of a
second, which would be most of the time for partitions with one tiny file."""
_TASKS_PER_SLOT = 4
"""Approximate minimum number of bundles per slot over all jobs, if there are so many fragments."""
_MAX_BUNDLE_COST = 32 << 20
_MIN_BUNDLE_COST = 4 << 20
"""Bounds of the read cost in bytes at which a bundle is full. Within them, bundles are small enough for each slot to
have work."""
_MAX_ROWS = 1 << 14
"""Maximum number of rows in the states file of a bundle, which has one row per fragment and column."""


@dataclass
class ProfilingResult:
    """The new profiles of fragments, and the fragments that could not be profiled."""

    entries: list[FragmentEntry] = field(default_factory=list)
    failures: list[FragmentFailure] = field(default_factory=list)
    unsaved_entries: list[FragmentEntry] = field(default_factory=list)
    """The entries of the last job, which are not saved yet."""
    attempt: str = ""
    """Name of the attempt under which entries are saved; empty if any refresh may use them."""

    def save_unsaved(self, versions: VersionStore) -> None:
        """Save the entries in `unsaved_entries` as pending profiles, and empty the list.

        The next attempt then does not read their fragments again.
        """
        versions.save_pending(self.unsaved_entries, self.attempt)
        self.unsaved_entries = []

    def save_rewritten(self, versions: VersionStore, fragments: Mapping[str, FragmentEntry]) -> None:
        """Save the entries in `unsaved_entries`, after `drop_value_counts` has copied profiles to new files.

        The entries in `fragments` name the new files, and replace the old entries in the list `entries`. The
        replacements of `unsaved_entries` are saved as pending profiles for later attempts. Then the list
        `unsaved_entries` is emptied, and files that only its old entries name are deleted.

        Args:
            versions: The store of the table.
            fragments: The current entries, by fragment id.
        """
        current = [fragments[entry.id] for entry in self.unsaved_entries]
        versions.save_pending(current, self.attempt)
        written_paths = {path for entry in self.unsaved_entries for path in entry.files.paths()}
        self.entries, self.unsaved_entries = [fragments[entry.id] for entry in self.entries], []
        # No version and no pending file references the replaced files, so they need not wait for `expire`.
        versions.objects.delete(sorted(written_paths - {path for entry in current for path in entry.files.paths()}))


def profile_all(context: RefreshContext, plan: Plan, attempt: str = "") -> ProfilingResult:
    """Profile the fragments that a plan reads.

    Return their entries, and the fragments that failed.

    The profiles of all jobs except the last are saved as pending: a later refresh uses them instead of reading their
    fragments again. If any fragment failed, the profiles of the last job are saved, too. Otherwise the caller has to
    save them: they are in `unsaved_entries` of the result.

    Args:
        context: The table, its store and engine.
        plan: The plan.
        attempt: Name under which profiles are saved (see `planning.attempt_name`). Empty if any refresh may use them.
    """
    profiling_result = ProfilingResult(attempt=attempt)
    if not plan.to_profile:
        return profiling_result
    engine, versions = context.engine, context.versions
    # Separate files of a profile have no column for fingerprints or value filters.
    is_states_only = StatesContent.of_fragments(plan.spec).is_states_only
    single = () if is_states_only else [part.fragments[0] for part in plan.partitions if len(part.fragments) == 1]
    alone = frozenset(single) & {fragment.id for fragment in plan.to_profile}
    profile_context = ProfilingContext(versions.objects, context.table, plan.snapshot.schema, plan.spec, alone)
    profiler = FragmentProfiler(engine, profile_context)
    total = len(plan.to_profile)
    is_local = engine.reads_here(plan.to_profile)
    slots = 1 if is_local else engine.slots()
    tasks = bundle_fragments(plan.to_profile, alone, len(plan.spec.columns), 1 if is_local else _TASKS_PER_SLOT * slots)
    tasks_per_job = len(tasks) if is_local else _BUNDLES_PER_SLOT * slots
    started_count = rows = bytes_read = 0
    total_bytes = sum(fragment.bytes for fragment in plan.to_profile)
    table = context.table.name
    for job in divide_into_jobs(tasks, tasks_per_job, _MIN_JOB_COST * slots):
        versions.save_pending(profiling_result.unsaved_entries, attempt)
        count = sum(map(len, job))
        context.progress(
            Progress(table, "profile", started_count, total, "fragments", count, rows, bytes_read, total_bytes)
        )
        profiling_result.unsaved_entries, failures = profiler.profile(job)
        profiling_result.entries += profiling_result.unsaved_entries
        profiling_result.failures += failures
        started_count += count
        rows += sum(entry.row_count for entry in profiling_result.unsaved_entries)
        bytes_read += sum(fragment.bytes for bundle in job for fragment in bundle)
    if profiling_result.failures:
        profiling_result.save_unsaved(versions)
    context.progress(Progress(table, "profile", total, total, "fragments", 0, rows, bytes_read, total_bytes))
    return profiling_result


def divide_into_jobs(bundles: Sequence[Bundle], count: int, cost: float) -> Iterator[list[Bundle]]:
    """Divide bundles into jobs, each with at least `count` bundles and at least the read cost `cost`.

    The last job may have less.
    """
    job: list[Bundle] = []
    job_cost = 0.0
    for bundle in bundles:
        job.append(bundle)
        job_cost += read_cost(bundle)
        if len(job) >= count and job_cost >= cost:
            yield job
            job, job_cost = [], 0.0
    if job:
        yield job


def bundle_fragments(
    fragments: Sequence[Fragment], alone: Collection[str], columns: int, tasks: int = 1
) -> list[tuple[Fragment, ...]]:
    """Group the fragments of each partition into bundles.

    One task profiles a bundle, and writes the profiles of all its fragments to one file. The profile of a fragment in
    `alone` is written to separate files instead, such as one for statistics and one for histograms.

    Args:
        fragments: The fragments.
        alone: Ids of the fragments that are the only fragment of their partition. Each is a bundle by itself.
        columns: Number of columns that are profiled.
        tasks: Approximate minimum number of bundles. There are fewer if bundles would cost less to read than
            `_MIN_BUNDLE_COST`.
    """
    max_cost = min(_MAX_BUNDLE_COST, max(_MIN_BUNDLE_COST, read_cost(fragments) / max(1, tasks)))
    bundles: list[tuple[Fragment, ...]] = []
    sorted_fragments = sorted(fragments, key=lambda fragment: (fragment.partition_key, key_position(fragment.id)))
    for _, partition in groupby(sorted_fragments, key=lambda fragment: fragment.partition_key):
        bundle: list[Fragment] = []
        for fragment in partition:
            if fragment.id in alone:
                bundles.append((fragment,))
                continue
            is_full = read_cost([*bundle, fragment]) > max_cost or (len(bundle) + 1) * columns > _MAX_ROWS
            if bundle and is_full:
                bundles.append(tuple(bundle))
                bundle = []
            bundle.append(fragment)
        if bundle:
            bundles.append(tuple(bundle))
    return bundles


def profile_error(table: TableConfig, failures: Sequence[FragmentFailure], finished_count: int) -> ProfileError:
    """Return an error about the fragments that could not be profiled.

    The message has the partitions and reasons of the first five.

    Args:
        table: The table.
        failures: The fragments that failed.
        finished_count: Number of fragments that were profiled.
    """
    reasons_text = "; ".join(f"partition {failure.partition_key!r}: {failure.message}" for failure in failures[:5])
    more = f"; and {len(failures) - 5} more" if len(failures) > 5 else ""
    return ProfileError(
        f"table {table.name!r}: {len(failures)} of {len(failures) + finished_count} fragments could not be "
        f"profiled: {reasons_text}{more}. {failure_advice([failure.unsupported for failure in failures])}"
    )


class FailureAdvice(StrEnum):
    """Advice about files that could not be read."""

    UNSUPPORTED = "Nothing is damaged, so do not remove these files: their content is not supported"
    DAMAGED = "Correct the cause and try again; repair or remove a file only if it is damaged"
    BOTH = (
        "Correct the cause and try again; repair or remove a file only if it is damaged, not if its content is not "
        "supported"
    )


def failure_advice(is_unsupported: Sequence[bool]) -> FailureAdvice:
    """Return advice about files that could not be read.

    Args:
        is_unsupported: For each file, whether the reason is that its content is not supported. Otherwise the file may
            be damaged.
    """
    if all(is_unsupported):
        return FailureAdvice.UNSUPPORTED
    return FailureAdvice.BOTH if any(is_unsupported) else FailureAdvice.DAMAGED
