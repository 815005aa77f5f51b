"""Verify the newest version of a table: compute its numbers again from the files, and compare them."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.errors import MetastoreError, VersionNotFoundError
from metastore_assets.expressions.partition_patterns import match_partitions
from metastore_assets.formats import MetadataCache, open_table_format
from metastore_assets.formats.base import Fragment, Snapshot
from metastore_assets.pipeline.auto_policies import recorded_resolutions
from metastore_assets.pipeline.context import RefreshContext
from metastore_assets.pipeline.engine import Engine
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
from metastore_assets.spark.runner import SizedRunner
from metastore_assets.store.manifest import Version
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.versions import VersionStore, versions_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Verification:
    """The result of a verification: what was compared, and what differs."""

    table: str
    version: int
    fragments: int
    """Number of fragments that were read and compared."""
    partitions: int
    """Number of partitions whose merged profile was compared."""
    complete: bool
    """Whether the table's profile was compared as well. This requires all partitions."""
    skipped_partitions: int
    """Number of partitions that were not compared, because the table no longer has all of their files."""
    differences: tuple[VersionDifference, ...]
    unreadable: tuple[FragmentFailure, ...]
    """Fragments of the version whose files could not be read."""

    @property
    def is_right(self) -> bool:
        """Whether nothing differs, and every file could be read."""
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
    """Number of fragments to draw at random from these partitions; None for all fragments. With a sample, only the
    profiles of fragments are compared, not those of partitions and of the table."""


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

    Partitions are not compared if the table no longer has all of their files. Nothing is published: new profiles are
    written to a temporary folder. Damaged files of the Metastore are reported as differences.

    Args:
        config: The configuration.
        table: The table.
        spark: Starts Spark. Called only if there is much to read.
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
    snapshot = open_table_format(table, MetadataCache(ignore_process=True), SizedRunner(spark)).snapshot()
    table = with_hidden_key(config, table)
    spec = table_profile_spec(version.schema, table, recorded_resolutions(version, table))
    if spec.id != version.spec_id or snapshot.schema != version.schema:
        what = "policies" if spec.id != version.spec_id else "columns"
        raise MetastoreError(
            f"table {table.name!r} has other {what} than version {version.number}: refresh it before it is verified"
        )
    fragments_by_partition, skipped = _verifiable_fragments(version, snapshot, scope.partitions)
    is_complete = not skipped and len(fragments_by_partition) == len(version.partitions)
    fragments = [fragment for members in fragments_by_partition.values() for fragment in members]
    if scope.sample is not None:
        fragments, is_complete = random.sample(fragments, min(scope.sample, len(fragments))), False
    if is_complete and (missing := tuple(missing_files(versions.objects, version))):
        return Verification(table.name, version.number, 0, 0, False, skipped, missing, ())
    changes = compare_snapshot(replace(snapshot, fragments=tuple(fragments)), None, "no version is published")
    plan = make_plan(PlanInputs(table.name, None, changes, spec))
    with _scratch_folder(versions.objects) as scratch:
        context = RefreshContext(engine, VersionStore(scratch, table.name), table, progress)
        profiled = profile_all(context, plan)
        entries = {entry.id: entry for entry in profiled.entries}
        recomputation = Recomputation(engine, versions.objects, context.objects, version, spec, entries)
        results = list(fragment_differences(recomputation))
        results += index_differences(recomputation)
        results += value_filter_differences(recomputation)
        recomputed = None
        if scope.sample is None and not profiled.failures:
            count = len(fragments_by_partition)
            progress(Progress(table.name, "reduce", 0, count, "partitions", count))
            recomputed = build_version(context, plan.target, entries)
            results += merge_differences(recomputation, recomputed, is_complete=is_complete)
        results += entry_differences(recomputation, recomputed, is_complete=is_complete)
    if is_complete:
        results += unreadable_files(versions.objects, version)
    return Verification(
        table=table.name,
        version=version.number,
        fragments=len(entries),
        partitions=len(recomputed.partitions) if recomputed is not None else 0,
        complete=is_complete and not profiled.failures,
        skipped_partitions=skipped,
        differences=tuple(results),
        unreadable=tuple(profiled.failures),
    )


def _verifiable_fragments(
    version: Version, snapshot: Snapshot, partitions: Collection[str]
) -> tuple[dict[str, list[Fragment]], int]:
    """Return the fragments to verify, by partition key, and the number of skipped partitions.

    A partition is skipped if the snapshot no longer has all of its fragments.
    """
    current = {fragment.id: fragment for fragment in snapshot.fragments}
    members: dict[str, list[str]] = {}
    for entry in version.fragments:
        members.setdefault(entry.partition_key, []).append(entry.id)
    keys = match_partitions(version.table, partitions, members) if partitions else set(members)
    complete = {
        key: [current[id_] for id_ in members[key]] for key in keys if all(id_ in current for id_ in members[key])
    }
    return complete, len(keys) - len(complete)


@contextmanager
def _scratch_folder(objects: ObjectStore) -> Iterator[ObjectStore]:
    """Create a temporary folder for new profiles. `expire` removes the folder if the process is killed."""
    prefix = f"verify/{uuid.uuid4().hex}"
    try:
        yield objects.child(prefix)
    finally:
        objects.delete_folder(prefix)
