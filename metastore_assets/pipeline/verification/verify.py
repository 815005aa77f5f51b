"""Verification of a table's newest version: its statistics are recomputed and compared.

A fragment is a data file with its deletes, and its profile is its statistics. A version is the published statistics of
a table at one snapshot.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.errors import MetastoreError, VersionNotFoundError
from metastore_assets.expressions.partition_patterns import match_partitions
from metastore_assets.formats import MetadataCache, open_table_format
from metastore_assets.formats.base import (
    Fragment,
    Snapshot,
    SnapshotStream,
    TableFormat,
    UnstreamableError,
    fragment_order,
)
from metastore_assets.pipeline.context import RefreshContext
from metastore_assets.pipeline.engine import Engine
from metastore_assets.pipeline.fragment_runs import stream_ids
from metastore_assets.pipeline.fragments import FragmentFailure
from metastore_assets.pipeline.hidden_values import with_hidden_key
from metastore_assets.pipeline.next_version import build_version
from metastore_assets.pipeline.outcome import Progress
from metastore_assets.pipeline.plan import PlanInputs, make_plan
from metastore_assets.pipeline.profile_spec import table_profile_spec
from metastore_assets.pipeline.profiling import profile_all
from metastore_assets.pipeline.table_changes import compare_snapshot
from metastore_assets.pipeline.verification.version_differences import (
    Recomputation,
    VersionDifference,
    entry_differences,
    fragment_differences,
    index_differences,
    merge_differences,
    missing_files,
    unreadable_files,
    value_filter_differences,
)
from metastore_assets.pipeline.version_policies import recorded_resolutions
from metastore_assets.spark.runner import SizedRunner
from metastore_assets.store.entries import StoredEntries, partition_contents
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.version import FragmentEntry, Version, split_fragment_key
from metastore_assets.store.versions import VersionStore, versions_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Verification:
    """The result of a verification: how many fragments and partitions were compared, and the differences."""

    table: str
    version: int
    fragments: int
    """Number of fragments that were read and compared."""
    partitions: int
    """Number of partitions whose merged profile was compared."""
    complete: bool
    """Whether all partitions were compared, and with them the table's profile."""
    skipped_partitions: int
    """Number of partitions that were not compared, because the table no longer has all of their files. With a sample,
    only sampled files count."""
    differences: tuple[VersionDifference, ...]
    unreadable: tuple[FragmentFailure, ...]
    """Fragments of the version whose files could not be read."""

    @property
    def is_right(self) -> bool:
        """Whether there is no difference, and every file could be read."""
        return not self.differences and not self.unreadable

    def to_json(self) -> dict[str, object]:
        """Return the result as `verify --json` prints it."""
        return {
            "table": self.table,
            "version": self.version,
            "fragments": self.fragments,
            "partitions": self.partitions,
            "complete": self.complete,
            "skipped_partitions": self.skipped_partitions,
            "differences": [
                {"level": row.level, "name": row.name, **asdict(row.difference)} for row in self.differences
            ],
            "unreadable": [{"path": failure.path, "message": failure.message} for failure in self.unreadable],
        }


@dataclass(frozen=True)
class VerificationScope:
    """The part of a version to compare."""

    partitions: tuple[str, ...] = ()
    """Keys or patterns of the partitions to compare; empty for all."""
    sample: int | None = None
    """Number of fragments to draw at random from `partitions`; None for all. With a sample, profiles of partitions
    and of the table are not compared."""


FULL_SCOPE = VerificationScope()


def verify(
    config: MetastoreConfig,
    table: TableConfig,
    spark: Callable[[], SparkSession],
    scope: VerificationScope = FULL_SCOPE,
    *,
    progress: Callable[[Progress], None] = lambda progress: None,
) -> Verification:
    """Read the files of a table's newest version again, and compare every exact number.

    Nothing is published.

    Partitions are skipped if the table no longer has all of their files. Damaged files of the Metastore are reported as
    differences. If the whole version is to be verified and files of it are missing, only the missing files are
    reported, and nothing is read. If a file of the table cannot be read, the profiles of partitions and the table are
    not compared.

    Args:
        config: The configuration.
        table: The table.
        spark: Returns the Spark session. Called only if the configured engine needs Spark (see `Engine`).
        scope: The part of the version that is compared.
        progress: Called with the progress.

    Raises:
        VersionNotFoundError: The table has no version.
        PartitionNotFoundError: A partition does not exist.
        MetastoreError: The table's schema or policies are not those of the version.
    """
    versions = versions_of(config, table.name)
    version = versions.latest()
    if version is None:
        raise VersionNotFoundError(
            f"table {table.name!r} has no published version below {config.root}; run `metastore refresh {table.name}`"
        )
    engine = Engine.of(config, spark)
    progress(Progress(table.name, "plan"))
    table_format = open_table_format(table, MetadataCache(ignore_process=True), SizedRunner(spark))
    stream = table_format.stream()
    table = with_hidden_key(config, table)
    spec = table_profile_spec(version.schema, table, recorded_resolutions(version, table))
    if spec.id != version.spec_id or stream.metadata.schema != version.schema:
        what = "policies" if spec.id != version.spec_id else "columns"
        raise MetastoreError(
            f"table {table.name!r} has other {what} than version {version.number}: refresh it before it is verified"
        )
    if scope.sample is None:
        selection = _select_partitions(version, stream.snapshot or table_format.snapshot(), scope.partitions)
    else:
        selection = _draw_sample(version, table_format, stream, scope.partitions, scope.sample)
    skipped_count = selection.skipped_partitions
    is_complete = scope.sample is None and not skipped_count and selection.partitions == len(version.partitions)
    if is_complete and (missing := tuple(missing_files(versions.objects, version))):
        return Verification(table.name, version.number, 0, 0, False, skipped_count, missing, ())
    sorted_fragments = sorted(selection.fragments, key=fragment_order)
    snapshot = Snapshot(**vars(stream.metadata), fragments=tuple(sorted_fragments))
    changes = compare_snapshot(snapshot, None, "no version is published")
    plan = make_plan(PlanInputs(table.name, None, changes, spec))
    with _scratch_folder(versions.objects) as scratch:
        context = RefreshContext(engine, VersionStore(scratch, table.name), table, progress)
        profiling_result = profile_all(context, plan)
        entries = {entry.id: entry for entry in profiling_result.entries}
        recomputation = Recomputation(
            engine, versions.objects, context.objects, version, spec, selection.published_entries, entries
        )
        results = list(fragment_differences(recomputation))
        results += index_differences(recomputation)
        results += value_filter_differences(recomputation)
        recomputed_version = None
        if scope.sample is None and not profiling_result.failures:
            count = selection.partitions
            progress(Progress(table.name, "reduce", 0, count, "partitions", count))
            recomputed_version = build_version(context, plan.target, entries)
            results += merge_differences(recomputation, recomputed_version, is_complete=is_complete)
        results += entry_differences(recomputation, recomputed_version, is_complete=is_complete)
    if is_complete:
        results += unreadable_files(versions.objects, version)
    return Verification(
        table=table.name,
        version=version.number,
        fragments=len(entries),
        partitions=len(recomputed_version.partitions) if recomputed_version is not None else 0,
        complete=is_complete and not profiling_result.failures,
        skipped_partitions=skipped_count,
        differences=tuple(results),
        unreadable=tuple(profiling_result.failures),
    )


@dataclass(frozen=True)
class _VerifiedFragments:
    """The fragments to verify."""

    fragments: Sequence[Fragment]
    published_entries: Mapping[str, FragmentEntry]
    """The entries of `fragments` in the version, by fragment id."""
    partitions: int
    """Number of partitions of `fragments`."""
    skipped_partitions: int
    """Number of partitions with a selected fragment that the snapshot no longer has. If no sample is drawn, they are
    skipped."""


def _select_partitions(version: Version, snapshot: Snapshot, partitions: Collection[str]) -> _VerifiedFragments:
    """Return the fragments of the selected partitions.

    A partition is skipped if the snapshot lacks one of its fragments.

    Args:
        version: The version.
        snapshot: The snapshot, with all of its fragments.
        partitions: Keys or patterns of the selected partitions; empty for all.
    """
    current = {fragment.id: fragment for fragment in snapshot.fragments}
    members: dict[str, list[FragmentEntry]] = {}
    for entry in version.fragments:
        members.setdefault(entry.partition_key, []).append(entry)
    keys = match_partitions(version.table, partitions, members) if partitions else set(members)
    complete = [key for key in keys if all(entry.id in current for entry in members[key])]
    published_entries = {entry.id: entry for key in complete for entry in members[key]}
    return _VerifiedFragments(
        [current[id_] for id_ in published_entries], published_entries, len(complete), len(keys) - len(complete)
    )


def _draw_sample(
    version: Version, table_format: TableFormat, stream: SnapshotStream, partitions: Collection[str], count: int
) -> _VerifiedFragments:
    """Return fragments of the version, drawn at random.

    Omits those that the snapshot does not have.

    Args:
        version: The version.
        table_format: Reads the snapshot, if it cannot be streamed.
        stream: The snapshot.
        partitions: Keys or patterns of the partitions to draw from; empty for all.
        count: The number of fragments to draw.
    """
    entries = version.fragments
    assert isinstance(entries, StoredEntries), "the version was read from a store"
    keys = match_partitions(version.table, partitions, partition_contents(version)) if partitions else None
    drawn_rows: list[tuple[str, str]] = []
    candidates = (row for row in stream_ids(entries) if keys is None or split_fragment_key(row[0])[0] in keys)
    for number, row in enumerate(candidates):
        # Each prefix of the fragments is sampled uniformly.
        if number < count:
            drawn_rows.append(row)
        elif (position := random.randrange(number + 1)) < count:
            drawn_rows[position] = row
    ids = {id_ for _, id_ in drawn_rows}
    try:
        fragments = [fragment for fragment in stream.fragments if fragment.id in ids]
    except UnstreamableError:
        fragments = [fragment for fragment in table_format.snapshot().fragments if fragment.id in ids]
    current = {fragment.id for fragment in fragments}
    published_entries = {
        entry.id: entry for entry in entries.find_all([key for key, id_ in drawn_rows if id_ in current]).values()
    }
    skipped_keys = {split_fragment_key(key)[0] for key, id_ in drawn_rows if id_ not in current}
    return _VerifiedFragments(
        fragments,
        published_entries,
        len({entry.partition_key for entry in published_entries.values()}),
        len(skipped_keys),
    )


@contextmanager
def _scratch_folder(objects: ObjectStore) -> Iterator[ObjectStore]:
    """Return a context manager of a new folder for profiles.

    The end of the context deletes the folder.
    """
    prefix = f"verify/{uuid.uuid4().hex}"
    try:
        yield objects.child(prefix)
    finally:
        objects.delete_folder(prefix)
