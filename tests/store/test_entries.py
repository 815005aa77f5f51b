"""Entries survive a round trip through Parquet.

An entry is the record of a fragment, a partition or another object in a version.
"""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets.store.entries import (
    FRAGMENTS,
    NODES,
    PARTITIONS,
    PROFILE_SPECS,
    RETIRED,
    SHARED_FILES,
    decode_entries,
    encode_entries,
)
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.version import (
    FragmentEntry,
    NodeEntry,
    PartitionEntry,
    ProfileFiles,
    ProfileSpecEntry,
    RetiredFragment,
    SharedFileEntry,
)
from metastore_assets.store.versions import file_paths

TEXT = st.text(st.characters(codec="utf-8"), max_size=5)
COUNT = st.integers(0, 2**63 - 1)
TEXTS = st.lists(TEXT, max_size=3).map(tuple)
PATH = st.sampled_from(["", "a", "a.statistics.parquet", "a.histograms.parquet", "a.states.parquet"]) | TEXT
FILES = st.builds(ProfileFiles, PATH, PATH, TEXTS, PATH)
KEY = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5)
FRAGMENT = st.builds(FragmentEntry, TEXT, KEY, TEXT, COUNT, COUNT, TEXT, TEXTS, FILES, TEXTS)
RETIRED_FRAGMENT = st.builds(RetiredFragment, st.integers(1, 10**9), FRAGMENT)
PARTITION = st.builds(PartitionEntry, TEXT, TEXT, COUNT, COUNT, COUNT, FILES, COUNT)
NODE = st.builds(NodeEntry, TEXT, FILES, TEXT, TEXT, TEXTS, TEXTS, COUNT)
SPEC = st.builds(ProfileSpecEntry, TEXT, TEXTS, TEXTS)
SHARED_FILE = st.builds(SharedFileEntry, TEXT, COUNT, TEXTS, st.lists(st.integers(1, 2**40), max_size=3).map(tuple))


@given(
    st.lists(FRAGMENT),
    st.lists(RETIRED_FRAGMENT),
    st.lists(PARTITION),
    st.lists(NODE),
    st.lists(SPEC),
    st.lists(SHARED_FILE),
)
def test_entries_survive_a_round_trip_in_order(
    fragments: list[FragmentEntry],
    retired_fragments: list[RetiredFragment],
    partitions: list[PartitionEntry],
    nodes: list[NodeEntry],
    specs: list[ProfileSpecEntry],
    shared_files: list[SharedFileEntry],
) -> None:
    assert decode_entries(SHARED_FILES, encode_entries(SHARED_FILES, shared_files)) == shared_files
    assert decode_entries(PROFILE_SPECS, encode_entries(PROFILE_SPECS, specs)) == specs
    assert decode_entries(FRAGMENTS, encode_entries(FRAGMENTS, fragments)) == fragments
    assert decode_entries(RETIRED, encode_entries(RETIRED, retired_fragments)) == retired_fragments
    assert decode_entries(PARTITIONS, encode_entries(PARTITIONS, partitions)) == partitions
    assert decode_entries(NODES, encode_entries(NODES, nodes)) == nodes


@given(st.lists(FRAGMENT, max_size=10), st.integers(1, 4))
def test_entries_are_decoded_from_several_chunks(fragments: list[FragmentEntry], rows: int) -> None:
    """An Arrow table of several chunks, such as a file's row groups, is decoded to the entries in it."""
    table = encode_entries(FRAGMENTS, fragments)
    chunked_table = pa.concat_tables([table.slice(start, rows) for start in range(0, max(1, table.num_rows), rows)])
    assert decode_entries(FRAGMENTS, chunked_table) == fragments


def test_paths_that_follow_from_the_statistics_are_not_stored() -> None:
    """A path of histograms or states is stored as null if it follows from the path of the statistics.

    It follows if both paths differ only in the kind of file, such as `.histograms.parquet`. States are the forms of
    statistics that can be merged. `file_paths` returns all paths nevertheless. Otherwise, an expiry would delete files
    that are in use.
    """
    own, merged = (
        ProfileFiles("p/a.statistics.parquet", "p/a.histograms.parquet", ("p/a.0.parquet",), "p/a.states.parquet"),
        ProfileFiles("p/b.statistics.parquet", "", (), "p/c.states.parquet"),
    )
    entries = [PartitionEntry(key, "", 1, 1, 1, files, 1) for key, files in (("1", own), ("2", merged))]
    rows = encode_entries(PARTITIONS, entries)
    assert rows["histograms"].to_pylist() == [None, ""]
    assert rows["states"].to_pylist() == [None, "p/c.states.parquet"]
    paths = {path for array in file_paths(rows) for path in array.to_pylist() if path}
    assert paths == {*own.paths(), *merged.paths()}


def test_fifty_thousand_fragments_take_little_space(local_store: ObjectStore) -> None:
    names = [f"profiles/{i:064x}" for i in range(50_000)]
    entries = [
        FragmentEntry(
            name, f"day={i % 365}", name, 10**8, 10**6, "spec", (), ProfileFiles(name, name + "h", (name + "f",))
        )
        for i, name in enumerate(names)
    ]
    local_store.write_parquet("entries", encode_entries(FRAGMENTS, entries))
    decoded_entries = decode_entries(FRAGMENTS, local_store.read_parquet("entries"))
    assert decoded_entries == entries
    assert local_store.list()[0].size == pytest.approx(2_000_000, rel=1)
