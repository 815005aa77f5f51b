"""Iceberg delete files apply as in a model of random commits, and as in an example of each rule.

A fragment is a data file and the deletes on it.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.table import StaticTable

from metastore_assets.config import TableConfig
from metastore_assets.errors import FragmentError, TableFormatError
from metastore_assets.formats import Snapshot, open_table_format
from tests.formats.iceberg.tables import IcebergDeletionVectors, IcebergPositionDeletes
from tests.formats.iceberg.writer import Entry, IcebergWriter, column
from tests.formats.oracle import read_rows
from tests.formats.table_writers import DAYS

_COLUMNS = [column(1, "id", "long"), column(2, "a", "long"), column(3, "b", "string"), column(4, "part", "string")]
_TYPES = {"id": pa.int64(), "a": pa.int64(), "b": pa.string(), "part": pa.string()}
_SPECS = {
    0: [],
    1: [{"name": "part", "field-id": 1000, "source-id": 4, "transform": "identity"}],
    2: [{"name": "part_void", "field-id": 1001, "source-id": 4, "transform": "void"}],
}


def _table(**columns: list[Any]) -> pa.Table:
    return pa.table({name: pa.array(values, _TYPES[name]) for name, values in columns.items()})


def _snapshot(folder: Path, **more: Any) -> Snapshot:
    return open_table_format(TableConfig(name="t", uri=str(folder), **more)).snapshot()


def _ids(folder: Path, **more: Any) -> list[int]:
    snapshot = _snapshot(folder, **more)
    id_index = snapshot.schema.names.index("id")
    for fragment in snapshot.fragments:
        with fragment.source.open() as reader:
            assert fragment.row_count in (None, reader.row_count)
    return sorted(row[id_index] for row in read_rows(snapshot))


@dataclass
class _Row:
    id: int
    a: int | None
    b: str | None
    part: str | None
    sequence: int
    spec: int
    path: str
    position: int

    @property
    def partition(self) -> tuple[Any, ...]:
        return {0: (), 1: (self.part,), 2: (None,)}[self.spec]


class _Model:
    """A table, and its expected live rows."""

    def __init__(self, folder: Path, version: int) -> None:
        self.folder = folder
        self.writer = IcebergWriter(
            folder, _COLUMNS, specs=_SPECS, partition_types={1000: "string", 1001: "string"}, version=version
        )
        self.written: list[_Row] = []
        self.live: list[_Row] = []
        self.vectors: dict[str, tuple[Entry, set[int]]] = {}

    def commit(self, steps: list[Any]) -> None:
        """Commit the changes that `steps` describe.

        A step has a kind, which is `data`, `equality` or `positions`, and the arguments of the method for this kind.
        Position deletes apply also to files of the same commit. Equality deletes apply only to earlier files.
        """
        sequence = self.writer.sequence + 1
        added_entries: list[Entry] = []
        removed_entries: list[Entry] = []
        for kind, *arguments in sorted(steps, key=lambda step: step[0] != "data"):
            getattr(self, f"_{kind}")(sequence, added_entries, removed_entries, *arguments)
        self.writer.commit(*added_entries, removed_entries=removed_entries)

    def _data(
        self,
        sequence: int,
        added_entries: list[Entry],
        _: list[Entry],
        spec: int,
        part: str | None,
        values: Any,
        format_: str,
    ) -> None:
        first = len(self.written)
        ids = list(range(first, first + len(values)))
        table = _table(id=ids, a=[a for a, _ in values], b=[b for _, b in values], part=[part] * len(values))
        partition = {0: (), 1: (part,), 2: (None,)}[spec]
        entry = self.writer.data(table, spec_id=spec, partition=partition, format_=format_)
        rows = [
            _Row(id_, a, b, part, sequence, spec, entry["file_path"], position)
            for position, (id_, (a, b)) in enumerate(zip(ids, values, strict=True))
        ]
        self.written += rows
        self.live += rows
        added_entries.append(entry)

    def _equality(
        self,
        sequence: int,
        added_entries: list[Entry],
        _: list[Entry],
        spec: int,
        part: str | None,
        names: Any,
        values: Any,
    ) -> None:
        """Add a file of equality deletes for older rows.

        The file deletes matching rows of its partition. If its spec has no fields, or only a void one, it deletes
        matching rows of all partitions.
        """
        keys = sorted(names)
        rows = [dict(zip("ab", pair, strict=True)) for pair in values]
        table = _table(a=[row["a"] for row in rows], b=[row["b"] for row in rows])
        partition = {0: (), 1: (part,), 2: (None,)}[spec]
        added_entries.append(self.writer.equality_deletes(table, *keys, spec_id=spec, partition=partition))
        deleted_keys = {tuple(row[key] for key in keys) for row in rows}
        self.live = [
            row
            for row in self.live
            if row.sequence >= sequence
            or (spec == 1 and (row.spec, row.partition) != (1, partition))
            or tuple(getattr(row, key) for key in keys) not in deleted_keys
        ]

    def _positions(
        self, _: int, added_entries: list[Entry], removed_entries: list[Entry], picked_numbers: set[int], is_moved: bool
    ) -> None:
        """Delete some rows by position: with deletion vectors in version 3, otherwise with delete files.

        With `is_moved`, delete files name the data files with another server in their URIs.
        """
        rows = [self.written[number % len(self.written)] for number in sorted(picked_numbers)] if self.written else []
        by_partition: dict[Any, list[_Row]] = {}
        for row in rows:
            by_partition.setdefault((row.spec, row.partition), []).append(row)
        for (spec, partition), group in by_partition.items():
            if self.writer.version == 3:
                for path in {row.path for row in group}:
                    self._vector(
                        path,
                        {row.position for row in group if row.path == path},
                        group[0],
                        added_entries,
                        removed_entries,
                    )
            else:
                authority = "hdfs://elsewhere:8020" if is_moved else ""
                pairs = [(authority + row.path, row.position) for row in group]
                added_entries.append(self.writer.position_deletes(pairs, spec_id=spec, partition=partition))
        removed_ids = {row.id for row in rows}
        self.live = [row for row in self.live if row.id not in removed_ids]

    def _vector(
        self, path: str, positions: set[int], row: _Row, added_entries: list[Entry], removed_entries: list[Entry]
    ) -> None:
        if path in self.vectors:
            old, before = self.vectors[path]
            positions |= before
            removed_entries.append(old)
            if old in added_entries:
                added_entries.remove(old)
        entry = self.writer.deletion_vector(path, positions, spec_id=row.spec, partition=row.partition)
        self.vectors[path] = entry, positions
        added_entries.append(entry)


_PARTS = st.sampled_from(["x", "y", None])
_PAIRS = st.tuples(st.sampled_from([None, 1, 2]), st.sampled_from([None, "p", "q"]))
_FILES = st.sampled_from(["parquet", "parquet", "orc", "avro"])
_STEP = st.one_of(
    st.tuples(st.just("data"), st.sampled_from([0, 1, 2]), _PARTS, st.lists(_PAIRS, min_size=1, max_size=6), _FILES),
    st.tuples(
        st.just("equality"),
        st.sampled_from([0, 1, 2]),
        _PARTS,
        st.sampled_from([("a",), ("b",), ("a", "b")]),
        st.lists(_PAIRS, min_size=1, max_size=3),
    ),
    st.tuples(st.just("positions"), st.sets(st.integers(0, 40), min_size=1, max_size=6), st.booleans()),
)


@pytest.mark.parametrize("version", [2, 3])
@given(commits=st.lists(st.lists(_STEP, min_size=1, max_size=3), min_size=1, max_size=5))
@settings(max_examples=max(12, settings().max_examples // 2))
def test_random_histories_have_the_rows_of_the_model(version: int, commits: list[Any]) -> None:
    """Each snapshot of a random history has the expected live rows.

    Commits add data files and delete files of all kinds, in all partitions and specs.
    """
    with tempfile.TemporaryDirectory() as folder:
        model = _Model(Path(folder) / "t", version)
        states: dict[str, list[int]] = {}
        for steps in commits:
            model.commit(steps)
            states[str(model.writer.snapshots[-1]["snapshot-id"])] = sorted(row.id for row in model.live)
            assert _ids(model.folder) == states[_snapshot(model.folder).id]
        for at, ids in states.items():
            assert _ids(model.folder, at=at) == ids


@pytest.mark.parametrize("kind", [IcebergPositionDeletes, IcebergDeletionVectors])
def test_tables_of_the_writer_are_read_by_pyiceberg(kind: type[IcebergPositionDeletes], tmp_path: Path) -> None:
    """pyiceberg reads the same rows from each snapshot that the test's writer has committed."""
    table = kind(tmp_path / "t")
    table.append([(number, str(number), DAYS[number % 3]) for number in range(9)])
    table.append([(number, None, DAYS[0]) for number in range(9, 12)])
    table.delete([0, 4, 9])
    table.compact(DAYS[1])
    table.delete([5, 7, 10])
    metadata = sorted((tmp_path / "t" / "metadata").glob("v*.json"), key=lambda path: int(path.name[1:].split(".")[0]))
    assert len(metadata) > 4
    for path in metadata:
        rows = StaticTable.from_metadata(str(path)).scan().to_arrow().to_pylist()
        assert sorted(row["id"] for row in rows) == _ids(path)
        assert sorted(tuple(row.values()) for row in rows if row["text"]) == sorted(
            row for row in read_rows(_snapshot(path)) if row[1]
        )


@pytest.fixture
def writer(tmp_path: Path) -> IcebergWriter:
    return IcebergWriter(tmp_path / "t", _COLUMNS, version=3)


def test_a_delete_file_of_one_data_file_is_recognised_by_its_bounds(writer: IcebergWriter) -> None:
    """Position deletes whose bounds are one path leave fragments of other data files unchanged.

    Deletes with truncated bounds apply, too.
    """
    first, second = (writer.data(_table(id=[key, key + 1])) for key in (1, 3))
    writer.commit(first, second)
    before = {fragment.path: fragment for fragment in _snapshot(writer.folder).fragments}
    path = first["file_path"]
    bound = [{"key": 2147483546, "value": path.encode()}]
    writer.commit(writer.position_deletes([(path, 0)], lower_bounds=bound, upper_bounds=bound))
    after = {fragment.path: fragment for fragment in _snapshot(writer.folder).fragments}
    assert after[second["file_path"]] == before[second["file_path"]]
    assert after[path].id != before[path].id
    cut = [{"key": 2147483546, "value": path.encode()[:16]}]
    writer.commit(writer.position_deletes([(second["file_path"], 1)], lower_bounds=cut, upper_bounds=cut))
    assert _ids(writer.folder) == [2, 3]


def test_a_vector_replaces_positions(writer: IcebergWriter) -> None:
    """Once a data file has a deletion vector, its earlier position deletes are ignored.

    Writers include the positions of earlier deletes in the vector.
    """
    data = writer.data(_table(id=[1, 2, 3]))
    writer.commit(data, writer.position_deletes([(data["file_path"], 0)]))
    assert _ids(writer.folder) == [2, 3]
    writer.commit(writer.deletion_vector(data["file_path"], [2]))
    assert _ids(writer.folder) == [1, 2]
    assert [fragment.row_count for fragment in _snapshot(writer.folder).fragments] == [2]


@pytest.mark.parametrize("padding", [b"", b"PFA1", b"PFA1" + b"\x00" * 70_000])
def test_vectors_are_read_with_and_without_a_puffin_frame(writer: IcebergWriter, padding: bytes) -> None:
    """A deletion vector is read at the offset in the manifest, with or without other bytes before it."""
    data = writer.data(_table(id=list(range(70_000))))
    deleted_positions = [0, 5, *range(65_000, 66_000), 69_999]
    writer.commit(data)
    writer.commit(writer.deletion_vector(data["file_path"], deleted_positions, padding=padding))
    assert _ids(writer.folder) == sorted(set(range(70_000)) - set(deleted_positions))


@pytest.mark.parametrize(
    ("broken_fields", "message"),
    [
        ({"record_count": 3}, r"\b2 rows.*\b3\b"),
        ({"content_size_in_bytes": 10}, "does not say where"),
        ({"content_offset": None}, "does not say where"),
        ({"content_offset": 5}, r"\b44 bytes.*\b5\b"),
        ({"content_size_in_bytes": 1000}, r"\b1000 bytes\b.*\b4\b.*\b\d{3} bytes"),
    ],
)
def test_an_inconsistent_vector_is_an_error(writer: IcebergWriter, broken_fields: dict[str, Any], message: str) -> None:
    data = writer.data(_table(id=[1, 2, 3]))
    writer.commit(data, writer.deletion_vector(data["file_path"], [0, 1], **broken_fields))
    (fragment,) = _snapshot(writer.folder).fragments
    with pytest.raises(FragmentError, match=message):
        fragment.source.open()


def test_a_flipped_bit_in_a_vector_is_an_error(writer: IcebergWriter) -> None:
    data = writer.data(_table(id=[1, 2, 3]))
    vector = writer.deletion_vector(data["file_path"], [0, 1])
    writer.commit(data, vector)
    path = Path(vector["file_path"])
    content = bytearray(path.read_bytes())
    content[vector["content_offset"] + vector["content_size_in_bytes"] - 6] ^= 1
    path.write_bytes(content)
    (fragment,) = _snapshot(writer.folder).fragments
    with pytest.raises(FragmentError, match="checksum"):
        fragment.source.open()


def test_two_vectors_of_one_file_are_an_error(writer: IcebergWriter) -> None:
    data = writer.data(_table(id=[1, 2, 3]))
    writer.commit(data, *(writer.deletion_vector(data["file_path"], [position]) for position in (0, 1)))
    with pytest.raises(TableFormatError, match=r"\b2 deletion"):
        _snapshot(writer.folder)


def test_a_vector_without_a_data_file_is_an_error(writer: IcebergWriter) -> None:
    """A deletion vector that does not name its data file is an error.

    It must not apply to all files of its partition.
    """
    first, second = (writer.data(_table(id=[key, key + 1])) for key in (1, 3))
    writer.commit(first, second)
    vector = writer.deletion_vector(first["file_path"], [0], referenced_data_file=None)
    writer.commit(vector)
    with pytest.raises(TableFormatError, match=vector["file_path"]):
        _snapshot(writer.folder)


def test_the_error_names_a_missing_delete_file(writer: IcebergWriter) -> None:
    data = writer.data(_table(id=[1, 2, 3]))
    deletes = writer.position_deletes([(data["file_path"], 0)])
    writer.commit(data, deletes)
    (fragment,) = _snapshot(writer.folder).fragments
    Path(deletes["file_path"]).unlink()
    with pytest.raises(FragmentError, match=f"{deletes['file_path']}") as error_info:
        fragment.source.open()
    assert error_info.value.missing


def test_paths_with_different_buckets_are_different_files(tmp_path: Path) -> None:
    """Position deletes apply only to the file in the same bucket as the path that they name.

    The schemes `s3` and `s3a` are equal.
    """
    writer = IcebergWriter(tmp_path / "t", _COLUMNS)
    first, second = (writer.data(_table(id=[key, key + 1])) for key in (1, 3))
    recorded_paths = {first["file_path"]: "s3://one/t/f.parquet", second["file_path"]: "s3://two/t/f.parquet"}
    path_mapping = {recorded_path: id_index for id_index, recorded_path in recorded_paths.items()}
    for entry in (first, second):
        entry["file_path"] = recorded_paths[entry["file_path"]]
    writer.commit(first, second, writer.position_deletes([("s3://two/t/f.parquet", 0)]))
    assert _ids(writer.folder, path_mapping=path_mapping) == [1, 2, 4]
    writer.commit(writer.position_deletes([("s3a://two/t/f.parquet", 1), ("s3a://three/t/f.parquet", 0)]))
    assert _ids(writer.folder, path_mapping=path_mapping) == [1, 2]
