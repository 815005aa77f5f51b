"""Rows and tables of many partitions' statistics equal those of each partition.

This holds after any commits.

A profile is the statistics of the columns in a set of rows, such as a file, a partition or the table. A version has the
statistics of one snapshot of the table.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metastore_assets.config import TableConfig
from metastore_assets.lookup import Table
from metastore_assets.metastore import open_scanner
from metastore_assets.pipeline.engine import Engine
from metastore_assets.pipeline.partition_index import plan_partition_index
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.statistics.profile_tables import build_statistics_table, build_typed_table
from metastore_assets.store.entries import PARTITIONS, StoredEntries
from metastore_assets.store.entry_changes import EntryChanges
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.segments import SegmentFiles
from metastore_assets.store.version import PartitionEntry, ProfileFiles, Version
from tests.lookup.publishing import publish, write_profile
from tests.statistics.random_columns import KINDS

STATISTICS_MODULE = "tests.pipeline.user_statistics"
POLICIES = {
    "default": {"quantiles": "sketch"},
    "h": {"values": "hidden"},
    "few": {"frequencies": "off"},
    "int": {"statistics": [f"{STATISTICS_MODULE}:Parities"]},
    "text": {"statistics": [f"{STATISTICS_MODULE}:Letters"]},
    "later_int": {"statistics": [f"{STATISTICS_MODULE}:Parities"]},
}
OF_CLASSES: dict[str, list[Any]] = {
    "boolean": [True, None, False],
    "uint64": [2**64 - 1, 0],
    "float64": [1.5, math.nan, -0.0, 5e-324],
    "decimal128_scaled": [0],
    "binary_view": [b"\xff\x00", b""],
    "uuid": [b"0123456789abcdef", None],
    "date32": [-719162, 2932896],
    "time64_ns": [86_399_999_999_999],
    "timestamp_ms": [2**50],
    "timestamptz_us": [1_700_000_000_000_000],
    "timestamp_ns": [1],
}
SEEDS = 3


def _column(kind: str, *values: Any) -> pa.Array:
    return KINDS[kind].array(list(values))


def _drawn(values: pa.Array, seed: int, rows: int) -> pa.Array:
    """Return random rows of `values`.

    For some seeds all rows are null.
    """
    if seed == 1:
        return pa.nulls(rows, values.type)
    return pa.concat_arrays(
        [values.slice(at % len(values), 1) for at in np.random.default_rng(seed).integers(0, 9, rows)]
    )


def columns_of(generation: int) -> dict[str, tuple[str, pa.Array]]:
    """Return the field id and sample values of each column, by name, for one generation of the table.

    A generation is a state of the schema: columns are added, dropped, renamed, widened and reordered between
    generations."""
    result = {kind: (kind, _column(kind, *values)) for kind, values in OF_CLASSES.items()}
    result["h"] = ("h", pa.array(["secret", None, "x"]))
    result["few"] = ("few", pa.array(["off", "on"]))
    result["int"] = ("int", pa.array([1, -3, None], pa.int32()))
    result["text"] = ("text", pa.array(["", "\U0001f600", None, "y" * 3000]))
    result["small"] = ("small", pa.array([1.5, -2.5], pa.float32()))
    result["money"] = ("money", _column("decimal32", Decimal("1.50")))
    if generation == 0:
        return result
    result["int"] = ("int", pa.array([2**40, -3, None], pa.int64()))
    result["small"] = ("small", pa.array([1e300, -2.5], pa.float64()))
    result["money"] = ("money", pa.array([Decimal(10**15), None], pa.decimal128(20, 2)))
    result["words"] = result.pop("text")
    del result["boolean"]
    result["nested"] = ("9", pa.array([{"a": [1, 2], "b": "x"}, None]))
    if generation == 1:
        return result
    result = dict(reversed(result.items()))
    del result["uuid"]
    result["text"] = ("10", pa.array(["another", None]))
    result["later_int"] = ("11", pa.array([7, None], pa.int16()))
    result["later_uuid"] = ("12", _column("uuid", b"9123456789abcdef"))
    return result


GENERATIONS = 3


def rows_of(generation: int, seed: int) -> pa.Table:
    rows = 3 + 2 * seed
    answer = columns_of(generation)
    fields = [
        pa.field(name, values.type, metadata={"metastore.field_id": identity})
        for name, (identity, values) in answer.items()
    ]
    arrays = [_drawn(values, seed, rows) for _, values in answer.values()]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


class StoredParts:
    """Stored profiles of random rows, one for each schema (generation) of the table and each seed.

    `profiles` maps (generation, seed) to (files of the profile, row count). `versions` has one version per generation.
    """

    def __init__(
        self, store: ObjectStore, profiles: Mapping[tuple[int, int], tuple[ProfileFiles, int]], versions: list[Version]
    ) -> None:
        self.store, self.profiles, self.versions = store, profiles, versions


@pytest.fixture(scope="module")
def stored_parts() -> Iterator[StoredParts]:
    with tempfile.TemporaryDirectory() as folder:
        store = ObjectStore(folder)
        profiles, versions = {}, []
        new_version = publish(store, pa.table({"x": [1]})).version
        for generation in range(GENERATIONS):
            policies = {
                name: answer for name, answer in POLICIES.items() if name in (*columns_of(generation), "default")
            }
            config = TableConfig.model_validate({"name": "orders", "uri": "nowhere", "columns": policies})
            for seed in range(SEEDS):
                rows = rows_of(generation, seed)
                profiles[generation, seed] = write_profile(store.child("orders"), config, rows), len(rows)
            full = pa.concat_tables([rows_of(generation, seed) for seed in range(SEEDS)])
            files = write_profile(store.child("orders"), config, full)
            versions.append(replace(new_version, schema=full.schema, files=files))
        yield StoredParts(store, profiles, versions)


KEYS = [f"p={at:02}" for at in range(14)]
COMMITS = st.lists(
    st.dictionaries(st.sampled_from(KEYS), st.none() | st.integers(0, SEEDS - 1), min_size=1, max_size=12),
    min_size=1,
    max_size=5,
)
"""Commits. Each has, by partition key, the seed of the partition's new profile, or None if the partition is removed."""


def table_after(stored_parts: StoredParts, commits: list[dict[str, int | None]], generations: list[int]) -> Table:
    """Return the table after some commits.

    Args:
        stored_parts: The stored profiles and versions.
        commits: For each commit, {partition: seed of its new rows, or None to remove it}.
        generations: For each commit, the generation of the schema whose profiles it uses.
    """
    base: Version | None = None
    entries: dict[str, PartitionEntry] = {}
    objects = stored_parts.store.child("orders")
    for number, (commit, generation) in enumerate(zip(commits, generations, strict=True), start=100):
        before = dict(entries)
        for key, seed in commit.items():
            entries.pop(key, None)
            if seed is not None:
                files, rows = stored_parts.profiles[generation, seed]
                entries[key] = PartitionEntry(key, key, rows, rows, 1, files, number)
        partitions = sorted(entries.values(), key=lambda partition_entry: partition_entry.key)
        new_entries = {key: entry for key, entry in entries.items() if before.get(key) != entry}
        dropped_entries = {key: entry for key, entry in before.items() if key in new_entries or key not in entries}
        # The published entries are not read, because only `len` of the base is used.
        base_entries = StoredEntries(PARTITIONS, objects, SegmentFiles(len(before), ())) if base is not None else None
        files_of = plan_partition_index(
            Engine(_no_spark, "auto"),
            objects,
            20,
            base.partition_index if base is not None else None,
            EntryChanges(PARTITIONS, base_entries, new_entries, dropped_entries),
        ).write(True)
        base = replace(
            stored_parts.versions[generation],
            number=number,
            partitions=partitions,
            partition_index=files_of,
            row_count=sum(partition.row_count for partition in partitions),
        )
    assert base is not None
    return Table(objects, base, open_scanner)


def _no_spark() -> Any:
    raise AssertionError("this is little work")


def assert_same(actual: pa.Table, expected: pa.Table) -> None:
    """Assert that schemas and values are equal, with NaN equal to itself."""
    assert actual.schema == expected.schema, (actual.schema, expected.schema)
    assert actual.schema.metadata == expected.schema.metadata
    for name, one, other in zip(actual.column_names, actual.columns, expected.columns, strict=True):
        if pa.types.is_floating(one.type):
            assert one.is_null().equals(other.is_null()), name
            np.testing.assert_array_equal(one.to_numpy(), other.to_numpy(), err_msg=name)
        else:
            assert one.equals(other), (name, one, other)
    actual.validate(full=True)


@settings(max_examples=8)
@given(commits=COMMITS, first=st.integers(0, GENERATIONS - 1), data=st.data())
def test_rows_and_table_are_those_of_the_partitions(
    stored_parts: StoredParts, commits: list[dict[str, int | None]], first: int, data: st.DataObject
) -> None:
    check(stored_parts, commits, first, data)


@pytest.mark.long
@settings(max_examples=max(60, settings().max_examples // 5))
@given(commits=COMMITS, first=st.integers(0, GENERATIONS - 1), data=st.data())
def test_rows_and_table_are_those_of_the_partitions_long(
    stored_parts: StoredParts, commits: list[dict[str, int | None]], first: int, data: st.DataObject
) -> None:
    check(stored_parts, commits, first, data)


def check(stored_parts: StoredParts, commits: list[dict[str, int | None]], first: int, data: st.DataObject) -> None:
    """Assert that one request for many partitions returns the same as one request for each partition.

    Args:
        stored_parts: The stored profiles and versions.
        commits: For each commit, {partition: seed of its new rows, or None to remove it}.
        first: The generation of the first commit. Each later commit has the next generation, or the last one if there
            is no next.
        data: Draws the columns and partitions of the request.
    """
    generations = [min(GENERATIONS - 1, first + at) for at in range(len(commits))]
    table = table_after(stored_parts, commits, generations)
    keys = [partition.key for partition in table.partitions()]
    names = [row.column for row in table.statistics()]
    columns = data.draw(st.none() | st.lists(st.sampled_from(names), unique=True, min_size=1, max_size=3))
    selection = data.draw(
        st.just("*") | st.permutations(keys).map(lambda permutation: permutation[: len(permutation) // 2 + 5])
    )
    answer = table.statistics(columns, partition=selection)
    order = keys if selection == "*" else selection
    rows: list[ColumnStatistics] = []
    for key in order:
        rows += table.statistics(columns, partition=key)
    version_metadata = {"metastore.version": str(table.version.number), "metastore.snapshot": table.version.snapshot}
    partitions = [key for key in order for _ in (columns or names)]
    expected = build_typed_table(build_statistics_table(rows)).add_column(
        0, "partition", pa.array(partitions, pa.string())
    )
    # The table is built before and after the rows, and from an answer that has only rows.
    for _ in range(2):
        assert_same(answer.to_arrow(), expected.replace_schema_metadata(version_metadata))
        assert len(answer) == len(rows)
        assert list(answer) == rows
        assert [row.partition for row in answer] == partitions
        assert answer == rows
        assert repr(answer).startswith(f"{len(rows):,} row")
