"""The fragments of a plan, profiled some at a time; what is finished is kept, whatever becomes of the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from metastore_assets.config import TableConfig
from metastore_assets.errors import ProfileError
from metastore_assets.pipeline.bundles import bundles
from metastore_assets.pipeline.engine import Engine
from metastore_assets.pipeline.fragments import FragmentFailure, FragmentProfiler, ProfileContext
from metastore_assets.pipeline.outcome import Progress
from metastore_assets.pipeline.plan import Plan
from metastore_assets.pipeline.profiles.states_writer import has_fingerprints, has_value_filters
from metastore_assets.store.manifest import FragmentEntry
from metastore_assets.store.versions import VersionStore

_BUNDLES_PER_SLOT = 8
"""Of one Spark job per parallel slot; between jobs, finished profiles are saved and progress is told."""
_TASKS_PER_SLOT = 4
"""Bundles per slot that there are at least, where there is work for so many."""


@dataclass
class Profiled:
    """What profiling came to."""

    entries: list[FragmentEntry] = field(default_factory=list)
    failures: list[FragmentFailure] = field(default_factory=list)
    unsaved: list[FragmentEntry] = field(default_factory=list)
    """The last entries, those of one job: nobody else knows of them yet."""
    attempt: str = ""
    """The name that what is saved is to be known by, if any."""


def profile_all(
    engine: Engine,
    versions: VersionStore,
    table: TableConfig,
    plan: Plan,
    progress: Callable[[Progress], None],
    attempt: str = "",
) -> Profiled:
    """Profile what the plan says, and save what is finished but for the last job: a crash loses one of them.

    Where a fragment fails, all is saved. What is saved is of the attempt of that name, if it has one.
    """
    done = Profiled(attempt=attempt)
    if not plan.to_profile:
        return done
    # Files for people have no place for fingerprints of values, nor for filters.
    is_packed = has_fingerprints(plan.spec) or has_value_filters(plan.spec)
    ones = [] if is_packed else [part for part in plan.partitions if len(part.fragments) == 1]
    alone = {partition.fragments[0] for partition in ones}
    alone &= {fragment.id for fragment in plan.to_profile}
    context = ProfileContext(versions.objects, table, plan.snapshot.schema, plan.spec, frozenset(alone))
    profiler = FragmentProfiler(engine, context)
    total = len(plan.to_profile)
    here = engine.reads_here(plan.to_profile)
    slots = 1 if here else engine.slots()
    tasks = bundles(plan.to_profile, alone, len(plan.spec.leaves), 1 if here else _TASKS_PER_SLOT * slots)
    size = len(tasks) if here else _BUNDLES_PER_SLOT * slots
    begun = rows = read = 0
    total_bytes = sum(fragment.bytes for fragment in plan.to_profile)
    for start in range(0, len(tasks), size):
        lot = tasks[start : start + size]
        versions.save_pending(done.unsaved, attempt)
        count = sum(map(len, lot))
        progress(Progress(table.name, "profile", begun, total, "fragments", count, rows, read, total_bytes))
        done.unsaved, failed = profiler.profile(lot)
        done.entries += done.unsaved
        done.failures += failed
        begun += count
        rows += sum(entry.row_count for entry in done.unsaved)
        read += sum(fragment.bytes for bundle in lot for fragment in bundle)
    if done.failures:
        versions.save_pending(done.unsaved, attempt)
        done.unsaved = []
    progress(Progress(table.name, "profile", total, total, "fragments", 0, rows, read, total_bytes))
    return done


@contextmanager
def saving(versions: VersionStore, profiled: Profiled) -> Iterator[None]:
    """Save what is not saved yet when the block raises, so that the next attempt need not read it again."""
    try:
        yield
    except BaseException:
        versions.save_pending(profiled.unsaved, profiled.attempt)
        raise


def save_as(versions: VersionStore, profiled: Profiled, fragments: Mapping[str, FragmentEntry]) -> None:
    """Save what is not saved yet as it is now, by id, and remove the files that it was in before."""
    now = [fragments[entry.id] for entry in profiled.unsaved]
    versions.save_pending(now, profiled.attempt)
    # No version and no pending file names them: they need not wait for `expire`.
    named = {path for entry in now for path in entry.files.paths()}
    versions.objects.delete(sorted({path for own in profiled.unsaved for path in own.files.paths()} - named))
    profiled.entries = [fragments[entry.id] for entry in profiled.entries]
    profiled.unsaved = []


def profile_error(table: TableConfig, failures: Sequence[FragmentFailure], finished: int) -> ProfileError:
    """The error that says which fragments could not be profiled, and why."""
    shown = "; ".join(f"partition {f.partition_key!r}: {f.message}" for f in failures[:5])
    more = f"; and {len(failures) - 5} more" if len(failures) > 5 else ""
    return ProfileError(
        f"table {table.name!r}: {len(failures)} of {len(failures) + finished} fragments could not be profiled: {shown}"
        f"{more}. {failure_advice([failure.unsupported for failure in failures])}"
    )


def failure_advice(unsupported: Sequence[bool]) -> str:
    """Return what to do about files that could not be read. `unsupported` says of each that it is not damaged."""
    if all(unsupported):
        return "Nothing is damaged: do not remove these files. Their content is not supported, as said above"
    if any(unsupported):
        return (
            "Mend or remove the damaged files and try again; do not remove those of which the message says that their "
            "content is not supported"
        )
    return "Mend or remove what is at fault and try again"
