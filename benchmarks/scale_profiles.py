"""Stand-ins for the parts of a refresh that read profiles, for tables without data files.

A refresh plans, writes its metadata and publishes as usual. Its profiles are names of files that do not exist. The
profiles that a refresh would read are counted.

A version is the published statistics of a table at one snapshot. A profile is the stored statistics of a file, a
partition or the table. A profile spec lists the statistics to store of each column. A fingerprint is a part of the hash
of a value.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa

from benchmarks.scale_tables import ROWS, SIZE
from metastore_assets.index import IndexRows, PartitionRows, stack_partitions
from metastore_assets.index.fragment_index import column_schema
from metastore_assets.pipeline import execution, fragment_index, partition_index, skip_rewrites
from metastore_assets.pipeline.context import RefreshContext
from metastore_assets.pipeline.engine import Engine
from metastore_assets.pipeline.merging import compaction, reduce
from metastore_assets.pipeline.merging.merge_plan import TreeMerge
from metastore_assets.pipeline.plan import Plan
from metastore_assets.pipeline.profile_spec import ProfileSpec
from metastore_assets.pipeline.profiling import ProfilingResult, bundle_fragments
from metastore_assets.pipeline.value_counts import fingerprinted_values, fingerprints
from metastore_assets.statistics.fingerprints import FINGERPRINT_BITS, FingerprintCounts, count_fingerprints
from metastore_assets.statistics.profile import profile_all_null
from metastore_assets.statistics.profile_tables import build_statistics_table
from metastore_assets.statistics.typed_union import pack_values, union_type
from metastore_assets.store.objects import ObjectStore, unique_name
from metastore_assets.store.version import FragmentEntry, ProfileFiles, UnindexedPartition
from metastore_assets.tasks.runner import InProcessRunner
from metastore_assets.values.types import type_class

_NODES_PER_FILE = 64
_FINGERPRINTS = 20
"""Number of values in a profile of a column with `frequencies: repeated`."""
_PROFILE_BYTES = 15_000
"""Size of a profile of the five columns of a synthetic table."""
FIRST_TIME = 1 << 60
"""The time of the first file, in nanoseconds."""
TIME_PER_DAY = 1 << 20
"""The time between the first files of two partitions, in nanoseconds."""


def name_time(day: int, number: int) -> int:
    """Return the synthetic write time of a file of the first version.

    The file's name begins with this time.

    Args:
        day: The partition.
        number: A number that differs between the files of the partition.
    """
    return FIRST_TIME + day * TIME_PER_DAY + number % TIME_PER_DAY


class SyntheticProfiles:
    """Makes profiles without files, and counts the profiles that a refresh would read."""

    def __init__(self, *, is_first_version: bool = False) -> None:
        """Create the stand-ins.

        Args:
            is_first_version: Whether the times at the start of file names follow the order of partitions, as if the
                partitions had been written one after the other. Otherwise, names start with the current time.
        """
        self._is_first_version = is_first_version
        self._file_count = 0
        self.reads: Counter[str] = Counter()
        """Number of profiles that the refresh would read, by purpose."""
        self._random = random.Random()
        self._spec: ProfileSpec | None = None

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Replace the functions that read profiles or data files during the block."""
        replaced_functions: list[tuple[Any, str, Callable[..., Any]]] = [
            (Engine, "of_refresh", lambda *arguments: _InProcessEngine()),
            (execution, "profile_all", self._profile_all),
            (
                execution,
                "append_when_due",
                lambda versions, base, new, retained_versions, grace: new.number - retained_versions,
            ),
            (reduce, "_run", self._run_merge),
            (reduce, "_write_separate_files", self._write_separate_files),
            (fragment_index, "read_rows", self._read_index_rows),
            (partition_index, "_read_files", self._read_statistics),
            (compaction, "_copy_profiles", self._copy_profiles),
            (skip_rewrites, "_has_same_rows", self._has_same_rows),
            (fingerprinted_values, "read_fingerprints", self._read_fingerprints),
        ]
        with ExitStack() as stack:
            for target, name, function in replaced_functions:
                stack.enter_context(patch.object(target, name, function))
            # Synthetic profiles have far fewer fingerprints than rows.
            stack.enter_context(patch.object(fingerprints, "_MAX_LOCAL_ROWS", 1 << 60))
            yield

    def _profile_all(self, context: RefreshContext, plan: Plan, attempt: str = "") -> ProfilingResult:
        entries = []
        for bundle in bundle_fragments(plan.to_profile, frozenset(), len(plan.spec.columns)):
            all_files = self._shared_files("fragments", len(bundle), bundle[0].partition_key)
            for fragment, files in zip(bundle, all_files, strict=True):
                entries.append(
                    FragmentEntry(
                        fragment.id,
                        fragment.partition_key,
                        fragment.path,
                        fragment.bytes,
                        fragment.bytes * ROWS // SIZE if fragment.row_count is None else fragment.row_count,
                        plan.spec.id,
                        (),
                        files,
                    )
                )
        return ProfilingResult(entries, [], entries, attempt)

    def _run_merge(self, store: ObjectStore, spec: ProfileSpec, is_local: bool, merge: TreeMerge) -> Any:
        """Count a merge and all merges below it, and return the task result that they would have."""
        self._spec = spec
        self.reads["merges"] += merge.weight
        merges = [*_merges_below(merge), *([merge] if merge.group is None else [])]
        nodes = []
        for start in range(0, len(merges), _NODES_PER_FILE):
            batch = merges[start : start + _NODES_PER_FILE]
            all_files = self._shared_files("nodes", len(batch), merge.group_key)
            nodes += [one.node(files, spec.id) for one, files in zip(batch, all_files, strict=True)]
        group = merge.group
        files = nodes[-1].files if group is None else self._separate_files(group.folder, is_input=group.is_input)
        return reduce._TaskResult(merge.number, files, nodes)

    def _write_separate_files(self, store: ObjectStore, spec: ProfileSpec, copy: Any) -> tuple[str, ProfileFiles]:
        self._spec = spec
        self.reads["merges"] += 1
        return copy.group_key, self._separate_files(copy.folder, is_input=True)

    def _read_index_rows(
        self, engine: Engine, store: ObjectStore, columns: int, fragments: Sequence[FragmentEntry]
    ) -> IndexRows:
        self.reads["index"] += len(fragments)
        table = fragment_index._fragment_table(fragments)
        if not fragments or self._spec is None:
            return IndexRows(table, {})
        classes = [type_class(column.type) for column, _ in self._spec.columns]
        union, count = union_type(classes), len(fragments)
        zeros = pa.array(np.zeros(count, np.int64))
        by_column = {}
        for (column, _), cls in zip(self._spec.columns, classes, strict=True):
            bounds = pack_values(self._values(cls.arrow, count), cls, union)
            arrays = [zeros, zeros, bounds, bounds]
            by_column[column.field_id] = pa.Table.from_arrays(arrays, schema=column_schema(union))
        return IndexRows(table, by_column)

    def _values(self, type_: pa.DataType, count: int) -> pa.Array:
        numbers = [self._random.getrandbits(40) for _ in range(count)]
        if pa.types.is_integer(type_) or pa.types.is_floating(type_):
            return pa.array(numbers).cast(type_)
        return pa.array([f"value {number}" for number in numbers]).cast(type_)

    def _read_statistics(self, store: ObjectStore, partitions: Sequence[UnindexedPartition]) -> PartitionRows:
        assert self._spec is not None, "partitions are merged before they are indexed"
        self.reads["index"] += len(partitions)
        table = build_statistics_table([profile_all_null(column, 0, policy) for column, policy in self._spec.columns])
        table = table.replace_schema_metadata()
        keys = [(partition.key, partition.row_count) for partition in partitions]
        return stack_partitions(keys, [table] * len(partitions))

    def _copy_profiles(self, store: ObjectStore, task: Any) -> Any:
        self.reads["compaction"] += len(task.files)
        copies = self._shared_files(task.folder, len(task.files))
        named_copies = {
            files.name: replace(copy, section=files.name) for copy, files in zip(copies, task.files, strict=True)
        }
        return compaction.CopyResult(named_copies, {})

    def _has_same_rows(self, store: ObjectStore, spec: ProfileSpec, rewrite: Any) -> tuple[str, bool]:
        self.reads["rewrites"] += len(rewrite.added_profiles) + len(rewrite.removed_profiles)
        return rewrite.partition_key, True

    def _read_fingerprints(self, reader: object, files: ProfileFiles, field_id: str) -> FingerprintCounts:
        """Return fingerprints that depend only on the name of the profile, and so hardly repeat."""
        self.reads["fingerprints"] += 1
        draw = np.random.default_rng(int(files.section, 16))
        return count_fingerprints(draw.integers(0, 1 << FINGERPRINT_BITS, _FINGERPRINTS), None)

    def _shared_files(self, folder: str, count: int, group: str = "") -> list[ProfileFiles]:
        """Return the file names of several profiles, whose states would be in one shared file.

        The states of a profile are the part that merges of profiles read. No file is written.

        Args:
            folder: The folder of the shared file.
            count: Number of profiles.
            group: Key of the partition that the first of the profiles belongs to, such as `day=000007`.
        """
        name = unique_name()
        if self._is_first_version and group.startswith("day="):
            self._file_count += 1
            name = f"{name_time(int(group[4:]), self._file_count):016x}{name[16:]}"
        path = f"{folder}/{name}.states.parquet"
        names = [f"{self._random.getrandbits(64):016x}" for _ in range(count)]
        return [ProfileFiles("", "", (), path, name, count, count * _PROFILE_BYTES) for name in names]

    def _separate_files(self, folder: str, *, is_input: bool) -> ProfileFiles:
        name = f"{folder}/{unique_name()}"
        states = f"{name}.states.parquet" if is_input else ""
        return ProfileFiles(f"{name}.statistics.parquet", f"{name}.histograms.parquet", (), states)


def _merges_below(merge: TreeMerge) -> Iterator[TreeMerge]:
    """Yield the merges below a merge, each after those below it."""
    for part in merge.inputs:
        if isinstance(part, TreeMerge):
            yield from _merges_below(part)
            yield part


class _InProcessEngine(Engine):
    """An engine that merges everything in this process."""

    def __init__(self) -> None:
        super().__init__(None, "auto")
        self.spark_runner = InProcessRunner()

    def merges_here(self, columns: int) -> bool:
        return True

    def slots(self) -> int:
        return 2


def policies(columns: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return policies that store no value counts, by column.

    With `METASTORE_BENCH_REPEATED=1`, fingerprints of the column `id` are stored.
    """
    repeated_policy = {"id": {"frequencies": "repeated", "algorithm": "fingerprints"}}
    is_repeated = os.environ.get("METASTORE_BENCH_REPEATED") == "1"
    return {name: {"frequencies": "off"} for name in columns} | (repeated_policy if is_repeated else {})
