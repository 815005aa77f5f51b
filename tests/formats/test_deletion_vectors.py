"""Deletion vectors of every container and storage kind are applied, inconsistent ones refused.

A fragment is a data file and the deletes on it.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets.config import TableConfig
from metastore_assets.errors import FragmentError
from metastore_assets.formats import Snapshot, open_table_format
from metastore_assets.formats.deletion_vectors import decode_bitmap_array
from tests.formats.delta.log_writer import (
    add_file,
    commit,
    delete_rows,
    encode_array,
    encode_bitmap,
    field,
    metadata,
    newest,
    protocol,
)
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
    """Decoding returns the encoded positions in ascending order.

    The containers are arrays and bitmaps, and some positions exceed 32 bits.
    """
    assert list(decode_bitmap_array(encode_array(sorted(positions)))) == sorted(positions)


@given(st.sets(st.integers(0, 400_000), min_size=1, max_size=40) | _DENSE.filter(bool))
def test_run_containers_are_decoded(positions: set[int]) -> None:
    """Decoding a bitmap of run containers returns the encoded positions.

    Spark writes run containers where they are smaller than others.
    """
    data = struct.pack("<Iq", 1681511377, 1) + struct.pack("<I", 0) + encode_bitmap(sorted(positions), runs=True)
    assert list(decode_bitmap_array(data)) == sorted(positions)


@given(_POSITIONS.filter(bool), st.integers(1, 200))
def test_a_truncated_vector_is_refused(positions: set[int], missing: int) -> None:
    data = encode_array(sorted(positions))
    with pytest.raises(ValueError):
        decode_bitmap_array(data[:-missing] if missing < len(data) else b"")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """The folder of a Delta table with deletion vectors enabled, and with one file of 10 rows."""
    folder = tmp_path / "t"
    configuration: dict[str, str | None] = {"delta.enableDeletionVectors": "true"}
    write_deltalake(str(folder), pa.table({"a": list(range(10))}), configuration=configuration)
    return folder


def _snapshot(table: Path) -> Snapshot:
    return open_table_format(TableConfig(name="t", uri=str(table))).snapshot()


@pytest.mark.parametrize("storage", ["u", "i", "p"])
def test_every_storage_kind_is_applied_as_deltalake_applies_it(table: Path, storage: str) -> None:
    """A deletion vector of each kind of storage deletes the same rows as in deltalake.

    It is in a file with a relative path (`u`) or an absolute path (`p`), or inline (`i`).
    """
    path = newest(table, "add")["path"]
    delete_rows(table, path, [0, 3, 4, 9], storage)
    snapshot = _snapshot(table)
    assert read_columns(snapshot)["a"] == [1, 2, 5, 6, 7, 8]
    assert snapshot.fragments[0].row_count == 6
    masks = pa.table(DeltaTable(str(table)).deletion_vectors())["selection_vector"].to_pylist()
    assert [index for index, live in enumerate(masks[0]) if not live] == [0, 3, 4, 9]


def test_each_vector_of_a_file_makes_another_fragment(table: Path) -> None:
    """A data file without a vector, and with each of four vectors in turn, gives five fragment ids.

    A checkpoint does not change the id.
    """
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
    commit(table, {"add": add | {"deletionVector": vector | changes}})


def test_a_wrong_cardinality_is_refused(table: Path) -> None:
    """A deletion vector of two rows is refused if the log records three deleted rows."""
    delete_rows(table, newest(table, "add")["path"], [0, 3], "i")
    _spoil(table, cardinality=3)
    with pytest.raises(FragmentError, match=r"\b2 rows.*\b3\b"):
        _snapshot(table).fragments[0].source.open()


def test_a_vector_beyond_the_file_is_refused(table: Path) -> None:
    delete_rows(table, newest(table, "add")["path"], [0, 10], "i")
    with pytest.raises(FragmentError, match=r"\brow 10\b.*\b10 rows"):
        _snapshot(table).fragments[0].source.open()


def test_a_flipped_bit_is_refused(table: Path) -> None:
    """A deletion vector with a flipped bit is refused, because its checksum does not match."""
    delete_rows(table, newest(table, "add")["path"], [0, 3], "u")
    file = next(table.rglob("deletion_vector_*.bin"))
    data = bytearray(file.read_bytes())
    data[-6] ^= 1
    file.write_bytes(data)
    with pytest.raises(FragmentError, match="checksum"):
        _snapshot(table).fragments[0].source.open()


def test_a_vacuumed_vector_is_reported_as_missing(table: Path) -> None:
    """The error for a deletion vector whose file was deleted after planning says that a file is missing."""
    delete_rows(table, newest(table, "add")["path"], [0, 3], "u")
    snapshot = _snapshot(table)
    next(table.rglob("deletion_vector_*.bin")).unlink()
    with pytest.raises(FragmentError, match=r"\.bin.*\.parquet") as error_info:
        snapshot.fragments[0].source.open()
    assert error_info.value.missing


_ADD = pa.struct(
    [
        ("path", pa.string()),
        ("partitionValues", pa.map_(pa.string(), pa.string())),
        ("size", pa.int64()),
        ("modificationTime", pa.int64()),
        ("dataChange", pa.bool_()),
        ("stats", pa.string()),
        (
            "deletionVector",
            pa.struct(
                [
                    ("storageType", pa.string()),
                    ("pathOrInlineDv", pa.string()),
                    ("offset", pa.int32()),
                    ("sizeInBytes", pa.int32()),
                    ("cardinality", pa.int64()),
                ]
            ),
        ),
    ]
)


def _tables_with_vectors(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Write a table of two files, the second with a deletion vector, at version 2.

    Return both add actions.
    """
    features = protocol("deletionVectors", "v2Checkpoint")
    first = add_file(folder, pa.table({"a": [1, 2, 3]}), "1.parquet")
    second = add_file(folder, pa.table({"a": [4, 5, 6]}), "2.parquet")
    settings = {"delta.enableDeletionVectors": "true", "delta.checkpointPolicy": "v2"}
    commit(folder, features, metadata([field("a", "long")], **settings), first)
    commit(folder, second)
    delete_rows(folder, "2.parquet", [1])
    adds = [first["add"], newest(folder, "add", "2.parquet")]
    return adds[0], adds[1]


def _forget_before(folder: Path, version: int) -> None:
    for number in range(version + 1):
        (folder / "_delta_log" / f"{number:020}.json").unlink()


def _actions(rows: list[dict[str, Any]], actions: list[dict[str, Any]]) -> pa.Table:
    """Return the rows of a Parquet checkpoint: the actions, and one add action for each of `rows`."""
    protocols = pa.struct(
        [
            ("minReaderVersion", pa.int32()),
            ("minWriterVersion", pa.int32()),
            ("readerFeatures", pa.list_(pa.string())),
            ("writerFeatures", pa.list_(pa.string())),
        ]
    )
    strings = pa.map_(pa.string(), pa.string())
    metadatas = pa.struct(
        [
            ("id", pa.string()),
            ("format", pa.struct([("provider", pa.string()), ("options", strings)])),
            ("schemaString", pa.string()),
            ("partitionColumns", pa.list_(pa.string())),
            ("configuration", strings),
            ("createdTime", pa.int64()),
        ]
    )
    plain = [*actions, *({"add": row} for row in rows)]
    for action in plain:
        for value in action.values():
            for key in ("configuration", "partitionValues"):
                if isinstance(value.get(key), dict):
                    value[key] = list(value[key].items())
            if "format" in value:
                value["format"] = {"provider": "parquet", "options": []}
    return pa.table(
        {
            name: pa.array([action.get(name) for action in plain], type_)
            for name, type_ in (("protocol", protocols), ("metaData", metadatas), ("add", _ADD))
        }
    )


@pytest.mark.parametrize("kind", ["classic", "parts", "v2 json", "v2 parquet"])
def test_vectors_are_read_from_every_kind_of_checkpoint(tmp_path: Path, kind: str) -> None:
    """Deletion vectors are read from every kind of checkpoint: one file, two parts, or a sidecar.

    The commits before the checkpoint are deleted.
    """
    plain, add_with_vector = _tables_with_vectors(tmp_path)
    log = tmp_path / "_delta_log"
    head = [{"protocol": newest(tmp_path, "protocol")}, {"metaData": newest(tmp_path, "metaData")}]
    expected = {fragment.path: fragment.id for fragment in _snapshot(tmp_path).fragments}
    name = f"{2:020}.checkpoint"
    if kind == "classic":
        pq.write_table(_actions([plain, add_with_vector], head), log / f"{name}.parquet")
    elif kind == "parts":
        pq.write_table(_actions([plain], head), log / f"{name}.{1:010}.{2:010}.parquet")
        pq.write_table(_actions([add_with_vector], []), log / f"{name}.{2:010}.{2:010}.parquet")
    else:
        (log / "_sidecars").mkdir()
        sidecar = log / "_sidecars" / "3a0d65cd-4056-49b8-937b-95f9e3ee90e5.parquet"
        pq.write_table(_actions([plain, add_with_vector], []), sidecar)
        pointer = {"path": sidecar.name, "sizeInBytes": sidecar.stat().st_size, "modificationTime": 1}
        target = log / f"{name}.80a083e8-7026-4e79-81be-64bd76c43a11"
        if kind == "v2 json":
            actions = [{"checkpointMetadata": {"version": 2}}, *head, {"sidecar": pointer}]
            target.with_name(f"{target.name}.json").write_text("\n".join(json.dumps(action) for action in actions))
        else:
            rows = _actions([], head)
            empty = pa.nulls(rows.num_rows)
            version = pa.array([{"version": 2}, *[None] * (rows.num_rows)], pa.struct([("version", pa.int64())]))
            type_ = pa.struct([("path", pa.string()), ("sizeInBytes", pa.int64()), ("modificationTime", pa.int64())])
            sidecars = pa.array([None, *empty.to_pylist()], type_)
            rows = pa.concat_tables([pa.table({"protocol": pa.nulls(1)}), rows], promote_options="permissive")
            rows = rows.append_column("checkpointMetadata", version).append_column("sidecar", sidecars)
            last = pa.table({"sidecar": pa.array([pointer], type_)})
            rows = pa.concat_tables([rows, last], promote_options="permissive")
            pq.write_table(rows, target.with_name(f"{target.name}.parquet"))
    _forget_before(tmp_path, 1)
    snapshot = _snapshot(tmp_path)
    assert {fragment.path: fragment.id for fragment in snapshot.fragments} == expected
    assert sorted(read_columns(snapshot)["a"]) == [1, 2, 3, 4, 6]
    commit(tmp_path, {"commitInfo": {}})
    assert {fragment.path: fragment.id for fragment in _snapshot(tmp_path).fragments} == expected


def test_an_incomplete_checkpoint_is_ignored(tmp_path: Path) -> None:
    """If a crashed writer left only one of the two parts of a checkpoint, the commits are read instead."""
    plain, _ = _tables_with_vectors(tmp_path)
    head = [{"protocol": newest(tmp_path, "protocol")}, {"metaData": newest(tmp_path, "metaData")}]
    part = tmp_path / "_delta_log" / f"{2:020}.checkpoint.{1:010}.{2:010}.parquet"
    pq.write_table(_actions([plain], head), part)
    assert sorted(read_columns(_snapshot(tmp_path))["a"]) == [1, 2, 3, 4, 6]
