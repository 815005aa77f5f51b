"""Bundling of small files: copies of a partition's small profiles to one shared file.

A fragment is a data file with its deletes, and its profile is its statistics. A commit of one fragment writes one
profile to a file of its own. A later commit to the same partition copies the profiles of at least eight such files to
one file, a bundle. At least eight bundles are later copied to a larger one, which is rarely copied again. So a profile
is copied about twice, and a partition has few small files.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from metastore_assets.pipeline.context import RefreshContext
from metastore_assets.pipeline.merging.compaction import MAX_SECTIONS, CopyTask, run_copies
from metastore_assets.store.entry_changes import EntryChanges
from metastore_assets.store.version import FragmentEntry, ProfileFiles

MIN_FILES = 8
"""Minimum number of files in a bundle. Two groups of files are bundled separately: those with fewer profiles in use
than this, and those with at least this many but fewer than its square."""
FULL_BYTES = 128 << 10
"""A file of at least this size is not bundled."""
_MAX_BYTES = MIN_FILES * FULL_BYTES
"""Total size of the files that a commit may bundle, in all partitions together."""
_COPIES = 2
"""A commit may bundle files of this many times the size of its new profiles, if that is more than `_MAX_BYTES`."""


def bundle_small_files(
    context: RefreshContext,
    columns: int,
    fragments: EntryChanges[FragmentEntry],
    partitions: Sequence[Sequence[FragmentEntry]],
) -> EntryChanges[FragmentEntry]:
    """Copy profiles of small files to shared files, for changed partitions with enough small files.

    A partition needs at least `MIN_FILES` small files. One commit copies a limited number of bytes, so a partition may
    have to wait for a later commit.

    Profiles that the commit adds stay in their files: if the refresh is interrupted, the next attempt looks for them
    there.

    Args:
        context: The table, its store and engine.
        columns: Number of columns of the table, to estimate the work.
        fragments: The changes of the version's fragments.
        partitions: The fragments of each partition that the commit changes.

    Returns:
        The changes. Entries of copied profiles have new files.

    Raises:
        CorruptionError: A file is corrupt.
    """
    tasks = plan_bundles(fragments.put_entries.values(), partitions)
    if not tasks:
        return fragments
    copied_files = run_copies(context.engine, context.objects, columns, tasks).files
    return fragments.replacing(
        (entry, replace(entry, files=copied_files[entry.files.name]))
        for entries in partitions
        for entry in entries
        if entry.files.name in copied_files
    )


def plan_bundles(
    changed_entries: Collection[FragmentEntry], partitions: Iterable[Sequence[FragmentEntry]]
) -> list[CopyTask]:
    """Return the tasks that copy profiles of small files to shared files, one shared file per task.

    Args:
        changed_entries: The new and changed entries of the version. Their profiles are not copied.
        partitions: The fragments of each partition that the commit changes.
    """
    new_keys = {entry.key for entry in changed_entries}
    new_bytes = sum(entry.files.states_bytes // max(1, entry.files.sections) for entry in changed_entries)
    remaining = max(_MAX_BYTES, _COPIES * new_bytes)
    tasks: list[CopyTask] = []
    for entries in partitions:
        files: dict[str, list[ProfileFiles]] = {}
        for entry in entries:
            profile_files = entry.files
            # The key is computed, so it is compared last.
            is_small = (
                profile_files.states_bytes < FULL_BYTES and profile_files.section and profile_files.is_states_only
            )
            if is_small and entry.key not in new_keys:
                files.setdefault(profile_files.states, []).append(profile_files)
        small = [files[path] for path in sorted(files)]
        for least in (1, MIN_FILES):
            bundle: list[ProfileFiles] = []
            count = size = 0
            for profiles in small:
                if not least <= len(profiles) < least * MIN_FILES:
                    continue
                is_complete = count >= MIN_FILES and len(bundle) + len(profiles) > MAX_SECTIONS
                if is_complete or size + profiles[0].states_bytes > remaining:
                    break
                bundle += profiles
                count += 1
                size += profiles[0].states_bytes
            if count >= MIN_FILES:
                tasks.append(CopyTask("fragments", tuple(bundle)))
                remaining -= size
    return tasks
