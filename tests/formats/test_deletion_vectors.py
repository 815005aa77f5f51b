"""Deletion vectors: every container and storage kind, and what contradicts itself is noticed."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets.config import TableConfig
from metastore_assets.errors import FragmentError
from metastore_assets.formats import Snapshot, open_table_format
from metastore_assets.formats.deletion_vectors import decode_bitmap_array
from tests.formats.delta_log_writer import commit, delete_rows, encode_array, encode_bitmap, newest
from tests.formats.oracle import read_columns

_DENSE = st.builds(
    lambda start, length: set(range(start, start + length)), st.integers(0, 200_000), st.integers(0, 9000)
)
_POSITIONS = st.one_of(
    st.sets(st.integers(0, 300_000), max_size=50),
    st.sets(st.integers(0, 2**40), max_size=10),
    _DENSE,
    st.builds(set.union, _DENSE, st.sets(st.integers(0, 2**33), max_size=5)),
)


@given(_POSITIONS)
def test_decoding_gives_the_positions_that_were_encoded(positions: set[int]) -> None:
    """Array and bitmap containers, and positions beyond 32 bits, in ascending order."""
    assert decode_bitmap_array(encode_array(sorted(positions))).tolist() == sorted(positions)


@given(st.sets(st.integers(0, 400_000), min_size=1, max_size=40) | _DENSE.filter(bool))
def test_run_containers_are_decoded(positions: set[int]) -> None:
    """As Spark writes them after optimizing a bitmap."""
    data = struct.pack("<Iq", 1681511377, 1) + struct.pack("<I", 0) + encode_bitmap(sorted(positions), runs=True)
    assert decode_bitmap_array(data).tolist() == sorted(positions)


@given(_POSITIONS.filter(bool), st.integers(1, 200))
def test_a_vector_cut_off_is_refused(positions: set[int], missing: int) -> None:
    """Never fewer deleted rows than there are."""
    data = encode_array(sorted(positions))
    with pytest.raises(ValueError):
        decode_bitmap_array(data[:-missing] if missing < len(data) else b"")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """One file of 10 rows, with deletion vectors enabled."""
    folder = tmp_path / "t"
    configuration: dict[str, str | None] = {"delta.enableDeletionVectors": "true"}
    write_deltalake(str(folder), pa.table({"a": list(range(10))}), configuration=configuration)
    return folder


def _snapshot(table: Path) -> Snapshot:
    return open_table_format(TableConfig(name="t", uri=str(table))).snapshot()


@pytest.mark.parametrize("storage", ["u", "i", "p"])
def test_every_storage_kind_is_applied_as_deltalake_applies_it(table: Path, storage: str) -> None:
    """Relative and absolute files, with a prefix and an offset, and inline."""
    path = newest(table, "add")["path"]
    delete_rows(table, path, [0, 3, 4, 9], storage)
    snapshot = _snapshot(table)
    assert read_columns(snapshot)["a"] == [1, 2, 5, 6, 7, 8]
    assert snapshot.fragments[0].row_count == 6
    masks = pa.table(DeltaTable(str(table)).deletion_vectors())["selection_vector"].to_pylist()
    assert [index for index, live in enumerate(masks[0]) if not live] == [0, 3, 4, 9]


def test_each_vector_of_a_file_is_a_fragment_of_its_own(table: Path) -> None:
    """One data file, five sets of live rows; the checkpoint between does not matter."""
    path = newest(table, "add")["path"]
    ids = {_snapshot(table).fragments[0].id}
    for number, positions in enumerate([[0], [0, 1], [0, 1, 2], list(range(10))]):
        delete_rows(table, path, positions, "uipu"[number])
        if number == 1:
            DeltaTable(str(table)).create_checkpoint()
        fragment = _snapshot(table).fragments[0]
        ids.add(fragment.id)
        with fragment.source.open() as reader:
            assert reader.row_count == fragment.row_count == 10 - len(positions)
    assert len(ids) == 5
    DeltaTable(str(table)).create_checkpoint()
    assert _snapshot(table).fragments[0].id in ids


def _spoil(table: Path, **changes: Any) -> None:
    add = newest(table, "add")
    vector = add["deletionVector"]
    commit(table, {"add": add | {"deletionVector": vector | changes}}, {"remove": add | {"dataChange": True}})


def test_a_wrong_cardinality_is_refused(table: Path) -> None:
    """The log and the vector must agree, else a row count would be wrong."""
    delete_rows(table, newest(table, "add")["path"], [0, 3], "i")
    _spoil(table, cardinality=3)
    with pytest.raises(FragmentError, match="deletes 2 rows, the log says 3"):
        _snapshot(table).fragments[0].source.open()


def test_a_vector_beyond_the_file_is_refused(table: Path) -> None:
    """It belongs to another file."""
    delete_rows(table, newest(table, "add")["path"], [0, 10], "i")
    with pytest.raises(FragmentError, match="has 10 rows, but its deletion vector deletes row 10"):
        _snapshot(table).fragments[0].source.open()


def test_a_flipped_bit_is_refused(table: Path) -> None:
    """By the checksum behind the vector."""
    delete_rows(table, newest(table, "add")["path"], [0, 3], "u")
    file = next(table.rglob("deletion_vector_*.bin"))
    data = bytearray(file.read_bytes())
    data[-6] ^= 1
    file.write_bytes(data)
    with pytest.raises(FragmentError, match="checksum"):
        _snapshot(table).fragments[0].source.open()


def test_a_vector_that_was_vacuumed_is_missing(table: Path) -> None:
    """As a data file that is gone: planning again helps."""
    delete_rows(table, newest(table, "add")["path"], [0, 3], "u")
    snapshot = _snapshot(table)
    next(table.rglob("deletion_vector_*.bin")).unlink()
    with pytest.raises(FragmentError) as caught:
        snapshot.fragments[0].source.open()
    assert caught.value.missing
