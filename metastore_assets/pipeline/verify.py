"""Compute again what a version says, from the table's own files, and tell what differs."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.errors import CorruptionError, MetastoreError, VersionNotFoundError
from metastore_assets.formats import Memory, open_table_format
from metastore_assets.formats.base import Fragment, Snapshot
from metastore_assets.formats.partition_choice import chosen_partitions
from metastore_assets.index import IndexReader
from metastore_assets.lists import ListReader, read_lists
from metastore_assets.pipeline.assemble import next_version
from metastore_assets.pipeline.compare import Difference, differences, opened, partition_differences
from metastore_assets.pipeline.decisions import recorded_decisions
from metastore_assets.pipeline.engine import Engine
from metastore_assets.pipeline.fragments import FragmentFailure
from metastore_assets.pipeline.hidden_key import with_hidden_key
from metastore_assets.pipeline.index import class_or_none, index_table, read_rows
from metastore_assets.pipeline.layouts import table_layout
from metastore_assets.pipeline.membership import wrong_filters
from metastore_assets.pipeline.outcome import Progress
from metastore_assets.pipeline.partition_files import wrong_rows
from metastore_assets.pipeline.plan import Plan, make_plan
from metastore_assets.pipeline.profiling import profile_all
from metastore_assets.pipeline.reading import TaskReader
from metastore_assets.pipeline.states_files import StatesFiles
from metastore_assets.store.manifest import FragmentEntry, ProfileFiles, Version
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.versions import VersionStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Found:
    """A difference, and in which profile it is."""

    level: str
    """`fragment`, `partition`, `table`, or `index`, of which the row of a fragment differs."""
    name: str
    """The fragment's file, or the partition's key."""
    difference: Difference


@dataclass(frozen=True)
class Verification:
    """What was compared, and what differs."""

    table: str
    version: int
    fragments: int
    partitions: int
    whole: bool
    """Whether the table's own profile was compared too: only when all partitions were."""
    moved_on: int
    """Partitions left out, because the table does not hold all of their files any more."""
    differences: tuple[Found, ...]
    unreadable: tuple[FragmentFailure, ...]
    """Files that are in the version and cannot be read."""

    @property
    def is_right(self) -> bool:
        """Whether nothing differs, and everything could be read."""
        return not self.differences and not self.unreadable

    def to_json(self) -> dict[str, object]:
        """The shape of `verify --json`."""
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
    """Read the files of a table's newest version again, and compare every exact number that follows from them.

    `partitions` names some, by key or pattern; `sample` takes so many fragments at random, of which then only the
    fragments' own profiles are compared. Partitions of which the table does not have all files any more are left out.
    Publishes nothing; what it writes on the way lies beside the table's state and is removed.

    Raises VersionNotFoundError, PartitionNotFoundError; MetastoreError when the table's schema or policies are not
    those of the version.
    """
    versions = VersionStore(ObjectStore(config.root, config.storage_options), table.name)
    version = versions.latest()
    if version is None:
        raise VersionNotFoundError(
            f"table {table.name!r} has no published version below {config.root}; run `metastore refresh {table.name}`"
        )
    engine = Engine(spark, config.engine)
    progress(Progress(table.name, "plan"))
    snapshot = open_table_format(table, Memory(anew=True), TaskReader(spark)).snapshot()
    table = with_hidden_key(config, table)
    layout = table_layout(version.schema, table, recorded_decisions(version, table))
    if layout.id != version.layout or snapshot.schema != version.schema:
        what = "policies" if layout.id != version.layout else "columns"
        raise MetastoreError(
            f"table {table.name!r} has other {what} than version {version.number}: refresh it before it is verified"
        )
    kept, moved_on = _chosen(version, snapshot, partitions)
    whole = not moved_on and len(kept) == len(version.partitions)
    chosen = [own for fragments in kept.values() for own in fragments]
    if sample is not None:
        chosen, whole = random.sample(chosen, min(sample, len(chosen))), False
    plan = make_plan(table.name, None, replace(snapshot, fragments=tuple(chosen)), layout)
    with _scratch(versions.objects) as scratch:
        again = VersionStore(scratch, table.name)
        profiled = profile_all(engine, again, table, plan, progress)
        failures = profiled.failures
        fresh = {entry.id: entry for entry in profiled.entries}
        found = list(_fragment_differences(versions.objects, again.objects, version, plan, fresh))
        found += _index_differences(engine, versions.objects, again.objects, version, plan, list(fresh.values()))
        found += _membership_differences(engine, versions.objects, again.objects, version, list(fresh.values()))
        compared = 0
        if sample is None and not failures:
            progress(Progress(table.name, "reduce", 0, len(kept), "partitions", len(kept)))
            anew = next_version(engine, again.objects, plan, fresh, 1)
            stored = {entry.key: entry.files for entry in version.partitions}
            pairs = [("partition", own.key, stored[own.key], own.files) for own in anew.partitions]
            compared = len(pairs)
            if whole:
                pairs.append(("table", table.name, version.files, anew.files))
            lists = (_list_reader(versions.objects, version), _list_reader(again.objects, anew))
            with StatesFiles(versions.objects) as kept_files, StatesFiles(again.objects) as new_files:
                for level, name, was, is_ in pairs:
                    found += _differences(kept_files, was, new_files, is_, plan, level, name, lists)
            if whole:
                found += [Found("table", table.name, own) for own in partition_differences(plan.layout, *lists)]
            found += _partition_file_differences(versions.objects, version, {own.key for own in anew.partitions})
    return Verification(
        table.name, version.number, len(fresh), compared, whole and not failures, moved_on, tuple(found),
        tuple(failures),
    )  # fmt: skip


def _chosen(version: Version, snapshot: Snapshot, partitions: Collection[str]) -> tuple[dict[str, list[Fragment]], int]:
    """The fragments of the partitions that are verified, by key, and how many cannot be."""
    there = {fragment.id: fragment for fragment in snapshot.fragments}
    members: dict[str, list[str]] = {}
    for entry in version.fragments:
        if entry.retired is None:
            members.setdefault(entry.partition_key, []).append(entry.id)
    keys = chosen_partitions(version.table, partitions, members) if partitions else set(members)
    complete = {key: [there[own] for own in members[key]] for key in keys if all(own in there for own in members[key])}
    return complete, len(keys) - len(complete)


@contextmanager
def _scratch(objects: ObjectStore) -> Iterator[ObjectStore]:
    """A folder for what is computed again. What a process that is killed leaves in it, `expire` removes."""
    prefix = f"verify/{uuid.uuid4().hex}"
    try:
        yield objects.child(prefix)
    finally:
        objects.delete([info.path for info in objects.list(prefix)])


def _list_reader(store: ObjectStore, version: Version) -> ListReader:
    return ListReader(store, read_lists(store, version.lists))


def _fragment_differences(
    store: ObjectStore, scratch: ObjectStore, version: Version, plan: Plan, fresh: dict[str, FragmentEntry]
) -> Iterator[Found]:
    with StatesFiles(store) as kept, StatesFiles(scratch) as new:
        for entry in sorted(version.fragments, key=lambda entry: entry.files.states):
            if entry.id in fresh:
                yield from _differences(kept, entry.files, new, fresh[entry.id].files, plan, "fragment", entry.path)


def _index_differences(
    engine: Engine,
    store: ObjectStore,
    scratch: ObjectStore,
    version: Version,
    plan: Plan,
    fresh: Sequence[FragmentEntry],
) -> list[Found]:
    """What the index has otherwise than the profiles of fragments."""
    if version.index is None or not fresh:
        return []
    columns = {leaf.field_id: leaf for leaf, _ in plan.layout.leaves}
    rows = read_rows(engine, scratch, len(columns), fresh)
    try:
        reader = IndexReader(store, version.index)
        places = {own: at for at, own in enumerate(reader.fragments(("id",))["id"].to_pylist())}
        missing = [entry for entry in fresh if entry.id not in places]
        found = [Found("index", entry.path, Difference("", "index", "no row", "a row")) for entry in missing]
        there = [(at, entry) for at, entry in enumerate(fresh) if entry.id in places]
        own, kept = (pa.array(at, pa.int64()) for at in ([at for at, _ in there], [places[e.id] for _, e in there]))
        for field_id, table in rows.columns.items():
            leaf = columns[field_id]
            cls = class_or_none(leaf.type)
            told = index_table(table, leaf.type).take(own)
            stored = pa.table(vars(reader.column(field_id, cls))).take(kept)
            if cls is None or cls.kind != "float":
                # There is none, which is told as not known or as 0: of a fragment from before the column, say.
                told, stored = (each.drop_columns("nan_count") for each in (told, stored))
            for name in told.column_names if not told.equals(stored) else ():
                values = zip(stored[name].to_pylist(), told[name].to_pylist(), there, strict=True)
                found += [
                    Found("index", entry.path, Difference(leaf.path, name, str(was), str(is_)))
                    for was, is_, (_, entry) in values
                    if was != is_
                ]
    except CorruptionError as error:
        found = [Found("index", version.table, Difference("", "files", str(error), "what the rows say"))]
    return found


def _membership_differences(
    engine: Engine, store: ObjectStore, scratch: ObjectStore, version: Version, fresh: Sequence[FragmentEntry]
) -> list[Found]:
    """The filters that are not those of the fragments' values."""
    if version.membership is None or not fresh:
        return []
    names = {entry.id: entry.files.name for entry in version.fragments if entry.retired is None}
    paths = {entry.files.name: (names[entry.id], entry.path) for entry in fresh}
    try:
        return [
            Found("index", paths[name][1], Difference(column, "membership", "another filter", "that of its values"))
            for name, column in wrong_filters(engine, store, scratch, version.membership, fresh, paths)
        ]
    except CorruptionError as error:
        return [Found("index", version.table, Difference("", "files", str(error), "what the rows say"))]


def _partition_file_differences(store: ObjectStore, version: Version, keys: Collection[str]) -> list[Found]:
    """What is told of partitions by column otherwise than in their own files, which are compared with the rows."""
    try:
        wrong = list(wrong_rows(store, version, keys))
    except CorruptionError as error:
        return [Found("index", version.table, Difference("", "files", str(error), "what the rows say"))]
    return [
        Found("index", key, Difference(column, "statistics", was, "that of its file")) for key, column, was in wrong
    ]


def _differences(
    store: StatesFiles,
    stored: ProfileFiles,
    scratch: StatesFiles,
    found: ProfileFiles,
    plan: Plan,
    level: str,
    name: str,
    lists: tuple[ListReader | None, ListReader | None] = (None, None),
) -> Sequence[Found]:
    """`lists` are those of both tables, which have those of their only partition as well."""
    merged = level == "fragment"
    own_lists, other_lists = (
        reader if level == "table" or not files.frequencies else None
        for reader, files in zip(lists, (stored, found), strict=True)
    )
    try:
        with (
            opened(store, stored, plan.layout, merged=merged, table=own_lists, is_table=level == "table") as own,
            opened(scratch, found, plan.layout, merged=merged, table=other_lists, is_table=level == "table") as other,
        ):
            return [Found(level, name, difference) for difference in differences(plan.layout, own, other)]
    except CorruptionError as error:
        return [Found(level, name, Difference("", "files", str(error), "what the rows say"))]
