"""Execution of planned merges of profiles (see `merge_plan`), and storage of their results.

A profile is the statistics of a set of rows. A group of profiles is merged as a tree. The stored result of a merge
below the root is a node. It consists of states: the mergeable forms of statistics, such as sketches. A profile spec
says which statistics a profile has.
"""

from __future__ import annotations

import pyarrow as pa

from metastore_assets.pipeline.merging.merge_plan import TreeMerge
from metastore_assets.pipeline.profile_spec import ProfileSpec
from metastore_assets.pipeline.profiles.files import write_states
from metastore_assets.pipeline.profiles.states_reader import StatesReader
from metastore_assets.pipeline.profiles.states_writer import StatesContent, StatesWriter, value_union
from metastore_assets.pipeline.profiles.stored_states import read_states_together
from metastore_assets.statistics.merge import merge_states
from metastore_assets.statistics.profile import profile_all_null
from metastore_assets.statistics.states import build_states_table
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.version import NodeEntry, ProfileFiles

_SMALL_NODE = 1 << 20
"""Maximum size in memory, in bytes, of a node that shares a file with other nodes."""


class NodeWriter:
    """A writer of the nodes that one task computes.

    Small nodes share a file.
    """

    def __init__(self, store: ObjectStore, spec: ProfileSpec) -> None:
        self._store = store
        self._spec = spec
        self._entries: list[NodeEntry] = []
        self._small: list[tuple[TreeMerge, int, pa.Table]] = []

    def add(self, merge: TreeMerge, row_count: int, states: pa.Table) -> None:
        """Add the result of a merge as a node.

        Write it now if it is large; `finish` writes small nodes.

        Args:
            merge: The merge.
            row_count: Number of rows that the node describes.
            states: The merged states.
        """
        if states.num_rows and states.nbytes <= _SMALL_NODE:
            self._small.append((merge, row_count, states))
        else:
            files = write_states(self._store, "nodes", self._spec, row_count, states)
            self._entries.append(merge.node(files, self._spec.id))

    def finish(self) -> list[NodeEntry]:
        """Write the small nodes to a shared file; return the entries of all added nodes."""
        if self._small:
            with StatesWriter(self._store, "nodes", StatesContent(value_union(self._spec))) as writer:
                for _, row_count, states in self._small:
                    writer.begin(row_count)
                    writer.add_table(states)
            for (merge, *_), files in zip(self._small, writer.files, strict=True):
                self._entries.append(merge.node(files, self._spec.id))
            self._small = []
        return self._entries


def merge_node_states(
    reader: StatesReader, spec: ProfileSpec, merge: TreeMerge, nodes: NodeWriter
) -> tuple[int, pa.Table]:
    """Run a merge and all merges below it.

    Return (row count, merged states).

    Args:
        reader: Reads the states files of the store.
        spec: The profile spec of the version.
        merge: The merge.
        nodes: Receives the results of the merges below.
    """
    profiles = [part for part in merge.inputs if isinstance(part, ProfileFiles)]
    row_count, stored_tables = read_states_together(reader, profiles, spec)
    remaining_tables = iter(stored_tables)
    tables = []
    for part in merge.inputs:
        if isinstance(part, TreeMerge):
            part_rows, table = merge_node_states(reader, spec, part, nodes)
            nodes.add(part, part_rows, table)
            row_count += part_rows
        else:
            table = next(remaining_tables)
        tables.append(table)
    if not tables:
        rows = [profile_all_null(column, 0, policy) for column, policy in spec.columns]
        return 0, build_states_table(rows, [None] * len(rows), value_union(spec))
    return row_count, merge_states(tables, [column.path for column, _ in spec.columns])
