"""Differences between the files of a version and files that are computed again; files that cannot be read."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import pyarrow as pa

from metastore_assets.errors import CorruptionError, StoreError
from metastore_assets.index import IndexReader
from metastore_assets.pipeline.engine import Engine
from metastore_assets.pipeline.fragment_index import class_or_none, index_table, read_rows
from metastore_assets.pipeline.merging.merges import FAN_IN, TABLE, node_id
from metastore_assets.pipeline.merging.tree import Branch, key_position, merge_tree
from metastore_assets.pipeline.partition_index import wrong_rows
from metastore_assets.pipeline.plan import Plan
from metastore_assets.pipeline.profiles.states_reader import StatesReader
from metastore_assets.pipeline.value_counts.plain import columns_of, differing_columns
from metastore_assets.pipeline.value_filters import wrong_filters
from metastore_assets.pipeline.verifying.compare import Difference, differences, opened
from metastore_assets.store.manifest import FragmentEntry, ProfileFiles, ValueCountFiles, Version
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.parquet import parquet_errors
from metastore_assets.store.version_document import stored_entries
from metastore_assets.value_counts import TableValueCounts, ValueCountReader, differing_rows

_Both: TypeAlias = tuple[ProfileFiles, ProfileFiles]
"""The files of one profile: those of the version, and those that were computed again."""


@dataclass(frozen=True)
class Found:
    """A difference, and the profile or file that it is in."""

    level: str
    """`fragment`, `partition`, `table`; `node`, an intermediate result of merging; `index`, in which the row of a
    fragment or partition differs; `file`, which is missing or cannot be read."""
    name: str
    """The fragment's file, the partition's key, the node's id, or the path of a file below the table's folder."""
    difference: Difference


def entry_differences(
    version: Version, fresh: Mapping[str, FragmentEntry], anew: Version | None, *, whole: bool
) -> Iterator[Found]:
    """Yield differences of entries of fragments, of partitions and, if `whole`, of the table."""
    of_fragment, of_partition = ("path", "partition_key", "row_count", "bytes"), ("row_count", "bytes", "fragments")
    told: list[tuple[str, str, object, object, tuple[str, ...]]] = [
        ("fragment", own.path, own, fresh[own.id], of_fragment)
        for own in version.fragments
        if own.id in fresh and own.retired is None
    ]
    if anew is not None:
        found = {entry.key: entry for entry in anew.partitions}
        told += [
            ("partition", own.key, own, found[own.key], of_partition) for own in version.partitions if own.key in found
        ]
        told += [("table", version.table, version, anew, ("row_count", "bytes", "fragment_count"))] if whole else []
    for level, name, own, other, fields in told:
        for field in fields:
            was, is_ = getattr(own, field), getattr(other, field)
            if was != is_:
                yield Found(level, name, Difference("", field, str(was), str(is_)))


def fragment_differences(
    store: ObjectStore, scratch: ObjectStore, version: Version, plan: Plan, fresh: Mapping[str, FragmentEntry]
) -> Iterator[Found]:
    """Yield differences of the profiles of fragments."""
    with StatesReader(store) as kept, StatesReader(scratch) as new:
        for entry in sorted(version.fragments, key=lambda entry: entry.files.states):
            if entry.id in fresh:
                own, other = (kept, entry.files), (new, fresh[entry.id].files)
                yield from profile_differences(own, other, plan, "fragment", entry.path, merged=True)


def profile_differences(
    stored: tuple[StatesReader, ProfileFiles],
    found: tuple[StatesReader, ProfileFiles],
    plan: Plan,
    level: str,
    name: str,
    lists: tuple[ValueCountReader | None, ValueCountReader | None] = (None, None),
    *,
    merged: bool,
) -> list[Found]:
    """Return the differences of one profile.

    Args:
        stored: The profile of the version, and its reader.
        found: The profile that was computed again, and its reader.
        plan: The plan of the verification.
        level: The level of the differences, see `Found`.
        name: The name of the differences, see `Found`.
        lists: The value counts of both tables, which an only partition shares.
        merged: Whether the states are compared, which merges read. Else the files for people.
    """
    own_lists, other_lists = (
        reader if level == "table" or not files.frequencies else None
        for reader, (_, files) in zip(lists, (stored, found), strict=True)
    )
    is_table = level == "table"
    try:
        with (
            opened(*stored, plan.spec, merged=merged, table=own_lists, is_table=is_table) as own,
            opened(*found, plan.spec, merged=merged, table=other_lists, is_table=is_table) as other,
        ):
            if level != "fragment":  # Other profiles have no fingerprints.
                own, other = (replace(view, read_fingerprints=None) for view in (own, other))
            return [Found(level, name, difference) for difference in differences(plan.spec, own, other)]
    except CorruptionError as error:
        return [_unreadable(level, name, error)]


def node_differences(
    store: ObjectStore, scratch: ObjectStore, version: Version, anew: Version, plan: Plan
) -> Iterator[Found]:
    """Yield differences of the nodes that the profiles of partitions and of the table were merged from.

    Nodes are matched by their inputs. Nodes of partitions with skipped rewrites have inputs that no longer exist.
    """
    known = [{entry.id: entry for entry in each.nodes} for each in (version, anew)]
    with StatesReader(store) as kept, StatesReader(scratch) as new:

        def walked(group: str, branch: Branch[_Both]) -> tuple[list[Found], tuple[str, str] | None]:
            """Return the differences of a branch, and the names of both of its profiles; None if one is not stored."""
            found: list[Found] = []
            names: list[tuple[str, str]] = []
            for part in branch.parts:
                if isinstance(part, Branch):
                    below, name = walked(group, part)
                    found += below
                else:
                    name = (part[0].name, part[1].name)
                if name is None:
                    return found, None
                names.append(name)
            ids = (node_id(group, own) for own in zip(*names, strict=True))
            own, other = (nodes.get(id_) for nodes, id_ in zip(known, ids, strict=True))
            if own is None or other is None:
                return found, None
            pair = (kept, own.files), (new, other.files)
            found += profile_differences(*pair, plan, "node", own.id, merged=True)
            return found, (own.files.name, other.files.name)

        for group, children in _groups(version, anew):
            tree = merge_tree([(key_position(key), files) for key, files in children], FAN_IN)
            for part in tree.parts:
                if isinstance(part, Branch):
                    yield from walked(group, part)[0]


def _groups(version: Version, anew: Version) -> Iterator[tuple[str, list[tuple[str, _Both]]]]:
    """Yield by group the keys of its children, with the files of both profiles."""
    stored = {entry.id: entry.files for entry in version.fragments if entry.retired is None}
    members: dict[str, list[tuple[str, _Both]]] = {}
    for entry in anew.fragments:
        if entry.id in stored:
            members.setdefault(entry.partition_key, []).append((entry.id, (stored[entry.id], entry.files)))
    yield from members.items()
    partitions = {entry.key: entry.files for entry in version.partitions}
    yield TABLE, [(own.key, (partitions[own.key], own.files)) for own in anew.partitions if own.key in partitions]


def list_differences(
    store: ObjectStore,
    scratch: ObjectStore,
    version: Version,
    plan: Plan,
    found: TableValueCounts,
    stored: TableValueCounts,
) -> Iterator[Found]:
    """Yield differences of the table's value counts, and of the plain files that they were compacted to."""
    name = version.table
    leaves = {leaf.field_id: leaf for leaf, _ in plan.spec.leaves}
    try:
        for row in differing_rows(store, stored, scratch, found):
            column = leaves[row.column].path if row.column in leaves else row.column
            yield Found("table", name, Difference(column, row.what, row.own, row.other))
        files = version.value_counts or ValueCountFiles("", ())
        listed = [
            leaf for leaf in leaves.values() if leaf.field_id in found.columns.keys() | found.fingerprinted.columns
        ]
        # Which columns have ranks the file tells: policies may have changed since.
        ranked = columns_of(store, files.ranks) & found.columns.keys()
        plain = [("frequencies", files.frequencies, listed)]
        plain += [("ranks", files.ranks, [leaf for leaf in listed if leaf.field_id in ranked])]
        for kind, path, columns in plain:
            if path:
                for column, own, other in differing_columns(
                    store, path, scratch, found, columns, ranked=kind == "ranks"
                ):
                    yield Found("table", name, Difference(column, f"{kind} file", own, other))
    except CorruptionError as error:
        yield _unreadable("table", name, error)


def index_differences(
    engine: Engine,
    store: ObjectStore,
    scratch: ObjectStore,
    version: Version,
    plan: Plan,
    fresh: Sequence[FragmentEntry],
) -> list[Found]:
    """Return the differences of the fragment index."""
    if version.index is None or not fresh:
        return []
    columns = {leaf.field_id: leaf for leaf, _ in plan.spec.leaves}
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
            if leaf.repeated:
                # A fragment from before the column has as many as rows there, and none below a list; of predicates
                # below lists there are none.
                told, stored = (each.drop_columns("null_count") for each in (told, stored))
            for name in told.column_names if not told.equals(stored) else ():
                values = zip(stored[name].to_pylist(), told[name].to_pylist(), there, strict=True)
                found += [
                    Found("index", entry.path, Difference(leaf.path, name, str(was), str(is_)))
                    for was, is_, (_, entry) in values
                    if was != is_
                ]
    except CorruptionError as error:
        found = [_unreadable("index", version.table, error)]
    return found


def membership_differences(
    engine: Engine, store: ObjectStore, scratch: ObjectStore, version: Version, fresh: Sequence[FragmentEntry]
) -> list[Found]:
    """Return the value filters that differ from those of the fragments' values."""
    if version.value_filters is None or not fresh:
        return []
    names = {entry.id: entry.files.name for entry in version.fragments if entry.retired is None}
    paths = {entry.files.name: (names[entry.id], entry.path) for entry in fresh}
    try:
        return [
            Found("index", paths[name][1], Difference(column, "membership", "another filter", "that of its values"))
            for name, column in wrong_filters(engine, store, scratch, version.value_filters, fresh, paths)
        ]
    except CorruptionError as error:
        return [_unreadable("index", version.table, error)]


def partition_file_differences(store: ObjectStore, version: Version, keys: Collection[str]) -> list[Found]:
    """Return where statistics of partitions by column differ from the files of the partitions."""
    try:
        wrong = list(wrong_rows(store, version, keys))
    except CorruptionError as error:
        return [_unreadable("index", version.table, error)]
    return [
        Found("index", key, Difference(column, "statistics", was, "that of its file")) for key, column, was in wrong
    ]


def missing_files(store: ObjectStore, version: Version) -> Iterator[Found]:
    """Yield the missing files of a version. Raise StoreError if a file of entries is missing."""
    named = {*version.paths(), *version.auxiliary_files()}
    named |= {path for entries in stored_entries(version) for path in entries.files.paths()}
    for path in sorted(named - {info.path for info in store.list()}):
        yield Found("file", path, Difference("", "file", "missing", f"a file of version {version.number}"))


def unreadable_files(store: ObjectStore, version: Version) -> Iterator[Found]:
    """Yield files that cannot be read, of those that are not compared: of removed fragments, nodes and entries."""
    left = {path for entry in version.fragments if entry.retired is not None for path in entry.files.paths()}
    left |= {path for entry in version.nodes for path in entry.files.paths()}
    left |= {path for entries in stored_entries(version) for path in entries.files.paths()}
    left |= {path for path in (version.garbage_manifest, version.files.states) if path}
    for path in sorted(left):
        try:
            with parquet_errors(store.uri(path)):
                file = store.open_parquet(path)
                for group in range(file.metadata.num_row_groups):
                    file.read_row_group(group)
        except (CorruptionError, StoreError) as error:
            yield _unreadable("file", path, error)


def _unreadable(level: str, name: str, error: Exception) -> Found:
    return Found(level, name, Difference("", "files", str(error), "what the rows say"))
