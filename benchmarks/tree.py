"""Bytes read and CPU time to merge the profiles of a table after a commit to one of many partitions.

The profiles are merged in a tree, in which the commit changes the nodes on one path. The profiles are synthetic: all
partitions have the same content, and so have all unchanged nodes. `METASTORE_BENCH_TREE=20000x500` are the numbers of
partitions and columns, by default 2000x100.

A profile is the stored statistics of a partition or the table. A node is a stored merge of several profiles. A profile
spec lists the statistics to store of each column.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.report import Row
from benchmarks.scale_requests import ROOT as BUCKET
from benchmarks.scale_requests import Requests
from metastore_assets.config import TableConfig
from metastore_assets.pipeline.merging.merge_plan import TreeMerge, tree_shape
from metastore_assets.pipeline.merging.merges import NodeWriter, merge_node_states
from metastore_assets.pipeline.merging.tree import ROOT
from metastore_assets.pipeline.profile_spec import ProfileSpec, table_profile_spec
from metastore_assets.pipeline.profiles.files import ProfileWriter, write_states
from metastore_assets.pipeline.profiles.states_reader import StatesReader
from metastore_assets.pipeline.profiles.stored_states import read_states
from metastore_assets.statistics.merge import merge_states
from metastore_assets.statistics.profile import profile_field
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.version import ProfileFiles
from metastore_assets.values.columns import columns_by_field

MB = 1 << 20
ROWS = 5000
MOST_MB, MOST_SECONDS = 30.0, 5.0


def run() -> list[Row]:
    """Merge one path of the tree, as after a commit, and compare with the goals of 30 MB and 5 s.

    The goal of 30 MB is for 500 columns, and changes in proportion to their number.
    """
    partitions, columns = map(int, os.environ.get("METASTORE_BENCH_TREE", "2000x100").split("x"))
    folder = Path(tempfile.mkdtemp(prefix="metastore-bench-"))
    store = ObjectStore(str(folder / BUCKET.partition("://")[2]))
    spec, leaf, node = _profiles(store, columns)
    merge = _path(store, [f"part={at}" for at in range(partitions)], leaf, node)
    requests = Requests(folder)
    with requests.installed():
        remote = ObjectStore(BUCKET)
        start_time = time.process_time()
        with StatesReader(remote) as reader:
            merge_node_states(reader, spec, merge, NodeWriter(remote, spec))
        seconds = time.process_time() - start_time
        counts = requests.counts()
    shutil.rmtree(folder)
    megabytes = counts["root read"] / MB
    print(f"{partitions} partitions × {columns} columns: {merge.weight} profiles, {counts['root requests']} requests, "
          f"{megabytes:.1f} MB read, {seconds:.2f} s of CPU")  # fmt: skip
    share = partitions, columns
    goals = (MOST_MB, MOST_SECONDS) if share == (20000, 500) else (MOST_MB * columns / 500, MOST_SECONDS)
    return [
        Row(f"bytes read for 1 of {partitions} partitions × {columns} columns (MB)", [megabytes], [goals[0]],
            goals[0] / megabytes, 1.0),
        Row("CPU of its merges (s)", [seconds], [goals[1]], goals[1] / seconds, 1.0),
    ]  # fmt: skip


def _path(store: ObjectStore, keys: list[str], leaf: ProfileFiles, node: ProfileFiles) -> TreeMerge:
    """Return the merge of the root of the tree, with all merges on the path from the first partition.

    Args:
        store: The folder of the table.
        keys: The keys of all partitions.
        leaf: The stored profile that every other partition has.
        node: The stored profile that every other node of the tree has.
    """
    shape = tree_shape()
    merges: dict[str, TreeMerge] = {}
    for name, branch in shape.build(keys).put_branches.items():
        if shape.digits(keys[0]).startswith(name):
            inputs = tuple(
                merges[part] if part in merges else _copied(store, leaf if is_child else node)
                for part, is_child in shape.ordered_parts(branch)
            )
            merges[name] = TreeMerge("*", branch, inputs)
    return merges[ROOT]


def _copied(store: ObjectStore, files: ProfileFiles) -> ProfileFiles:
    """Copy a profile's files, and return the names of the copies.

    Each input of a merge gets its own copies, because a merge reads a file that several inputs share only once.
    """
    names = {path: f"copies/{uuid.uuid4().hex}.{path.rpartition('/')[2]}" for path in files.paths()}
    for path, name in names.items():
        store.write(name, store.read(path))
    return replace(
        files,
        statistics=names.get(files.statistics, ""),
        histograms=names.get(files.histograms, ""),
        frequencies=tuple(names[path] for path in files.frequencies),
        states=names.get(files.states, ""),
    )


def _profiles(store: ObjectStore, columns: int) -> tuple[ProfileSpec, ProfileFiles, ProfileFiles]:
    """Write the profile of a partition, and the profile of a tree node that merges four partitions.

    Returns:
        The profile spec, the files of the partition, and the files of the node.
    """
    draw = np.random.default_rng(0)
    config = TableConfig(name="bench", uri="none")
    parts = []
    for _ in range(4):
        rows = pa.table({f"c{at}": _column(draw, at) for at in range(columns)})
        spec = table_profile_spec(rows.schema, config)
        with ProfileWriter(store, "partitions", spec, ROWS) as writer:
            for field, array, table_columns in zip(
                rows.schema, rows.columns, columns_by_field(rows.schema), strict=True
            ):
                for profile in profile_field(field, array.chunks, config.effective_policy, columns=table_columns):
                    writer.add(profile)
        parts.append(writer.files)
    with StatesReader(store) as reader:
        states = [read_states(reader, part, spec)[1] for part in parts]
    merged_states = merge_states(states, [column.path for column, _ in spec.columns])
    return spec, parts[0], write_states(store, "nodes", spec, 4 * ROWS, merged_states)


def _column(draw: np.random.Generator, at: int) -> pa.Array:
    """Return column number `at`.

    Five kinds alternate: integers, floats, repeated texts, unique texts, dates.
    """
    kinds: Sequence[pa.Array] = (
        lambda: pa.array(draw.integers(0, 10**9, ROWS)),
        lambda: pa.array(draw.normal(size=ROWS) * 100),
        lambda: pa.array(draw.integers(0, 12, ROWS)).cast(pa.string()),
        lambda: pa.array([f"{value:015x}" for value in draw.integers(0, 2**60, ROWS).tolist()]),
        lambda: pa.array(draw.integers(0, 1000, ROWS).astype(np.int32)).cast(pa.date32()),
    )
    return kinds[at % len(kinds)]()
