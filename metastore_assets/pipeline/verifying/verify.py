"""Verifying a version: computing it again from the table's files, and reporting differences."""

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
from metastore_assets.pipeline.plan import Plan, PlanInputs, make_plan
from metastore_assets.pipeline.profile_spec import table_profile_spec
from metastore_assets.pipeline.profiles.states_reader import StatesReader
from metastore_assets.pipeline.profiling import profile_all
from metastore_assets.pipeline.verifying.compare import partition_differences
from metastore_assets.pipeline.verifying.differing import (
    Found,
    entry_differences,
    fragment_differences,
    index_differences,
    list_differences,
    membership_differences,
    missing_files,
    node_differences,
    partition_file_differences,
    profile_differences,
    unreadable_files,
)
from metastore_assets.spark.runner import SizedRunner
from metastore_assets.store.manifest import Version
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.versions import VersionStore, versions_of
from metastore_assets.value_counts import ValueCountReader, read_value_counts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Verification:
    """The compared profiles of a version, and their differences."""

    table: str
    version: int
    fragments: int
    partitions: int
    whole: bool
    """Whether the table's profile was compared too, which needs all partitions."""
    moved_on: int
    """Number of partitions that were not compared, because the table no longer has all of their files."""
    differences: tuple[Found, ...]
    unreadable: tuple[FragmentFailure, ...]
    """Fragments of the version whose files cannot be read."""

    @property
    def is_right(self) -> bool:
        """Whether nothing differs, and every file could be read."""
        return not self.differences and not self.unreadable

    def to_json(self) -> dict[str, object]:
        """Return the answer of `verify --json`."""
        return {
            "table": self.table,
            "version": self.version,
            "fragments": self.fragments,
            "partitions": self.partitions,
            "whole": self.whole,
            "moved_on": self.moved_on,
            "differences": [
                {"level": own.level, "name": own.name, **asdict(own.difference)} for own in self.differences
            ],
            "unreadable": [{"path": own.path, "message": own.message} for own in self.unreadable],
        }


def verify(
    config: MetastoreConfig,
    table: TableConfig,
    spark: Callable[[], SparkSession],
    *,
    partitions: Collection[str] = (),
    sample: int | None = None,
    progress: Callable[[Progress], None] = lambda progress: None,
) -> Verification:
    """Read the files of a table's newest version again, and compare every exact number.

    Partitions are not compared if the table no longer has all of their files. Nothing is published: new profiles are
    written to a temporary folder.

    Args:
        config: The configuration.
        table: The table.
        spark: Starts Spark. Called only if there is much to read.
        partitions: Keys or patterns of the partitions to compare; empty for all.
        sample: Number of fragments that are drawn at random. Then only profiles of fragments are compared.
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
    kept, moved_on = _chosen(version, snapshot, partitions)
    whole = not moved_on and len(kept) == len(version.partitions)
    chosen = [own for fragments in kept.values() for own in fragments]
    if sample is not None:
        chosen, whole = random.sample(chosen, min(sample, len(chosen))), False
    if whole and (missing := tuple(missing_files(versions.objects, version))):
        return Verification(table.name, version.number, 0, 0, False, moved_on, missing, ())
    plan = make_plan(PlanInputs(table.name, None, replace(snapshot, fragments=tuple(chosen)), spec))
    with _scratch(versions.objects) as scratch:
        again = VersionStore(scratch, table.name)
        context = RefreshContext(engine, again, table, progress)
        profiled = profile_all(context, plan)
        failures = profiled.failures
        fresh = {entry.id: entry for entry in profiled.entries}
        found = list(fragment_differences(versions.objects, again.objects, version, plan, fresh))
        found += index_differences(engine, versions.objects, again.objects, version, plan, list(fresh.values()))
        found += membership_differences(engine, versions.objects, again.objects, version, list(fresh.values()))
        compared, anew = 0, None
        if sample is None and not failures:
            progress(Progress(table.name, "reduce", 0, len(kept), "partitions", len(kept)))
            anew = build_version(context, plan.target, fresh)
            found += _merged_differences(versions.objects, again.objects, version, anew, plan, whole=whole)
            compared = len(anew.partitions)
        found += entry_differences(version, fresh, anew, whole=whole)
    if whole:
        found += unreadable_files(versions.objects, version)
    return Verification(
        table.name, version.number, len(fresh), compared, whole and not failures, moved_on, tuple(found),
        tuple(failures),
    )  # fmt: skip


def _merged_differences(
    store: ObjectStore, scratch: ObjectStore, version: Version, anew: Version, plan: Plan, *, whole: bool
) -> Iterator[Found]:
    """Yield differences of partitions and, if `whole`, of the table."""
    lists = read_value_counts(store, version.value_counts), read_value_counts(scratch, anew.value_counts)
    readers = ValueCountReader(store, lists[0]), ValueCountReader(scratch, lists[1])
    stored = {entry.key: entry.files for entry in version.partitions}
    pairs = [("partition", own.key, stored[own.key], own.files) for own in anew.partitions]
    if whole:
        pairs.append(("table", version.table, version.files, anew.files))
    with StatesReader(store) as kept, StatesReader(scratch) as new:
        for level, name, was, is_ in pairs:
            own, other = (kept, was), (new, is_)
            found = profile_differences(own, other, plan, level, name, readers, merged=False)
            if level == "partition":
                # Files for people, and states that later versions merge.
                found += profile_differences(own, other, plan, level, name, readers, merged=True)
            yield from dict.fromkeys(found)
    if whole:
        yield from (Found("table", version.table, own) for own in partition_differences(plan.spec, *readers))
        yield from node_differences(store, scratch, version, anew, plan)
        yield from list_differences(store, scratch, version, plan, lists[1], lists[0])
    yield from partition_file_differences(store, version, stored.keys() & {own.key for own in anew.partitions})


def _chosen(version: Version, snapshot: Snapshot, partitions: Collection[str]) -> tuple[dict[str, list[Fragment]], int]:
    """Return the fragments to verify by partition key, and the number of partitions that cannot be verified."""
    there = {fragment.id: fragment for fragment in snapshot.fragments}
    members: dict[str, list[str]] = {}
    for entry in version.fragments:
        if entry.retired is None:
            members.setdefault(entry.partition_key, []).append(entry.id)
    keys = match_partitions(version.table, partitions, members) if partitions else set(members)
    complete = {key: [there[own] for own in members[key]] for key in keys if all(own in there for own in members[key])}
    return complete, len(keys) - len(complete)


@contextmanager
def _scratch(objects: ObjectStore) -> Iterator[ObjectStore]:
    """Create a temporary folder for new profiles. `expire` removes it if the process is killed."""
    prefix = f"verify/{uuid.uuid4().hex}"
    try:
        yield objects.child(prefix)
    finally:
        objects.delete_folder(prefix)
